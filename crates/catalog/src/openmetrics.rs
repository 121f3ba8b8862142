//! Metrics as text for collectors: the
//! [text format of Prometheus](https://prometheus.io/docs/instrumenting/exposition_formats/), version 0.0.4, and
//! [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), version 1.0.
//!
//! ```
//! use sockdrawer_catalog::openmetrics::{Family, Format, Kind, Writer};
//!
//! const ACCEPTED: Family = Family::new("web_accepted", Kind::Counter, "Connections that were accepted.");
//! let mut writer = Writer::new(Format::Prometheus);
//! writer.family(&ACCEPTED);
//! writer.sample(&[("pool", "a")], 7.0);
//! assert!(writer.finish().ends_with("web_accepted_total{pool=\"a\"} 7\n"));
//! ```

use std::fmt::{self, Write};

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4.
    Prometheus,
    /// Version 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the form that a client accepts, by the `Accept` of its request: OpenMetrics where it is asked for by name and is liked no less than
    /// plain text.
    pub fn accepted(accept: &str) -> Format {
        let (mut open, mut text) = (0.0, 0.0);
        for range in accept.split(',') {
            let range = range.to_ascii_lowercase();
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let (mut weight, mut version) = (1.0, "");
            for part in parts {
                match part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('"'))) {
                    Some(("q", value)) => weight = value.parse().unwrap_or(0.0),
                    Some(("version", value)) => version = value,
                    _ => {}
                }
            }
            match (kind, version) {
                ("application/openmetrics-text", "" | "1.0.0") => open = f64::max(open, weight),
                ("text/plain" | "text/*", _) => text = f64::max(text, weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// Returns the `Content-Type` of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Kind of a family's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and falls.
    Gauge,
    /// Number of values up to each bound.
    Histogram,
    /// Labels that say something, with the value 1.
    Info,
}

/// A family of metrics: all that have a name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name, without the `_total` of counters and the `_info` of information.
    pub name: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Meaning of the values, in a sentence.
    pub help: &'static str,
}

impl Family {
    /// Creates a family.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Family {
        Family { name, kind, help }
    }

    /// Returns the unit that the name ends with, in its base form; empty: none.
    pub fn unit(&self) -> &'static str {
        ["seconds", "bytes"].into_iter().find(|unit| self.name.rsplit('_').next() == Some(unit)).unwrap_or_default()
    }

    /// Returns the word behind the name of the samples.
    pub fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }
}

/// Writes metrics, family by family.
#[derive(Debug)]
pub struct Writer {
    format: Format,
    text: String,
    /// The one that samples belong to.
    name: &'static str,
    suffix: &'static str,
}

impl Writer {
    /// Creates a writer that holds nothing yet.
    pub fn new(format: Format) -> Writer {
        Writer { format, text: String::new(), name: "", suffix: "" }
    }

    /// Begins a family: the samples that follow are of it.
    pub fn family(&mut self, family: &Family) {
        let Family { name, kind, help } = *family;
        (self.name, self.suffix) = (name, family.suffix());
        let open = self.format == Format::OpenMetrics;
        // In the older form a family has the name of its samples, and there is no information.
        let full = if open { name.to_owned() } else { format!("{name}{}", self.suffix) };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Info if open => "info",
            Kind::Gauge | Kind::Info => "gauge",
            Kind::Histogram => "histogram",
        };
        let mut line = |word: &str, rest: &str| self.text.extend(["# ", word, " ", &full, " ", rest, "\n"]);
        line("TYPE", kind);
        if open && !family.unit().is_empty() {
            line("UNIT", family.unit());
        }
        line("HELP", &help.replace('\\', "\\\\").replace('\n', "\\n"));
    }

    /// Writes a value of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line(self.suffix, labels, None, value);
    }

    /// Writes a histogram of the family: how many values were at most each bound, in the order of the bounds, then their number and sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], buckets: impl IntoIterator<Item = (f64, u64)>, count: u64, sum: f64) {
        for (bound, up_to) in buckets {
            // A bound is a number with a point.
            let bound = if bound.fract() == 0.0 { format!("{bound:.1}") } else { bound.to_string() };
            self.line("_bucket", labels, Some(&bound), float(up_to));
        }
        self.line("_bucket", labels, Some("+Inf"), float(count));
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, float(count));
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: f64) {
        self.text.extend([self.name, suffix]);
        let bound = bound.map(|bound| ("le", bound));
        let mut separator = '{';
        for (name, value) in labels.iter().copied().chain(bound) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{separator}{name}=\"{value}\"");
            separator = ',';
        }
        let _ = writeln!(self.text, "{} {}", if separator == ',' { "}" } else { "" }, Number(value));
    }

    /// Returns the whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text += "# EOF\n";
        }
        self.text
    }
}

/// Number, as both forms write it.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

/// Converts a count to the number that collectors keep.
#[expect(clippy::cast_precision_loss, reason = "collectors keep 64-bit floats, too")]
pub fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            (prometheus, Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Format::Prometheus),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.3", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x,;;=,", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn each_form_has_its_lines() {
        let write = |format| {
            let mut writer = Writer::new(format);
            writer.family(&Family::new("a_bytes", Kind::Counter, "A \\ and\na line."));
            writer.sample(&[("x", "\"a\\\n"), ("y", "")], 3.0);
            writer.family(&Family::new("b", Kind::Info, "B."));
            writer.sample(&[], 1.0);
            writer.family(&Family::new("c_seconds", Kind::Histogram, "C."));
            writer.histogram(&[("p", "q")], [(0.005, 1), (1.0, 2)], 3, f64::INFINITY);
            writer.finish()
        };
        let samples = r#"a_bytes_total{x="\"a\\\n",y=""} 3"#;
        let histogram = "c_seconds_bucket{p=\"q\",le=\"0.005\"} 1\nc_seconds_bucket{p=\"q\",le=\"1.0\"} 2\n\
                         c_seconds_bucket{p=\"q\",le=\"+Inf\"} 3\nc_seconds_sum{p=\"q\"} +Inf\nc_seconds_count{p=\"q\"} 3\n";
        let older = "# TYPE a_bytes_total counter\n# HELP a_bytes_total A \\\\ and\\na line.\n";
        let info = "# TYPE b_info gauge\n# HELP b_info B.\nb_info 1\n";
        let times = "# TYPE c_seconds histogram\n# HELP c_seconds C.\n";
        assert_eq!(write(Format::Prometheus), format!("{older}{samples}\n{info}{times}{histogram}"));
        let open = "# TYPE a_bytes counter\n# UNIT a_bytes bytes\n# HELP a_bytes A \\\\ and\\na line.\n";
        let info = "# TYPE b info\n# HELP b B.\nb_info 1\n";
        let times = "# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n# HELP c_seconds C.\n";
        assert_eq!(write(Format::OpenMetrics), format!("{open}{samples}\n{info}{times}{histogram}# EOF\n"));
    }
}
