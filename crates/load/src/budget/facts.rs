//! Resources of this machine for a run.

use super::ports::Ports;
use crate::cgroup::Limits;
use crate::plan::Plan;
use crate::{proc, server};
use rustix::param::page_size;
use sockdrawer::Address;

/// Facts about this machine; None: the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// Descriptors that this process may have, soft limit raised.
    pub(crate) descriptors: u64,
    /// Descriptors that the process has open.
    pub(crate) open: u64,
    /// Descriptors that all processes of this machine together may have more than now.
    pub(crate) files: Option<u64>,
    /// Memory that programs and the kernel can have more than now.
    pub(crate) memory: Option<u64>,
    /// Connections that rest in this network now, of all programs.
    pub(crate) time_wait: u64,
    pub(crate) ports: Option<Ports>,
    /// The places in all accept queues of the targets, where one is of this machine.
    pub(crate) backlog: Option<u64>,
    /// The servers are on this machine.
    pub(crate) servers_are_here: bool,
    /// TCP memory that the kernel may use, in bytes.
    pub(crate) tcp: Option<u64>,
    /// Limits of this process by cgroups.
    pub(crate) allowed: Limits,
}

impl Facts {
    pub(crate) fn of_this_machine(plan: &Plan) -> Facts {
        let sockstat = proc::text("/proc/thread-self/net/sockstat").unwrap_or_default();
        let tcp = |word| sockstat.lines().find(|line| line.starts_with("TCP:")).and_then(|line| proc::behind(line, word));
        let pages = proc::setting("net.ipv4.tcp_mem").and_then(|text| text.split_whitespace().nth(2)?.parse::<u64>().ok());
        Facts {
            descriptors: proc::descriptor_limit(std::process::id()).map_or(u64::MAX, |(_, hard)| hard),
            open: proc::open_descriptors(std::process::id()).unwrap_or(0),
            files: files(),
            memory: proc::memory("MemAvailable"),
            time_wait: tcp("tw").unwrap_or(0),
            ports: Ports::of_this_machine(),
            backlog: backlog(&plan.targets),
            servers_are_here: plan.targets.iter().all(server::is_here),
            tcp: pages.map(|most| most.saturating_sub(tcp("mem").unwrap_or(0)).saturating_mul(page_size() as u64)),
            allowed: Limits::own(),
        }
    }
}

fn files() -> Option<u64> {
    let text = proc::setting("fs.file-nr")?;
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
    let (taken, _, most) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(most.saturating_sub(taken))
}

fn backlog(targets: &[Address]) -> Option<u64> {
    let queues = server::accept_queues(targets.iter().filter(|target| server::is_here(target)));
    (!queues.is_empty()).then(|| queues.iter().map(|queue| u64::from(queue.backlog)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::workload::{Hello, Workload};
    use std::net::TcpListener;

    #[test]
    fn this_machine_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let target = Address::Tcp(listener.local_addr().expect("it is bound"));
        let facts = Facts::of_this_machine(&Plan { targets: vec![target], ..plan(Workload::Hello(Hello)) });
        assert!(facts.descriptors >= facts.open && facts.open > 3, "{facts:?}");
        assert!(facts.files > Some(0) && facts.memory > Some(0) && facts.tcp > Some(0) && facts.ports.is_some(), "{facts:?}");
        // The standard library asks for 128, the kernel gives no more than its setting says.
        assert_eq!(facts.backlog, proc::number("net.core.somaxconn").map(|most| most.min(128)));
        assert!(facts.servers_are_here);
        let far = Plan { targets: vec!["192.0.2.1:80".parse().expect("an address")], ..plan(Workload::Hello(Hello)) };
        let facts = Facts::of_this_machine(&far);
        assert_eq!((facts.servers_are_here, facts.backlog), (false, None));
        assert_eq!(proc::descriptor_limit(std::process::id()).map(|(soft, hard)| soft <= hard), Some(true));
    }
}
