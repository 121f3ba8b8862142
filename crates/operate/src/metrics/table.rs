//! Every metric. The reference is held to this table by a test.

use super::View;
use crate::process;
use crate::times::Times;
use crate::totals::{RESTARTS, Totals};
use sockdrawer::observe::{ListenerStatus, Readiness, Status};
use sockdrawer_catalog::openmetrics::{Family, Kind, Writer, float};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// A family, and where its values come from.
pub(super) struct Metric {
    pub(super) family: Family,
    /// The label beside `pool`; empty: none.
    pub(super) label: &'static str,
    pub(super) of: Of,
}

/// Source of values.
pub(super) enum Of {
    /// Counters of each pool, each with its value of the label.
    Counts(&'static [(&'static str, &'static str)]),
    /// The status of each pool.
    Pools(fn(&Status) -> Values),
    /// The whole program.
    Program(fn(&View) -> Values),
    /// Times of the whole program.
    Times(fn(&Totals) -> &Times),
}

/// Values, each with its value of the label.
type Values = Vec<(String, f64)>;

impl Metric {
    pub(super) fn write(&self, view: &View, to: &mut Writer) {
        to.family(&self.family);
        let mut sample = |pool: Option<&str>, value: &str, number: f64| {
            let pool = pool.map(|pool| ("pool", pool));
            let label = (!self.label.is_empty()).then_some((self.label, value));
            to.sample(&pool.into_iter().chain(label).collect::<Vec<_>>(), number);
        };
        match self.of {
            Of::Counts(counters) => {
                for (pool, sums) in &view.totals.pools {
                    for (value, counter) in counters {
                        sample(Some(pool), value, float(sums.get(*counter).copied().unwrap_or(0)));
                    }
                }
            }
            Of::Pools(values) => {
                for (pool, status) in &view.pools {
                    values(status).iter().for_each(|(value, number)| sample(Some(pool), value, *number));
                }
            }
            Of::Program(values) => values(view).iter().for_each(|(value, number)| sample(None, value, *number)),
            Of::Times(times) => {
                let times = times(&view.totals);
                to.histogram(&[], times.up_to(), times.count, times.sum);
            }
        }
    }
}

const fn counter(name: &'static str, help: &'static str, counts: &'static [(&'static str, &'static str)]) -> Metric {
    Metric { family: Family::new(name, Kind::Counter, help), label: "", of: Of::Counts(counts) }
}

const fn gauge(name: &'static str, help: &'static str, of: fn(&Status) -> Values) -> Metric {
    Metric { family: Family::new(name, Kind::Gauge, help), label: "", of: Of::Pools(of) }
}

const fn program(name: &'static str, kind: Kind, help: &'static str, of: fn(&View) -> Values) -> Metric {
    Metric { family: Family::new(name, kind, help), label: "", of: Of::Program(of) }
}

const fn times(name: &'static str, help: &'static str, of: fn(&Totals) -> &Times) -> Metric {
    Metric { family: Family::new(name, Kind::Histogram, help), label: "", of: Of::Times(of) }
}

impl Metric {
    const fn by(mut self, label: &'static str) -> Metric {
        self.label = label;
        self
    }
}

fn one(number: usize) -> Values {
    alone(float(number as u64))
}

fn alone(number: f64) -> Values {
    vec![(String::new(), number)]
}

fn known(number: Option<f64>) -> Values {
    number.map(alone).unwrap_or_default()
}

fn truth(is: bool) -> Values {
    one(usize::from(is))
}

fn listeners(status: &Status, number: impl Fn(&ListenerStatus) -> Option<usize>) -> Values {
    let value = |one: &ListenerStatus| Some((one.address.to_string(), float(number(one)? as u64)));
    status.listeners.iter().filter_map(value).collect()
}

pub(super) static METRICS: &[Metric] = &[
    counter(
        "sockdrawer_connections_accepted",
        "Connections accepted, those turned away included.",
        &[("", "accepted")],
    ),
    counter("sockdrawer_connections_closed", "Connections that ended, for whatever reason.", &[("", "closed")]),
    counter(
        "sockdrawer_connections_rejected",
        "Connections turned away, by the reason.",
        &[
            ("pool_full", "rejected_pool_full"),
            ("listener_full", "rejected_listener_full"),
            ("too_fast", "rejected_too_fast"),
            ("per_peer", "rejected_per_peer"),
            ("policy", "rejected_by_policy"),
            ("refusing", "rejected_refusing"),
        ],
    )
    .by("reason"),
    counter(
        "sockdrawer_tls_handshakes",
        "TLS handshakes that ended, by what came of them.",
        &[("full", "handshakes_full"), ("resumed", "handshakes_resumed"), ("failed", "handshakes_failed")],
    )
    .by("outcome"),
    program(
        "sockdrawer_tls_certificate_expiry_seconds",
        Kind::Gauge,
        "When the certificate in a file expires, in seconds since 1970.",
        |view| {
            let all = view.state.tls.values().flat_map(|tls| &tls.certificates);
            let known: BTreeMap<_, _> = all.filter_map(|one| Some((one.file.clone(), one.expires?))).collect();
            known.into_iter().map(|(file, expires)| (file, float(expires))).collect()
        },
    )
    .by("certificate"),
    counter(
        "sockdrawer_connections_ended",
        "Connections that did not end in order, by the reason; closed connections that are not here ended as their protocol asked.",
        &[
            ("error", "errors"),
            ("too_long", "too_long"),
            ("aborted", "aborted"),
            ("crashed", "crashed"),
            ("overflow", "overflow"),
            ("idle", "idle"),
            ("purged", "purged"),
            ("killed", "killed"),
            ("cut", "cut"),
        ],
    )
    .by("reason"),
    counter(
        "sockdrawer_accept_errors",
        "Failures of accept: connection, which concerned one connection only; starved, after which accepting paused for want of descriptors, memory or threads.",
        &[("connection", "accept_failed"), ("starved", "accept_starved")],
    )
    .by("class"),
    counter("sockdrawer_connects", "Connects begun.", &[("", "connects")]),
    counter("sockdrawer_connects_failed", "Connects that failed.", &[("", "connect_failed")]),
    counter("sockdrawer_received_bytes", "Bytes received.", &[("", "bytes_in")]),
    counter("sockdrawer_sent_bytes", "Bytes sent.", &[("", "bytes_out")]),
    counter(
        "sockdrawer_panics",
        "Panics of user code, by where: protocol (callbacks and the service), job, admission policy.",
        &[("protocol", "panics"), ("job", "job_panics"), ("admission", "admission_panics")],
    )
    .by("kind"),
    counter("sockdrawer_restarts", "Loops, workers and processes that were replaced, and threads that died.", &[("", RESTARTS)]),
    counter("sockdrawer_jobs", "Jobs handed to workers, or run in place.", &[("", "jobs")]),
    counter("sockdrawer_jobs_refused", "Jobs refused because the queue was full.", &[("", "jobs_refused")]),
    counter("sockdrawer_delegated", "Times that a connection was delegated to a thread.", &[("", "delegated")]),
    counter("sockdrawer_notes", "Notes brought to connections.", &[("", "notes")]),
    counter("sockdrawer_notes_dropped", "Notes that were dropped because the receiver did not keep up.", &[("", "notes_dropped")]),
    counter("sockdrawer_connections_adopted", "Connections moved to a newer generation.", &[("", "adopted")]),
    counter("sockdrawer_connections_moved_in", "Connections that came from the process that this one replaced.", &[("", "moved_in")]),
    gauge("sockdrawer_connections_open", "Permits in use: connections, and ended ones whose job still runs.", |pool| {
        one(pool.connections)
    }),
    gauge("sockdrawer_connections_limit", "Maximum of open connections.", |pool| one(pool.limit)),
    gauge("sockdrawer_generation_connections", "Open connections of each generation that is in force or has some.", |pool| {
        pool.generations.iter().map(|one| (one.id.to_string(), float(one.connections as u64))).collect()
    })
    .by("generation"),
    gauge("sockdrawer_generation", "The generation in force.", |pool| alone(f64::from(pool.generation))),
    gauge("sockdrawer_listener_connections", "Open connections that were accepted at this address.", |pool| {
        listeners(pool, |one| Some(one.connections))
    })
    .by("listener"),
    gauge("sockdrawer_accept_queue_length", "Connections that wait in the kernel to be accepted.", |pool| {
        listeners(pool, |one| Some(one.queued))
    })
    .by("listener"),
    gauge("sockdrawer_accept_queue_limit", "Maximum of waiting connections as configured; the kernel cuts it to net.core.somaxconn.", |pool| {
        listeners(pool, |one| usize::try_from(one.backlog).ok())
    })
    .by("listener"),
    gauge("sockdrawer_pool_ready", "1 while the pool takes connections, else 0.", |pool| truth(pool.readiness == Readiness::Serving)),
    gauge("sockdrawer_jobs_waiting", "Jobs that wait for a worker.", |pool| one(pool.jobs_waiting)),
    gauge("sockdrawer_workers", "Worker threads.", |pool| one(pool.workers)),
    gauge("sockdrawer_threads", "Threads of the model threads.", |pool| one(pool.threads)),
    gauge("sockdrawer_delegates", "Threads that run delegated connections, or wait for the next.", |pool| one(pool.delegates)),
    gauge("sockdrawer_delegates_waiting", "Delegated connections that wait for a thread.", |pool| one(pool.delegates_waiting)),
    gauge("sockdrawer_loops_active", "Loops that take new connections.", |pool| {
        one(pool.loops.iter().filter(|one| one.active).count())
    }),
    gauge("sockdrawer_loops_stuck", "Loops that have not ended a turn for too long.", |pool| {
        one(pool.loops.iter().filter(|one| one.stuck).count())
    }),
    gauge("sockdrawer_processes", "Helper processes.", |pool| one(pool.processes.len())),
    program("sockdrawer_build", Kind::Info, "The program that runs.", |view| vec![(view.version.clone(), 1.0)]).by("version"),
    program("sockdrawer_ready", Kind::Gauge, "1 while /readyz says that all pools take connections, else 0.", |view| truth(view.ready)),
    program("sockdrawer_config_revision", Kind::Gauge, "The revision of the configuration in force.", |view| {
        alone(float(view.state.revision))
    }),
    program("sockdrawer_config_changes", Kind::Counter, "Changes of the configuration: reloads, rollbacks and others.", |view| {
        let Totals { changes, failed_changes, .. } = &view.totals;
        [("ok", changes), ("failed", failed_changes)].map(|(result, count)| (result.to_owned(), float(*count))).into()
    })
    .by("result"),
    program("sockdrawer_config_last_change_seconds", Kind::Gauge, "How long the last change took, where there was one.", |view| {
        known(view.state.last_change.map(|took| took.as_secs_f64()))
    }),
    times("sockdrawer_config_change_duration_seconds", "How long changes took, from the request to the commit.", |totals| {
        &totals.change_seconds
    }),
    times(
        "sockdrawer_upgrade_duration_seconds",
        "How long upgrades took, from the start of the new build to its commit.",
        |totals| &totals.upgrade_seconds,
    ),
    program("sockdrawer_upgrades_failed", Kind::Counter, "Upgrades that this program began and that failed: it goes on.", |view| {
        alone(float(view.totals.failed_upgrades))
    }),
    program("sockdrawer_events_lost", Kind::Counter, "Events that readers of /events did not get because they read too slowly.", |view| {
        alone(float(view.totals.events_lost))
    }),
    program(
        "sockdrawer_log_lines_dropped",
        Kind::Counter,
        "Lines of the log that were not written: slow, standard error was not read; limit, more than ten per second of a kind and pool.",
        |view| {
            let Totals { lines_dropped, lines_suppressed, .. } = &view.totals;
            [("slow", lines_dropped), ("limit", lines_suppressed)].map(|(why, count)| (why.to_owned(), float(*count))).into()
        },
    )
    .by("reason"),
    program("process_cpu_seconds", Kind::Counter, "CPU time of this process and those that it replaced, without helper processes.", |view| {
        alone(view.totals.cpu_seconds)
    }),
    program("process_start_time_seconds", Kind::Gauge, "When this process began, in seconds since 1970.", |view| {
        known(view.began.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64()))
    }),
    program("process_resident_memory_bytes", Kind::Gauge, "Memory of this process that is not swapped out.", |_| {
        known(process::memory_bytes("VmRSS"))
    }),
    program("process_virtual_memory_bytes", Kind::Gauge, "Address space of this process.", |_| known(process::memory_bytes("VmSize"))),
    program("process_open_fds", Kind::Gauge, "Open descriptors.", |_| known(process::open_descriptors())),
    program("process_max_fds", Kind::Gauge, "Maximum of open descriptors.", |_| alone(process::max_descriptors())),
];
