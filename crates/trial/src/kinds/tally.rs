//! What the clients saw: counted by them, read by the trial.

use super::guest::Guest;
use super::kind::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// When a client's connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before it stood.
    Connect,
    /// Before the echo was complete.
    Echo,
    /// Before the answers to its requests were complete.
    Answer,
    /// Before its orderly end.
    End,
}

/// Why a client's connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The system's reason.
    Errno(i32),
    /// The server ended it too early.
    Early,
    /// Nothing came within the time.
    Late,
    /// Other bytes came than were sent.
    Wrong,
    /// It was still there when the trial had asked it to end and waited.
    Stayed,
}

/// One sort of failure, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// Whose connections.
    pub guest: Guest,
    /// When.
    pub phase: Phase,
    /// Why.
    pub cause: Cause,
    /// What was being changed.
    pub kind: Kind,
}

/// What the clients saw while one kind of change was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Churn connections that ended, well or not.
    pub connects: u64,
    /// Of these, not well.
    pub failed: u64,
    /// Connections lost that were to stay, or to end with an answer.
    pub lost: u64,
    /// Bytes that were not those sent, of all clients.
    pub wrong_bytes: u64,
    /// Connections, there to be ended, that ended as asked.
    pub ended_well: u64,
    /// Connections of the second set that ended otherwise.
    pub ended_badly: u64,
}

macro_rules! shared_seen {
    ($($name:ident),*) => {
        #[derive(Default)]
        struct SharedSeen {
            $($name: AtomicU64,)*
        }

        impl SharedSeen {
            fn read(&self) -> Seen {
                Seen { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}
shared_seen!(connects, failed, lost, wrong_bytes, ended_well, ended_badly);

/// How a connection ended that is there to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An orderly end, after bytes that were all right.
    Orderly,
    /// A reset, after bytes that were all right.
    Reset,
}

/// The counts of all clients. What happens is put down to the change that was begun last.
///
/// Relaxed atomics: the final reading comes after the clients' threads were joined.
pub(crate) struct Tally {
    current: AtomicUsize,
    kinds: [SharedSeen; Kind::ALL.len()],
    established: [AtomicU64; Guest::ALL.len()],
    echoes: AtomicU64,
    answers: AtomicU64,
    orderly: [AtomicU64; Guest::ALL.len()],
    resets: [AtomicU64; Guest::ALL.len()],
    failures: Mutex<BTreeMap<Failure, u64>>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            current: AtomicUsize::new(0),
            kinds: std::array::from_fn(|_| SharedSeen::default()),
            established: std::array::from_fn(|_| AtomicU64::new(0)),
            echoes: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            orderly: std::array::from_fn(|_| AtomicU64::new(0)),
            resets: std::array::from_fn(|_| AtomicU64::new(0)),
            failures: Mutex::default(),
        }
    }

    /// A change begins: what happens from now on is put down to its kind.
    pub(crate) fn begin(&self, kind: Kind) {
        self.current.store(kind.index(), Ordering::Relaxed);
    }

    pub(crate) fn seen(&self, kind: Kind) -> Seen {
        self.kinds[kind.index()].read()
    }

    /// All kinds together.
    pub(crate) fn total(&self) -> Seen {
        self.kinds.iter().map(SharedSeen::read).fold(Seen::default(), Seen::plus)
    }

    pub(crate) fn established(&self, guest: Guest) -> u64 {
        self.established[guest.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn all_established(&self) -> u64 {
        Guest::ALL.into_iter().map(|guest| self.established(guest)).sum()
    }

    /// Round trips of kept connections.
    pub(crate) fn echoes(&self) -> u64 {
        self.echoes.load(Ordering::Relaxed)
    }

    /// Requests that were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Connections of this set that ended in this way, as asked.
    pub(crate) fn endings(&self, guest: Guest, ending: Ending) -> u64 {
        self.ending(guest, ending).load(Ordering::Relaxed)
    }

    /// All failures, most frequent first.
    pub(crate) fn failures(&self) -> Vec<(Failure, u64)> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures: Vec<(Failure, u64)> = failures.iter().map(|(failure, count)| (*failure, *count)).collect();
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failures
    }

    pub(crate) fn stood(&self, guest: Guest) {
        add(&self.established[guest.index()], 1);
    }

    pub(crate) fn echoed(&self) {
        add(&self.echoes, 1);
    }

    pub(crate) fn answered(&self, requests: usize) {
        add(&self.answers, requests as u64);
    }

    pub(crate) fn churned(&self) {
        add(&self.now().connects, 1);
    }

    pub(crate) fn wrong(&self, bytes: usize) {
        add(&self.now().wrong_bytes, bytes as u64);
    }

    /// A connection ended as the change in force asks for.
    pub(crate) fn ended(&self, guest: Guest, ending: Ending) {
        add(self.ending(guest, ending), 1);
        add(&self.now().ended_well, 1);
    }

    /// A connection failed: in the column of its set.
    pub(crate) fn failed(&self, guest: Guest, phase: Phase, cause: Cause) {
        let seen = self.now();
        match guest {
            Guest::Churn => {
                add(&seen.connects, 1);
                add(&seen.failed, 1);
            }
            Guest::Kept | Guest::Requests => add(&seen.lost, 1),
            Guest::Second => add(&seen.ended_badly, 1),
            Guest::Probe => {}
        }
        let failure = Failure { guest, phase, cause, kind: self.current() };
        *self.failures.lock().unwrap_or_else(PoisonError::into_inner).entry(failure).or_default() += 1;
    }

    pub(crate) fn current(&self) -> Kind {
        Kind::ALL[self.current.load(Ordering::Relaxed)]
    }

    fn now(&self) -> &SharedSeen {
        &self.kinds[self.current.load(Ordering::Relaxed)]
    }

    fn ending(&self, guest: Guest, ending: Ending) -> &AtomicU64 {
        match ending {
            Ending::Orderly => &self.orderly[guest.index()],
            Ending::Reset => &self.resets[guest.index()],
        }
    }
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

impl Seen {
    pub(crate) fn plus(self, other: Seen) -> Seen {
        Seen {
            connects: self.connects + other.connects,
            failed: self.failed + other.failed,
            lost: self.lost + other.lost,
            wrong_bytes: self.wrong_bytes + other.wrong_bytes,
            ended_well: self.ended_well + other.ended_well,
            ended_badly: self.ended_badly + other.ended_badly,
        }
    }
}

impl Phase {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Echo => "echo",
            Phase::Answer => "answer",
            Phase::End => "end",
        }
    }
}

impl Cause {
    /// The number behind it, where there is one.
    pub fn errno(self) -> Option<i32> {
        match self {
            Cause::Errno(errno) => Some(errno),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Errno(number) => return write!(f, "{}", std::io::Error::from_raw_os_error(*number)),
            Cause::Early => "ended by the server",
            Cause::Late => "time-out",
            Cause::Wrong => "wrong bytes",
            Cause::Stayed => "did not end",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}, during {}", self.guest.name(), self.phase.name(), self.cause, self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_has_its_column_and_each_change_its_row() {
        let tally = Tally::new();
        tally.begin(Kind::Loops);
        tally.churned();
        tally.failed(Guest::Churn, Phase::Connect, Cause::Errno(111));
        tally.begin(Kind::Drain);
        tally.failed(Guest::Kept, Phase::Echo, Cause::Early);
        tally.failed(Guest::Second, Phase::Echo, Cause::Late);
        tally.ended(Guest::Second, Ending::Orderly);
        tally.failed(Guest::Requests, Phase::Answer, Cause::Early);
        tally.wrong(3);
        assert_eq!(tally.seen(Kind::Loops), Seen { connects: 2, failed: 1, ..Seen::default() });
        let drain = Seen { lost: 2, wrong_bytes: 3, ended_well: 1, ended_badly: 1, ..Seen::default() };
        assert_eq!(tally.seen(Kind::Drain), drain);
        assert_eq!(tally.total(), tally.seen(Kind::Loops).plus(drain));
        let failures = tally.failures();
        assert_eq!(failures.len(), 4);
        let refused = failures.iter().find(|(failure, _)| failure.guest == Guest::Churn).expect("it was counted");
        assert_eq!(refused.0.to_string(), "churn connect: Connection refused (os error 111), during loops");
        assert_eq!(refused.0.cause.errno(), Some(111));
    }
}
