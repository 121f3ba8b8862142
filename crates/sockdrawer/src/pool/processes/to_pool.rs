//! A helper's end of the channel to its pool: answers and events.

use super::wire::FromHelper;
use crate::ipc::packets::PacketSender;
use crate::observe::Event;
use crate::pool::request::Reply;
use crate::sync::{Mutex, lock, try_lock};
use crate::sys::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of events that wait while an answer is sent, but for ends of generations.
const MAX_WAITING: usize = 256;

/// Speaks to the pool, from any thread.
pub(super) struct ToPool {
    end: OwnedFd,
    /// Held while an answer waits for room: for as long as the pool reads nothing.
    sender: Mutex<PacketSender>,
    /// Events that no thread has sent yet, oldest first. Loops tell them, and a loop waits for no other thread.
    untold: Mutex<VecDeque<Event>>,
}

impl ToPool {
    pub(super) fn new(end: OwnedFd) -> ToPool {
        ToPool { end, sender: Mutex::default(), untold: Mutex::default() }
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
        let mut sender = lock(&self.sender);
        self.send_untold(&mut sender);
        let sent = sender.send(self.end.as_fd(), &FromHelper::Reply(number, reply), descriptors, true);
        drop(sender);
        self.tell_untold();
        sent
    }

    /// Tells an event. Where the pool does not read, events are lost, but for the end of a generation, on which the pool counts: that is told later.
    pub(super) fn tell(&self, event: &Event) {
        // These events are the pool's own, told once for all its processes.
        if matches!(event, Event::GenerationStarted(_) | Event::Listening(_) | Event::ListenerRemoved(_)) {
            return;
        }
        {
            let mut untold = lock(&self.untold);
            if untold.len() < MAX_WAITING || matches!(event, Event::GenerationEnded(_)) {
                untold.push_back(event.clone());
            }
        }
        self.tell_untold();
    }

    /// Sends what is untold, unless another thread sends something: that thread does so once it is done.
    fn tell_untold(&self) {
        while let Some(mut sender) = try_lock(&self.sender) {
            let has_room = self.send_untold(&mut sender);
            drop(sender);
            // An event that came since, while the sender was held, is this thread's to send.
            if !has_room || lock(&self.untold).is_empty() {
                return;
            }
        }
    }

    /// Returns false where the pool has no room.
    fn send_untold(&self, sender: &mut PacketSender) -> bool {
        loop {
            let Some(event) = lock(&self.untold).front().cloned() else { return true };
            if sender.send(self.end.as_fd(), &FromHelper::Event(event), &[], false) == Err(Errno::AGAIN) {
                lock(&self.untold).retain(|event| matches!(event, Event::GenerationEnded(_)));
                return false;
            }
            lock(&self.untold).pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::packets::Receiver;
    use crate::sync::mpsc;
    use crate::sys::passing::packet_pair;
    use std::sync::Arc;
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

    #[test]
    fn no_loop_waits_for_an_answer_that_has_no_room() {
        let (pool, end) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let to_pool = Arc::new(ToPool::new(end));
        let noise = Event::GaveUp { reason: "x".repeat(1000) };
        (0..10_000).for_each(|_| to_pool.tell(&noise));
        let answers = to_pool.clone();
        let answering = std::thread::spawn(move || answers.reply(1, Reply::Done));
        let held = || try_lock(&to_pool.sender).is_none();
        while !held() {
            std::thread::yield_now();
        }
        let (told, heard) = mpsc::channel();
        let tells = to_pool.clone();
        let telling = std::thread::spawn(move || {
            [7, 8].map(Event::GenerationEnded).iter().for_each(|event| tells.tell(event));
            told.send(()).expect("it is waited for");
        });
        heard.recv_timeout(Duration::from_secs(10)).expect("a loop does not wait");
        let (mut receiver, mut said) = (Receiver::default(), Vec::new());
        while said.len() < 3 {
            match receiver.receive::<FromHelper>(pool.as_fd(), false) {
                Ok(Some((FromHelper::Reply(1, Reply::Done), _))) => said.push("answer".to_owned()),
                Ok(Some((FromHelper::Event(event @ Event::GenerationEnded(_)), _))) => said.push(format!("{event:?}")),
                Ok(Some(_)) => {}
                // The answer may have found room before it waited, and what follows it none.
                Err(Errno::AGAIN) => to_pool.tell_untold(),
                ended => panic!("{:?}", ended.map(|_| ())),
            }
        }
        assert_eq!(said, ["answer", "GenerationEnded(7)", "GenerationEnded(8)"]);
        [answering, telling].into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
