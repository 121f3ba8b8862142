//! A helper's voice: answers and events, to the pool.

use super::wire::{FromHelper, Reply, Sender};
use crate::observe::Event;
use crate::sync::{Mutex, lock};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Speaks to the pool, from any thread.
pub(super) struct Speaker {
    end: OwnedFd,
    sender: Mutex<Sender>,
}

impl Speaker {
    pub(super) fn new(end: OwnedFd) -> Speaker {
        Speaker { end, sender: Mutex::new(Sender::default()) }
    }

    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// A child of the process that made this speaks through the same end, but for itself.
    pub(super) fn in_child(&self) {
        lock(&self.sender).speak_for(std::process::id());
    }

    pub(super) fn reply(&self, number: u64, reply: Reply) {
        // Nobody hears it when the pool is gone, which the reading side notices.
        let _ = lock(&self.sender).send(self.end.as_fd(), &FromHelper::Reply(number, reply), &[], true);
    }

    /// Events are told on loops' threads: where the pool does not read, they are not told.
    pub(super) fn tell(&self, event: &Event) {
        // These are the pool's own, told once for all its processes.
        if !matches!(event, Event::GenerationStarted(_) | Event::Listening(_) | Event::ListenerRemoved(_)) {
            let _ = lock(&self.sender).send(self.end.as_fd(), &FromHelper::Event(event.clone()), &[], false);
        }
    }
}
