//! What following a run costs the thread that does it.

use rustix::time::{ClockId, clock_gettime};
use sockdrawer_load::{End, Plan, Progress, Run, Stop, Workload};
use std::time::{Duration, Instant};

fn own_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("processor time is not negative")
}

#[test]
fn following_a_run_costs_next_to_nothing() {
    let end = End::AfterFirstConnect(Duration::from_millis(700));
    let plan = Plan { connections: 16, end, timeout: Duration::from_secs(20), ..Plan::new(Workload::Hello) };
    let (mut told, stop) = (None, Stop::new());
    let run = Run::start(&plan).expect("free ports");
    let (begun, before) = (Instant::now(), own_time());
    let report = run.finish(&stop, |progress: &Progress| told = Some((progress.numbers, begun.elapsed(), own_time() - before)));
    let report = report.expect("a pool that goes on");
    let (numbers, elapsed, own) = told.expect("progress is told after half a second");
    assert!(numbers.operations_ok > 100 && report.is_clean(), "{report}");
    assert!(own < elapsed / 50, "{own:?} of {elapsed:?}, with {} connections", numbers.operations_ok);
}
