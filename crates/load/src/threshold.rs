//! Thresholds: what a result must keep for a run to have passed.

use crate::figure::{Figure, Measure};
use crate::numbers::median;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Condition for a number of a result: `operation.p99<50ms`, `failed<0.1%`, `lost==0`; or, between two results, how much it may change:
/// `operation.p99<+10%`.
///
/// ```
/// # use sockdrawer_load::results::Threshold;
/// let result = serde_json::json!({"latency_us": {"operation": {"p99": 12_500.0}}});
/// let threshold: Threshold = "p99<10ms".parse()?;
/// let judgement = threshold.check(&result);
/// assert!(!judgement.ok);
/// assert_eq!(judgement.to_string(), "FAILED  p99<10ms: 12.50 ms");
/// # Ok::<(), sockdrawer_load::results::BadThreshold>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    figure: Figure,
    operator: Operator,
    bound: Bound,
}

/// Reason why an expression is no threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadThreshold {
    /// There is no such number in a result.
    UnknownName(String),
    /// Any other reason, in words.
    Malformed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
}

/// Bound that a number is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The number itself, in the unit of the JSON.
    Value(f64),
    /// Share of the number in what it is a part of, in percent.
    Percent(f64),
    /// Growth of the number since before.
    Change(f64),
    /// Growth of the number in percent of what it was before.
    ChangePercent(f64),
}

/// The longer ones first: `<` begins `<=`.
const OPERATORS: [(&str, Operator); 6] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    ("<", Operator::Less),
    (">", Operator::More),
];

impl Operator {
    #[expect(clippy::float_cmp, reason = "whoever writes == means it: counts are exact")]
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Operator::Less => value < bound,
            Operator::AtMost => value <= bound,
            Operator::More => value > bound,
            Operator::AtLeast => value >= bound,
            Operator::Equal => value == bound,
            Operator::Unequal => value != bound,
        }
    }
}

impl Threshold {
    /// Returns true where it is about a change: it needs two results.
    pub fn is_change(&self) -> bool {
        matches!(self.bound, Bound::Change(_) | Bound::ChangePercent(_))
    }

    /// Returns the path of the page of `http` that it is about; None: it is about the whole run.
    pub fn page(&self) -> Option<&str> {
        self.figure.page.as_deref()
    }

    /// Judges a result. A change has not been measured in a single result.
    pub fn check(&self, result: &Value) -> Judgement {
        self.judge(self.read(result).filter(|_| !self.is_change()))
    }

    /// Judges two sets of results: the change of the medians, or where it is not about a change, the median after. A change within the
    /// spread of repeated runs is none that they show, and fails nothing. What one run of a set did not measure has not been measured:
    /// the others would stand for it.
    pub fn check_change(&self, before: &[Value], after: &[Value]) -> Judgement {
        let read = |results: &[Value]| results.iter().map(|result| self.read(result)).collect::<Option<Vec<f64>>>();
        let sides = [before, after].map(|results| read(results).unwrap_or_default());
        let [before, after] = sides.clone().map(median);
        let change = |of: fn(f64, f64) -> f64| before.zip(after).map(|(before, after)| of(before, after));
        let judgement = self.judge(match self.bound {
            Bound::Value(_) | Bound::Percent(_) => after,
            Bound::Change(_) => change(|before, after| after - before),
            Bound::ChangePercent(_) => change(percent_change),
        });
        // A threshold that asks for an improvement is not kept by runs that show none.
        let allows_none = self.is_change() && self.judge(Some(0.0)).ok;
        let within_spread = !judgement.ok && allows_none && is_outside_spread(&sides[0], &sides[1]) == Some(false);
        Judgement { within_spread, ok: judgement.ok || within_spread, ..judgement }
    }

    fn read(&self, result: &Value) -> Option<f64> {
        match self.bound {
            Bound::Percent(_) => self.figure.percent_of(result),
            _ => self.figure.of(result),
        }
    }

    fn judge(&self, value: Option<f64>) -> Judgement {
        let (Bound::Value(bound) | Bound::Percent(bound) | Bound::Change(bound) | Bound::ChangePercent(bound)) = self.bound;
        let ok = value.is_some_and(|value| self.operator.holds(value, bound));
        Judgement { expr: self.text.clone(), value, ok, within_spread: false }
    }

    /// Writes the value of a judgement, for people.
    fn words(&self, value: f64) -> String {
        let sign = if value > 0.0 { "+" } else { "" };
        match self.bound {
            Bound::Value(_) => self.figure.measure.words(value),
            Bound::Percent(_) => format!("{}%", digits(value)),
            Bound::Change(_) => format!("{sign}{}", self.figure.measure.words(value)),
            Bound::ChangePercent(_) => format!("{sign}{value:.1}%"),
        }
    }
}

impl FromStr for Threshold {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Threshold, BadThreshold> {
        let malformed = |reason: &str| BadThreshold::Malformed(reason.to_owned());
        // The path of a page may have signs of comparison in it, a bound has none.
        let signs = ['<', '>', '=', '!'];
        let last = |text: &str| text.trim_end_matches(|c| !signs.contains(&c)).trim_end_matches(signs).len();
        let at = if text.trim_start().starts_with('/') { Some(last(text)).filter(|at| *at > 0) } else { text.find(signs) };
        let at = at.ok_or_else(|| malformed("no comparison in it: write one such as p99<50ms"))?;
        let (name, rest) = text.split_at(at);
        let operator = OPERATORS.iter().find_map(|(sign, operator)| Some((rest.strip_prefix(sign)?, *operator)));
        let (bound, operator) = operator.ok_or_else(|| malformed("no such comparison: there are <, <=, >, >=, == and !="))?;
        let name = name.trim();
        let unknown = || match name.starts_with('/') {
            true => BadThreshold::Malformed(format!(
                "`{name}` is no figure of a page: write one such as /a.p99, /a.first_byte.p50, /a.failed or /a.rate"
            )),
            false => BadThreshold::UnknownName(name.to_owned()),
        };
        let figure = Figure::named(name).ok_or_else(unknown)?;
        let bound = Bound::of(&figure, bound.trim()).map_err(BadThreshold::Malformed)?;
        Ok(Threshold { text: text.trim().to_owned(), figure, operator, bound })
    }
}

impl Bound {
    fn of(figure: &Figure, text: &str) -> Result<Bound, String> {
        let (sign, size) = match text.strip_prefix('+') {
            Some(size) => (Some(1.0), size),
            None => text.strip_prefix('-').map_or((None, text), |size| (Some(-1.0), size)),
        };
        let percent = size.strip_suffix('%').map(str::trim);
        let value = match percent {
            Some(size) => number(size).ok_or_else(|| format!("`{text}` is no number of percent: write one such as 0.1%"))?,
            None => in_units(figure.measure, size).ok_or_else(|| no_bound(figure, text))?,
        };
        match (sign, percent) {
            (None, None) => Ok(Bound::Value(value)),
            (None, Some(_)) if figure.whole().is_some() => Ok(Bound::Percent(value)),
            (None, Some(_)) => Err(format!("{} is no share of anything: write a value, or a change such as +10%", figure.name)),
            (Some(sign), None) => Ok(Bound::Change(sign * value)),
            (Some(sign), Some(_)) => Ok(Bound::ChangePercent(sign * value)),
        }
    }
}

fn no_bound(figure: &Figure, text: &str) -> String {
    let example = match figure.measure {
        Measure::Time => "is no time with its unit: write 50ms, 250us, 10ns or 1s",
        Measure::Seconds => "is no time: write 5 or 5s (seconds), 50ms or 2m (minutes)",
        Measure::Count => "is no count: write a number such as 0, 250, 10k or 2m",
        Measure::Rate => "is no rate: write how many per second, such as 500 or 10k",
        Measure::Bytes => "is no size: write bytes, such as 512 or 4k (4,096)",
    };
    format!("`{text}` {example}")
}

/// Reads a size with its unit, in the unit of the JSON. Without a unit a latency is refused, as the JSON has microseconds and the command line
/// seconds.
fn in_units(measure: Measure, text: &str) -> Option<f64> {
    let units: &[(&str, f64)] = match measure {
        Measure::Time => &[("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)],
        Measure::Seconds => &[("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)],
        Measure::Count => &[("k", 1e3), ("m", 1e6), ("", 1.0)],
        Measure::Rate => &[("k/s", 1e3), ("m/s", 1e6), ("/s", 1.0), ("k", 1e3), ("m", 1e6), ("", 1.0)],
        Measure::Bytes => &[("k", 1024.0), ("m", 1_048_576.0), ("", 1.0)],
    };
    if measure == Measure::Time && text == "0" {
        return Some(0.0);
    }
    units.iter().find_map(|(unit, factor)| Some(number(text.strip_suffix(unit)?.trim())? * factor))
}

/// Digits with a point between them at most: no sign, exponent or infinity.
fn number(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|_| plain && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// Writes four digits after the point, but for zeros at the end: a share of 0.001 % is not 0.
fn digits(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns by how many percent `after` is more. Something that was nothing grew beyond all bounds.
pub(crate) fn percent_change(before: f64, after: f64) -> f64 {
    let change = after - before;
    if change == 0.0 { 0.0 } else { 100.0 * change / before.abs() }
}

/// Returns whether no run of one side lies among those of the other. None: with one run on each side it is not known how far apart two are.
pub(crate) fn is_outside_spread(before: &[f64], after: &[f64]) -> Option<bool> {
    let ends = |values: &[f64]| Some((values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?));
    let (first, second) = (ends(before)?, ends(after)?);
    (before.len() > 1 || after.len() > 1).then_some(first.1 < second.0 || second.1 < first.0)
}

/// A threshold and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Judgement {
    /// Expression as it was written.
    pub expr: String,
    /// Value that was measured, in the unit of the result; None when nothing was.
    pub value: Option<f64>,
    /// The threshold holds.
    pub ok: bool,
    /// True where it holds for this reason alone: the change is within the spread of the runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub within_spread: bool,
}

impl Judgement {
    /// Returns the measured value in words for people.
    pub fn words(&self) -> String {
        match (self.value, self.expr.parse::<Threshold>()) {
            (None, _) => "nothing was measured".to_owned(),
            (Some(value), Ok(threshold)) if self.within_spread => {
                format!("{}, within the spread: no change that these runs show", threshold.words(value))
            }
            (Some(value), Ok(threshold)) => threshold.words(value),
            (Some(value), Err(_)) => value.to_string(),
        }
    }
}

/// A line for people: whether it was kept, and what was measured.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.ok { "ok    " } else { "FAILED" };
        write!(f, "{word}  {}: {}", self.expr, self.words())
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for BadThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadThreshold::UnknownName(name) => {
                write!(f, "unknown name `{name}`: there are {}", Figure::names().collect::<Vec<_>>().join(", "))
            }
            BadThreshold::Malformed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for BadThreshold {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn threshold(text: &str) -> Threshold {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn result() -> Value {
        json!({
            "seconds": 2.0,
            "connections": {"attempted": 1000, "established": 998, "failed": 2, "lost": 0},
            "operations": {"ok": 2990, "failed": 10, "per_second": 1495.0},
            "latency_us": {"connect": {"p99": null}, "operation": {"p50": 0.8, "p99": 12_500.0}},
            "server": {"bytes_per_connection": 4096.0},
            "http": {"pages": [{"path": "/a?b=c", "ok": 90, "failed": 10, "operation_us": {"p99": 7_000.0}}]},
        })
    }

    #[test]
    fn what_was_measured_decides() {
        let kept = [
            "p99<50ms",
            "operation.p99<=12500us",
            "latency_us.operation.p99>12ms",
            "p99<0.1s",
            "p50<801ns",
            "p50>0",
            "lost==0",
            "lost!=1",
            "connections.lost<0.1%",
            "failed==12",
            "failed<=0.34%",
            "connections.failed<0.21%",
            "operations.failed<0.34%",
            "rate>=1k",
            "operations.per_second>1494/s",
            "rate<2k/s",
            "seconds<1m",
            "seconds==2",
            "seconds<=2000ms",
            "server.bytes_per_connection<=4k",
            " p99 < 50 ms ",
            "operations.ok<0.003m",
            "/a?b=c.p99<=7ms",
            " /a?b=c.failed < 11% ",
        ];
        let failed = [
            "p99<12ms",
            "p99!=12500us",
            "lost!=0",
            "lost>0%",
            "failed<12",
            "failed<0.1%",
            "rate>2k",
            "seconds>2",
            "server.bytes_per_connection<4095",
            "connections.failed>0.2%",
        ];
        for text in kept {
            assert!(threshold(text).check(&result()).ok, "{text}");
        }
        for text in failed {
            assert!(!threshold(text).check(&result()).ok, "{text}");
        }
    }

    #[test]
    fn nothing_measured_keeps_no_threshold() {
        for text in ["connect.p99<1s", "connect.p99>0", "connect.p50!=1s", "server.cpu_seconds<1", "p99<+10%"] {
            let judgement = threshold(text).check(&result());
            assert_eq!(judgement.to_string(), format!("FAILED  {text}: nothing was measured"));
        }
        let empty = json!({"connections": {"attempted": 0, "failed": 0}, "operations": {"ok": 0, "failed": 0}});
        assert!(!threshold("failed<0.1%").check(&empty).ok, "of nothing, no share failed");
        assert!(threshold("failed==0").check(&empty).ok);
    }

    #[test]
    fn a_line_says_what_was_measured() {
        let lines = [
            ("p99<50ms", "ok      p99<50ms: 12.50 ms"),
            ("failed<0.1%", "FAILED  failed<0.1%: 0.3333%"),
            ("lost==0", "ok      lost==0: 0"),
            ("rate>=1k", "ok      rate>=1k: 1495.0/s"),
            ("server.bytes_per_connection<4k", "FAILED  server.bytes_per_connection<4k: 4.0 KiB"),
        ];
        for (text, line) in lines {
            assert_eq!(threshold(text).check(&result()).to_string(), line);
        }
    }

    #[test]
    fn the_json_has_expression_value_and_whether_it_was_kept() {
        let judgement = threshold("p99<50ms").check(&result());
        assert_eq!(json!(judgement), json!({"expr": "p99<50ms", "value": 12_500.0, "ok": true}));
    }

    #[test]
    fn a_change_is_that_of_the_medians() {
        let with = |p99: f64| json!({"latency_us": {"operation": {"p99": p99}}, "connections": {"lost": 0}});
        let (before, after) = ([with(90.0), with(100.0), with(5_000.0)], [with(105.0), with(109.0)]);
        let line = |text: &str| threshold(text).check_change(&before, &after).to_string();
        assert_eq!(line("p99<+10%"), "ok      p99<+10%: +7.0%");
        assert_eq!(line("p99<+5%"), "ok      p99<+5%: +7.0%, within the spread: no change that these runs show");
        assert_eq!(line("p99<-5%"), "FAILED  p99<-5%: +7.0%");
        assert_eq!(line("p99<=+7us"), "ok      p99<=+7us: +7.0 us");
        assert_eq!(line("p99<106us"), "FAILED  p99<106us: 107.0 us");
        assert_eq!(line("lost<=+0%"), "ok      lost<=+0%: 0.0%");
        assert_eq!(threshold("p99<+1%").check_change(&[], &after).to_string(), "FAILED  p99<+1%: nothing was measured");
        let worse = json!({"connections": {"lost": 3}});
        assert!(!threshold("lost<+1000%").check_change(&before, &[worse]).ok, "0 to 3 is beyond every percentage");
    }

    #[test]
    fn what_one_of_several_runs_did_not_measure_keeps_no_threshold() {
        let with = |p99: f64| json!({"latency_us": {"operation": {"p99": p99}}});
        let (whole, partial) = ([with(90.0), with(100.0)], [json!({"latency_us": {"operation": {"p99": null}}}), with(95.0)]);
        let line = |text: &str, before: &[Value], after: &[Value]| threshold(text).check_change(before, after).to_string();
        for text in ["p99<+10%", "p99<+5ms", "p99<1s"] {
            assert_eq!(line(text, &whole, &partial), format!("FAILED  {text}: nothing was measured"));
        }
        assert_eq!(line("p99<+10%", &partial, &whole), "FAILED  p99<+10%: nothing was measured");
        assert_eq!(line("p99<1s", &partial, &whole), "ok      p99<1s: 95.0 us", "it is about the second set alone");
    }

    #[test]
    fn what_is_no_threshold_is_told_with_what_would_be_one() {
        for (text, reason) in [
            ("p99", "no comparison in it: write one such as p99<50ms"),
            ("p99=5ms", "no such comparison: there are <, <=, >, >=, == and !="),
            ("p99<50", "`50` is no time with its unit: write 50ms, 250us, 10ns or 1s"),
            ("p99<50%", "operation.p99 is no share of anything: write a value, or a change such as +10%"),
            ("/a.p42<1s", "`/a.p42` is no figure of a page: write one such as /a.p99, /a.first_byte.p50, /a.failed or /a.rate"),
            ("/a", "no comparison in it: write one such as p99<50ms"),
            ("/a.p99<50", "`50` is no time with its unit: write 50ms, 250us, 10ns or 1s"),
            ("lost==none", "`none` is no count: write a number such as 0, 250, 10k or 2m"),
            ("lost<1e3", "`1e3` is no count: write a number such as 0, 250, 10k or 2m"),
            ("failed<x%", "`x%` is no number of percent: write one such as 0.1%"),
            ("rate>", "`` is no rate: write how many per second, such as 500 or 10k"),
            ("p99<=>5ms", "`>5ms` is no time with its unit: write 50ms, 250us, 10ns or 1s"),
        ] {
            assert_eq!(text.parse::<Threshold>(), Err(BadThreshold::Malformed(reason.to_owned())), "{text}");
        }
        let unknown = "p98<5ms".parse::<Threshold>().expect_err("no such number");
        assert!(unknown.to_string().starts_with("unknown name `p98`: there are min, mean, p50, p90, p95, p99,"), "{unknown}");
    }
}
