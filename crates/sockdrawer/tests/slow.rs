//! Slow work under every model that has workers: jobs begin in the order in which they were asked for, and take as long as the
//! workers need for them and no more. `--long` asks for 500 of them, else it is a tenth, and ten workers do ten times as many in a second
//! as one.

mod common;

use common::{address, connect, read};
use sockdrawer::{
    Behaviour, Config, Context, Drain, Error, Input, Job, JobResult, Model, Peer, Pool, Protocol, Recipe, Service, Step,
};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Duration of a job.
const SLOW: Duration = Duration::from_millis(30);

/// Service that answers each request, after a slow job, with the number of jobs that began before it in its process.
struct Slow;

impl Service for Slow {
    type Protocol = Slow;
    fn open(&self, _peer: &Peer) -> Slow {
        Slow
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "slow".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Slow {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        input.take_all();
        Step::Work(Job::new(|| {
            let before = BEGUN.fetch_add(1, Ordering::SeqCst);
            // waits because: it is the slow work.
            std::thread::sleep(SLOW);
            before
        }))
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(&result.take::<u32>().expect("it ran").to_le_bytes());
        Step::Continue
    }
}

/// Maximum deviation from ten of the speed of ten workers as a multiple of the speed of a single one, as a share of ten.
const PRECISION: f64 = 0.05;

fn main() {
    sockdrawer::processes(&[("slow", |_| Ok(Behaviour::from(Slow)))]);
    let is_long = std::env::args().any(|argument| argument == "--long");
    let jobs = if is_long { 500 } else { 50 };
    let (mut ran, mut begun) = (0, 0);
    for model in [Model::Loops, Model::Tasks, Model::Prefork] {
        let took = [1, 10].map(|workers| {
            // In the short runs a moment counts: the median of several.
            let runs = if is_long && workers > 1 { 5 } else { 1 };
            let mut took: Vec<_> = (0..runs).filter_map(|_| run_or_refuse(model, workers, jobs, &mut begun)).collect();
            took.sort_unstable();
            let median = *took.get(runs / 2)?;
            println!("test {model} {jobs} jobs of {SLOW:?}, {workers} workers ... ok, {median:?}");
            ran += 1;
            Some(median.as_secs_f64())
        });
        if let ([Some(one), Some(ten)], true) = (took, is_long) {
            let times = one / ten;
            println!("{model}: 10 workers do {times:.2} times as many jobs a second as 1");
            assert!((times / 10.0 - 1.0).abs() <= PRECISION, "{model}: {times:.2} times as many jobs with ten workers");
        }
    }
    println!("test result: ok. {ran} passed; 0 failed; 0 ignored");
}

/// Runs the jobs and returns how long they took; `None` for a model that refuses. `begun` is how many jobs began in this process
/// before.
fn run_or_refuse(model: Model, workers: usize, jobs: u32, begun: &mut u32) -> Option<Duration> {
    // Each process counts for itself.
    let elsewhere = model == Model::Prefork;
    match run(model, workers, jobs, if elsewhere { 0 } else { *begun }) {
        Ok(took) => {
            *begun += if elsewhere { 0 } else { jobs };
            Some(took)
        }
        Err(refusal @ Error::NotInModel { .. }) => {
            println!("test {model} ... refused: {refusal}");
            None
        }
        Err(error) => panic!("{model}: {error}"),
    }
}

fn run(model: Model, workers: usize, jobs: u32, first: u32) -> Result<Duration, Error> {
    let config = Config::accept(Slow).model(model).loops(1).workers(workers).processes(1);
    let pool = Pool::start(config.listen("127.0.0.1:0"))?;
    let at = address(&pool);
    let mut clients: Vec<_> = (0..jobs).map(|_| connect(at)).collect();
    assert!(pool.wait(common::PATIENCE, |status| status.connections == clients.len()), "{:#?}", pool.status());
    let began = Instant::now();
    // A single loop hears of the requests in the order in which they came.
    clients.iter_mut().for_each(|client| client.write_all(b"?").expect("it stands"));
    let order: Vec<u32> = clients
        .iter_mut()
        .map(|client| u32::from_le_bytes(read(client, 4).expect("an answer").try_into().expect("four bytes")))
        .collect();
    let took = began.elapsed();
    if workers == 1 {
        assert_eq!(order, (first..first + jobs).collect::<Vec<_>>(), "{model}: first in, first out");
    }
    let least = SLOW * jobs / workers as u32;
    assert!(took >= least, "{model}: {took:?} for what takes {least:?}");
    // 15 s may become 16; a few short ones on a busy machine may be late by a moment.
    assert!(took <= least + least / 15 + Duration::from_millis(300), "{model}: {took:?} for what takes {least:?}");
    drop(clients);
    pool.shutdown(Drain::within(Duration::from_secs(10)));
    Ok(took)
}
