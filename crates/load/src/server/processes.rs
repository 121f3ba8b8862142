//! The processes that have a listening socket, and the CPU time they used.

use super::family::{self, Stat, stat};
use super::listening;
use crate::proc::{ids, scheduled};
use rustix::param::clock_ticks_per_second;
use sockdrawer::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// Usage of a process, counted twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Moment at which it was started, in ticks of the kernel: another one may get its number.
    started: u64,
    /// CPU time of its threads, those that ended too; in ticks.
    ticks: u64,
    /// The processes that it waited for: their ticks and page faults.
    waited_for: (u64, u64),
    /// CPU time of its threads that are there, exactly.
    threads: BTreeMap<u32, Duration>,
}

/// A server opens its listening sockets before its connections: of a process so many descriptors are looked at, from the lowest on. With
/// 160,000 descriptors in eight processes that had nothing to do with it, looking at all took a second.
const MAX_DESCRIPTORS: usize = 1_024;
/// A machine with more processes than can be looked at in this time needs --server-pid.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ticks are whole ones of user and of system time: of fewer than these, what is cut off may be a third.
const LEAST_TICKS: u64 = 5;

/// Returns all processes that can accept what is sent to these addresses. None where one of them has no server that this user may look at, or where
/// it is this process.
pub(super) fn of(targets: &[Address]) -> Option<BTreeMap<u32, Process>> {
    let (owners, complete) = owners(targets)?;
    if !complete || owners.contains(&std::process::id()) {
        return None;
    }
    // A process that has just ended has no descriptors either.
    owners.into_iter().map(|id| Some((id, process(id)?))).collect()
}

/// Returns the processes that have sockets which listen there, and whether all such sockets have one. None where one of the addresses has no such
/// socket on this machine.
pub(super) fn owners(targets: &[Address]) -> Option<(Vec<u32>, bool)> {
    let mut sockets = BTreeSet::new();
    for target in targets {
        sockets.append(&mut listening::sockets(target)?);
    }
    let (mut owners, mut owned, until) = (Vec::new(), BTreeSet::new(), Instant::now() + PATIENCE);
    for id in ids("/proc") {
        if Instant::now() > until {
            return Some((owners, false));
        }
        let has: Vec<u64> = descriptors(id).filter(|socket| sockets.contains(socket)).collect();
        if !has.is_empty() {
            owners.push(id);
            owned.extend(has);
        }
    }
    Some((owners, owned == sockets))
}

/// Processes that were named, and all that they started. None where one of them is not there, or is this one.
pub(super) fn these(roots: &[u32]) -> Option<BTreeMap<u32, Process>> {
    let this = std::process::id();
    let family = family::of(roots, &mut BTreeSet::new());
    let all = roots.iter().all(|id| family.contains_key(id)) && !family.contains_key(&this);
    all.then(|| family.keys().filter_map(|id| Some((*id, process(*id)?))).collect())
}

/// Returns the CPU time that they used from `before` to `now`. A process that was not there before is new: a worker that replaces another. None where
/// one has gone, and its time with it, or where the time of those that ended is too short for the kernel's count of it.
pub(super) fn since(before: &BTreeMap<u32, Process>, now: &BTreeMap<u32, Process>) -> Option<Duration> {
    let stays = |(id, process): (&u32, &Process)| now.get(id).is_some_and(|now| now.started == process.started);
    if !before.iter().all(stays) {
        return None;
    }
    now.iter().map(|(id, now)| now.used(before.get(id))).sum()
}

impl Process {
    fn used(&self, before: Option<&Process>) -> Option<Duration> {
        let ticks = self.ticks.saturating_sub(before.map_or(0, |before| before.ticks));
        let earlier = |id| before.and_then(|before| before.threads.get(id).copied()).unwrap_or_default();
        let threads: Duration = self.threads.iter().map(|(id, now)| now.saturating_sub(earlier(id))).sum();
        // User and system time are each cut to whole ticks. What is beyond that was used by threads that ended.
        let sure = duration(ticks.saturating_sub(2));
        let own = if sure > threads { duration(ticks) } else { threads };
        Some(own + self.of_children(before)?)
    }

    /// Returns the CPU time of processes that it has waited for since.
    fn of_children(&self, before: Option<&Process>) -> Option<Duration> {
        let (ticks_before, faults_before) = before.map_or((0, 0), |before| before.waited_for);
        let (ticks, faults) = self.waited_for;
        let ticks = ticks.saturating_sub(ticks_before);
        match faults > faults_before {
            false => Some(Duration::ZERO),
            true => Some(duration(ticks)).filter(|_| ticks >= LEAST_TICKS),
        }
    }
}

pub(super) fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / clock_ticks_per_second().max(1)))
}

/// Reads what a process has used. None when it has ended, or the kernel does not count.
fn process(id: u32) -> Option<Process> {
    let Stat { started, ticks, waited_for, faults_waited_for, .. } = stat(id)?;
    let folder = format!("/proc/{id}/task");
    let threads = ids(&folder).filter_map(|id| Some((id, scheduled(&format!("{folder}/{id}"))?))).collect();
    Some(Process { started, ticks, waited_for: (waited_for, faults_waited_for), threads })
}

/// Returns the sockets that a process has among its lowest descriptors; none where this user may not look.
fn descriptors(id: u32) -> impl Iterator<Item = u64> {
    let links = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    links.take(MAX_DESCRIPTORS).filter_map(|link| {
        let to = fs::read_link(link.path()).ok()?;
        to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(started: u64, ticks: u64, threads: &[(u32, u64)]) -> Process {
        let threads = threads.iter().map(|(id, milliseconds)| (*id, Duration::from_millis(*milliseconds))).collect();
        Process { started, ticks, waited_for: (0, 0), threads }
    }

    fn milliseconds(before: &[(u32, Process)], now: &[(u32, Process)]) -> Option<u128> {
        let map = |all: &[(u32, Process)]| all.iter().cloned().collect();
        since(&map(before), &map(now)).map(|used| used.as_millis())
    }

    #[test]
    fn threads_are_exact_and_those_that_ended_are_not_lost() {
        assert_eq!(clock_ticks_per_second(), 100, "a tick is 10 ms");
        let before = [(7, one(1, 100, &[(7, 900), (8, 105)]))];
        assert_eq!(milliseconds(&before, &[(7, one(1, 102, &[(7, 900), (8, 119)]))]), Some(14));
        assert_eq!(milliseconds(&before, &[(7, one(1, 103, &[(7, 901), (8, 106), (9, 14)]))]), Some(16), "a new thread");
        assert_eq!(milliseconds(&before, &[(7, one(1, 150, &[(7, 901)]))]), Some(500), "what a thread used that ended");
    }

    #[test]
    fn processes_that_ended_are_counted_or_it_is_not_known() {
        let with = |ticks, faults| [(7, Process { waited_for: (ticks, faults), ..one(1, 100, &[(7, 900)]) })];
        assert_eq!(milliseconds(&with(50, 300), &with(90, 301)), Some(400));
        assert_eq!(milliseconds(&with(50, 300), &with(50, 300)), Some(0), "none ended");
        assert_eq!(milliseconds(&with(50, 300), &with(51, 301)), None, "10 ms, or nearly 30");
    }

    #[test]
    fn a_process_that_has_gone_takes_its_time_along_and_a_new_one_counts_whole() {
        let before = [(7, one(1, 100, &[(7, 1_000)]))];
        assert_eq!(milliseconds(&before, &[]), None);
        assert_eq!(milliseconds(&before, &[(7, one(2, 100, &[(7, 1_000)]))]), None, "another one with its number");
        let replaced = [(7, one(1, 100, &[(7, 1_003)])), (8, one(3, 1, &[(8, 12)]))];
        assert_eq!(milliseconds(&before, &replaced), Some(15));
    }

    #[test]
    fn this_process_cannot_be_told_from_its_client() {
        // At an address where no other test listens: the port stays free.
        let listener = std::net::TcpListener::bind("127.0.96.4:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("it is bound"));
        assert_eq!(of(std::slice::from_ref(&address)), None);
        assert!(listening::sockets(&address).is_some_and(|sockets| sockets.len() == 1));
        drop(listener);
        assert_eq!(listening::sockets(&address), None);
    }

    #[test]
    fn the_descriptors_of_a_process_are_not_all_looked_at() {
        let _alone = crate::proc::tests::MANY_OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sockdrawer::raise_descriptor_limit().expect("a limit");
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        // More than are looked at, and the time for that does not grow with them.
        let sockets: Vec<_> = (0..MAX_DESCRIPTORS + 500).map(|_| one.try_clone().expect("a descriptor")).collect();
        let seen = descriptors(std::process::id()).count();
        assert!(seen > MAX_DESCRIPTORS / 2 && seen <= MAX_DESCRIPTORS, "{seen} of {}", sockets.len());
    }

    #[test]
    fn a_process_is_read() {
        let this = process(std::process::id()).expect("this one is there");
        assert!(this.threads.contains_key(&std::process::id()) && this.started > 0);
    }
}
