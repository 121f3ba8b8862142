//! One end of the conversation between a program and the new build that replaces it.

use crate::ipc::messages::{Said, receive, send};
use crate::ipc::packets::{Receiver, Sender};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, Result, passing};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// To speak, from any thread.
#[derive(Clone)]
pub(super) struct Mouth {
    socket: Arc<OwnedFd>,
    sender: Arc<Mutex<Sender>>,
}

impl Mouth {
    pub(super) fn say(&self, said: Said, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        send(&mut lock(&self.sender), self.socket.as_fd(), said, descriptors, true)
    }
}

/// To speak and to listen.
pub(super) struct Talk {
    pub(super) mouth: Mouth,
    receiver: Receiver,
}

impl Talk {
    /// Neither speaking nor listening waits for longer than that.
    pub(super) fn new(socket: OwnedFd, patience: Duration) -> Result<Talk> {
        passing::set_patience(socket.as_fd(), Some(patience))?;
        let mouth = Mouth { socket: Arc::new(socket), sender: Arc::default() };
        Ok(Talk { mouth, receiver: Receiver::default() })
    }

    /// Another patience.
    pub(super) fn be_patient(&self, patience: Option<Duration>) -> Result<()> {
        passing::set_patience(self.mouth.socket.as_fd(), patience)
    }

    pub(super) fn say(&self, said: Said) -> Result<()> {
        self.mouth.say(said, &[])
    }

    /// Says what decides between the two, which must arrive unless the other end is gone: one that is stopped is not gone.
    pub(super) fn say_surely(&self, said: &Said) -> Result<()> {
        loop {
            match self.say(said.clone()) {
                Err(Errno::AGAIN) => {}
                said => return said,
            }
        }
    }

    /// The next message. None: the other end is gone.
    pub(super) fn hear(&mut self) -> Result<Option<(Said, Option<Vec<OwnedFd>>)>> {
        receive(&mut self.receiver, self.mouth.socket.as_fd())
    }

    /// The next message, where the conversation cannot go on without one.
    pub(super) fn answer(&mut self) -> Result<Said> {
        self.hear()?.map(|(said, _)| said).ok_or(Errno::PIPE)
    }

    /// The process at the other end, and whether it may take part.
    pub(super) fn peer(&self) -> Result<(u32, bool)> {
        passing::peer_process(self.mouth.socket.as_fd())
    }
}
