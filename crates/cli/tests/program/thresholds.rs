//! `--threshold`: it alone decides about the exit code, and comes first in what is told.

use crate::program::load;
use serde_json::{Value, json};
use sockdrawer_load::results::{Figure, Measure};

const REFERENCE: &str = include_str!("../../../../docs/reference/results.md");

#[test]
fn kept_thresholds_end_with_0_and_others_with_99() {
    let kept = load("ping -c 2 -n 10 --interval 0 --threshold p99<1s --threshold failed<0.1% --threshold lost==0 --json -");
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let result: Value = serde_json::from_str(&kept.stdout).expect("one object");
    let judged = &result["thresholds"];
    assert_eq!(judged[1], json!({"expr": "failed<0.1%", "value": 0.0, "ok": true}), "{judged}");
    let missed = load("ping -c 2 -n 10 --interval 0 --threshold p99<1ns --threshold lost==0");
    assert_eq!(missed.code, Some(99), "{missed:?}");
    let lines: Vec<&str> = missed.stdout.lines().filter(|line| line.starts_with("threshold")).collect();
    assert!(lines[0].starts_with("threshold    FAILED  p99<1ns: "), "{missed:?}");
    assert_eq!(lines[1], "threshold    ok      lost==0: 0", "{missed:?}");
    let first = |name: &str| missed.stdout.lines().position(|line| line.starts_with(name));
    assert!(first("threshold") > first("operations"), "the result ends with them: {missed:?}");
    let last = missed.stdout.lines().last().expect("a line");
    assert!(last.starts_with("verdict      FAILED: p99<1ns: "), "{missed:?}");
}

#[test]
fn what_failed_is_judged_by_the_thresholds_alone() {
    // Nothing listens on port 1 of this address.
    let refused = "ping 127.0.0.9:1 -c 3 -d 300ms";
    assert_eq!(load(refused).code, Some(1));
    assert_eq!(load(&format!("{refused} --threshold failed<=3")).code, Some(0));
    let end = load(&format!("{refused} --threshold failed<50% --threshold p99<1s"));
    assert_eq!(end.code, Some(99), "{end:?}");
    assert!(end.stdout.contains("threshold    FAILED  failed<50%: 100%"), "{end:?}");
    assert!(end.stdout.contains("threshold    FAILED  p99<1s: nothing was measured"), "{end:?}");
}

#[test]
fn what_is_no_threshold_is_told_before_anything_is_run() {
    let told = |expression: &str| {
        let end = load(&format!("ping --threshold {expression}"));
        assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:?}");
        end.stderr
    };
    let unknown = told("opration.p99<5ms");
    assert!(
        unknown
            .contains("unknown name `opration.p99`: the closest are operation.p99, operation.p90, operation.p95; the help ends"),
        "{unknown}"
    );
    assert!(told("p99<5").contains("--threshold p99<5: `5` is no time with its unit: write 50ms"));
    assert!(told("p99<+5%").contains("a change is one between two runs"));
    let end = load("acks --ladder --threshold p99<5ms");
    assert_eq!(end.code, Some(2), "{end:?}");
}

#[test]
fn every_name_is_in_the_reference() {
    let (_, section) = REFERENCE.split_once("\n## Thresholds\n").expect("a section");
    let section = section.split("\n## ").next().expect("its text");
    // The rows of times show the pattern: each of these has each of the percentiles.
    for name in ["operation", "connect", "first_byte", "uncorrected", "lag"] {
        assert!(section.contains(&format!("`{name}.")), "{name} is not in docs/reference/results.md");
    }
    for name in Figure::names().filter(|name| {
        Figure::named(name).is_some_and(|figure| figure.measure != Measure::Time || figure.name.starts_with("server."))
    }) {
        assert!(section.contains(&format!("`{name}`")), "{name} is not in docs/reference/results.md");
    }
}
