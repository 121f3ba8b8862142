//! Pools that come and go while the program ends.

use super::*;
use crate::document::Format;
use crate::notify::Manager;
use crate::protocol::Protocol;
use crate::setting::Values;
use sockdrawer::{Context, Input, Peer, Protocol as Callbacks, Service, Step};
use std::sync::mpsc::channel;

const CAUSE: Cause<'_> = Cause { what: "change", by: "a test" };

struct Silent;

impl Service for Silent {
    type Protocol = Silent;

    fn open(&self, _: &Peer) -> Silent {
        Silent
    }
}

impl Callbacks for Silent {
    fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> Server {
    server_that(|_, _| {})
}

/// Returns a server that does this with each pool that a change starts.
fn server_that(started: impl Fn(&str, &Pool) + Send + Sync + 'static) -> Server {
    let silent = Protocol::new("silent", "says nothing", |_| Ok(Config::accept(Silent).loops(1)));
    let hub = Hub::new(None, Manager::of_environment(false), |_| ());
    Server::new(Known { protocols: vec![silent], ..Known::default() }, (hub, None, Passed::default()), false, started)
}

/// Makes a configuration with pools of these names.
fn document(server: &Server, names: &[&str]) -> Document {
    let pool = |name: &&str| format!("[pool.{name}]\nprotocol = \"silent\"\nlisten = \"127.0.0.1:0\"\ndrain = \"1s\"\n");
    let text: String = names.iter().map(pool).collect();
    Document::parse(&text, Format::Toml, &server.known, |_| ()).expect("it is right")
}

#[test]
fn a_pool_that_a_change_starts_while_the_program_begins_to_end_is_drained() {
    let (begun, has_begun) = channel();
    let (go, goes_on) = channel();
    let goes_on = Mutex::new(goes_on);
    let server = server_that(move |_, _| {
        begun.send(()).expect("it is waited for");
        lock(&goes_on).recv_timeout(PATIENCE).expect("the program begins to end");
    });
    server.start(document(&server, &["first"]), server.hold_changes()).expect("a free port");
    std::thread::scope(|scope| {
        let server = &server;
        let change = scope.spawn(|| server.change(|_| Ok(document(server, &["first", "second"])), None, false, CAUSE));
        has_begun.recv_timeout(PATIENCE).expect("a pool is started");
        let end = scope.spawn(|| server.shut_down());
        let until = Instant::now() + PATIENCE;
        while !server.state().ending {
            assert!(Instant::now() < until, "waited for the program to begin to end");
            std::thread::yield_now();
        }
        go.send(()).expect("the change waits");
        assert!(change.join().expect("no panic").expect("it was being carried out").committed);
        end.join().expect("no panic");
    });
    let statuses: Vec<Status> = server.state().pools.values().map(|pool| pool.status()).collect();
    assert!(statuses.len() == 2 && statuses.iter().all(has_ended), "{statuses:?}");
    let refused = server.change(|_| Ok(document(&server, &["third"])), None, false, CAUSE);
    assert!(matches!(refused, Err(Unchanged::Refused(_))), "{refused:?}");
}

#[test]
fn the_end_waits_for_no_change_that_is_not_carried_out_yet() {
    let server = server();
    server.start(document(&server, &["first"]), server.hold_changes()).expect("a free port");
    let (begun, has_begun) = channel();
    let (ended, has_ended) = channel();
    std::thread::scope(|scope| {
        let server = &server;
        // As a name is resolved, or a file read.
        let wanted = move |_: &State| {
            begun.send(()).expect("it is waited for");
            has_ended.recv_timeout(PATIENCE).expect("the program ends meanwhile");
            Ok(document(server, &["first", "second"]))
        };
        let change = scope.spawn(|| server.change(wanted, None, false, CAUSE));
        has_begun.recv_timeout(PATIENCE).expect("a change begins");
        server.shut_down();
        ended.send(()).expect("the change waits");
        let refused = change.join().expect("no panic");
        assert!(matches!(&refused, Err(Unchanged::Refused(why)) if why.contains("is ending")), "{refused:?}");
    });
    assert_eq!(server.state().pools.len(), 1);
}

#[test]
fn a_pool_that_was_removed_is_drained_with_the_others_and_freed_when_it_has_ended() {
    let server = server();
    server.start(document(&server, &["first", "second"]), server.hold_changes()).expect("free ports");
    let second = server.state().pools["second"].clone();
    let address = second.addresses().remove(0).to_string();
    let client = std::net::TcpStream::connect(address).expect("it listens");
    assert!(second.wait(Duration::from_secs(20), |status| status.connections == 1), "{:?}", second.status());
    server.change(|_| Ok(document(&server, &["first"])), None, false, CAUSE).expect("a pool may go");
    assert_eq!(
        (server.connections(), server.longest_drain()),
        (1, Duration::from_secs(1)),
        "what is removed counts until its end"
    );
    let end = server.shut_down();
    assert_eq!((end.drained.asked, end.cut), (1, Vec::new()), "its connection was waited for");
    assert_eq!(server.removed().iter().filter(|(_, status)| has_ended(status)).count(), 1);
    assert!(server.removed().is_empty(), "an end is told once");
    drop(client);
}

#[test]
fn a_protocol_that_processes_cannot_run_is_told_in_the_words_of_the_file() {
    let server = server();
    let text = "[pool.first]\nprotocol = \"silent\"\nlisten = \"127.0.0.1:0\"\nmodel = \"prefork\"\n";
    let document = Document::parse(text, Format::Toml, &server.known, |_| ()).expect("its words are right");
    let refused = server.start(document, server.hold_changes()).expect_err("it has no recipe").line;
    let why =
        "pool.first.model: this program cannot run the protocol in processes, as prefork does: write loops, threads or single";
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn a_protocol_that_finds_something_else_begins_a_generation() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    // 0: it could not look.
    static FOUND: AtomicU64 = AtomicU64::new(1);
    let looks = |_: &Values| Some(FOUND.load(SeqCst)).filter(|found| *found > 0);
    let silent = Protocol::new("silent", "says nothing", |_| Ok(Config::accept(Silent).loops(1))).looks(looks);
    let hub = Hub::new(None, Manager::of_environment(false), |_| ());
    let known = Known { protocols: vec![silent], ..Known::default() };
    let server = Server::new(known, (hub, None, Passed::default()), false, |_, _| {});
    server.start(document(&server, &["first"]), server.hold_changes()).expect("a free port");
    let generation = || server.state().pools["first"].status().generation;
    let change = || server.change(|state| Ok((*state.document).clone()), None, false, CAUSE).expect("nothing is wrong");
    for (found, step, then) in
        [(1, None, 1), (0, None, 1), (2, Some("protocol: other addresses, or other findings of checks"), 2), (2, None, 2)]
    {
        FOUND.store(found, SeqCst);
        let changed = change();
        let steps: Vec<String> = changed.plan.iter().map(|step| format!("{}: {}", step.setting, step.detail)).collect();
        assert_eq!((steps.first().map(String::as_str), generation()), (step, then), "{found}");
    }
}
