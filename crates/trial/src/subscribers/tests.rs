//! A broker under clients that hear each other: a sound one loses nothing, and each fault is seen in its own column.

use crate::{Broadcast, Change, Delivered, Deliveries, Report, Script, Trial, trial};
use sockdrawer::{Context, Group, Groups, Input, Note, Peer, Pool, Protocol, Selector, Service, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A message in this many has the fault.
const EACH: u64 = 20;
/// Messages that are published under each change at least.
const UNDER_A_CHANGE: u64 = 150;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not passed on.
    Loses,
    /// It is passed on twice.
    Doubles,
    /// It is passed on after the next one of its sender.
    Swaps,
    /// All clients but the first are told that they have subscribed with the first message that comes to them, in one piece.
    AnswersLate,
    /// Its number is changed to that of a message that will be published later, if ever.
    Invents,
}

/// Passes what is published on to all that subscribed.
#[derive(Clone)]
struct Broker {
    topics: Groups,
    published: Arc<AtomicU64>,
    subscribed: Arc<AtomicU64>,
    fault: Fault,
}

struct Client {
    broker: Broker,
    group: Group,
    held: Option<Vec<u8>>,
    owes_answer: bool,
}

impl Service for Broker {
    type Protocol = Client;

    fn open(&self, _peer: &Peer) -> Client {
        Client { broker: self.clone(), group: self.topics.get(b"news"), held: None, owes_answer: false }
    }
}

impl Client {
    fn publish(&mut self, text: &[u8], cx: &mut Context<'_>) {
        let count = self.broker.published.fetch_add(1, Ordering::SeqCst) + 1;
        let message = |text: &[u8]| [b"MSG ", text, b"\n"].concat();
        match (self.broker.fault, count.is_multiple_of(EACH)) {
            (Fault::Loses, true) => {}
            (Fault::Doubles, true) => (0..2).for_each(|_| cx.publish(&self.group, message(text))),
            (Fault::Swaps, true) if self.held.is_none() => self.held = Some(message(text)),
            (Fault::Invents, true) => cx.publish(&self.group, message(b"9000000000000000")),
            _ => {
                cx.publish(&self.group, message(text));
                if let Some(held) = self.held.take() {
                    cx.publish(&self.group, held);
                }
            }
        }
    }
}

impl Protocol for Client {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let mut words = line.splitn(2, |byte| *byte == b' ');
            match (words.next(), words.next()) {
                (Some(b"SUB"), None) => {
                    cx.join(&self.group);
                    let first = self.broker.subscribed.fetch_add(1, Ordering::SeqCst) == 0;
                    self.owes_answer = self.broker.fault == Fault::AnswersLate && !first;
                    if !self.owes_answer {
                        cx.send(b"OK\n");
                    }
                }
                (Some(b"PUB"), Some(text)) => self.publish(text, cx),
                (Some(b"PING"), Some(number)) => cx.send(&[b"PONG ", number, b"\n"].concat()),
                _ => cx.send(b"ERR\n"),
            }
        }
        Step::Continue
    }

    fn notified(&mut self, message: Note, cx: &mut Context<'_>) -> Step {
        let answer: &[u8] = if std::mem::take(&mut self.owes_answer) { b"OK\n" } else { b"" };
        cx.send(&[answer, message.bytes().unwrap_or_default()].concat());
        Step::Continue
    }
}

fn news(message: &str) -> Broadcast {
    let lines = format!(">> SUB\\n\n<< OK\\n\n> PUB {{n}}\\n\n< {message}\n");
    lines.parse().expect("a broadcast")
}

/// Begins a trial of a broker with this fault; each change is applied, then messages are waited for.
fn tried(fault: Fault, mut apply: impl FnMut(&Pool, &Broker) -> Result<(), String> + 'static) -> Trial {
    let broker = Broker { topics: Groups::default(), published: Arc::default(), subscribed: Arc::default(), fault };
    let service = broker.clone();
    let change = Change::new("change", move |pool: &Pool| {
        apply(pool, &broker)?;
        let wanted = broker.published.load(Ordering::SeqCst) + UNDER_A_CHANGE;
        match pool.wait(Duration::from_secs(10), |_| broker.published.load(Ordering::SeqCst) >= wanted) {
            true => Ok(()),
            false => Err("too few messages".to_owned()),
        }
    });
    let ping: Script = "> PING {n}\\n\n< PONG {n}\\n".parse().expect("a script");
    trial(service, vec![change])
        .script(ping)
        .broadcast(news(r"MSG {n}\n"))
        .rounds(4)
        .clients(2)
        .configure(|config| config.loops(2).workers(0))
}

fn total(report: &Report) -> Delivered {
    Deliveries::total(&report.delivered)
}

#[test]
fn a_sound_broker_passes_each_message_on_once_and_in_order_while_it_changes() {
    let change = |pool: &Pool, broker: &Broker| {
        let next = pool.config().behaviour(broker.clone()).loops(3 - pool.config().loops.min(2));
        pool.reconfigure(next).map(drop).map_err(|error| error.to_string())
    };
    let report = tried(Fault::None, change).run().expect("it starts");
    report.assert_nothing_lost();
    let total = total(&report);
    assert_eq!(report.delivered.len(), 16, "each of those that stay is a sender");
    assert!(total.is_clean() && total.published >= 4 * UNDER_A_CHANGE && total.heard > 10 * total.published, "{report}");
}

#[test]
fn an_answer_that_comes_with_a_message_is_no_part_of_that() {
    let tried = tried(Fault::AnswersLate, |_, _| Ok(())).broadcast(news(r"/(?s).*?MSG {n}\n/"));
    let report = tried.run().expect("it starts");
    report.assert_nothing_lost();
    assert!(report.delivered.iter().all(|sender| sender.published > 0), "each has subscribed: {report}");
}

#[test]
fn each_fault_of_a_broker_is_seen_in_its_column() {
    for (fault, words) in [(Fault::Loses, "messages lost"), (Fault::Doubles, "doubled"), (Fault::Swaps, "out of order")] {
        let report = tried(fault, |_, _| Ok(())).run().expect("it starts");
        let Delivered { lost, doubled, out_of_order, .. } = total(&report);
        let seen = [(lost, Fault::Loses), (doubled, Fault::Doubles), (out_of_order, Fault::Swaps)];
        for (count, of) in seen {
            // A message that is held for the next one of a sender that publishes no more is lost.
            let may_be = of == Fault::Loses && fault == Fault::Swaps;
            assert!((count > 0) == (of == fault) || may_be, "{words}: {report}");
        }
        assert!(report.reasons().iter().any(|reason| reason.contains(words)), "{:?}", report.reasons());
        assert_eq!((report.total.lost(), report.total.failed(), report.total.wrong_bytes), (0, 0, 0), "{report}");
        let faults: u64 = report.delivered.iter().map(|one| one.lost + one.doubled + one.out_of_order).sum();
        assert_eq!(faults, lost + doubled + out_of_order, "by sender and of all");
    }
}

#[test]
fn a_message_that_nobody_published_is_wrong() {
    let report = tried(Fault::Invents, |_, _| Ok(())).run().expect("it starts");
    assert!(report.total.wrong_bytes > 0, "{report}");
    let odd = report.odd.expect("it is described");
    let (odd, when) = odd.split_once(" (").expect("and when");
    assert_eq!(odd, r"a message that a client published, as `MSG {n}\n` was expected, and `MSG 9000000000000000\n` came");
    assert!(["before the first change)", "after the change `change`)"].contains(&when), "{when}");
}

#[test]
fn a_connection_that_is_killed_is_lost_and_no_message_with_it() {
    let kill = |pool: &Pool, _: &Broker| {
        let oldest = pool.connections(&Selector::All).into_iter().min_by_key(|one| one.id).ok_or("nobody is there")?;
        if pool.kill(&Selector::Id(oldest.id)).cut == 1 { Ok(()) } else { Err("it was gone".to_owned()) }
    };
    let report = tried(Fault::None, kill).run().expect("it starts");
    assert_eq!((report.total.lost(), report.total.wrong_bytes), (4, 0), "{report}");
    assert!(total(&report).is_clean() && report.delivered.len() > 16, "others took their place: {report}");
}
