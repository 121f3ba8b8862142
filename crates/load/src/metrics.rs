//! The series of a run for collectors: OpenMetrics text, served to whatever asks for it while the run goes on.

use crate::latency::Latency;
use crate::numbers::float;
use crate::plan::Plan;
use crate::series::{Interval, Sample};
use crate::workload::HandshakeCounts;
use sockdrawer::{Address, Config, Error, Model, Pool};
use sockdrawer_catalog::openmetrics::{Family, Format, Kind, Writer};
use sockdrawer_catalog::web::{Answer, Request, Web};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Collectors at once.
const COLLECTORS: usize = 16;
/// The upper bounds of a histogram's buckets, in microseconds.
const BOUNDS: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Metrics of a run, to which it writes its samples for collectors.
#[derive(Clone, Debug)]
pub struct Metrics {
    kept: Arc<Mutex<KeptPage>>,
}

#[derive(Debug)]
struct KeptPage {
    workload: &'static str,
    target: String,
    /// The last one.
    sample: Sample,
    connect: Latency,
    handshake: Latency,
    operation: Latency,
}

impl Metrics {
    /// Creates the metrics of a run of this plan, which has not begun.
    pub fn new(plan: &Plan) -> Metrics {
        let kept = KeptPage {
            workload: plan.workload.name(),
            target: plan.targets.iter().map(Address::to_string).collect::<Vec<_>>().join(" "),
            sample: Sample::default(),
            connect: Latency::new(),
            handshake: Latency::new(),
            operation: Latency::new(),
        };
        Metrics { kept: Arc::new(Mutex::new(kept)) }
    }

    /// Adds a sample of the run.
    pub fn add(&self, sample: &Sample, interval: &Interval<'_>) {
        let mut kept = self.lock();
        kept.connect.add(interval.connect);
        kept.handshake.add(interval.handshake);
        kept.operation.add(interval.operation);
        kept.sample.clone_from(sample);
    }

    fn lock(&self) -> MutexGuard<'_, KeptPage> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const RUN: Family = Family::new("sockdrawer_load_run", Kind::Info, "The run.");
const LAG: Family =
    Family::new("sockdrawer_load_send_delay_seconds", Kind::Gauge, "How late operations were sent in the last second.");

/// Writes the metrics as they are served.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.lock();
        let KeptPage { workload, target, sample, connect, handshake, operation } = &*kept;
        let mut to = Writer::new(Format::OpenMetrics);
        to.family(&RUN);
        to.sample(&[("version", env!("CARGO_PKG_VERSION")), ("workload", workload), ("target", target)], 1.0);
        gauges(&mut to, sample);
        let connections = &sample.connections;
        let connects = [("ok", connections.established), ("failed", connections.failed)];
        counters(&mut to, "sockdrawer_load_connects", "Connects that ended.", "result", &connects);
        let ended = [("peer", connections.lost), ("client", connections.closed)];
        counters(&mut to, "sockdrawer_load_closed_connections", "Connections that ended.", "by", &ended);
        let operations = [("ok", sample.operations.ok), ("failed", sample.operations.failed)];
        counters(&mut to, "sockdrawer_load_operations", "Operations that ended.", "result", &operations);
        counters(&mut to, "sockdrawer_load_errors", "Errors, by what the client waited for and what came.", "", &[]);
        for error in &sample.errors {
            to.sample(&[("phase", &*error.phase), ("errno", &*error.errno)], float(error.count));
        }
        let help = "From the start of a connect until it is established.";
        histogram(&mut to, "sockdrawer_load_connect_duration_seconds", help, connect);
        if let Some(HandshakeCounts { full, resumed, failed }) = sample.handshakes {
            let counts = [("full", full), ("resumed", resumed), ("failed", failed)];
            counters(&mut to, "sockdrawer_load_tls_handshakes", "Handshakes of TLS that ended.", "result", &counts);
            let help = "From connected until the handshake of TLS was complete.";
            histogram(&mut to, "sockdrawer_load_tls_handshake_duration_seconds", help, handshake);
        }
        let help = "From when an operation was due to its end.";
        histogram(&mut to, "sockdrawer_load_operation_duration_seconds", help, operation);
        let lag = sample.latency_us.lag;
        // Back to back nothing is late.
        if lag.max.is_some() {
            to.family(&LAG);
        }
        for (quantile, value) in [("0.5", lag.p50), ("0.95", lag.p95), ("0.99", lag.p99), ("1", lag.max)] {
            value.iter().for_each(|value| to.sample(&[("quantile", quantile)], value / 1e6));
        }
        f.write_str(&to.finish())
    }
}

fn gauges(to: &mut Writer, sample: &Sample) {
    let mut gauge = |name: &'static str, help: &'static str, value: Option<f64>| {
        if let Some(value) = value {
            to.family(&Family::new(name, Kind::Gauge, help));
            to.sample(&[], value);
        }
    };
    let server = sample.server.as_ref();
    gauge("sockdrawer_load_elapsed_seconds", "Time since the first connect.", Some(sample.at));
    gauge("sockdrawer_load_open_connections", "Connections that are open.", Some(float(sample.standing)));
    gauge("sockdrawer_load_target_connections", "Connections that are wanted.", Some(float(sample.target)));
    let help = "CPUs that the load generator kept busy in the last second.";
    gauge("sockdrawer_load_client_busy_cpus", help, sample.client.cpu);
    gauge("sockdrawer_load_client_resident_bytes", "Memory of the load generator.", sample.client.rss_bytes.map(float));
    let help = "CPUs that the server kept busy in the last second.";
    gauge("sockdrawer_load_server_busy_cpus", help, server.and_then(|server| server.cpu));
    let memory = server.and_then(|server| server.pss_bytes.or(server.rss_bytes)).map(float);
    gauge("sockdrawer_load_server_resident_bytes", "Memory of the server.", memory);
}

fn counters(to: &mut Writer, name: &'static str, help: &'static str, label: &str, values: &[(&str, u64)]) {
    to.family(&Family::new(name, Kind::Counter, help));
    values.iter().for_each(|(value, count)| to.sample(&[(label, value)], float(*count)));
}

fn histogram(to: &mut Writer, name: &'static str, help: &'static str, times: &Latency) {
    to.family(&Family::new(name, Kind::Histogram, help));
    let up_to = |bound| times.between(Duration::ZERO, Duration::from_micros(bound));
    let sum = times.mean().unwrap_or(0.0) * float(times.count()) / 1e6;
    to.histogram(&[], BOUNDS.map(|bound| (float(bound) / 1e6, up_to(bound))), times.count(), sum);
}

/// Serves the metrics of a run at an address: `GET /metrics`.
///
/// # Errors
/// When nothing can listen there.
pub fn metrics(at: Address, metrics: &Metrics) -> Result<Pool, Error> {
    let metrics = metrics.clone();
    let answer = move |request: &Request, _: &mut _| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/metrics") => Answer::new(200, Format::OpenMetrics.content_type(), metrics.to_string()),
        ("GET", _) => Answer::error(404, "the metrics are at /metrics"),
        _ => Answer::error(405, "GET /metrics"),
    };
    let web = Web::new(answer).close_after_answer().max_silent(COLLECTORS / 2);
    let mut config = Config::accept(web.clone()).model(Model::Loops).loops(1).workers(0).limit(COLLECTORS).listen(at);
    web.fit(&mut config.settings);
    Pool::start(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Errors, Workload};
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn filled() -> Metrics {
        let metrics = Metrics::new(&Plan::new(Workload::ping(Duration::ZERO)));
        let mut latency = Latency::new();
        latency.record_many(Duration::from_micros(80), 3);
        latency.record(Duration::from_secs(60));
        let mut sample = Sample { at: 2.5, standing: 7, target: 9, ..Sample::default() };
        sample.operations.ok = 4;
        sample.errors = vec![Errors { phase: "connect".into(), errno: "\"a\\\n".to_owned(), count: 3, first: None, last: None }];
        sample.handshakes = Some(HandshakeCounts { full: 2, resumed: 5, failed: 1 });
        let (from, length, none) = (Duration::ZERO, Duration::from_secs(1), &Latency::new());
        metrics.add(&sample, &Interval { from, length, connect: none, handshake: &latency, operation: &latency });
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
            r#"sockdrawer_load_tls_handshakes_total{result="resumed"} 5"#,
            "sockdrawer_load_tls_handshake_duration_seconds_count 4",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
    }

    #[test]
    fn a_request_is_answered_and_the_connection_ends() {
        let metrics = filled();
        let pool = super::metrics("127.0.0.1:0".parse().expect("an address"), &metrics).expect("a pool");
        let at = pool.addresses().remove(0).to_string();
        let ask = |request: &[u8]| {
            let mut stream = TcpStream::connect(&at).expect("it listens");
            stream.write_all(request).expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("text");
            answer
        };
        let answer = ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let kind = format!("Content-Type: {}\r\n", Format::OpenMetrics.content_type());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&kind), "{head}");
        assert_eq!(body, metrics.to_string());
        assert!(ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(&[b'x'; 9 * 1024]).starts_with("HTTP/1.1 4"));
    }
}
