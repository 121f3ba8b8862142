//! The end of many connections by a deadline: what a drain, a purge and a shutdown ask of a loop, and the count of what came of it.

use super::connections::Connections;
use super::slot::Flags;
use crate::clock::deadline;
use crate::operation::Selector;
use crate::protocol::Closed;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The last part of a drain's time is for last words: a tenth of it, and no more than this.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Connections that are ended between two looks at events.
const SLICE: usize = 128;
/// A lingering connection with more input than this many reads is taken for one that goes on sending.
const LAST_READS: usize = 4;

/// What came of the connections of one drain, purge or shutdown. Each loop adds the ends of its own connections as they happen.
pub(crate) struct Endings {
    /// All of it is over by then.
    pub(crate) until: Instant,
    /// Protocols that have not been told yet are told then, whatever they were doing.
    pub(crate) last_words: Instant,
    /// Loops that have not said yet which of their connections are meant.
    silent: AtomicUsize,
    asked: AtomicUsize,
    ended: AtomicUsize,
    cut: AtomicUsize,
    /// Ended connections whose permit a running job or a handler still has.
    held: AtomicUsize,
    /// Connections that are counted as cut and have a socket and a permit still.
    closing: AtomicUsize,
    /// The count was told. Connections that have not ended by then were told as cut, so they are.
    told: AtomicBool,
}

impl Endings {
    pub(crate) fn within(time: Duration) -> Arc<Endings> {
        let now = Instant::now();
        let last_words = deadline(now, time.saturating_sub((time / 10).min(LAST_WORDS)));
        let [silent, asked, ended, cut, held, closing] = [const { AtomicUsize::new(0) }; 6];
        let told = AtomicBool::new(false);
        Arc::new(Endings { until: deadline(now, time), last_words, silent, asked, ended, cut, held, closing, told })
    }

    /// A loop is being asked which connections are meant; it has answered, or is gone, when this is dropped.
    pub(crate) fn loop_asked(self: &Arc<Endings>) -> Silent {
        self.silent.fetch_add(1, SeqCst);
        Silent(self.clone())
    }

    /// Whether every loop has answered and every connection has ended.
    pub(crate) fn are_over(&self) -> bool {
        self.silent.load(SeqCst) == 0 && self.left() == 0
    }

    /// Whether no connection that is counted as cut has a socket any more.
    pub(crate) fn are_closed(&self) -> bool {
        self.closing.load(SeqCst) == 0
    }

    /// Connections asked to end that have not ended.
    fn left(&self) -> usize {
        // In this order: a connection is counted as asked before it ends.
        let over = self.ended.load(SeqCst) + self.cut.load(SeqCst);
        self.asked.load(SeqCst) - over
    }

    /// Whether a loop has not answered.
    pub(crate) fn have_silent_loops(&self) -> bool {
        self.silent.load(SeqCst) > 0
    }

    /// Permits in use that are of none of these connections.
    pub(crate) fn unheard(&self, permits: impl Fn() -> usize) -> usize {
        // In this order: the permit of a connection goes back before its end is counted.
        let known = self.left() + self.held.load(SeqCst) + self.closing.load(SeqCst);
        permits().saturating_sub(known)
    }

    /// The last word: connections that have ended in order, and those that were cut or are from now on. `permits` are those in use
    /// where every connection is meant: a loop that has not answered has some of them.
    pub(crate) fn tell(&self, permits: impl Fn() -> usize) -> (usize, usize) {
        self.told.store(true, SeqCst);
        let unheard = self.unheard(permits);
        let (ended, asked) = (self.ended.load(SeqCst), self.asked.load(SeqCst));
        (ended, asked - ended + unheard)
    }

    /// A counted connection is gone: in order, or by a reset; something else still holds its permit. `was_cut`: it was counted as that
    /// before.
    pub(super) fn ended(&self, reset: bool, held: bool, was_cut: bool) {
        self.held.fetch_add(usize::from(held), SeqCst);
        match (was_cut, reset) {
            (true, _) => _ = self.closing.fetch_sub(1, SeqCst),
            (false, true) => _ = self.cut.fetch_add(1, SeqCst),
            (false, false) => _ = self.ended.fetch_add(1, SeqCst),
        }
    }

    /// Connections that were never accepted, and are reset where they wait.
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

impl Connections {
    /// Counts the end of these connections from now on. Those that are counted already are left out.
    pub(crate) fn count_endings(&mut self, tokens: Vec<u64>, endings: &Arc<Endings>) -> Vec<u64> {
        let is_new = |connections: &mut Connections, token| {
            connections.slots.find(token).is_some_and(|slot| connections.count_ending(slot, endings))
        };
        tokens.into_iter().filter(|token| is_new(self, *token)).collect()
    }

    fn count_ending(&mut self, slot: u32, endings: &Arc<Endings>) -> bool {
        let counting = &mut self.slots.make_extra(slot).endings;
        if counting.iter().any(|known| Arc::ptr_eq(known, endings)) {
            return false;
        }
        counting.push(endings.clone());
        endings.asked.fetch_add(1, SeqCst);
        if self.slots.at(slot).flags.any(Flags::CUT) {
            endings.closing.fetch_add(1, SeqCst);
            endings.cut.fetch_add(1, SeqCst);
        }
        true
    }

    /// The nearest deadline of a counted connection.
    pub(super) fn ends_by(&self, slot: u32) -> Option<Instant> {
        self.slots.extra(slot)?.endings.iter().map(|endings| endings.until).min()
    }

    /// Asks connections that are meant to end, and counts what comes of it.
    pub(crate) fn drain_counted(&mut self, selector: &Selector, endings: &Arc<Endings>) {
        let meant = self.choose(selector);
        self.drain_in_slices(meant, endings);
    }

    /// The same for all, those that are closing already included: what they have not sent yet may not be lost in silence.
    pub(crate) fn drain_all_counted(&mut self, endings: &Arc<Endings>) {
        let all = self.slots.tokens();
        self.drain_in_slices(all, endings);
    }

    fn drain_in_slices(&mut self, tokens: Vec<u64>, endings: &Arc<Endings>) {
        let (new, endings) = (self.count_endings(tokens, endings), endings.clone());
        self.in_slices(new, move |connections, token| {
            // A loop that was busy until now does not begin what it has no time for.
            if Instant::now() < endings.until { _ = connections.drain_one(token) } else { connections.end_now(token) }
        });
    }

    /// Ends connections that are meant: their protocols may say goodbye, and have this time until all is sent.
    pub(crate) fn purge_counted(&mut self, selector: &Selector, within: Duration, endings: &Arc<Endings>) {
        let meant = self.choose(selector);
        let (new, endings) = (self.count_endings(meant, endings), endings.clone());
        self.in_slices(new, move |connections, token| {
            let is_late = Instant::now() >= endings.until;
            // Behind what the kernel does not take, a goodbye is not read by then.
            let unsent = |connections: &mut Connections| {
                connections.slots.find(token).is_some_and(|slot| connections.slots.at(slot).flags.any(Flags::UNSENT))
            };
            if !(endings.told.load(SeqCst) || is_late && unsent(connections)) {
                connections.purge_one(token, within);
            }
            if Instant::now() >= endings.until {
                connections.end_now(token);
            }
        });
    }

    /// Asks a connection that stands and was not asked before; whether it was one.
    pub(crate) fn drain_if_first(&mut self, token: u64, endings: &Arc<Endings>) -> bool {
        let Some(slot) = self.slots.find(token) else { return false };
        let record = self.slots.at(slot);
        if !record.has_protocol() || record.flags.any(Flags::DRAINING) {
            return false;
        }
        self.count_ending(slot, endings);
        self.drain(slot);
        true
    }

    /// Time for last words: protocols that wait for the rest of a message, or for a job, are told now.
    pub(crate) fn last_words(&mut self, endings: &Arc<Endings>) {
        let left = self.counted(endings);
        self.in_slices(left, |connections, token| {
            if let Some(slot) = connections.slots.find(token) {
                connections.tell_draining_now(slot);
            }
        });
    }

    /// Time is up. Which connections are cut is decided now and of all at once; their sockets are closed by
    /// [`close_cut`](EventLoop::close_cut): to reset one takes the kernel a millisecond for each megabyte that it has, and the deadline
    /// is kept for all.
    pub(crate) fn cut_counted(&mut self, endings: &Arc<Endings>) {
        let mut left = self.counted(endings);
        left.retain(|token| !self.decide_cut(*token));
        self.in_slices(left, Connections::end_now);
    }

    fn end_now(&mut self, token: u64) {
        if !self.decide_cut(token)
            && let Some(slot) = self.slots.find(token)
        {
            self.cut(slot, Closed::Purged);
        }
    }

    /// Whether the count of this connection's end was told already, as cut.
    fn is_told(&self, slot: u32) -> bool {
        self.slots.extra(slot).is_some_and(|extra| extra.endings.iter().any(|endings| endings.told.load(SeqCst)))
    }

    /// Whether the connection is counted as cut now: its peer is owed something. Its protocol is gone then, and its socket is reset
    /// when it is closed, also by the death of this process.
    fn decide_cut(&mut self, token: u64) -> bool {
        let Some(slot) = self.slots.find(token) else { return true };
        let flags = self.slots.at(slot).flags;
        if flags.any(Flags::CUT) {
            return true;
        }
        // The socket of these is not the loop's own, or has no peer.
        if flags.any(Flags::LEASED.and(Flags::CONNECTING)) || !self.owes(slot) {
            return false;
        }
        // It fails only where the connection is gone already.
        let _ = self.with_socket(slot, |system, socket| system.reset_on_close(socket));
        self.io.counters.cut().add(1);
        for endings in self.slots.extra(slot).into_iter().flat_map(|extra| &extra.endings) {
            endings.closing.fetch_add(1, SeqCst);
            endings.cut.fetch_add(1, SeqCst);
        }
        let flags = &mut self.slots.at(slot).flags;
        flags.clear(Flags::PURGED);
        flags.set(Flags::CUT);
        if flags.any(Flags::LINGERING.and(Flags::FLUSHING)) {
            self.timers.clear(&mut self.slots, slot);
        } else {
            self.forget_protocol(slot, Closed::Purged);
        }
        true
    }

    /// Closes the connections that are counted as cut.
    pub(crate) fn close_cut(&mut self) {
        let mut cut = self.slots.counted(|_| true);
        cut.retain(|token| self.slots.at(*token as u32).flags.any(Flags::CUT));
        self.in_slices(cut, |connections, token| {
            if let Some(slot) = connections.slots.find(token) {
                connections.leave(slot, true);
            }
        });
    }

    fn counted(&mut self, endings: &Arc<Endings>) -> Vec<u64> {
        self.slots.counted(|known| Arc::ptr_eq(known, endings))
    }

    /// Ends a connection now: in order where nothing is owed to its peer, else by a reset, which is the only way to tell the peer
    /// that something is missing.
    pub(super) fn cut(&mut self, slot: u32, why: Closed) {
        if self.slots.at(slot).flags.any(Flags::CONNECTING) {
            return self.connect_failed(slot, crate::sys::Errno::CONNABORTED);
        }
        if self.slots.at(slot).flags.any(Flags::CUT) {
            return self.leave(slot, true);
        }
        let owes = self.owes(slot);
        let record = self.slots.at(slot);
        if owes {
            self.io.counters.cut().add(1);
        } else if record.has_protocol() || record.flags.any(Flags::PURGED) {
            self.io.counters.purged().add(1);
        }
        self.end(slot, why, owes);
    }

    /// Whether the peer still has something to come: output that the kernel has not taken, or an answer to what it has sent. A
    /// connection that was told as cut is treated as if.
    fn owes(&mut self, slot: u32) -> bool {
        if self.is_told(slot) {
            return true;
        }
        let flags = self.slots.at(slot).flags;
        let owing = [Flags::UNSENT, Flags::KEPT, Flags::WORKING, Flags::WAITING, Flags::DELEGATING];
        if owing.into_iter().any(|flag| flags.any(flag)) {
            return true;
        }
        if flags.any(Flags::LEASED) {
            return self.leased_owes(slot);
        }
        if flags.any(Flags::PEER_FINISHED) {
            return false;
        }
        let Some(socket) = &self.slots.at(slot).socket else { return false };
        // To close a socket with unread input is to reset it. Of a lingering one all that is there is discarded first.
        let mut reads = if flags.any(Flags::LINGERING) { 0..LAST_READS } else { 0..0 };
        let goes_on = reads.all(|_| matches!(self.io.system.receive(socket.as_fd(), &mut self.read), Ok(1..)));
        goes_on && matches!(self.io.system.peek(socket.as_fd()), Ok(1..))
    }

    /// Does something with many connections, some at a time, so that the others are not held up.
    fn in_slices(&mut self, mut tokens: Vec<u64>, act: impl Fn(&mut Connections, u64) + Send + 'static) {
        let rest = tokens.split_off(tokens.len().min(SLICE));
        tokens.into_iter().for_each(|token| act(self, token));
        if !rest.is_empty() {
            // A loop that is going ends all of its connections anyway.
            let _ = self
                .io
                .inbox
                .put(super::inbox::Message::Command(Box::new(move |event_loop| event_loop.connections.in_slices(rest, act))));
        }
    }
}
