//! What the connections of a loop are called, beside their seats: few have a tag, and those that have none cost nothing.

use super::EventLoop;
use crate::observe::Event;
use crate::protocol::{Said, Tag};
use std::collections::HashMap;

/// Tags, by the seats of their connections.
#[derive(Default)]
pub(crate) struct Tags(HashMap<u32, Tag>);

impl Tags {
    pub(crate) fn get(&self, seat: u32) -> Option<&Tag> {
        if self.0.is_empty() { None } else { self.0.get(&seat) }
    }

    /// An empty one is none.
    pub(crate) fn set(&mut self, seat: u32, tag: Tag) {
        if tag.is_empty() {
            self.0.remove(&seat);
        } else {
            self.0.insert(seat, tag);
        }
    }

    /// The seat is another connection's from now on, or nobody's.
    #[inline]
    pub(crate) fn forget(&mut self, seat: u32) {
        if !self.0.is_empty() {
            self.remove(seat);
        }
    }

    #[cold]
    fn remove(&mut self, seat: u32) {
        self.0.remove(&seat);
    }
}

impl EventLoop {
    /// Does what a callback said about its connection.
    #[inline]
    pub(super) fn hear(&mut self, seat: u32) {
        if let Some(said) = self.scratch.said.take() {
            self.heard(seat, *said);
        }
    }

    #[cold]
    fn heard(&mut self, seat: u32, said: Said) {
        if let Some(tag) = said.tag {
            self.set_tag(seat, tag);
        }
        if let Some(message) = said.report {
            let id = self.seats.at(seat).id;
            self.tell_some(Event::Reported { id, message });
        }
    }

    /// Names a connection, by order of the control plane or of a handle.
    pub(super) fn tag_one(&mut self, token: u64, tag: &Tag) -> bool {
        let found = self.seats.find(token).filter(|seat| self.seats.at(*seat).has_protocol());
        found.inspect(|seat| self.set_tag(*seat, tag.clone())).is_some()
    }

    fn set_tag(&mut self, seat: u32, tag: Tag) {
        self.card.iter().for_each(|card| card.tagged(tag.clone()));
        self.tags.set(seat, tag);
    }
}
