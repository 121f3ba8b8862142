//! The series of a run for collectors: OpenMetrics text, served to whatever asks for it while the run goes on.

use crate::latency::Latency;
use crate::numbers::float;
use crate::plan::Plan;
use crate::series::{Interval, Sample};
use sockdrawer::{Address, Config, Context, Error, Input, Model, Peer, Pool, Protocol, Service, Step};
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Of the [specification](https://prometheus.io/docs/specs/om/open_metrics_spec/), version 1.0.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A request's head may be this long.
const LONGEST: usize = 8 * 1024;
/// Collectors at once.
const COLLECTORS: usize = 16;
/// The upper bounds of a histogram's buckets, in microseconds.
const BOUNDS: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Where a run writes its samples for collectors.
#[derive(Clone, Debug)]
pub struct Metrics {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
struct Kept {
    workload: &'static str,
    target: String,
    /// The last one.
    sample: Sample,
    connect: Latency,
    operation: Latency,
}

impl Metrics {
    /// Of a run of this plan, which has not begun.
    pub fn new(plan: &Plan) -> Metrics {
        let kept = Kept {
            workload: plan.workload.name(),
            target: plan.targets.iter().map(Address::to_string).collect::<Vec<_>>().join(" "),
            sample: Sample::default(),
            connect: Latency::new(),
            operation: Latency::new(),
        };
        Metrics { kept: Arc::new(Mutex::new(kept)) }
    }

    /// One more sample of the run.
    pub fn add(&self, sample: &Sample, interval: &Interval<'_>) {
        let mut kept = self.lock();
        kept.connect.add(interval.connect);
        kept.operation.add(interval.operation);
        kept.sample.clone_from(sample);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of it, as it is served.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.lock();
        let Kept { workload, target, sample, connect, operation } = &*kept;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("workload", workload), ("target", target)];
        family(f, "run", "info", "", "The run.")?;
        line(f, "run_info", &labels, 1.0)?;
        let mut gauge = |name: &str, unit: &str, help: &str, value: Option<f64>| match value {
            None => Ok(()),
            Some(value) => family(f, name, "gauge", unit, help).and_then(|()| line(f, name, &[], value)),
        };
        let server = sample.server.as_ref();
        gauge("elapsed_seconds", "seconds", "Time since the first connect.", Some(sample.at))?;
        gauge("open_connections", "", "Connections that are open.", Some(float(sample.standing)))?;
        gauge("target_connections", "", "Connections that are wanted.", Some(float(sample.target)))?;
        gauge("client_busy_cpus", "", "CPUs that the load generator kept busy in the last second.", sample.client.cpu)?;
        gauge("client_resident_bytes", "bytes", "Memory of the load generator.", sample.client.rss_bytes.map(float))?;
        gauge(
            "server_busy_cpus",
            "",
            "CPUs that the server kept busy in the last second.",
            server.and_then(|server| server.cpu),
        )?;
        let memory = server.and_then(|server| server.pss_bytes.or(server.rss_bytes)).map(float);
        gauge("server_resident_bytes", "bytes", "Memory of the server.", memory)?;
        let connections = &sample.connections;
        let connects = [("ok", connections.established), ("failed", connections.failed)];
        counters(f, "connects", "Connects that ended.", connects.map(|(result, count)| (vec![("result", result)], count)))?;
        let ended = [("peer", connections.lost), ("client", connections.closed)];
        counters(f, "closed_connections", "Connections that ended.", ended.map(|(by, count)| (vec![("by", by)], count)))?;
        let operations = [("ok", sample.operations.ok), ("failed", sample.operations.failed)];
        counters(f, "operations", "Operations that ended.", operations.map(|(result, count)| (vec![("result", result)], count)))?;
        let errors = sample.errors.iter().map(|error| (vec![("phase", &*error.phase), ("errno", &error.errno)], error.count));
        counters(f, "errors", "Errors, by what the client waited for and what came.", errors)?;
        histogram(f, "connect_duration_seconds", "From the start of a connect until it is established.", connect)?;
        histogram(f, "operation_duration_seconds", "From when an operation was due to its end.", operation)?;
        let lag = sample.latency_us.lag;
        // Back to back nothing is late.
        if lag.max.is_some() {
            family(f, "send_delay_seconds", "gauge", "seconds", "How late operations were sent in the last second.")?;
        }
        for (quantile, value) in [("0.5", lag.p50), ("0.95", lag.p95), ("0.99", lag.p99), ("1", lag.max)] {
            value.map_or(Ok(()), |value| line(f, "send_delay_seconds", &[("quantile", quantile)], value / 1e6))?;
        }
        f.write_str("# EOF\n")
    }
}

fn family(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, unit: &str, help: &str) -> fmt::Result {
    writeln!(f, "# TYPE sockdrawer_load_{name} {kind}")?;
    if !unit.is_empty() {
        writeln!(f, "# UNIT sockdrawer_load_{name} {unit}")?;
    }
    writeln!(f, "# HELP sockdrawer_load_{name} {help}")
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, labels: &[(&str, &str)], value: f64) -> fmt::Result {
    write!(f, "sockdrawer_load_{name}")?;
    for (index, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(f, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' })?;
    }
    writeln!(f, "{} {value}", if labels.is_empty() { "" } else { "}" })
}

type Counted<'a> = (Vec<(&'a str, &'a str)>, u64);

fn counters<'a>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = Counted<'a>>,
) -> fmt::Result {
    family(f, name, "counter", "", help)?;
    values.into_iter().try_for_each(|(labels, count)| line(f, &format!("{name}_total"), &labels, float(count)))
}

fn histogram(f: &mut fmt::Formatter<'_>, name: &str, help: &str, times: &Latency) -> fmt::Result {
    family(f, name, "histogram", "seconds", help)?;
    let bucket = format!("{name}_bucket");
    for bound in BOUNDS {
        let count = times.between(Duration::ZERO, Duration::from_micros(bound));
        let bound = (float(bound) / 1e6).to_string();
        // A bound is a number with a point.
        let bound = if bound.contains('.') { bound } else { bound + ".0" };
        line(f, &bucket, &[("le", &bound)], float(count))?;
    }
    let count = float(times.count());
    line(f, &bucket, &[("le", "+Inf")], count)?;
    line(f, &format!("{name}_count"), &[], count)?;
    line(f, &format!("{name}_sum"), &[], times.mean().unwrap_or(0.0) * count / 1e6)
}

/// Serves the metrics of a run at an address: `GET /metrics`.
///
/// # Errors
/// When nothing can listen there.
pub fn metrics(at: Address, metrics: &Metrics) -> Result<Pool, Error> {
    let served = Served(metrics.clone());
    Pool::start(Config::accept(served).model(Model::Loops).loops(1).workers(0).limit(COLLECTORS).listen(at))
}

struct Served(Metrics);

impl Service for Served {
    type Protocol = Request;

    fn open(&self, _peer: &Peer) -> Request {
        Request { metrics: self.0.clone(), first: None }
    }
}

/// A request, until its head has ended.
struct Request {
    metrics: Metrics,
    /// Its first line.
    first: Option<String>,
}

impl Request {
    fn answer(&self, first: &str) -> (&'static str, &'static str, String) {
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match (method, path.split('?').next()) {
            ("GET" | "HEAD", Some("/metrics")) => ("200 OK", CONTENT_TYPE, self.metrics.to_string()),
            ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned()),
            _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
        }
    }
}

impl Protocol for Request {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            let Some(first) = &self.first else {
                self.first = Some(line);
                continue;
            };
            if !line.is_empty() {
                continue;
            }
            let (status, kind, body) = self.answer(first);
            let length = body.len();
            let mut head = String::new();
            let _ = write!(
                head,
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            cx.send(head.as_bytes());
            if !first.starts_with("HEAD ") {
                cx.send(body.as_bytes());
            }
            return Step::Close;
        }
        if input.bytes().len() > LONGEST { Step::Abort } else { Step::Continue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Errors, Workload};
    use sockdrawer::testing::Driver;
    use std::collections::BTreeMap;

    fn filled() -> Metrics {
        let metrics = Metrics::new(&Plan::new(Workload::ping(Duration::ZERO)));
        let mut latency = Latency::new();
        latency.record_many(Duration::from_micros(80), 3);
        latency.record(Duration::from_secs(60));
        let mut sample = Sample { at: 2.5, standing: 7, target: 9, ..Sample::default() };
        sample.operations.ok = 4;
        sample.errors = vec![Errors { phase: "connect".into(), errno: "\"a\\\n".to_owned(), count: 3, first: None, last: None }];
        let (from, length) = (Duration::ZERO, Duration::from_secs(1));
        metrics.add(&sample, &Interval { from, length, connect: &Latency::new(), operation: &latency });
        metrics
    }

    #[test]
    fn the_text_is_of_the_form_of_the_specification() {
        let text = filled().to_string();
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
        let mut kinds = BTreeMap::new();
        let mut current = "";
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["#", "TYPE", name, kind] => {
                    assert_eq!(kinds.insert(*name, *kind), None, "{name} is there twice");
                    current = name;
                }
                ["#", "UNIT", name, unit] => assert!(*name == current && name.ends_with(&format!("_{unit}")), "{line}"),
                ["#", "HELP", name, ..] => assert_eq!(*name, current),
                ["#", "EOF"] => {}
                [.., value] => {
                    value.parse::<f64>().unwrap_or_else(|error| panic!("{line}: {error}"));
                    let name = line.split(['{', ' ']).next().unwrap_or_default();
                    let suffix = name.strip_prefix(current).unwrap_or_else(|| panic!("{line} is not of {current}"));
                    let allowed: &[&str] = match kinds[current] {
                        "counter" => &["_total"],
                        "info" => &["_info"],
                        "histogram" => &["_bucket", "_count", "_sum"],
                        _ => &[""],
                    };
                    assert!(allowed.contains(&suffix), "{line}");
                }
                [] => panic!("an empty line"),
            }
        }
        for line in [
            "sockdrawer_load_open_connections 7",
            r#"sockdrawer_load_operations_total{result="ok"} 4"#,
            r#"sockdrawer_load_errors_total{phase="connect",errno="\"a\\\n"} 3"#,
            r#"sockdrawer_load_operation_duration_seconds_bucket{le="0.00005"} 0"#,
            r#"sockdrawer_load_operation_duration_seconds_bucket{le="0.0001"} 3"#,
            r#"sockdrawer_load_operation_duration_seconds_bucket{le="1.0"} 3"#,
            r#"sockdrawer_load_operation_duration_seconds_bucket{le="+Inf"} 4"#,
            "sockdrawer_load_operation_duration_seconds_count 4",
            "sockdrawer_load_connect_duration_seconds_sum 0",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
    }

    #[test]
    fn a_request_is_answered_and_the_connection_ends() {
        let ask = |request: &[u8]| {
            let mut connection = Driver::open(Served(filled()));
            connection.receive_split(request);
            let answer = String::from_utf8(connection.sent()).expect("text");
            assert!(connection.closed().is_some(), "{answer}");
            answer
        };
        let answer = ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&format!("Content-Type: {CONTENT_TYPE}\r\n")), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())) && body.ends_with("# EOF\n"), "{head}");
        assert!(ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        ask(&[b'x'; LONGEST + 1]);
    }
}
