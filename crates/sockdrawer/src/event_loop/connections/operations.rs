//! Requests of the control plane about a loop's connections. Everything here runs on the loop's thread, between two events.

use super::Connections;
use super::selecting::Selecting;
use crate::behaviour::Callback;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::Streams;
use crate::operation::{Adopted, Op, Outcome, Selector};
use crate::protocol::{Closed, Note, Saved, Saver, Tag, Urgency};

/// Does an operation on the selected connections.
pub(crate) fn apply(connections: &mut Connections, op: &Op, selector: &Selector) -> Outcome {
    let mut answer = Outcome { connections: connections.streams.slots.taken(), ..Outcome::default() };
    let done = match op {
        Op::Count => Selecting::of(&mut connections.streams).choose(selector).len(),
        Op::List(page) => {
            (answer.list, answer.next) = Selecting::of(&mut connections.streams).list(selector, *page);
            answer.list.len()
        }
        Op::Kill => {
            let meant = Selecting::of(&mut connections.streams).choose_to_end(selector).into_iter();
            meant.filter(|token| connections.kill_one(*token)).count()
        }
        Op::Tag(text) => {
            let tag = crate::protocol::tag(text);
            each(connections, selector, |connections, token| tag_one(connections, token, &tag))
        }
        Op::Notify(bytes) => each(connections, selector, |connections, token| {
            // Blocking code may not listen to any: what finds its queue full is dropped, and counted.
            let leased = connections
                .streams
                .slots
                .find(token)
                .is_some_and(|slot| connections.streams.slots.at(slot).flags.is(Phase::Leased));
            let urgency = if leased { Urgency::Offered } else { Urgency::Delivered };
            connections.note(token, Note::Bytes(bytes.clone()), urgency);
            true
        }),
        Op::SetOptions(options) => each(connections, selector, |connections, token| {
            let Streams { slots, io, .. } = &mut connections.streams;
            slots.find(token).is_some_and(|slot| io.system.set_options(slots.socket(slot), options).is_ok())
        }),
        Op::Options => {
            answer.options = Selecting::of(&mut connections.streams).choose(selector).into_iter().find_map(|token| {
                let slot = connections.streams.slots.find(token)?;
                connections.streams.io.system.options(connections.streams.slots.socket(slot)).ok()
            });
            usize::from(answer.options.is_some())
        }
        Op::Adopt => {
            answer.adopted = adopt(connections, selector);
            answer.adopted.moved
        }
        // Ends by a deadline are counted by the control plane, which asks for each step of them.
        Op::Drain(_) | Op::Purge(_) => 0,
    };
    Outcome { done, ..answer }
}

/// Acts on each selected connection. Returns the number of those for which `act` returned true.
fn each(connections: &mut Connections, selector: &Selector, mut act: impl FnMut(&mut Connections, u64) -> bool) -> usize {
    Selecting::of(&mut connections.streams).choose(selector).into_iter().filter(|token| act(connections, *token)).count()
}

fn adopt(connections: &mut Connections, selector: &Selector) -> Adopted {
    let older = selector.clone().and(!Selector::Generation(connections.streams.io.shared.switch.current().id));
    let mut adopted = Adopted::default();
    for token in Selecting::of(&mut connections.streams).choose(&older) {
        let id = connections.streams.slots.at(token as u32).id;
        adopted.add(id, adopt_one(connections, token));
    }
    adopted
}

/// Names a connection, by order of the control plane or of a handle.
pub(in crate::event_loop) fn tag_one(connections: &mut Connections, token: u64, tag: &Tag) -> bool {
    let found = connections.streams.slots.with_protocol(token);
    found.inspect(|slot| connections.set_tag(*slot, tag.clone())).is_some()
}

/// Moves a connection to the newest generation: its state is saved by the old service and restored by the new one; socket,
/// buffers and timer stay as they are.
///
/// # Errors
/// The reason why it stays where it is.
fn adopt_one(connections: &mut Connections, token: u64) -> Result<(), String> {
    let streams = &mut connections.streams;
    let slot = streams.slots.find(token).ok_or("it has ended")?;
    let flags = streams.slots.at(slot).flags;
    if let Some(why) = flags.phase().stays {
        return Err(format!("it is {why}"));
    }
    if flags.any(Flags::WORKING) {
        return Err("a job runs".to_owned());
    }
    streams
        .generations
        .refresh(&streams.io, &mut streams.read)
        .map_err(|panicked| streams.io.tell_panic("the new service", panicked))?;
    let old = streams.slots.at(slot).table;
    if old == streams.generations.active_for(&mut streams.slots, slot) {
        return Err("it has the newest generation already".to_owned());
    }
    // The peer speaks to the layers of its listener still.
    let layers = streams.slots.own_address(slot);
    if layers.is_some_and(|own| !streams.generations.own.iter().any(|(address, _)| address == own)) {
        return Err("the layers of its listener are gone".to_owned());
    }
    // Counted from here on, as at an accept: the generation cannot have ended before the connection moves to it.
    streams
        .generations
        .join(&streams.io, &mut streams.read)
        .map_err(|panicked| streams.io.tell_panic("the new service", panicked))?;
    let new = streams.generations.active_for(&mut streams.slots, slot);
    move_to(connections, slot, old, new).inspect_err(|_| connections.streams.generations.leave(&connections.streams.io, new))
}

/// Does the rest of an adoption, once the connection is counted by the generation it moves to.
fn move_to(connections: &mut Connections, slot: u32, old: u16, new: u16) -> Result<(), String> {
    let streams = &mut connections.streams;
    let remote = streams.io.remote(&mut streams.slots, slot);
    let record = streams.slots.at(slot);
    let (state, side) = (record.state, record.side());
    let peer = crate::protocol::Peer::new(remote, side).came_in_at(streams.slots.came_in_at(slot));
    let mut saver = Saver::default();
    // A panic in save or restore leaves the connection with its old state, as an error does.
    let saved = streams.generations.at(old).table.save(state, &mut saver);
    saved.map_err(|panicked| streams.io.tell_panic("save", panicked))?.map_err(|why| why.to_string())?;
    let versions = streams.generations.at(old).state.versions();
    let restored = streams.generations.at(new).table.restore(&peer, &mut Saved::versioned(&saver.bytes, &versions));
    let restored = restored.map_err(|panicked| streams.io.tell_panic("restore", panicked))?.map_err(|why| why.to_string())?;
    move_protocol(streams, slot, new, restored);
    streams.io.counters.adopted().add(1);
    tell_restored(connections, slot);
    Ok(())
}

/// Tells a protocol that it goes on where another one was: it may speak. Its input is paused as it was, unless it resumes it.
pub(super) fn tell_restored(connections: &mut Connections, slot: u32) {
    let record = connections.streams.slots.at(slot);
    let held = !record.may_receive();
    let answer = connections.dispatch(slot, Callback::Restored);
    connections.follow(slot, answer, held);
    connections.streams.settle(slot, false);
}

fn move_protocol(streams: &mut Streams, slot: u32, table: u16, state: u32) {
    let old = streams.slots.at(slot).table;
    if streams.close_protocol(slot, Closed::Adopted).is_err() {
        streams.io.counters.panics().add(1);
    }
    let record = streams.slots.at(slot);
    (record.table, record.state) = (table, state);
    streams.generations.leave(&streams.io, old);
    let generation = streams.generations.at(table).generation.id;
    streams.snapshot.iter().for_each(|snapshot| snapshot.moved(generation));
}
