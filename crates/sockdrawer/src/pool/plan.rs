//! The steps from the running configuration to the wanted one. Pure: nothing here touches a socket or a thread.

use crate::admission::{Admission, OnFull};
use crate::config::{Config, Connecting, Endpoint, Listening, Settings};
use crate::net::{Address, Keepalive, SocketOptions};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The changes that a new configuration would make, setting by setting. Empty where nothing differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The differences.
    pub changes: Vec<Change>,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of the setting.
    pub setting: &'static str,
    /// The way in which it is carried out.
    pub how: How,
    /// The old and the new value, for people.
    pub detail: String,
}

/// The way in which a change is carried out. No change ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// The change is made at once, for all connections.
    InPlace,
    /// The change is for connections accepted from then on; the others keep what they have.
    NewGeneration,
    /// A socket is opened or retired; the others stay.
    NewSocket,
    /// The change cannot be made while the pool runs.
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
    /// Returns true where a setting changes in this way.
    pub fn has(&self, how: How) -> bool {
        self.changes.iter().any(|change| change.how == how)
    }

    fn note<T: PartialEq>(&mut self, setting: &'static str, how: How, from: &T, to: &T, show: impl Fn(&T) -> String) {
        if from != to {
            self.changes.push(Change { setting, how, detail: format!("{} to {}", show(from), show(to)) });
        }
    }
}

/// Compares all settings: the one table of what changes how.
pub(crate) fn plan(running: &Config, wanted: &Config) -> Plan {
    let mut plan = Plan::default();
    if !running.behaviour.is_same(&wanted.behaviour) {
        let detail = "another service".to_owned();
        plan.changes.push(Change { setting: "behaviour", how: How::NewGeneration, detail });
    }
    settings(&mut plan, &running.settings, &wanted.settings);
    endpoint(&mut plan, &running.endpoint, &wanted.endpoint);
    plan.note("model", How::Refused, &running.model, &wanted.model, |model| model.name().to_owned());
    plan.note("processes", How::InPlace, &running.processes, &wanted.processes, usize::to_string);
    plan.note("loops", How::InPlace, &running.loops, &wanted.loops, usize::to_string);
    plan.note("workers", How::InPlace, &running.workers, &wanted.workers, usize::to_string);
    plan.note("stack", How::InPlace, &running.stack, &wanted.stack, usize::to_string);
    plan.note("worker_queue", How::InPlace, &running.worker_queue, &wanted.worker_queue, usize::to_string);
    plan.note("delegates", How::InPlace, &running.delegates, &wanted.delegates, usize::to_string);
    plan.note("capacity", How::InPlace, &running.capacity, &wanted.capacity, usize::to_string);
    plan.note("spin", How::InPlace, &running.spin, &wanted.spin, |time| format!("{time:?}"));
    plan.note("limit", How::InPlace, &running.limit, &wanted.limit, |limit| {
        limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
    });
    plan.note("spare", How::InPlace, &running.spare, &wanted.spare, usize::to_string);
    admission(&mut plan, running, wanted);
    plan.note("alarms", How::InPlace, &running.alarms, &wanted.alarms, |alarms| {
        let all: Vec<String> = alarms.iter().map(|alarm| format!("{}/{}", alarm.at, alarm.clear_at)).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(" ") }
    });
    plan.note("max_generations", How::InPlace, &running.max_generations, &wanted.max_generations, |most| {
        most.map_or_else(|| "any number".to_owned(), |most| most.to_string())
    });
    plan.note("inbox", How::InPlace, &running.inbox, &wanted.inbox, usize::to_string);
    let (from, to) = (&running.restarts, &wanted.restarts);
    plan.note("restarts.max", How::InPlace, &from.max, &to.max, usize::to_string);
    plan.note("restarts.within", How::InPlace, &from.within, &to.within, |time| format!("{time:?}"));
    plan.note("restarts.pause", How::InPlace, &from.pause, &to.pause, |time| format!("{time:?}"));
    if !is_same(running.observer.as_ref(), wanted.observer.as_ref()) {
        plan.changes.push(Change { setting: "observer", how: How::InPlace, detail: "another observer".to_owned() });
    }
    if !is_same(running.listen_by.as_ref(), wanted.listen_by.as_ref()) {
        let detail = "another maker of listening sockets, from now on".to_owned();
        plan.changes.push(Change { setting: "listen_by", how: How::InPlace, detail });
    }
    plan.note("stuck_after", How::InPlace, &running.stuck_after, &wanted.stuck_after, |time| format!("{time:?}"));
    plan
}

fn is_same<T: ?Sized>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Limits that are data are compared one by one.
fn admission(plan: &mut Plan, running: &Config, wanted: &Config) {
    let now = How::InPlace;
    match (running.limits(), wanted.limits()) {
        (Some(from), Some(to)) => {
            plan.note("admission.on_full", now, &from.on_full, &to.on_full, |on_full| match on_full {
                OnFull::Backpressure => "backpressure".to_owned(),
                OnFull::Reject(_) => "reject".to_owned(),
            });
            plan.note("admission.rate", now, &from.rate, &to.rate, |rate| {
                rate.as_ref()
                    .map_or_else(|| "none".to_owned(), |rate| format!("{} per second, {} at once", rate.per_second, rate.burst))
            });
            plan.note("admission.per_peer", now, &from.per_peer, &to.per_peer, |most| {
                most.as_ref().map_or_else(|| "none".to_owned(), |most| format!("{}/{}", most.max, most.prefixes.v4))
            });
        }
        _ if is_same_policy(&*running.admission, &*wanted.admission) => {}
        _ => plan.changes.push(Change { setting: "admission", how: now, detail: "another policy".to_owned() }),
    }
}

/// Compares the options of accepted sockets.
fn options(plan: &mut Plan, running: &SocketOptions, wanted: &SocketOptions) {
    let new = How::NewGeneration;
    fn bytes(size: &Option<u32>) -> String {
        size.map_or_else(|| "the kernel's choice".to_owned(), |bytes| bytes.to_string())
    }
    plan.note("settings.options.nodelay", new, &running.nodelay, &wanted.nodelay, bool::to_string);
    plan.note("settings.options.keepalive", new, &running.keepalive, &wanted.keepalive, |keepalive| {
        let show = |one: &Keepalive| format!("{:?}, every {:?}, {} probes", one.idle, one.interval, one.probes);
        keepalive.as_ref().map_or_else(|| "none".to_owned(), show)
    });
    plan.note("settings.options.user_timeout", new, &running.user_timeout, &wanted.user_timeout, |time| {
        time.map_or_else(|| "none".to_owned(), |time| format!("{time:?}"))
    });
    plan.note("settings.options.receive_buffer", new, &running.receive_buffer, &wanted.receive_buffer, bytes);
    plan.note("settings.options.send_buffer", new, &running.send_buffer, &wanted.send_buffer, bytes);
}

fn settings(plan: &mut Plan, running: &Settings, wanted: &Settings) {
    let new = How::NewGeneration;
    options(plan, &running.options, &wanted.options);
    plan.note("settings.high_water", new, &running.high_water, &wanted.high_water, usize::to_string);
    plan.note("settings.low_water", new, &running.low_water, &wanted.low_water, usize::to_string);
    plan.note("settings.max_partial", new, &running.max_partial, &wanted.max_partial, usize::to_string);
    plan.note("settings.max_unsent", new, &running.max_unsent, &wanted.max_unsent, |max| {
        max.map_or_else(|| "none".to_owned(), |max| max.to_string())
    });
    plan.note("settings.idle", new, &running.idle, &wanted.idle, |time| {
        time.map_or_else(|| "none".to_owned(), |time| format!("{time:?}"))
    });
    plan.note("settings.linger", new, &running.linger, &wanted.linger, |time| format!("{time:?}"));
    plan.note("settings.flush", new, &running.flush, &wanted.flush, |time| format!("{time:?}"));
}

/// Returns the listeners of `these` that `those` have not, each as often as it is missing: port 0 may be asked for twice.
pub(super) fn difference<'a>(these: &'a [Listening], those: &[Listening]) -> Vec<&'a Listening> {
    let mut left: Vec<&Listening> = those.iter().collect();
    let mut missing = |listening: &Listening| match left.iter().position(|other| other.is_same_place(listening)) {
        Some(found) => {
            left.swap_remove(found);
            false
        }
        None => true,
    };
    these.iter().filter(|listening| missing(listening)).collect()
}

/// The changes of the listening sockets.
pub(super) struct Sockets<'a> {
    pub(super) added: Vec<&'a Listening>,
    pub(super) removed: Vec<&'a Listening>,
    /// Pairs of the old and the new, at the same address with other options.
    pub(super) replaced: Vec<(&'a Listening, &'a Listening)>,
}

impl<'a> Sockets<'a> {
    pub(super) fn between(running: &'a [Listening], wanted: &'a [Listening]) -> Sockets<'a> {
        let (mut added, mut removed) = (difference(wanted, running), difference(running, wanted));
        let mut replaced = Vec::new();
        added.retain(|new| {
            let same = |old: &&Listening| old.address == new.address && old.inherited.is_none() && new.inherited.is_none();
            let found = removed.iter().position(same);
            found.into_iter().for_each(|at| replaced.push((removed.remove(at), *new)));
            found.is_none()
        });
        Sockets { added, removed, replaced }
    }
}

/// Compares the limits and layers of addresses that stay.
fn limits(plan: &mut Plan, running: &[Listening], wanted: &[Listening]) {
    let mut left: Vec<&Listening> = wanted.iter().collect();
    for from in running {
        let Some(at) = left.iter().position(|to| to.is_same_place(from)) else { continue };
        let to = left.swap_remove(at);
        if to.layers != from.layers {
            let detail = format!("other layers on {}", from.address);
            plan.changes.push(Change { setting: "listeners.layers", how: How::NewGeneration, detail });
        }
        plan.note("listeners.limit", How::InPlace, &from.limit, &to.limit, |limit| {
            let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
            format!("{limit} on {}", from.address)
        });
    }
}

fn endpoint(plan: &mut Plan, running: &Endpoint, wanted: &Endpoint) {
    match (running, wanted) {
        (Endpoint::Accept { listeners: from, backlog: old }, Endpoint::Accept { listeners: to, backlog: new }) => {
            let sockets = Sockets::between(from, to);
            let added = sockets.added.iter().map(|listening| format!("listen on {}", listening.address));
            let replaced = sockets.replaced.iter().map(|(_, new)| format!("replace the sockets of {}", new.address));
            let removed = sockets.removed.iter().map(|listening| format!("stop listening on {}", listening.address));
            for detail in added.chain(replaced).chain(removed) {
                plan.changes.push(Change { setting: "listeners", how: How::NewSocket, detail });
            }
            // A loop knows the services of addresses by its generation.
            let opened = sockets.added.iter().chain(sockets.replaced.iter().map(|(_, new)| new));
            for listening in opened.filter(|listening| !listening.layers.is_empty()) {
                let detail = format!("layers of its own on {}", listening.address);
                plan.changes.push(Change { setting: "listeners.layers", how: How::NewGeneration, detail });
            }
            limits(plan, from, to);
            plan.note("backlog", How::InPlace, old, new, u32::to_string);
        }
        (Endpoint::Connect(from), Endpoint::Connect(to)) => connecting(plan, from, to),
        _ => {
            let detail = "a pool accepts or connects for life: start another one".to_owned();
            plan.changes.push(Change { setting: "endpoint", how: How::Refused, detail });
        }
    }
}

fn connecting(plan: &mut Plan, from: &Connecting, to: &Connecting) {
    fn optional<T: ToString>(value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| "none".to_owned(), T::to_string)
    }
    let now = How::InPlace;
    plan.note("connecting.targets", now, &from.targets, &to.targets, |targets| {
        targets.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
    });
    plan.note("connecting.keep", now, &from.keep, &to.keep, optional);
    plan.note("connecting.sources", now, &from.sources, &to.sources, |sources| format!("{sources:?}"));
    plan.note("connecting.local_ports", now, &from.local_ports, &to.local_ports, |ports| {
        ports.map_or_else(|| "any".to_owned(), |(first, last)| format!("{first}-{last}"))
    });
    plan.note("connecting.total", now, &from.total, &to.total, optional);
    plan.note("connecting.rate", now, &from.rate, &to.rate, optional);
    plan.note("connecting.late", now, &from.late, &to.late, |late| format!("{late:?}"));
    plan.note("connecting.timeout", now, &from.timeout, &to.timeout, |time| format!("{time:?}"));
}

/// Returns true where a change of policy is none.
pub(super) fn is_same_policy(one: &dyn Admission, other: &dyn Admission) -> bool {
    match (one.limits(), other.limits()) {
        (Some(one), Some(other)) => one == other,
        _ => std::ptr::addr_eq(one, other),
    }
}

/// The result of a reconfigure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The differences.
    pub plan: Plan,
    /// The generation in force now.
    pub generation: u32,
    /// The pool's revision now: one more than before, unless nothing differed.
    pub revision: u64,
    /// Time from the first check to the end.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Context, Input, Peer, Protocol, Service, Step};

    struct Silent;

    impl Service for Silent {
        type Protocol = Silent;
        fn open(&self, _peer: &Peer) -> Silent {
            Silent
        }
    }

    impl Protocol for Silent {
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            Step::Close
        }
    }

    fn running() -> Config {
        Config::accept(Silent).listen("127.0.0.1:9000")
    }

    #[test]
    fn nothing_differs_from_a_copy() {
        let running = running();
        assert_eq!(plan(&running, &running.clone()).to_string(), "nothing to change");
    }

    #[test]
    fn each_difference_is_named_with_how_it_is_carried_out() {
        let running = running();
        let mut wanted = running.clone().behaviour(Silent).loops(running.loops + 1).limit(7);
        wanted.settings.high_water = 1;
        wanted.endpoint =
            Endpoint::Accept { listeners: Config::accept(Silent).listen("127.0.0.1:9001").listened().to_vec(), backlog: 1 };
        let plan = plan(&running, &wanted);
        let found: Vec<_> = plan.changes.iter().map(|change| (change.setting, change.how)).collect();
        let expected = [
            ("behaviour", How::NewGeneration),
            ("settings.high_water", How::NewGeneration),
            ("listeners", How::NewSocket),
            ("listeners", How::NewSocket),
            ("backlog", How::InPlace),
            ("loops", How::InPlace),
            ("limit", How::InPlace),
        ];
        assert_eq!(found, expected);
        assert!(plan.to_string().contains("limit: in place (none to 7)"), "{plan}");
    }

    #[test]
    fn each_part_of_connecting_is_named_by_itself() {
        let running = Config::connect(Silent, Connecting::to(["127.0.0.1:9000"]).keep(32));
        let more = running.clone().connecting(|connecting| connecting.keep = Some(64));
        assert_eq!(plan(&running, &more).to_string(), "connecting.keep: in place (32 to 64)");
        let other = running.clone().connecting(|connecting| {
            let to = Connecting::to(["127.0.0.1:9000", "unix:@other"]).keep(32).rate(1.5).total(7).local_ports(1, 2);
            *connecting = to.sources([[127, 0, 0, 2].into()]).late(crate::config::Late::MakeUp).timeout(Duration::from_secs(1));
        });
        let lines = [
            "connecting.targets: in place (127.0.0.1:9000 to 127.0.0.1:9000, unix:@other)",
            "connecting.sources: in place ([] to [127.0.0.2])",
            "connecting.local_ports: in place (any to 1-2)",
            "connecting.total: in place (none to 7)",
            "connecting.rate: in place (none to 1.5)",
            "connecting.late: in place (Forget to MakeUp)",
            "connecting.timeout: in place (5s to 1s)",
        ];
        assert_eq!(plan(&running, &other).to_string(), lines.join("\n"));
    }

    #[test]
    fn accepting_and_connecting_are_for_life() {
        let connecting = Connecting::to(["127.0.0.1:9000"]).keep(1);
        assert!(plan(&running(), &Config::connect(Silent, connecting)).has(How::Refused));
    }
}
