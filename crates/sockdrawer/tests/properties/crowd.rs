//! The clients of the concurrent property: each is sure of every byte it gets, and all together of how many were served.

use crate::common::{PATIENCE, connect_from, reset};
use crate::service::{ANSWER, Origin, answer, parts, request};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Address from which clients connect that may be ended at any time.
pub(crate) const VICTIMS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// Address from which clients connect that stay.
pub(crate) const KEPT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// The version of a service that must never be in force.
pub(crate) const FORBIDDEN: u32 = 1 << 31;

/// Next key of a handle that the service keeps; other cases of this process have some too.
static KEYS: AtomicU64 = AtomicU64::new(1 << 40);

/// State that all threads of a case share.
#[derive(Default)]
pub(crate) struct Scene {
    /// Lane of the case; cases of other lanes run meanwhile.
    pub(crate) lane: u8,
    /// Addresses at which the pool listens, or listened a moment ago. The first stays.
    pub(crate) ports: Mutex<Vec<SocketAddr>>,
    /// The newest generation that was in force when a change returned.
    pub(crate) floor: AtomicU32,
    /// No more changes come; clients end.
    pub(crate) over: AtomicBool,
    /// Connections may be turned away.
    pub(crate) rejects: bool,
    /// Loops die, and connections with them.
    pub(crate) crashes: bool,
    /// Number of notes sent to clients that stay.
    pub(crate) notes: AtomicU64,
    /// Number of connections of all clients that stood; the next two fields count those that were served, and those that were
    /// turned away.
    pub(crate) connected: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    /// Number of connections that may be ended that ended before they were served, or were turned away.
    pub(crate) ended_early: AtomicU64,
    /// Number of connections reset before they were heard of, where they may be turned away, or accepted by a loop that died.
    pub(crate) lost: AtomicU64,
    /// Keys of the handles of connections that are gone.
    pub(crate) gone: Mutex<Vec<u64>>,
}

/// State of a connection when it was looked at.
enum Seen {
    Answer(u8, Origin, u64),
    /// Orderly end, before an answer began.
    End,
    Reset,
}

struct Visitor<'a> {
    scene: &'a Scene,
    stream: TcpStream,
    key: u64,
    generation: u32,
    sum: u64,
    notes: u64,
}

impl Scene {
    /// Returns the address that stays.
    fn home(&self) -> SocketAddr {
        self.ports.lock().expect("no panic")[0]
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Connects; `None` where nobody listens there any more.
    fn try_connect(&self, at: SocketAddr) -> Option<TcpStream> {
        let connected = TcpStream::connect(at);
        if connected.as_ref().is_err_and(|error| error.kind() != ErrorKind::ConnectionRefused) {
            // It stood, and was reset before it was heard of.
            self.connected.fetch_add(1, SeqCst);
            self.lost.fetch_add(1, SeqCst);
        }
        connected.ok()
    }

    /// Visits one address after the other until all is over.
    pub(crate) fn visit(&self, number: usize) {
        let mut round = number;
        while !self.is_over() {
            round += 1;
            let at = {
                let ports = self.ports.lock().expect("no panic");
                ports[round % ports.len()]
            };
            let Some(mut visitor) = Visitor::connect(self, Ipv4Addr::LOCALHOST, at) else { continue };
            if (0..round % 4).all(|_| visitor.add()) {
                visitor.end();
            }
        }
    }

    /// Comes again and again to be ended by others.
    pub(crate) fn suffer(&self) {
        while !self.is_over() {
            let at = self.home();
            let Some(mut victim) = Visitor::connect(self, VICTIMS, at) else { continue };
            while !self.is_over() && victim.suffers() {}
            self.gone.lock().expect("no panic").push(victim.key);
            if self.is_over() {
                // It may have been asked to end this moment.
                let _ = victim.stream.shutdown(Shutdown::Write);
                let _ = victim.stream.read_to_end(&mut Vec::new());
            }
        }
    }

    /// Stays until all is over. Only a crash of its loop may end it.
    pub(crate) fn stay(&self) {
        let at = self.home();
        let mut kept = loop {
            match Visitor::connect(self, KEPT, at) {
                Some(kept) => break kept,
                None => assert!(self.rejects || self.crashes, "it is served sooner or later"),
            }
            if self.is_over() {
                return;
            }
        };
        while !self.is_over() {
            if !kept.add() {
                return;
            }
        }
        kept.hear_the_rest();
        kept.end();
    }
}

impl<'a> Visitor<'a> {
    /// Connects and says hello. None: it was turned away, or nobody listens there any more.
    fn connect(scene: &'a Scene, from: Ipv4Addr, at: SocketAddr) -> Option<Visitor<'a>> {
        let floor = scene.floor.load(SeqCst);
        let home = scene.home();
        let stream = if at == home { connect_from(from, at) } else { scene.try_connect(at)? };
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        scene.connected.fetch_add(1, SeqCst);
        let mut visitor = Visitor { scene, stream, key: KEYS.fetch_add(1, SeqCst), generation: 0, sum: 0, notes: 0 };
        let sent = visitor.stream.write_all(&request(b'h', visitor.key)).is_ok();
        match visitor.see() {
            Seen::Answer(b'h', origin, key) => {
                assert_eq!(key, visitor.key);
                assert!(sent && origin.generation >= floor, "{origin:?} was not in force any more, {floor} was");
                scene.served.fetch_add(1, SeqCst);
                Some(visitor)
            }
            // Ended before it had said anything.
            Seen::Answer(b'd', ..) if from == VICTIMS => {
                assert!(matches!(visitor.see(), Seen::End), "an orderly end after a goodbye");
                scene.ended_early.fetch_add(1, SeqCst);
                None
            }
            Seen::Answer(letter, origin, number) => panic!("{} {origin:?} {number} in place of a greeting", letter as char),
            Seen::End | Seen::Reset if from == VICTIMS => {
                scene.ended_early.fetch_add(1, SeqCst);
                None
            }
            Seen::Reset if at != home && (scene.rejects || scene.crashes) => {
                scene.lost.fetch_add(1, SeqCst);
                None
            }
            Seen::End | Seen::Reset => {
                assert!(scene.rejects || scene.crashes, "a connection that stood was not served");
                scene.turned_away.fetch_add(1, SeqCst);
                None
            }
        }
    }

    fn see(&mut self) -> Seen {
        let mut bytes = [0; ANSWER];
        let mut count = 0;
        while count < ANSWER {
            match self.stream.read(&mut bytes[count..]) {
                Ok(0) => {
                    assert_eq!(count, 0, "a part of an answer");
                    return Seen::End;
                }
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Seen::Reset,
                Err(error) => panic!("{error} in place of an answer"),
            }
        }
        let (letter, origin, number) = parts(bytes);
        if matches!(letter, b'h' | b'a' | b'd') {
            assert!(origin.version < FORBIDDEN, "{origin:?} of a change that was refused");
            assert!(origin.generation >= self.generation, "{origin:?} after generation {}", self.generation);
            self.generation = origin.generation;
        }
        Seen::Answer(letter, origin, number)
    }

    /// Makes an exchange. Returns false where its loop died.
    fn add(&mut self) -> bool {
        let sent = self.stream.write_all(&request(b'a', 3)).is_ok();
        loop {
            match self.see() {
                Seen::Answer(b'a', _, sum) => {
                    self.sum += 3;
                    assert!(sent && sum == self.sum, "{sum} in place of {}", self.sum);
                    return true;
                }
                Seen::Answer(b'n', ..) => self.notes += 1,
                Seen::Answer(letter, origin, number) => panic!("{} {origin:?} {number} in place of a sum", letter as char),
                Seen::End | Seen::Reset => {
                    assert!(self.scene.crashes, "a connection ended that nobody ended");
                    self.scene.gone.lock().expect("no panic").push(self.key);
                    return false;
                }
            }
        }
    }

    /// Makes an exchange over a connection that may be ended. Returns false where it was.
    fn suffers(&mut self) -> bool {
        // The system tells of a reset once: a client that hears it while writing reads an end.
        let sent = self.stream.write_all(&request(b'a', 3)).is_ok();
        match self.see() {
            Seen::Answer(b'a', _, sum) => {
                self.sum += 3;
                assert_eq!(sum, self.sum);
                true
            }
            Seen::Answer(b'd', _, sum) => {
                assert_eq!(sum, self.sum, "the goodbye");
                assert!(matches!(self.see(), Seen::End), "an orderly end after a goodbye");
                false
            }
            Seen::Answer(letter, origin, number) => panic!("{} {origin:?} {number} for a victim", letter as char),
            Seen::End => {
                assert!(!sent || self.scene.crashes, "an end without a goodbye");
                false
            }
            Seen::Reset => false,
        }
    }

    /// Hears every note that was sent to clients that stay.
    fn hear_the_rest(&mut self) {
        let (sent, until) = (self.scene.notes.load(SeqCst), Instant::now() + PATIENCE);
        while self.notes < sent && self.add() {
            assert!(Instant::now() < until, "{} of {sent} notes", self.notes);
        }
        assert!(self.notes <= sent, "{} of {sent} notes", self.notes);
    }

    fn end(mut self) {
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            let mut rest = Vec::new();
            let ended = self.stream.read_to_end(&mut rest);
            assert!(ended.is_ok() && rest.is_empty() || self.scene.crashes, "{ended:?}, {rest:?} in place of an orderly end");
        }
        self.scene.gone.lock().expect("no panic").push(self.key);
        reset(self.stream);
    }
}

/// Returns a note for clients that stay.
pub(crate) fn note() -> [u8; ANSWER] {
    answer(b'n', Origin::default(), 0)
}
