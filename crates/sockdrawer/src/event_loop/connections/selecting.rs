//! The connections that a selector means, and what is listed of them.

use crate::event_loop::generations::Generations;
use crate::event_loop::io::Io;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::{Flags, Slot};
use crate::event_loop::slots::{Extra, Slots};
use crate::event_loop::streams::Streams;
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::operation::{Page, Selector, Traits};
use crate::sys::monotonic_coarse;
use std::time::Duration;

/// Returns the state of a connection with a protocol, or of a connect under way: of several states the one that says most.
fn state(slot: &Slot) -> ConnectionState {
    let flags = slot.flags;
    let states = [
        (flags.any(Flags::WORKING), ConnectionState::Working),
        (flags.any(Flags::UNSENT), ConnectionState::Sending),
        (flags.any(Flags::PAUSED.union(Flags::HELD)), ConnectionState::Waiting),
        (flags.any(Flags::KEPT), ConnectionState::Receiving),
    ];
    let by_flags = || states.into_iter().find(|(holds, _)| *holds).map(|(_, state)| state);
    flags.phase().name.or_else(by_flags).unwrap_or(ConnectionState::Idle)
}

/// The parts of a loop that know what selectors ask about.
pub(crate) struct Selecting<'a> {
    io: &'a Io,
    slots: &'a mut Slots,
    generations: &'a mut Generations,
}

impl Selecting<'_> {
    pub(crate) fn of(streams: &mut Streams) -> Selecting<'_> {
        let Streams { io, slots, generations, .. } = streams;
        Selecting { io, slots, generations }
    }

    /// Returns the tokens of the selected connections.
    pub(crate) fn choose(&mut self, selector: &Selector) -> Vec<u64> {
        let (uptime, needs_peer) = (Duration::from_nanos(monotonic_coarse()), selector.needs_peer());
        let mut chosen = Vec::new();
        for slot in 0..self.slots.len() {
            if self.slots.at(slot).is_operated() && selector.takes(&self.traits(slot, uptime, needs_peer)) {
                chosen.push(self.slots.token(slot));
            }
        }
        chosen
    }

    /// Returns the tokens of the connections that are to end: where all are meant, also those that are closed and have something to send still.
    pub(crate) fn choose_to_end(&mut self, selector: &Selector) -> Vec<u64> {
        let mut chosen = self.choose(selector);
        if *selector == Selector::All {
            let all = self.slots.tokens().into_iter();
            chosen.extend(all.filter(|token| self.slots.at(*token as u32).flags.is(Phase::Flushing)));
        }
        chosen
    }

    fn traits(&mut self, slot: u32, uptime: Duration, needs_peer: bool) -> Traits<'_> {
        let peer = if needs_peer { self.io.remote(self.slots, slot) } else { None };
        let record = self.slots.at(slot);
        let (id, age) = (record.id, uptime.saturating_sub(Duration::from_secs(u64::from(record.opened))));
        let table = if record.flags.is(Phase::Connecting) { self.generations.active } else { record.table };
        let generation = self.generations.at(table).generation.id;
        let listener = self.slots.at(slot).listener;
        let listener = self.slots.listener(listener).map(|listener| &listener.address);
        Traits { id, peer, age, generation, listener, tag: self.slots.extra(slot).and_then(|extra| extra.tag.as_deref()) }
    }

    /// Returns a part of the selected connections, and the number of the first that was not looked at.
    pub(super) fn list(&mut self, selector: &Selector, page: Page) -> (Vec<ConnectionStatus>, Option<u64>) {
        let (uptime, needs_peer) = (Duration::from_nanos(monotonic_coarse()), selector.needs_peer());
        let mut part = Vec::new();
        for slot in 0..self.slots.len() {
            if self.slots.at(slot).is_operated() {
                part.push((self.slots.at(slot).id.0, slot));
            }
        }
        let next = page.cut(&mut part);
        part.retain(|(_, slot)| selector.takes(&self.traits(*slot, uptime, needs_peer)));
        (part.into_iter().map(|(_, slot)| self.listed(slot, uptime)).collect(), next)
    }

    fn listed(&mut self, slot: u32, uptime: Duration) -> ConnectionStatus {
        // The lessee has received and sent more.
        let (received, sent) = self.slots.extra(slot).and_then(Extra::leased).map_or((0, 0), |leased| leased.bytes());
        let record = self.slots.at(slot);
        let carried = if record.flags.is(Phase::Connecting) { (0, 0) } else { (record.bytes_in, record.bytes_out) };
        let bytes = (carried.0 + received, carried.1 + sent);
        let (side, state, draining) = (record.side(), state(record), record.flags.any(Flags::DRAINING));
        self.traits(slot, uptime, true).status(side, bytes, state, draining)
    }
}
