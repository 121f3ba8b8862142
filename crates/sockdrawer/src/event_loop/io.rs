//! What the parts of an event loop reach the outside by: system calls, epoll, the mailbox, counters, and what the loops of a pool share.

use super::INBOX_TOKEN;
use super::inbox::Inbox;
use super::shared::Shared;
use super::slot::{Flags, Slot};
use crate::behaviour::Panicked;
use crate::observe::Event as Told;
use crate::observe::counters::Counters;
use crate::sys::{Calls, Errno, Interest};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Panics and reports told as events, of each kind, for each loop and second; all panics are counted.
const TOLD_PER_SECOND: u32 = 10;
/// Panics are counted apart from reports, by this name.
const PANICS: Cow<'static, str> = Cow::Borrowed("panics");
/// Records of a kind.
const RECORDS_PER_SECOND: u32 = 1_000;

/// None in an event loop that sleeps: it has had nothing to wait for.
pub(super) struct Epoll(Option<OwnedFd>);

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("an event loop that waits is awake").as_fd()
    }
}

/// What the parts of an event loop share.
pub(crate) struct Io {
    /// None: it only serves, one connection at a time that was placed here.
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

    /// Counts and tells a panic that ends no connection. Returns a line that says so.
    #[cold]
    pub(super) fn tell_panic(&self, of: &str, Panicked(message): Panicked) -> String {
        self.counters.panics().add(1);
        self.tell_some(&Told::ServicePanicked { message: format!("in {of}: {message}") });
        format!("{of} panicked: {message}")
    }

    /// Tells an event of which user code may cause any number.
    pub(super) fn tell_some(&self, event: &Told) {
        let (kind, is_record) =
            if let Told::Reported { report, .. } = event { (report.kind.clone(), report.is_record) } else { (PANICS, false) };
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
