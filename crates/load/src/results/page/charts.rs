//! The charts of a run: which there are, and what is in them.

use super::chart::{Chart, ChartTimes, Line};
use super::unit::ChartUnit;
use crate::latency::Percentiles;
use crate::numbers::float;
use crate::series::Sample;
use crate::server::ServerSample;
use std::collections::BTreeMap;

/// Kinds of errors with a line of their own, at most.
const KINDS: usize = 5;

type Percentile = fn(&Percentiles) -> Option<f64>;

const PERCENTILES: [(&str, &str, Percentile); 6] = [
    ("p50", "c1", |times| times.p50),
    ("p90", "c2", |times| times.p90),
    ("p95", "c6", |times| times.p95),
    ("p99", "c3", |times| times.p99),
    ("p99.9", "c4", |times| times.p999),
    ("max", "c5 thin", |times| times.max),
];

/// Returns all charts that have something in them, with the lines that have.
pub(super) fn charts(times: &ChartTimes, samples: &[Sample]) -> Vec<Chart> {
    let charts = Charts { times, samples };
    charts.of_clients().into_iter().chain(charts.of_servers()).filter_map(Chart::measured).collect()
}

struct Charts<'a> {
    times: &'a ChartTimes,
    samples: &'a [Sample],
}

impl Charts<'_> {
    fn line(&self, name: &str, style: &str, value: impl Fn(&Sample) -> Option<f64>) -> Line {
        Line::of(self.times, self.samples, (name, style), value)
    }

    /// Returns a line of the server, where it is seen.
    fn server(&self, name: &str, style: &str, value: impl Fn(&ServerSample) -> Option<f64>) -> Line {
        self.line(name, style, |sample| sample.server.as_ref().and_then(&value))
    }

    fn percentiles(&self, of: impl Fn(&Sample) -> Percentiles) -> Vec<Line> {
        PERCENTILES.map(|(name, style, at)| self.line(name, style, |sample| at(&of(sample)))).into()
    }

    fn of_clients(&self) -> [Chart; 8] {
        // The last sample is that of the end: a run that closes all has no connections then, which is no fall over a second.
        let ends = self.samples.last().filter(|sample| sample.standing == 0).map(|sample| sample.at);
        let standing = self.line("open", "c1 area", |sample| (Some(sample.at) != ends).then(|| float(sample.standing)));
        let target = self.line("target", "c6 dashed", |sample| Some(float(sample.target)));
        let connects = self.line("connects", "c1 area", |sample| Some(sample.per_second.connects));
        let operations = self.line("operations", "c1 area", |sample| Some(sample.per_second.operations));
        let operation = self.percentiles(|sample| sample.latency_us.operation);
        let connect = self.percentiles(|sample| sample.latency_us.connect);
        let handshake = self.percentiles(|sample| sample.latency_us.handshake.unwrap_or_default());
        let lag = self.percentiles(|sample| sample.latency_us.lag);
        let late = "How late the load generator sent what was due: where it is long, the load generator is the limit.";
        [
            Chart::linear("Connections", "Open connections, and the target.", ChartUnit::Count, vec![standing, target]),
            Chart::linear("Connects", "Connections established per second.", ChartUnit::Rate, vec![connects]),
            Chart::linear("Operations", "Operations that succeeded, per second.", ChartUnit::Rate, vec![operations]),
            Chart::logarithmic("Latency of operations", "From when an operation was due to its end.", ChartUnit::Time, operation),
            Chart::logarithmic("Latency of connects", "Until the connection was established.", ChartUnit::Time, connect),
            Chart::logarithmic("Latency of TLS handshakes", "From connected to established.", ChartUnit::Time, handshake),
            Chart::logarithmic("Send delay", late, ChartUnit::Time, lag),
            Chart::linear("Errors", "So far, by what the client waited for and what came.", ChartUnit::Count, self.errors()),
        ]
    }

    /// Returns lines of the errors so far: in a line that rises, none is lost between two points.
    fn errors(&self) -> Vec<Line> {
        let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for error in self.samples.iter().flat_map(|sample| &sample.errors) {
            let most = kinds.entry((&error.phase, &error.errno)).or_default();
            *most = error.count.max(*most);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, most)| std::cmp::Reverse(*most));
        let rest = kinds.split_off(kinds.len().min(KINDS));
        let so_far = |of: &[((&str, &str), u64)], sample: &Sample| {
            let is_of = |kind: (&str, &str)| of.iter().any(|(one, _)| *one == kind);
            let errors = sample.errors.iter().filter(|error| is_of((&error.phase, &error.errno)));
            Some(float(errors.map(|error| error.count).sum()))
        };
        let mut lines: Vec<Line> = (1..)
            .zip(&kinds)
            .map(|(number, kind)| {
                let (name, style) = (format!("{} {}", kind.0.0, kind.0.1), format!("c{number}"));
                self.line(&name, &style, |sample| so_far(std::slice::from_ref(kind), sample))
            })
            .collect();
        if !rest.is_empty() {
            lines.push(self.line("all others", "c6 dashed", |sample| so_far(&rest, sample)));
        }
        lines
    }

    fn of_servers(&self) -> [Chart; 6] {
        let each = |bytes: fn(&ServerSample) -> Option<u64>| {
            move |sample: &Sample| {
                let standing = Some(float(sample.standing)).filter(|standing| *standing > 0.0)?;
                Some(float(bytes(sample.server.as_ref()?)?) / standing)
            }
        };
        let cpu = vec![self.line("client", "c1", |sample| sample.client.cpu), self.server("server", "c3", |server| server.cpu)];
        let of_each = vec![
            self.line("server", "c3", each(|server| server.pss_bytes.or(server.rss_bytes))),
            self.line("kernel, sockets", "c2", each(|server| server.socket_bytes)),
        ];
        let memory = vec![
            self.line("client", "c1", |sample| sample.client.rss_bytes.map(float)),
            self.server("server", "c3", |server| server.pss_bytes.or(server.rss_bytes).map(float)),
            self.server("kernel, sockets", "c2", |server| server.socket_bytes.map(float)),
        ];
        let bits = vec![self.server("in", "c1", |server| server.bits_in), self.server("out", "c3", |server| server.bits_out)];
        let packets =
            vec![self.server("in", "c1", |server| server.packets_in), self.server("out", "c3", |server| server.packets_out)];
        let switches = vec![self.server("switches", "c1", |server| server.context_switches_per_second)];
        let divided = "Memory divided by the open connections; what a server needs without any is in it.";
        [
            Chart::linear("CPU", "CPUs that each end kept busy.", ChartUnit::Cpus, cpu),
            Chart::logarithmic("Memory per connection", divided, ChartUnit::Bytes, of_each),
            Chart::linear("Memory", "Of all processes of each end, and of the kernel.", ChartUnit::Bytes, memory),
            Chart::linear("Bits", "Of the server's network.", ChartUnit::BitsPerSecond, bits),
            Chart::linear("Packets", "Of the server's network.", ChartUnit::Rate, packets),
            Chart::linear("Context switches", "Of the server's threads.", ChartUnit::Rate, switches),
        ]
    }
}
