//! Access of the parts of an event loop to the outside: system calls, epoll, the inbox, counters, and what the loops of a pool share.

use super::INBOX_TOKEN;
use super::inbox::Inbox;
use super::phase::Phase;
use super::read_buffer::ReadBuffer;
use super::shared::Shared;
use super::slot::{Flags, Slot};
use super::slots::{Extra, Slots};
use crate::admission::Reject;
use crate::behaviour::Panicked;
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::observe::Event;
use crate::observe::counters::{Counters, RejectReason};
use crate::protocol::{HandshakeKind, Report, Sender};
use crate::sys::{Calls, Errno, Interest};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Panics and reports told as events, of each kind, for each loop and second; all panics are counted.
const TOLD_PER_SECOND: u32 = 10;
/// Panics are counted apart from reports, by this name.
const PANICS: Cow<'static, str> = Cow::Borrowed("panics");
/// Records of a kind.
const RECORDS_PER_SECOND: u32 = 1_000;

/// Descriptor of epoll; None in an event loop that sleeps: it has had nothing to wait for.
pub(super) struct Epoll(Option<OwnedFd>);

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("an event loop that waits is awake").as_fd()
    }
}

/// Resources that the parts of an event loop share.
pub(crate) struct Io {
    /// Number of the loop; None: it only serves, one connection at a time that was placed here.
    pub(super) index: Option<usize>,
    pub(crate) shared: Arc<Shared>,
    pub(super) system: Calls,
    pub(super) epoll: Epoll,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) counters: Counters,
    pub(super) start: Instant,
    /// The second, since the start, in which events were told last, and how many, by kinds of reports; all others are of none.
    told: RefCell<(u64, HashMap<Cow<'static, str>, u32>)>,
}

impl Io {
    pub(super) fn new(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>) -> Io {
        Io {
            index,
            system: Calls::new(shared.system.clone()),
            epoll: Epoll(None),
            counters: shared.counters(index),
            start: Instant::now(),
            told: RefCell::default(),
            inbox,
            shared,
        }
    }

    /// Makes what the event loop waits with. Before that, only its own thread may have its inbox.
    pub(super) fn awaken(&mut self) -> Result<(), Errno> {
        if self.epoll.0.is_none() {
            let epoll = self.system.epoll()?;
            self.system.watch_event(epoll.as_fd(), self.inbox.wake.event()?, INBOX_TOKEN)?;
            if let Some(bell) = self.shared.limiter.event() {
                self.system.watch_event(epoll.as_fd(), bell, INBOX_TOKEN)?;
            }
            self.epoll = Epoll(Some(epoll));
        }
        Ok(())
    }

    /// Has epoll tell of a connection by this token, when what it waits for happens. Returns whether epoll did not know it before.
    pub(super) fn watch(&mut self, token: u64, record: &mut Slot, interest: Interest) -> Result<bool, Errno> {
        self.awaken()?;
        let socket = record.socket.as_ref().expect("a connection that is watched has its socket").as_fd();
        let is_new = !record.flags.any(Flags::WATCHED);
        if is_new {
            self.system.watch(self.epoll.as_fd(), socket, token, interest)?;
        } else {
            self.system.rewatch(self.epoll.as_fd(), socket, token, interest)?;
        }
        record.flags.set_watched(Some(interest));
        Ok(is_new)
    }

    /// Has epoll forget a connection.
    pub(super) fn unwatch(&self, record: &mut Slot) {
        let socket = record.socket.as_ref().expect("a connection that is watched has its socket").as_fd();
        // It fails only for a socket that is not watched.
        let _ = self.system.unwatch(self.epoll.as_fd(), socket);
        record.flags.set_watched(None);
    }

    /// Returns the peer's address; None for a Unix socket, and for a connection that is gone.
    pub(super) fn remote(&self, slots: &mut Slots, slot: u32) -> Option<SocketAddr> {
        if slots.at(slot).flags.is(Phase::Connecting) {
            return slots.target(slot);
        }
        let learned = slots.extra(slot).and_then(Extra::learned_remote);
        learned.or_else(|| self.system.peer_address(slots.socket(slot)).ok().flatten())
    }

    /// Returns the number of bytes that were sent to the peer of a connection and that it has not acknowledged.
    pub(super) fn unacknowledged(&self, slots: &mut Slots, slot: u32) -> usize {
        // It fails only where the connection is gone.
        self.system.unacknowledged(slots.socket(slot)).unwrap_or(0)
    }

    /// Begins a connect that a protocol, or code that has a handle, asked for.
    pub(super) fn open_connecting(&self, target: &Address) -> Result<(OwnedFd, Permit), Errno> {
        // It only serves.
        if self.index.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let permit = Permit::take(&self.shared.limiter).ok_or(Errno::AGAIN)?;
        let socket = self.system.socket(target)?;
        match self.system.connect(socket.as_fd(), target) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, permit)),
            Err(errno) => Err(errno),
        }
    }

    /// Ends an accepted connection that may not come in. What has come already is read to `read`, so that closing does not turn into a reset:
    /// there is no permit to linger with.
    pub(super) fn reject(&self, read: &mut ReadBuffer, socket: &OwnedFd, (how, reason): (&Reject, RejectReason)) {
        self.counters.rejected_for(reason).add(1);
        // A peer that is gone already, or does not read, gets less: it was to be turned away anyway.
        match how {
            Reject::Reset => {
                _ = self.system.reset_on_close(socket.as_fd());
                return;
            }
            Reject::Bytes(bytes) => _ = self.system.send(socket.as_fd(), bytes, true),
            Reject::Fin => {}
        }
        _ = self.system.finish(socket.as_fd());
        _ = self.system.receive(socket.as_fd(), &mut read.pages);
    }

    /// Sees to it that a connection looks whether it has room by now for what it asked to be woken for.
    pub(super) fn wake_again(&self, slots: &mut Slots, token: u64) {
        let slot = slots.find(token);
        if slot.and_then(|slot| slots.extra(slot)).is_some_and(|extra| extra.wake_below.is_some()) {
            self.inbox.room(token);
        }
    }

    /// Counts handshakes of layers.
    pub(super) fn count_handshakes(&self, handshakes: &[Option<HandshakeKind>]) {
        handshakes.iter().for_each(|handshake| match handshake {
            Some(HandshakeKind::Full) => self.counters.handshakes_full().add(1),
            Some(HandshakeKind::Resumed) => self.counters.handshakes_resumed().add(1),
            None => self.counters.handshakes_failed().add(1),
        });
    }

    /// Counts and tells a panic of a connection's protocol.
    #[cold]
    pub(super) fn count_panic(&self, slots: &mut Slots, slot: u32, message: String) {
        self.counters.panics().add(1);
        let (id, peer) = (slots.at(slot).id, self.remote(slots, slot));
        self.tell_some(&Event::ConnectionPanicked { id, peer, message });
    }

    /// Tells what a protocol, or code that has a handle, reports of a connection.
    #[cold]
    pub(super) fn tell_report(&self, slots: &mut Slots, token: u64, report: Report) {
        let Some(slot) = slots.find(token) else { return };
        let (id, peer) = (slots.at(slot).id, self.remote(slots, slot));
        self.tell_some(&Event::Reported { id, peer, report });
    }

    /// Counts and tells a panic that ends no connection. Returns a line that says so.
    #[cold]
    pub(super) fn tell_panic(&self, of: &str, Panicked(message): Panicked) -> String {
        self.counters.panics().add(1);
        self.tell_some(&Event::ServicePanicked { message: format!("in {of}: {message}") });
        format!("{of} panicked: {message}")
    }

    /// Tells an event of which user code may cause any number.
    pub(super) fn tell_some(&self, event: &Event) {
        let (kind, is_record) =
            if let Event::Reported { report, .. } = event { (report.kind.clone(), report.is_record) } else { (PANICS, false) };
        let most = if is_record { RECORDS_PER_SECOND } else { TOLD_PER_SECOND };
        let told = {
            let (now, mut told) = (self.start.elapsed().as_secs(), self.told.borrow_mut());
            if told.0 != now {
                told.0 = now;
                told.1.clear();
            }
            let of_kind = told.1.entry(kind).or_default();
            *of_kind += 1;
            *of_kind
        };
        // The observer may report in turn.
        if told <= most {
            self.shared.tell(event);
        }
    }
}
