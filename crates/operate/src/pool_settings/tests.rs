use super::*;
use sockdrawer::admission::{Admission, OnFull, Reject};
use sockdrawer::restarting::Restarts;
use sockdrawer_catalog::echo::Echo;

struct NoSockets;

impl Sockets for NoSockets {
    fn named(&self, name: &str) -> Result<Vec<Listening>, String> {
        Err(format!("none is named {name}"))
    }
}

/// Makes the configuration of a program with these settings of a file.
fn configured(begun: Config, set: &[(&str, &str)]) -> Result<Config, Wrong> {
    let mut values = Values::default();
    for (name, text) in set {
        let setting = SETTINGS.iter().map(|one| &one.setting).find(|setting| setting.name == *name).expect("a setting");
        values.set(setting, setting.parse(text).expect("it is right"));
    }
    configure(begun, &values, None, &NoSockets)
}

fn limits(begun: Config, set: &[(&str, &str)]) -> Limits {
    configured(begun, set).expect("valid").limits().expect("limits").clone()
}

#[test]
fn settings_are_applied_to_the_policies_that_the_program_set() {
    let full = || OnFull::Reject(Reject::text("ERR full\n"));
    let said = Reject::text("ERR too many\n");
    let per_peer = PerPeer { reject: said.clone(), ..PerPeer::address(50) };
    let mut begun = Config::accept(Echo).admission(Limits::default().on_full(full()).per_peer(per_peer.clone()));
    begun.restarts = Restarts { max: 3, ..Restarts::default() };
    let probes = Keepalive { idle: Duration::from_secs(7), interval: Duration::from_secs(1), probes: 2 };
    begun.settings.options.keepalive = Some(probes);
    let config = configured(begun.clone(), &[]).expect("valid");
    assert_eq!(config.limits(), begun.limits());
    assert_eq!((config.restarts, config.settings.options.keepalive), (begun.restarts, Some(probes)));
    let set = [("max-per-peer", "5/24"), ("restarts-within", "1m"), ("keepalive", "9s")];
    let config = configured(begun.clone(), &set).expect("valid");
    let of_file = config.limits().expect("limits");
    let prefixes = Prefixes { v4: 24, v6: 96 };
    assert_eq!(of_file.per_peer, Some(PerPeer { max: 5, prefixes, reject: said }));
    assert_eq!(of_file.on_full, full());
    assert_eq!(config.restarts, Restarts { max: 3, within: Duration::from_secs(60), ..Restarts::default() });
    assert_eq!(config.settings.options.keepalive, Some(Keepalive { idle: Duration::from_secs(9), ..probes }));
}

#[test]
fn a_connection_is_turned_away_with_a_text_of_the_file() {
    let of = |set: &[(&str, &str)]| limits(Config::accept(Echo), set);
    assert_eq!(of(&[("on-full", "reject")]).on_full, OnFull::Reject(Reject::Fin));
    assert_eq!(of(&[("on-full", "reject ERR full")]).on_full, OnFull::Reject(Reject::text("ERR full\n")));
    assert_eq!(of(&[("on-full", "reject 503 busy\r\n\r\n")]).on_full, OnFull::Reject(Reject::text("503 busy\r\n\r\n")));
    let per_peer = of(&[("max-per-peer", "5 reject ERR too many")]).per_peer.expect("set");
    assert_eq!((per_peer.max, per_peer.reject), (5, Reject::text("ERR too many\n")));
    for wrong in ["backpressure now", "rejects", "reject-all", ""] {
        assert!((ON_FULL.check)(wrong).is_err(), "{wrong}");
    }
}

struct Own;

impl Admission for Own {}

#[test]
fn settings_of_limits_are_refused_where_the_program_has_a_policy_of_its_own() {
    let begun = || Config::accept(Echo).admission(Own);
    assert!(configured(begun(), &[("limit", "7")]).expect("valid").limits().is_none(), "it is kept");
    let (name, why) = configured(begun(), &[("on-full", "reject")]).expect_err("refused");
    assert_eq!(
        (name, why.as_str()),
        ("on-full", "is a setting of limits, and this program has an admission policy of its own: leave it out")
    );
}
