//! The end of many connections by one deadline: the work that a drain, a purge and a shutdown ask of a loop, and the count of its results.

use super::Connections;
use super::selecting::Selecting;
use crate::behaviour::Callback;
use crate::clock::deadline;
use crate::event_loop::endings::Endings;
use crate::event_loop::inbox::Message;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::event_loop::streams::Streams;
use crate::operation::Selector;
use crate::protocol::Closed;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that are ended between two looks at events.
const SLICE: usize = 128;

/// The connections of a loop of which one drain, purge or shutdown counts the ends.
pub(crate) struct CountedEnd<'a> {
    connections: &'a mut Connections,
    endings: &'a Arc<Endings>,
}

impl CountedEnd<'_> {
    pub(crate) fn of<'a>(connections: &'a mut Connections, endings: &'a Arc<Endings>) -> CountedEnd<'a> {
        CountedEnd { connections, endings }
    }

    /// Counts the end of these connections from now on. Returns those that were not counted before.
    pub(crate) fn count(&mut self, mut tokens: Vec<u64>) -> Vec<u64> {
        tokens.retain(|token| self.connections.streams.slots.find(*token).is_some_and(|slot| self.count_one(slot)));
        tokens
    }

    fn count_one(&mut self, slot: u32) -> bool {
        let CountedEnd { connections, endings } = self;
        // The end of the connection is this process's to tell.
        if let Some(frozen) = connections.moving.offered(connections.streams.slots.at(slot)) {
            frozen.stays = true;
        } else if !connections.take_back(slot) {
            return false;
        }
        let extra = connections.streams.slots.make_extra(slot);
        if extra.is_counted_for(endings) {
            return false;
        }
        extra.endings.push(endings.clone());
        connections.deadlines.keep(endings, connections.streams.page.is_some());
        endings.asked.fetch_add(1, SeqCst);
        if connections.streams.slots.at(slot).flags.is(Phase::Cut) {
            endings.closing.fetch_add(1, SeqCst);
            endings.cut.fetch_add(1, SeqCst);
        }
        true
    }

    /// Asks the selected connections to end.
    pub(crate) fn drain(&mut self, selector: &Selector) {
        let meant = Selecting::of(&mut self.connections.streams).choose_to_end(selector);
        self.drain_these(meant);
    }

    /// Asks all connections to end, those that are closing already included: what they have not sent yet may not be lost in silence.
    pub(crate) fn drain_all(&mut self) {
        let all = self.connections.streams.slots.tokens();
        self.drain_these(all);
    }

    fn drain_these(&mut self, tokens: Vec<u64>) {
        let (new, endings) = (self.count(tokens), self.endings.clone());
        in_slices(self.connections, new, move |connections, slot| {
            // A loop that was busy until now does not begin what it has no time for.
            if Instant::now() < endings.until { drain(connections, slot) } else { connections.end_now(slot, Closed::Purged) }
        });
    }

    /// Asks a connection that stands and was not asked before; whether it was one.
    pub(crate) fn drain_if_first(&mut self, token: u64) -> bool {
        let Some(slot) = self.connections.streams.slots.find(token) else { return false };
        let record = self.connections.streams.slots.at(slot);
        if !record.has_protocol() || record.flags.any(Flags::DRAINING) {
            return false;
        }
        self.count_one(slot);
        drain(self.connections, slot);
        true
    }

    /// Ends the selected connections: their protocols may say goodbye, and have this time until all is sent.
    pub(crate) fn purge(&mut self, selector: &Selector, within: Duration) {
        let meant = Selecting::of(&mut self.connections.streams).choose_to_end(selector);
        let (new, endings) = (self.count(meant), self.endings.clone());
        in_slices(self.connections, new, move |connections, slot| {
            let token = connections.streams.slots.token(slot);
            // Behind what the kernel does not take, a goodbye is not read by then.
            let is_late = Instant::now() >= endings.until && connections.streams.slots.at(slot).flags.any(Flags::UNSENT);
            if !(endings.told.load(SeqCst) || is_late) {
                purge(connections, slot, within);
            }
            if Instant::now() >= endings.until
                && let Some(slot) = connections.streams.slots.find(token)
            {
                connections.end_now(slot, Closed::Purged);
            }
        });
    }

    /// Tells last words: protocols that wait for the rest of a message, or for a job, are told now.
    pub(crate) fn last_words(&mut self) {
        let left = self.connections.streams.slots.having(|extra| extra.is_counted_for(self.endings));
        in_slices(self.connections, left, |connections, slot| {
            if connections.happens_now(slot, tell_draining_now) {
                tell_draining_now(connections, slot);
            }
        });
    }

    /// Decides, now that time is up, and of all at once, which connections are cut; their sockets are closed by [`CountedEnd::close_cut`]:
    /// to reset one takes the kernel a millisecond for each megabyte that it has, and the deadline is kept for all.
    pub(crate) fn cut(&mut self) {
        let mut left = self.connections.streams.slots.having(|extra| extra.is_counted_for(self.endings));
        left.retain(|token| !decide_cut(&mut self.connections.streams, *token));
        in_slices(self.connections, left, |connections, slot| connections.end_now(slot, Closed::Purged));
    }

    /// Closes the connections that are counted as cut, by whatever deadline.
    pub(crate) fn close_cut(&mut self) {
        let Streams { slots, .. } = &mut self.connections.streams;
        let mut cut = slots.having(|extra| !extra.endings.is_empty());
        cut.retain(|token| slots.at(*token as u32).flags.is(Phase::Cut));
        in_slices(self.connections, cut, |connections, slot| connections.streams.leave(slot, true));
    }
}

/// Does something with many connections, as far as they are still there, some at a time, so that the others are not held up.
fn in_slices(connections: &mut Connections, mut tokens: Vec<u64>, act: impl Fn(&mut Connections, u32) + Send + 'static) {
    let rest = tokens.split_off(tokens.len().min(SLICE));
    for token in tokens {
        if let Some(slot) = connections.streams.slots.find(token) {
            act(connections, slot);
        }
    }
    if !rest.is_empty() {
        // A loop that is going ends all of its connections anyway.
        let go_on = Message::Command(Box::new(move |event_loop| in_slices(&mut event_loop.connections, rest, act)));
        let _ = connections.streams.io.inbox.put(go_on);
    }
}

/// Tells the protocol, once, whatever it is doing.
fn tell_draining_now(connections: &mut Connections, slot: u32) {
    if connections.streams.slots.at(slot).is_told_first() {
        connections.callback(slot, Callback::Draining);
    }
}

/// Returns true where the connection is counted as cut now: its peer is owed something. Its protocol is gone then, and its socket is reset
/// when it is closed, also by the death of this process.
fn decide_cut(streams: &mut Streams, token: u64) -> bool {
    let Some(slot) = streams.slots.find(token) else { return true };
    let flags = streams.slots.at(slot).flags;
    if flags.is(Phase::Cut) {
        return true;
    }
    // The socket of these is not the loop's own, or has no peer.
    if flags.is(Phase::Leased) || flags.is(Phase::Connecting) || !streams.owes(slot) {
        return false;
    }
    // It fails only where the connection is gone already.
    let _ = streams.io.system.reset_on_close(streams.slots.socket(slot));
    streams.io.counters.cut().add(1);
    for endings in streams.slots.extra(slot).into_iter().flat_map(|extra| &extra.endings) {
        endings.closing.fetch_add(1, SeqCst);
        endings.cut.fetch_add(1, SeqCst);
    }
    if flags.phase().protocol {
        streams.forget_protocol(slot, Closed::Purged);
    } else {
        streams.timers.clear(&mut streams.slots, slot);
    }
    let flags = &mut streams.slots.at(slot).flags;
    flags.clear(Flags::PURGED);
    flags.enter(Phase::Cut);
    true
}

/// Asks a connection to end. What it has received already is answered first.
fn drain(connections: &mut Connections, slot: u32) {
    if !connections.happens_now(slot, drain) {
        return;
    }
    let record = connections.streams.slots.at(slot);
    if record.flags.is(Phase::Connecting) {
        return connections.connect_failed(slot, Errno::CONNABORTED);
    }
    if record.flags.is(Phase::Leased) {
        record.flags.set(Flags::DRAINING);
        // Also when it was asked before: the deadline may be nearer now.
        return connections.streams.slots.extra(slot).into_iter().for_each(Extra::drain_leased);
    }
    if !record.has_protocol() || record.flags.any(Flags::DRAINING) {
        return;
    }
    record.flags.set(Flags::DRAINING);
    connections.readable(slot);
    connections.ask_to_drain(slot);
}

/// Ends a connection: the protocol may say goodbye, all that was written is delivered, and what takes longer than `within`
/// is reset.
pub(super) fn purge(connections: &mut Connections, slot: u32, within: Duration) {
    if !connections.happens_now(slot, move |connections, slot| purge(connections, slot, within)) {
        return;
    }
    let record = connections.streams.slots.at(slot);
    if record.flags.is(Phase::Connecting) {
        return connections.connect_failed(slot, Errno::CONNABORTED);
    }
    if connections.streams.slots.at(slot).is_told_first() {
        // A request that was begun is no reason for a reset here: it is the purge that does not wait for it.
        let answer = connections.dispatch(slot, Callback::Draining);
        connections.follow(slot, answer, false);
    }
    if connections.streams.slots.at(slot).flags.is(Phase::Leased) {
        connections.streams.slots.at(slot).flags.set(Flags::DRAINING);
        return connections.streams.slots.make_extra(slot).purge_leased(deadline(Instant::now(), within));
    }
    if connections.streams.slots.at(slot).flags.is(Phase::Relayed) {
        // No protocol says where the stream is whole.
        return connections.end_now(slot, Closed::Purged);
    }
    if connections.streams.slots.at(slot).has_protocol() {
        connections.streams.forget_protocol(slot, Closed::Purged);
        connections.streams.slots.at(slot).flags.set(Flags::PURGED);
        connections.streams.start_closing(slot, within, false);
    } else if connections.streams.slots.at(slot).flags.is(Phase::Flushing) {
        // The connection was closing by itself, with more patience; a lingering one has less already.
        let now = Instant::now();
        connections.streams.timers.set(&mut connections.streams.slots, slot, deadline(now, within), now);
    }
}

/// Asks a connection to end that may be gone.
pub(crate) fn drain_one(connections: &mut Connections, token: u64) {
    if let Some(slot) = connections.streams.slots.find(token) {
        drain(connections, slot);
    }
}
