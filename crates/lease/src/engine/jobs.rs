//! Connects, checks, resets and closes that are under way.

use super::ids::{JobId, Kind, TargetId};
use super::slot::Slot;
use super::timers::Timers;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: TargetId,
    pub(super) kind: Kind,
    /// Slot of the connection; none for a connect.
    pub(super) slot: Option<Slot>,
    pub(super) began: Instant,
    pub(super) due: Option<Instant>,
    pub(super) late: bool,
}

#[derive(Debug)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, Running>,
    pub(super) due: Timers<JobId>,
}

impl Jobs {
    pub(super) fn new() -> Self {
        Jobs { all: BTreeMap::new(), due: Timers::new() }
    }

    pub(super) fn begin(&mut self, id: JobId, job: Running) {
        self.due.change(id, None, job.due);
        self.all.insert(id, job);
    }

    pub(super) fn end(&mut self, id: JobId) -> Option<Running> {
        let job = self.all.remove(&id)?;
        self.due.change(id, job.due, None);
        Some(job)
    }

    /// Marks the job as late. Returns its target and kind, unless it was late before.
    pub(super) fn late(&mut self, id: JobId) -> Option<(TargetId, Kind)> {
        let job = self.all.get_mut(&id).filter(|job| !job.late)?;
        job.late = true;
        self.due.change(id, job.due.take(), None);
        Some((job.target, job.kind))
    }

    pub(super) fn is_late(&self, id: JobId) -> bool {
        self.all.get(&id).is_some_and(|job| job.late)
    }

    /// Returns all but the closes.
    pub(super) fn unfinished(&self) -> Vec<JobId> {
        self.all.iter().filter(|(_, job)| job.kind != Kind::Close).map(|(id, _)| *id).collect()
    }

    /// Returns how many of all connections are above the maximum, without those that are being closed.
    pub(super) fn surplus(&self, total: usize, max: usize) -> usize {
        if total <= max { 0 } else { (total - self.closing(true)).saturating_sub(max) }
    }

    /// Returns how many closes are under way, late ones too or not.
    pub(super) fn closing(&self, with_late: bool) -> usize {
        self.all.values().filter(|job| job.kind == Kind::Close && (with_late || !job.late)).count()
    }
}
