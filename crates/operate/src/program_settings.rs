//! The settings of the whole program. They are read once, at its start: a change of them is for the next build or start.

use crate::setting::{Kind, PATH, Setting, Text, Values};
use sockdrawer::Address;

const ADDRESS: Text = Text {
    form: "ADDR",
    check: |text| text.parse::<Address>().map(drop).map_err(|error: sockdrawer::AddressError| error.to_string()),
};
/// The heading of settings of the whole program.
pub(crate) const GROUP: &str = "Operating";
/// The name of the control socket's pool, which moves with the others to a new build.
pub(crate) const CONTROL_POOL: &str = "control";
/// The name of the pool that collectors ask.
pub(crate) const METRICS_POOL: &str = "metrics";

/// Setting of where operators are answered.
pub(crate) const CONTROL: Setting = Setting::new(
    "control",
    Kind::Text(PATH),
    "The control socket: HTTP on a Unix socket that only this user may use, for sockdrawer ctl and curl; none: no control socket",
)
.unless_given("with a file: sockdrawer.sock in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or /run/sockdrawer; else none")
.group(GROUP);

/// All of them.
pub(crate) static SETTINGS: [Setting; 6] = [
    CONTROL,
    Setting::new("metrics", Kind::Text(ADDRESS), "Serve /metrics (Prometheus, OpenMetrics), /healthz and /readyz at this address")
        .unless_given("nowhere")
        .group(GROUP),
    Setting::new(
        "upgrade",
        Kind::Text(PATH),
        "Where the server meets the next build of this program, which takes over its listeners and connections. Where one serves there already, this one takes over from it if SOCKDRAWER_REPLACES is its pid, or `any`",
    )
    .unless_given("none")
    .group(GROUP),
    Setting::new(
        "stays",
        Kind::Time,
        "With upgrade: how long connections that cannot move may stay here once this process is replaced; then they are asked to end",
    )
    .unless_given("for ever")
    .group(GROUP),
    Setting::new(
        "turns-within",
        Kind::Time,
        "With upgrade: how long a loop may be busy with one connection when a new build comes, which is refused then. The other loops accept meanwhile",
    )
    .unless_given("5s")
    .group(GROUP),
    Setting::new("log", Kind::Choice(&["none", "errors", "text", "json"]), "Log events on standard error, one line each: all, or those by which something is lost, such as panics")
        .unless_given("with a file: text; else errors")
        .group(GROUP),
];

/// Returns a line about metrics that other machines reach.
pub(crate) fn exposed(program: &Values) -> Option<String> {
    let address = program.text("metrics").filter(|text| reaches_others(text))?;
    Some(format!(
        "metrics at {address} are for all that reach it: use 127.0.0.1 or a unix: path, or keep others out by a firewall"
    ))
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
}
