//! The count of what came of the connections that one drain, purge or shutdown means, over all loops.

use crate::clock::deadline;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The last part of a drain's time is for last words: a tenth of it, and no more than this.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time that a loop that is well needs to end its connections once a deadline has passed. Those of a loop that user code keeps busy for
/// longer are cut when it comes back, and counted as cut now.
pub(crate) const CUT_WITHIN: Duration = Duration::from_millis(50);

/// Acts of a drain, purge or shutdown, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// Tells connections that wait for something that they end.
    LastWords,
    /// Cuts all that is left: time is up.
    Cut,
    /// Lets go of connections that were cut; nothing is waited for any more.
    Close,
}

/// The acts of a drain, purge or shutdown that are to come, and when.
pub(crate) struct Ladder {
    pub(crate) last_words: Instant,
    pub(crate) until: Instant,
    pub(crate) close: Instant,
    /// None: nothing is to come.
    pub(crate) next: Option<Act>,
}

impl Ladder {
    /// Returns the next act, and when it is due.
    pub(crate) fn next(&self) -> Option<(Instant, Act)> {
        self.next.map(|act| match act {
            Act::LastWords => (self.last_words, act),
            Act::Cut => (self.until, act),
            Act::Close => (self.close, act),
        })
    }

    /// Takes the next act, if it is due by now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Act> {
        let (_, act) = self.next().filter(|(at, _)| *at <= now)?;
        self.next = match act {
            Act::LastWords => Some(Act::Cut),
            Act::Cut => Some(Act::Close),
            Act::Close => None,
        };
        Some(act)
    }

    /// Returns true where this act is done.
    pub(crate) fn has_done(&self, act: Act) -> bool {
        self.next.is_none_or(|next| next > act)
    }
}

/// Results for the connections of one drain, purge or shutdown. Each loop adds the ends of its own connections as they happen.
pub(crate) struct Endings {
    /// Moment by which all endings are over.
    pub(crate) until: Instant,
    /// Moment at which protocols that have not been told yet are told, whatever they were doing.
    pub(crate) last_words: Instant,
    /// Number of loops that have not said yet which of their connections are selected.
    silent: AtomicUsize,
    pub(super) asked: AtomicUsize,
    ended: AtomicUsize,
    pub(super) cut: AtomicUsize,
    /// Ended connections whose permit a running job or a handler still has.
    held: AtomicUsize,
    /// Connections that are counted as cut and have a socket and a permit still.
    pub(super) closing: AtomicUsize,
    /// The totals were returned to the caller. Connections that had not ended by then were counted as cut, and are cut now.
    pub(super) told: AtomicBool,
}

impl Endings {
    pub(crate) fn within(time: Duration) -> Arc<Endings> {
        let now = Instant::now();
        let last_words = deadline(now, time.saturating_sub((time / 10).min(LAST_WORDS)));
        let [silent, asked, ended, cut, held, closing] = [const { AtomicUsize::new(0) }; 6];
        let told = AtomicBool::new(false);
        Arc::new(Endings { until: deadline(now, time), last_words, silent, asked, ended, cut, held, closing, told })
    }

    /// Returns all acts; the last is due so long after the deadline.
    pub(crate) fn ladder(&self, close_after: Duration) -> Ladder {
        let close = deadline(self.until, close_after);
        Ladder { last_words: self.last_words, until: self.until, close, next: Some(Act::LastWords) }
    }

    /// Counts a loop that is being asked which connections are selected; it has answered, or is gone, when the result is dropped.
    pub(crate) fn loop_asked(self: &Arc<Endings>) -> Silent {
        self.silent.fetch_add(1, SeqCst);
        Silent(self.clone())
    }

    /// Returns true where every loop has answered and every connection has ended.
    pub(crate) fn are_over(&self) -> bool {
        self.silent.load(SeqCst) == 0 && self.left() == 0
    }

    /// Returns true where no connection that is counted as cut has a socket any more.
    pub(crate) fn are_closed(&self) -> bool {
        self.closing.load(SeqCst) == 0
    }

    /// Connections asked to end that have not ended.
    fn left(&self) -> usize {
        // In this order: a connection is counted as asked before it ends.
        let over = self.ended.load(SeqCst) + self.cut.load(SeqCst);
        self.asked.load(SeqCst) - over
    }

    /// Returns the number of loops that have not answered.
    pub(crate) fn silent(&self) -> usize {
        self.silent.load(SeqCst)
    }

    /// Permits in use that are of none of these connections.
    pub(crate) fn unheard(&self, permits: impl Fn() -> usize) -> usize {
        // In this order: the permit of a connection goes back before its end is counted.
        let known = self.left() + self.held.load(SeqCst) + self.closing.load(SeqCst);
        permits().saturating_sub(known)
    }

    /// Returns the totals: connections that have ended in order, and those that were cut or are from now on. `permits` are those in use where
    /// every connection is meant: a loop that has not answered has some of them.
    pub(crate) fn tell(&self, permits: impl Fn() -> usize) -> (usize, usize) {
        self.told.store(true, SeqCst);
        let unheard = self.unheard(permits);
        let (ended, asked) = (self.ended.load(SeqCst), self.asked.load(SeqCst));
        (ended, asked - ended + unheard)
    }

    /// Counts the end of a counted connection: in order, or by a reset. `held`: something else still holds its permit. `was_cut`: it was
    /// counted as that before.
    pub(super) fn ended(&self, reset: bool, held: bool, was_cut: bool) {
        self.held.fetch_add(usize::from(held), SeqCst);
        match (was_cut, reset) {
            (true, _) => _ = self.closing.fetch_sub(1, SeqCst),
            (false, true) => _ = self.cut.fetch_add(1, SeqCst),
            (false, false) => _ = self.ended.fetch_add(1, SeqCst),
        }
    }

    /// Counts connections that were never accepted, and are reset where they wait.
    pub(super) fn add_cut(&self, count: usize) {
        self.asked.fetch_add(count, SeqCst);
        self.cut.fetch_add(count, SeqCst);
    }
}

/// A loop that has not answered yet.
pub(crate) struct Silent(Arc<Endings>);

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.silent.fetch_sub(1, SeqCst);
    }
}
