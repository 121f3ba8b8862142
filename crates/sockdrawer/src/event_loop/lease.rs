//! A leased connection: other code, the lessee, reads and writes its socket; its slot and protocol state stay. [`Leased`] is what
//! both sides share; the [`Lease`] is the other side's right to the socket, and gives it back when it is dropped.

use super::filtered::{Filtered, Left, RawSocket};
use super::inbox::{Inbox, Message};
use super::watcher::{WatchEvent, Watcher};
use crate::listen::permit::Permit;
use crate::observe::counters::Counters;
#[cfg(feature = "tokio")]
use crate::protocol::Handle;
use crate::protocol::{ConnectionId, Delegate, Lent, Note, Peer};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, System, panics};
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

/// The lessee keeps the connection, gives it back for a move if asked, or is asked.
const STAYS: u8 = 0;
const MAY_MOVE: u8 = 1;
const IS_TO_MOVE: u8 = 2;

/// Notes that may wait for the lessee; more are dropped and counted.
const MAX_NOTES: usize = 1024;

/// Receiver of a connection that comes back.
pub(crate) trait Lessor: Send + Sync {
    /// Takes the connection back, unless its loop is gone.
    fn take_back(&self, returned: Returned) -> Result<(), Returned>;
}

impl Lessor for Inbox {
    fn take_back(&self, returned: Returned) -> Result<(), Returned> {
        match self.put(Message::Returned(returned)) {
            Err(Message::Returned(returned)) => Err(returned),
            _ => Ok(()),
        }
    }
}

/// A queue in which connections wait to be taken.
pub(crate) trait LeaseQueue: Send + Sync {
    /// Lets go of a connection that is over. Returns false where it was taken.
    fn give_up(&self, leased: &Arc<Leased>) -> bool;
}

/// Facts that the event loop and the lessee both see. They may outlive the connection harmlessly.
pub(crate) struct Leased {
    pub(crate) token: u64,
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    /// The peer, as far as it is known without the kernel.
    pub(crate) peer: Peer,
    pub(crate) system: Arc<dyn System>,
    draining: AtomicBool,
    ended: AtomicBool,
    /// Says if the connection is given back for a move, and was asked for.
    moves: AtomicU8,
    /// The peer waits: the last that was received is not answered, or what was written is not taken.
    pub(super) owes: AtomicBool,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    /// Hears of changes while the loop watches for the peer's end.
    pub(crate) watcher: Watcher,
    state: Mutex<LeaseState>,
}

#[derive(Default)]
struct LeaseState {
    /// Moment at which a drain or a purge ends the connection.
    ends_by: Option<Instant>,
    /// Queue in which the connection waits to be taken, or waited.
    waits_in: Option<Weak<dyn LeaseQueue>>,
    notes: VecDeque<Note>,
    /// Number of notes that the lessee has taken.
    taken: u64,
    /// The event of the thread that waits, or may wait.
    event: Option<Arc<OwnedFd>>,
    /// Wakers of the tasks that wait, each at its place.
    wakers: Vec<(u64, Waker)>,
    #[cfg(any(test, feature = "tokio"))]
    places: u64,
    /// Permit of a connection that its event loop has let go of; its socket is still open.
    permit: Option<Permit>,
}

impl Leased {
    /// Returns true where the connection was asked to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns true where the connection must not be used any more: killed, or past the deadline of a purge.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the moment at which the connection will be ended, if that is known.
    pub(crate) fn ends_by(&self) -> Option<Instant> {
        lock(&self.state).ends_by
    }

    /// Remembers the queue in which the connection waits until it is taken.
    #[cfg(feature = "tokio")]
    pub(crate) fn waits_in(&self, queue: Weak<dyn LeaseQueue>) {
        lock(&self.state).waits_in = Some(queue);
    }

    /// Returns whether the loop is to watch for the peer's end.
    pub(super) fn is_watched(&self) -> bool {
        self.watcher.is_set() || self.queue().is_some()
    }

    pub(super) fn queue(&self) -> Option<Arc<dyn LeaseQueue>> {
        lock(&self.state).waits_in.as_ref()?.upgrade()
    }

    pub(super) fn owes(&self) -> bool {
        self.owes.load(Ordering::Relaxed)
    }

    pub(crate) fn has_notes(&self) -> bool {
        !lock(&self.state).notes.is_empty()
    }

    /// Takes the oldest note that waits.
    pub(crate) fn take_note(&self) -> Option<Note> {
        let mut state = lock(&self.state);
        let note = state.notes.pop_front();
        state.taken += u64::from(note.is_some());
        note
    }

    /// Rings this event at each note, and when the connection is asked to end or must.
    pub(crate) fn ring_on_change(&self, event: Option<Arc<OwnedFd>>) {
        lock(&self.state).event = event;
    }

    /// Bytes received and sent meanwhile.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }

    /// Counts the bytes that the lessee received and sent since the last call. Returns them.
    pub(super) fn count_bytes(&self, counters: &Counters) -> (u64, u64) {
        let (received, sent) = (self.received.swap(0, Ordering::Relaxed), self.sent.swap(0, Ordering::Relaxed));
        counters.bytes_in().add(received);
        counters.bytes_out().add(sent);
        (received, sent)
    }

    /// Puts a note in the queue; a full queue gives it back.
    pub(crate) fn put_note(&self, note: Note) -> Result<(), Note> {
        {
            let mut state = lock(&self.state);
            if state.notes.len() >= MAX_NOTES {
                return Err(note);
            }
            state.notes.push_back(note);
        }
        self.wake();
        Ok(())
    }

    /// Takes the notes that the lessee did not take, and the number of those that it took.
    pub(crate) fn left_notes(&self) -> (VecDeque<Note>, u64) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.notes), std::mem::take(&mut state.taken))
    }

    /// Counts the notes that the lessee took. Returns those that it did not take.
    pub(super) fn count_notes(&self, counters: &Counters) -> VecDeque<Note> {
        let (left, taken) = self.left_notes();
        counters.notes().add(taken);
        left
    }

    /// Asks it to end, by then.
    pub(super) fn drain(&self, by: Option<Instant>) {
        lock(&self.state).ends_by = by;
        self.draining.store(true, Ordering::Release);
        self.wake();
        self.watcher.tell(WatchEvent::Draining);
    }

    /// Tells the lessee that the connection is to move.
    pub(crate) fn may_move(&self) {
        self.moves.store(MAY_MOVE, Ordering::Release);
    }

    pub(super) fn moves_if_asked(&self) -> bool {
        self.moves.load(Ordering::Acquire) != STAYS
    }

    pub(crate) fn is_asked_to_move(&self) -> bool {
        self.moves.load(Ordering::Acquire) == IS_TO_MOVE
    }

    /// Asks the lessee to give the connection back, once.
    pub(super) fn ask_to_move(&self) {
        if self.moves.compare_exchange(MAY_MOVE, IS_TO_MOVE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.wake();
            self.watcher.tell(WatchEvent::Moving);
        }
    }

    /// Ends the connection for the lessee: nothing is read or written from now on.
    pub(crate) fn end(&self) {
        self.draining.store(true, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        self.wake();
        self.watcher.tell(WatchEvent::Draining);
    }

    /// Keeps the permit with the socket.
    pub(super) fn keep_permit(&self, permit: Permit) {
        lock(&self.state).permit = Some(permit);
    }

    pub(crate) fn wake(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            if let Some(event) = &state.event {
                // The counter of an eventfd overflows after 2^64 notices that no thread read; nothing else can fail here.
                let _ = self.system.notify(event.as_fd());
            }
            std::mem::take(&mut state.wakers)
        };
        for (_, waker) in wakers {
            // The waker is code of the task's runtime, which is not ours: it may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(panics::discard);
        }
    }
}

/// A task's place among those that are woken, once each, at the next note, and when the connection is asked to end or must.
#[cfg(any(test, feature = "tokio"))]
pub(crate) struct LeaseWaker {
    leased: Arc<Leased>,
    place: u64,
}

#[cfg(any(test, feature = "tokio"))]
impl LeaseWaker {
    pub(crate) fn new(leased: &Arc<Leased>) -> LeaseWaker {
        let mut state = lock(&leased.state);
        state.places += 1;
        LeaseWaker { leased: leased.clone(), place: state.places }
    }

    /// Registers this task to be woken by the next change, and no other that was here before.
    pub(crate) fn wakes(&self, waker: &Waker) {
        let mut state = lock(&self.leased.state);
        let before = match state.wakers.iter_mut().find(|(place, _)| *place == self.place) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                state.wakers.push((self.place, waker.clone()));
                None
            }
        };
        drop(state);
        // The waker may be the last reference to its task, and the task the last to a connection: it is dropped outside of the lock.
        drop(before);
    }
}

#[cfg(any(test, feature = "tokio"))]
impl Drop for LeaseWaker {
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.leased.state);
            let at = state.wakers.iter().position(|(place, _)| *place == self.place);
            at.map(|at| state.wakers.swap_remove(at))
        };
        // The waker is dropped outside of the lock here, too.
        drop(left);
    }
}

/// End of a lease.
pub(crate) enum LeaseEnd {
    /// The connection goes back to its protocol, with this note.
    Note(Note),
    /// The connection is closed.
    End,
    /// The connection is reset, as the code that held it asked, or because a layer refused what its peer sent.
    Abort,
    /// The connection is closed, because of an error.
    Failed,
    /// The code that held it panicked.
    Panicked(String),
}

/// A connection on its way back. Where its loop is gone it is dropped: its socket is closed, and its permit is free.
pub(crate) struct Returned {
    pub(crate) leased: Arc<Leased>,
    pub(crate) back: Option<GivenBack>,
}

pub(crate) struct GivenBack {
    pub(crate) socket: Arc<OwnedFd>,
    /// Input that was not read.
    pub(crate) kept: Vec<u8>,
    /// Output of layers that was not sent, before anything else.
    pub(crate) unsent: Vec<u8>,
    pub(crate) peer_ended: bool,
    pub(crate) finished: bool,
    pub(crate) outcome: LeaseEnd,
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            drop(back.socket);
            panics::discard(back.outcome);
        }
        let permit = lock(&self.leased.state).permit.take();
        drop(permit);
    }
}

/// The right to read and write a leased connection, which goes back to its loop when the lease is dropped.
pub(crate) struct Lease {
    pub(crate) leased: Arc<Leased>,
    /// The socket; None when it is on its way back.
    socket: Option<Arc<OwnedFd>>,
    lessor: Arc<dyn Lessor>,
    /// Bytes that were received before, and not taken; read up to `start`.
    kept: Vec<u8>,
    start: usize,
    peer_ended: bool,
    finished: bool,
    /// The filter that all bytes pass, under layers.
    filtered: Option<Box<Filtered>>,
    pub(crate) outcome: LeaseEnd,
    /// The handle that its protocol gave away with it.
    #[cfg(feature = "tokio")]
    pub(crate) handle: Option<Handle>,
}

/// Parts of which a [`Lease`] is made.
pub(crate) struct LeaseStart {
    pub(crate) token: u64,
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    pub(crate) peer: Peer,
    pub(crate) system: Arc<dyn System>,
    pub(crate) draining: bool,
    pub(crate) kept: Vec<u8>,
    pub(crate) peer_ended: bool,
    /// Something was received from the peer before.
    pub(crate) owes: bool,
    pub(crate) ends_by: Option<Instant>,
    /// Filter, and bytes that it left, that the connection's layers lend.
    pub(crate) lent: Option<Lent>,
    /// Wire bytes that its layers may leave undecoded.
    pub(crate) max_wire: usize,
}

impl Lease {
    pub(crate) fn new(leaving: LeaseStart, socket: Arc<OwnedFd>, lessor: Arc<dyn Lessor>) -> Lease {
        let LeaseStart { token, id, generation, peer, system, draining, mut kept, peer_ended, owes, ends_by, lent, max_wire } =
            leaving;
        let leased = Arc::new(Leased {
            token,
            id,
            generation,
            peer,
            system,
            draining: AtomicBool::new(draining),
            ended: AtomicBool::new(false),
            moves: AtomicU8::new(STAYS),
            owes: AtomicBool::new(owes || !kept.is_empty()),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            watcher: Watcher::default(),
            state: Mutex::new(LeaseState { ends_by, ..LeaseState::default() }),
        });
        let filtered = lent.map(|lent| Box::new(Filtered::new(lent, std::mem::take(&mut kept), max_wire)));
        let (socket, outcome) = (Some(socket), LeaseEnd::End);
        Lease {
            leased,
            socket,
            lessor,
            kept,
            start: 0,
            peer_ended,
            finished: false,
            filtered,
            outcome,
            #[cfg(feature = "tokio")]
            handle: None,
        }
    }

    /// Returns the socket, for a runtime that watches it. To be dropped first.
    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        self.socket.clone().expect("only dropping it takes the socket")
    }

    /// Returns the number of bytes that were sent and that the peer has not read.
    #[cfg(feature = "tokio")]
    pub(crate) fn unacknowledged(&self) -> usize {
        self.leased.system.unacknowledged(self.as_fd()).unwrap_or(0)
    }

    /// Returns the peer; the kernel is asked for an address that is not known.
    pub(crate) fn peer(&self) -> Peer {
        let peer = &self.leased.peer;
        let of_kernel = || self.leased.system.peer_address(self.as_fd()).ok().flatten();
        peer.remote().or_else(of_kernel).map_or_else(|| peer.clone(), |remote| peer.with_remote(remote))
    }

    /// Returns true where [`Lease::receive`] may have something without asking the kernel.
    pub(crate) fn has_kept(&self) -> bool {
        self.start < self.kept.len() || self.peer_ended || self.filtered.as_ref().is_some_and(|filtered| filtered.has_kept())
    }

    /// Returns true where bytes pass a filter: then readiness of the socket is not yet input, and a short read or write does not say that the
    /// socket is empty or full.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_filtered(&self) -> bool {
        self.filtered.is_some()
    }

    /// Returns true where the filter holds bytes that [`Lease::flush`] is to send.
    pub(crate) fn has_unsent(&self) -> bool {
        self.filtered.as_ref().is_some_and(|filtered| filtered.has_unsent())
    }

    fn parts(&mut self) -> (RawSocket<'_>, Option<&mut Filtered>) {
        let socket = self.socket.as_ref().expect("only dropping it takes the socket").as_fd();
        let wire = RawSocket { leased: &self.leased, socket, ended: &mut self.peer_ended };
        (wire, self.filtered.as_deref_mut())
    }

    /// Returns true where [`Lease::receive`] returns at once, given that the socket is ready to be read.
    pub(crate) fn is_readable(&mut self) -> bool {
        match self.parts() {
            (mut wire, Some(filtered)) => filtered.look(&mut wire),
            (_, None) => true,
        }
    }

    /// Returns whether [`Lease::receive`] returns at once.
    pub(crate) fn has_input(&mut self) -> bool {
        let has_kept = self.has_kept();
        match self.parts() {
            // Bytes that it has kept may be a part of a record.
            (mut wire, Some(filtered)) => filtered.look(&mut wire),
            (wire, None) => has_kept || !matches!(wire.leased.system.peek(wire.socket), Err(Errno::AGAIN)),
        }
    }

    /// Reads what is there: `WouldBlock` when nothing is, 0 at the peer's end.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        if self.start < self.kept.len() {
            let count = into.len().min(self.kept.len() - self.start);
            into[..count].copy_from_slice(&self.kept[self.start..self.start + count]);
            self.start += count;
            return Ok(count);
        }
        let received = match self.parts() {
            (mut wire, Some(filtered)) => filtered.receive(&mut wire, into),
            (wire, None) if *wire.ended || into.is_empty() => Ok(0),
            (mut wire, None) => wire.receive(into).map_err(io::Error::from),
        };
        self.unless_ended(received)
    }

    /// Writes what there is room for: `WouldBlock` when there is none.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        let sent = match self.parts() {
            (mut wire, Some(filtered)) => filtered.send(&mut wire, bytes),
            (mut wire, None) => wire.send(bytes).map_err(io::Error::from),
        };
        self.unless_ended(sent)
    }

    /// Writes what a filter has encoded: `WouldBlock` when there is no room for all of it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        let flushed = match self.parts() {
            (mut wire, Some(filtered)) => filtered.flush(&mut wire),
            (_, None) => Ok(()),
        };
        self.unless_ended(flushed)
    }

    /// Sends what a filter has encoded, then the end if it was asked for.
    #[cfg(feature = "tokio")]
    pub(crate) fn send_unsent(&mut self) -> io::Result<()> {
        if self.finished { self.finish() } else { self.flush() }
    }

    /// Tells the peer that no more comes. `WouldBlock` when a filter's bytes are before that and find no room: they go with the lease, at the
    /// latest.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.check()?;
        self.finished = true;
        let finished = match self.parts() {
            (mut wire, Some(filtered)) => filtered.finish(&mut wire),
            (_, None) => Ok(()),
        };
        let finished = finished.and_then(|()| self.leased.system.finish(self.as_fd()).map_err(io::Error::from));
        self.unless_ended(finished)
    }

    /// Returns the bytes that go back with the connection, and its end: `outcome`, unless the filter refused.
    fn unfiltered(filtered: Filtered, outcome: LeaseEnd) -> (Left, LeaseEnd) {
        let outcome = match outcome {
            outcome @ (LeaseEnd::Abort | LeaseEnd::Panicked(_)) => outcome,
            outcome => filtered.refusal().unwrap_or(outcome),
        };
        let call = move || match outcome {
            LeaseEnd::Abort | LeaseEnd::Panicked(_) => (Left::default(), outcome),
            LeaseEnd::Note(note) => {
                let (left, note) = filtered.give_back(note);
                (left, LeaseEnd::Note(note))
            }
            outcome @ (LeaseEnd::End | LeaseEnd::Failed) => (filtered.end(), outcome),
        };
        let or_panicked = |payload| (Left::default(), LeaseEnd::Panicked(panics::message(payload)));
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(or_panicked)
    }

    /// Returns the pool's error for a call during which the pool has ended the connection, and not that of the socket that it has reset.
    fn unless_ended<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.or_else(|error| self.check().map_err(io::Error::from).and(Err(error)))
    }

    fn check(&self) -> Result<(), Errno> {
        if self.leased.has_ended() { Err(Errno::CONNABORTED) } else { Ok(()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut outcome = std::mem::replace(&mut self.outcome, LeaseEnd::End);
        if std::thread::panicking() {
            panics::discard(std::mem::replace(&mut outcome, LeaseEnd::Panicked("it was dropped by a panic".to_owned())));
        }
        self.leased.ring_on_change(None);
        self.kept.drain(..self.start);
        let Some(socket) = self.socket.take() else { return };
        let (mut left, peer_ended, finished) = (Left::default(), self.peer_ended, self.finished);
        left.wire = std::mem::take(&mut self.kept);
        if let Some(filtered) = self.filtered.take() {
            (left, outcome) = Lease::unfiltered(*filtered, outcome);
        }
        let back = Some(GivenBack { socket, kept: left.wire, unsent: left.unsent, peer_ended, finished, outcome });
        // The connection ends here where its loop is gone.
        drop(self.lessor.take_back(Returned { leased: self.leased.clone(), back }));
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("only dropping it takes the socket").as_fd()
    }
}

/// Gives the descriptor to reactors, which know descriptors by their numbers.
impl AsRawFd for Lease {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Makes a delegate: `take` is given the connection, on a thread of its own where it `blocks`, else at once on the loop's thread.
pub(crate) fn delegate(blocks: bool, take: impl FnOnce(Lease) + Send + 'static) -> Delegate {
    let take = move |lease: Box<dyn Any + Send>| {
        if let Ok(lease) = lease.downcast::<Lease>() {
            take(*lease);
        }
    };
    Delegate { take: Box::new(take), blocks, peer: None }
}
