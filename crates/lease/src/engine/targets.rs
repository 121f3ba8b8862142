//! Targets by name, and their sums.

use super::Status;
use super::free::Free;
use super::ids::{Ids, TargetId, WaiterId};
use super::rules::Rules;
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

    /// Returns the target's id, under which it is kept from now on.
    pub(super) fn keep(&mut self, name: &K, ids: &mut Ids, rules: &Rules) -> TargetId {
        let id = self.find(name).unwrap_or_else(|| {
            let id = TargetId(ids.next());
            self.names.insert(name.clone(), id);
            self.all.insert(id, TargetState::new(name.clone(), rules.settings.policy));
            id
        });
        let target = self.get_mut(id);
        (target.kept, target.moves) = (true, false);
        id
    }

    pub(super) fn remove(&mut self, id: TargetId) {
        if let Some(target) = self.all.remove(&id) {
            self.names.remove(&target.name);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, id: TargetId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: TargetId) -> &TargetState<K, C> {
        self.all.get(&id).expect("a target stays while it is in use")
    }

    pub(super) fn find_mut(&mut self, id: TargetId) -> Option<&mut TargetState<K, C>> {
        self.all.get_mut(&id)
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
    pub(super) fn in_want(&self, id: TargetId) -> Vec<TargetId> {
        if self.all.len() == 1 {
            return self.ids();
        }
        let is_short = |target: &TargetState<K, C>| target.short_since.is_some() || target.owed > 0;
        let wants = self.all.iter().filter(|(other, target)| **other == id || !target.line.is_empty() || is_short(target));
        let mut wants: Vec<_> = wants.map(|(id, target)| (target.line.oldest().unwrap_or(WaiterId::MAX), *id)).collect();
        wants.sort_unstable();
        wants.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns whether another target has no connection at all, could make one, and has waited for longer than `next`.
    pub(super) fn starves_another(&self, now: Instant, next: WaiterId, rules: &Rules) -> bool {
        let starves = |(id, target): (&TargetId, &TargetState<K, C>)| {
            *id != next.target
                && target.count() == 0
                && target.line.oldest().is_some_and(|waiter| waiter < next)
                && rules.may_connect(now, target)
        };
        self.all.len() > 1 && self.all.iter().any(starves)
    }

    /// Takes the connection out that is free for longest, of any target but this.
    pub(super) fn take_longest_free(&mut self, but: TargetId) -> Option<Free<C>> {
        let others = self.all.iter().filter(|(id, _)| **id != but);
        let (_, id) = others.filter_map(|(id, target)| Some((target.free.longest()?.since, *id))).min()?;
        self.get_mut(id).free.take_longest()
    }

    /// Takes the free connection out that was connected first.
    pub(super) fn take_oldest_free(&mut self) -> Option<Free<C>> {
        let (_, id) = self.all.iter().filter_map(|(id, target)| Some((target.free.born()?, *id))).min()?;
        self.get_mut(id).free.take_oldest()
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
