//! What epoll is asked about a connection.

use super::Connections;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::sys::Interest;
use std::os::fd::AsFd;

impl Connections {
    /// Lets epoll know what the connection waits for. Input that is not wanted is unwatched only when it comes: a job is
    /// usually done before the peer's next message.
    #[inline]
    pub(super) fn settle(&mut self, slot: u32, unwanted: bool) {
        if !self.slots.at(slot).is_settled() {
            self.change_interest(slot, unwanted);
        }
    }

    fn change_interest(&mut self, slot: u32, unwanted: bool) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Empty) || flags.is(Phase::Frozen) || self.leaves(slot) {
            return;
        }
        let relays = self.slots.at(slot).flags.is(Phase::Relayed) && self.slots.other_takes(slot);
        let record = self.slots.at(slot);
        let flags = record.flags;
        let finished = flags.any(Flags::PEER_ENDED);
        let wanted = match () {
            () if flags.is(Phase::Lingering) => true,
            () if flags.is(Phase::Relayed) => relays && !finished,
            () => record.may_receive() && !finished,
        };
        let watched = flags.any(Flags::WATCH_READ);
        let read = wanted || (watched && !unwanted && !finished && !flags.is(Phase::Flushing));
        let write = flags.any(Flags::UNSENT);
        // The end of a peer is told also while its input is paused, once none is left before it.
        let over = Flags::PEER_ENDED.union(Flags::END_BEHIND).union(Flags::KEPT).union(Flags::WORKING);
        let end = !read && record.is_open() && flags.any(Flags::PAUSED) && !flags.any(over);
        let interest = Interest { read, write, end };
        if !flags.any(Flags::WATCHED) {
            // A job ends by itself; a protocol that waits for something else, or whose peer has sent its end, must hear when the peer is
            // gone, which epoll always tells.
            let waits = (flags.any(Flags::PAUSED.union(Flags::HELD)) || finished && record.has_protocol())
                && !flags.any(Flags::WORKING)
                && !flags.is(Phase::Flushing);
            if !read && !write && !waits {
                return;
            }
        } else if (read, write, end) == (watched, flags.any(Flags::WATCH_WRITE), flags.any(Flags::WATCH_END)) {
            return;
        }
        if let Err(errno) = self.io.awaken() {
            return self.fail(slot, errno);
        }
        let token = self.slots.token(slot);
        let epoll = self.io.epoll.as_fd();
        let socket = self.slots.at(slot).socket.as_ref().expect("a taken slot has a socket").as_fd();
        let is_new = !flags.any(Flags::WATCHED);
        let done = if !is_new {
            self.io.system.rewatch(epoll, socket, token, interest)
        } else {
            self.io.system.watch(epoll, socket, token, interest)
        };
        match done {
            Ok(()) => {
                let flags = &mut self.slots.at(slot).flags;
                flags.clear(Flags::WATCH_READ.union(Flags::WATCH_WRITE).union(Flags::WATCH_END));
                flags.set(Flags::WATCHED);
                if read {
                    flags.set(Flags::WATCH_READ);
                }
                if write {
                    flags.set(Flags::WATCH_WRITE);
                }
                if end {
                    flags.set(Flags::WATCH_END);
                }
                if is_new {
                    self.begin_idle(slot);
                }
            }
            // ENOMEM, ENOSPC (max_user_watches): the connection cannot be served.
            Err(errno) => self.fail(slot, errno),
        }
    }

    pub(super) fn unwatch(&mut self, slot: u32) {
        let socket = self.slots.at(slot).socket.as_ref().expect("a taken slot has a socket").as_fd();
        // It fails only for a socket that is not watched.
        let _ = self.io.system.unwatch(self.io.epoll.as_fd(), socket);
        self.slots
            .at(slot)
            .flags
            .clear(Flags::WATCHED.union(Flags::WATCH_READ).union(Flags::WATCH_WRITE).union(Flags::WATCH_END));
    }
}
