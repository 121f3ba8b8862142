//! Targets by name, and their sums.

use super::Status;
use super::ids::{TargetId, WaiterId};
use super::rules::Rules;
use super::slot::Free;
use super::target::TargetState;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Targets<K, C> {
    names: HashMap<K, TargetId>,
    all: BTreeMap<TargetId, TargetState<K, C>>,
    /// Places within the limits that are taken.
    pub(super) total: usize,
}

impl<K: Clone + Eq + Hash, C> Targets<K, C> {
    pub(super) fn new() -> Self {
        Targets { names: HashMap::new(), all: BTreeMap::new(), total: 0 }
    }

    pub(super) fn find(&self, name: &K) -> Option<TargetId> {
        self.names.get(name).copied()
    }

    pub(super) fn insert(&mut self, id: TargetId, name: &K) {
        self.names.insert(name.clone(), id);
        self.all.insert(id, TargetState::new(name.clone()));
    }

    pub(super) fn remove(&mut self, id: TargetId) {
        if let Some(target) = self.all.remove(&id) {
            self.names.remove(&target.name);
        }
    }

    pub(super) fn contains(&self, id: TargetId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: TargetId) -> &TargetState<K, C> {
        self.all.get(&id).expect("a target stays while it is in use")
    }

    pub(super) fn get_mut(&mut self, id: TargetId) -> &mut TargetState<K, C> {
        self.all.get_mut(&id).expect("a target stays while it is in use")
    }

    pub(super) fn ids(&self) -> Vec<TargetId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TargetState<K, C>> {
        self.all.values_mut()
    }

    /// Returns this target and those that want a connection: those with waiters first, in the order in which these came.
    pub(super) fn in_want(&self, id: TargetId, rules: &Rules) -> Vec<TargetId> {
        if self.all.len() == 1 {
            return self.ids();
        }
        let wants = self.all.iter().filter(|(other, target)| **other == id || rules.wanted(target) > 0);
        let mut wants: Vec<_> =
            wants.map(|(id, target)| (target.waiters.first().map_or(u64::MAX, |first| first.0), *id)).collect();
        wants.sort_unstable();
        wants.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns whether another target has no connection at all, could make one, and has waited for longer than `first`.
    pub(super) fn starves_another(&self, now: Instant, first: WaiterId, rules: &Rules) -> bool {
        let starves = |target: &TargetState<K, C>| {
            target.count() == 0 && target.waiters.first().is_some_and(|waiter| *waiter < first) && rules.may_connect(now, target)
        };
        self.all.len() > 1 && self.all.values().any(starves)
    }

    /// Takes the connection out that is free for longest, of any target but this.
    pub(super) fn take_longest_free(&mut self, but: Option<TargetId>) -> Option<Free<C>> {
        let others = self.all.iter().filter(|(id, _)| Some(**id) != but);
        let (_, id) = others.filter_map(|(id, target)| Some((target.free.front()?.since, *id))).min()?;
        self.get_mut(id).free.pop_front()
    }

    pub(super) fn status(&self, waiting: usize) -> Status {
        let mut status = Status { waiting, ..Status::default() };
        for target in self.all.values() {
            status.free += target.free.len();
            status.leased += target.leased;
            status.connecting += target.connecting();
            status.checking += target.checking();
            status.closing += target.closing();
        }
        status
    }
}
