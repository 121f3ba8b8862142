//! What a pool's settings have to be together: its protocol, its model and all else.

use crate::pool_settings::{Sockets, configure};
use crate::protocol::Protocol;
use crate::setting::{Values, Wrong};
use crate::tls;
use sockdrawer::listening::Listening;
use sockdrawer::{Address, Error, Pool};
use sockdrawer_tls::Tickets;

/// Sockets that systemd will have made: each stands for itself.
struct Unresolved;

impl Sockets for Unresolved {
    fn named(&self, name: &str) -> Result<Vec<Listening>, String> {
        let address = format!("unix:@systemd/{name}").parse::<Address>().map_err(|error| error.to_string())?;
        Ok(vec![Listening::new(address)])
    }
}

/// Checks what the settings are together. Nothing is started.
pub(super) fn check(protocol: &Protocol, values: &Values) -> Result<(), Wrong> {
    let begun = (protocol.build)(values).map_err(|why| ("protocol", why))?;
    let tls = tls::of(values, &Tickets::new())?;
    let config = configure(begun, values, tls.as_ref(), &Unresolved)?;
    Pool::check(&config).map_err(|error| match &error {
        Error::Invalid { setting, reason } => (in_files(setting), reason.clone()),
        Error::Address { source, .. } => ("listen", source.to_string()),
        _ => ("model", error.to_string()),
    })
}

fn in_files(setting: &str) -> &'static str {
    crate::pool_settings::in_files(setting).unwrap_or("protocol")
}
