//! What of the program other machines reach although it is for operators.

use crate::hub::Hub;
use crate::setting::Values;
use serde_json::json;
use sockdrawer::Address;

/// Tells where the metrics are, unless only this machine has them.
pub(crate) fn warn(hub: &Hub, program: &Values) {
    let Some(address) = program.text("metrics").filter(|text| reaches_others(text)) else { return };
    let line = format!(
        "metrics at {address} are for all that reach it: use 127.0.0.1 or a unix: path, or keep others out by a firewall"
    );
    hub.note("Exposed", &json!({"setting": "metrics", "address": address}), line);
}

fn reaches_others(address: &str) -> bool {
    match address.parse() {
        Ok(Address::Tcp(address)) => !address.ip().to_canonical().is_loopback(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control, document, log, pool_settings, server};
    use sockdrawer_catalog::count::{parse, thousands};

    #[test]
    fn an_address_of_this_machine_alone_is_not_told() {
        for address in
            ["127.0.0.1:9464", "[::1]:9464", "[::ffff:127.0.0.1]:9464", "9464", "unix:/run/metrics", "unix:@metrics", "none"]
        {
            assert!(!reaches_others(address), "{address}");
        }
        for address in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464"] {
            assert!(reaches_others(address), "{address}");
        }
    }

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
            ("Connections of the control socket", control::CLIENTS, ""),
            ("Requests of the control socket", control::ANSWERS, ""),
            ("Revisions", server::MOST_HISTORY, ""),
            ("Lines of the log", log::MOST_LINES, ""),
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
}
