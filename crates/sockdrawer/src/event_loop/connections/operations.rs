//! Requests of the control plane about a loop's connections. Everything here runs on the loop's thread, between two events.

use super::Connections;
use super::selecting::Selecting;
use crate::behaviour::Callback;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::snapshot::Snapshot;
use crate::observe::Event;
use crate::operation::{Adopted, Op, Outcome, Selector};
use crate::protocol::{Closed, Note, Peer, Saved, Saver, Tag, Urgency};
use crate::sys::Errno;
use std::time::Instant;

impl Connections {
    /// Does an operation on the selected connections.
    pub(crate) fn apply(&mut self, op: &Op, selector: &Selector) -> Outcome {
        let mut answer = Outcome { connections: self.count(), ..Outcome::default() };
        let done = match op {
            Op::Count => Selecting::of(self).choose(selector).len(),
            Op::List(page) => {
                (answer.list, answer.next) = Selecting::of(self).list(selector, *page);
                answer.list.len()
            }
            Op::Kill => {
                let meant = Selecting::of(self).choose_to_end(selector).into_iter();
                meant.filter(|token| self.kill_one(*token)).count()
            }
            Op::Tag(text) => {
                let tag = crate::protocol::tag(text);
                self.each(selector, |connections, token| connections.tag_one(token, &tag))
            }
            Op::Notify(bytes) => self.each(selector, |connections, token| {
                // Blocking code may not listen to any: what finds its queue full is dropped, and counted.
                let leased = connections.slots.find(token).is_some_and(|slot| connections.slots.at(slot).flags.is(Phase::Leased));
                let urgency = if leased { Urgency::Offered } else { Urgency::Delivered };
                connections.note(token, Note::Bytes(bytes.clone()), urgency);
                true
            }),
            Op::SetOptions(options) => self.each(selector, |Connections { slots, io, .. }, token| {
                slots.find(token).is_some_and(|slot| io.system.set_options(slots.socket(slot), options).is_ok())
            }),
            Op::Options => {
                answer.options = Selecting::of(self).choose(selector).into_iter().find_map(|token| {
                    let slot = self.slots.find(token)?;
                    self.io.system.options(self.slots.socket(slot)).ok()
                });
                usize::from(answer.options.is_some())
            }
            Op::Adopt => {
                answer.adopted = self.adopt(selector);
                answer.adopted.moved
            }
            // Ends by a deadline are counted by the control plane, which asks for each step of them.
            Op::Drain(_) | Op::Purge(_) => 0,
        };
        Outcome { done, ..answer }
    }

    /// Acts on each selected connection. Returns the number of those for which `act` returned true.
    fn each(&mut self, selector: &Selector, mut act: impl FnMut(&mut Connections, u64) -> bool) -> usize {
        Selecting::of(self).choose(selector).into_iter().filter(|token| act(self, *token)).count()
    }

    fn adopt(&mut self, selector: &Selector) -> Adopted {
        let older = selector.clone().and(!Selector::Generation(self.io.shared.switch.current().id));
        let mut adopted = Adopted::default();
        for token in Selecting::of(self).choose(&older) {
            let id = self.slots.at(token as u32).id;
            adopted.add(id, self.adopt_one(token));
        }
        adopted
    }

    /// Publishes the connection of an event loop that only serves, before the protocol can keep it from answering.
    pub(super) fn publish(&mut self, slot: u32, peer: &Peer) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        let (id, active) = (self.slots.at(slot).id, self.generations.active);
        let generation = self.generations.at(active).generation.id;
        let listener = self.slots.at(slot).listener;
        let listener = self.slots.listener(listener).cloned();
        let before = (self.io.counters.bytes_in().get(), self.io.counters.bytes_out().get());
        let (peer, side) = (peer.remote(), peer.side());
        snapshot.write(Some(Snapshot { id, generation, peer, listener, side, tag: None, since: Instant::now(), before }));
    }

    /// Asks a connection to end that may be gone.
    pub(crate) fn drain_one(&mut self, token: u64) {
        if let Some(slot) = self.slots.find(token) {
            self.drain(slot);
        }
    }

    /// Ends a connection with a reset.
    pub(super) fn kill_one(&mut self, token: u64) -> bool {
        let Some(slot) = self.slots.find(token) else { return false };
        if self.moving.offered(self.slots.at(slot)).is_some() {
            return !self.happens_now(slot, move |connections, _| _ = connections.kill_one(token));
        }
        if self.slots.at(slot).flags.is(Phase::Connecting) {
            self.connect_failed(slot, Errno::CONNABORTED);
        } else {
            let (id, peer) = (self.slots.at(slot).id, self.io.remote(&mut self.slots, slot));
            self.end(slot, Closed::Killed, true);
            self.io.shared.tell(&Event::ConnectionKilled { id, peer });
        }
        true
    }

    /// Names a connection, by order of the control plane or of a handle.
    pub(in crate::event_loop) fn tag_one(&mut self, token: u64, tag: &Tag) -> bool {
        let found = self.slots.with_protocol(token);
        found.inspect(|slot| self.set_tag(*slot, tag.clone())).is_some()
    }

    /// Sets the tag; an empty tag is none.
    pub(super) fn set_tag(&mut self, slot: u32, tag: Tag) {
        let later = tag.clone();
        if self.moving.offered(self.slots.at(slot)).is_some()
            && !self.happens_now(slot, move |connections, slot| connections.set_tag(slot, later))
        {
            return;
        }
        self.snapshot.iter().for_each(|snapshot| snapshot.tagged(tag.clone()));
        if !tag.is_empty() {
            self.slots.make_extra(slot).tag = Some(tag);
        } else if let Some(extra) = self.slots.extra_of(slot) {
            extra.tag = None;
        }
    }

    /// Moves a connection to the newest generation: its state is saved by the old service and restored by the new one; socket,
    /// buffers and timer stay as they are.
    ///
    /// # Errors
    /// The reason why it stays where it is.
    fn adopt_one(&mut self, token: u64) -> Result<(), String> {
        let slot = self.slots.find(token).ok_or("it has ended")?;
        let flags = self.slots.at(slot).flags;
        if let Some(why) = flags.phase().stays {
            return Err(format!("it is {why}"));
        }
        if flags.any(Flags::WORKING) {
            return Err("a job runs".to_owned());
        }
        self.generations.refresh(&self.io, &mut self.read).map_err(|panicked| self.io.tell_panic("the new service", panicked))?;
        let old = self.slots.at(slot).table;
        if old == self.generations.active_for(&mut self.slots, slot) {
            return Err("it has the newest generation already".to_owned());
        }
        // The peer speaks to the layers of its listener still.
        let layers = self.slots.own_address(slot);
        if layers.is_some_and(|own| !self.generations.own.iter().any(|(address, _)| address == own)) {
            return Err("the layers of its listener are gone".to_owned());
        }
        // Counted from here on, as at an accept: the generation cannot have ended before the connection moves to it.
        self.generations.join(&self.io, &mut self.read).map_err(|panicked| self.io.tell_panic("the new service", panicked))?;
        let new = self.generations.active_for(&mut self.slots, slot);
        self.move_to(slot, old, new).inspect_err(|_| self.generations.leave(&self.io, new))
    }

    /// Does the rest of an adoption, once the connection is counted by the generation it moves to.
    fn move_to(&mut self, slot: u32, old: u16, new: u16) -> Result<(), String> {
        let remote = self.io.remote(&mut self.slots, slot);
        let record = self.slots.at(slot);
        let (state, side) = (record.state, record.side());
        let peer = crate::protocol::Peer::new(remote, side).came_in_at(self.slots.came_in_at(slot));
        let mut saver = Saver::default();
        // A panic in save or restore leaves the connection with its old state, as an error does.
        let saved = self.generations.at(old).table.save(state, &mut saver);
        saved.map_err(|panicked| self.io.tell_panic("save", panicked))?.map_err(|why| why.to_string())?;
        let versions = self.generations.at(old).state.versions();
        let restored = self.generations.at(new).table.restore(&peer, &mut Saved::versioned(&saver.bytes, &versions));
        let restored = restored.map_err(|panicked| self.io.tell_panic("restore", panicked))?.map_err(|why| why.to_string())?;
        self.move_protocol(slot, new, restored);
        self.io.counters.adopted().add(1);
        self.tell_restored(slot);
        Ok(())
    }

    /// Tells a protocol that it goes on where another one was: it may speak. Its input is paused as it was, unless it resumes it.
    pub(super) fn tell_restored(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        let held = !record.may_receive();
        let answer = self.dispatch(slot, Callback::Restored);
        self.follow(slot, answer, held);
        self.settle(slot, false);
    }

    fn move_protocol(&mut self, slot: u32, table: u16, state: u32) {
        let old = self.slots.at(slot).table;
        if self.close_protocol(slot, Closed::Adopted).is_err() {
            self.io.counters.panics().add(1);
        }
        let record = self.slots.at(slot);
        (record.table, record.state) = (table, state);
        self.generations.leave(&self.io, old);
        let generation = self.generations.at(table).generation.id;
        self.snapshot.iter().for_each(|snapshot| snapshot.moved(generation));
    }
}
