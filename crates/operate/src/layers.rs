//! Layers that lie between a pool's sockets and its protocol, by the pool's settings.

use crate::setting::{Kind, Setting, Text, Values, Wrong};
use crate::tls::{self, PoolTls};
use sockdrawer::Behaviour;
use sockdrawer::layer::proxy_header::{Accepts, Source};
use sockdrawer::listening::Listening;
use sockdrawer_tls::Server;

pub(crate) const PROXY_PROTOCOL: &str = "proxy-protocol";

const SOURCES: Text = Text { form: "SOURCE[,SOURCE]...", check: |text| accepts(text).map(drop) };

pub(crate) const PROXY: Setting = Setting::new(
    PROXY_PROTOCOL,
    Kind::Text(SOURCES),
    "Whose connections have to begin with a PROXY header, v1 or v2: from=10.0.0.0/8 for a network or an address, unix for all at Unix sockets, with commas between. The real address of the peer counts for everything then; other peers' headers are not believed",
)
.unless_given("none");

/// Returns the settings of which layers are made.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    tls::SETTINGS.iter().chain([const { &PROXY }])
}

/// Returns the names of the settings of which layers are made.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    settings().map(|setting| setting.name)
}

/// Puts a behaviour behind its layers: what is read first is put around it last.
pub(crate) fn layered(behaviour: Behaviour, values: &Values, tls: Option<&PoolTls>) -> Result<Behaviour, Wrong> {
    let behaviour = match tls.and_then(|tls| tls.client.as_ref()) {
        Some(client) => behaviour.layered(client.clone()),
        None => behaviour,
    };
    let behaviour = match tls.and_then(|tls| tls.servers.first()?.as_ref()) {
        Some(server) => behaviour.layered(server.clone()),
        None => behaviour,
    };
    match values.text(PROXY_PROTOCOL) {
        Some(text) => Ok(behaviour.layered(accepts(text).map_err(|why| (PROXY_PROTOCOL, why))?)),
        None => Ok(behaviour),
    }
}

/// Gives a listener its layers.
pub(crate) fn at_listener(listening: Listening, values: &Values, server: Option<&Server>) -> Result<Listening, String> {
    let listening = match server {
        Some(server) => listening.layered(server.clone()),
        None => listening,
    };
    match values.text(PROXY_PROTOCOL) {
        Some(text) => Ok(listening.layered(accepts(text)?)),
        None => Ok(listening),
    }
}

/// Reads `from=10.0.0.0/8,from=::1,unix`.
fn accepts(text: &str) -> Result<Accepts, String> {
    let source = |part: &str| match part.strip_prefix("from=") {
        Some(network) if network != "unix" => network.parse::<Source>().map_err(|error| error.to_string()),
        None if part == "unix" => Ok(Source::Unix),
        _ => Err(format!(
            "has {part:?}: write where proxies connect from, such as from=10.0.0.0/8,from=::1, and unix for Unix sockets"
        )),
    };
    Ok(Accepts::from(text.split(',').map(source).collect::<Result<Vec<_>, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_one_by_one() {
        let sources = |texts: &[&str]| Accepts::from(texts.iter().map(|text| text.parse().expect("a source")));
        assert_eq!(accepts("from=10.0.0.0/8"), Ok(sources(&["10.0.0.0/8"])));
        assert_eq!(accepts("from=::1,unix,from=127.0.0.1"), Ok(sources(&["::1", "unix", "127.0.0.1"])));
        for (wrong, about) in [
            ("", "has \"\": write where proxies connect from"),
            ("10.0.0.0/8", "has \"10.0.0.0/8\": write where"),
            ("from=unix", "has \"from=unix\": write where"),
            ("from=10.0.0.0/33", "`10.0.0.0/33` is no source"),
            ("from=::1,", "has \"\": write where"),
        ] {
            let why = accepts(wrong).expect_err("it is wrong");
            assert!(why.starts_with(about), "{why}");
        }
    }
}
