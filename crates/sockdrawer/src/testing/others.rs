//! What a connection under test has to do with others: notes, connects and relays.

use super::Driver;
use crate::net::Address;
use crate::protocol::{ConnectFailure, Handle, Note, Protocol, Service};
use std::time::Duration;

impl<S: Service> Driver<S> {
    /// Delivers a note at once. It is dropped if the connection has ended.
    pub fn notify(&mut self, note: impl Into<Note>) {
        let note = note.into();
        self.event(|protocol, _, cx| protocol.notified(note, cx));
    }

    /// A handle to this connection. Its notes arrive with [`Driver::deliver_notes`].
    pub fn handle(&self) -> Handle {
        Handle { post: self.wire.post.clone(), token: self.wire.id.0, id: self.wire.id }
    }

    /// Delivers the notes sent through handles so far, those that the protocol sent to itself included. Returns their number.
    pub fn deliver_notes(&mut self) -> usize {
        let notes = self.wire.inbox.take();
        let count = notes.len();
        notes.into_iter().for_each(|note| self.notify(note));
        count
    }

    /// Takes the connects that the protocol asked for, each with the time that it may take: see
    /// [`Context::connect`](crate::Context::connect). The test tells what came of
    /// them by [`Driver::connected`].
    pub fn connects(&mut self) -> Vec<(Address, Duration)> {
        std::mem::take(&mut self.wire.connects)
    }

    /// Tells the protocol what came of a connect: the handle of another driver, or why there is no connection.
    pub fn connected(&mut self, result: Result<Handle, ConnectFailure>) {
        self.event(|protocol, _, cx| protocol.connected(result, cx));
    }

    /// The connection that this one is joined with by [`Step::Relay`](crate::Step::Relay); the test's own bytes are not relayed.
    pub fn relays_to(&self) -> Option<&Handle> {
        self.wire.relays_to.as_ref()
    }
}
