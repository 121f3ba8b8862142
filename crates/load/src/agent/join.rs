//! Agents that come by themselves, as schedulers start them: a port, and a secret that both sides prove to have without sending it.
//!
//! The run sends a greeting and a nonce; the agent answers with a nonce, its place, and a code over all of it; the run answers with a code
//! that only it can make. Each connection has nonces of its own, so that what was said once proves nothing later. What follows is not
//! encrypted.

use super::frames::{self, Told};
use super::link::{Ending, Link};
use super::serving::serve;
use crate::moment;
use hmac::{Hmac, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use sockdrawer::{Address, Closed, Config, Context, Drain, Error, Input, Model, Note, Peer, Pool, Protocol, Service, Step};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// First bytes that the run says.
const GREETING: &[u8] = b"sockdrawer join 1\n";
const NONCE: usize = 32;
const CODE: usize = 32;
/// An agent's nonce, number, how many there are to be, and code.
const ANSWER: usize = NONCE + 8 + CODE;
/// Maximum time for the proof: a peer that proves nothing in it is no agent.
const PROVES_WITHIN: Duration = Duration::from_secs(5);
/// Connections at once besides those of agents.
const OTHERS: usize = 64;
/// An agent may be there long before its run: its scheduler starts all at once.
const COMES_WITHIN: Duration = Duration::from_secs(300);
const TRIES_EACH: Duration = Duration::from_secs(1);
/// A word of refusal is no longer.
const LONGEST_WORD: u64 = 200;
/// First byte of the run's answer to an agent that it takes.
const TAKEN: u8 = 1;
const REFUSED: u8 = 0;

/// Place of an agent among those of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the agent, from 0 on.
    pub index: u32,
    /// Number of agents of the run.
    pub of: u32,
}

/// Runs clients for the run that listens at `at`, and takes place among its agents: tries for 5 minutes until it is there. Returns when
/// the run is over, or the process ends as for [`agent_on_stdio`](crate::agent_on_stdio).
///
/// # Errors
/// When there is no run in time, when the run refuses, or has another secret.
pub fn join_run(at: &str, secret: &[u8], place: Place) -> io::Result<()> {
    let mut stream = connect(at)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PROVES_WITHIN))?;
    prove(&mut stream, secret, place)?;
    stream.set_read_timeout(None)?;
    serve(stream.try_clone()?, stream, true)
}

fn connect(at: &str) -> io::Result<TcpStream> {
    let until = Instant::now() + COMES_WITHIN;
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::InvalidInput || Instant::now() >= until => return Err(error),
            Err(_) => thread::sleep(TRIES_EACH),
        }
    }
}

fn prove(stream: &mut (impl Read + Write), secret: &[u8], place: Place) -> io::Result<()> {
    let refused = |why: String| io::Error::new(ErrorKind::PermissionDenied, why);
    let (mut word, mut theirs) = ([0; GREETING.len()], [0; NONCE]);
    stream.read_exact(&mut word)?;
    if word != GREETING {
        return Err(refused("what listens there waits for no agents: is it the port of --join-at?".to_owned()));
    }
    stream.read_exact(&mut theirs)?;
    let ours = nonce()?;
    let answer = [&ours[..], &numbers(place), &code(secret, &agent_says(&theirs, &ours, place)).finalize().into_bytes()].concat();
    stream.write_all(&answer)?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    if first[0] != TAKEN {
        let mut why = String::new();
        stream.take(LONGEST_WORD).read_to_string(&mut why)?;
        return Err(refused(why));
    }
    let mut proof = [0; CODE];
    stream.read_exact(&mut proof)?;
    code(secret, &run_says(&theirs, &ours))
        .verify_slice(&proof)
        .map_err(|_| refused("what listens there does not have the token of --token-file".to_owned()))
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    // So few bytes come at once, or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

fn numbers(place: Place) -> [u8; 8] {
    (u64::from(place.index) << 32 | u64::from(place.of)).to_be_bytes()
}

fn agent_says(run: &[u8], agent: &[u8], place: Place) -> Vec<u8> {
    [b"agent", run, agent, &numbers(place)].concat()
}

fn run_says(run: &[u8], agent: &[u8]) -> Vec<u8> {
    [b"run", agent, run].concat()
}

fn code(secret: &[u8], of: &[u8]) -> Hmac<Sha256> {
    let mut code = Hmac::new_from_slice(secret).expect("a key of any length is one");
    code.update(of);
    code
}

/// An agent that came: its index, and the way to it.
pub(super) type Newcomer = (u32, Link);

/// A port where agents join a run by [`join_run`].
pub struct AgentPort {
    pool: Pool,
    of: u32,
    pub(super) newcomers: Receiver<Newcomer>,
}

impl AgentPort {
    /// Lets this number of agents in. Each proves that it has the secret, and is shown that this side has it; what is said then is not encrypted.
    ///
    /// # Errors
    /// When nothing can listen there.
    pub fn open(at: Address, of: u32, secret: Vec<u8>) -> Result<AgentPort, Error> {
        let (to, newcomers) = channel();
        let service = Joins { of, secret: secret.into(), to, present: Arc::default() };
        let config = Config::accept(service).model(Model::Loops).loops(1).workers(0).limit(of as usize + OTHERS).listen(at);
        // Requests of a run are small but for its plan, which may have a body to send.
        let pool = Pool::start(config.settings(|settings| settings.max_unsent = None))?;
        Ok(AgentPort { pool, of, newcomers })
    }

    /// Returns the addresses where it listens.
    pub fn addresses(&self) -> Vec<Address> {
        self.pool.addresses()
    }

    pub(super) fn of(&self) -> u32 {
        self.of
    }
}

impl Drop for AgentPort {
    fn drop(&mut self) {
        self.pool.shutdown(Drain::within(Duration::from_secs(1)));
    }
}

struct Joins {
    of: u32,
    secret: Arc<[u8]>,
    to: Sender<Newcomer>,
    /// The indices of agents that are there.
    present: Arc<Mutex<BTreeSet<u32>>>,
}

impl Service for Joins {
    type Protocol = Joining;

    fn open(&self, _peer: &Peer) -> Joining {
        Joining {
            of: self.of,
            secret: self.secret.clone(),
            to: self.to.clone(),
            present: self.present.clone(),
            stage: JoinStage::Opening,
        }
    }
}

/// A connection to the port.
struct Joining {
    of: u32,
    secret: Arc<[u8]>,
    to: Sender<Newcomer>,
    present: Arc<Mutex<BTreeSet<u32>>>,
    stage: JoinStage,
}

enum JoinStage {
    Opening,
    /// The nonce that the agent must have used.
    Proving([u8; NONCE]),
    /// Stage of an agent: the channel for its messages, and the bytes of its next frame that came.
    Agent {
        index: u32,
        to: Sender<(Duration, Told)>,
        partial: Vec<u8>,
        greeted: bool,
    },
    Ended,
}

impl Joining {
    fn present(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&mut self, answer: &[u8], run: &[u8], cx: &mut Context<'_>) -> Step {
        let (agent, rest) = answer.split_at(NONCE);
        let (place, proof) = rest.split_at(8);
        let place = place.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of it")]
        let place = Place { index: (place >> 32) as u32, of: place as u32 };
        let refuse = |cx: &mut Context<'_>, why: String| {
            cx.send(&[REFUSED]);
            cx.send(why.as_bytes());
            Step::Close
        };
        if code(&self.secret, &agent_says(run, agent, place)).verify_slice(proof).is_err() {
            return refuse(cx, "the run has another token than --token-file".to_owned());
        }
        if place.of != self.of || place.index >= place.of {
            return refuse(
                cx,
                format!("the run waits for {} agents, this one is --index {} --of {}", self.of, place.index, place.of),
            );
        }
        if !self.present().insert(place.index) {
            return refuse(cx, format!("the run has an agent with --index {} already", place.index));
        }
        cx.clear_timer();
        cx.send(&[TAKEN]);
        cx.send(&code(&self.secret, &run_says(run, agent)).finalize().into_bytes());
        let (to, from) = channel();
        let index = place.index;
        self.stage = JoinStage::Agent { index, to, partial: Vec::new(), greeted: false };
        // Without a thread for it, or a run that waits for it, it is no use.
        match Link::joined(cx.handle(), from).map(|link| self.to.send((index, link))) {
            Ok(Ok(())) => Step::Continue,
            _ => Step::Close,
        }
    }

    /// Passes on what came.
    fn listen(&mut self, input: &[u8]) -> Step {
        let JoinStage::Agent { to, partial, greeted, .. } = &mut self.stage else { return Step::Close };
        partial.extend_from_slice(input);
        let mut rest = partial.as_slice();
        if !*greeted {
            let Some(behind) = rest.get(frames::GREETING.len()..) else { return Step::Continue };
            rest = behind;
            *greeted = true;
        }
        loop {
            let Ok(next) = frames::next(&mut rest) else { return Step::Abort };
            let Some(told) = next else { break };
            if to.send((moment::now(), told)).is_err() {
                return Step::Abort;
            }
        }
        let taken = partial.len() - rest.len();
        partial.drain(..taken);
        Step::Continue
    }
}

impl Protocol for Joining {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let Ok(nonce) = nonce() else { return Step::Close };
        cx.send(GREETING);
        cx.send(&nonce);
        cx.set_timer(PROVES_WITHIN);
        self.stage = JoinStage::Proving(nonce);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let JoinStage::Proving(run) = self.stage {
            let Some(answer) = input.exactly(ANSWER) else { return Step::Continue };
            match self.judge(answer, &run, cx) {
                Step::Continue => {}
                ended => return ended,
            }
        }
        match self.stage {
            JoinStage::Agent { .. } => self.listen(input.take_all()),
            _ => Step::Close,
        }
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        if let Some(bytes) = note.bytes() {
            cx.send(bytes);
            return Step::Continue;
        }
        match note.take::<Ending>() {
            Ok(Ending::Close) => Step::EndOutput,
            _ => Step::Abort,
        }
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        if let JoinStage::Agent { index, .. } = std::mem::replace(&mut self.stage, JoinStage::Ended) {
            self.present().remove(&index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::testing::Driver;

    const SECRET: &[u8] = b"0123456789abcdef";

    fn joins(of: u32) -> (Joins, Receiver<Newcomer>) {
        let (to, newcomers) = channel();
        (Joins { of, secret: SECRET.into(), to, present: Arc::default() }, newcomers)
    }

    /// Returns the nonce that a run greets an agent with.
    fn greeted(connection: &mut Driver<Joins>) -> Vec<u8> {
        let sent = connection.sent();
        sent.strip_prefix(GREETING).expect("a greeting").to_vec()
    }

    /// Returns the answer of an agent that has this secret.
    fn answer(run: &[u8], secret: &[u8], place: Place) -> Vec<u8> {
        let ours = [7; NONCE];
        [&ours[..], &numbers(place), &code(secret, &agent_says(run, &ours, place)).finalize().into_bytes()].concat()
    }

    fn word(connection: &mut Driver<Joins>) -> String {
        let sent = connection.sent();
        assert_eq!(sent[0], REFUSED);
        assert!(connection.closed().is_some());
        String::from_utf8(sent[1..].to_vec()).expect("words")
    }

    #[test]
    fn both_sides_prove_that_they_have_the_secret() {
        let (joins, newcomers) = joins(2);
        let mut connection = Driver::open(joins);
        let run = greeted(&mut connection);
        connection.receive_split(&answer(&run, SECRET, Place { index: 1, of: 2 }));
        let sent = connection.sent();
        assert_eq!(sent[0], TAKEN);
        assert!(code(SECRET, &run_says(&run, &[7; NONCE])).verify_slice(&sent[1..]).is_ok());
        let (index, link) = newcomers.try_recv().expect("it came");
        assert_eq!(index, 1);
        let mut frame = frames::GREETING.to_vec();
        frames::write(&mut frame, &Told::Settled).expect("memory takes it");
        connection.receive_split(&frame);
        assert!(matches!(link.from.try_recv(), Ok((_, Told::Settled))));
    }

    #[test]
    fn a_wrong_a_replayed_and_a_second_one_are_refused_in_words() {
        let place = Place { index: 0, of: 2 };
        let (service, newcomers) = joins(2);
        let (present, to) = (service.present.clone(), service.to.clone());
        let again = || Joins { of: 2, secret: SECRET.into(), to: to.clone(), present: present.clone() };
        let mut connection = Driver::open(service);
        let first = answer(&greeted(&mut connection), SECRET, place);
        connection.receive(&first);
        assert!(newcomers.try_recv().is_ok());
        let mut replayed = Driver::open(again());
        let run = greeted(&mut replayed);
        replayed.receive(&first);
        assert!(word(&mut replayed).contains("another token"), "what was said to another nonce");
        for (secret, place, why) in [
            (&b"fedcba9876543210"[..], place, "another token"),
            (SECRET, Place { index: 0, of: 3 }, "the run waits for 2 agents, this one is --index 0 --of 3"),
            (SECRET, Place { index: 2, of: 2 }, "the run waits for 2 agents"),
            (SECRET, place, "has an agent with --index 0 already"),
        ] {
            let mut connection = Driver::open(again());
            let run = greeted(&mut connection);
            connection.receive(&answer(&run, secret, place));
            let word = word(&mut connection);
            assert!(word.contains(why), "{word}");
        }
        assert_ne!(run, greeted(&mut Driver::open(again())), "a nonce is used once");
        assert!(newcomers.try_recv().is_err());
    }

    #[test]
    fn bytes_of_anything_end_a_connection_and_are_not_kept() {
        let (joins, newcomers) = joins(1);
        let mut connection = Driver::open(joins);
        let mut bytes = vec![0; 65_536];
        getrandom(&mut bytes, GetRandomFlags::empty()).expect("random bytes");
        connection.receive(&bytes);
        assert!(connection.closed().is_some() && newcomers.try_recv().is_err());
    }

    #[test]
    fn an_agent_takes_no_run_that_has_another_secret() {
        struct RunArchive(io::Cursor<Vec<u8>>);
        impl Read for RunArchive {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                self.0.read(to)
            }
        }
        impl Write for RunArchive {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let told = |bytes: &[&[u8]]| {
            let mut run = RunArchive(io::Cursor::new(bytes.concat()));
            prove(&mut run, SECRET, Place { index: 0, of: 1 }).expect_err("none of them is a run").to_string()
        };
        assert!(told(&[GREETING, &[1; NONCE], &[TAKEN], &[2; CODE]]).contains("does not have the token"));
        assert_eq!(told(&[GREETING, &[1; NONCE], &[REFUSED], b"no"]), "no");
        assert!(told(&[b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"]).contains("waits for no agents"));
    }
}
