//! The pools of a program by name. A running program may start more of them, and end some.

use super::NamedPool;
use crate::error::Error;
use crate::net::Address;
use crate::pool::moving::Movable;
use crate::sync::{Mutex, MutexGuard, lock};
use std::sync::{Arc, Weak};

/// The pools of this process that the next successor is offered.
#[derive(Default, Debug)]
pub(super) struct Pools(Mutex<List>);

#[derive(Default)]
struct List {
    stage: PoolStage,
    /// Pools that take no connection before [`Upgrade::ready`](super::Upgrade::ready).
    waiting: Vec<NamedPool>,
    /// Pools that were opened, and may have stopped.
    opened: Vec<(String, Weak<dyn Movable>)>,
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.waiting.iter().map(|named| &named.name).chain(self.opened.iter().map(|(name, _)| name));
        f.debug_list().entries(names).finish()
    }
}

#[derive(Default, Clone, Copy, PartialEq)]
enum PoolStage {
    /// [`Upgrade::ready`](super::Upgrade::ready) is still to come.
    #[default]
    Prepares,
    /// Pools change owner: from a predecessor, where `ready` has not returned or has failed; or to a successor.
    HandsOver,
    Serves,
}

impl List {
    fn may_start(&self, name: &str) -> Result<(), Error> {
        if self.stage == PoolStage::HandsOver {
            return Err(Error::HandingOver {
                reason: "this process takes over, or is replaced: start its pools in the next one",
            });
        }
        let mut waiting = self.waiting.iter().map(|named| &named.name);
        if waiting.any(|other| other == name) || self.running().any(|(other, _)| other == name) {
            let reason = format!("a pool {name} runs already: shut it down before, or choose another name");
            return Err(Error::Invalid { setting: "name", reason });
        }
        Ok(())
    }

    /// Returns the pools that neither end nor have ended.
    fn running(&self) -> impl Iterator<Item = (&String, Arc<dyn Movable>)> {
        self.opened.iter().filter_map(|(name, pool)| Some((name, pool.upgrade().filter(|pool| pool.is_running())?)))
    }

    fn open(&mut self, NamedPool { name, pool, .. }: &NamedPool) {
        self.opened.retain(|(_, pool)| pool.strong_count() > 0);
        self.opened.push((name.clone(), Arc::downgrade(pool)));
    }
}

impl Pools {
    fn list(&self) -> MutexGuard<'_, List> {
        lock(&self.0)
    }

    /// Fails unless a pool of this name may be started now.
    pub(super) fn may_start(&self, name: &str) -> Result<(), Error> {
        self.list().may_start(name)
    }

    /// Adds a pool that has started and takes no connection before `ready`; or from now on, where that has been.
    pub(super) fn add(&self, named: NamedPool) -> Result<(), Error> {
        let mut list = self.list();
        list.may_start(&named.name)?;
        if list.stage == PoolStage::Prepares {
            list.waiting.push(named);
            return Ok(());
        }
        list.open(&named);
        // With the lock: a successor is offered pools that are open.
        named.pool.open();
        Ok(())
    }

    /// Takes the pools that wait for `ready`, which happens once. None: it has been.
    pub(super) fn take_waiting(&self) -> Option<Vec<NamedPool>> {
        let mut list = self.list();
        (list.stage == PoolStage::Prepares).then(|| {
            list.stage = PoolStage::HandsOver;
            std::mem::take(&mut list.waiting)
        })
    }

    /// Notes that these pools are open now.
    pub(super) fn serve(&self, opened: &[NamedPool]) {
        let mut list = self.list();
        opened.iter().for_each(|named| list.open(named));
        list.stage = PoolStage::Serves;
    }

    /// Returns whether none runs, and no predecessor or successor has them, or may have.
    pub(super) fn have_ended(&self) -> bool {
        let list = self.list();
        list.stage != PoolStage::HandsOver && list.running().next().is_none()
    }

    /// Returns the pools that a successor is offered.
    pub(super) fn offered(&self) -> Vec<NamedPool> {
        let named = |(name, pool): (&String, _)| NamedPool { name: name.clone(), pool, given_up: Vec::<Address>::new() };
        self.list().running().map(named).collect()
    }

    /// Ends the adding of pools. Returns false where there is one that was not offered.
    pub(super) fn hand_over(&self, offered: &[NamedPool]) -> bool {
        let mut list = self.list();
        let is_offered =
            |pool: &Arc<dyn Movable>| offered.iter().any(|named| std::ptr::addr_eq(Arc::as_ptr(&named.pool), Arc::as_ptr(pool)));
        let all = list.running().all(|(_, pool)| is_offered(&pool));
        if all {
            list.stage = PoolStage::HandsOver;
        }
        all
    }

    /// Goes on with the pools: the successor has failed.
    pub(super) fn take_back(&self) {
        self.list().stage = PoolStage::Serves;
    }
}
