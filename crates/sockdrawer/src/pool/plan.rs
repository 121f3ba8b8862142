//! The steps from the running configuration to the wanted one. Pure: nothing here touches a socket or a thread.

use crate::config::{Config, Connecting, Endpoint};
use std::fmt;

/// What a change of configuration would do, setting by setting. Empty where nothing differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The differences.
    pub changes: Vec<Change>,
}

/// One setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub setting: &'static str,
    /// How it is carried out.
    pub how: How,
    /// From what to what, for people.
    pub detail: String,
}

/// How a change is carried out. None of them ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// At once, for all connections.
    InPlace,
    /// For connections accepted from then on; the others keep what they have.
    NewGeneration,
    /// A socket is opened or retired; the others stay.
    NewSocket,
    /// Not while the pool runs.
    Refused,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            How::InPlace => "in place",
            How::NewGeneration => "new generation",
            How::NewSocket => "new socket",
            How::Refused => "refused",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            return f.write_str("nothing to change");
        }
        for (index, change) in self.changes.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{}: {} ({})", change.setting, change.how, change.detail)?;
        }
        Ok(())
    }
}

impl Plan {
    /// Whether a setting changes in this way.
    pub fn has(&self, how: How) -> bool {
        self.changes.iter().any(|change| change.how == how)
    }

    fn note<T: PartialEq>(&mut self, setting: &'static str, how: How, from: &T, to: &T, show: impl Fn(&T) -> String) {
        if from != to {
            self.changes.push(Change { setting, how, detail: format!("{} to {}", show(from), show(to)) });
        }
    }
}

/// The one table of settings: what changes how.
pub(crate) fn plan(running: &Config, wanted: &Config) -> Plan {
    let mut plan = Plan::default();
    if !running.behaviour.is_same(&wanted.behaviour) {
        let detail = "another service".to_owned();
        plan.changes.push(Change { setting: "behaviour", how: How::NewGeneration, detail });
    }
    plan.note("settings", How::NewGeneration, &running.settings, &wanted.settings, |settings| format!("{settings:?}"));
    endpoint(&mut plan, &running.endpoint, &wanted.endpoint);
    plan.note("loops", How::InPlace, &running.loops, &wanted.loops, usize::to_string);
    plan.note("workers", How::InPlace, &running.workers, &wanted.workers, usize::to_string);
    plan.note("worker_queue", How::InPlace, &running.worker_queue, &wanted.worker_queue, usize::to_string);
    plan.note("capacity", How::InPlace, &running.capacity, &wanted.capacity, usize::to_string);
    plan.note("limit", How::InPlace, &running.limit, &wanted.limit, |limit| {
        limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
    });
    plan.note("on_full", How::InPlace, &running.on_full, &wanted.on_full, |on_full| format!("{on_full:?}"));
    plan.note("inbox", How::InPlace, &running.inbox, &wanted.inbox, usize::to_string);
    plan.note("restarts", How::InPlace, &running.restarts, &wanted.restarts, |restarts| format!("{restarts:?}"));
    plan.note("stuck_after", How::InPlace, &running.stuck_after, &wanted.stuck_after, |time| format!("{time:?}"));
    plan
}

fn endpoint(plan: &mut Plan, running: &Endpoint, wanted: &Endpoint) {
    match (running, wanted) {
        (Endpoint::Accept { listeners: from, backlog: old }, Endpoint::Accept { listeners: to, backlog: new }) => {
            for listening in to.iter().filter(|wanted| !from.contains(wanted)) {
                let detail = format!("listen on {}", listening.address);
                plan.changes.push(Change { setting: "listeners", how: How::NewSocket, detail });
            }
            for listening in from.iter().filter(|running| !to.contains(running)) {
                let detail = format!("stop listening on {}", listening.address);
                plan.changes.push(Change { setting: "listeners", how: How::NewSocket, detail });
            }
            plan.note("backlog", How::InPlace, old, new, u32::to_string);
        }
        (Endpoint::Connect(from), Endpoint::Connect(to)) => {
            let show = |connecting: &Connecting| format!("{connecting:?}");
            plan.note("connecting", How::InPlace, from, to, show);
        }
        _ => {
            let detail = "a pool accepts or connects for life: start another one".to_owned();
            plan.changes.push(Change { setting: "endpoint", how: How::Refused, detail });
        }
    }
}
