//! What a run is asked to do: typed, and complete before the first connect.

use crate::dialogue::Dialogue;
use crate::http::Wanted;
use crate::messages::Messages;
use serde::{Deserialize, Serialize};
use sockdrawer::Address;
use std::net::IpAddr;
use std::time::Duration;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What the connections do.
    pub workload: Workload,
    /// Servers, taken in turn; none: one inside this process.
    pub targets: Vec<Address>,
    /// Local addresses, taken in turn; none: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The first and the last local port; None: those that the machine has for it.
    pub local_ports: Option<(u16, u16)>,
    /// The most connections at once; without stages there are to be so many from the first moment.
    pub connections: usize,
    /// How many there are to be, one stage after the other, from none on.
    pub stages: Vec<Stage>,
    /// The run ends after so many operations of all connections.
    pub operations: Option<u64>,
    /// The run ends after this time.
    pub end: End,
    /// The most connects per second.
    pub connect_rate: Option<f64>,
    /// How long one connect, and one answer, may take.
    pub timeout: Duration,
    /// A connection ends by itself so long after it stands, and another takes its place.
    pub lifetime: Option<Duration>,
    /// Processes of the server to watch; none: those that listen at the targets, where these are of this machine.
    pub server_pids: Vec<u32>,
    /// Who runs the clients.
    pub processes: Processes,
    /// Chooses the bytes of messages, and among pages: the same seed sends the same.
    pub seed: u64,
}

/// A way from the connections there were to so many, at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// How long it takes.
    pub time: Duration,
    /// How many there are to be at its end.
    pub connections: usize,
}

/// How many processes run the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// This one alone, unless its descriptors are too few.
    #[default]
    Auto,
    /// So many besides this one, at least one.
    Exactly(u32),
}

/// What connections do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Workload {
    /// Each sends `Ping` and waits for `Pong`, each `interval`; zero is back to back. An operation is a round trip.
    Ping {
        /// From one ping to the next.
        interval: Duration,
    },
    /// Each sends a message and waits until it is back. An operation is a round trip.
    Echo {
        /// From one message to the next.
        interval: Duration,
        /// Bytes of a message.
        size: u32,
    },
    /// Each says the same again and again, and expects an answer each time. An operation is a round trip.
    Dialogue(Dialogue),
    /// Each reads a greeting and ends; another takes its place. An operation is a connection.
    Hello,
    /// Each has a request and ends, and another takes its place: an operation is a connection. Or each is kept and has one
    /// request after the other, which are the operations.
    Http(Wanted),
    /// Each sends messages and verifies their acks. An operation is a message.
    Acks(Messages),
}

impl Workload {
    /// Whether a connection that ends is replaced by another, by its nature.
    pub fn renews(&self) -> bool {
        matches!(self, Workload::Hello | Workload::Http(_))
    }

    /// As it is named on the command line and in results.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Ping { .. } => "ping",
            Workload::Echo { .. } => "echo",
            Workload::Dialogue(dialogue) => dialogue.name(),
            Workload::Hello => "hello",
            Workload::Http(_) => "http",
            Workload::Acks(_) => "acks",
        }
    }
}

/// What time ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// None: it ends when its operations are done.
    Never,
    /// When the last stage is over.
    AfterStages,
    /// So long after the first connect.
    AfterFirstConnect(Duration),
    /// So long after the last connect of the last stage succeeded or failed. Short connections and those with a lifetime are made all
    /// the time: with them a run does not end by this.
    AfterLastConnect(Duration),
}

impl Plan {
    /// 64 connections to a server in this process, as fast as they come about, without an end.
    pub fn new(workload: Workload) -> Plan {
        Plan {
            workload,
            targets: Vec::new(),
            sources: Vec::new(),
            local_ports: None,
            connections: 64,
            stages: Vec::new(),
            operations: None,
            end: End::Never,
            connect_rate: None,
            timeout: Duration::from_secs(30),
            lifetime: None,
            server_pids: Vec::new(),
            processes: Processes::Auto,
            seed: 0,
        }
    }

    /// Connects in all: a connection that is lost is not replaced, because the loss is what one wants to see; a short one is
    /// replaced as long as operations are left.
    pub(crate) fn connects(&self) -> Option<u64> {
        match self.workload {
            _ if self.is_short() => self.operations,
            // The server may end any of them after an answer, or before the first one, and another takes its place.
            _ if self.lifetime.is_some() => None,
            Workload::Http(_) => self.operations.map(|operations| operations.saturating_add(self.connections as u64)),
            _ => Some(self.connections as u64),
        }
    }

    /// Whether an operation is a whole connection.
    pub fn is_short(&self) -> bool {
        match &self.workload {
            Workload::Hello => true,
            Workload::Http(wanted) => wanted.close.is_some(),
            _ => false,
        }
    }

    /// Whether a connection that ends is replaced by another.
    pub fn renews(&self) -> bool {
        self.lifetime.is_some() || self.workload.renews()
    }

    /// Whether there is an interval from one operation of a connection to the next, which may change.
    pub(crate) fn has_interval(&self) -> bool {
        matches!(self.workload, Workload::Ping { .. } | Workload::Echo { .. } | Workload::Dialogue(_))
    }

    /// From one operation of a connection to the next; zero where they are back to back, or come otherwise.
    pub(crate) fn interval(&self) -> Duration {
        match &self.workload {
            Workload::Ping { interval } | Workload::Echo { interval, .. } => *interval,
            Workload::Dialogue(dialogue) => dialogue.interval,
            _ => Duration::ZERO,
        }
    }

    /// What is asked for, in the workload `http`.
    pub fn http(&self) -> Option<&Wanted> {
        if let Workload::Http(wanted) = &self.workload { Some(wanted) } else { None }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run without an end, of 50 connections to a server inside this process.
    pub(crate) fn plan(workload: Workload) -> Plan {
        Plan { connections: 50, seed: 7, ..Plan::new(workload) }
    }
}
