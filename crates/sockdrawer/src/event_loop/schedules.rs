//! Limiter, switch and inbox under many schedules of their threads: `ci/long shuttle`. A thread that is never woken, or never gets
//! what it waits for, exceeds shuttle's bound of steps, which fails. `cargo test` runs them on threads of the system, as they happen to meet.

use super::generation::{Generation, Services, Switch};
use super::inbox::{Inbox, Message};
use super::slots::Slots;
use crate::behaviour::Behaviour;
use crate::config::Settings;
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::{Limiter, Waiter};
use crate::listen::permit::Permit;
use crate::protocol::{Context, Input, Note, Peer, Protocol, Service, Step, Urgency};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use crate::sys::{Events, Kernel, System};
use crate::wake::Wake;
#[cfg(shuttle)]
use shuttle::thread;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
#[cfg(not(shuttle))]
use std::thread;
use std::time::Duration;

/// Schedules of each kind for each test.
#[cfg(shuttle)]
const SCHEDULES: usize = 1_000;
/// Number of times that threads change over where they need not, in the second kind.
#[cfg(shuttle)]
const DEPTH: usize = 3;

#[cfg(not(shuttle))]
fn check(test: impl Fn() + Send + Sync + 'static) {
    (0..100).for_each(|_| test());
}

#[cfg(shuttle)]
fn check(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let again = test.clone();
    shuttle::check_random(move || test(), SCHEDULES);
    shuttle::check_pct(move || again(), SCHEDULES, DEPTH);
}

/// A loop, as far as it waits for its inbox, which notifies it once.
struct Ear {
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
}

impl Ear {
    fn new() -> Ear {
        let inbox = Inbox::new(Arc::new(Kernel), 1_000).expect("an inbox");
        let epoll = Kernel.epoll().expect("an epoll");
        Kernel.watch_event(epoll.as_fd(), inbox.wake.event().expect("an event"), 0).expect("watched");
        Ear { inbox, epoll }
    }

    /// Sleeps until it is notified, then takes what came.
    fn listen(&self) -> Vec<Message> {
        let mut events = Events::with_capacity(1);
        loop {
            Kernel.wait(self.epoll.as_fd(), &mut events, Some(Duration::ZERO)).expect("waits");
            if events.len() > 0 {
                break;
            }
            thread::yield_now();
        }
        let mut messages = Vec::new();
        self.inbox.take(&mut messages);
        messages
    }
}

/// Takes a permit as a loop does.
fn take(limiter: &Arc<Limiter>, waiter: &mut Waiter, ear: &Ear) -> Permit {
    loop {
        if let Some(permit) = Permit::take(limiter) {
            waiter.leave();
            return permit;
        }
        waiter.wait();
        while !waiter.is_called() {
            ear.listen();
        }
    }
}

/// Has a loop serve this many connections, one after the other, and counts how many there are at once.
fn serve(limiter: &Arc<Limiter>, connections: usize, open: &AtomicUsize, most: usize) {
    let ear = Ear::new();
    let mut waiter = Waiter::new(limiter.clone(), ear.inbox.wake.clone());
    let mut slots = Slots::with_capacity(1, limiter.clone());
    let socket = || std::fs::File::open("/dev/null").expect("/dev/null").into();
    for _ in 0..connections {
        let slot = slots.take(socket(), take(limiter, &mut waiter, &ear));
        assert!(open.fetch_add(1, SeqCst) < most, "more connections than permits");
        thread::yield_now();
        open.fetch_sub(1, SeqCst);
        slots.leave(slot);
    }
}

/// Loops, and another thread that does something else.
fn contend(limit: usize, most: usize, other: fn(&Arc<Limiter>)) {
    let (limiter, open) = (Limiter::new(limit), Arc::new(AtomicUsize::new(0)));
    let loops: Vec<_> = (0..3)
        .map(|_| {
            let (limiter, open) = (limiter.clone(), open.clone());
            thread::spawn(move || serve(&limiter, 2, &open, most))
        })
        .collect();
    other(&limiter);
    loops.into_iter().for_each(|one| one.join().expect("no panic"));
    assert_eq!(limiter.taken(), 0, "no permit is lost");
}

#[test]
fn permits_go_round_and_none_is_lost() {
    check(|| contend(1, 1, |_| ()));
    check(|| contend(2, 2, |_| ()));
}

#[test]
fn a_limit_that_changes_loses_no_loop() {
    check(|| {
        contend(0, 3, |limiter| {
            for limit in [2, 0, 3, 1] {
                limiter.set_limit(limit);
            }
        });
    });
}

#[test]
fn a_loop_that_waits_no_more_keeps_nothing_back() {
    check(|| {
        contend(1, 1, |limiter| {
            let ear = Ear::new();
            let mut waiter = Waiter::new(limiter.clone(), ear.inbox.wake.clone());
            waiter.wait();
            thread::yield_now();
            waiter.leave();
        });
    });
}

#[test]
fn a_loop_that_died_waiting_keeps_nothing_back() {
    check(|| {
        contend(1, 1, |limiter| {
            let mut waiter = Waiter::new(limiter.clone(), Wake::new(Arc::new(Kernel)));
            waiter.wait();
            thread::yield_now();
            drop(waiter);
            let ear = Ear::new();
            drop(take(limiter, &mut Waiter::new(limiter.clone(), ear.inbox.wake.clone()), &ear));
        });
    });
}

struct Silent;

impl Service for Silent {
    type Protocol = Silent;
    fn open(&self, _peer: &Peer) -> Silent {
        Silent
    }
}

impl Protocol for Silent {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

fn generation(id: u32) -> Arc<Generation> {
    let service = Behaviour::from(Silent).service().clone();
    Generation::prepare(id, Services { service, own: Vec::new() }, Settings::default(), 1, 0)
        .unwrap_or_else(|_| unreachable!("nothing panics"))
}

/// Accepts again and again: what was in force when it looked must still be in force, or something newer.
fn accept(switch: &Switch, committed: &AtomicU32) {
    let (mut epoch, mut active) = (switch.epoch(), switch.current());
    for _ in 0..4 {
        let before = active.id;
        let least = committed.load(SeqCst);
        if switch.epoch() != epoch {
            epoch = switch.epoch();
            active = switch.current();
        }
        assert!(active.id >= least, "generation {} after {least} came into force", active.id);
        assert!(active.id >= before, "a generation came back");
    }
}

#[test]
fn every_accept_after_a_commit_sees_it() {
    check(|| {
        let shared_counters = SharedCounters::private();
        let first = generation(1);
        let switch = Arc::new(Switch::new(shared_counters, first.clone()));
        let committed = Arc::new(AtomicU32::new(1));
        let loops: Vec<_> = (0..2)
            .map(|_| {
                let (switch, committed) = (switch.clone(), committed.clone());
                thread::spawn(move || accept(&switch, &committed))
            })
            .collect();
        for id in [2, 3] {
            // A generation that is forgotten never comes.
            switch.prepare(Some(generation(100 + id)));
            switch.prepare(None);
            switch.commit(generation(id));
            committed.store(id, SeqCst);
        }
        loops.into_iter().for_each(|one| one.join().expect("no panic"));
        assert_eq!((switch.current().id, switch.epoch()), (3, 3));
        assert!(first.has_ended() && !first.has_ended(), "told once");
    });
}

/// Makes the n-th message of a sender.
fn message(sender: u64, number: u64) -> Message {
    Message::Note(sender << 8 | number, Note::value(()), Urgency::Delivered)
}

/// Returns the numbers of a sender's messages, in their order.
fn sorted(messages: &[Message], sender: u64) -> Vec<u64> {
    let of = messages.iter().map(|message| match message {
        Message::Note(token, ..) => *token,
        _ => unreachable!("only notes were sent"),
    });
    of.filter(|token| token >> 8 == sender).map(|token| token & 0xff).collect()
}

const MESSAGES: u64 = 3;

#[test]
fn messages_come_in_order_and_each_is_notified() {
    check(|| {
        let ear = Ear::new();
        let senders: Vec<_> = (1..=2)
            .map(|sender| {
                let inbox = ear.inbox.clone();
                thread::spawn(move || (0..MESSAGES).for_each(|number| assert!(inbox.put(message(sender, number)).is_ok())))
            })
            .collect();
        let mut messages = Vec::new();
        while messages.len() < 2 * MESSAGES as usize {
            messages.extend(ear.listen());
        }
        senders.into_iter().for_each(|one| one.join().expect("no panic"));
        assert_eq!((sorted(&messages, 1), sorted(&messages, 2)), (vec![0, 1, 2], vec![0, 1, 2]));
    });
}

#[test]
fn a_closed_inbox_returns_what_it_did_not_take() {
    check(|| {
        let ear = Ear::new();
        let senders: Vec<_> = (1..=2)
            .map(|sender| {
                let inbox = ear.inbox.clone();
                thread::spawn(move || {
                    let refused = (0..MESSAGES).filter_map(|number| inbox.put(message(sender, number)).err());
                    refused.collect::<Vec<_>>()
                })
            })
            .collect();
        let mut messages = ear.listen();
        messages.extend(ear.inbox.close());
        for sender in senders {
            messages.extend(sender.join().expect("no panic"));
        }
        // Messages that were refused were sent last.
        assert_eq!((sorted(&messages, 1), sorted(&messages, 2)), (vec![0, 1, 2], vec![0, 1, 2]));
    });
}
