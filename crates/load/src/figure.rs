//! The numbers of a result by name: those that thresholds and comparisons may ask for. They are read from the serialized result, so
//! that one on disk is as good as one that was just measured.

use crate::numbers::{bytes, time};
use serde_json::Value;

/// Quantity that a number counts or measures: it decides which units a bound may have, and how people read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Microseconds.
    Time,
    /// Seconds.
    Seconds,
    /// Count.
    Count,
    /// Count per second.
    Rate,
    /// Bytes.
    Bytes,
}

impl Measure {
    /// Writes a value for people: `12.50 ms`, `3`, `50.0/s`, `4.1 KiB`.
    pub fn words(self, value: f64) -> String {
        let (sign, size) = if value < 0.0 { ("-", -value) } else { ("", value) };
        let words = match self {
            Measure::Time if size == 0.0 => "0 us".to_owned(),
            Measure::Time => time(size),
            Measure::Seconds => format!("{size:.3} s"),
            Measure::Count => format!("{size}"),
            Measure::Rate => format!("{size:.1}/s"),
            Measure::Bytes => bytes(size),
        };
        format!("{sign}{words}")
    }
}

/// Number of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of the number: its place in the JSON with dots, and without `latency_us.`.
    pub name: &'static str,
    /// Quantity that it measures.
    pub measure: Measure,
    /// The path of the page of `http` that it is of; None: of the whole run.
    pub(crate) page: Option<String>,
}

macro_rules! figures {
    ($($measure:ident: $($name:literal)*;)* => $($group:literal)*) => {
        &[
            $($(Figure { name: $name, measure: Measure::$measure, page: None },)*)*
            $(
                Figure { name: concat!($group, ".min"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".mean"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".p50"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".p90"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".p95"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".p99"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".p999"), measure: Measure::Time, page: None },
                Figure { name: concat!($group, ".max"), measure: Measure::Time, page: None },
            )*
        ]
    };
}

const ATTEMPTED: &str = "connections.attempted";
const ENDED: [&str; 2] = ["operations.ok", "operations.failed"];

impl Figure {
    /// Other names of some.
    pub const SHORT: [(&'static str, &'static str); 10] = [
        ("min", "operation.min"),
        ("mean", "operation.mean"),
        ("p50", "operation.p50"),
        ("p90", "operation.p90"),
        ("p95", "operation.p95"),
        ("p99", "operation.p99"),
        ("p999", "operation.p999"),
        ("max", "operation.max"),
        ("lost", "connections.lost"),
        ("rate", "operations.per_second"),
    ];

    /// All figures. `failed` alone is no field of the JSON: it is the sum of the two that are called so.
    pub const ALL: &'static [Figure] = figures! {
        Count: "failed" "connections.attempted" "connections.established" "connections.failed" "connections.lost"
            "connections.closed" "connections.open" "connections.peak" "connections.not_begun" "connections.reconnected" "operations.ok" "operations.failed" "client.processes" "client.lost"
            "server.listen_overflows" "server.listen_drops" "tls.handshakes.full" "tls.handshakes.resumed" "tls.handshakes.failed" "websocket.opened" "websocket.failed";
        Rate: "operations.per_second" "connections.per_second" "tls.per_second" "websocket.per_second";
        Seconds: "seconds" "client.cpu_seconds" "server.cpu_seconds";
        Bytes: "client.bytes_per_connection" "server.bytes_per_connection" "server.kernel_bytes_per_connection";
        Time: "server.cpu_us_per_operation" "server.cpu_us_per_accept" "tls.cpu_us";
        => "operation" "connect" "handshake" "websocket" "first_byte" "uncorrected" "lag"
    };

    /// Figures that each page of a run of `http` has besides: `/a.p99`, `/a.first_byte.p50`, `/a.failed`.
    const OF_PAGES: &'static [Figure] = figures! {
        Count: "ok" "failed";
        Rate: "rate";
        => "operation" "first_byte"
    };

    /// Returns the figure of this name.
    pub fn named(name: &str) -> Option<Figure> {
        if name.starts_with('/') {
            return Figure::of_page(name);
        }
        let name = Figure::SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, name)| name);
        let name = name.strip_prefix("latency_us.").unwrap_or(name);
        Figure::ALL.iter().find(|figure| figure.name == name).cloned()
    }

    /// Returns the figure of a page. A path may have dots: the longest name that the text ends with is meant.
    fn of_page(text: &str) -> Option<Figure> {
        let own = Figure::OF_PAGES.iter().map(|figure| (figure.name, figure));
        let short = Figure::OF_PAGES.iter().filter_map(|figure| Some((figure.name.strip_prefix("operation.")?, figure)));
        let ends = own.chain(short).filter_map(|(name, figure)| Some((text.strip_suffix(name)?.strip_suffix('.')?, figure)));
        let (path, figure) = ends.min_by_key(|(path, _)| path.len())?;
        Some(Figure { page: Some(path.to_owned()), ..figure.clone() })
    }

    /// Returns every name that [`Figure::named`] takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Figure::SHORT.iter().map(|(short, _)| *short).chain(Figure::ALL.iter().map(|figure| figure.name))
    }

    /// Returns its value in this result, in the unit of the JSON; None where nothing was measured.
    pub fn of(&self, result: &Value) -> Option<f64> {
        if self.page.is_some() {
            let (page, name) = (self.within(result)?, self.name);
            return match name.split_once('.') {
                Some((group, name)) => field(page, &format!("{group}_us.{name}")),
                None => field(page, if name == "rate" { "per_second" } else { name }),
            };
        }
        match self.name {
            "failed" => sum(result, &["connections.failed", "operations.failed"]),
            name => field(&result["latency_us"], name).or_else(|| field(result, name)),
        }
    }

    /// Returns how many percent it is of what it is a part of; None where there was nothing that could be a part.
    pub fn percent_of(&self, result: &Value) -> Option<f64> {
        if self.name == "failed" && self.page.is_none() {
            // Connects that went well are no comfort where every request failed.
            let parts = ["connections.failed", "operations.failed"].map(|name| Figure::named(name)?.percent_of(result));
            return parts.into_iter().flatten().reduce(f64::max);
        }
        let whole = sum(self.within(result)?, self.whole()?).filter(|whole| *whole > 0.0)?;
        Some(100.0 * self.of(result)? / whole)
    }

    /// Returns the names of the numbers whose sum it is a part of; None: a share of it makes no sense.
    pub(crate) fn whole(&self) -> Option<&'static [&'static str]> {
        match self.name {
            "failed" if self.page.is_some() => Some(&["ok", "failed"]),
            // The greater of its two shares.
            "failed" => Some(&[ATTEMPTED, ENDED[0], ENDED[1]]),
            "connections.failed" => Some(&[ATTEMPTED]),
            "connections.lost" => Some(&["connections.established"]),
            "operations.failed" => Some(&ENDED),
            _ => None,
        }
    }
}

impl Figure {
    /// Returns the part of a result that it is in: its page, or the whole.
    fn within<'a>(&self, result: &'a Value) -> Option<&'a Value> {
        let Some(path) = &self.page else { return Some(result) };
        result["http"]["pages"].as_array()?.iter().find(|page| page["path"] == **path)
    }
}

fn sum(result: &Value, names: &[&str]) -> Option<f64> {
    names.iter().map(|name| field(result, name)).sum()
}

fn field(of: &Value, name: &str) -> Option<f64> {
    name.split('.').try_fold(of, |value, key| value.get(key))?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Percentiles;
    use crate::report::tests::report;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// Finds the fields below this one that are numbers, or would be if something had been measured.
    fn numbers(value: &Value, name: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| numbers(value, &format!("{name}.{key}"), found)),
            Value::Number(_) | Value::Null => drop(found.insert(name.to_owned())),
            _ => {}
        }
    }

    #[test]
    fn every_number_of_a_result_has_a_name_and_every_name_a_number() {
        let mut report = report();
        report.latency_us.first_byte = Some(Percentiles::default());
        report.latency_us.handshake = Some(Percentiles::default());
        report.latency_us.websocket = Some(Percentiles::default());
        report.tls = Some(crate::workload::TlsReport::default());
        report.websocket = Some(crate::workload::WebSocketReport::default());
        let result = serde_json::to_value(report).expect("a report is an object");
        let mut found = BTreeSet::from(["failed".to_owned(), "seconds".to_owned()]);
        for part in ["connections", "operations", "client", "server", "tls", "websocket"] {
            numbers(&result[part], part, &mut found);
        }
        for (part, times) in result["latency_us"].as_object().expect("times by what took them") {
            numbers(times, part, &mut found);
        }
        let names: BTreeSet<String> = Figure::ALL.iter().map(|figure| figure.name.to_owned()).collect();
        assert_eq!(names, found, "Figure::ALL differs from the fields of a report");
    }

    #[test]
    fn a_figure_is_found_by_its_place_and_by_its_short_name() {
        for (name, place) in [("p99", "operation.p99"), ("latency_us.connect.max", "connect.max"), ("failed", "failed")] {
            assert_eq!(Figure::named(name).map(|figure| figure.name), Some(place));
        }
        assert_eq!(Figure::named("p98"), None);
        for name in Figure::names() {
            assert!(Figure::named(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_page_of_http_has_figures_of_its_own() {
        let page = |path: &str, p99: f64| json!({"path": path, "ok": 90, "failed": 10, "per_second": 45.0, "operation_us": {"p99": p99}});
        let result = json!({"http": {"pages": [page("/a", 5.0), page("/a.html?x=1", 7.0)]}});
        let of = |name: &str| Figure::named(name).and_then(|figure| figure.of(&result));
        assert_eq!((of("/a.p99"), of("/a.operation.p99"), of("/a.html?x=1.p99")), (Some(5.0), Some(5.0), Some(7.0)));
        assert_eq!((of("/a.failed"), of("/a.rate"), of("/b.p99"), of("/a.p98")), (Some(10.0), Some(45.0), None, None));
        let failed = Figure::named("/a.failed").expect("a figure");
        assert_eq!(failed.percent_of(&result), Some(10.0));
    }

    #[test]
    fn failures_are_those_of_connects_and_of_operations() {
        let result = json!({"connections": {"attempted": 100, "failed": 2}, "operations": {"ok": 890, "failed": 10}});
        let failed = Figure::named("failed").expect("a figure");
        assert_eq!((failed.of(&result), failed.percent_of(&result)), (Some(12.0), Some(2.0)));
        let nothing = json!({"connections": {"attempted": 0, "failed": 0}, "operations": {"ok": 0, "failed": 0}});
        assert_eq!((failed.of(&nothing), failed.percent_of(&nothing)), (Some(0.0), None));
        let all = json!({"connections": {"attempted": 1_000, "failed": 0}, "operations": {"ok": 0, "failed": 64}});
        assert_eq!(failed.percent_of(&all), Some(100.0), "connects are no part of it where each request fails");
        assert_eq!(Figure::named("seconds").and_then(|seconds| seconds.percent_of(&result)), None);
    }

    #[test]
    fn numbers_are_told_in_units_that_people_read() {
        let words = [
            (Measure::Time, 0.0, "0 us"),
            (Measure::Time, 12_345.0, "12.35 ms"),
            (Measure::Time, -1_500_000.0, "-1.50 s"),
            (Measure::Count, 3.0, "3"),
            (Measure::Rate, 50.0, "50.0/s"),
            (Measure::Bytes, 512.0, "512 B"),
            (Measure::Bytes, 4_198.4, "4.1 KiB"),
            (Measure::Seconds, 1.5, "1.500 s"),
        ];
        for (measure, value, expected) in words {
            assert_eq!(measure.words(value), expected);
        }
    }
}
