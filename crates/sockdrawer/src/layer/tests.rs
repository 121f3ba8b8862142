//! A toy TLS around a request-and-answer protocol: a 2-byte hello each way, then xor 0x55; 0xFF on the wire is the goodbye, and 0xFE is
//! forged, which is answered by `NO`.

mod jobs;
mod leaving;
mod lending;
mod untaken;

use super::*;
use crate::protocol::{ConnectFailure, Job, JobError, Side};
use crate::testing::{Bounds, Driver, peer};

struct Xor {
    strict: bool,
}

struct XorState {
    established: bool,
    strict: bool,
}

impl Filtering for Xor {
    type Filter = XorState;
    fn filter(&self, _peer: &Peer) -> XorState {
        XorState { established: false, strict: self.strict }
    }
    fn restore(&self, from: &mut Saved<'_>) -> Result<XorState, CannotRestore> {
        Ok(XorState { established: from.u64()? == 1, strict: self.strict })
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "xor".into(), options: vec![0x55] })
    }
}

const REAL: ([u8; 4], u16) = ([198, 51, 100, 7], 4321);
const GOODBYE: u8 = 0xFF;
const FORGED: u8 = 0xFE;

impl Filter for XorState {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if !self.established {
            let Some(hello) = wire.bytes().first_chunk::<2>() else { return Ok(Progress::NeedMore) };
            if hello != b"HI" {
                return Err(Refused::because("it said no hello"));
            }
            wire.take(2);
            back.push(b"OK");
            self.established = true;
            return Ok(Progress::Established(Some(REAL.into())));
        }
        // Up to 3 bytes are a record here, so that a read holds several.
        let record = &wire.bytes()[..wire.bytes().len().min(3)];
        let end = record.iter().position(|byte| [GOODBYE, FORGED].contains(byte)).unwrap_or(record.len());
        match (end, wire.is_empty()) {
            (_, true) => Ok(Progress::NeedMore),
            (0, false) if wire.take(1) == [FORGED] => {
                back.push(b"NO");
                Err(Refused::because("it is forged"))
            }
            (0, false) => Ok(Progress::PeerEnded),
            (count, false) => {
                wire.bytes_mut()[..count].iter_mut().for_each(|byte| *byte ^= 0x55);
                plain.extend_from_slice(&wire.bytes()[..count]);
                wire.take(count);
                Ok(Progress::Plain)
            }
        }
    }
    fn knows(&mut self, peer: Peer) -> Peer {
        peer.with_fact("said HI")
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        plain.iter().for_each(|byte| wire.push(&[byte ^ 0x55]));
    }
    fn goodbye(&mut self, wire: &mut Output) {
        wire.push(&[GOODBYE]);
    }
    fn truncated(&mut self) -> Result<(), Refused> {
        if self.strict { Err(Refused::because("it said no goodbye")) } else { Ok(()) }
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.established.into());
        Ok(())
    }
}

fn xor(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x55).collect()
}

/// 4-byte commands: `Ping` is answered, `slow` runs a job, the rest asks for one step each.
#[derive(Default)]
struct Command {
    commands: u64,
    remote: Option<SocketAddr>,
}

struct Commands;

impl Service for Commands {
    type Protocol = Command;
    fn open(&self, peer: &Peer) -> Command {
        Command { commands: 0, remote: peer.remote() }
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Command, CannotRestore> {
        Ok(Command { commands: from.u64()?, remote: None })
    }
    fn local(&self) -> Box<Local> {
        Box::new(Vec::<String>::new())
    }
    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }
    fn receiving(&self) -> Receiving {
        Receiving::Always
    }
    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        local.downcast_mut::<Vec<String>>().expect("Commands::local made it").push(format!("refused {}", failure.errno));
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "commands".into(), options: b"slow".to_vec() })
    }
}

impl Protocol for Command {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"welcome ");
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(command) = input.bytes().first_chunk::<4>().copied() {
            input.take(4);
            self.commands += 1;
            match &command {
                b"slow" => return Step::Work(Job::new(|| 1_u8)),
                b"wait" => {
                    cx.pause();
                    return Step::Continue;
                }
                b"fins" => return Step::EndOutput,
                b"clos" => return Step::Close,
                b"tick" => cx.set_timer(Duration::from_secs(1)),
                b"more" => cx.send(&[b'+'; 100]),
                _ => cx.send(b"Pong"),
            }
        }
        Step::Continue
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<end>");
        Step::Close
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<time>");
        Step::Continue
    }
    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(if result.take::<u8>().is_ok() { b"<done>" } else { b"<fail>" });
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.resume();
        cx.send(note.bytes().expect("a note of bytes"));
        Step::Continue
    }
    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<room>");
        Step::Continue
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<drain>");
        Step::Continue
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(format!("<restored {}>", self.commands).as_bytes());
        Step::Continue
    }
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        cx.local::<Vec<String>>().expect("Commands::local made it").push(format!("{why:?}"));
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.commands);
        Ok(())
    }
}

type Open = Driver<Layer<Xor, Commands>>;

fn layer() -> Layer<Xor, Commands> {
    Layer::new(Xor { strict: false }, Commands)
}

/// Returns an established connection, what was sent until then taken.
fn open_limited(limits: Bounds) -> Open {
    let mut connection = Driver::open_with(layer(), peer(Side::Accepted, Duration::ZERO), limits);
    connection.receive(b"HI");
    assert_eq!(connection.sent(), [b"OK".as_slice(), &xor(b"welcome ")].concat());
    connection
}

fn open() -> Open {
    open_limited(Bounds::default())
}

fn send(connection: &mut Open, plain: &[u8]) {
    connection.receive(&xor(plain));
}

fn plain(connection: &mut Open) -> Vec<u8> {
    xor(&connection.sent())
}

#[test]
fn commands_split_anywhere_are_answered() {
    let wire = [b"HI".as_slice(), &xor(b"PingPing"), &[GOODBYE]].concat();
    let answer = [b"OK".as_slice(), &xor(b"welcome PongPong<end>"), &[GOODBYE]].concat();
    for at in 0..=wire.len() {
        let mut connection = Driver::open(layer());
        connection.receive(&wire[..at]);
        connection.receive(&wire[at..]);
        assert_eq!((connection.sent(), connection.closed()), (answer.clone(), Some(Closed::Orderly)), "split at {at}");
    }
    let mut connection = Driver::open(layer());
    connection.receive_split(&wire);
    assert_eq!(connection.sent(), answer);
}

#[test]
fn the_inner_protocol_opens_late_with_the_real_peer() {
    let mut connection = Driver::open(layer());
    connection.notify(Note::value("to nobody yet"));
    assert_eq!((connection.timer(), connection.sent()), (Some(Duration::from_secs(10)), vec![]));
    connection.receive(b"HI");
    assert_eq!(connection.timer(), None);
    let Some(Layered { stage: Stage::Open(command), .. }) = connection.protocol() else { panic!("it is open") };
    assert_eq!(command.remote, Some(REAL.into()));
}

#[test]
fn a_handshake_that_is_wrong_or_slow_is_aborted_and_one_that_is_cut_off_or_drained_closed() {
    let mut wrong = Driver::open(layer());
    wrong.receive(b"GET");
    assert_eq!(wrong.closed(), Some(Closed::Aborted));
    assert_eq!(wrong.reports(), ["it said no hello"]);
    let mut cut = Driver::open(layer());
    cut.receive(b"H");
    cut.finish();
    assert_eq!(cut.closed(), Some(Closed::Orderly), "a reset could overtake what was said to it");
    let mut slow = Driver::open(layer());
    slow.advance(Duration::from_secs(10));
    assert_eq!(slow.closed(), Some(Closed::Aborted));
    let mut drained = Driver::open(layer());
    drained.drain();
    assert_eq!(drained.closed(), Some(Closed::Orderly));
    // A part of the handshake has come.
    let mut half = Driver::open(layer());
    half.receive(b"H");
    half.drain();
    assert_eq!(half.closed(), None);
    half.advance(Duration::from_secs(10));
    assert_eq!(half.closed(), Some(Closed::Orderly));
    // The inner protocol was never opened, so it is not told of an end either.
    assert_eq!(slow.local::<Vec<String>>(), Some(&mut vec![]));
}

#[test]
fn an_end_without_goodbye_is_the_filters_to_judge() {
    let mut lenient = open();
    lenient.finish();
    assert_eq!(lenient.closed(), Some(Closed::Orderly));
    let mut strict = Driver::open(Layer::new(Xor { strict: true }, Commands));
    strict.receive(b"HI");
    strict.finish();
    assert_eq!(strict.closed(), Some(Closed::Aborted));
    assert_eq!(strict.reports(), ["it said no goodbye"]);
}

/// The peer reads why; to the inner protocol it is no orderly end.
#[test]
fn a_filter_says_why_it_refuses() {
    let mut connection = open();
    connection.receive(&[xor(b"Ping"), vec![FORGED]].concat());
    assert_eq!(connection.sent(), [xor(b"Pong"), b"NO".to_vec()].concat());
    assert_eq!((connection.closed(), connection.reports()), (Some(Closed::Orderly), &["it is forged".to_owned()][..]));
    assert_eq!(connection.local::<Vec<String>>().expect("made by Commands").last().map(String::as_str), Some("Aborted"));
}

#[test]
fn what_was_decoded_behind_a_job_waits_for_it() {
    let mut connection = open();
    send(&mut connection, b"slowPingPi");
    connection.notify(std::sync::Arc::<[u8]>::from(&b"note"[..]));
    assert_eq!(plain(&mut connection), b"note");
    connection.run_job();
    assert_eq!(plain(&mut connection), b"<done>Pong");
    send(&mut connection, b"ngslow");
    connection.fail_job(JobError::QueueFull);
    assert_eq!(plain(&mut connection), b"Pong<fail>");
    // The end waits as well: it lies behind the job in the stream.
    connection.receive(&[xor(b"slowPing"), vec![GOODBYE]].concat());
    connection.finish();
    assert_eq!(connection.closed(), None);
    connection.run_job();
    assert_eq!(connection.sent(), [xor(b"<done>Pong<end>"), vec![GOODBYE]].concat());
}

#[test]
fn what_was_decoded_behind_a_pause_waits_for_its_end() {
    let mut connection = open();
    send(&mut connection, b"waitPing");
    assert_eq!(plain(&mut connection), b"");
    connection.notify(std::sync::Arc::<[u8]>::from(&b"go"[..]));
    assert_eq!(plain(&mut connection), b"goPong");
    // The end lies behind it in the stream, whether the layer has decoded it or the wire ends.
    send(&mut connection, b"waitPing");
    connection.finish();
    assert_eq!((plain(&mut connection), connection.closed()), (vec![], None));
    connection.notify(std::sync::Arc::<[u8]>::from(&b"go"[..]));
    assert!(plain(&mut connection).starts_with(b"goPong"));
    assert!(connection.closed().is_some());
}

#[test]
fn finish_says_goodbye_once_and_goes_on_receiving() {
    let mut connection = open();
    send(&mut connection, b"finsticktick");
    assert_eq!(connection.sent(), [GOODBYE]);
    assert!(connection.finished_sending() && connection.closed().is_none());
    send(&mut connection, b"clos");
    assert_eq!((connection.sent(), connection.closed()), (vec![], Some(Closed::Orderly)));
}

#[test]
fn a_finish_with_a_job_behind_it_is_owed_until_the_job_is_done() {
    struct Last;
    struct LastState;
    impl Service for Last {
        type Protocol = LastState;
        fn open(&self, _peer: &Peer) -> LastState {
            LastState
        }
    }
    impl Protocol for LastState {
        fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            let first = input.bytes()[0];
            input.take(1);
            if first == b'f' { Step::EndOutput } else { Step::Work(Job::new(|| ())) }
        }
    }
    let mut connection = Driver::open(Layer::new(Xor { strict: false }, Last));
    connection.receive(&[b"HI".to_vec(), xor(b"fxxj")].concat());
    assert!(connection.has_job() && !connection.finished_sending());
    connection.run_job();
    assert_eq!((connection.has_job(), connection.sent()), (true, b"OK\xFF".to_vec()));
    connection.run_job();
    assert!(connection.has_job() && !connection.finished_sending());
    connection.run_job();
    assert!(connection.finished_sending(), "nothing is left to ask for, so the end is told");
}

#[test]
fn timers_backlog_and_the_end_reach_the_inner_protocol() {
    let mut connection = open_limited(Bounds { high_water: 50, low_water: 10, ..Bounds::default() });
    send(&mut connection, b"tick");
    connection.advance(Duration::from_secs(1));
    assert_eq!(plain(&mut connection), b"<time>");
    connection.block_output(true);
    send(&mut connection, b"more");
    connection.block_output(false);
    assert_eq!(plain(&mut connection)[100..], *b"<room>");
    connection.end(Closed::Error(104));
    assert_eq!(connection.local::<Vec<String>>(), Some(&mut vec!["Error(104)".to_owned()]));
}

#[test]
fn draining_waits_for_the_message_that_the_layer_holds() {
    let mut connection = open();
    send(&mut connection, b"PingPi");
    assert_eq!(connection.kept(), b"", "the half message is the layer's");
    connection.drain();
    assert_eq!(plain(&mut connection), b"Pong");
    send(&mut connection, b"ng");
    assert_eq!(plain(&mut connection), b"Pong<drain>");
    send(&mut connection, b"Ping");
    assert_eq!(plain(&mut connection), b"Pong");
}

#[test]
fn state_and_half_a_message_move_through_the_layer() {
    let mut connection = open();
    send(&mut connection, b"PingPi");
    let mut connection = connection.save_and_restore(layer()).expect("both filter and service can be saved");
    send(&mut connection, b"ng");
    assert_eq!(plain(&mut connection), b"Pong<restored 1>Pong");
    let Some(Layered { stage: Stage::Open(command), .. }) = connection.protocol() else { panic!("it is open") };
    assert_eq!(command.commands, 2);
    let in_handshake = Driver::open(layer());
    assert!(in_handshake.save_and_restore(layer()).is_err(), "a handshake stays where it is");
}

/// A service that knows as much of a state as this reads.
struct Knows(fn(&mut Saved<'_>) -> Result<u64, CannotRestore>);

impl Service for Knows {
    type Protocol = Command;
    fn open(&self, peer: &Peer) -> Command {
        Commands.open(peer)
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Command, CannotRestore> {
        Ok(Command { commands: (self.0)(from)?, remote: None })
    }
}

#[test]
fn a_state_that_is_not_read_whole_is_refused_and_shifts_no_other() {
    let mut protocol =
        layer().layered(XorState { established: true, strict: false }, Stage::Open(Command { commands: 7, remote: None }));
    protocol.plain = b"Pi".to_vec();
    let mut saved = Saver::default();
    protocol.save(&mut saved).expect("it is at rest");
    let restore = |knows| {
        let layer = Layer::new(Xor { strict: false }, Knows(knows));
        let restored = layer.restore(&Peer::new(None, Side::Accepted), &mut Saved::versioned(saved.written(), &[3, 1]));
        restored.map_err(|why| why.to_string())
    };
    let why = restore(|_| Ok(0)).expect_err("nothing was read");
    assert!(why.starts_with("8 of 8 bytes of the saved state were not read"), "{why}");
    let restored = restore(|from| Ok(from.rest().len() as u64 * u64::from(from.version()))).expect("it may be ignored");
    assert!(matches!(restored.stage, Stage::Open(Command { commands: 24, .. })), "8 bytes of version 3");
    assert_eq!(restored.plain, b"Pi", "what the layer has is what it had");
    let beyond = restore(|from| Ok(from.u64()? + from.u64()?)).expect_err("what follows is the layer's");
    assert_eq!(beyond, "the saved state, of version 3, is shorter than the service expects");
}

#[test]
fn layers_nest() {
    let mut connection = Driver::open(Layer::new(Xor { strict: false }, layer()));
    connection.receive(&[b"HI".to_vec(), xor(b"HI"), b"Ping".to_vec()].concat());
    assert_eq!(connection.sent(), [b"OK".to_vec(), xor(b"OK"), b"welcome Pong".to_vec()].concat());
}

#[test]
fn what_a_service_says_of_itself_passes_the_layer() {
    let layer = layer();
    assert_eq!(layer.closing(), Closing::PeerMaySend, "a goodbye may follow any request");
    assert_eq!(layer.receiving(), Receiving::Always);
    let recipe = layer.recipe().expect("both have one");
    assert_eq!(recipe.name, "xor+commands");
    assert_eq!(split_options(&recipe.options), Ok((&[0x55][..], &b"slow"[..])));
    split_options(b"no layer's").expect_err("not two lengths");
    let mut local = layer.local();
    layer.connect_failed(&ConnectFailure { target: None, errno: 111, after: Duration::ZERO, lag: Duration::ZERO }, &mut *local);
    assert_eq!(local.downcast_ref::<Vec<String>>(), Some(&vec!["refused 111".to_owned()]));
}

/// Returns the text of the block that begins with `head`, up to the first line that is only `}`.
fn block<'a>(source: &'a str, head: &str) -> &'a str {
    let start = source.find(head).unwrap_or_else(|| panic!("`{head}` is in the source"));
    let end = source[start..].find("\n}").expect("a block ends");
    &source[start..start + end]
}

fn functions(block: &str) -> Vec<&str> {
    block.lines().filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next()).collect()
}

/// A method with a default that the layer does not forward would silently do nothing under every layer.
#[test]
fn every_method_of_the_traits_is_forwarded() {
    let traits = include_str!("../protocol.rs");
    let layer = include_str!("../layer.rs");
    for (head, implementation, known) in [
        ("pub trait Protocol:", "Protocol for Layered<F, S> {", "writable"),
        ("pub trait Service:", "Service for Layer<F, S> {", "connect_failed"),
    ] {
        let (wanted, forwarding) = (functions(block(traits, head)), block(layer, implementation));
        assert!(wanted.contains(&known), "the methods of `{head}` are found");
        for method in wanted {
            assert!(functions(forwarding).contains(&method), "the layer has no `{method}`");
            // `received` and `restore` and the like call the inner method by way of a helper in the same file.
            let called = [format!("protocol.{method}("), format!("service.{method}(")];
            assert!(called.iter().any(|call| layer.contains(call.as_str())), "the layer does not call the inner `{method}`");
        }
    }
    let erased = include_str!("../behaviour/erased.rs");
    for (head, implementation, to) in [
        ("pub trait Protocol:", "Protocol for Boxed {", ["self.0."; 2]),
        ("pub trait Service:", "Service for Erased {", ["self.service.", "self.within."]),
    ] {
        let forwarding = block(erased, implementation);
        for method in functions(block(traits, head)) {
            assert!(
                to.iter().any(|to| forwarding.contains(&format!("{to}{method}("))),
                "`{implementation}` does not pass `{method}` on"
            );
        }
    }
}

#[test]
fn a_watch_is_told_each_step_of_a_filter_in_order() {
    use std::sync::Mutex;

    type Told = Arc<Mutex<Vec<String>>>;
    struct Notes(Told);
    impl Notes {
        fn note(&self, what: impl Into<String>) {
            self.0.lock().expect("not poisoned").push(what.into());
        }
    }
    impl Watch<XorState> for Notes {
        fn started(&mut self) {
            self.note("started");
        }
        fn seen(&mut self, filter: &XorState, progress: Result<&Progress, &Refused>) {
            self.note(format!("{progress:?}, {}", filter.established));
        }
        fn timed_out(&mut self) {
            self.note("timed out");
        }
    }
    struct Watching(Told);
    impl Filtering for Watching {
        type Filter = Watched<XorState, Notes>;
        fn filter(&self, peer: &Peer) -> Self::Filter {
            Watched::new(Xor { strict: false }.filter(peer), Notes(self.0.clone()))
        }
    }
    let told = Told::default();
    let taken = |told: &Told| std::mem::take(&mut *told.lock().expect("not poisoned"));
    let mut connection = Driver::open(Layer::new(Watching(told.clone()), Commands));
    assert_eq!(taken(&told), ["started", "Ok(NeedMore), false"]);
    connection.receive(b"HI");
    connection.receive(&[FORGED]);
    let all = taken(&told);
    let [established, .., forged] = &all[..] else { panic!("{all:?}") };
    assert!(established.starts_with("Ok(Established(") && forged.starts_with("Err("), "{all:?}");
    drop(connection);
    let mut late = Driver::open(Layer::new(Watching(told.clone()), Commands));
    taken(&told);
    late.advance(late.timer().expect("a handshake has a time"));
    assert_eq!(taken(&told), ["timed out"]);
}
