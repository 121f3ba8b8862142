//! The events of a connection that epoll is asked for.

use super::Connections;
use super::idle::IdleWatch;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::sys::Interest;

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
        if flags.is(Phase::Empty) || flags.is(Phase::Frozen) || flags.is(Phase::Leased) {
            return;
        }
        if flags.is(Phase::Delegating) && !flags.any(Flags::UNSENT) {
            return self.hand_over(slot);
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
        } else if flags.watches(interest) {
            return;
        }
        let token = self.slots.token(slot);
        match self.io.watch(token, self.slots.at(slot), interest) {
            Ok(true) => IdleWatch::of(self).begin(slot),
            Ok(false) => {}
            // ENOMEM, ENOSPC (max_user_watches): the connection cannot be served.
            Err(errno) => self.fail(slot, errno),
        }
    }
}
