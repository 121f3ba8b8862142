//! Needs of a run and what there is of each, before the first connect: descriptors, ports, TIME_WAIT, the accept queue, memory.

mod facts;
mod need;
mod ports;

pub(crate) use facts::Facts;
pub use need::{Fit, Need, Unit};
pub use ports::{Pairs, Ports, Room, Shortage};

use crate::cgroup::{self, Limits, Quota};
use crate::numbers::{float, thousands};
use crate::plan::{OTHERS, Plan, Stage};
use serde::Serialize;
use sockdrawer::Address;
use sockdrawer_catalog::time;
use std::fmt;

/// Kernel memory of one end of an idle TCP connection that epoll watches, measured on 6.18: socket 2,368, inode 832, epoll 256, name
/// 192, file 192 and small parts.
pub(crate) const KERNEL_BYTES: u64 = 3_900;
/// Maximum of bytes that this program takes for a connection, of either end.
const OWN_BYTES: u64 = 512;
/// Descriptors of a process that starts others, besides those it has and the pipes: event loops, files, and both ends of the next pipes.
const SPARE: u64 = 24;
/// Threads of a process that runs clients, at least: its own, a loop, and the one that watches it.
const LEAST_TASKS: u64 = 3;
/// Seconds of connects that a queue must hold when nothing is accepted for a moment.
const PAUSE: f64 = 0.1;

/// Needed against had, of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Budget {
    /// Needs, one after the other.
    pub needs: Vec<Need>,
    /// Maximum of connects per second that the run must keep to, because of ports that rest.
    pub rate: Option<f64>,
    /// Ports of the run; None without TCP.
    #[serde(skip)]
    pub room: Option<Room>,
}

impl Budget {
    /// Returns the budget of this run on this machine, now.
    pub fn of(plan: &Plan) -> Budget {
        Budget::with(plan, &Facts::of_this_machine(plan))
    }

    pub(crate) fn with(plan: &Plan, facts: &Facts) -> Budget {
        let mut needs = vec![descriptors(plan, facts)];
        needs.extend(pipes(plan, facts));
        needs.push(files(plan, facts));
        let room = facts.ports.as_ref().and_then(|ports| ports.room(plan));
        let fit = room.map(|room| room.fit(plan));
        if let Some(room) = room {
            needs.push(ports(plan, facts, &room));
            if let Some(Err(Shortage::Resting { connects, room: free })) = fit {
                needs.push(resting(plan, &room, connects, free));
            }
        }
        needs.extend(queue(plan, facts));
        needs.push(memory(plan, facts));
        needs.extend(allowed(plan, facts));
        let rate = fit.and_then(Result::ok).flatten();
        Budget { needs, rate, room }
    }

    /// Returns the needs for which there may be too little, alone; None where all of it is enough.
    pub fn tight(&self) -> Option<Budget> {
        let needs: Vec<Need> = self.needs.iter().filter(|need| need.fit != Fit::Enough).cloned().collect();
        (!needs.is_empty()).then(|| Budget { needs, ..self.clone() })
    }

    /// Returns the first need that lacks: the run cannot work without it.
    pub fn lacking(&self) -> Option<&Need> {
        self.needs.iter().find(|need| need.fit == Fit::Lacking)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, need) in self.needs.iter().enumerate() {
            let name = if index == 0 { "budget" } else { "\n" };
            write!(f, "{name:<width$}{need}", width = if index == 0 { 13 } else { 14 })?;
        }
        Ok(())
    }
}

/// Returns the need of descriptors of the clients in all their processes; a server in this process needs its own.
fn descriptors(plan: &Plan, facts: &Facts) -> Need {
    let connections = plan.connections as u64;
    let each = facts.descriptors.saturating_sub(OTHERS as u64).max(1);
    let in_each = thousands(each);
    let others = plan.processes(usize::try_from(facts.descriptors).unwrap_or(usize::MAX)) as u64;
    // A short connection may end in the server a moment after its client began the next.
    let served = if plan.is_short() { 2 } else { 1 };
    let (ends, processes, how) = match (plan.targets.is_empty(), others) {
        (false, 0) => (1, 1, format!("{in_each} in this process")),
        (false, others) => (1, others, format!("{in_each} in each of {others} processes")),
        (true, 0) => (1 + served, 1, format!("{in_each} in this process, which has the server too")),
        (true, others) => (served, 1, format!("{in_each} in this process for the server, its clients are in {others} others")),
    };
    let numbers = (connections.saturating_mul(ends), Some(each.saturating_mul(processes)));
    Need::new("client", "descriptors", numbers, how).or(Fit::Lacking, |need| {
        let whole = need.needed.div_ceil(processes).saturating_add(OTHERS as u64);
        let other = match plan.targets.as_slice() {
            [] => "a server in processes of its own (sockdrawer serve --model prefork), named as TARGET",
            _ => "--processes auto",
        };
        format!("use {other}, or ulimit -Hn {whole} as root before it starts{}", above_nr_open(whole))
    })
}

/// Returns the need of descriptors of the process that starts those of the clients, two pipes to each, where that is too many. None: it is not.
fn pipes(plan: &Plan, facts: &Facts) -> Option<Need> {
    let others = plan.processes(usize::try_from(facts.descriptors).unwrap_or(usize::MAX)) as u64;
    let needed = others.saturating_mul(2).saturating_add(facts.open + SPARE);
    let how = format!("in this process, 2 for each of the {others} processes that run clients");
    let need = Need::new("client", "descriptors", (needed, Some(facts.descriptors)), how);
    let need = need.or(Fit::Lacking, |_| {
        let whole = (plan.connections as u64).saturating_add(OTHERS as u64);
        format!("ulimit -Hn {whole} as root before it starts{}, or use fewer connections", above_nr_open(whole))
    });
    (others > 0 && need.fit == Fit::Lacking).then_some(need)
}

/// Returns the command that raises `fs.nr_open`, in parentheses, where it is less than `descriptors`: no process may have more, whatever its limit.
pub(crate) fn above_nr_open(descriptors: u64) -> String {
    match crate::proc::number("fs.nr_open") {
        Some(most) if most < descriptors => format!(" (first sysctl -w fs.nr_open={descriptors})"),
        _ => String::new(),
    }
}

/// Returns the need of open files of the whole machine: both ends where the server is on it.
fn files(plan: &Plan, facts: &Facts) -> Need {
    let ends = if facts.servers_are_here { 2 } else { 1 };
    let needed = (plan.connections as u64).saturating_mul(ends);
    let how = format!("files that this machine may open, {ends} for each connection");
    Need::new("both", "files", (needed, facts.files), how).or(Fit::Lacking, |need| {
        let more = need.needed.saturating_sub(need.had.unwrap_or(0));
        let most = crate::proc::number("fs.file-max").unwrap_or(0).saturating_add(more);
        format!("sysctl -w fs.file-max={most}")
    })
}

fn ports(plan: &Plan, facts: &Facts, room: &Room) -> Need {
    let Pairs { ports, targets, sources, own } = room.pairs;
    let many = |count: u64, what: &str| if count == 1 { format!("1 {what}") } else { format!("{} {what}s", thousands(count)) };
    let mut how = [many(ports, "port"), many(sources, "source"), many(targets, "target")].join(" x ");
    if own > 0 {
        how += " without the target's own";
    }
    if facts.time_wait > 0 {
        how += &format!(", {} of this network in TIME_WAIT now", thousands(facts.time_wait));
    }
    let numbers = (plan.connections as u64, Some(room.pairs.count()));
    Need::new("client", "ports", numbers, how).or(Fit::Lacking, |need| more_ports(plan, need.needed, room.pairs))
}

/// Sources that are there without set-up, or the settings that give more ports.
fn more_ports(plan: &Plan, needed: u64, pairs: Pairs) -> String {
    let sources = needed.div_ceil(pairs.of_each_source().max(1));
    let is_loopback = |target: &Address| matches!(target, Address::Tcp(target) if target.is_ipv4() && target.ip().is_loopback());
    if plan.targets.iter().all(is_loopback) && sources < 1 << 16 {
        let list = match sources {
            0..=4 => (2..sources + 2).map(|last| format!("127.0.0.{last}")).collect::<Vec<_>>().join(","),
            _ => format!("127.1.0.0/{}", 32 - sources.next_power_of_two().ilog2()),
        };
        return format!("add --source {list}");
    }
    let addresses = format!("connect from {} addresses of this machine with --source", thousands(sources));
    let all = 65_535 - 1_023;
    match pairs.ports < all && needed <= all.saturating_mul(pairs.targets).saturating_mul(pairs.sources) {
        true => format!("sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\", or {addresses}"),
        false => format!("{addresses}, or use fewer"),
    }
}

fn resting(plan: &Plan, room: &Room, connects: u64, free: u64) -> Need {
    let rest = time::format(room.rest);
    let how = format!("connects within {rest} of TIME_WAIT, {} ports are in use", thousands(plan.connections as u64));
    Need::new("client", "free ports", (connects, Some(free)), how).or(Fit::Lacking, |_| match plan.lifetime {
        Some(_) => "use a longer --lifetime, or more addresses with --source".to_owned(),
        None => {
            let rate = room.for_ever(plan.connections);
            format!("use --close server or rst, at most {rate} connects/s, or more addresses with --source")
        }
    })
}

/// Returns the need of the accept queue. None where the server is elsewhere or in this program.
fn queue(plan: &Plan, facts: &Facts) -> Option<Need> {
    let backlog = facts.backlog?;
    let (needed, when) = burst(plan);
    let need = Need::new("server", "accept queue", (needed, Some(backlog)), when.to_owned());
    Some(need.or(Fit::Doubtful, |need| {
        let needed = need.needed;
        format!(
            "if it fills: listen() with a backlog of {needed}, sysctl -w net.core.somaxconn={needed}, or a lower --connect-rate"
        )
    }))
}

/// Returns the number of connections that may come while none is accepted, and the reason.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and more than 2^64 is all")]
pub(crate) fn burst(plan: &Plan) -> (u64, &'static str) {
    let connections = plan.connections as u64;
    // Where connections are replaced all the time, no stage spreads the connects.
    let of_stages = || if plan.renews() { None } else { steepest(plan) };
    match plan.connect_rate.or_else(of_stages) {
        Some(rate) => (((rate * PAUSE).ceil() as u64).min(connections), "when it does not accept for 100 ms"),
        None => (connections, "when all connect at once"),
    }
}

/// Returns the maximum of connects per second of its stages.
fn steepest(plan: &Plan) -> Option<f64> {
    let from = std::iter::once(0).chain(plan.stages.iter().map(|stage| stage.connections));
    let rate = |(from, stage): (usize, &Stage)| {
        float(stage.connections.saturating_sub(from) as u64) / stage.time.as_secs_f64().max(1e-3)
    };
    from.zip(&plan.stages).map(rate).max_by(f64::total_cmp)
}

fn memory(plan: &Plan, facts: &Facts) -> Need {
    let client = KERNEL_BYTES + OWN_BYTES;
    let (server, whose) = match (plan.targets.is_empty(), facts.servers_are_here) {
        (true, _) => (KERNEL_BYTES + OWN_BYTES, "for each connection, both ends"),
        (false, true) => (KERNEL_BYTES, "for each connection, both ends, without what the server itself takes"),
        (false, false) => (0, "for each connection, this end"),
    };
    let each = client + server;
    let kernel = if server == 0 { KERNEL_BYTES } else { 2 * KERNEL_BYTES };
    let how = format!("{} bytes (kernel {}) {whose}; estimated", thousands(each), thousands(kernel));
    let end = if server == 0 { "client" } else { "both" };
    let numbers = ((plan.connections as u64).saturating_mul(each), facts.memory);
    Need::new(end, "memory", numbers, how).in_bytes().or(Fit::Lacking, |need| {
        let fits = need.had.unwrap_or(0) / each;
        format!("at most {} connections fit: use fewer, or a machine with more memory", thousands(fits))
    })
}

/// Returns what cgroups allow this process, where they do.
fn allowed(plan: &Plan, facts: &Facts) -> Vec<Need> {
    let Limits { cpu, memory, tasks } = &facts.allowed;
    let ends = if plan.targets.is_empty() { 2 } else { 1 };
    let memory =
        memory.as_ref().map(|room| memory_of("client", plan.connections as u64, ends * (KERNEL_BYTES + OWN_BYTES), room));
    let processes = plan.processes(usize::try_from(facts.descriptors).unwrap_or(usize::MAX)) as u64;
    let tasks = tasks.as_ref().map(|room| {
        let how = format!("threads and processes by {} without those there are", room.file.display());
        let needed = (processes + 1).saturating_mul(LEAST_TASKS);
        Need::new("client", "tasks", (needed, Some(room.left)), how).or(Fit::Lacking, |need| {
            format!("raise pids.max by {}, or use fewer connections or --processes", thousands(need.needed - room.left))
        })
    });
    let cpu = cpu.as_ref().map(|quota| cpu_of("client", quota));
    memory.into_iter().chain(tasks).chain(cpu).collect()
}

/// Returns what this number of connections needs of the memory that a cgroup allows.
pub(crate) fn memory_of(end: &'static str, connections: u64, each: u64, room: &cgroup::CgroupRoom) -> Need {
    let how = format!("{} bytes for each connection, by {}; estimated", thousands(each), room.file.display());
    Need::new(end, "memory", (connections.saturating_mul(each), Some(room.left)), how)
        .in_bytes()
        .or(Fit::Lacking, |_| format!("at most {} connections fit: use fewer, or raise that limit", thousands(room.left / each)))
}

/// Returns what a cgroup allows of one CPU, as a process that is stopped each 100 ms shows that in all that it measures.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quota is above 0")]
pub(crate) fn cpu_of(end: &'static str, quota: &Quota) -> Need {
    let percent = (100.0 * quota.cpus).round() as u64;
    let how = format!("percent of a CPU by {}; used up, it stops until its period is over", quota.file.display());
    Need::new(end, "CPU quota", (100, Some(percent)), how).or(Fit::Doubtful, |_| "raise the quota, or do without one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Processes};
    use crate::workload::{Hello, Workload};
    use std::time::Duration;

    fn facts() -> Facts {
        Facts {
            descriptors: 20_000,
            open: 4,
            files: Some(2_000_000),
            memory: Some(24_000_000_000),
            time_wait: 0,
            ports: None,
            backlog: None,
            servers_are_here: true,
            tcp: None,
            allowed: Limits::default(),
        }
    }

    fn ping(connections: usize, targets: &[&str]) -> Plan {
        let targets = targets.iter().map(|target| target.parse().expect("an address")).collect();
        Plan { connections, targets, ..plan::tests::plan(Workload::ping(Duration::from_secs(5))) }
    }

    fn need(plan: &Plan, facts: &Facts, what: &str) -> Need {
        let budget = Budget::with(plan, facts);
        budget.needs.iter().find(|need| need.what == what).cloned().unwrap_or_else(|| panic!("no {what}: {budget}"))
    }

    const LOCAL: &[&str] = &["127.0.0.1:9000"];

    #[test]
    fn processes_come_by_themselves_and_a_fixed_number_must_do() {
        let auto = need(&ping(100_000, LOCAL), &facts(), "descriptors");
        assert_eq!((auto.fit, auto.needed, auto.had), (Fit::Enough, 100_000, Some(6 * 19_744)));
        assert_eq!(auto.how, "19,744 in each of 6 processes");
        let exactly = Plan { processes: Processes::Exactly(5), ..ping(100_000, LOCAL) };
        let exactly = need(&exactly, &facts(), "descriptors");
        assert_eq!((exactly.fit, exactly.had), (Fit::Lacking, Some(98_720)));
        assert!(exactly.remedy.is_some_and(|remedy| remedy.contains("--processes auto") && remedy.contains("ulimit -Hn 20256")));
    }

    #[test]
    fn a_process_that_starts_others_needs_pipes_to_them() {
        let few = Facts { descriptors: 64, ..facts() };
        let budget = Budget::with(&ping(100, LOCAL), &few);
        let need = budget.lacking().expect("100 processes are 200 pipes");
        assert_eq!((need.what, need.needed, need.had), ("descriptors", 228, Some(64)));
        assert!(need.remedy.as_ref().is_some_and(|remedy| remedy.starts_with("ulimit -Hn 356 as root")), "{need}");
        let enough = Budget::with(&ping(100_000, LOCAL), &facts());
        assert_eq!(enough.needs.iter().filter(|need| need.what == "descriptors").count(), 1);
    }

    #[test]
    fn a_server_in_this_process_takes_descriptors_too() {
        let both = need(&ping(9_872, &[]), &facts(), "descriptors");
        assert_eq!((both.fit, both.needed, both.had), (Fit::Enough, 19_744, Some(19_744)));
        let split = need(&ping(19_744, &[]), &facts(), "descriptors");
        assert_eq!((split.fit, split.needed, split.how.contains("its clients are in 1 others")), (Fit::Enough, 19_744, true));
        let more = need(&ping(19_745, &[]), &facts(), "descriptors");
        assert!(more.remedy.is_some_and(|remedy| remedy.contains("sockdrawer serve")));
        let short = Plan { connections: 9_000, ..plan::tests::plan(Workload::Hello(Hello)) };
        assert_eq!(need(&short, &facts(), "descriptors").needed, 27_000);
    }

    #[test]
    fn limits_of_the_whole_machine_count_both_ends_here() {
        let few = Facts { files: Some(150_000), memory: Some(831_200_000), ..facts() };
        let plan = ping(100_000, LOCAL);
        assert_eq!(need(&plan, &few, "files").fit, Fit::Lacking);
        assert_eq!(need(&plan, &Facts { servers_are_here: false, ..few.clone() }, "files").fit, Fit::Enough);
        let memory = need(&plan, &few, "memory");
        assert_eq!((memory.needed, memory.fit), (831_200_000, Fit::Enough));
        let memory = need(&plan, &Facts { memory: Some(831_199_999), ..few }, "memory");
        assert!(memory.remedy.is_some_and(|remedy| remedy.contains("at most 99,999 connections fit")));
    }

    #[test]
    fn what_cgroups_allow_is_less_than_the_machine_has() {
        let room = |name: &str, max, left| cgroup::CgroupRoom { max, left, file: format!("/sys/fs/cgroup/box/{name}").into() };
        let memory = Some(room("memory.max", 64 << 20, 60 << 20));
        let boxed = |tasks| Facts { allowed: Limits { memory: memory.clone(), tasks, cpu: None }, ..facts() };
        let plan = ping(100_000, LOCAL);
        let budget = Budget::with(&plan, &boxed(None));
        let need = budget.lacking().expect("64 MiB are too little");
        assert_eq!((need.end, need.what, need.needed, need.had), ("client", "memory", 441_200_000, Some(60 << 20)));
        assert!(need.how.contains("by /sys/fs/cgroup/box/memory.max"), "{need}");
        assert_eq!(need.remedy.as_deref(), Some("at most 14,259 connections fit: use fewer, or raise that limit"));
        let need = |left| need_of(&ping(1_000, LOCAL), &boxed(Some(room("pids.max", 20, left))));
        assert_eq!((need(2).fit, need(2).needed, need(3).fit), (Fit::Lacking, 3, Fit::Enough));
    }

    fn need_of(plan: &Plan, facts: &Facts) -> Need {
        need(plan, facts, "tasks")
    }

    #[test]
    fn more_ports_come_from_more_sources() {
        let remedy = |needed, target: &str, ports| {
            more_ports(&ping(1, &[target]), needed, Pairs { ports, targets: 1, sources: 1, own: 0 })
        };
        assert_eq!(remedy(30_000, "127.0.0.1:1", 28_232), "add --source 127.0.0.2,127.0.0.3");
        assert_eq!(remedy(400_000, "127.0.0.1:1", 28_232), "add --source 127.1.0.0/28", "15 are needed, 16 are in it");
        assert!(remedy(30_000, "192.0.2.1:1", 28_232).starts_with("sysctl -w net.ipv4.ip_local_port_range"));
        assert!(remedy(400_000, "[::1]:1", 28_232).starts_with("connect from 15 addresses"));
        assert!(Budget::of(&ping(64, &["unix:/run/x"])).needs.iter().all(|need| need.what != "ports"));
    }

    #[test]
    fn the_accept_queue_must_hold_a_moment() {
        let small = Facts { backlog: Some(128), ..facts() };
        let rated = |rate| Plan { connect_rate: Some(rate), ..ping(10_000, LOCAL) };
        assert_eq!(need(&rated(1_280.0), &small, "accept queue").fit, Fit::Enough);
        let queue = need(&rated(1_281.0), &small, "accept queue");
        assert_eq!((queue.fit, queue.needed), (Fit::Doubtful, 129), "the run may go well");
        let tight = Budget::with(&rated(1_281.0), &small).tight().map(|budget| budget.needs.len());
        assert_eq!((tight, Budget::with(&rated(1_280.0), &small).tight()), (Some(1), None));
        assert_eq!(need(&ping(10_000, LOCAL), &small, "accept queue").needed, 10_000);
        let stage = |seconds, connections| Stage { time: Duration::from_secs(seconds), connections };
        let staged = Plan { stages: vec![stage(10, 1_000), stage(2, 10_000), stage(1, 0)], ..ping(10_000, LOCAL) };
        assert_eq!(need(&staged, &small, "accept queue").needed, 450, "100 ms of 4,500 connects/s");
        assert_eq!(Budget::with(&rated(1_281.0), &small).lacking(), None);
    }

    #[test]
    fn it_is_a_table_for_people() {
        let text = Budget::with(&ping(100_000, LOCAL), &facts()).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "budget       client descriptors          100,000 of 118,464       19,744 in each of 6 processes");
        assert!(lines[2].starts_with("             both memory               792.7 MiB of 22.4 GiB"), "{text}");
    }
}
