//! The charts of a run: which there are, and what is in them.

use super::chart::{Chart, Line, Times};
use super::unit::Unit;
use crate::latency::Percentiles;
use crate::numbers::float;
use crate::series::Sample;
use crate::server::ServerSample;
use std::collections::BTreeMap;

/// Kinds of errors with a line of their own, at most.
const KINDS: usize = 5;

type Percentile = fn(&Percentiles) -> Option<f64>;

const PERCENTILES: [(&str, &str, Percentile); 5] = [
    ("p50", "c1", |times| times.p50),
    ("p90", "c2", |times| times.p90),
    ("p99", "c3", |times| times.p99),
    ("p99.9", "c4", |times| times.p999),
    ("max", "c5 thin", |times| times.max),
];

/// All that have something in them, with the lines that have.
pub(super) fn charts(times: &Times, samples: &[Sample]) -> Vec<Chart> {
    let charts = Charts { times, samples };
    let of_clients = [
        charts.connections(),
        charts.connects(),
        charts.operations(),
        charts.operation(),
        charts.connect(),
        charts.lag(),
        charts.errors(),
    ];
    let of_servers = [charts.cpu(), charts.each(), charts.memory(), charts.bits(), charts.packets(), charts.switches()];
    of_clients.into_iter().chain(of_servers).filter_map(Chart::measured).collect()
}

struct Charts<'a> {
    times: &'a Times,
    samples: &'a [Sample],
}

impl Charts<'_> {
    fn line(&self, name: &str, style: &str, value: impl Fn(&Sample) -> Option<f64>) -> Line {
        Line::of(self.times, self.samples, (name, style), value)
    }

    /// Of the server, where it is seen.
    fn server(&self, name: &str, style: &str, value: impl Fn(&ServerSample) -> Option<f64>) -> Line {
        self.line(name, style, |sample| sample.server.as_ref().and_then(&value))
    }

    fn percentiles(&self, of: impl Fn(&Sample) -> &Percentiles) -> Vec<Line> {
        PERCENTILES.map(|(name, style, at)| self.line(name, style, |sample| at(of(sample)))).into()
    }

    fn connections(&self) -> Chart {
        let standing = self.line("standing", "c1 area", |sample| Some(float(sample.standing)));
        let target = self.line("target", "c6 dashed", |sample| Some(float(sample.target)));
        let lines = vec![standing, target];
        Chart {
            title: "Connections",
            note: "Those that stand, and those that are wanted.",
            unit: Unit::Count,
            logarithmic: false,
            lines,
        }
    }

    fn operations(&self) -> Chart {
        let lines = vec![self.line("operations", "c1 area", |sample| Some(sample.per_second.operations))];
        Chart { title: "Operations", note: "That ended well, per second.", unit: Unit::Rate, logarithmic: false, lines }
    }

    fn connects(&self) -> Chart {
        let lines = vec![self.line("connects", "c1 area", |sample| Some(sample.per_second.connects))];
        Chart {
            title: "Connects",
            note: "Connections that came to stand, per second.",
            unit: Unit::Rate,
            logarithmic: false,
            lines,
        }
    }

    fn operation(&self) -> Chart {
        let lines = self.percentiles(|sample| &sample.latency_us.operation);
        let note = "From when an operation was due to its end.";
        Chart { title: "Latency of operations", note, unit: Unit::Time, logarithmic: true, lines }
    }

    fn connect(&self) -> Chart {
        let lines = self.percentiles(|sample| &sample.latency_us.connect);
        Chart { title: "Latency of connects", note: "Until a connection stood.", unit: Unit::Time, logarithmic: true, lines }
    }

    fn lag(&self) -> Chart {
        let lines = self.percentiles(|sample| &sample.latency_us.lag);
        let note = "How late this side was to begin what was due: where it is long, the client is the limit.";
        Chart { title: "Pacing lag", note, unit: Unit::Time, logarithmic: true, lines }
    }

    /// So far: in a line that rises, none is lost between two points.
    fn errors(&self) -> Chart {
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
        Chart {
            title: "Errors",
            note: "So far, by what was waited for and what came.",
            unit: Unit::Count,
            logarithmic: false,
            lines,
        }
    }

    fn cpu(&self) -> Chart {
        let client = self.line("client", "c1", |sample| sample.client.cpu);
        let lines = vec![client, self.server("server", "c3", |server| server.cpu)];
        Chart { title: "CPU", note: "CPUs that each end kept busy.", unit: Unit::Cpus, logarithmic: false, lines }
    }

    fn each(&self) -> Chart {
        let each = |bytes: fn(&ServerSample) -> Option<u64>| {
            move |sample: &Sample| {
                let standing = Some(float(sample.standing)).filter(|standing| *standing > 0.0)?;
                Some(float(bytes(sample.server.as_ref()?)?) / standing)
            }
        };
        let lines = vec![
            self.line("server", "c3", each(|server| server.pss_bytes.or(server.rss_bytes))),
            self.line("kernel, sockets", "c2", each(|server| server.socket_bytes)),
        ];
        let note = "Memory divided by the connections that stand; what a server needs without any is in it.";
        Chart { title: "Memory per connection", note, unit: Unit::Bytes, logarithmic: true, lines }
    }

    fn memory(&self) -> Chart {
        let client = self.line("client", "c1", |sample| sample.client.rss_bytes.map(float));
        let server = self.server("server", "c3", |server| server.pss_bytes.or(server.rss_bytes).map(float));
        let lines = vec![client, server, self.server("kernel, sockets", "c2", |server| server.socket_bytes.map(float))];
        Chart {
            title: "Memory",
            note: "Of all processes of each end, and of the kernel.",
            unit: Unit::Bytes,
            logarithmic: false,
            lines,
        }
    }

    fn bits(&self) -> Chart {
        let lines = vec![self.server("in", "c1", |server| server.bits_in), self.server("out", "c3", |server| server.bits_out)];
        Chart { title: "Bits", note: "Of the server's network.", unit: Unit::BitsPerSecond, logarithmic: false, lines }
    }

    fn packets(&self) -> Chart {
        let lines =
            vec![self.server("in", "c1", |server| server.packets_in), self.server("out", "c3", |server| server.packets_out)];
        Chart { title: "Packets", note: "Of the server's network.", unit: Unit::Rate, logarithmic: false, lines }
    }

    fn switches(&self) -> Chart {
        let lines = vec![self.server("switches", "c1", |server| server.context_switches_per_second)];
        Chart { title: "Context switches", note: "Of the server's threads.", unit: Unit::Rate, logarithmic: false, lines }
    }
}
