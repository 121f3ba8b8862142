//! Limits that SECURITY.md names, held against the program.

use crate::{control, document, log, metrics, pool_settings, revisions};
use sockdrawer::layer::proxy_header::{Accepts, Header};
use sockdrawer_catalog::count::{parse, thousands};

/// The table of SECURITY.md has the values that are in force.
#[test]
fn the_limits_on_input_are_those_that_are_written_down() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md")).expect("it is there");
    let row = |begins: &str| {
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("| {begins}"))).collect();
        let [row] = rows[..] else { panic!("{begins}: {rows:?}") };
        row.split('|').nth(2).expect("a second column").trim().to_owned()
    };
    let limits = [
        ("Configuration,", document::MAX_BYTES, " bytes"),
        ("Pools of", document::MAX_POOLS, ""),
        ("Name of a pool", document::MAX_NAME, " bytes"),
        ("A PROXY header of version 1", Header::MAX_V1, " bytes"),
        ("A PROXY header of version 2", Header::MAX_V2, " bytes"),
        ("Time that a PROXY header takes", Accepts::WITHIN.as_secs() as usize, " s"),
        ("Connections of the control socket", control::PLACES.clients, ""),
        ("Collectors", metrics::PLACES.clients, ""),
        ("Requests of the control socket", control::PLACES.answers, ""),
        ("Revisions", revisions::MAX_REVISIONS, ""),
        ("Lines of the log", log::MAX_LINES, ""),
    ];
    for (begins, limit, unit) in limits {
        assert_eq!(row(begins), thousands(limit as u64) + unit, "{begins}");
    }
    let default = |name: &str| {
        let setting = pool_settings::SETTINGS.iter().find(|one| one.setting.name == name).expect("there is one");
        setting.setting.default.split(';').next().unwrap_or_default().to_owned()
    };
    for (begins, setting, unit) in
        [("A connection's input", "max-partial", " KiB"), ("A connection's unsent", "max-unsent", " MiB")]
    {
        assert_eq!(row(begins), default(setting).trim_end_matches(['k', 'm']).to_owned() + unit);
    }
    assert_eq!(row("Jobs that wait"), parse(&default("worker-queue")).map(thousands).expect("a count"));
}
