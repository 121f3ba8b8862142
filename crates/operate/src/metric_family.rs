//! Metrics of a program's own: counters, gauges and histograms with labels, on the page of the built-in ones, which a new build goes on with.

use crate::lock::lock;
use crate::times::Times;
use sockdrawer_catalog::openmetrics::{Family, Kind, Writer, float};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum of metrics in a family: a label whose values a client chooses must not fill the memory, nor the page.
const MAX_METRICS: usize = 1_000;
/// The value of all labels of what comes beyond that.
const OVERFLOW: &str = "other";
/// Beginnings of names that belong to the built-in families.
const RESERVED: [&str; 2] = ["sockdrawer_", "process_"];

/// A number that only grows. Clones are the same counter; adding to it takes no lock.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

/// A number that grows and falls. Clones are the same gauge; setting it takes no lock.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

/// Times, counted by length in buckets from 1 ms to 30 s. Clones are the same histogram.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Mutex<Times>>);

impl Counter {
    /// Makes a family of counters. Its samples have the name with `_total` behind it.
    pub fn family<const N: usize>(name: &'static str, help: &'static str, labels: [&'static str; N]) -> MetricFamily<Counter, N> {
        MetricFamily::new(Family::new(name, Kind::Counter, help), labels)
    }

    /// Adds so many.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

impl Gauge {
    /// Makes a family of gauges.
    pub fn family<const N: usize>(name: &'static str, help: &'static str, labels: [&'static str; N]) -> MetricFamily<Gauge, N> {
        MetricFamily::new(Family::new(name, Kind::Gauge, help), labels)
    }

    /// Sets the number.
    pub fn set(&self, number: f64) {
        self.0.store(number.to_bits(), Relaxed);
    }

    /// Adds to the number, or takes from it with a number below 0.
    pub fn add(&self, number: f64) {
        let add = |bits| Some((f64::from_bits(bits) + number).to_bits());
        // It always has something to store.
        let _ = self.0.fetch_update(Relaxed, Relaxed, add);
    }
}

impl Histogram {
    /// Makes a family of histograms. A name ends with `_seconds`, which is their unit.
    pub fn family<const N: usize>(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> MetricFamily<Histogram, N> {
        MetricFamily::new(Family::new(name, Kind::Histogram, help), labels)
    }

    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        lock(&self.0).add(time);
    }
}

/// Metrics of one name, one for each combination of its labels' values. Clones are the same family: one goes to
/// [`Operated::metric`](crate::Operated::metric), one to the code that counts.
///
/// ```
/// use sockdrawer_operate::Counter;
///
/// let lines = Counter::family("chat_lines", "Lines that were said, by room.", ["room"]);
/// lines.at(["lobby"]).add(1);
/// ```
///
/// Counters and histograms go on in the next build from where they were at the commit of an upgrade; gauges begin anew. They are this process's:
/// what helper processes of `prefork` and `fork` count is not in them.
pub struct MetricFamily<V, const N: usize> {
    family: Family,
    labels: [&'static str; N],
    metrics: Arc<Mutex<HashMap<[String; N], V>>>,
}

impl<V, const N: usize> Clone for MetricFamily<V, N> {
    fn clone(&self) -> MetricFamily<V, N> {
        MetricFamily { family: self.family, labels: self.labels, metrics: self.metrics.clone() }
    }
}

impl<V, const N: usize> fmt::Debug for MetricFamily<V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricFamily").field("name", &self.family.name).field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl<V: Clone + Default, const N: usize> MetricFamily<V, N> {
    fn new(family: Family, labels: [&'static str; N]) -> MetricFamily<V, N> {
        // The only metric of a family without labels is on the page from the beginning.
        let only = <[&str; N]>::map(labels, str::to_owned);
        let metrics: HashMap<_, _> = (N == 0).then(|| (only, V::default())).into_iter().collect();
        MetricFamily { family, labels, metrics: Arc::new(Mutex::new(metrics)) }
    }

    /// Returns the metric with these values of the labels, which begins with 0 when it is asked for first. Keep it where it is counted often: looking
    /// it up takes a lock. Beyond 1,000 of a family all are one metric, whose labels are `other`.
    pub fn at(&self, values: [&str; N]) -> V {
        let mut metrics = lock(&self.metrics);
        let values = values.map(str::to_owned);
        if metrics.len() >= MAX_METRICS && !metrics.contains_key(&values) {
            return metrics.entry(values.map(|_| OVERFLOW.to_owned())).or_default().clone();
        }
        metrics.entry(values).or_default().clone()
    }

    /// Takes the metric with these values off the page: what it counts has ended.
    pub fn remove(&self, values: [&str; N]) {
        lock(&self.metrics).remove(&values.map(str::to_owned));
    }
}

/// A metric's number as the next build gets it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Counted {
    Count(u64),
    Times(Times),
}

#[cfg(feature = "lease")]
impl Counted {
    /// Adds what was counted elsewhere; a build that counted something else added nothing.
    pub(crate) fn add(&mut self, other: &Counted) {
        match (self, other) {
            (Counted::Count(count), Counted::Count(other)) => *count += other,
            (Counted::Times(times), Counted::Times(other)) => times.merge(other),
            _ => {}
        }
    }

    pub(crate) fn write(&self, labels: &[(&str, &str)], to: &mut Writer) {
        match self {
            Counted::Count(count) => to.sample(labels, float(*count)),
            Counted::Times(times) => to.histogram(labels, times.up_to(), times.count, times.sum),
        }
    }
}

/// The numbers of a family by the values of its labels.
pub(crate) type Numbers = Vec<(Vec<String>, Counted)>;

/// A kind of metric.
pub trait Measure: Clone + Default + Send + 'static {
    fn write(&self, labels: &[(&str, &str)], to: &mut Writer);
    /// Returns the number that the next build goes on with.
    fn counted(&self) -> Option<Counted>;
    /// Goes on with what was counted before.
    fn go_on(&self, counted: Counted);
}

impl Measure for Counter {
    fn write(&self, labels: &[(&str, &str)], to: &mut Writer) {
        to.sample(labels, float(self.0.load(Relaxed)));
    }

    fn counted(&self) -> Option<Counted> {
        Some(Counted::Count(self.0.load(Relaxed)))
    }

    fn go_on(&self, counted: Counted) {
        if let Counted::Count(count) = counted {
            self.add(count);
        }
    }
}

impl Measure for Gauge {
    fn write(&self, labels: &[(&str, &str)], to: &mut Writer) {
        to.sample(labels, f64::from_bits(self.0.load(Relaxed)));
    }

    fn counted(&self) -> Option<Counted> {
        None
    }

    fn go_on(&self, _: Counted) {}
}

impl Measure for Histogram {
    fn write(&self, labels: &[(&str, &str)], to: &mut Writer) {
        let times = lock(&self.0);
        to.histogram(labels, times.up_to(), times.count, times.sum);
    }

    fn counted(&self) -> Option<Counted> {
        Some(Counted::Times(lock(&self.0).clone()))
    }

    fn go_on(&self, counted: Counted) {
        if let Counted::Times(times) = counted {
            lock(&self.0).merge(&times);
        }
    }
}

/// A family on the page, whatever its metrics and labels are.
pub(crate) trait AnyFamily: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn labels(&self) -> &[&'static str];
    fn write(&self, to: &mut Writer);
    fn counted(&self) -> Numbers;
    fn go_on(&self, numbers: Numbers);
}

impl<V: Measure, const N: usize> AnyFamily for MetricFamily<V, N> {
    fn name(&self) -> &'static str {
        self.family.name
    }

    fn labels(&self) -> &[&'static str] {
        &self.labels
    }

    fn write(&self, to: &mut Writer) {
        to.family(&self.family);
        let metrics: BTreeMap<[String; N], V> = lock(&self.metrics).clone().into_iter().collect();
        for (values, metric) in metrics {
            let labels: Vec<(&str, &str)> = self.labels.into_iter().zip(values.iter().map(String::as_str)).collect();
            metric.write(&labels, to);
        }
    }

    fn counted(&self) -> Numbers {
        lock(&self.metrics).iter().filter_map(|(values, metric)| Some((values.to_vec(), metric.counted()?))).collect()
    }

    fn go_on(&self, numbers: Numbers) {
        for (values, counted) in numbers {
            // A build with other labels counted something else.
            let Ok(values) = <[String; N]>::try_from(values) else { continue };
            self.at(values.each_ref().map(String::as_str)).go_on(counted);
        }
    }
}

/// Returns what is wrong with the families of a program, which no collector would read.
pub(crate) fn wrong(families: &[Arc<dyn AnyFamily>]) -> Option<String> {
    let starts = |sign: char| sign.is_ascii_alphabetic() || sign == '_';
    let is_name = |name: &str| name.starts_with(starts) && name.chars().all(|sign| starts(sign) || sign.is_ascii_digit());
    families.iter().enumerate().find_map(|(at, family)| {
        let name = family.name();
        let why = if !is_name(name) {
            "is no name: use a-z, A-Z, 0-9 and _"
        } else if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
            "begins as built-in metrics do: choose another name"
        } else if name.ends_with("_total") {
            "ends with _total, which is added to the samples of counters: leave it out"
        } else if families[..at].iter().any(|other| other.name() == name) {
            "is registered twice: register each family once"
        } else if !family.labels().iter().all(|label| is_name(label) && !label.starts_with("__") && *label != "le") {
            "has a label that is no name: use a-z, A-Z, 0-9 and _, and not `le`"
        } else {
            return None;
        };
        Some(format!("metric {name} {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::BOUNDS;
    use sockdrawer_catalog::openmetrics::Format;

    fn page(family: &dyn AnyFamily) -> String {
        let mut writer = Writer::new(Format::Prometheus);
        family.write(&mut writer);
        writer.finish()
    }

    #[test]
    fn a_family_has_a_sample_for_each_combination_of_labels() {
        let lines = Counter::family("chat_lines", "Lines.", ["room", "how"]);
        lines.at(["b", "loud"]).add(2);
        lines.at(["a", "low"]).add(1);
        lines.at(["b", "loud"]).add(3);
        lines.at(["c", "low"]).add(1);
        lines.remove(["c", "low"]);
        let samples = "chat_lines_total{room=\"a\",how=\"low\"} 1\nchat_lines_total{room=\"b\",how=\"loud\"} 5\n";
        assert_eq!(page(&lines), format!("# TYPE chat_lines_total counter\n# HELP chat_lines_total Lines.\n{samples}"));
        let members = Gauge::family("chat_members", "Members.", []);
        members.at([]).set(7.0);
        members.at([]).add(-1.5);
        assert!(page(&members).ends_with("\nchat_members 5.5\n"), "{}", page(&members));
        let times = Histogram::family("chat_answer_seconds", "Times.", []);
        times.at([]).observe(Duration::from_millis(4));
        times.at([]).observe(Duration::from_secs(60));
        let shown = page(&times);
        for line in ["le=\"0.0025\"} 0\n", "le=\"0.005\"} 1\n", "le=\"+Inf\"} 2\n", "seconds_sum 60.004\n"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }

    #[test]
    fn a_next_build_goes_on_with_counters_and_histograms_where_its_labels_are_the_same() {
        let lines = || Counter::family("chat_lines", "Lines.", ["room"]);
        let (old, new) = (lines(), lines());
        old.at(["a"]).add(3);
        new.at(["a"]).add(1);
        new.go_on(old.counted());
        assert_eq!(new.at(["a"]).0.load(Relaxed), 4);
        let others = Counter::family("chat_lines", "Lines.", []);
        others.go_on(old.counted());
        assert!(page(&others).ends_with("\nchat_lines_total 0\n"), "{}", page(&others));
        let times = || Histogram::family("chat_seconds", "Times.", []);
        let (old, new) = (times(), times());
        old.at([]).observe(Duration::from_millis(4));
        new.go_on(old.counted());
        new.go_on(old.counted());
        assert!(page(&new).contains("chat_seconds_bucket{le=\"0.005\"} 2\n"), "{}", page(&new));
        assert!(Gauge::family("chat_members", "Members.", []).counted().is_empty());
    }

    #[test]
    fn labels_that_clients_choose_are_bounded() {
        let lines = Counter::family("chat_lines", "Lines.", ["peer"]);
        (0..MAX_METRICS + 500).for_each(|peer| lines.at([&peer.to_string()]).add(1));
        assert_eq!(lock(&lines.metrics).len(), MAX_METRICS + 1);
        assert_eq!(lines.at([OVERFLOW]).0.load(Relaxed), 500);
        lines.at(["7"]).add(1);
        assert_eq!(lines.at(["7"]).0.load(Relaxed), 2, "one that is there goes on");
    }

    #[test]
    fn names_that_no_collector_would_read_are_refused() {
        let of = |name, label| -> Vec<Arc<dyn AnyFamily>> { vec![Arc::new(Counter::family(name, "It counts.", [label]))] };
        for (name, label, why) in [
            ("chat-lines", "room", "is no name"),
            ("", "room", "is no name"),
            ("sockdrawer_lines", "room", "begins as built-in metrics do"),
            ("chat_lines_total", "room", "ends with _total"),
            ("chat_lines", "le", "has a label that is no name"),
            ("chat_lines", "a b", "has a label that is no name"),
        ] {
            let told = wrong(&of(name, label)).expect(name);
            assert!(told.contains(why), "{told}");
        }
        assert_eq!(wrong(&of("chat_lines", "room")), None);
        let twice = of("chat_lines", "room").into_iter().chain(of("chat_lines", "topic")).collect::<Vec<_>>();
        assert!(wrong(&twice).is_some_and(|why| why.contains("registered twice")));
        assert_eq!(BOUNDS.len(), 14, "as the documentation of Histogram says: from 1 ms to 30 s");
    }
}
