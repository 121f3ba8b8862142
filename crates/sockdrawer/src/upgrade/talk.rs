//! One end of the conversation between a program and the new build that replaces it.

use crate::ipc::messages::{Said, receive, send};
use crate::ipc::packets::{Receiver, Sender};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, Result, passing};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Speaking waits no longer than that for room: a loop speaks, too.
const SPEAKS_WITHIN: Duration = Duration::from_millis(100);

/// To speak, from any thread.
#[derive(Clone)]
pub(super) struct Mouth {
    socket: Arc<OwnedFd>,
    sender: Arc<Mutex<Sender>>,
}

impl Mouth {
    /// # Errors
    /// `EAGAIN` where the other end, which may be stopped, takes nothing.
    pub(super) fn say(&self, said: Said, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        send(&mut lock(&self.sender), self.socket.as_fd(), said, descriptors, true)
    }

    /// ... without waiting for room.
    pub(super) fn say_now(&self, said: Said) -> Result<()> {
        send(&mut lock(&self.sender), self.socket.as_fd(), said, &[], false)
    }

    /// Says what decides between the two, which must arrive unless the other end is gone: one that is stopped is not gone.
    pub(super) fn say_surely(&self, said: &Said) -> Result<()> {
        loop {
            match self.say(said.clone(), &[]) {
                Err(Errno::AGAIN) => {}
                said => return said,
            }
        }
    }
}

/// To speak and to listen.
pub(super) struct Talk {
    pub(super) mouth: Mouth,
    receiver: Receiver,
}

/// What was heard, with what came along; None of descriptors where this process had no room for them.
pub(super) type Heard = (Said, Option<Vec<OwnedFd>>);

impl Talk {
    pub(super) fn new(socket: OwnedFd) -> Result<Talk> {
        passing::send_within(socket.as_fd(), Some(SPEAKS_WITHIN))?;
        let mouth = Mouth { socket: Arc::new(socket), sender: Arc::default() };
        Ok(Talk { mouth, receiver: Receiver::default() })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.mouth.socket.as_fd()
    }

    pub(super) fn say(&self, said: Said) -> Result<()> {
        self.mouth.say(said, &[])
    }

    /// The next message. None: the other end is gone.
    ///
    /// # Errors
    /// `EAGAIN` when none has come until then.
    pub(super) fn hear(&mut self, until: Option<Instant>) -> Result<Option<Heard>> {
        // A time of 0 would mean to wait for ever.
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)));
        passing::receive_within(self.socket(), left)?;
        receive(&mut self.receiver, self.mouth.socket.as_fd())
    }

    /// The next message, where the conversation cannot go on without one.
    pub(super) fn answer(&mut self, within: Option<Duration>) -> Result<Said> {
        self.hear(within.map(|within| Instant::now() + within))?.map(|(said, _)| said).ok_or(Errno::PIPE)
    }

    /// The process at the other end, and whether it may take part.
    pub(super) fn peer(&self) -> Result<(u32, bool)> {
        passing::peer_process(self.socket())
    }
}
