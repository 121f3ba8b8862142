//! Histograms of several processes are added up without loss.

use sockdrawer_load::Latency;
use std::process::{Command, Stdio};
use std::time::Duration;

const PARTS: u64 = 4;
const SAMPLES: u64 = 40_000;
/// Variable with the part that the child of a test is.
const PART: &str = "SOCKDRAWER_PART";

/// Returns every `PARTS`th of the samples, from this one on: times spread over nine decades.
fn fed(part: u64, step: u64) -> Latency {
    let mut latency = Latency::new();
    for number in (part..SAMPLES).step_by(usize::try_from(step).expect("it is small")) {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        latency.record(Duration::from_nanos(scattered >> (20 + number % 44)));
    }
    latency
}

/// Does the work of a child; by itself it is no test.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    println!("\nhistogram={}", fed(part.parse().expect("a number"), PARTS).encode());
}

#[test]
fn four_processes_measure_what_one_does_bucket_by_bucket() {
    let program = std::env::current_exe().expect("a test has a program");
    let start = |part: u64| {
        let mut child = Command::new(&program);
        child.args(["part", "--exact", "--nocapture"]).env(PART, part.to_string()).stdout(Stdio::piped());
        child.spawn().expect("the test program starts again")
    };
    let children: Vec<_> = (0..PARTS).map(start).collect();
    let mut merged = Latency::new();
    for child in children {
        let output = child.wait_with_output().expect("a child can be waited for");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let histogram = text.lines().find_map(|line| line.strip_prefix("histogram=")).unwrap_or_else(|| panic!("{text}"));
        merged.add(&Latency::decode(histogram).expect("a histogram"));
    }
    let whole = fed(0, 1);
    assert_eq!((merged.count(), merged.encode()), (SAMPLES, whole.encode()));
}
