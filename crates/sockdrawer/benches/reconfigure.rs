//! Time of a change while the loops are idle: `cargo bench -p sockdrawer --bench reconfigure`.
//!
//! Prints p50 and p99 of each kind in microseconds and fails when a p99 is 1 ms or more, the bound that the project promises
//! for changes of what connections are given. Adding and removing an address opens and closes sixteen sockets and is printed
//! without a bound.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Echo, start};
use sockdrawer::{Config, Endpoint};
use std::process::ExitCode;
use std::time::Instant;

const TIMES: usize = 1000;

type Change = fn(Config, usize) -> Config;

/// A kind of change, what it does at its n-th time, and whether the bound holds for it.
const CHANGES: &[(&str, Change, bool)] = &[
    ("protocol", |config, _| config.behaviour(Echo), true),
    (
        "settings",
        |mut config, n| {
            config.settings.high_water = 65_536 + n % 2;
            config
        },
        true,
    ),
    (
        "accepted options",
        |mut config, n| {
            config.settings.options.nodelay = n % 2 == 0;
            config
        },
        true,
    ),
    ("backlog", |config, n| backlog(config, 1024 + n as u32 % 2), true),
    ("limit", |config, n| config.limit(1000 + n % 2), true),
    ("loops", |config, n| config.loops(1 + n % 2), true),
    ("workers", |config, n| config.workers(1 + n % 2), true),
    ("capacity", |config, n| config.capacity(1024 + n % 2), true),
    ("address", |config, n| listen(config, n % 2 == 0), false),
];

fn backlog(mut config: Config, to: u32) -> Config {
    if let Endpoint::Accept { backlog, .. } = &mut config.endpoint {
        *backlog = to;
    }
    config
}

fn listen(mut config: Config, more: bool) -> Config {
    config = config.listeners(|listeners| listeners.truncate(1));
    if more { config.listen("127.0.0.2:0") } else { config }
}

fn main() -> ExitCode {
    let (pool, _) = start(Config::accept(Echo).loops(2).workers(2));
    let mut good = true;
    println!("{:18} {:>8} {:>8}   (µs, {TIMES} times, idle loops)", "change", "p50", "p99");
    for (name, change, bounded) in CHANGES {
        let mut took: Vec<u128> = (0..TIMES)
            .map(|n| {
                let wanted = change(pool.config(), n);
                let began = Instant::now();
                pool.reconfigure(wanted).expect("is applied");
                began.elapsed().as_micros()
            })
            .collect();
        took.sort_unstable();
        let (p50, p99) = (took[TIMES / 2], took[TIMES * 99 / 100]);
        println!("{name:18} {p50:8} {p99:8}");
        good &= !bounded || p99 < 1000;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
