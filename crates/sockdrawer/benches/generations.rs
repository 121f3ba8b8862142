//! Cost of an echo, and time of a change, while few or many generations have live connections:
//! `cargo bench -p sockdrawer --bench generations`.
//!
//! Prints a line for each number of generations: the CPU of the loop for one echo of 4 bytes, in microseconds, and the median
//! time of the changes that led there, in microseconds. All have the same 200 connections in all.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Echo, address, many, read, start};
use sockdrawer::{Config, Pool};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 200;
const GENERATIONS: [usize; 6] = [1, 2, 5, 10, 20, 50];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(700);

/// A pool, and clients evenly spread over its generations.
struct Scene {
    pool: Pool,
    clients: Vec<TcpStream>,
    changes: Vec<Duration>,
}

impl Scene {
    fn new(generations: usize) -> Scene {
        let (pool, _) = start(Config::accept(Echo).loops(1));
        let mut scene = Scene { pool, clients: Vec::new(), changes: Vec::new() };
        scene.connect(CONNECTIONS / generations);
        for _ in 1..generations {
            let began = Instant::now();
            scene.pool.reconfigure(scene.pool.config().behaviour(Echo)).expect("is applied");
            scene.changes.push(began.elapsed());
            scene.connect(CONNECTIONS / generations);
        }
        let live = scene.pool.status().live_generations();
        assert_eq!(live, generations, "all generations live, because each has connections");
        scene
    }

    /// Connects `count` clients. Each was answered, and so belongs to the generation that is in force now.
    fn connect(&mut self, count: usize) {
        self.clients.extend(many(address(&self.pool), count));
    }

    /// Lets every client ask, then every client read; returns how many echoes there were.
    fn turn(&mut self) -> u32 {
        for client in &mut self.clients {
            client.write_all(b"Ping").expect("takes 4 bytes");
        }
        for client in &mut self.clients {
            assert_eq!(read(client, 4).as_deref(), Some(&b"Ping"[..]));
        }
        self.clients.len() as u32
    }
}

/// Returns the CPU time that threads named like loops have used until now.
fn loop_cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let used = threads.filter_map(|thread| {
        let folder = thread.ok()?.path();
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let times = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        let nanos = times.split(' ').next()?.parse().ok()?;
        name.starts_with("sockdrawer-").then_some(Duration::from_nanos(nanos))
    });
    used.sum()
}

/// Microseconds of the loop for one echo.
fn round(scene: &mut Scene) -> f64 {
    let (began, used, mut echoes) = (Instant::now(), loop_cpu(), 0);
    while began.elapsed() < ROUND {
        echoes += scene.turn();
    }
    (loop_cpu() - used).as_secs_f64() * 1e6 / f64::from(echoes)
}

fn main() {
    // Rounds in turn, so that what disturbs the machine disturbs all of them. One pool at a time has threads of that name.
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); GENERATIONS.len()];
    let mut changes: Vec<Vec<Duration>> = vec![Vec::new(); GENERATIONS.len()];
    for _ in 0..ROUNDS {
        for (place, generations) in GENERATIONS.iter().enumerate() {
            let mut scene = Scene::new(*generations);
            costs[place].push(round(&mut scene));
            changes[place].append(&mut scene.changes);
        }
    }
    for (place, generations) in GENERATIONS.iter().enumerate() {
        costs[place].sort_by(f64::total_cmp);
        changes[place].sort();
        let change = changes[place].get(changes[place].len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6);
        println!("generations {generations} echo_us {:.3} change_us {change:.0}", costs[place][ROUNDS / 2]);
    }
}
