//! Slow and fast requests of `http` side by side: 300 slow ones, as many as there are workers, are under way all the time, and fast
//! ones come beside them. `ci/long slow` looks whether either makes the other slower; else a short round shows that all are answered.
//!
//! The load is open: fast ones come 2,000 times a second and slow ones 10,000 times, which is what 300 workers can do in 30 ms each, at
//! even intervals and whether or not the server keeps up. Clients that ask again at once would take all the processor there is,
//! with whatever runs, and the figure would be who gets how much of it; and 300 slow ones that begin together come back together,
//! each time, as a burst of their own making.

use sockdrawer::{
    Address, Config, Drain, Pool,
    connecting::{Connecting, Late},
    observe::Counts,
};
use sockdrawer_catalog::http::{Client, Close, Http, Manner, Page, Request, VisitMeter, Visited, Visits};
use sockdrawer_catalog::meter::{End, Meter, Phase};
use std::time::{Duration, Instant};

const WORKERS: usize = 300;
const SLOW: Duration = Duration::from_millis(30);
const SLOW_RATE: f64 = 10_000.0;
const FAST_RATE: f64 = 2_000.0;
const FAST_AT_ONCE: usize = 1_000;
/// Time at the start that is not measured.
const WARM_UP: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);

/// Measurements of the clients of a loop.
struct Book {
    measure_from: Instant,
    took: Vec<Duration>,
    complete: u64,
    failed: Vec<(Phase, Option<i32>)>,
}

impl Meter for Book {
    fn connected(&mut self, _took: Duration) {}

    fn operation(&mut self, _scheduled: Instant, _sent: Instant, _now: Instant) {}

    fn failed(&mut self, phase: Phase, errno: Option<i32>) {
        self.failed.push((phase, errno));
    }

    fn closed(&mut self, end: End) {
        self.complete += u64::from(end == End::Complete);
    }
}

impl VisitMeter for Book {
    fn begun(&mut self, _due: Instant, _lag: Duration) {}

    fn visited(&mut self, visited: &Visited) {
        if visited.scheduled >= self.measure_from {
            self.took.push(visited.ended - visited.scheduled);
        }
    }

    fn missed(&mut self, _page: usize) {}

    fn renewed(&mut self, _announced: bool) {}
}

/// Path that clients ask for.
#[derive(Clone, Copy)]
enum Path {
    Fast,
    Slow,
}

/// Clients of one path.
struct Clients {
    pool: Pool,
}

/// Results of the clients of a path.
struct Figures {
    complete: u64,
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Clients {
    fn start(path: Path, to: &Pool) -> Clients {
        let to = Connecting::to(to.addresses());
        let (connecting, path) = match path {
            Path::Fast => (to.keep(FAST_AT_ONCE).rate(FAST_RATE).late(Late::MakeUp), "/test/fast"),
            // As many as there are workers, and one more as soon as one ends: what is late is not made up for by a burst.
            Path::Slow => (to.keep(WORKERS).rate(SLOW_RATE), "/test/slow"),
        };
        let measure_from = Instant::now() + WARM_UP;
        let meter = move || Book { measure_from, took: Vec::new(), complete: 0, failed: Vec::new() };
        let pages = vec![Page { path: path.to_owned(), weight: 1, exact: true }];
        let visits =
            Visits { pages, request: Request::default(), manner: Manner::Once(Close::Server), timeout: PATIENCE, seed: 0 };
        let client = Client::new(visits, meter);
        Clients { pool: Pool::start(Config::connect(client, connecting).workers(0)).expect("a pool") }
    }

    /// Ends after what is under way.
    fn finish(self, measured: Duration) -> Figures {
        let stopped = self.pool.update(|config| config.connecting(|connecting| connecting.total = Some(0)));
        stopped.expect("clients may be told to stop");
        assert!(self.pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", self.pool.status());
        let books = self.pool.gather(|book: &mut Book| (std::mem::take(&mut book.took), book.complete, book.failed.clone()));
        let failed: Vec<_> = books.iter().flat_map(|(.., failed)| failed).collect();
        assert!(failed.is_empty(), "{failed:?}");
        let complete = books.iter().map(|(_, complete, _)| complete).sum();
        assert_eq!(complete, self.pool.status().counts.connects, "every connect was answered to its end");
        let mut took: Vec<_> = books.into_iter().flat_map(|(took, ..)| took).collect();
        took.sort_unstable();
        self.pool.shutdown(Drain::within(PATIENCE));
        let per_second = took.len() as f64 / measured.as_secs_f64();
        Figures { complete, per_second, p50: took[took.len() / 2], p99: took[took.len() * 99 / 100] }
    }
}

/// Measures `paths` side by side for this time.
fn round(server: &Pool, paths: &[Path], length: Duration) -> Vec<Figures> {
    let before = server.status().counts;
    let clients: Vec<_> = paths.iter().map(|path| Clients::start(*path, server)).collect();
    // waits because: requests come at a rate, for a time.
    std::thread::sleep(WARM_UP + length);
    let figures: Vec<_> = clients.into_iter().map(|clients| clients.finish(length)).collect();
    assert!(server.wait(PATIENCE, |status| status.connections == 0), "{:#?}", server.status());
    let Counts { accepted, closed, .. } = server.status().counts;
    let complete: u64 = figures.iter().map(|figures| figures.complete).sum();
    assert_eq!((accepted - before.accepted, closed - before.closed), (complete, complete), "both ends count the same");
    figures
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn slow_does_not_disturb_fast_nor_fast_slow() {
    let is_long = std::env::var_os("SOCKDRAWER_LONG").is_some();
    let (rounds, length) = if is_long { (7, Duration::from_secs(4)) } else { (1, Duration::from_millis(200)) };
    sockdrawer::raise_descriptor_limit().expect("the hard limit is allowed");
    let service = Http { slow_duration: SLOW, in_worker: true };
    let config = Config::accept(service).workers(WORKERS).limit(2 * (WORKERS + FAST_AT_ONCE));
    let server = Pool::start(config.listen(Address::Tcp(([127, 0, 0, 1], 0).into()))).expect("a pool");
    // Alone and beside each other in turn, so that what else the machine does meets all of them.
    let all: Vec<_> = (0..rounds)
        .map(|_| [&[Path::Fast][..], &[Path::Fast, Path::Slow], &[Path::Slow]].map(|paths| round(&server, paths, length)))
        .collect();
    server.shutdown(Drain::within(PATIENCE));
    let mut disturbed = Vec::new();
    for (name, alone, beside) in [("fast", (0, 0), (1, 0)), ("slow", (2, 0), (1, 1))] {
        let of =
            |(paths, at): (usize, usize), figure: fn(&Figures) -> f64| median(all.iter().map(|round| figure(&round[paths][at])));
        let p99 = |at| of(at, |figures| figures.p99.as_secs_f64() * 1e6);
        for (words, at) in [("alone", alone), ("beside the other", beside)] {
            let p50 = of(at, |figures| figures.p50.as_secs_f64() * 1e6);
            let rate = of(at, |figures| figures.per_second);
            println!("{name} {words}: {rate:.0}/s, p50 {p50:.0} us, p99 {:.0} us", p99(at));
        }
        let ratio = p99(beside) / p99(alone);
        println!("{name}: p99 beside the other is {ratio:.2} times p99 alone, medians of {rounds} rounds");
        disturbed.extend((ratio > 2.0).then_some((name, ratio)));
    }
    assert!(!is_long || disturbed.is_empty(), "{disturbed:?}");
}
