//! The table and its reference.

use super::*;
use crate::hub::REPORTS;
use sockdrawer_catalog::openmetrics::Kind;
use std::collections::BTreeSet;
use std::fmt::Write;
use table::{Metric, Of};

const BEGIN: &str = "<!-- begin of the table, made by the test -->\n";
const END: &str = "<!-- end of the table -->";

fn reference() -> String {
    let mut rows = "| metric | type | labels | what |\n| --- | --- | --- | --- |\n".to_owned();
    for metric in METRICS {
        let family = &metric.family;
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        };
        let labels: Vec<String> = matches!(metric.of, Of::Counts(_) | Of::Pools(_))
            .then_some("pool")
            .into_iter()
            .chain(Some(metric.label).filter(|label| !label.is_empty()))
            .map(|label| format!("`{label}`"))
            .collect();
        let _ = writeln!(rows, "| `{}{}` | {kind} | {} | {} |", family.name, family.suffix(), labels.join(", "), family.help);
    }
    rows
}

#[test]
fn the_reference_has_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let text = std::fs::read_to_string(path).expect("the reference");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (rows, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("SOCKDRAWER_WRITE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", reference())).expect("it can be written");
        return;
    }
    assert_eq!(rows, reference(), "write it anew: SOCKDRAWER_WRITE=1 cargo test -p sockdrawer-operate the_reference");
}

#[test]
fn names_are_of_the_convention_and_each_is_there_once() {
    let mut names = BTreeSet::new();
    for Metric { family, label, .. } in METRICS {
        assert!(names.insert(family.name), "{} is there twice", family.name);
        let is_ours = family.name.starts_with("sockdrawer_") || family.name.starts_with("process_");
        assert!(is_ours && family.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", family.name);
        assert!(!family.name.ends_with("_total") && !family.name.ends_with("_info"), "{}", family.name);
        assert!(family.help.ends_with('.') && *label != "pool", "{}", family.name);
    }
}

#[test]
fn every_counter_of_the_table_is_counted() {
    let counts = serde_json::to_value(sockdrawer::observe::Counts::default()).expect("JSON");
    for metric in METRICS {
        let Of::Counts(counters) = metric.of else { continue };
        for (_, counter) in counters {
            assert!(*counter == crate::totals::RESTARTS || counts.get(counter).is_some(), "{counter}");
        }
    }
}

/// Counters without a metric: a sum of others, what another metric shows, or what is of use in tests alone.
const NOT_SHOWN: [&str; 6] = ["accept_empty", "connected", "moved_out", "rejected", "turns", "untaken"];

#[test]
fn every_counter_is_shown_or_known_not_to_be() {
    let counts = serde_json::to_value(sockdrawer::observe::Counts::default()).expect("JSON");
    let counted: BTreeSet<&str> = counts.as_object().expect("by names").keys().map(String::as_str).collect();
    let shown = METRICS.iter().filter_map(|metric| if let Of::Counts(counters) = metric.of { Some(counters) } else { None });
    let shown: BTreeSet<&str> = shown.flatten().map(|(_, counter)| *counter).collect();
    let missing: Vec<&str> = counted.difference(&shown).copied().collect();
    assert_eq!(missing, NOT_SHOWN, "a row of METRICS, or a name in NOT_SHOWN, for each counter");
}

#[test]
fn the_dashboard_and_the_guide_name_metrics_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let known: BTreeSet<String> = METRICS
        .iter()
        .map(|metric| format!("{}{}", metric.family.name, metric.family.suffix()))
        .chain([format!("{REPORTS}_total")])
        .collect();
    for path in ["packaging/grafana.json", "docs/guide/operating-metrics.md"] {
        let text = std::fs::read_to_string(format!("{root}{path}")).expect("a file");
        let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
        let named: BTreeSet<&str> = words
            .filter(|word| ["sockdrawer_", "process_"].iter().any(|ours| word.len() > ours.len() && word.starts_with(ours)))
            .collect();
        assert!(named.len() > 5, "{path} names {named:?}");
        for name in named {
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(known.contains(of_histogram.unwrap_or(name)), "{path} names {name}");
        }
    }
}
