//! Groups: what is published reaches every member, once and in order, and slows its publisher down in the place of being lost.

use crate::common::{self, PATIENCE, assert_empty, connect, in_time, is_long, read, start};
use crate::relays::script::{Call, script};
use sockdrawer::testing::crash_loop;
use sockdrawer::{
    After, CannotRestore, CannotSave, Closed, Config, Context, Delegate, Drain, Error, Group, Groups, Input, Note, NotifyError,
    Peer, Pool, Protocol, Saved, Saver, Selector, Service, Step,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// `+x` joins the group x, `-x` leaves it, and `!x` publishes the three bytes that follow to it. Each is three bytes in all, or six.
#[derive(Clone, Default)]
struct Broker {
    topics: Groups,
    gate: Arc<Gate>,
}

/// While it is shut, a member that is told `???` blocks its loop.
#[derive(Default)]
struct Gate {
    is: Mutex<Is>,
    changed: Condvar,
}

#[derive(Default, PartialEq)]
enum Is {
    #[default]
    Open,
    Shut,
    /// A loop waits for it.
    Blocking,
}

impl Gate {
    fn set(&self, is: Is) {
        *self.is.lock().expect("no panic") = is;
        self.changed.notify_all();
    }

    fn wait(&self, until: Is) {
        let is = self.is.lock().expect("no panic");
        drop(self.changed.wait_timeout_while(is, PATIENCE, |is| *is != until).expect("no panic"));
    }
}

impl Service for Broker {
    type Protocol = Broker;
    fn open(&self, _peer: &Peer) -> Broker {
        self.clone()
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Broker, CannotRestore> {
        Ok(self.clone())
    }
}

impl Protocol for Broker {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some([what, topic, _]) = input.bytes().first_chunk::<3>().copied() {
            match what {
                b'+' => cx.join(&self.topics.get([topic])),
                b'-' => self.topics.find([topic]).iter().for_each(|group| cx.leave(group)),
                b'!' => {
                    let Some(message) = input.bytes().get(3..6) else { return Step::Continue };
                    if let Some(group) = self.topics.find([topic]) {
                        cx.publish(&group, message);
                    }
                    input.take(3);
                }
                _ => return Step::Abort,
            }
            input.take(3);
            if what != b'!' {
                cx.send(b"ok.");
            }
        }
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        let bytes = note.bytes().expect("a group sends bytes");
        if bytes == b"???" {
            if *self.gate.is.lock().expect("no panic") == Is::Shut {
                self.gate.set(Is::Blocking);
            }
            self.gate.wait(Is::Open);
        }
        cx.send(bytes);
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

fn ask(stream: &mut TcpStream, what: &[u8]) {
    stream.write_all(what).expect("it stands");
    assert_eq!(read(stream, 3).as_deref(), Some(&b"ok."[..]));
}

fn member(at: SocketAddr, topic: u8) -> TcpStream {
    let mut stream = connect(at);
    ask(&mut stream, &[b'+', topic, b'\n']);
    stream
}

/// Returns numbers of three digits each, from 0 on.
fn numbers(from: usize, to: usize) -> Vec<u8> {
    (from..to).flat_map(|number| format!("{:03}", number % 1000).into_bytes()).collect()
}

fn publications(topic: u8, from: usize, to: usize) -> Vec<u8> {
    numbers(from, to).chunks(3).flat_map(|number| [&[b'!', topic, b'\n'], number].concat()).collect()
}

#[test]
fn pipelined_messages_all_arrive_in_order_at_a_thousand_members() {
    in_time(|| {
        const MEMBERS: usize = 1000;
        let messages = if is_long() { 500 } else { 200 };
        // An inbox for far fewer than are published at once.
        let (pool, at) = start(Config::accept(Broker::default()).loops(2).inbox(64));
        let mut members: Vec<TcpStream> = (0..MEMBERS).map(|_| member(at, b'x')).collect();
        let mut publisher = connect(at);
        publisher.write_all(&publications(b'x', 0, messages)).expect("it stands");
        let expected = numbers(0, messages);
        for member in &mut members {
            assert!(read(member, expected.len()).as_deref() == Some(&expected[..]), "all, in order");
        }
        let counts = pool.status().counts;
        assert_eq!((counts.notes, counts.notes_dropped, counts.overflow), ((MEMBERS * messages) as u64, 0, 0));
        drop((members, publisher));
        assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        assert_empty(&pool);
    });
}

#[test]
fn a_publisher_is_held_while_a_loop_is_behind_and_goes_on_when_it_is_not() {
    in_time(|| {
        let broker = Broker::default();
        let (pool, at) = start(Config::accept(broker.clone()).loops(1).inbox(8));
        // The member has a loop of another pool, which hangs.
        let (behind, far) = start(Config::accept(broker.clone()).loops(1).inbox(8));
        let mut member = member(far, b'x');
        broker.gate.set(Is::Shut);
        let mut publisher = connect(at);
        publisher.write_all(b"!x\n???").expect("it stands");
        // More than inbox, read buffer and kernel hold for it.
        let all = publications(b'x', 0, 2_000_000);
        let writer = thread::spawn(move || {
            publisher.write_all(&all).expect("it stands");
            publisher
        });
        assert!(pool.wait(PATIENCE, |status| status.connections == 1));
        let waits = |pool: &Pool| {
            let all = pool.connections(&Selector::All);
            all.iter().any(|one| one.state == sockdrawer::observe::ConnectionState::Waiting)
        };
        assert!((0..1000).any(|_| {
            // waits because: the state of a connection is asked, no event tells of it.
            thread::sleep(Duration::from_millis(5));
            waits(&pool)
        }));
        assert!(!writer.is_finished(), "the publisher is slowed down");
        broker.gate.set(Is::Open);
        assert_eq!(read(&mut member, 3).as_deref(), Some(&b"???"[..]));
        let (mut got, expected) = (vec![0; 3000], numbers(0, 1000));
        for _ in 0..2000 {
            member.read_exact(&mut got).expect("all arrive");
            assert!(got == expected, "in order");
        }
        drop(writer.join().expect("no panic"));
        drop((member, behind));
    });
}

#[test]
fn members_come_and_go_in_the_order_of_what_is_published() {
    let broker = Broker::default();
    let (pool, at) = start(Config::accept(broker.clone()).loops(2));
    let (mut one, mut two) = (member(at, b'x'), member(at, b'x'));
    let mut both = member(at, b'y');
    ask(&mut both, b"+x\n");
    // Again: it stays one member.
    ask(&mut both, b"+x\n");
    let group = broker.topics.find(b"x").expect("it has members");
    assert!(pool.wait(PATIENCE, |_| group.len() == 3));
    group.publish(&b"all"[..]).expect("there is room");
    for stream in [&mut one, &mut two, &mut both] {
        assert_eq!(read(stream, 3).as_deref(), Some(&b"all"[..]));
    }
    ask(&mut two, b"-x\n");
    drop(one);
    assert!(pool.wait(PATIENCE, |_| group.len() == 1));
    group.publish(&b"one"[..]).expect("there is room");
    broker.topics.find(b"y").expect("it has a member").publish(&b"yyy"[..]).expect("there is room");
    assert_eq!(read(&mut both, 6).as_deref(), Some(&b"oneyyy"[..]));
    // Nothing came for the one that left before this.
    ask(&mut two, b"+x\n");
    ask(&mut both, b"-x\n");
    drop(two);
    assert!(pool.wait(PATIENCE, |_| group.is_empty()));
    group.publish(&b"???"[..]).expect("nothing is full");
    drop(both);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    drop(group);
    assert!(broker.topics.find(b"x").is_none(), "a name without members holds nothing");
}

#[test]
fn an_adoption_loses_no_message() {
    in_time(|| {
        const MESSAGES: usize = 20_000;
        let broker = Broker::default();
        let (pool, at) = start(Config::accept(broker.clone()).loops(2));
        let mut members: Vec<TcpStream> = (0..20).map(|_| member(at, b'x')).collect();
        let group = broker.topics.find(b"x").expect("it has members");
        let publisher = thread::spawn(move || {
            for number in numbers(0, MESSAGES).chunks(3) {
                group.publish_within(number, PATIENCE).expect("there is room in time");
            }
        });
        let mut adopted = 0;
        while !publisher.is_finished() {
            pool.update(|config| config.behaviour(broker.clone())).expect("valid");
            adopted += pool.adopt(&Selector::All).moved;
        }
        publisher.join().expect("no panic");
        assert!(adopted > 0);
        let expected = numbers(0, MESSAGES);
        for member in &mut members {
            assert!(read(member, expected.len()).as_deref() == Some(&expected[..]), "all, in order, over {adopted} adoptions");
        }
    });
}

#[test]
fn a_member_that_does_not_read_ends_and_delays_no_other() {
    in_time(|| {
        let broker = Broker::default();
        let mut config = Config::accept(broker.clone()).loops(1);
        config.settings.options.send_buffer = Some(8 * 1024);
        (config.settings.high_water, config.settings.low_water) = (8 * 1024, 4 * 1024);
        config.settings.max_unsent = Some(64 * 1024);
        let (pool, at) = start(config);
        let (lazy, mut reader) = (member(at, b'x'), member(at, b'x'));
        rustix::net::sockopt::set_socket_recv_buffer_size(&lazy, 4096).expect("a socket");
        let group = broker.topics.find(b"x").expect("it has members");
        let message: Arc<[u8]> = vec![7; 4096].into();
        let mut got = vec![0; message.len()];
        let mut sent = 0;
        while pool.status().counts.overflow == 0 {
            group.publish_within(message.clone(), PATIENCE).expect("there is room");
            reader.read_exact(&mut got).expect("the other is served");
            sent += 1;
            assert!(sent < 100_000, "it was never ended");
        }
        assert!(pool.wait(PATIENCE, |_| group.len() == 1));
        assert_eq!(pool.status().counts.notes_dropped, 1, "the note at which it ended");
    });
}

#[test]
fn a_thread_is_refused_at_a_full_inbox_or_waits() {
    in_time(|| {
        let broker = Broker::default();
        let (_pool, at) = start(Config::accept(broker.clone()).loops(1).inbox(4));
        let mut member = member(at, b'x');
        let group = broker.topics.find(b"x").expect("it has members");
        broker.gate.set(Is::Shut);
        group.publish(&b"???"[..]).expect("there is room");
        broker.gate.wait(Is::Blocking);
        let refused = std::iter::repeat_with(|| group.publish(&b"abc"[..])).take(20).find_map(Result::err);
        assert!(matches!(refused, Some(NotifyError::Full(Note::Bytes(_)))));
        assert!(group.publish_within(&b"abc"[..], Duration::from_millis(20)).is_err(), "not within that time");
        let opener = {
            let broker = broker.clone();
            thread::spawn(move || broker.gate.set(Is::Open))
        };
        group.publish_within(&b"end"[..], PATIENCE).expect("the loop goes on");
        opener.join().expect("no panic");
        let mut all = Vec::new();
        while !all.ends_with(b"end") {
            all.extend(read(&mut member, 3).expect("it stands"));
        }
    });
}

/// Service whose connections keep what they have heard of their end.
#[derive(Clone, Default)]
struct Farewell(Group, Arc<Mutex<Vec<Closed>>>);

impl Service for Farewell {
    type Protocol = Farewell;
    fn open(&self, _peer: &Peer) -> Farewell {
        self.clone()
    }
}

impl Protocol for Farewell {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.join(&self.0);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        // Published by members while the group is told of a message.
        cx.publish(&self.0, &b"left"[..]);
        self.1.lock().expect("no panic").push(why);
    }
}

#[test]
fn all_members_may_end_at_one_message() {
    let service = Farewell::default();
    let (pool, at) = start(Config::accept(service.clone()).loops(2));
    let members: Vec<TcpStream> = (0..100).map(|_| connect(at)).collect();
    assert!(pool.wait(PATIENCE, |_| service.0.len() == 100));
    service.0.publish(&b"end"[..]).expect("there is room");
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && service.0.is_empty()));
    assert!(service.1.lock().expect("no panic").iter().all(|why| *why == Closed::Orderly));
    drop(members);
}

#[test]
fn a_member_may_be_delegated_at_one_message_and_has_the_next() {
    in_time(|| {
        let (group, gate) = (Group::new(), Arc::new(Barrier::new(2)));
        let (joined, blocks) = (group.clone(), gate.clone());
        let service = script(move |call, cx, _| match call {
            Call::Received(input) => {
                if input.take_all() == b"join" {
                    cx.join(&joined);
                } else {
                    blocks.wait();
                    blocks.wait();
                }
                Step::Continue
            }
            Call::Notified(_) => Step::Delegate(Delegate::new(|connection| {
                let note = loop {
                    match connection.take_note() {
                        Some(note) => break note,
                        None => _ = connection.wait().expect("it stands"),
                    }
                };
                connection.write_all(note.bytes().expect("a group sends bytes")).expect("it stands");
                After::End
            })),
            _ => Step::Continue,
        });
        let (pool, at) = start(Config::accept(service).loops(1));
        let (mut member, mut other) = (connect(at), connect(at));
        member.write_all(b"join").expect("it stands");
        assert!(pool.wait(PATIENCE, |_| group.len() == 1));
        other.write_all(b"block").expect("it stands");
        gate.wait();
        // The loop meets both at once.
        group.publish(&b"one"[..]).expect("there is room");
        group.publish(&b"two"[..]).expect("there is room");
        gate.wait();
        assert_eq!(read(&mut member, 3).as_deref(), Some(&b"two"[..]));
        let status = pool.status();
        assert_eq!((status.restarts, status.counts.panics, status.counts.delegated), (0, 0, 1));
        drop((member, other));
        assert_empty(&pool);
    });
}

#[test]
fn members_that_are_cut_at_a_deadline_may_publish() {
    in_time(|| {
        const MEMBERS: usize = 100;
        let (group, gate) = (Group::new(), Arc::new(Barrier::new(2)));
        let (of, blocks, is_first) = (group.clone(), gate.clone(), AtomicBool::new(true));
        let service = script(move |call, cx, _| {
            match call {
                Call::Opened => {
                    cx.join(&of);
                    cx.pause();
                }
                Call::Closed(_) => {
                    cx.publish(&of, &b"left"[..]);
                    if is_first.swap(false, SeqCst) {
                        blocks.wait();
                        blocks.wait();
                    }
                }
                _ => {}
            }
            Step::Continue
        });
        let (pool, at) = start(Config::accept(service).loops(2));
        let members: Vec<TcpStream> = (0..MEMBERS).map(|_| connect(at)).collect();
        assert!(pool.wait(PATIENCE, |_| group.len() == MEMBERS));
        let sender = pool.clone();
        let drain = thread::spawn(move || sender.drain(&Selector::All, Drain::within(Duration::from_millis(50))));
        gate.wait();
        // waits because: the other loop hears of its own members, which it may not close before this one has counted its own.
        thread::sleep(Duration::from_millis(100));
        gate.wait();
        let drained = drain.join().expect("no panic");
        assert_eq!((drained.asked, drained.cut), (MEMBERS, MEMBERS));
        assert!(pool.wait(PATIENCE, |status| status.connections == 0 && group.is_empty()), "{} members", group.len());
        let status = pool.status();
        assert_eq!((status.restarts, status.counts.panics, status.counts.cut), (0, 0, MEMBERS as u64));
        drop(members);
    });
}

#[test]
fn a_member_whose_protocol_has_ended_is_none() {
    in_time(|| {
        let group = Group::new();
        let of = group.clone();
        let service = script(move |call, cx, _| match call {
            Call::Opened => {
                cx.join(&of);
                Step::Continue
            }
            Call::Received(input) => {
                input.take_all();
                Step::Close
            }
            _ => Step::Continue,
        });
        let (pool, at) = start(Config::accept(service).loops(1).settings(|settings| settings.linger = 10 * PATIENCE));
        let mut client = connect(at);
        assert!(pool.wait(PATIENCE, |_| group.len() == 1));
        client.write_all(b"x").expect("it stands");
        // Its peer has not ended: the connection lingers, and is no member all the same.
        assert!(pool.wait(PATIENCE, |_| group.is_empty()));
        drop(client);
        assert_empty(&pool);
    });
}

#[test]
fn what_a_member_may_have_unsent_is_not_below_its_high_water_mark() {
    let mut config = Config::accept(Broker::default()).listen(common::any_port());
    config.settings.high_water = 64 * 1024;
    for (most, is_refused) in [(64 * 1024 - 1, true), (64 * 1024, false)] {
        config.settings.max_unsent = Some(most);
        match Pool::start(config.clone()) {
            Ok(_) => assert!(!is_refused, "{most}"),
            Err(Error::Invalid { setting, .. }) => assert_eq!((setting, is_refused), ("settings.max_unsent", true)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_publisher_that_is_held_goes_on_when_the_loop_of_the_members_is_gone() {
    in_time(|| {
        let (group, gate) = (Group::new(), Arc::new(Mutex::new(())));
        let (of, waits) = (group.clone(), gate.clone());
        let member = script(move |call, cx, _| {
            match call {
                Call::Opened => cx.join(&of),
                Call::Notified(_) => drop(waits.lock()),
                _ => {}
            }
            Step::Continue
        });
        let of = group.clone();
        let publisher = script(move |call, cx, _| {
            if let Call::Received(input) = call {
                input.take_all().iter().for_each(|byte| cx.publish(&of, &[*byte][..]));
                cx.send(b"ok.");
            }
            Step::Continue
        });
        let (behind, far) = start(Config::accept(member).loops(1).inbox(4));
        let (pool, at) = start(Config::accept(publisher).loops(1));
        let (member, mut publisher) = (connect(far), connect(at));
        assert!(behind.wait(PATIENCE, |_| group.len() == 1));
        let shut = gate.lock().expect("no panic");
        // With the second there are more than the inbox has room for.
        ask(&mut publisher, b"x");
        ask(&mut publisher, b"0123456789");
        publisher.write_all(b"0123456789").expect("it stands");
        assert!(crash_loop(&behind, 0));
        drop(shut);
        assert_eq!(read(&mut publisher, 3).as_deref(), Some(&b"ok."[..]));
        drop(member);
        assert!(behind.wait(PATIENCE, |status| status.connections == 0));
        ask(&mut publisher, b"x");
        assert!(group.is_empty());
        drop(publisher);
        assert_empty(&pool);
    });
}

#[test]
fn a_member_that_joins_while_its_loop_goes_is_none() {
    in_time(|| {
        let (group, gate) = (Group::new(), Arc::new(Barrier::new(2)));
        let (of, blocks) = (group.clone(), gate.clone());
        let service = script(move |call, cx, _| {
            if let Call::Received(input) = call {
                input.take_all();
                blocks.wait();
                blocks.wait();
                cx.join(&of);
            }
            Step::Continue
        });
        let (pool, at) = start(Config::accept(service).loops(1));
        let mut client = connect(at);
        client.write_all(b"x").expect("it stands");
        gate.wait();
        // The loop meets this before it hears of the member.
        assert!(crash_loop(&pool, 0));
        gate.wait();
        assert!(pool.wait(PATIENCE, |status| status.restarts == 1 && status.connections == 0));
        assert!(pool.wait(PATIENCE, |_| group.is_empty()), "{} members", group.len());
    });
}

#[test]
fn a_group_counts_its_members_and_the_list_of_groups_names_those_that_have_some() {
    let broker = Broker::default();
    let (pool, at) = start(Config::accept(broker.clone()).loops(2));
    let mut members: Vec<TcpStream> = (0..3).map(|_| member(at, b'x')).collect();
    let listed = || {
        let mut all: Vec<(Vec<u8>, usize)> =
            broker.topics.list().into_iter().map(|(name, count)| (name.to_vec(), count)).collect();
        all.sort();
        all
    };
    ask(&mut members[0], b"+y\n");
    ask(&mut members[0], b"+y\n");
    assert!(pool.wait(PATIENCE, |_| listed() == [(b"x".to_vec(), 3), (b"y".to_vec(), 1)]));
    pool.update(|config| config.behaviour(broker.clone())).expect("valid");
    assert_eq!(pool.adopt(&Selector::All).moved, 3);
    assert_eq!(listed(), [(b"x".to_vec(), 3), (b"y".to_vec(), 1)], "an adoption changes no membership");
    drop(members);
    assert!(pool.wait(PATIENCE, |_| listed().is_empty()));

    let group = Group::new();
    let mut driver = sockdrawer::testing::Driver::open(Farewell(group.clone(), Arc::default()));
    assert_eq!(group.len(), 1, "as in a pool");
    driver.end(Closed::Killed);
    assert!(group.is_empty());
}
