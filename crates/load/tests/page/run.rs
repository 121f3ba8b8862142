//! A run as it might have been: a ramp to 100,000 connections, a server that stands still for three seconds, two actions.

use serde_json::{Value, json};
use sockdrawer_load::results::Directory;
use sockdrawer_load::{Interval, Latency, Percentiles, Report, Sample, ServerSample};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PLAN: &str =
    "workload = \"ping\"\ntargets = [\"10.0.0.2:9000\"]\nstage = \"30s:100k\"\nhold = \"2m\"\ninterval = \"10s\"\n";

/// A directory of its own, away when a test leaves it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sockdrawer-page-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Writes a run of this number of seconds to this directory; without a result when it was interrupted.
pub(crate) fn record(path: &Path, seconds: u32, is_interrupted: bool) {
    let mut directory = Directory::create(path, PLAN, false).expect("the directory can be written");
    let mut latency = Latency::new();
    latency.record(Duration::from_micros(180));
    for second in 1..=seconds {
        let length = Duration::from_secs(1);
        let interval =
            Interval { from: length * (second - 1), length, connect: &latency, handshake: &latency, operation: &latency };
        directory.add(&sample(second, seconds), &interval).expect("there is room");
    }
    if !is_interrupted {
        directory.finish(&report(seconds)).expect("there is room");
    }
}

/// Writes its samples alone, in less time.
pub(crate) fn record_samples(path: &Path, seconds: u32) {
    drop(Directory::create(path, PLAN, false).expect("the directory can be written"));
    let line = |second| serde_json::to_string(&sample(second, seconds)).expect("a sample is an object") + "\n";
    fs::write(path.join("series.ndjson"), (1..=seconds).map(line).collect::<String>()).expect("it can be written");
}

fn sample(second: u32, seconds: u32) -> Sample {
    let (ramp, stall) = (seconds / 6, seconds / 2);
    let (is_ramp, is_stalled) = (second <= ramp, (stall..stall + 3).contains(&second));
    // Some unrest, equal each time.
    let noise = |of: f64| of * (1.0 + 0.13 * (f64::from(second) * 1.7).sin() + 0.05 * (f64::from(second) * 9.1).cos());
    let target = u64::from(100_000 * second.min(ramp) / ramp);
    let lost = if second >= stall { 40 } else { 0 };
    let slow = if is_stalled { 4_000.0 } else { 1.0 };
    let times = |p50: f64| Percentiles {
        min: Some(noise(p50) * 0.4),
        mean: Some(noise(p50) * 1.2),
        p95: Some(noise(p50) * 2.0),
        p50: Some(noise(p50)),
        p90: Some(noise(p50) * 1.6),
        p99: Some(noise(p50) * 4.0),
        p999: Some(noise(p50) * 11.0),
        max: Some(noise(p50) * 40.0),
    };
    let fields = json!({
        "at": second,
        "phase": if is_ramp { "ramping" } else if second + seconds / 20 >= seconds { "ending" } else { "holding" },
        "target": target,
        "standing": target - lost,
        "connections": {"attempted": target + 3, "established": target, "failed": 3, "lost": lost, "closed": 0},
        "operations": {"ok": 10_000 * u64::from(second), "failed": 2 * lost},
        "per_second": {
            "connects": if is_ramp { 100_000.0 / f64::from(ramp) } else { 0.0 },
            "operations": if is_stalled { 12.0 } else { noise(10_000.0) * f64::from(second.min(ramp)) / f64::from(ramp) },
        },
        "latency_us": {
            "connect": if is_ramp { json!(times(35.0)) } else { json!(Percentiles::default()) },
            "operation": times(60.0 * slow),
            "uncorrected": times(55.0),
            "lag": times(9.0),
        },
        "errors": [
            {"phase": "connect", "errno": "ECONNREFUSED", "count": 3},
            {"phase": "answer", "errno": "ETIMEDOUT", "count": 2 * lost},
            {"phase": "closed", "errno": "ECONNRESET", "count": lost / 2},
        ],
        "client": {"cpu": noise(0.41), "rss_bytes": 45_000_000 + 400 * target, "processes": 6},
        "server": null,
    });
    let mut sample: Sample = serde_json::from_value(fields).expect("the fields of a sample");
    let mut server = ServerSample::default();
    server.cpu = Some(if is_stalled { 0.0 } else { noise(0.52) });
    server.rss_bytes = Some(9_000_000 + 110 * target);
    server.pss_bytes = Some(6_000_000 + 110 * target);
    server.socket_bytes = Some(1_000_000 + 3_900 * target);
    server.bits_in = Some(noise(6.4e6));
    server.bits_out = Some(noise(5.9e6));
    server.packets_in = Some(noise(10_200.0));
    server.packets_out = Some(noise(10_100.0));
    server.context_switches_per_second = Some(noise(4_100.0));
    sample.server = Some(server);
    sample
}

fn report(seconds: u32) -> Report {
    let times = |p50: f64| json!({"min": p50 * 0.4, "mean": p50 * 1.2, "p50": p50, "p90": p50 * 1.8, "p95": p50 * 2.2, "p99": p50 * 9.0, "p999": p50 * 60.0, "max": p50 * 17_000.0});
    let fields: Value = json!({
        "schema": Report::SCHEMA,
        "version": "0.1.0",
        "command": "sockdrawer load ping 10.0.0.2:9000 --stage 30s:100k --hold 2m --interval 10s --out '<run 1>'",
        "plan": {"workload": "ping", "targets": ["10.0.0.2:9000"], "stage": ["30s:100k"], "hold": "2m"},
        "target": "10.0.0.2:9000",
        "started": "2026-11-24T12:00:00.000Z",
        "ended": "2026-11-24T12:03:00.000Z",
        "complete": true,
        "ended_early": null,
        "seed": 7,
        "workload": "ping",
        "machine": {"cpus": 2, "cpu": "A CPU & its <friends>", "architecture": "x86_64", "kernel": "6.18", "memory_bytes": 25_769_803_776_u64},
        "seconds": seconds,
        "connections": {
            "attempted": 100_003, "established": 100_000, "failed": 3, "lost": 40, "closed": 0, "open": 99_960, "peak": 100_000, "reconnected": null,
        },
        "operations": {"ok": 10_000 * u64::from(seconds), "failed": 80, "per_second": 10_000.0},
        "latency_us": {
            "connect": times(35.0), "operation": times(180.0), "uncorrected": times(120.0), "lag": times(9.0), "first_byte": times(150.0),
        },
        "errors": [
            {"phase": "connect", "errno": "ECONNREFUSED", "count": 3},
            {"phase": "answer", "errno": "ETIMEDOUT", "count": 80},
            {"phase": "closed", "errno": "ECONNRESET", "count": 20},
        ],
        "client": {"cpu_seconds": 73.25, "processes": 6, "lost": 0},
        "server": {"cpu_seconds": 91.5, "bytes_per_connection": 4_120.0},
        "wall": {"name": "accept queue", "why": "the server's counters say that it overflowed 3 times", "remedy": "a longer backlog"},
        "thresholds": [
            {"expr": "p99<50ms", "value": 1_620.0, "ok": true},
            {"expr": "failed<0.001%", "value": 0.0071, "ok": false},
        ],
        "actions": [
            {"at": f64::from(seconds) * 0.4, "what": "interval 5s"},
            {"at": f64::from(seconds) * 0.75, "what": "suspend <at once>"},
        ],
    });
    serde_json::from_value(fields).expect("the fields of a report")
}
