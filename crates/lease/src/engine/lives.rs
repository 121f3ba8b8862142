//! Connections by name, wherever they are, with what became known of their ends.

use super::ids::{JobId, TargetId};
use crate::stats::Reason;
use std::collections::BTreeMap;

/// Connections that are the pool's, from the begin of their connects on.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<JobId, Life>);

#[derive(Debug)]
struct Life {
    target: TargetId,
    /// The first reason that was told for its end.
    gone: Option<Reason>,
}

impl Lives {
    pub(super) fn begin(&mut self, name: JobId, target: TargetId) {
        self.0.insert(name, Life { target, gone: None });
    }

    pub(super) fn end(&mut self, name: JobId) {
        self.0.remove(&name);
    }

    /// Notes that a connection has gone. Returns its target; None where it is not the pool's any more.
    pub(super) fn go(&mut self, name: JobId, reason: Reason) -> Option<TargetId> {
        let life = self.0.get_mut(&name)?;
        life.gone.get_or_insert(reason);
        Some(life.target)
    }

    /// Notes that all connections to a target have gone.
    pub(super) fn go_all(&mut self, target: TargetId, reason: Reason) {
        let lives = self.0.values_mut().filter(|life| life.target == target);
        lives.for_each(|life| _ = life.gone.get_or_insert(reason));
    }

    pub(super) fn gone(&self, name: JobId) -> Option<Reason> {
        self.0.get(&name)?.gone
    }
}
