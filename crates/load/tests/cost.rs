//! Cost of following a run for the thread that does it.

use rustix::time::{ClockId, clock_gettime};
use sockdrawer_load::{End, Hello, Plan, Progress, Run, Stop, Workload};
use std::time::{Duration, Instant};

/// Returns the number of looks: in the first second one comes every 50 ms, and a few sooner.
fn looks(elapsed: Duration) -> u32 {
    u32::try_from(elapsed.as_millis()).expect("seconds") / 50 + 8
}

fn processor_time(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().expect("processor time is not negative")
}

/// Returns how often this thread has waited for something.
fn waits() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("/proc");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("the kernel counts them");
    count.trim().parse().expect("a number")
}

/// Tables that the kernel makes anew for each that reads them, and how often they are read before the run and in its first second. It takes the longer for objects the longer it has run,
/// and for sockets the more of them are in TIME_WAIT.
const TABLES: [(&str, u32); 3] = [("/proc/slabinfo", 4), ("/proc/thread-self/net/tcp", 1), ("/proc/thread-self/net/tcp6", 1)];

/// Returns the processor time of reading those tables.
fn tables() -> Duration {
    let times = TABLES.map(|(table, times)| {
        let before = processor_time(ClockId::ThreadCPUTime);
        // The first is root's to read.
        drop(std::fs::read_to_string(table));
        (processor_time(ClockId::ThreadCPUTime) - before) * times
    });
    times.into_iter().sum()
}

/// Resources used by the thread that follows, and by all of this process: its clients and their server.
#[derive(Clone, Copy)]
struct Used {
    waits: u32,
    own: Duration,
    all: Duration,
}

fn used() -> Used {
    Used { waits: waits(), own: processor_time(ClockId::ThreadCPUTime), all: processor_time(ClockId::ProcessCPUTime) }
}

/// Not in times: a machine that does other things takes longer for both, and has as many looks.
#[test]
fn following_a_run_costs_next_to_nothing() {
    let end = End::AfterFirstConnect(Duration::from_millis(700));
    let plan = Plan { connections: 16, end, timeout: Duration::from_secs(20), ..Plan::new(Workload::Hello(Hello)) };
    let (mut told, stop) = (None, Stop::new());
    let run = Run::start(&plan).expect("free ports");
    let (begun, before) = (Instant::now(), used());
    let report = run.finish(&stop, |progress: &Progress| told = Some((progress.numbers, begun.elapsed(), used())));
    let report = report.expect("a pool that goes on");
    let (numbers, elapsed, now) = told.expect("progress is told after half a second");
    let operations = u32::try_from(numbers.operations_ok).expect("some thousands");
    assert!(operations > 100 && report.is_clean(), "{report}");
    let (looks, waits) = (looks(elapsed), now.waits - before.waits);
    // A look may wait for the pool and for each of its loops.
    assert!(waits < 4 * looks, "{waits} waits for {looks} looks: one at each turn of the pool would be a fifth of the client");
    let own = (now.own - before.own).saturating_sub(tables());
    let (look, operation) = (own / looks, (now.all - before.all) / operations);
    assert!(look < 10 * operation, "a look takes {look:?} of processor time, an operation {operation:?}");
}
