//! Tests of protocols by a script of bytes, time, notes and job results: without sockets, threads and sleeps.
//!
//! The rules are those of a real connection: input that a protocol leaves untaken comes again with what follows it, `received` and
//! `peer_ended` wait while a job runs, after [`Context::pause`] and above the high-water mark, and a panic ends the connection.
//!
//! ```
//! use sockdrawer::testing::Driver;
//! use sockdrawer::{Closed, Context, Input, Peer, Protocol, Service, Step};
//!
//! struct Lines;
//! impl Service for Lines {
//!     type Protocol = Lines;
//!     fn open(&self, _peer: &Peer) -> Lines {
//!         Lines
//!     }
//! }
//! impl Protocol for Lines {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         while let Some(line) = input.line() {
//!             cx.send(line);
//!             cx.send(b"\n");
//!         }
//!         Step::Continue
//!     }
//! }
//!
//! let mut connection = Driver::open(Lines);
//! connection.receive(b"one\ntw");
//! assert_eq!(connection.sent(), b"one\n");
//! connection.receive(b"o\n");
//! assert_eq!(connection.sent(), b"two\n");
//! connection.finish();
//! assert_eq!(connection.closed(), Some(Closed::Orderly));
//! ```

use crate::protocol::{
    Closed, Connect, ConnectFailure, Context, Delegate, Handle, Input, Job, JobError, JobResult, Local, Note, Output, Peer,
    Protocol, Service, Side, Step, Timer,
};
use connection::TestConnection;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

mod breakage;
mod connection;
mod delegation;
mod inbox;
mod moving;
#[cfg(test)]
mod tests;

/// Takes a message of another process as a successor does: for the fuzz target `upgrade`.
#[cfg(fuzzing)]
pub use crate::upgrade::hostile::check as take_message;
pub use breakage::{crash, crash_loop, private_network, reset_queue, sockets_at};
pub use moving::{NotMoved, restore, save};

/// Maximum of timers in a row that fire without the fake time moving; more means that the protocol would spin a loop.
const SPIN_LIMIT: u32 = 1_000;
/// The errno of a send on a socket whose sending side was shut down.
const EPIPE: i32 = crate::sys::Errno::PIPE.raw_os_error();

/// The limits of a connection under test. The defaults are those of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum of bytes left untaken while `received` is not held back; more ends the connection with [`Closed::TooLong`]. Default: 64 KiB.
    pub max_partial: usize,
    /// Unsent bytes above which `received` and `peer_ended` wait. Default: 64 KiB.
    pub high_water: usize,
    /// Unsent bytes below which `writable` is called, once the backlog was above `high_water`. Default: 32 KiB.
    pub low_water: usize,
    /// Maximum of notes that wait for [`Driver::deliver_notes`]; one more is an error for its sender. Default: 1,024.
    pub inbox: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { max_partial: 64 * 1024, high_water: 64 * 1024, low_water: 32 * 1024, inbox: 1024 }
    }
}

/// Returns a peer at 192.0.2.1:1 (RFC 5737) whose connect took `connect_time`. Outside of tests only a pool makes peers with a connect time.
pub fn peer(side: Side, connect_time: Duration) -> Peer {
    late_peer(side, Duration::ZERO, connect_time)
}

/// Returns a peer at 192.0.2.1:1 (RFC 5737) whose connect began `lag` after it was due and took `connect_time`.
pub fn late_peer(side: Side, lag: Duration, connect_time: Duration) -> Peer {
    Peer::new(Some(([192, 0, 2, 1], 1).into()), side).with_lag(lag).with_connect_time(connect_time)
}

/// A connection of a service, without a socket. Time stands still until [`Driver::advance`].
pub struct Driver<S: Service> {
    service: S,
    state: Option<S::Protocol>,
    local: Box<Local>,
    job: Option<Job>,
    delegate: Option<Delegate>,
    closed: Option<Closed>,
    pub(crate) out: Output,
    wire: TestConnection,
}

/// Returns a connection before its protocol is there.
fn without_state<S: Service>(service: S, peer: Peer, limits: Bounds) -> Driver<S> {
    let limits = Bounds { max_partial: limits.max_partial.max(service.longest_record()), ..limits };
    let wire = TestConnection::new(peer, limits);
    let local = service.local();
    let out = Output::with_high_water(limits.high_water);
    Driver { service, state: None, local, job: None, delegate: None, closed: None, out, wire }
}

impl<S: Service> std::fmt::Debug for Driver<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("closed", &self.closed)
            .field("kept", &self.wire.kept.len())
            .field("sent", &self.wire.sent.len())
            .field("job", &self.job.is_some())
            .finish_non_exhaustive()
    }
}

impl<S: Service> Driver<S> {
    /// Returns an accepted connection, id 1, generation 1, from 192.0.2.1:1; `opened` was called.
    pub fn open(service: S) -> Driver<S> {
        Driver::open_with(service, peer(Side::Accepted, Duration::ZERO), Bounds::default())
    }

    /// Returns an accepted or connected connection, id 1, generation 1, from this peer and with these limits; `opened` was called.
    pub fn open_with(service: S, peer: Peer, limits: Bounds) -> Driver<S> {
        let mut connection = without_state(service, peer, limits);
        match catch_unwind(AssertUnwindSafe(|| connection.service.open(&connection.wire.peer))) {
            Ok(state) => connection.state = Some(state),
            Err(_) => connection.closed = Some(Closed::Panicked),
        }
        let peer = connection.wire.peer.clone();
        connection.event(|protocol, _, cx| protocol.opened(cx).opened_with(&peer));
        connection
    }

    /// Has `bytes` arrive in one read.
    ///
    /// # Panics
    /// After [`Driver::finish`]: a peer that has finished sends no more.
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(!self.wire.peer_ended, "a peer that has finished sends no more");
        if self.state.is_some() && !bytes.is_empty() {
            self.wire.kept.extend_from_slice(bytes);
            self.wire.fresh = true;
            self.settle();
        }
    }

    /// Has `bytes` arrive one by one, a read for each.
    ///
    /// # Panics
    /// After [`Driver::finish`]: a peer that has finished sends no more.
    pub fn receive_split(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.receive(std::slice::from_ref(byte));
        }
    }

    /// Ends the peer's sending: the peer will send no more.
    pub fn finish(&mut self) {
        self.wire.peer_ended = true;
        self.settle();
    }

    /// Lets time pass. Timers fire in their order, each at the time it is due.
    ///
    /// # Panics
    /// When the protocol sets a timer that is due at once a thousand times in a row.
    pub fn advance(&mut self, by: Duration) {
        let until = self.wire.now + by;
        let mut in_a_row = 0;
        while let Some(due) = self.wire.due.filter(|due| *due <= until) {
            in_a_row = if due > self.wire.now { 0 } else { in_a_row + 1 };
            assert!(in_a_row < SPIN_LIMIT, "the protocol sets a timer that is due at once, for ever");
            self.wire.now = self.wire.now.max(due);
            self.wire.due = None;
            self.event(|protocol, _, cx| protocol.timeout(cx));
        }
        self.wire.now = until;
    }

    /// Lets time pass during which the loop is busy elsewhere: a timer that is due meanwhile is late, and fires with the next
    /// [`Driver::advance`].
    pub fn oversleep(&mut self, by: Duration) {
        self.wire.now += by;
    }

    /// Returns the time that the protocol sees.
    pub fn now(&self) -> Instant {
        self.wire.now
    }

    /// Returns the time until the timer is due; None if it is off, zero if it is overdue.
    pub fn timer(&self) -> Option<Duration> {
        self.wire.due.map(|due| due.saturating_duration_since(self.wire.now))
    }

    /// Returns true where a job waits to be run.
    pub fn has_job(&self) -> bool {
        self.job.is_some()
    }

    /// Runs the pending job on this thread and delivers its result. The job of an ended connection runs too; its result is dropped.
    ///
    /// # Panics
    /// When no job is pending.
    pub fn run_job(&mut self) {
        let result = self.job.take().expect("a job is pending").run();
        self.event(|protocol, _, cx| protocol.job_done(result, cx));
    }

    /// Drops the pending job without running it and delivers `error` in place of its result.
    ///
    /// # Panics
    /// When no job is pending.
    pub fn fail_job(&mut self, error: JobError) {
        drop(self.job.take().expect("a job is pending"));
        self.event(|protocol, _, cx| protocol.job_done(JobResult::refused(error), cx));
    }

    /// Asks the connection to end: `draining` is called once, now or at the next quiet point.
    pub fn drain(&mut self) {
        self.wire.drain_asked = true;
        self.settle();
    }

    /// Blocks or unblocks output. While it is blocked, the peer reads nothing and output becomes backlog; unblocking sends the backlog.
    pub fn block_output(&mut self, blocked: bool) {
        self.wire.blocked = blocked;
        if !blocked {
            self.read_backlog(usize::MAX);
        }
    }

    /// Has the peer read up to `count` bytes of the backlog; `writable` is called when the backlog falls below the low-water mark.
    pub fn read_backlog(&mut self, count: usize) {
        let count = count.min(self.wire.backlog.len());
        self.wire.sent.extend(self.wire.backlog.drain(..count));
        if self.wire.above && self.wire.backlog.len() < self.wire.limits.low_water {
            self.wire.above = false;
            self.wire.takes_wake();
            self.wire.fresh = !self.wire.kept.is_empty();
            self.event(|protocol, _, cx| protocol.writable(cx));
        } else {
            self.settle();
        }
    }

    /// Returns the number of bytes that wait for the peer to read.
    pub fn backlog(&self) -> usize {
        self.wire.backlog.len()
    }

    /// Takes the bytes that were sent since the last call.
    pub fn sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wire.sent)
    }

    /// Bytes received and not taken by the protocol.
    pub fn kept(&self) -> &[u8] {
        &self.wire.kept
    }

    /// Returns the reason why the connection ended; None while it lives.
    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// Returns true where the sending side was shut down, by [`Step::EndOutput`] or [`Step::Close`].
    pub fn finished_sending(&self) -> bool {
        self.wire.finished_sending
    }

    /// Ends the connection for a reason other than its protocol: [`Closed::Error`], `Purged`, `Killed`, `Overflow`.
    pub fn end(&mut self, why: Closed) {
        let Some(mut state) = self.state.take() else { return };
        self.closed = Some(why);
        if !matches!(why, Closed::Orderly | Closed::Purged | Closed::Idle | Closed::Adopted) {
            // A reset drops what the peer has not read.
            self.wire.backlog.clear();
        }
        if why != Closed::Adopted {
            self.wire.inbox.end();
        }
        // The protocol is dropped inside: a panic in its destructor ends nothing else either.
        let panicked = self.call(|out| {
            catch_unwind(AssertUnwindSafe(move || {
                let mut timer = Timer::Keep;
                out.with(&mut timer, |cx| state.closed(why, cx));
            }))
            .is_err()
        });
        if panicked {
            self.closed = Some(Closed::Panicked);
        }
        self.wire.reports.extend(self.out.said.take().and_then(|said| said.report).map(|report| report.message));
        self.out.clear();
        self.wire.due = None;
    }

    /// Returns the state of the protocol; None when the connection has ended.
    pub fn protocol(&self) -> Option<&S::Protocol> {
        self.state.as_ref()
    }

    /// Returns the service that runs the connection.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Returns the tag set by [`Context::tag`] or [`Handle::tag`]; empty if there is none.
    pub fn tag(&self) -> String {
        self.wire.inbox.tag().to_string()
    }

    /// Returns the texts of [`Context::report`], oldest first.
    pub fn reports(&self) -> &[String] {
        &self.wire.reports
    }

    /// Returns the value that [`Service::local`] made, if it is a `T`.
    pub fn local<T: 'static>(&mut self) -> Option<&mut T> {
        self.local.downcast_mut()
    }

    /// Delivers a note at once. It is dropped if the connection has ended.
    pub fn notify(&mut self, note: impl Into<Note>) {
        let note = note.into();
        self.event(|protocol, _, cx| protocol.notified(note, cx));
    }

    /// Returns a handle to this connection. Its notes arrive with [`Driver::deliver_notes`].
    pub fn handle(&self) -> Handle {
        Handle { post: self.wire.post.clone(), token: self.wire.id.0, id: self.wire.id }
    }

    /// Delivers the notes sent through handles so far, those that the protocol sent to itself included. Returns their number.
    pub fn deliver_notes(&mut self) -> usize {
        let notes = self.wire.inbox.take();
        let count = notes.len();
        notes.into_iter().for_each(|note| self.notify(note));
        count
    }

    /// Takes the connects that the protocol asked for: see [`Context::connect`](crate::Context::connect). The test tells what came of
    /// them by [`Driver::connected`].
    pub fn connects(&mut self) -> Vec<Connect> {
        std::mem::take(&mut self.wire.connects)
    }

    /// Tells the protocol what came of a connect: the handle of another driver, or why there is no connection.
    pub fn connected(&mut self, result: Result<Handle, ConnectFailure>) {
        self.event(|protocol, _, cx| protocol.connected(result, cx));
    }

    /// Returns the connection that this one is joined with by [`Step::Relay`]; the test's own bytes are not relayed.
    pub fn relays_to(&self) -> Option<&Handle> {
        self.wire.relays_to.as_ref()
    }

    /// Makes a callback and does what it asks for, then makes the callbacks that may follow from it.
    fn event(&mut self, callback: impl FnOnce(&mut S::Protocol, &mut Input<'_>, &mut Context<'_>) -> Step) {
        self.callback(callback);
        self.settle();
    }

    /// Makes the callbacks that are due, in the order of a real connection: input, the peer's end, the request to drain.
    fn settle(&mut self) {
        while self.state.is_some() && self.delegate.is_none() && self.wire.relays_to.is_none() && self.wire.takes_wake() {
            self.callback(|protocol, _, cx| protocol.writable(cx));
        }
        while self.state.is_some() && self.job.is_none() && self.delegate.is_none() && self.wire.relays_to.is_none() {
            self.wire.held &= !self.wire.inbox.take_room();
            let held = self.wire.held || self.wire.is_paused(self.service.receiving());
            let open = !self.wire.waiting && !held;
            if open && self.wire.fresh {
                self.wire.fresh = false;
                self.callback(|protocol, input, cx| protocol.received(input, cx));
                let busy = self.job.is_some() || self.delegate.is_some();
                if self.state.is_some() && self.wire.keeps_too_much(busy, self.service.receiving()) {
                    self.end(Closed::TooLong);
                }
            } else if !held && (open || self.wire.kept.is_empty()) && self.wire.peer_ended && !self.wire.told_ended {
                self.wire.told_ended = true;
                self.callback(|protocol, _, cx| protocol.peer_ended(cx));
            } else if self.wire.drain_asked && !self.wire.told_draining && self.wire.is_quiet() {
                self.wire.told_draining = true;
                self.callback(|protocol, _, cx| protocol.draining(cx));
            } else {
                return;
            }
        }
    }

    fn callback(&mut self, callback: impl FnOnce(&mut S::Protocol, &mut Input<'_>, &mut Context<'_>) -> Step) {
        let Some(mut state) = self.state.take() else { return };
        let mut kept = std::mem::take(&mut self.wire.kept);
        let mut input = Input::searched(&mut kept, self.wire.searched);
        let mut timer = Timer::Keep;
        let step =
            self.call(|out| catch_unwind(AssertUnwindSafe(|| out.with(&mut timer, |cx| callback(&mut state, &mut input, cx)))));
        self.wire.searched = input.bytes_without_line();
        let taken = input.taken();
        kept.drain(..taken);
        self.wire.kept = kept;
        self.state = Some(state);
        self.wire.inbox.tell_groups();
        self.wire.heed(&mut self.out, timer);
        match step {
            Ok(step) => self.apply(step),
            Err(_) => self.end(Closed::Panicked),
        }
    }

    /// Does what a callback asked for.
    fn apply(&mut self, step: Step) {
        match step {
            Step::Abort => return self.end(Closed::Aborted),
            Step::Work(_) if self.job.is_some() => return self.end(Closed::Panicked),
            Step::Relay(_) if self.job.is_some() || self.delegate.is_some() || self.wire.relays_to.is_some() => {
                return self.end(Closed::Panicked);
            }
            Step::Delegate(_) if self.job.is_some() || self.delegate.is_some() => return self.end(Closed::Panicked),
            _ if self.wire.finished_sending && !self.out.bytes.is_empty() => return self.end(Closed::Error(EPIPE)),
            _ => {}
        }
        self.wire.backlog.append(&mut self.out.bytes);
        if !self.wire.blocked {
            self.wire.sent.append(&mut self.wire.backlog);
        }
        self.wire.above |= self.wire.backlog.len() > self.wire.limits.high_water;
        match step {
            Step::Work(job) => self.job = Some(job),
            Step::Delegate(delegate) => self.delegate = Some(delegate),
            Step::Relay(to) => {
                (self.wire.waiting, self.wire.held, self.wire.relays_to) = (false, false, Some(to));
            }
            Step::EndOutput => self.wire.finished_sending = true,
            Step::Close => {
                self.wire.finished_sending = true;
                self.end(Closed::Orderly);
            }
            Step::Continue | Step::Abort => {}
        }
    }

    /// Borrows the parts of a context, apart from the state.
    fn call<R>(&mut self, call: impl FnOnce(&mut Scene<'_>) -> R) -> R {
        self.out.clear();
        self.out.said = None;
        self.out.backlog = self.wire.backlog.len();
        call(&mut Scene { out: &mut self.out, local: &mut *self.local, wire: &self.wire })
    }
}

/// The parts of a context.
struct Scene<'a> {
    out: &'a mut Output,
    local: &'a mut Local,
    wire: &'a TestConnection,
}

impl Scene<'_> {
    fn with<R>(&mut self, timer: &mut Timer, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        call(&mut Context {
            out: self.out,
            timer,
            local: self.local,
            now: &Cell::new(Some(self.wire.now)),
            post: &self.wire.post,
            token: self.wire.id.0,
            id: self.wire.id,
            generation: self.wire.generation,
            max_partial: self.wire.limits.max_partial,
            draining: self.wire.drain_asked,
            carried: None,
        })
    }
}
