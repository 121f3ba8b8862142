//! What the connections of a loop are called, beside their seats: few have a tag, and those that have none cost nothing.

use super::Flow;
use crate::protocol::Tag;
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

impl Flow {
    /// Does what a callback said about the tag of its connection.
    #[inline]
    pub(super) fn take_tag(&mut self, seat: u32) {
        if let Some(tag) = self.scratch.tag.take() {
            self.set_tag(seat, tag);
        }
    }

    /// Names a connection, by order of the control plane or of a handle.
    pub(crate) fn tag_one(&mut self, token: u64, tag: &Tag) -> bool {
        let found = self.seats.find(token).filter(|seat| self.seats.at(*seat).has_protocol());
        found.inspect(|seat| self.set_tag(*seat, tag.clone())).is_some()
    }

    fn set_tag(&mut self, seat: u32, tag: Tag) {
        self.card.iter().for_each(|card| card.tagged(tag.clone()));
        self.tags.set(seat, tag);
    }
}
