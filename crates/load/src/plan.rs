//! Plan of a run: typed, and complete before the first connect.

use crate::numbers::float;
use crate::tls::Tls;
use crate::websocket::WebSocket;
use crate::workload::{Life, Workload};
use serde::{Deserialize, Serialize};
use sockdrawer::Address;
use sockdrawer::layer::proxy_header::{Sends, Version};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Descriptors of a process that are no connections.
pub(crate) const OTHERS: usize = 256;
/// More are no help to a machine of any size.
const MAX_PROCESSES: usize = 1_000;

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Work of the connections.
    pub workload: Workload,
    /// Servers, taken in turn; none: one inside this process.
    pub targets: Vec<Address>,
    /// The clients speak TLS, and the server in this process too.
    pub tls: Option<Tls>,
    /// The clients speak WebSocket; the server in this process does not.
    pub websocket: Option<WebSocket>,
    /// Local addresses, taken in turn; none: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The first and the last local port; None: those that the machine has for it.
    pub local_ports: Option<(u16, u16)>,
    /// The header of the PROXY protocol with which each connection begins.
    pub proxy_header: Option<ProxyHeader>,
    /// Maximum of connections at once; without stages there are to be as many from the first moment.
    pub connections: usize,
    /// Stages of the number of connections, one after the other, from none on.
    pub stages: Vec<Stage>,
    /// Number of operations of all connections after which the run ends.
    pub operations: Option<u64>,
    /// Time after which the run ends.
    pub end: End,
    /// Maximum of connects per second.
    pub connect_rate: Option<f64>,
    /// Maximum time of a connect, and of an answer.
    pub timeout: Duration,
    /// Time after which a connection that stands ends by itself, and another takes its place.
    pub lifetime: Option<Duration>,
    /// A connection of round trips that ends before its time is replaced by another.
    pub reconnect: bool,
    /// The times between the operations of a connection are random, and as long as its interval on the average.
    pub poisson: bool,
    /// Processes of the server to watch; none: those that listen at the targets, where these are of this machine.
    pub server_pids: Vec<u32>,
    /// Processes that run the clients.
    pub processes: Processes,
    /// Seed of the bytes of messages, and of the choice among pages: equal seeds send equal bytes.
    pub seed: u64,
}

/// Header with which a connection says for whom it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyHeader {
    /// The form of the header.
    pub version: Version,
    /// Address on whose behalf the connection is made; None: its own.
    pub source: Option<SocketAddr>,
}

impl ProxyHeader {
    pub(crate) fn sends(self) -> Sends {
        Sends::new(self.version).on_behalf_of(move |_| self.source)
    }
}

/// Way from the connections there were to another number, at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Time that the stage takes.
    pub time: Duration,
    /// Number of connections that there are to be at its end.
    pub connections: usize,
}

/// Number of processes that run the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// This process alone, unless its descriptors are too few.
    #[default]
    Auto,
    /// Number of processes besides this one, at least one.
    Exactly(u32),
}

/// Time that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// No time: the run ends when its operations are done.
    Never,
    /// The end of the last stage.
    AfterStages,
    /// This time after the first connect.
    AfterFirstConnect(Duration),
    /// This time after the last connect of the last stage succeeded or failed. Short connections are made all the time: with them a run does not end
    /// by this. Of others that are replaced it is the last of those that were wanted at first.
    AfterLastConnect(Duration),
}

impl Plan {
    /// Creates a plan of 64 connections to a server in this process, as fast as they come about, without an end.
    pub fn new(workload: Workload) -> Plan {
        Plan {
            workload,
            targets: Vec::new(),
            tls: None,
            websocket: None,
            sources: Vec::new(),
            local_ports: None,
            proxy_header: None,
            connections: 64,
            stages: Vec::new(),
            operations: None,
            end: End::Never,
            connect_rate: None,
            timeout: Duration::from_secs(30),
            lifetime: None,
            reconnect: false,
            poisson: false,
            server_pids: Vec::new(),
            processes: Processes::Auto,
            seed: 0,
        }
    }

    /// Returns the number of connects in all: a connection that is lost is not replaced unless that is asked for, because the loss is the result; a
    /// short one is replaced as long as operations are left.
    pub(crate) fn connects(&self) -> Option<u64> {
        match self.workload.properties().life {
            Life::Short => self.operations,
            _ if self.lifetime.is_some() || self.reconnect => None,
            // The server may end any of them after an answer, or before the first one, and another takes its place.
            Life::Kept => self.operations.map(|operations| operations.saturating_add(self.connections as u64)),
            Life::RoundTrips | Life::Stream => Some(self.connections as u64),
        }
    }

    /// Returns true where an operation is a whole connection.
    pub fn is_short(&self) -> bool {
        self.workload.properties().life == Life::Short
    }

    /// Returns true where a connection that ends is replaced by another.
    pub fn renews(&self) -> bool {
        self.lifetime.is_some() || self.reconnect || self.workload.properties().life.renews()
    }

    /// Returns true where there is an interval from one operation of a connection to the next, which may change.
    pub(crate) fn has_interval(&self) -> bool {
        matches!(self.workload.properties().life, Life::RoundTrips | Life::Kept)
    }

    /// Returns true if there is a time between operations of a connection.
    pub fn has_pauses(&self) -> bool {
        self.has_interval() && !self.workload.properties().interval.is_zero()
    }

    /// Returns the number of processes that run the clients besides this one; 0: this one does.
    ///
    /// Both ends of a server in this process are connections of it.
    pub fn processes(&self, descriptors: usize) -> usize {
        let room = descriptors.saturating_sub(OTHERS).max(1);
        let ends = if self.targets.is_empty() { 2 } else { 1 };
        match self.processes {
            Processes::Exactly(processes) => processes as usize,
            Processes::Auto if self.connections.saturating_mul(ends) <= room => 0,
            Processes::Auto => self.connections.div_ceil(room).min(MAX_PROCESSES),
        }
    }

    /// Returns the number of connections at once that its processes have descriptors for.
    pub fn fits(&self, descriptors: usize) -> usize {
        let room = descriptors.saturating_sub(OTHERS).max(1);
        match (self.processes(descriptors), self.targets.is_empty()) {
            (0, true) => room / 2,
            (0, false) => room,
            // The server's ends are in this process.
            (_, true) => room,
            (processes, false) => room.saturating_mul(processes),
        }
    }

    /// Returns the plan of an agent, which is number `number` of `of`. Stages are told as they come.
    pub(crate) fn part(&self, number: usize, of: usize) -> Plan {
        let mut plan = self.clone();
        plan.connections = part(self.connections, number, of);
        plan.operations = self.operations.map(|operations| {
            let (all, number, of) = (operations, number as u64, of as u64);
            all / of + u64::from(number < all % of)
        });
        plan.connect_rate = self.connect_rate.map(|rate| rate / float(of as u64));
        if let Some(rate) = self.workload.properties().schedule {
            plan.workload.set_rate(rate / float(of as u64), plan.connections);
        }
        plan.stages.clear();
        plan.seed = self.seed.wrapping_add(number as u64);
        // Each begins with another source, so that few connects of them meet.
        if !plan.sources.is_empty() {
            let first = number % plan.sources.len();
            plan.sources.rotate_left(first);
        }
        plan
    }
}

pub(crate) fn part(whole: usize, number: usize, of: usize) -> usize {
    whole / of + usize::from(number < whole % of)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::Hello;

    /// Returns the plan of a run without an end, of 50 connections to a server inside this process.
    pub(crate) fn plan(workload: Workload) -> Plan {
        Plan { connections: 50, seed: 7, ..Plan::new(workload) }
    }

    #[test]
    fn parts_add_up() {
        let whole = Plan {
            connections: 11,
            operations: Some(7),
            connect_rate: Some(90.0),
            stages: vec![Stage { time: Duration::from_secs(1), connections: 11 }],
            ..plan(Workload::Hello(Hello))
        };
        let parts: Vec<Plan> = (0..3).map(|number| whole.part(number, 3)).collect();
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [4, 4, 3]);
        assert_eq!(parts.iter().map(|part| part.operations).collect::<Vec<_>>(), [Some(3), Some(2), Some(2)]);
        assert!(parts.iter().all(|part| part.connect_rate == Some(30.0) && part.stages.is_empty()));
        assert_eq!((0..3).map(|number| part(5, number, 3)).sum::<usize>(), 5);
    }

    #[test]
    fn descriptors_decide_how_many_processes_there_are() {
        let to = |targets: &[&str], connections| Plan {
            targets: targets.iter().map(|target| target.parse().expect("an address")).collect(),
            connections,
            ..plan(Workload::Hello(Hello))
        };
        let far = |connections| to(&["127.0.0.1:9"], connections).processes(1_256);
        assert_eq!([far(1), far(1_000), far(1_001), far(5_000)], [0, 0, 2, 5]);
        let here = |connections| to(&[], connections).processes(1_256);
        assert_eq!([here(500), here(501), here(1_000)], [0, 1, 1], "a server in this process has the other ends");
        let fits = |plan: Plan| plan.fits(1_256);
        assert_eq!(
            [fits(to(&["127.0.0.1:9"], 1)), fits(to(&["127.0.0.1:9"], 1_001)), fits(to(&[], 1)), fits(to(&[], 501))],
            [1_000, 2_000, 500, 1_000]
        );
        let exactly = Plan { processes: Processes::Exactly(3), ..plan(Workload::Hello(Hello)) };
        assert_eq!(exactly.processes(1_256), 3);
    }
}
