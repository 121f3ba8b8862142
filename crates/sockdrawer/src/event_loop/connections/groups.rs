//! The members of groups in this loop. A message of a group is taken from the inbox once, and all members get it.

use super::Connections;
use super::calling::Tail;
use crate::behaviour::Event;
use crate::event_loop::inbox::Message;
use crate::event_loop::slot::Flags;
use crate::protocol::{Members, Membership, Note, Urgency};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Messages of one group that follow each other are delivered together, up to so many bytes: each member is sent them by one call.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// With so many members a message is copied once, so that the loops do not count references to it in one place of memory.
const COPIED_FOR: usize = 16;

/// The tokens of the members in this loop.
pub(super) type Groups = HashMap<Arc<Members>, Vec<u64>>;

impl Connections {
    /// A connection comes into a group, or leaves it.
    pub(in crate::event_loop) fn change_membership(&mut self, token: u64, group: &Arc<Members>, change: Membership) {
        let slot = self.slots.with_protocol(token);
        let known = slot.and_then(|slot| self.slots.extra(slot)).map(|extra| &extra.groups);
        let at = known.and_then(|groups| groups.iter().position(|(of, _)| Arc::ptr_eq(of, group)));
        match (change, slot, at) {
            (Membership::Joined, Some(slot), None) => {
                let tokens = self.groups.entry(group.clone()).or_default();
                tokens.push(token);
                let place = tokens.len() - 1;
                self.slots.make_extra(slot).groups.push((group.clone(), place));
                group.joined(self.post_address());
            }
            // It was counted before it came here.
            (Membership::Joined, ..) => group.left(self.post_address(), false),
            (Membership::Left, Some(slot), Some(at)) => {
                if let Some(extra) = self.slots.extra_of(slot) {
                    let (group, place) = extra.groups.swap_remove(at);
                    self.remove_member(&group, place);
                }
            }
            (Membership::Left, ..) => {}
        }
    }

    /// The connection that had these memberships ends, or goes elsewhere.
    pub(super) fn leave_groups(&mut self, groups: Vec<(Arc<Members>, usize)>) {
        groups.into_iter().for_each(|(group, place)| self.remove_member(&group, place));
    }

    /// By which groups know this loop.
    fn post_address(&self) -> *const () {
        Arc::as_ptr(&self.post).cast()
    }

    fn remove_member(&mut self, group: &Arc<Members>, place: usize) {
        group.left(self.post_address(), true);
        let Some(tokens) = self.groups.get_mut(group) else { return };
        tokens.swap_remove(place);
        if tokens.is_empty() {
            self.groups.remove(group);
            return;
        }
        // The last one has its place now.
        let Some(moved) = tokens.get(place).copied() else { return };
        let groups = self.slots.find(moved).and_then(|slot| self.slots.extra_of(slot)).map(|extra| &mut extra.groups);
        if let Some((_, of_moved)) = groups.and_then(|groups| groups.iter_mut().find(|(of, _)| Arc::ptr_eq(of, group))) {
            *of_moved = place;
        }
    }

    /// Delivers a message of a group, and those that follow it in the inbox.
    pub(in crate::event_loop) fn published(
        &mut self,
        group: &Arc<Members>,
        first: Arc<[u8]>,
        urgency: Urgency,
        unread: &mut VecDeque<Message>,
    ) {
        let (mut bytes, mut messages) = (first.len(), vec![first]);
        while let Some(Message::Published(of, next, as_urgent)) = unread.front() {
            bytes += next.len();
            if !Arc::ptr_eq(of, group) || *as_urgent != urgency || bytes > BYTES_AT_ONCE {
                break;
            }
            if let Some(Message::Published(_, next, _)) = unread.pop_front() {
                messages.push(next);
            }
        }
        // A copy: members come and go by what the callbacks do.
        let Some(tokens) = self.groups.get(group).cloned() else { return };
        if tokens.len() >= COPIED_FOR {
            messages.iter_mut().for_each(|message| *message = Arc::from(&message[..]));
        }
        for token in tokens {
            self.deliver(token, &messages, urgency);
        }
    }

    /// Calls a member for each message, and sends what it appends by one call.
    fn deliver(&mut self, token: u64, messages: &[Arc<[u8]>], urgency: Urgency) {
        let Some(slot) = self.slots.with_protocol(token) else { return };
        let held = !self.slots.at(slot).may_receive();
        let mut left = messages.iter();
        while self.slots.at(slot).is_open()
            && !self.slots.at(slot).flags.any(Flags::FULL)
            && let Some(message) = left.next()
        {
            self.io.counters.notes().add(1);
            let answer = self.dispatch(slot, Event::Notified(&mut Some(Note::Bytes(message.clone()))));
            self.act(slot, answer, Tail::Unknown, left.len() > 0);
            if !self.slots.at(slot).has_protocol() {
                return;
            }
        }
        if self.send(slot, false) {
            self.input_goes_on(slot, held);
            self.settle(slot, false);
        }
        left.for_each(|message| self.note(token, Note::Bytes(message.clone()), urgency));
    }
}
