//! Connections that a connection asked for, and members of groups, in an upgrade: they stay with what they belong to.

use super::common::{PATIENCE, any_port, connect, echoes, read};
use super::place::{Place, moved};
use super::script::full_backend;
use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{
    Address, CannotRestore, CannotSave, Config, Context, Drain, Group, Handle, Input, Job, JobResult, Note, Peer, Pool, Protocol,
    Saved, Saver, Service, Side, State, Step,
};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Service that connects for each connection that comes in, or takes the first that came in for it, and relays once a job is
/// over, which waits for
/// the gate.
#[derive(Clone)]
struct Late {
    /// None: the second joins the first.
    target: Option<Address>,
    side: Side,
    first: Arc<Mutex<Option<Handle>>>,
    other: Option<Handle>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().expect("no panic");
        drop(self.changed.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open));
    }
}

impl Late {
    fn to(target: Option<Address>) -> Late {
        Late { target, side: Side::Accepted, first: Arc::default(), other: None, gate: Arc::default() }
    }

    fn join(&mut self, other: Handle) -> Step {
        self.other = Some(other);
        let gate = self.gate.clone();
        Step::Work(Job::new(move || gate.wait()))
    }
}

impl Service for Late {
    type Protocol = Late;
    fn open(&self, peer: &Peer) -> Late {
        Late { side: peer.side(), ..self.clone() }
    }
    fn state(&self) -> State {
        State::of("late", 1)
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Late, CannotRestore> {
        self.gate.open();
        // waits because: the other connection is to relay to this one before this process has it.
        thread::sleep(Duration::from_millis(300));
        Ok(self.clone())
    }
}

impl Protocol for Late {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.pause();
        match &self.target {
            Some(target) if self.side == Side::Accepted => cx.connect(target, PATIENCE),
            Some(_) => {}
            None => {
                let first = self.first.lock().expect("no panic").replace(cx.handle());
                return first.map_or(Step::Continue, |first| self.join(first));
            }
        }
        Step::Continue
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, _cx: &mut Context<'_>) -> Step {
        self.join(result.expect("it listens"))
    }
    fn job_done(&mut self, _result: JobResult, _cx: &mut Context<'_>) -> Step {
        Step::Relay(self.other.take().expect("it waited with one"))
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

/// Checks connections that are joined by the pool before, and move to the next one together.
fn move_joined([mut one, mut two]: [TcpStream; 2], old: &Pool, new: &Pool) {
    one.write_all(b"question").expect("it stands");
    assert_eq!(read(&mut two, 8).as_deref(), Some(&b"question"[..]));
    two.write_all(b"answer").expect("it stands");
    assert_eq!(read(&mut one, 6).as_deref(), Some(&b"answer"[..]));
    moved(old, new, 2);
    one.write_all(b"again").expect("it stands");
    assert_eq!(read(&mut two, 5).as_deref(), Some(&b"again"[..]));
    drop((one, two));
    assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
}

#[test]
fn a_connection_that_was_made_stays_while_its_asker_does() {
    let place = Place::new("made");
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let late = Late::to(Some(backend.local_addr().expect("it is bound").into()));
    let (old, at) = place.serve(Config::accept(late.clone()).loops(1).listen(any_port()));
    let client = connect(at);
    let (far, _) = backend.accept().expect("it connects");
    far.set_read_timeout(Some(PATIENCE)).expect("not zero");
    assert!(old.wait(PATIENCE, |status| status.counts.jobs == 1));
    let (new, _) = place.serve(Config::accept(late.clone()).loops(1).listen(Address::Tcp(at)));
    // waits because: the connection that was made is not to move in this time.
    assert!(!new.wait(Duration::from_millis(300), |status| status.counts.moved_in > 0));
    late.gate.open();
    move_joined([client, far], &old, &new);
}

#[test]
fn a_relay_takes_back_a_connection_that_is_offered() {
    let place = Place::new("takes-back");
    let late = Late::to(None);
    let (old, at) = place.serve(Config::accept(late.clone()).loops(1).listen(any_port()));
    let first = connect(at);
    assert!(old.wait(PATIENCE, |status| status.connections == 1));
    let second = connect(at);
    assert!(old.wait(PATIENCE, |status| status.counts.jobs == 1));
    let (new, _) = place.serve(Config::accept(late).loops(1).listen(Address::Tcp(at)));
    move_joined([first, second], &old, &new);
}

/// A member of a group, which is published to while members are restored the first time.
#[derive(Clone)]
struct Member(Group, Arc<AtomicUsize>);

const MESSAGES: usize = 40;
const MESSAGE: usize = 8 * 1024;

impl Service for Member {
    type Protocol = Member;
    fn open(&self, _peer: &Peer) -> Member {
        self.clone()
    }
    fn state(&self) -> State {
        State::of("member", 1)
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Member, CannotRestore> {
        if self.1.fetch_add(1, SeqCst) == 0 {
            for _ in 0..MESSAGES {
                self.0.publish_within(vec![7; MESSAGE], PATIENCE).expect("there is room");
            }
            // waits because: the loop of the members, which are frozen, is to hear of all before they go on.
            thread::sleep(Duration::from_millis(300));
        }
        Ok(self.clone())
    }
}

impl Protocol for Member {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.join(&self.0);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().expect("a group sends bytes"));
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[test]
fn messages_to_members_that_are_frozen_stand_once_for_all_of_them() {
    const MEMBERS: usize = 30;
    let place = Place::new("members");
    let service = Member(Group::new(), Arc::default());
    let (old, at) = place.serve(Config::accept(service.clone()).loops(1).listen(any_port()));
    let mut clients: Vec<_> = (0..MEMBERS).map(|_| connect(at)).collect();
    assert!(old.wait(PATIENCE, |_| service.0.len() == MEMBERS));
    let (new, _) = place.serve(Config::accept(service.clone()).loops(1).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == MEMBERS as u64), "{:?}", old.status().counts);
    for client in &mut clients {
        let all = read(client, MESSAGES * MESSAGE).expect("all messages");
        assert!(all.iter().all(|byte| *byte == 7));
    }
    // A connection whose notes do not fit goes on where it is, and is restored once more than the others. On a busy machine all may take too long.
    assert_eq!(service.1.load(SeqCst) % MEMBERS, 0, "how often they were restored");
}

/// Service that connects at the note `connect`, and says in its state whether that is under way. Told `again` by its peer it
/// sends itself notes without end.
#[derive(Clone)]
struct Asking {
    target: Address,
    handles: Arc<Mutex<Vec<Handle>>>,
    own: Option<Handle>,
    is_connecting: bool,
    /// Number of restored connections whose connect was under way.
    wrong: Arc<AtomicUsize>,
}

impl Service for Asking {
    type Protocol = Asking;
    fn open(&self, _peer: &Peer) -> Asking {
        self.clone()
    }
    fn state(&self) -> State {
        State::of("asking", 1).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Asking, CannotRestore> {
        self.wrong.fetch_add(usize::from(from.u64()? != 0), SeqCst);
        Ok(self.clone())
    }
}

impl Protocol for Asking {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.take_all() == b"again" {
            let own = cx.handle();
            cx.notify(self.own.insert(own), &b"again"[..]);
        } else {
            self.handles.lock().expect("no panic").push(cx.handle());
            cx.send(b"x");
        }
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match (note.bytes(), &self.own) {
            (Some(b"connect"), _) => {
                self.is_connecting = true;
                cx.connect(&self.target, PATIENCE);
            }
            (_, Some(own)) => {
                // waits because: while notes are heard frozen connections are not offered, and that is to take a while.
                thread::sleep(Duration::from_millis(5));
                cx.notify(own, &b"again"[..]);
            }
            _ => {}
        }
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.is_connecting.into());
        Ok(())
    }
}

#[test]
fn a_connection_that_connects_once_it_is_frozen_stays() {
    const ASKERS: u64 = 8;
    let place = Place::new("asking");
    let (_full, target, _one) = full_backend();
    let wrong = Arc::new(AtomicUsize::new(0));
    let asking = Asking { target, handles: Arc::default(), own: None, is_connecting: false, wrong: wrong.clone() };
    let config = |asking: &Asking| Config::accept(asking.clone()).loops(1);
    let (old, at) = place.serve(config(&asking).listen(any_port()));
    let mut askers: Vec<_> = (0..ASKERS).map(|_| connect(at)).collect();
    askers.iter_mut().for_each(|client| assert!(echoes(client, b"x")));
    let mut talker = connect(at);
    talker.write_all(b"again").expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.notes > 0));
    let new = thread::scope(|scope| {
        let new = scope.spawn(|| place.serve(config(&asking).listen(Address::Tcp(at))).0);
        assert!(old.wait(PATIENCE, |status| status.listeners.is_empty()), "it accepts no more");
        // waits because: nothing tells that they are frozen, which is the next that happens to them.
        thread::sleep(Duration::from_millis(20));
        for handle in asking.handles.lock().expect("no panic").iter() {
            handle.notify(&b"connect"[..]).expect("there is room");
        }
        new.join().expect("no panic")
    });
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in > 0), "the one that does not connect");
    assert!(old.wait(PATIENCE, |status| status.counts.connects == ASKERS), "{:#?}", old.status());
    assert_eq!((new.status().counts.moved_in, wrong.load(SeqCst)), (1, 0));
    drop((askers, talker));
    // Their connects would go on until they take too long.
    old.shutdown(Drain::within(Duration::ZERO));
}
