//! Both ends of a run that is not there yet: what so many connections need beside what this machine's settings and limits give, and
//! the command that mends each. It looks, and changes nothing.

use crate::budget::{Budget, Facts, Fit, KERNEL_BYTES, Need, above_nr_open, burst, cpu_of, memory_of};
use crate::cause::{Cause, cause};
use crate::cgroup::Limits;
use crate::errno::errno_name;
use crate::numbers::thousands;
use crate::plan::Plan;
use crate::proc::{self, descriptor_limit, open_descriptors};
use crate::server;
use crate::workload::Workload;
use serde::Serialize;
use sockdrawer::Address;
use std::collections::BTreeSet;
use std::fmt;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixStream};
use std::time::Duration;

/// Subject of the examination.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// The server; None: this machine as a client alone.
    pub target: Option<Address>,
    /// Connections at once.
    pub connections: usize,
    /// The server's process; None: the processes that listen at the target on this machine.
    pub process: Option<u32>,
}

/// Result of the examination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// The number of this form; it grows when a field changes its meaning.
    pub schema: u32,
    /// Connections that were asked about.
    pub connections: u64,
    /// Nothing lacks.
    pub ok: bool,
    /// Needs, one after the other.
    pub needs: Vec<Need>,
}

/// Connects per second that queues are looked at for: what a run makes on loopback unless told otherwise.
const CONNECT_RATE: f64 = 1_000.0;

/// A server that takes longer to accept a connection does not answer.
const CONNECTS_WITHIN: Duration = Duration::from_secs(3);

/// Looks at this machine, now, and connects once to the target.
pub fn examine(ask: &Ask) -> Findings {
    let somewhere = || Address::Tcp(([127, 0, 0, 1], 9000).into());
    let plan = Plan {
        targets: vec![ask.target.clone().unwrap_or_else(somewhere)],
        connections: ask.connections,
        connect_rate: Some(CONNECT_RATE),
        ..Plan::new(Workload::ping(Duration::from_secs(5)))
    };
    let mut facts = Facts::of_this_machine(&plan);
    facts.servers_are_here &= ask.target.is_some() || ask.process.is_some();
    let mut needs = Budget::with(&plan, &facts).needs;
    // Needs of TCP alone do not matter to a Unix socket.
    let by_tcp = plan.targets.iter().any(|target| matches!(target, Address::Tcp(_)));
    let of_tcp = by_tcp.then(|| [resting(&plan), conntrack(&plan), buffers(&plan, &facts)]);
    needs.extend(soft_limit(&plan, &facts).into_iter().chain(of_tcp.into_iter().flatten().flatten()));
    needs.extend(ask.target.as_ref().and_then(listener));
    if facts.servers_are_here {
        let processes = match (ask.process, &ask.target) {
            (Some(process), _) => vec![process],
            (None, Some(target)) => server::processes_of(target),
            (None, None) => Vec::new(),
        };
        needs.push(listening(&processes));
        needs.extend(of_processes(&plan, &processes));
        needs.extend(queue_settings(&plan, by_tcp));
    }
    needs.sort_by_key(|need| (need.end != "client", need.end != "server"));
    let ok = needs.iter().all(|need| need.fit != Fit::Lacking);
    Findings { schema: 1, connections: ask.connections as u64, ok, needs }
}

/// Returns the need of the soft limit of descriptors. This program raises its own; another client may not.
fn soft_limit(plan: &Plan, facts: &Facts) -> Option<Need> {
    let (soft, hard) = descriptor_limit(std::process::id())?;
    let needed = (plan.connections as u64).saturating_add(facts.open);
    let how = format!("descriptors of one process (ulimit -n), hard limit {}", thousands(hard));
    Some(Need::new("client", "soft limit", (needed, Some(soft)), how).or(Fit::Doubtful, |need| {
        let most = need.needed;
        format!(
            "sockdrawer raises it to the hard limit and starts processes; another client needs ulimit -n {most}{}",
            above_nr_open(most)
        )
    }))
}

/// Returns the need of TIME_WAIT: beyond the maximum the kernel forgets connections at once, which lets late packets into new ones.
fn resting(plan: &Plan) -> Option<Need> {
    let most = proc::number("net.ipv4.tcp_max_tw_buckets")?;
    let reuse = proc::number("net.ipv4.tcp_tw_reuse").map_or_else(|| "unknown".to_owned(), |reuse| reuse.to_string());
    let how = format!(
        "net.ipv4.tcp_max_tw_buckets, when all end on this side; tcp_tw_reuse is {reuse} (1: ports rest 1 s, 2: on loopback only, 0: 60 s)"
    );
    Some(
        Need::new("client", "TIME_WAIT", (plan.connections as u64, Some(most)), how)
            .or(Fit::Doubtful, |need| format!("sysctl -w net.ipv4.tcp_max_tw_buckets={}", need.needed)),
    )
}

/// Returns the need of tracked connections. None where the kernel does not track connections.
fn conntrack(plan: &Plan) -> Option<Need> {
    let most = proc::number("net.netfilter.nf_conntrack_max")?;
    let taken = proc::number("net.netfilter.nf_conntrack_count").unwrap_or(0);
    let how =
        "net.netfilter.nf_conntrack_max without those there are; full only where a firewall rule tracks connections".to_owned();
    Some(
        Need::new("both", "conntrack", (plan.connections as u64, Some(most.saturating_sub(taken))), how)
            .or(Fit::Doubtful, |need| format!("sysctl -w net.netfilter.nf_conntrack_max={}", need.needed.saturating_add(taken))),
    )
}

/// Returns the need of TCP memory: a message under way takes a page of each end.
fn buffers(plan: &Plan, facts: &Facts) -> Option<Need> {
    let ends = if facts.servers_are_here { 2 } else { 1 };
    let page = rustix::param::page_size() as u64;
    let needed = (plan.connections as u64).saturating_mul(ends * page);
    let how = "net.ipv4.tcp_mem without what is in use, when each connection has a message under way".to_owned();
    Some(Need::new("both", "TCP buffers", (needed, Some(facts.tcp?)), how).in_bytes().or(Fit::Doubtful, |need| {
        let pages = need.needed / page;
        format!(
            "sysctl -w net.ipv4.tcp_mem=\"{} {} {}\"",
            pages,
            pages.saturating_add(pages / 4),
            pages.saturating_add(pages / 2)
        )
    }))
}

/// Connects once, and closes at once. None: it was accepted; else the listener that lacks.
pub fn listener(target: &Address) -> Option<Need> {
    let connected = match target {
        Address::Tcp(target) => TcpStream::connect_timeout(target, CONNECTS_WITHIN).map(drop),
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        Address::Abstract(name) => {
            unix::SocketAddr::from_abstract_name(name).and_then(|address| UnixStream::connect_addr(&address)).map(drop)
        }
    };
    let error = connected.err()?;
    // The standard library's own timeout has no number.
    let errno = error.raw_os_error().and_then(errno_name).unwrap_or("ETIMEDOUT");
    let (why, remedy) = match cause("connect", errno, None) {
        Some(Cause { why, remedy }) => (why.to_owned(), remedy),
        None => (error.to_string(), "check the address"),
    };
    let how = format!("connect to {target}: {errno}: {why}");
    Some(Need::new("server", "listener", (1, Some(0)), how).must_be_there().or(Fit::Lacking, |_| remedy.to_owned()))
}

fn listening(processes: &[u32]) -> Need {
    let how = "processes that listen there, or are named, and that this user may look at".to_owned();
    Need::new("server", "processes", (1, Some(processes.len() as u64)), how)
        .must_be_there()
        .or(Fit::Doubtful, |_| "start the server, or name its process: --pid".to_owned())
}

/// Returns the needs of the server's processes. Connections are shared among all that listen: each needs descriptors for its part.
fn of_processes(plan: &Plan, processes: &[u32]) -> Vec<Need> {
    let each = (plan.connections as u64).div_ceil(processes.len().max(1) as u64);
    let need = |process: &u32| {
        let (soft, hard) = descriptor_limit(*process)?;
        let taken = open_descriptors(*process).unwrap_or(0);
        let how =
            format!("soft limit of process {process} without the {} it has, hard limit {}", thousands(taken), thousands(hard));
        Some(Need::new("server", "descriptors", (each, Some(soft.saturating_sub(taken))), how).or(Fit::Lacking, |_| {
            let most = each.saturating_add(taken);
            format!(
                "prlimit --pid {process} --nofile={most}:{}{}, or start it with LimitNOFILE={most} (systemd) or ulimit -n {most}",
                most.max(hard),
                above_nr_open(most)
            )
        }))
    };
    processes.iter().filter_map(need).chain(of_cgroups(plan, processes)).collect()
}

/// Returns what cgroups allow the server's processes. Where it is in that of the client, both ends take of it.
fn of_cgroups(plan: &Plan, processes: &[u32]) -> Vec<Need> {
    let (own, mut seen, mut needs) = (Limits::own(), BTreeSet::new(), Vec::new());
    for limits in processes.iter().map(|process| Limits::of(*process)) {
        let is_own = own.memory.as_ref().map(|room| &room.file);
        if let Some(room) = limits.memory.as_ref().filter(|room| seen.insert(room.file.clone())) {
            let ends = if is_own == Some(&room.file) { 2 } else { 1 };
            needs.push(memory_of("server", plan.connections as u64, ends * KERNEL_BYTES, room));
        }
        needs.extend(limits.cpu.filter(|quota| seen.insert(quota.file.clone())).map(|quota| cpu_of("server", &quota)));
    }
    needs
}

fn queue_settings(plan: &Plan, by_tcp: bool) -> Vec<Need> {
    let (needed, when) = burst(plan);
    let setting = |what, name: &str| {
        let had = proc::number(name)?;
        let how = format!("{name}, {when} at {CONNECT_RATE} connects/s");
        Some(
            Need::new("server", what, (needed, Some(had)), how)
                .or(Fit::Doubtful, |need| format!("sysctl -w {name}={}", need.needed)),
        )
    };
    let handshakes = by_tcp.then(|| setting("handshakes", "net.ipv4.tcp_max_syn_backlog")).flatten();
    setting("backlog setting", "net.core.somaxconn").into_iter().chain(handshakes).collect()
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for need in &self.needs {
            let mark = match need.fit {
                Fit::Enough => "ok",
                Fit::Doubtful => "maybe",
                Fit::Lacking => "lacks",
            };
            writeln!(f, "{mark:<6} {need}")?;
        }
        match self.needs.iter().filter(|need| need.fit == Fit::Lacking).count() {
            0 => write!(f, "{} connections can be tried", thousands(self.connections)),
            count => {
                let (connections, all) = (thousands(self.connections), self.needs.len());
                write!(f, "{connections} connections are not possible yet: {count} of {all} checks failed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn find<'a>(findings: &'a Findings, end: &str, what: &str) -> &'a Need {
        let need = findings.needs.iter().find(|need| need.end == end && need.what == what);
        need.unwrap_or_else(|| panic!("no {end} {what}: {findings}"))
    }

    #[test]
    fn a_server_here_is_looked_at_and_values_are_this_machines() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let target = Address::Tcp(listener.local_addr().expect("it is bound"));
        let ask = Ask { target: Some(target), connections: 100, process: None };
        let findings = examine(&ask);
        assert!(findings.ok, "{findings}");
        let this = std::process::id();
        assert!(find(&findings, "server", "descriptors").how.contains(&format!("process {this} ")), "{findings}");
        assert_eq!(find(&findings, "server", "backlog setting").had, proc::number("net.core.somaxconn"));
        assert_eq!(find(&findings, "client", "TIME_WAIT").had, proc::number("net.ipv4.tcp_max_tw_buckets"));
        assert_eq!(find(&findings, "server", "accept queue").needed, 100, "no more than there are connections");
        assert!(find(&findings, "both", "TCP buffers").had.is_some());
    }

    #[test]
    fn a_server_with_too_few_descriptors_is_told_with_the_command() {
        let (soft, _) = descriptor_limit(std::process::id()).expect("it has one");
        let connections = usize::try_from(soft).unwrap_or(usize::MAX / 4);
        let findings = examine(&Ask { target: None, connections, process: Some(std::process::id()) });
        let need = find(&findings, "server", "descriptors");
        assert_eq!(need.fit, Fit::Lacking, "{findings}");
        let remedy = need.remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains(&format!("prlimit --pid {}", std::process::id())) && remedy.contains("LimitNOFILE="), "{remedy}");
        assert!(!findings.ok);
    }

    #[test]
    fn where_nothing_listens_no_connection_can_be_tried() {
        // Nothing listens there, and the kernel chooses no such port for others.
        let tcp = Address::Tcp("127.0.96.2:9".parse().expect("an address"));
        for target in [tcp, Address::Unix("/nowhere/socket".into()), Address::Abstract(b"nothing has this name".to_vec())] {
            let findings = examine(&Ask { target: Some(target), connections: 10, process: None });
            assert!(!findings.ok, "{findings}");
            assert_eq!(find(&findings, "server", "listener").fit, Fit::Lacking);
            assert!(findings.to_string().contains("start the server"), "{findings}");
        }
    }

    #[test]
    fn a_unix_socket_needs_nothing_of_tcp() {
        let path = std::env::temp_dir().join(format!("sockdrawer-doctor-{}", std::process::id()));
        let listener = unix::UnixListener::bind(&path).expect("a free name");
        let findings = examine(&Ask { target: Some(Address::Unix(path.clone())), connections: 10, process: None });
        drop(listener);
        std::fs::remove_file(&path).expect("it is there");
        assert!(findings.ok, "{findings}");
        let here = std::process::id();
        assert!(find(&findings, "server", "descriptors").how.contains(&format!("process {here} ")), "{findings}");
        let of_tcp = ["TIME_WAIT", "conntrack", "TCP buffers", "handshakes", "ports"];
        assert!(findings.needs.iter().all(|need| !of_tcp.contains(&need.what)), "{findings}");
    }

    #[test]
    fn any_number_can_be_asked_about() {
        for (target, process) in [(None, None), (None, Some(std::process::id())), (Some("192.0.2.1:80"), None)] {
            let target = target.map(|target| target.parse().expect("an address"));
            let findings = examine(&Ask { target, connections: usize::MAX, process });
            assert!(!findings.ok && findings.to_string().contains("18,446,744,073,709,551,615"), "{findings}");
        }
    }

    #[test]
    fn a_server_elsewhere_is_not() {
        let target = Some("192.0.2.1:80".parse().expect("an address"));
        let findings = examine(&Ask { target, connections: 100_000, process: None });
        let of_server: Vec<_> = findings.needs.iter().filter(|need| need.end == "server").map(|need| need.what).collect();
        assert!(of_server.iter().all(|what| *what == "listener"), "{findings}");
        assert!(
            find(&findings, "client", "ports").remedy.as_deref().is_some_and(|remedy| remedy.contains("--source")),
            "{findings}"
        );
    }
}
