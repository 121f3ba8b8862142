//! A trial that cannot fail is worthless: what loses is seen, each in its column.

use super::{Change, Trial, trial};
use crate::{Script, Tls};
use sockdrawer::{Address, Context, Error, Input, IntoBehaviour, Model, Peer, Pool, Protocol, Selector, Service, Step};
use sockdrawer_tls::{Client, Identity, Server, Trust};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An echo that leaves out the first byte of every so many reads; 0 for none.
struct Echo {
    loses: u64,
}

struct Echoing {
    loses: u64,
    reads: u64,
}

impl Service for Echo {
    type Protocol = Echoing;

    fn open(&self, _peer: &Peer) -> Echoing {
        Echoing { loses: self.loses, reads: 0 }
    }
}

impl Protocol for Echoing {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.reads += 1;
        let loses = self.loses > 0 && self.reads.is_multiple_of(self.loses);
        let all = input.bytes();
        cx.send(&all[usize::from(loses)..]);
        input.take_all();
        Step::Continue
    }
}

fn sound() -> Echo {
    Echo { loses: 0 }
}

fn small(service: Echo, change: Change) -> Trial {
    trial(service, vec![change]).rounds(3).configure(|config| config.loops(1).workers(0))
}

fn harmless() -> Change {
    Change::new("service", |pool| pool.reconfigure(pool.config().behaviour(sound())))
}

struct Panics;

impl Service for Panics {
    type Protocol = Panics;

    fn open(&self, _peer: &Peer) -> Panics {
        Panics
    }
}

impl Protocol for Panics {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        std::panic::resume_unwind(Box::new("no such room"))
    }
}

#[test]
fn a_panic_of_the_service_is_quoted() {
    let report = trial(Panics, vec![harmless()]).rounds(1).run().expect("it starts");
    assert!(!report.reasons().is_empty() && report.to_string().contains("the service panicked: no such room"), "{report}");
}

#[test]
fn a_sound_service_under_a_sound_change_loses_nothing() {
    let report = small(sound(), harmless()).run().expect("it starts");
    report.assert_nothing_lost();
    let change = &report.changes[0];
    assert_eq!((change.times, change.failed, change.error.as_deref()), (3, 0, None));
    assert!(report.total.kept_exchanges > 16 && report.total.longest_gap < Duration::from_secs(5), "{report}");
}

#[test]
fn a_change_that_kills_a_connection_shows_as_lost() {
    let kill = |pool: &Pool| {
        let oldest = pool.connections(&Selector::All).into_iter().min_by_key(|one| one.id).ok_or("nobody is there")?;
        if pool.kill(&Selector::Id(oldest.id)).cut == 1 { Ok(()) } else { Err("it was gone") }
    };
    let report = small(sound(), Change::new("kill", kill)).run().expect("it starts");
    assert_eq!((report.total.lost(), report.total.failed(), report.total.wrong_bytes), (3, 0, 0), "{report}");
    assert!(report.reasons().join("").starts_with("3 kept connections lost"), "{:?}", report.reasons());
    small(sound(), Change::new("kill", kill).may_lose(1)).run().expect("it starts").assert_nothing_lost();
    let twice = Change::new("kill two", move |pool: &Pool| kill(pool).and_then(|()| kill(pool))).may_lose(1);
    let report = small(sound(), twice).run().expect("it starts");
    assert!(report.reasons().join("").starts_with("3 kept connections lost"), "{:?}", report.reasons());
}

#[test]
fn a_service_that_drops_a_byte_shows_as_wrong_bytes() {
    let report = small(Echo { loses: 5 }, harmless()).run().expect("it starts");
    assert!(report.total.wrong_bytes > 0, "{report}");
    assert!(report.reasons().iter().any(|reason| reason.ends_with("wrong bytes")), "{:?}", report.reasons());
}

/// Takes the listener away and puts it back where it was, as a program does that is stopped and started.
fn reopen(pool: &Pool) -> Result<(), Error> {
    let Some(Address::Tcp(address)) = pool.addresses().first().cloned() else { panic!("it listens on TCP") };
    let elsewhere: Address = "127.0.0.2:0".parse().expect("an address");
    let only = |wanted: &Address| {
        let config = pool.config().listeners(Vec::clear);
        pool.reconfigure(config.listen(wanted.clone()))
    };
    only(&elsewhere)?;
    TcpStream::connect(address).expect_err("nobody listens there");
    // waits because: whoever came while it was going asks again after a second
    std::thread::sleep(Duration::from_millis(1500));
    only(&Address::Tcp(address))?;
    Ok(())
}

#[test]
fn a_listener_that_is_closed_and_opened_again_shows_as_refused() {
    let report = small(sound(), Change::new("reopen", reopen)).rounds(1).run().expect("it starts");
    let change = &report.changes[0];
    assert_eq!((change.failed, change.error.as_deref()), (0, None), "{report}");
    assert!(report.total.refused > 0 && report.total.lost() == 0, "{report}");
    assert!(report.reasons().join("").contains("failed connects"), "{:?}", report.reasons());
}

#[test]
fn a_change_that_fails_or_is_never_made_proves_nothing() {
    let failing = Change::new("fails", |_| Err::<(), _>("on purpose"));
    let report = small(sound(), failing).run().expect("it starts");
    assert_eq!(report.reasons(), ["fails failed 3 of 3 times: on purpose"]);
    let report = small(sound(), harmless()).rounds(0).run().expect("it starts");
    assert_eq!(report.reasons()[0], "no change was applied");
}

#[test]
#[should_panic(expected = "kept connections lost")]
fn losses_make_the_assertion_fail() {
    let purge = Change::new("purge", |pool| Ok::<_, Error>(pool.purge(&Selector::All, Duration::from_secs(1))));
    small(sound(), purge).run().expect("it starts").assert_nothing_lost();
}

#[test]
fn every_model_that_changes_alive_is_tried() {
    // A thread has three for each connection; a shell gives 1,024 to all tests of this process.
    sockdrawer::raise_descriptor_limit().expect("the hard limit is allowed");
    for model in [Model::Threads, Model::Loops] {
        let limit = Change::new("limit", |pool| pool.reconfigure(pool.config().limit(500)));
        let report = trial(sound(), vec![limit]).model(model).rounds(2).run().expect("it starts");
        report.assert_nothing_lost();
    }
}

/// Wants a login first, once, then answers `PING number` by `PONG number`: each `mixes`-th question gets the number of the one before it, of any
/// client; 0 for none.
struct Lines {
    mixes: u64,
    asked: Arc<Mutex<(u64, String)>>,
}

struct Speaking {
    lines: Lines,
    is_in: bool,
}

fn lines(mixes: u64) -> Lines {
    Lines { mixes, asked: Arc::default() }
}

impl Service for Lines {
    type Protocol = Speaking;

    fn open(&self, _peer: &Peer) -> Speaking {
        Speaking { lines: Lines { mixes: self.mixes, asked: self.asked.clone() }, is_in: false }
    }
}

impl Protocol for Speaking {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let line = String::from_utf8_lossy(line).into_owned();
            match (line.split_once(' '), std::mem::replace(&mut self.is_in, true)) {
                (Some(("LOGIN", _)), false) => cx.send(b"OK\n"),
                (Some(("PING", number)), true) => {
                    let mut asked = self.lines.asked.lock().expect("no test panics with it");
                    asked.0 += 1;
                    let before = std::mem::replace(&mut asked.1, number.to_owned());
                    let mixes = self.lines.mixes > 0 && asked.0.is_multiple_of(self.lines.mixes);
                    cx.send(format!("PONG {}\n", if mixes { &before } else { number }).as_bytes());
                }
                _ => cx.send(b"ERR\n"),
            }
        }
        Step::Continue
    }
}

fn ping_after_login() -> Script {
    r"
        >> LOGIN client-{n}\n
        << OK\n
        > PING {n}\n
        < PONG {n}\n
        > PING again {n}\n
        < /PONG (again|later) {n}\r?\n/
    "
    .parse()
    .expect("a script")
}

fn limit() -> Change {
    Change::new("limit", |pool| pool.reconfigure(pool.config().limit(500)))
}

#[test]
fn a_protocol_that_is_told_by_text_is_tried_in_the_clear_and_under_tls() {
    let identity = Identity::self_signed("lines", &["localhost"]).expect("a certificate");
    let client = Client::new(Trust::Authorities(identity.chain_pem().to_vec())).name("localhost").build().expect("a client");
    let server = Server::new([identity]).build().expect("a server");
    let secured = trial(lines(0).into_behaviour().layered(server), vec![limit()]).tls(Tls::new(client));
    for trial in [trial(lines(0), vec![limit()]), secured] {
        let report = trial.script(ping_after_login()).rounds(3).run().expect("it starts");
        report.assert_nothing_lost();
        assert_eq!((report.odd, report.total.kept_exchanges > 16), (None, true));
    }
}

#[test]
fn an_answer_to_another_question_is_wrong_and_described() {
    let report = trial(lines(40), vec![limit()]).script(ping_after_login()).rounds(3).run().expect("it starts");
    assert!(report.total.wrong_bytes > 0 && report.reasons().iter().any(|reason| reason.ends_with("wrong bytes")), "{report}");
    let odd = report.odd.clone().expect("it is described");
    assert!(
        odd.starts_with("after `PING ") && odd.contains(" was expected, with the number ") && odd.contains("`PONG "),
        "{odd}"
    );
    assert!(report.to_string().ends_with(&odd), "{report}");
}

#[test]
fn a_beginning_that_is_not_answered_is_no_exchange() {
    let script = "<< hello\\n\n> PING {n}\\n\n< PONG {n}\\n".parse::<Script>().expect("a script");
    // The service waits for its client to begin, and the client for the greeting.
    let report = trial(lines(0), vec![]).script(script).clients(1).kept(1).run().expect("it starts");
    assert_eq!((report.total.kept_exchanges, report.total.connects > 0), (0, true), "{report}");
    assert!(
        report
            .odd
            .is_some_and(|odd| odd.starts_with("at the beginning `hello\\n` was expected, and within 5s nothing came (before"))
    );
}

#[test]
fn a_wrong_answer_to_exchanges_of_any_form_is_quoted() {
    let odd = |answer: &'static [u8]| {
        let pair = move |_: u64| (b"ask\n".to_vec(), answer.to_vec());
        let report = trial(sound(), vec![limit()]).exchange(pair).clients(1).kept(0).run().expect("it starts");
        report.odd.expect("it is described")
    };
    assert_eq!(odd(b"yes\n"), r"after `ask\n` `yes\n` was expected, and `ask\n` came (before the first change)");
    assert_eq!(odd(b"ask"), r"after the answer to `ask\n` nothing was expected, and `\n` came (before the first change)");
}
