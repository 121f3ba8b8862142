//! The status of the program and its pools, as JSON.

use crate::document::Shown;
use crate::hub;
use crate::metrics::not_ready;
use crate::operator::Operator;
use crate::tls::Certificate;
use crate::words::readiness;
use serde::Serialize;
use serde_json::Value;
use sockdrawer::Pool;
use sockdrawer::observe::{Counts, GenerationStatus, LoopStatus};
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(super) struct Status {
    version: String,
    pid: u32,
    uptime_seconds: f64,
    revision: u64,
    changes: u64,
    failed_changes: u64,
    /// Reason why what the files of certificates have now is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_files: Option<String>,
    events_lost: u64,
    /// True where all pools take connections.
    ready: bool,
    pools: BTreeMap<String, PoolStatus>,
    /// Tables of the program itself.
    tables: BTreeMap<&'static str, TableStatus>,
}

#[derive(Serialize)]
struct TableStatus {
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

#[derive(Serialize)]
struct PoolStatus {
    protocol: &'static str,
    model: &'static str,
    readiness: String,
    generation: u32,
    generations: Vec<GenerationStatus>,
    connections: usize,
    limit: usize,
    listeners: Vec<Listener>,
    retiring: usize,
    processes: Vec<Process>,
    loops: Vec<LoopStatus>,
    threads: usize,
    workers: usize,
    jobs_waiting: usize,
    delegates: usize,
    delegates_waiting: usize,
    restarts: usize,
    counts: Counts,
    /// State of TLS, in a pool that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsStatus>,
}

#[derive(Serialize)]
struct TlsStatus {
    certificates: Vec<Certificate>,
    handshakes: Handshakes,
}

#[derive(Serialize)]
struct Handshakes {
    full: u64,
    resumed: u64,
    failed: u64,
}

#[derive(Serialize)]
struct Listener {
    address: String,
    connections: usize,
    limit: Option<usize>,
    readiness: String,
    queued: usize,
    backlog: u32,
    sockets: usize,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    connections: usize,
    active: bool,
}

pub(super) fn of(operator: &Operator) -> Status {
    let state = operator.server.state();
    let pool = |(name, pool): (&String, &Pool)| {
        let protocol = state.document.pools.get(name).map_or("", |pool| pool.protocol);
        let tls = state.tls.get(name).filter(|tls| tls.client.is_some() || !tls.certificates.is_empty());
        let certificates = tls.map(|tls| tls.certificates.clone());
        (name.clone(), pool_status(protocol, pool, certificates))
    };
    let pools: BTreeMap<_, _> = state.pools.iter().map(pool).collect();
    let table = |shown: &Shown| {
        let rows = (shown.rows)().iter().map(|row| row.iter().map(hub::value).collect()).collect();
        (shown.name, TableStatus { columns: shown.columns, rows })
    };
    let tables = operator.server.known.shown.iter().map(table).collect();
    Status {
        version: operator.version().to_owned(),
        pid: std::process::id(),
        uptime_seconds: operator.server.began.elapsed().as_secs_f64(),
        revision: state.revision,
        changes: state.changes,
        failed_changes: state.failed_changes,
        refused_files: state.refused_files,
        events_lost: operator.server.hub.lost.load(std::sync::atomic::Ordering::Relaxed),
        ready: not_ready(&operator.server).is_none(),
        pools,
        tables,
    }
}

fn pool_status(protocol: &'static str, pool: &Pool, certificates: Option<Vec<Certificate>>) -> PoolStatus {
    let (status, config) = (pool.status(), pool.config());
    let listener = |one: sockdrawer::observe::ListenerStatus| Listener {
        address: one.address.to_string(),
        connections: one.connections,
        limit: one.limit,
        readiness: readiness(&one.readiness),
        queued: one.queued,
        backlog: one.backlog,
        sockets: one.sockets,
    };
    let process =
        |one: sockdrawer::observe::ProcessStatus| Process { pid: one.pid, connections: one.connections, active: one.active };
    let Counts { handshakes_full: full, handshakes_resumed: resumed, handshakes_failed: failed, .. } = status.counts;
    let handshakes = Handshakes { full, resumed, failed };
    PoolStatus {
        protocol,
        model: config.model.name(),
        readiness: readiness(&status.readiness),
        generation: status.generation,
        generations: status.generations,
        connections: status.connections,
        limit: status.limit,
        listeners: status.listeners.into_iter().map(listener).collect(),
        retiring: status.retiring,
        processes: status.processes.into_iter().map(process).collect(),
        loops: status.loops,
        threads: status.threads,
        workers: status.workers,
        jobs_waiting: status.jobs_waiting,
        delegates: status.delegates,
        delegates_waiting: status.delegates_waiting,
        restarts: status.restarts,
        counts: status.counts,
        tls: certificates.map(|certificates| TlsStatus { certificates, handshakes }),
    }
}
