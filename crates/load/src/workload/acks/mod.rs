//! `acks`: what each connection sends, and how it is answered.

mod report;

pub use report::Acks;
pub(crate) use report::{hints, numbers};

use super::kind::{Kind, Life, Properties, each};
use super::recorder::Recorder;
use super::shared::Shared;
use sockdrawer::{Behaviour, Model};
use sockdrawer_catalog::acks::{self, AckPattern};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a message besides its payload: its id and its size.
const HEADER: u64 = 12;

/// Messages of one run, alike on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Messages {
    /// Pattern by which the server acknowledges. A server elsewhere decides that for itself: what counts for it is whether this is
    /// [`AckPattern::Reply`], because sizes and acks are written differently then.
    pub pattern: AckPattern,
    /// Manner in which the server in this process reads. Other servers cannot be told.
    pub reading: Reading,
    /// Bytes of each payload.
    pub size: u32,
    /// Messages in one write.
    pub batch: u64,
    /// Maximum of messages without ack; no less than `batch`.
    pub window: u64,
    /// Time from one message to the next; zero is back to back.
    pub interval: Duration,
}

/// Manner in which a server in this process takes messages out of its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reading {
    /// Whole reads: as many messages as there are in each.
    #[default]
    Whole,
    /// A read for each header and a read for each payload, by blocking code in a thread for each connection. Only with [`AckPattern::Timer`]; there
    /// is no such server for the others.
    TwoPerMessage,
}

impl Messages {
    /// Returns the bytes of a message.
    pub fn bytes(&self) -> u64 {
        HEADER + u64::from(self.size)
    }
}

impl Kind for Messages {
    fn properties(&self) -> Properties {
        Properties { interval: self.interval, ..Properties::new("acks", Life::Stream) }
    }

    fn client(&self, shared: &Arc<Shared>) -> Behaviour {
        let Messages { pattern, size, batch, window, interval, .. } = *self;
        let Shared { timeout, seed, .. } = **shared;
        let options = acks::Options { pattern, size, batch, window, interval, timeout, budget: shared.budget(), seed };
        acks::Client::new(options, Recorder::each_of_messages(shared)).into()
    }

    fn server(&self) -> (Behaviour, Model) {
        match (self.reading, self.pattern) {
            (Reading::TwoPerMessage, AckPattern::Timer(after)) => (acks::two_reads(after), Model::Threads),
            _ => (acks::Acks { pattern: self.pattern }.into(), Model::Loops),
        }
    }

    fn set_rate(&mut self, per_second: f64, connections: usize) -> bool {
        self.interval = each(per_second, connections);
        true
    }
}
