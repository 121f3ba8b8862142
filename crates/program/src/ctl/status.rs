//! The status that a server tells: the answer of `GET /status`, as far as it is shown. Keys that a later server adds are left out, and those
//! that it lacks are 0.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) uptime_seconds: f64,
    pub(super) revision: u64,
    pub(super) changes: u64,
    pub(super) failed_changes: u64,
    pub(super) refused_files: Option<String>,
    pub(super) ready: bool,
    pub(super) pools: BTreeMap<String, Pool>,
    pub(super) tables: BTreeMap<String, Own>,
}

/// A table of the program's own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Own {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<serde_json::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pool {
    pub(super) protocol: String,
    pub(super) model: String,
    pub(super) readiness: String,
    pub(super) generation: u32,
    pub(super) generations: Vec<Generation>,
    pub(super) connections: u64,
    pub(super) limit: u64,
    pub(super) listeners: Vec<Listener>,
    pub(super) loops: Vec<Loop>,
    pub(super) jobs_waiting: u64,
    pub(super) restarts: u64,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) tls: Tls,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tls {
    pub(super) certificates: Vec<Certificate>,
    pub(super) handshakes: BTreeMap<String, u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Certificate {
    pub(super) file: String,
    /// Moment of its end, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Generation {
    pub(super) id: u32,
    pub(super) connections: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Listener {
    pub(super) address: String,
    pub(super) connections: u64,
    pub(super) limit: Option<u64>,
    pub(super) readiness: String,
    pub(super) queued: u64,
    pub(super) backlog: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Loop {
    pub(super) connections: u64,
    pub(super) active: bool,
    pub(super) stuck: bool,
}

impl Pool {
    /// Returns a counter; 0 where the server does not have it.
    pub(super) fn counted(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}
