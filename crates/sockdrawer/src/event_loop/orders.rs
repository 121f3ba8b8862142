//! What the control plane asks of a loop's connections. Everything here runs on the loop's thread, between two events.

use super::EventLoop;
use super::card::Written;
use super::inbox::Message;
use super::seat::{Flags, Seat};
use crate::behaviour::Panicked;
use crate::net::SocketOptions;
use crate::observe::{ConnectionState, ConnectionStatus, Event as Told};
use crate::operation::{Adopted, Op, Outcome, Selector, Traits};
use crate::protocol::{Closed, Local, Note, Peer, Saved, Saver};
use crate::sync::lock;
use crate::sys::{Errno, monotonic, panics};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a connection with a protocol, or one that connects, is doing: of several things the one that says most.
fn state(seat: &Seat) -> ConnectionState {
    let flags = seat.flags;
    let states = [
        (flags.any(Flags::CONNECTING), ConnectionState::Connecting),
        (flags.any(Flags::AWAY.and(Flags::LEAVING)), ConnectionState::Delegated),
        (flags.any(Flags::WORKING), ConnectionState::Working),
        (flags.any(Flags::UNSENT), ConnectionState::Sending),
        (flags.any(Flags::WAITING), ConnectionState::Waiting),
        (flags.any(Flags::KEPT), ConnectionState::Receiving),
    ];
    states.into_iter().find(|(holds, _)| *holds).map_or(ConnectionState::Idle, |(_, state)| state)
}

impl EventLoop {
    /// Does this to the connections that are meant.
    pub(crate) fn apply(&mut self, op: &Op, selector: &Selector) -> Outcome {
        let mut answer = Outcome { connections: self.count(), ..Outcome::default() };
        let done = match op {
            Op::Count => self.choose(selector).len(),
            Op::List => {
                answer.list = self.list(selector);
                answer.list.len()
            }
            Op::Kill => self.each(selector, |event_loop, token| event_loop.kill_one(token)),
            Op::Tag(text) => {
                let tag = crate::protocol::tag(text);
                self.each(selector, |event_loop, token| event_loop.tag_one(token, &tag))
            }
            Op::Notify(bytes) => self.each(selector, |event_loop, token| {
                event_loop.note(token, Note::Bytes(bytes.clone()));
                true
            }),
            Op::SetOptions(options) => self.each(selector, |event_loop, token| event_loop.set_options_of(token, options)),
            Op::Options => {
                answer.options = self.choose(selector).into_iter().find_map(|token| self.options_of(token));
                usize::from(answer.options.is_some())
            }
            Op::Adopt => {
                answer.adopted = self.adopt(selector);
                answer.adopted.moved
            }
            Op::Ping(asked) => {
                answer.slowest = Duration::from_nanos(monotonic().saturating_sub(*asked));
                0
            }
            // What ends by a deadline is counted by the control plane, which asks for each step of it.
            Op::Drain(_) | Op::Purge(_) => 0,
        };
        Outcome { done, ..answer }
    }

    /// So many of those that are meant were there for it.
    fn each(&mut self, selector: &Selector, mut act: impl FnMut(&mut EventLoop, u64) -> bool) -> usize {
        self.choose(selector).into_iter().filter(|token| act(self, *token)).count()
    }

    fn adopt(&mut self, selector: &Selector) -> Adopted {
        let older = selector.clone().and(!Selector::Generation(self.shared.switch.current().id));
        let mut adopted = Adopted::default();
        for token in self.choose(&older) {
            let id = self.seats.at(token as u32).id;
            adopted.add(id, self.adopt_one(token));
        }
        adopted
    }

    /// The tokens of connections with a protocol that are meant. Those still connecting are of the active generation.
    pub(crate) fn choose(&mut self, selector: &Selector) -> Vec<u64> {
        let (uptime, needs_peer) = (self.start.elapsed(), selector.needs_peer());
        let mut chosen = Vec::new();
        for seat in 0..self.seats.len() {
            let place = self.seats.at(seat);
            if place.has_protocol() || place.flags.any(Flags::CONNECTING) {
                let traits = self.traits(seat, uptime, needs_peer);
                if selector.takes(&traits) {
                    chosen.push(self.seats.token(seat));
                }
            }
        }
        chosen
    }

    fn traits(&mut self, seat: u32, uptime: Duration, needs_peer: bool) -> Traits<'_> {
        let peer = if needs_peer { self.remote(seat) } else { None };
        let place = self.seats.at(seat);
        let (id, age) = (place.id, uptime.saturating_sub(Duration::from_secs(u64::from(place.opened))));
        let table = if place.flags.any(Flags::CONNECTING) { self.active } else { place.table };
        let generation = self.place(table).generation.id;
        let door = self.seats.at(seat).door;
        let listener = self.seats.permits.door(door).map(|door| &door.address);
        Traits { id, peer, age, generation, listener, tag: self.tags.get(seat).map(|tag| &**tag) }
    }

    /// Who is at the other end; None for a Unix socket, and for a connection that is gone.
    pub(super) fn remote(&mut self, seat: u32) -> Option<SocketAddr> {
        if self.seats.at(seat).flags.any(Flags::CONNECTING) {
            return self.connecting_to(seat);
        }
        self.with_socket(seat, |system, socket| system.peer_address(socket)).ok().flatten()
    }

    fn list(&mut self, selector: &Selector) -> Vec<ConnectionStatus> {
        let uptime = self.start.elapsed();
        self.choose(selector)
            .into_iter()
            .map(|token| {
                let Traits { id, generation, peer, age, listener, tag } = self.traits(token as u32, uptime, true);
                let (listener, tag) = (listener.cloned(), tag.map(str::to_owned));
                let (received, sent) = self.bytes_away(token as u32);
                let place = self.seats.at(token as u32);
                let carried = if place.flags.any(Flags::CONNECTING) { (0, 0) } else { (place.bytes_in, place.bytes_out) };
                ConnectionStatus {
                    id,
                    generation,
                    peer,
                    listener,
                    side: place.side(),
                    age,
                    bytes_in: carried.0 + received,
                    bytes_out: carried.1 + sent,
                    state: state(place),
                    draining: place.flags.any(Flags::DRAINING),
                    tag,
                }
            })
            .collect()
    }

    /// An event loop that only serves says what it serves, before the protocol can keep it from answering.
    pub(super) fn write_card(&mut self, seat: u32, peer: &Peer) {
        let Some(card) = self.card.clone() else { return };
        let (id, active) = (self.seats.at(seat).id, self.active);
        let generation = self.place(active).generation.id;
        let door = self.seats.at(seat).door;
        let door = self.seats.permits.door(door).cloned();
        let before = (self.counters.bytes_in().get(), self.counters.bytes_out().get());
        let (peer, side) = (peer.remote(), peer.side());
        card.write(Some(Written { id, generation, peer, door, side, tag: None, since: Instant::now(), before }));
    }

    /// False where it is gone, or was asked before.
    pub(crate) fn drain_one(&mut self, token: u64) -> bool {
        let Some(seat) = self.seats.find(token) else { return false };
        let place = self.seats.at(seat);
        let is_first = (place.has_protocol() || place.flags.any(Flags::CONNECTING)) && !place.flags.any(Flags::DRAINING);
        self.drain(seat);
        is_first
    }

    /// The protocol may say goodbye, and what is not sent within this time is lost.
    pub(crate) fn purge_one(&mut self, token: u64, within: Duration) {
        if let Some(seat) = self.seats.find(token) {
            self.purge(seat, within);
        }
    }

    /// Ends a connection with a reset.
    fn kill_one(&mut self, token: u64) -> bool {
        let Some(seat) = self.seats.find(token) else { return false };
        if self.seats.at(seat).flags.any(Flags::CONNECTING) {
            self.connect_failed(seat, Errno::CONNABORTED);
        } else {
            let id = self.seats.at(seat).id;
            self.end(seat, Closed::Killed, true);
            self.shared.tell(&Told::ConnectionKilled(id));
        }
        true
    }

    fn set_options_of(&mut self, token: u64, options: &SocketOptions) -> bool {
        let Some(seat) = self.seats.find(token) else { return false };
        self.with_socket(seat, |system, socket| system.set_options(socket, options)).is_ok()
    }

    fn options_of(&mut self, token: u64) -> Option<SocketOptions> {
        let seat = self.seats.find(token)?;
        self.with_socket(seat, |system, socket| system.options(socket)).ok()
    }

    /// Moves a connection to the newest generation: its state is saved by the old service and restored by the new one; socket,
    /// buffers and timer stay as they are.
    ///
    /// # Errors
    /// Why it stays where it is.
    fn adopt_one(&mut self, token: u64) -> Result<(), String> {
        let seat = self.seats.find(token).ok_or("it has ended")?;
        let flags = self.seats.at(seat).flags;
        let busy = [
            (Flags::CONNECTING, "it is still connecting"),
            (Flags::WORKING, "a job runs"),
            (Flags::LEAVING.and(Flags::AWAY), "it is delegated"),
            (Flags::FLUSHING.and(Flags::LINGERING), "it is ending"),
        ];
        if let Some((_, why)) = busy.into_iter().find(|(busy, _)| flags.any(*busy)) {
            return Err(why.to_owned());
        }
        let panicked = |Panicked(message)| format!("the new service panicked: {message}");
        self.refresh().map_err(panicked)?;
        let old = self.seats.at(seat).table;
        if old == self.active {
            return Err("it has the newest generation already".to_owned());
        }
        // Counted from here on, as at an accept: the generation cannot have ended before the connection moves to it.
        self.join_generation().map_err(panicked)?;
        let new = self.active;
        self.move_to(seat, old, new).inspect_err(|_| self.left_generation(new))
    }

    /// The rest of an adoption, once the connection is counted by the generation it moves to.
    fn move_to(&mut self, seat: u32, old: u16, new: u16) -> Result<(), String> {
        let remote = self.remote(seat);
        let place = self.seats.at(seat);
        let (slot, peer) = (place.slot, crate::protocol::Peer::new(remote, place.side()));
        let mut saver = Saver::default();
        // A panic in save or restore leaves the connection with its old state, as an error does.
        let saved = self.place(old).table.save(slot, &mut saver);
        saved.map_err(|Panicked(message)| format!("save panicked: {message}"))?.map_err(|why| why.to_string())?;
        let restored = self.place(new).table.restore(&peer, &mut Saved::new(&saver.bytes));
        let restored =
            restored.map_err(|Panicked(message)| format!("restore panicked: {message}"))?.map_err(|why| why.to_string())?;
        self.move_protocol(seat, new, restored);
        self.counters.adopted().add(1);
        Ok(())
    }

    fn move_protocol(&mut self, seat: u32, table: u16, slot: u32) {
        let old = self.seats.at(seat).table;
        if self.close_protocol(seat, Closed::Adopted).is_err() {
            self.counters.panics().add(1);
        }
        let place = self.seats.at(seat);
        (place.table, place.slot) = (table, slot);
        self.left_generation(old);
        let generation = self.place(table).generation.id;
        self.card.iter().for_each(|card| card.moved(generation));
    }

    /// Visits what each generation's service made for this loop.
    pub(crate) fn visit_locals(&mut self, visit: &mut dyn FnMut(&mut Local)) {
        for place in self.places.iter_mut().flatten() {
            visit(&mut *place.local);
        }
    }

    /// Keeps memory for so many connections ready.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        self.seats.reserve(capacity);
        let active = self.active;
        self.place(active).table.reserve(capacity);
    }

    /// Connections, lingering ones included.
    pub(crate) fn count(&self) -> usize {
        self.seats.taken()
    }

    /// The loop is going, by order or by its own fault: every connection ends, each under its own guard, and nothing more
    /// comes in.
    pub(crate) fn abandon(&mut self, why: Closed) {
        self.set_dialer(None);
        for seat in 0..self.seats.len() {
            if self.seats.at(seat).is_taken() {
                let end = std::panic::AssertUnwindSafe(|| self.cut(seat, why));
                let _ = std::panic::catch_unwind(end);
            }
        }
        let unplaced = self.take_unplaced().into_iter().map(Message::Adopt);
        let messages: Vec<Message> = unplaced.chain(self.unread.drain(..)).chain(self.inbox.close()).collect();
        messages.into_iter().for_each(|message| self.pass_on(message));
    }

    /// A message that this loop will not read: a connection that was on its way here goes to another loop, or waits for one;
    /// anything else is dropped, and may hold user values, whose Drop may do anything.
    fn pass_on(&self, message: Message) {
        let others: Vec<_> = lock(&self.shared.roster).iter().filter(|other| !Arc::ptr_eq(other, &self.inbox)).cloned().collect();
        let mut left = Some(message);
        if let Some(Message::Adopt(_)) = left {
            for other in others {
                left = left.take().and_then(|message| other.put(message).err());
            }
        }
        match left {
            Some(Message::Adopt(incoming)) => lock(&self.shared.stranded).push(incoming),
            left => _ = panics::discard(left),
        }
    }
}
