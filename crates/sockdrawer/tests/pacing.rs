//! Timers of a pool that connects come in time: what is asked by a schedule is asked then.

mod common;

use common::{Echo, PATIENCE, is_long, percentile, start};
use sockdrawer::{Config, Context, Input, Local, Peer, Pool, Protocol, Service, Step, connecting::Connecting};
use std::time::{Duration, Instant};

const CONNECTIONS: u32 = 500;
/// Interval between the questions of one connection: together, all connections ask 1,000 times per second.
const INTERVAL: Duration = Duration::from_millis(500);

/// Delays with which questions were asked, in each loop.
#[derive(Default)]
struct Lags(Vec<Duration>);

struct Paced;

impl Service for Paced {
    type Protocol = Asks;
    fn open(&self, _peer: &Peer) -> Asks {
        Asks { due: Instant::now() }
    }
    fn local(&self) -> Box<Local> {
        Box::new(Lags::default())
    }
}

struct Asks {
    due: Instant,
}

impl Protocol for Asks {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        // Spread over the interval.
        self.due = cx.now() + INTERVAL * (cx.id().0 as u32 % CONNECTIONS) / CONNECTIONS;
        cx.set_timer_at(self.due);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        let lag = Instant::now() - self.due;
        cx.local::<Lags>().expect("made by this service").0.push(lag);
        cx.send(b"Ping");
        self.due += INTERVAL;
        cx.set_timer_at(self.due);
        Step::Continue
    }
}

/// Returns the median and the 99th percentile of how late so many questions were asked.
fn lags(loops: usize, questions: u64) -> (Duration, Duration) {
    let (_server, at) = start(Config::accept(Echo).loops(1));
    let connecting = Connecting::to([at]).keep(CONNECTIONS as usize).total(CONNECTIONS.into());
    let config = Config::connect(Paced, connecting).loops(loops);
    let pool = Pool::start(config).expect("starts");
    assert!(pool.wait(PATIENCE, |status| status.counts.connected == u64::from(CONNECTIONS)), "{:?}", pool.status());
    let (asked, within) = (4 * questions, PATIENCE + INTERVAL * (questions as u32 / CONNECTIONS));
    assert!(pool.wait(within, |status| status.counts.bytes_in >= asked), "{:?}", pool.status());
    let mut lags: Vec<Duration> = pool.gather(|lags: &mut Lags| std::mem::take(&mut lags.0)).into_iter().flatten().collect();
    assert!(lags.len() as u64 >= questions);
    (percentile(&mut lags, 0.5), percentile(&mut lags, 0.99))
}

#[test]
fn a_thousand_questions_a_second_are_asked_in_time() {
    for loops in [1, 2] {
        let (median, late) = lags(loops, if is_long() { 10_000 } else { 1_000 });
        println!("{loops} loops: a question is {median:?} late, one of a hundred {late:?}");
        let most = if is_long() { Duration::from_micros(100) } else { Duration::from_millis(10) };
        assert!(median < most, "{loops} loops: {median:?}");
    }
}
