//! Checks of a pool's settings together: its protocol, its model and all else.

use crate::listen::sets;
use crate::pool_settings::{Sockets, configure, wrong_of};
use crate::protocol::Protocol;
use crate::setting::{Values, Wrong};
use crate::tls;
use sockdrawer::listening::Listening;
use sockdrawer::{Address, Config, Pool};
use sockdrawer_tls::Tickets;

/// Sockets that systemd will have made: each stands for itself.
struct Unresolved;

const UNRESOLVED: &str = "unix:@systemd/";

impl Sockets for Unresolved {
    fn named(&self, name: &str) -> Result<Vec<Listening>, String> {
        let address = format!("{UNRESOLVED}{name}").parse::<Address>().map_err(|error| error.to_string())?;
        Ok(vec![Listening::new(address)])
    }
}

/// Checks what the settings are together. Nothing is started.
pub(super) fn check(protocol: &Protocol, values: &Values) -> Result<(), Wrong> {
    let config = config(protocol, values, &Unresolved)?;
    Pool::check(&config).map_err(|error| wrong_of(&error).unwrap_or_else(|| ("model", error.to_string())))
}

/// Returns the configuration of a pool as far as this process could have it: without the sockets that systemd would pass to it.
pub(crate) fn rehearsed(protocol: &Protocol, values: &Values) -> Result<Config, Wrong> {
    config(protocol, values, &Unresolved).map(|config| {
        let is_here = |one: &Listening| !one.address.to_string().starts_with(UNRESOLVED);
        config.listeners(|all| all.retain(is_here))
    })
}

fn config(protocol: &Protocol, values: &Values, sockets: &dyn Sockets) -> Result<Config, Wrong> {
    let begun = (protocol.build)(values).map_err(|why| ("protocol", why))?;
    let tls = tls::of(&sets(values), &Tickets::new(), None)?;
    configure(begun, values, tls.as_ref(), sockets)
}

/// Returns whether a mistake in a single setting may be why this one does not go with the others: it is about a setting with a word of this one's
/// name, or about what all depends on.
pub(super) fn may_be_why(mistake: &str, pool: &str, setting: &str) -> bool {
    let key = mistake.strip_prefix(pool).and_then(|rest| rest.split([':', ' ']).next()).unwrap_or_default();
    let mut words = setting.split('-').filter(|word| word.len() > 3);
    ["protocol", "model"].iter().any(|all| *all == key || *all == setting) || words.any(|word| mistake.contains(word))
}
