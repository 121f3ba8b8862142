//! Pools of leased connections on the page of metrics, and as a table: `ctl show leases`. Feature `lease`.

use crate::lock::lock;
use crate::metric_family::{AnyFamily, Counted, Numbers};
use crate::operated::Operated;
use crate::times::Times;
use sockdrawer::Field;
use sockdrawer_catalog::openmetrics::{Family, Kind, Writer, float};
use sockdrawer_lease::{Histogram, Pool, Stats, Status, Target};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

const COLUMNS: &[&str] = &[
    "pool",
    "free",
    "leased",
    "connecting",
    "checking",
    "closing",
    "waiting",
    "leases",
    "waited_99",
    "connect_failed",
    "refused",
    "ended",
];

/// Asks a pool for its numbers.
type Ask = Arc<dyn Fn() -> (Status, Stats) + Send + Sync>;

/// Pools of leased connections that a program shows, by name. Clones are the same: one goes to [`Operated::leases`], one to the code that
/// makes the pools, at any time.
///
/// ```
/// use sockdrawer_operate::{Leases, Operated};
/// # use sockdrawer_lease::{BoxError, Connect, Pool, Settings};
/// # struct Databases;
/// # impl Connect for Databases {
/// #     type Target = ();
/// #     type Connection = ();
/// #     fn connect(&self, _: &(), _: std::time::Duration) -> Result<(), BoxError> { Ok(()) }
/// # }
///
/// let pool = Pool::new(Databases, Settings::default())?;
/// let leases = Leases::default();
/// leases.add("database", &pool);
/// let operated = Operated::new("/etc/chat.toml").leases(&leases);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Leases(Arc<Mutex<BTreeMap<String, Ask>>>);

impl Leases {
    /// Shows a pool under a name, in the place of one that had it. What is shown is a handle of the pool, which keeps it open.
    pub fn add<K: Target, C: Send + 'static>(&self, name: impl Into<String>, pool: &Pool<K, C>) {
        let pool = pool.clone();
        lock(&self.0).insert(name.into(), Arc::new(move || (pool.status(), pool.stats())));
    }

    fn numbers(&self) -> Vec<(String, Status, Stats)> {
        // Asked without the lock: each has one of its own.
        let pools = lock(&self.0).clone();
        let ask = |(name, ask): (String, Ask)| {
            let (status, stats) = ask();
            (name, status, stats)
        };
        pools.into_iter().map(ask).collect()
    }

    fn rows(&self) -> Vec<Vec<Field>> {
        let row = |(name, status, stats): (String, Status, Stats)| {
            let Status { free, leased, connecting, checking, closing, waiting } = status;
            let now = [free, leased, connecting, checking, closing, waiting].map(|count| Field::Number(count as u64));
            let waited = stats.waiting.quantile(0.99).map_or("-".to_owned(), |time| format!("{time:?}"));
            let (refused, ended) = (stats.refusals.values().sum(), stats.ends.values().sum());
            let since = [stats.waiting.count().into(), Field::Text(waited)];
            let counts = [stats.failed_connects, refused, ended].map(Field::Number);
            [Field::Text(name)].into_iter().chain(now).chain(since).chain(counts).collect()
        };
        self.numbers().into_iter().map(row).collect()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(lock(&self.0).keys()).finish()
    }
}

impl Operated {
    /// Shows pools of leased connections: as the table `leases` (`ctl status`, `ctl show leases`), and on the page of metrics, where counters and
    /// histograms go on in the next build.
    #[must_use]
    pub fn leases(mut self, leases: &Leases) -> Operated {
        for shown in FAMILIES {
            let of_pools = OfPools { shown, leases: leases.clone(), before: Mutex::default() };
            self.origin.known.metrics.push(Arc::new(of_pools));
        }
        let shown = leases.clone();
        self.shows("leases", COLUMNS, move || shown.rows())
    }
}

/// Number of a pool, or of a part of it.
enum Number {
    Now(usize),
    Since(Counted),
}

/// Number with the value of the second label, if there is one.
type Part = (Option<String>, Number);

/// A family of the page, and the numbers of a pool in it, each with the value of the second label if there is one.
struct PoolFamily {
    family: Family,
    labels: &'static [&'static str],
    of: fn(&Status, &Stats) -> Vec<Part>,
}

const FAMILIES: &[PoolFamily] = &[
    PoolFamily {
        family: Family::new("lease_connections", Kind::Gauge, "Connections, by what is done with them."),
        labels: &["pool", "state"],
        of: |status, _| {
            let Status { free, leased, connecting, checking, closing, .. } = *status;
            let states =
                [("free", free), ("leased", leased), ("connecting", connecting), ("checking", checking), ("closing", closing)];
            states.map(|(state, count)| (Some(state.to_owned()), Number::Now(count))).into()
        },
    },
    PoolFamily {
        family: Family::new("lease_waiting", Kind::Gauge, "Callers in line."),
        labels: &["pool"],
        of: |status, _| vec![(None, Number::Now(status.waiting))],
    },
    PoolFamily {
        family: Family::new("lease_wait_seconds", Kind::Histogram, "Times from the ask to the lease."),
        labels: &["pool"],
        of: |_, stats| times(&stats.waiting),
    },
    PoolFamily {
        family: Family::new("lease_use_seconds", Kind::Histogram, "Times of leases that are over."),
        labels: &["pool"],
        of: |_, stats| times(&stats.using),
    },
    PoolFamily {
        family: Family::new("lease_connect_seconds", Kind::Histogram, "Times of connects that succeeded."),
        labels: &["pool"],
        of: |_, stats| times(&stats.connecting),
    },
    PoolFamily {
        family: Family::new("lease_connect_failed", Kind::Counter, "Connects that failed, or took too long."),
        labels: &["pool"],
        of: |_, stats| vec![(None, Number::Since(Counted::Count(stats.failed_connects)))],
    },
    PoolFamily {
        family: Family::new("lease_held", Kind::Counter, "Leases that were held for too long."),
        labels: &["pool"],
        of: |_, stats| vec![(None, Number::Since(Counted::Count(stats.held)))],
    },
    PoolFamily {
        family: Family::new("lease_ended", Kind::Counter, "Connections that left the pool, by the reason."),
        labels: &["pool", "reason"],
        of: |_, stats| counts(&stats.ends),
    },
    PoolFamily {
        family: Family::new("lease_refused", Kind::Counter, "Asks that ended without a lease, by the way they ended."),
        labels: &["pool", "how"],
        of: |_, stats| counts(&stats.refusals),
    },
];

fn times(histogram: &Histogram) -> Vec<Part> {
    vec![(None, Number::Since(Counted::Times(Times::of(histogram.buckets(), histogram.sum()))))]
}

fn counts<T: fmt::Debug>(all: &BTreeMap<T, u64>) -> Vec<Part> {
    let count = |(key, count): (&T, &u64)| (Some(word(key)), Number::Since(Counted::Count(*count)));
    all.iter().map(count).collect()
}

/// Returns a name of Rust as a label has it: `PeerEnded` is `peer_ended`.
fn word(name: impl fmt::Debug) -> String {
    let mut word = String::new();
    for sign in format!("{name:?}").chars() {
        if sign.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(sign.to_lowercase());
    }
    word
}

/// A family with the numbers of all pools.
struct OfPools {
    shown: &'static PoolFamily,
    leases: Leases,
    /// Numbers of the builds before this one, by the labels' values.
    before: Mutex<BTreeMap<Vec<String>, Counted>>,
}

impl OfPools {
    fn now(&self) -> impl Iterator<Item = (Vec<String>, Number)> {
        self.leases.numbers().into_iter().flat_map(|(pool, status, stats)| {
            let numbers = (self.shown.of)(&status, &stats).into_iter();
            numbers.map(move |(part, number)| ([pool.clone()].into_iter().chain(part).collect(), number))
        })
    }

    fn named<'a>(&self, values: &'a [String]) -> Vec<(&'static str, &'a str)> {
        self.shown.labels.iter().copied().zip(values.iter().map(String::as_str)).collect()
    }

    fn since(&self) -> BTreeMap<Vec<String>, Counted> {
        let mut all = lock(&self.before).clone();
        for (labels, number) in self.now() {
            let Number::Since(counted) = number else { continue };
            match all.get_mut(&labels) {
                Some(before) => before.add(&counted),
                None => _ = all.insert(labels, counted),
            }
        }
        all
    }
}

impl fmt::Debug for OfPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfPools").field("name", &self.shown.family.name).finish_non_exhaustive()
    }
}

impl AnyFamily for OfPools {
    fn name(&self) -> &'static str {
        self.shown.family.name
    }

    fn labels(&self) -> &[&'static str] {
        self.shown.labels
    }

    fn write(&self, to: &mut Writer) {
        to.family(&self.shown.family);
        for (values, number) in self.now() {
            if let Number::Now(count) = number {
                to.sample(&self.named(&values), float(count as u64));
            }
        }
        for (values, counted) in self.since() {
            counted.write(&self.named(&values), to);
        }
    }

    fn counted(&self) -> Numbers {
        self.since().into_iter().collect()
    }

    fn go_on(&self, numbers: Numbers) {
        lock(&self.before).extend(numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_catalog::openmetrics::Format;
    use sockdrawer_lease::{BoxError, Connect, Settings};
    use std::time::{Duration, Instant};

    struct Numbered;

    impl Connect for Numbered {
        type Target = u8;
        type Connection = u8;

        fn connect(&self, target: &u8, _timeout: Duration) -> Result<u8, BoxError> {
            Ok(*target)
        }
    }

    fn page(operated: &Operated) -> String {
        let mut writer = Writer::new(Format::OpenMetrics);
        operated.origin.known.metrics.iter().for_each(|family| family.write(&mut writer));
        writer.finish()
    }

    /// Returns a build with a pool that has leased thrice, discarded once, and refused once.
    fn build() -> (Operated, Leases) {
        let pool = Pool::new(Numbered, Settings { max: 1, ..Settings::default() }).expect("a thread");
        let soon = || Instant::now() + Duration::from_secs(60);
        pool.lease(&1, soon()).expect("a connection").discard();
        drop(pool.lease(&1, soon()).expect("a connection"));
        let lease = pool.lease(&1, soon()).expect("a connection");
        assert!(pool.try_lease(&1).is_err());
        drop(lease);
        let leases = Leases::default();
        leases.add("db", &pool);
        (Operated::new("unused.toml").leases(&leases), leases)
    }

    #[test]
    fn pools_have_a_table_and_metrics() {
        let (operated, leases) = build();
        let row = &leases.rows()[0];
        assert_eq!(
            (row.len(), &row[0], &row[1], &row[7]),
            (COLUMNS.len(), &Field::from("db"), &Field::Number(1), &Field::Number(3))
        );
        assert_eq!(row[9..], [0, 1, 1].map(Field::Number));
        let page = page(&operated);
        for line in [
            "lease_connections{pool=\"db\",state=\"free\"} 1\n",
            "lease_waiting{pool=\"db\"} 0\n",
            "lease_wait_seconds_count{pool=\"db\"} 3\n",
            "lease_use_seconds_bucket{pool=\"db\",le=\"+Inf\"} 3\n",
            "lease_ended_total{pool=\"db\",reason=\"broken\"} 1\n",
            "lease_refused_total{pool=\"db\",how=\"timed_out\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        assert_eq!(crate::metric_family::wrong(&operated.origin.known.metrics), None);
    }

    #[test]
    fn a_next_build_goes_on_with_what_was_counted() {
        let ((old, _), (new, _)) = (build(), build());
        for (before, after) in old.origin.known.metrics.iter().zip(&new.origin.known.metrics) {
            after.go_on(before.counted());
        }
        let page = page(&new);
        for line in ["lease_ended_total{pool=\"db\",reason=\"broken\"} 2\n", "lease_wait_seconds_count{pool=\"db\"} 6\n"] {
            assert!(page.contains(line), "{line}{page}");
        }
        assert!(page.contains("lease_connections{pool=\"db\",state=\"free\"} 1\n"), "{page}");
    }
}
