//! Messages to agents and from them: a length and then the message in postcard's form, over pipes or a connection.

use crate::cgroup::Throttling;
use crate::machine::Machine;
use crate::numbers::float;
use crate::plan::{Plan, part};
use crate::server::{Server, ServerSample};
use crate::workload::{Numbers, Tally};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sockdrawer::Address;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::time::Duration;

/// More is no message of ours. The histograms of a run of `http` with many pages are the largest.
const LONGEST: u32 = 256 * 1024 * 1024;

/// Number of connections that there are to be, and how fast they are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Aim {
    pub(crate) connections: usize,
    /// Connects, or ends where there are too many, per second; None: as fast as it goes.
    pub(crate) rate: Option<f64>,
}

impl Aim {
    /// Returns the part of an agent, which is number `number` of `of`.
    pub(super) fn part(&self, number: usize, of: usize) -> Aim {
        Aim { connections: part(self.connections, number, of), rate: self.rate.map(|rate| rate / float(of as u64)) }
    }
}

/// Command to an agent besides its aim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Time from one operation of a connection to the next.
    Interval(Duration),
    /// Begin nothing.
    Suspend,
    /// Begin again.
    Resume,
}

/// State of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Connects begun.
    pub(crate) connects: u64,
    /// Connects begun whose end is known.
    pub(crate) settled: u64,
    /// All connects were begun that will be made.
    pub(crate) made: bool,
    /// Connections, those that linger and those under way too.
    pub(crate) connections: u64,
    /// Connections that stand.
    pub(crate) standing: u64,
    /// Maximum of connections that stood at once; of several agents the sum of what was the most in each.
    pub(crate) peak: u64,
    /// All operations that were asked for ended.
    pub(crate) spent: bool,
    /// Number of aims that the agent has heard of since the first.
    pub(crate) aims: u32,
    /// Reason why it cannot go on.
    pub(crate) stopped: Option<String>,
}

impl State {
    /// Returns true where every connect that will be made has succeeded or failed.
    pub(crate) fn is_connected(&self) -> bool {
        self.made && self.settled >= self.connects
    }

    pub(super) fn add(&mut self, other: &State) {
        self.connects += other.connects;
        self.settled += other.settled;
        self.made &= other.made;
        self.connections += other.connections;
        self.standing += other.standing;
        self.peak += other.peak;
        self.spent &= other.spent;
        if self.stopped.is_none() {
            self.stopped.clone_from(&other.stopped);
        }
    }
}

/// Results of clients since they were asked for before, and the cost so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) tally: Tally,
    /// CPU time of processes other than this one.
    pub(crate) cpu: Duration,
    /// Memory of processes other than this one.
    pub(crate) rss_bytes: u64,
    /// Memory that clients have made since they began, of this process too.
    pub(crate) grown_bytes: u64,
    /// Stops of an agent by the quota of its cgroup since the run began there.
    pub(crate) throttled: Option<Throttling>,
}

/// Request to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Prepares a run, and says when it is ready.
    Start(Box<StartPart>),
    /// Begins the run that it is ready for, at this moment of its clock.
    Go(Duration),
    Aim(Aim),
    Word(Word),
    /// Asks for the results of its clients since the last time; at the last time, of all that there was.
    Take {
        last: bool,
    },
    /// The run is over: no more connects.
    Halt,
    /// Waits until nothing is under way any more, and says so.
    Settle,
    /// Cuts off soon the operations that are under way.
    Hurry,
    /// The run has ended, or does not begin; another may be started.
    Over,
    /// Looks at the server of this machine from now on: the processes that listen at the targets, or these.
    Watch {
        targets: Vec<Address>,
        processes: Vec<u32>,
    },
    Look(Look),
    /// Asks what `connections` connections need beside what its machine has.
    Examine {
        target: Option<Address>,
        connections: usize,
    },
    /// Answered at once, with the moment when it was sent, by the clock of the sender.
    Beat(Duration),
}

/// Kind of look at a server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Look {
    /// Takes a sample while `standing` connections stand and `done` has been done.
    Sample { standing: u64, done: Numbers },
    /// Measures what the server takes once nothing begins any more, with `standing` connections.
    Weigh { standing: u64 },
    /// Returns all that came of it, after this number of operations that ended well.
    End { operations: u64 },
}

/// Result of a look at a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ServerSeen {
    Sample(Option<ServerSample>),
    Weighed,
    End(Server),
}

/// Findings of an agent about its machine: [`Findings`](crate::doctor::Findings), in both of their forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    /// Nothing lacks.
    pub ok: bool,
    /// Text for people.
    pub text: String,
    /// JSON for programs.
    pub json: String,
}

/// Part of an agent in a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartPart {
    /// Part of the plan.
    pub(super) plan: Plan,
    pub(super) targets: Vec<Address>,
    pub(super) aim: Aim,
    pub(super) clients: Clients,
}

/// Processes that run the clients of an agent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Clients {
    /// The agent's own process, which shares the machine's CPUs with this number of processes, itself among them.
    Here(usize),
    /// Processes, as many as descriptors ask for. What the machine has too little for is refused, unless it is forced.
    Processes { force: bool },
}

/// Message of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// Program and machine of the agent; the first word of an agent of another machine.
    Hello(Box<AgentHello>),
    Ready(Result<(), String>),
    Begun(Result<(), String>),
    State(State),
    Account(Box<Account>),
    Settled,
    /// The answer to a [`Request::Look`], and to [`Request::Watch`].
    Seen(ServerSeen),
    Examined(Examined),
    /// The answer to [`Request::Over`]: what was said before is of a run that has ended.
    Over,
    /// The answer to a [`Request::Beat`]: when that was sent, and by the clock of the agent when it was heard and answered.
    Beat {
        sent: Duration,
        heard: Duration,
        answered: Duration,
    },
}

/// Program and machine of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AgentHello {
    pub(super) version: String,
    /// SHA-256 of the program's file.
    pub(super) hash: String,
    pub(super) machine: Machine,
}

/// Bytes that an agent says before its first frame: a shell that starts it may print something of its own.
pub(super) const GREETING: &[u8] = b"\nsockdrawer agent 1\n";
/// A shell that prints more than this before an agent begins starts none.
const MAX_BEFORE: u64 = 64 * 1024;

/// Reads on to the first frame; false: there is none.
pub(super) fn greeted(from: &mut impl BufRead) -> io::Result<bool> {
    let mut lines = from.take(MAX_BEFORE);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if line.as_slice() == &GREETING[1..] {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let frame = [&length.to_le_bytes()[..], &bytes].concat();
    to.write_all(&frame)?;
    to.flush()
}

/// Reads the next message; None at the end.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut bytes = vec![0; length_of(length)?];
    from.read_exact(&mut bytes)?;
    message_of(&bytes).map(Some)
}

/// Reads the next message of what has come so far, which is taken from it; None where none is whole.
pub(super) fn next<T: DeserializeOwned>(from: &mut &[u8]) -> io::Result<Option<T>> {
    let Some((length, behind)) = from.split_first_chunk() else { return Ok(None) };
    let Some((message, behind)) = behind.split_at_checked(length_of(*length)?) else { return Ok(None) };
    *from = behind;
    message_of(message).map(Some)
}

fn length_of(bytes: [u8; 4]) -> io::Result<usize> {
    match u32::from_le_bytes(bytes) {
        length if length > LONGEST => Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes"))),
        length => Ok(length as usize),
    }
}

fn message_of<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_after_the_other_and_half_a_one_is_an_error() {
        let mut pipe = Vec::new();
        write(&mut pipe, &"one".to_owned()).expect("memory takes it");
        write(&mut pipe, &"another".to_owned()).expect("memory takes it");
        let mut from = pipe.as_slice();
        assert_eq!(read(&mut from).expect("whole"), Some("one".to_owned()));
        assert_eq!(read(&mut from).expect("whole"), Some("another".to_owned()));
        assert_eq!(read::<String>(&mut from).expect("the end"), None);
        assert!(read::<String>(&mut &pipe[..5]).is_err());
        assert!(read::<String>(&mut &[255; 8][..]).is_err());
    }

    #[test]
    fn what_a_shell_prints_before_an_agent_is_skipped_within_bounds() {
        let greeted = |before: &[u8]| {
            let all = [before, GREETING, b"rest"].concat();
            let mut from = all.as_slice();
            greeted(&mut from).map(|greeted| (greeted, from.to_vec())).expect("memory is read")
        };
        assert_eq!(greeted(b""), (true, b"rest".to_vec()));
        assert_eq!(greeted(b"Welcome!\nno end of line"), (true, b"rest".to_vec()));
        assert!(!greeted(&[b'x'; 70_000]).0);
        assert!(!super::greeted(&mut &b"sh: no such program\n"[..]).expect("memory is read"));
    }
}
