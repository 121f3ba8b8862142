//! The conversation between a program and the new build that replaces it: one end of it.
//!
//! The end of a conversation decides who owns connections: a successor owns all that a dead predecessor offered it. So a living process never
//! causes that end by a failure: a failed call is made again, only a hang-up counts as the end, and a process that is done says a last word first
//! ([`Talk::end`]). The model in `model.rs` fails each call of both sides.

use crate::ipc::messages::{Said, receive};
use crate::ipc::packets::{PacketSender, Receiver};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, Result, passing};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Speaking waits no longer than that for room: a loop speaks, too.
const SPEAKS_WITHIN: Duration = Duration::from_millis(100);
/// The pause before the system is asked again for what it was short of.
const SHORT_OF: Duration = Duration::from_millis(10);

/// The patience with which a message waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// The room that there is.
    Now,
    /// Waits a moment for room.
    Soon,
    /// Uses the room that is kept for what frozen connections wait for.
    Kept,
}

/// The way to the other process and the clock of the conversation: a socket, or in tests a model in which each call may fail.
pub(super) trait Line: Send + Sync {
    /// Sends a whole message, or nothing that the other end understands.
    ///
    /// # Errors
    /// `EAGAIN`: the other end, which may be stopped, takes nothing. `EPIPE`: it is gone. `E2BIG`: no message may be that long. Others: the system is
    /// short of something.
    fn send(&self, said: Said, descriptors: &[BorrowedFd<'_>], room: Room) -> Result<()>;
    /// Waits for the next message.
    ///
    /// # Errors
    /// `EAGAIN`: none has come until then. `EPIPE`: the other end is gone, and all that it said was heard. Others: the system is short of something,
    /// or the message cannot be read.
    fn receive(&self, until: Option<Instant>) -> Result<Heard>;
    /// Waits until there is something to receive, here or at the other socket.
    ///
    /// # Errors
    /// `EAGAIN`: time is up. Others: the system is short of something.
    fn wait_beside(&self, other: Option<BorrowedFd<'_>>, until: Instant) -> Result<[bool; 2]>;
    /// Says a last word once it can be said, and keeps this end open until then.
    fn end_later(self: Arc<Self>, last: Said);
    fn now(&self) -> Instant;
    fn pause(&self, time: Duration);
}

/// A message with the descriptors that came along; None of those where this process had no room for them.
pub(super) type Heard = (Said, Option<Vec<OwnedFd>>);

/// The end of a packet pair.
struct PacketWire {
    socket: OwnedFd,
    sender: Mutex<PacketSender>,
    receiver: Mutex<Receiver>,
}

/// Ends the conversation at once, though a process that this one is starting has a copy of the socket until it runs its program.
impl Drop for PacketWire {
    fn drop(&mut self) {
        passing::hang_up(self.socket.as_fd());
    }
}

impl Line for PacketWire {
    fn send(&self, said: Said, descriptors: &[BorrowedFd<'_>], room: Room) -> Result<()> {
        let mut sender = lock(&self.sender);
        let sent = sender.send(self.socket.as_fd(), &said, descriptors, room == Room::Soon);
        let sent = match sent {
            Err(Errno::AGAIN) if room == Room::Kept => {
                passing::make_room(self.socket.as_fd())?;
                sender.send(self.socket.as_fd(), &said, descriptors, true)
            }
            sent => sent,
        };
        sent.map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET if !passing::is_gone(self.socket.as_fd()) => Errno::NOBUFS,
            Errno::CONNRESET => Errno::PIPE,
            errno => errno,
        })
    }

    fn receive(&self, until: Option<Instant>) -> Result<Heard> {
        // A time of 0 would mean to wait for ever.
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)));
        passing::receive_within(self.socket.as_fd(), left)?;
        match receive(&mut lock(&self.receiver), self.socket.as_fd()) {
            Ok(Some(heard)) => Ok(heard),
            // An end that was killed is told by an error, with messages behind it.
            Ok(None) if passing::is_gone(self.socket.as_fd()) => Err(Errno::PIPE),
            Ok(None) | Err(Errno::PIPE) => Err(Errno::BADMSG),
            Err(errno) => Err(errno),
        }
    }

    fn wait_beside(&self, other: Option<BorrowedFd<'_>>, until: Instant) -> Result<[bool; 2]> {
        passing::wait_for_either(self.socket.as_fd(), other.unwrap_or(self.socket.as_fd()), until)
    }

    fn end_later(self: Arc<Self>, last: Said) {
        let talk = Talk(self.clone());
        // The other end may be gone by then.
        let say = move || _ = talk.say_surely(&last);
        if std::thread::Builder::new().name("sockdrawer-last-word".to_owned()).spawn(say).is_err() {
            // Without a thread it stays open as long as this process lives.
            std::mem::forget(self);
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// An end of the conversation, for any thread. The conversation is over when the last of them is dropped.
#[derive(Clone)]
pub(super) struct Talk(Arc<dyn Line>);

impl Talk {
    pub(super) fn new(socket: OwnedFd) -> Result<Talk> {
        passing::send_within(socket.as_fd(), Some(SPEAKS_WITHIN))?;
        Ok(Talk::over(PacketWire { socket, sender: Mutex::default(), receiver: Mutex::default() }))
    }

    pub(super) fn over(line: impl Line + 'static) -> Talk {
        Talk(Arc::new(line))
    }

    pub(super) fn now(&self) -> Instant {
        self.0.now()
    }

    /// Says something once.
    ///
    /// # Errors
    /// As [`Line::send`].
    pub(super) fn say(&self, said: Said, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.0.send(said, descriptors, Room::Soon)
    }

    /// Says something once, without waiting for room.
    pub(super) fn say_now(&self, said: Said) -> Result<()> {
        self.0.send(said, &[], Room::Now)
    }

    /// Says what decides between the two, again and again until then.
    ///
    /// # Errors
    /// `EPIPE`: the other end is gone. `E2BIG`: it is too long. `EAGAIN`: time is up, and it was not said.
    pub(super) fn say_until(
        &self,
        said: &Said,
        descriptors: &[BorrowedFd<'_>],
        room: Room,
        until: Option<Instant>,
    ) -> Result<()> {
        loop {
            match self.0.send(said.clone(), descriptors, room) {
                Ok(()) => return Ok(()),
                Err(errno @ (Errno::PIPE | Errno::TOOBIG)) => return Err(errno),
                Err(_) if until.is_some_and(|until| self.0.now() >= until) => return Err(Errno::AGAIN),
                // The message has waited for room.
                Err(Errno::AGAIN) if room == Room::Soon => {}
                Err(_) => self.0.pause(SHORT_OF),
            }
        }
    }

    /// Says what decides between the two, which must arrive unless the other end is gone: one that is stopped is not gone.
    ///
    /// # Errors
    /// As [`Talk::say_until`], but for time.
    pub(super) fn say_surely(&self, said: &Said) -> Result<()> {
        self.say_until(said, &[], Room::Soon, None)
    }

    /// Says a last word before this end is closed: the end alone would say that this process is dead.
    pub(super) fn end(self, last: Said) {
        if self.say_until(&last, &[], Room::Kept, Some(self.now())) == Err(Errno::AGAIN) {
            self.0.clone().end_later(last);
        }
    }

    /// Hears the next message. One that cannot be read is passed over.
    ///
    /// # Errors
    /// `EAGAIN`: none has come until then. `EPIPE`: the other end is gone.
    pub(super) fn hear(&self, until: Option<Instant>) -> Result<Heard> {
        loop {
            match self.0.receive(until) {
                Err(errno) if !matches!(errno, Errno::AGAIN | Errno::PIPE) => self.rest(errno, until)?,
                heard => return heard,
            }
        }
    }

    /// Returns the next message, where the conversation cannot go on without one.
    pub(super) fn answer(&self, within: Option<Duration>) -> Result<Said> {
        Ok(self.hear(within.map(|within| self.now() + within))?.0)
    }

    /// Waits until there is something to hear, or to accept at the other socket: which.
    ///
    /// # Errors
    /// `EAGAIN`: time is up.
    pub(super) fn wait_beside(&self, other: Option<BorrowedFd<'_>>, until: Instant) -> Result<[bool; 2]> {
        loop {
            match self.0.wait_beside(other, until) {
                Err(errno) if errno != Errno::AGAIN => self.rest(errno, Some(until))?,
                ready => return ready,
            }
        }
    }

    /// Waits before a call that failed is made again.
    fn rest(&self, errno: Errno, until: Option<Instant>) -> Result<()> {
        if until.is_some_and(|until| self.now() >= until) {
            return Err(Errno::AGAIN);
        }
        if errno != Errno::BADMSG {
            self.0.pause(SHORT_OF);
        }
        Ok(())
    }
}
