//! The members of groups in one loop.

use super::slots::Slots;
use crate::protocol::{GroupMembers, Membership, Post};
use std::collections::HashMap;
use std::sync::Arc;

/// The tokens of the members of each group in one loop.
pub(super) struct LoopGroups {
    members: HashMap<Arc<GroupMembers>, Vec<u64>>,
    post: Arc<dyn Post>,
}

impl LoopGroups {
    pub(super) fn new(post: Arc<dyn Post>) -> LoopGroups {
        LoopGroups { members: HashMap::new(), post }
    }

    /// Lets a connection into a group, or out of it.
    pub(super) fn change(&mut self, slots: &mut Slots, token: u64, group: &Arc<GroupMembers>, change: Membership) {
        let slot = slots.with_protocol(token);
        let known = slot.and_then(|slot| slots.extra(slot)).map(|extra| &extra.groups);
        let at = known.and_then(|groups| groups.iter().position(|(of, _)| Arc::ptr_eq(of, group)));
        match (change, slot, at) {
            (Membership::Joined, Some(slot), None) => {
                let tokens = self.members.entry(group.clone()).or_default();
                tokens.push(token);
                let place = tokens.len() - 1;
                slots.make_extra(slot).groups.push((group.clone(), place));
                group.joined(self.address());
            }
            // It was counted before it came here.
            (Membership::Joined, ..) => group.left(self.address(), false),
            (Membership::Left, Some(slot), Some(at)) => {
                if let Some(extra) = slots.extra_of(slot) {
                    let (group, place) = extra.groups.swap_remove(at);
                    self.remove(slots, &group, place);
                }
            }
            (Membership::Left, ..) => {}
        }
    }

    /// Leaves the groups of a connection that had these memberships, and ends, or goes elsewhere.
    pub(super) fn leave(&mut self, slots: &mut Slots, groups: Vec<(Arc<GroupMembers>, usize)>) {
        groups.into_iter().for_each(|(group, place)| self.remove(slots, &group, place));
    }

    /// Returns the members of a group here: a copy, because they come and go by what callbacks do.
    pub(super) fn members(&self, group: &Arc<GroupMembers>) -> Option<Vec<u64>> {
        self.members.get(group).cloned()
    }

    /// Returns the address by which groups know this loop.
    pub(super) fn address(&self) -> *const () {
        Arc::as_ptr(&self.post).cast()
    }

    fn remove(&mut self, slots: &mut Slots, group: &Arc<GroupMembers>, place: usize) {
        group.left(self.address(), true);
        let Some(tokens) = self.members.get_mut(group) else { return };
        tokens.swap_remove(place);
        if tokens.is_empty() {
            self.members.remove(group);
            return;
        }
        // The last one has its place now.
        let Some(moved) = tokens.get(place).copied() else { return };
        let groups = slots.find(moved).and_then(|slot| slots.extra_of(slot)).map(|extra| &mut extra.groups);
        if let Some((_, of_moved)) = groups.and_then(|groups| groups.iter_mut().find(|(of, _)| Arc::ptr_eq(of, group))) {
            *of_moved = place;
        }
    }
}
