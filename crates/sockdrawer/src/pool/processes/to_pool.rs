//! A helper's end of the channel to its pool: answers and events.

use super::wire::FromHelper;
use crate::ipc::packets::PacketSender;
use crate::observe::Event;
use crate::pool::request::Reply;
use crate::sync::{Mutex, lock};
use crate::sys::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Speaks to the pool, from any thread.
pub(super) struct ToPool {
    end: OwnedFd,
    outgoing: Mutex<Outgoing>,
}

#[derive(Default)]
struct Outgoing {
    sender: PacketSender,
    /// Generations whose end the pool counts on, and did not hear of because it did not read: said before anything else.
    owed: Vec<Event>,
}

impl Outgoing {
    fn say(&mut self, end: BorrowedFd<'_>, event: Event) -> Result<(), Errno> {
        self.sender.send(end, &FromHelper::Event(event), &[], false)
    }

    fn pay(&mut self, end: BorrowedFd<'_>) {
        while let Some(event) = self.owed.first().cloned()
            && self.say(end, event).is_ok()
        {
            self.owed.remove(0);
        }
    }
}

impl ToPool {
    pub(super) fn new(end: OwnedFd) -> ToPool {
        ToPool { end, outgoing: Mutex::default() }
    }

    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub(super) fn reply(&self, number: u64, reply: Reply) {
        // The reply is lost when the pool is gone, which the reading side notices.
        let _ = self.reply_with(number, reply, &[]);
    }

    /// # Errors
    /// The pool is gone, or the system is short of something that descriptors need on their way.
    pub(super) fn reply_with(&self, number: u64, reply: Reply, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.pay(self.end.as_fd());
        outgoing.sender.send(self.end.as_fd(), &FromHelper::Reply(number, reply), descriptors, true)
    }

    /// Events are told on loops' threads: where the pool does not read, they are not told. The end of a generation is told later.
    pub(super) fn tell(&self, event: &Event) {
        // These events are the pool's own, told once for all its processes.
        if matches!(event, Event::GenerationStarted(_) | Event::Listening(_) | Event::ListenerRemoved(_)) {
            return;
        }
        let mut outgoing = lock(&self.outgoing);
        outgoing.pay(self.end.as_fd());
        let said = outgoing.say(self.end.as_fd(), event.clone());
        if said == Err(Errno::AGAIN) && matches!(event, Event::GenerationEnded(_)) {
            outgoing.owed.push(event.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::packets::Receiver;
    use crate::sys::passing::packet_pair;
    use std::time::Duration;

    #[test]
    fn the_end_of_a_generation_is_told_also_when_nobody_read() {
        let (pool, end) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let to_pool = ToPool::new(end);
        let noise = Event::GaveUp { reason: "x".repeat(1000) };
        (0..10_000).for_each(|_| to_pool.tell(&noise));
        to_pool.tell(&Event::GenerationEnded(7));
        let (mut receiver, mut ended) = (Receiver::default(), 0);
        let mut count = || {
            while let Ok(Some((message, _))) = receiver.receive::<FromHelper>(pool.as_fd(), false) {
                ended += usize::from(matches!(message, FromHelper::Event(Event::GenerationEnded(7))));
            }
            ended
        };
        assert_eq!(count(), 0, "there was no room");
        to_pool.reply(1, Reply::Done);
        assert_eq!(count(), 1);
        to_pool.reply(2, Reply::Done);
        assert_eq!(count(), 1);
    }
}
