//! docs/reference/results.md has the fields that there are, and no other.

use crate::latency::Percentiles;
use crate::rate::Rate;
use crate::report::{Action, tests::report};
use crate::series::Sample;
use crate::server::ServerSample;
use crate::threshold::Judgement;
use crate::wall::Wall;
use crate::workload::{HandshakeCounts, TlsReport, WebSocketReport};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

const REFERENCE: &str = include_str!("../../../../docs/reference/results.md");

/// Returns the fields of a section as the tables write them: `a`, `b{c,d}`, `e[{f,g}]`.
fn documented(section: &str) -> BTreeSet<String> {
    let (_, section) = REFERENCE.split_once(&format!("# {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let (_, table) = section.split_once("| field | meaning |\n").expect("a table of fields");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    // Commas inside braces are the fields': names stand between back quotes.
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns the fields of an object as the tables write them.
fn fields(of: &impl Serialize) -> BTreeSet<String> {
    let value = serde_json::to_value(of).expect("an object");
    let names = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<BTreeSet<_>>());
    let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(",");
    let field = |(name, value): (&String, &Value)| match value {
        Value::Object(_) => format!("{name}{{{}}}", list(names(value).unwrap_or_default())),
        Value::Array(items) => format!("{name}[{{{}}}]", items.first().and_then(names).map(list).unwrap_or_default()),
        _ => name.clone(),
    };
    value.as_object().expect("an object").iter().map(field).collect()
}

/// Sorts fields: their order is for readers.
fn sorted(fields: BTreeSet<String>) -> BTreeSet<String> {
    let sort = |field: String| match field.split_once('{') {
        None => field,
        Some((name, inside)) => {
            let end = inside.trim_start_matches(|c: char| !matches!(c, '}' | ']'));
            let mut inside: Vec<&str> = inside.trim_end_matches(['}', ']']).split(',').collect();
            inside.sort_unstable();
            format!("{name}{{{}{end}", inside.join(","))
        }
    };
    fields.into_iter().map(sort).collect()
}

#[test]
fn the_result_is_documented() {
    let mut report = report();
    report.latency_us.first_byte = Some(Percentiles::default());
    report.latency_us.handshake = Some(Percentiles::default());
    report.latency_us.websocket = Some(Percentiles::default());
    report.tls = Some(TlsReport::default());
    report.websocket = Some(WebSocketReport::default());
    // Its keys are those of plans.
    report.plan = None;
    report.rate = Some(Rate { asked: 1.0, begun: 1.0, due: 1, not_begun: 0, kept: true });
    let [name, why, remedy] = [const { String::new() }; 3];
    report.wall = Some(Wall { name, why, remedy });
    report.thresholds = vec![Judgement { expr: String::new(), value: None, ok: true, within_spread: false }];
    report.actions = vec![Action { at: 1.0, what: String::new() }];
    let mut documented = documented("The result");
    for of_a_workload in ["acks{...}", "http{...}"] {
        assert!(documented.remove(of_a_workload), "{of_a_workload} is not documented");
    }
    assert_eq!(sorted(documented), sorted(fields(&report)), "docs/reference/results.md differs from what is written");
}

#[test]
fn samples_are_documented() {
    let mut sample = Sample { server: Some(ServerSample::default()), ..Sample::default() };
    sample.errors = report().errors;
    sample.latency_us.handshake = Some(Percentiles::default());
    sample.latency_us.websocket = Some(Percentiles::default());
    sample.handshakes = Some(HandshakeCounts::default());
    assert_eq!(
        sorted(documented("series.ndjson")),
        sorted(fields(&sample)),
        "docs/reference/results.md differs from what is written"
    );
}
