//! Four pools beside each other, in turns: this project's, bb8, deadpool and r2d2.
//!
//! Prints the median and the range of rounds. `bench-lease [ROUNDS]`, 9 unless given.

mod pools;

use pools::{AsyncPool, Bb8, BlockingPool, Deadpool, Ours, R2d2};
use std::time::{Duration, Instant};

/// Leases of a round, by one caller or by all.
const LEASES: u32 = 200_000;
const TAKERS: u32 = 64;
const CONNECTIONS: u32 = 8;

fn each(time: Duration, leases: u32) -> f64 {
    time.as_nanos() as f64 / f64::from(leases)
}

async fn alone<P: AsyncPool>(pool: &P) -> f64 {
    pool.lease(|| {}).await;
    let start = Instant::now();
    for _ in 0..LEASES {
        pool.lease(|| {}).await;
    }
    each(start.elapsed(), LEASES)
}

async fn crowd<P: AsyncPool>(pool: P) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..TAKERS)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..LEASES / TAKERS {
                    pool.lease_over_yield().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    each(start.elapsed(), LEASES)
}

fn alone_blocking<P: BlockingPool>(pool: &P) -> f64 {
    pool.lease(|| {});
    let start = Instant::now();
    (0..LEASES).for_each(|_| pool.lease(|| {}));
    each(start.elapsed(), LEASES)
}

fn crowd_blocking<P: BlockingPool>(pool: &P) -> f64 {
    let (start, leases) = (Instant::now(), LEASES / 4);
    std::thread::scope(|scope| {
        for _ in 0..TAKERS {
            scope.spawn(move || (0..leases / TAKERS).for_each(|_| pool.lease(std::thread::yield_now)));
        }
    });
    each(start.elapsed(), leases)
}

/// Runs HikariCP's spike test: 50 requests at once on 5 free connections, each used for 2 ms, while a connect takes 150 ms. Returns how many
/// connections there are in the end, and how long the last request waited for its end, in ms.
async fn spike<P: AsyncPool>(pool: P) -> (usize, f64) {
    pool.fill(5).await;
    let start = Instant::now();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.lease_for(Duration::from_millis(2)).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let took = start.elapsed();
    tokio::time::sleep(Duration::from_millis(400)).await;
    (pool.connections(), took.as_secs_f64() * 1e3)
}

/// Rounds by name.
#[derive(Default)]
struct Table(Vec<(String, Vec<f64>)>);

impl Table {
    fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(row, _)| row == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    fn print(&mut self) {
        self.0.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, values) in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let (least, median, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
            println!("{name:45} {median:12.1}   {least:.1} to {most:.1}");
        }
    }
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(9, |rounds| rounds.parse().expect("a number of rounds"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let none = Duration::ZERO;
    let mut table = Table::default();
    for _ in 0..rounds {
        single.block_on(async {
            table.add("1 async, alone, ns: bb8", alone(&Bb8::new(CONNECTIONS, none)).await);
            table.add("1 async, alone, ns: deadpool", alone(&Deadpool::new(CONNECTIONS, none)).await);
            table.add("1 async, alone, ns: ours", alone(&Ours::in_tasks(CONNECTIONS, none)).await);
        });
        table.add("2 threads, alone, ns: r2d2", alone_blocking(&R2d2::new(CONNECTIONS)));
        table.add("2 threads, alone, ns: ours", alone_blocking(&Ours::in_threads(CONNECTIONS)));
        runtime.block_on(async {
            table.add("3 async, 64 on 8, ns: bb8", crowd(Bb8::new(CONNECTIONS, none)).await);
            table.add("3 async, 64 on 8, ns: deadpool", crowd(Deadpool::new(CONNECTIONS, none)).await);
            table.add("3 async, 64 on 8, ns: ours", crowd(Ours::in_tasks(CONNECTIONS, none)).await);
        });
        table.add("4 threads, 64 on 8, ns: r2d2", crowd_blocking(&R2d2::new(CONNECTIONS)));
        table.add("4 threads, 64 on 8, ns: ours", crowd_blocking(&Ours::in_threads(CONNECTIONS)));
        let connect = Duration::from_millis(150);
        let mut spiked = |name: &str, (connections, took): (usize, f64)| {
            table.add(&format!("5 spike, connections: {name}"), connections as f64);
            table.add(&format!("5 spike, ms: {name}"), took);
        };
        spiked("bb8", runtime.block_on(async { spike(Bb8::new(50, connect)).await }));
        spiked("deadpool", runtime.block_on(async { spike(Deadpool::new(50, connect)).await }));
        spiked("ours", runtime.block_on(async { spike(Ours::in_tasks(50, connect)).await }));
    }
    table.print();
}
