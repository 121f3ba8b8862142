//! The server beside the clients: what a run costs its two ends in CPU time, and on the run's time axis the server's memory, its
//! kernel's memory, its packets and its queue. Where the server is in this process, its threads are told from the client's; where it
//! is another process of this machine, that process is found by its listening socket or named; elsewhere it is not known.

mod family;
mod fit;
mod follow;
mod listening;
mod network;
mod processes;
mod sample;
mod sockets;
mod threads;
mod unix_diag;

pub(crate) use follow::LEAST_CONNECTIONS;
use follow::{Follow, Who};

use crate::cgroup::{Limits, Quota};
use crate::workload::Numbers;
pub(crate) use listening::accept_queues;
use processes::Process;
pub use sample::{Server, ServerSample};
use sockdrawer::Address;
use std::collections::BTreeMap;
use std::time::Duration;
use threads::Threads;
pub(crate) use threads::own as own_time;
pub(crate) use threads::process_time;

/// Returns true where bytes that are sent there stay on this machine.
pub(crate) fn is_here(target: &Address) -> bool {
    match target {
        Address::Tcp(target) => listening::is_of_this_machine(target.ip().to_canonical()),
        _ => true,
    }
}

/// Returns true where a socket of this machine, that can be seen here, accepts connects to the target.
pub(crate) fn accepts(target: &Address) -> bool {
    listening::sockets(target).is_some()
}

/// Returns the processes that accept what is sent there, as far as this user may look: one that started another of them manages it, and has the
/// sockets for it.
pub(crate) fn processes_of(target: &Address) -> Vec<u32> {
    let owners = processes::owners(std::slice::from_ref(target)).map(|(owners, _)| owners).unwrap_or_default();
    let managers: Vec<u32> = owners.iter().filter_map(|id| family::stat(*id)).map(|stat| stat.parent).collect();
    owners.into_iter().filter(|id| !managers.contains(id)).collect()
}

/// CPU time of both ends; None where it cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) client: Option<Duration>,
    pub(crate) server: Option<Duration>,
}

/// Watch of a server: the threads or processes of each end, and what each had used when it began. Everything in this process that is not the server
/// is the client: two runs at once in one process are counted together.
#[derive(Debug)]
pub(crate) struct Watch {
    server: Watched,
    /// CPU time of this process.
    before: Duration,
    follow: Follow,
    /// Quota of the server's processes, where it is not that of this process.
    quota: Option<Quota>,
}

#[derive(Debug)]
enum Watched {
    Here(Threads),
    /// Processes, and all that they started.
    There {
        roots: Vec<u32>,
        before: BTreeMap<u32, Process>,
    },
    /// The server is not told from the client.
    Mixed,
    /// The server is not known.
    Elsewhere,
}

impl Watch {
    /// Watches a server in this process that `start` starts, before anything of the client; `at` says where it listens.
    pub(crate) fn here<T, E>(start: impl FnOnce() -> Result<T, E>, at: impl FnOnce(&T) -> Vec<Address>) -> Result<(T, Watch), E> {
        let others = threads::ids();
        let started = start()?;
        let (server, before) = (Threads::new(&others).map_or(Watched::Mixed, Watched::Here), process_time());
        let who = if let Watched::Here(threads) = &server { Who::Threads(threads.tasks().collect()) } else { Who::Unknown };
        let follow = Follow::new(who, at(&started));
        Ok((started, Watch { server, before, follow, quota: None }))
    }

    /// Servers that have been there before: these processes, or none: those that listen at the targets.
    pub(crate) fn there(targets: &[Address], named: &[u32]) -> Watch {
        // Looking for the processes that listen takes long where many connections stand: it is done once.
        let listening = || processes::of(targets).map(|processes| processes.into_keys().collect());
        let roots: Option<Vec<u32>> = if named.is_empty() { listening() } else { Some(named.to_vec()) };
        let before = roots.as_deref().and_then(processes::these);
        let (server, who) = match roots.zip(before) {
            Some((roots, before)) => (Watched::There { roots: roots.clone(), before }, Who::Processes(roots)),
            None => (Watched::Elsewhere, Who::Unknown),
        };
        let roots = if let Watched::There { roots, .. } = &server { roots.as_slice() } else { &[] };
        let own = Limits::own().cpu.map(|quota| quota.file);
        let quotas =
            roots.iter().filter_map(|process| Limits::of(*process).cpu).filter(|quota| Some(&quota.file) != own.as_ref());
        let quota = quotas.min_by(|one, other| one.cpus.total_cmp(&other.cpus));
        Watch { server, before: process_time(), follow: Follow::new(who, targets.to_vec()), quota }
    }

    /// Returns a sample of the server now, when `standing` connections stand and `done` has been done. None: it is not known.
    pub(crate) fn sample(&mut self, standing: u64, done: Numbers) -> Option<ServerSample> {
        let cpu = self.cpu();
        self.follow.sample(standing, done, cpu)
    }

    /// Measures the server now that nothing begins any more, with `standing` connections; samples that follow are of those that end.
    pub(crate) fn weigh(&mut self, standing: u64) {
        self.follow.weigh(standing);
    }

    /// Returns the CPU time that was used since the beginning, and all that came of the samples. `ended` is the time of threads of the client that
    /// are not there any more; `operations` are all that ended well.
    pub(crate) fn end(&self, ended: Duration, operations: u64) -> (Cost, Server) {
        let cost = self.cost(ended);
        (cost, self.follow.figures(cost.server, operations))
    }

    /// Returns the CPU time of this side's part of this process.
    pub(crate) fn client(&self, ended: Duration) -> Option<Duration> {
        let total = process_time().saturating_sub(self.before);
        match &self.server {
            Watched::Here(threads) => threads.of_others().map(|client| (client + ended).min(total)),
            Watched::There { .. } | Watched::Elsewhere => Some(total),
            Watched::Mixed => None,
        }
    }

    /// Returns the quota of CPU time that the server has, and this process has not.
    pub(crate) fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// Returns the part of the TCP segments of the server's network that was sent again, or of this one's where the server is elsewhere.
    pub(crate) fn sent_again(&self) -> Option<f64> {
        self.follow.sent_again()
    }

    /// Returns the CPU time of the server's threads in this process; the samples know that of other processes.
    fn cpu(&self) -> Option<Duration> {
        let Watched::Here(threads) = &self.server else { return None };
        let total = process_time().saturating_sub(self.before);
        threads.of_others().map(|client| total.saturating_sub(client))
    }

    /// Returns the CPU time that was used since. `ended` is the time of threads of the client that are not there any more.
    fn cost(&self, ended: Duration) -> Cost {
        // Threads of the server that ended are in no table any more, but in the whole.
        let total = process_time().saturating_sub(self.before);
        let client = self.client(ended).map(|client| client.min(total));
        let server = match &self.server {
            Watched::Here(_) => client.map(|client| total - client),
            Watched::There { roots, before } => processes::these(roots).and_then(|now| processes::since(before, &now)),
            Watched::Mixed | Watched::Elsewhere => None,
        };
        Cost { client, server }
    }
}
