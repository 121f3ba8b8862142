//! Where a pool listens, as it is written: an address with options, or the name of a socket that systemd has made.

use sockdrawer::Address;
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer_catalog::count;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Of a socket that systemd has made.
const SYSTEMD: &str = "systemd:";
/// The options of an address.
const KEYS: [&str; 5] = ["limit", "v6-only", "freebind", "transparent", "device"];

/// Where a pool listens.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) place: Place,
    limit: Option<usize>,
    options: ListenOptions,
}

/// An address, or the name of sockets that systemd has made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(Address),
    Systemd(String),
}

impl At {
    /// For a pool's configuration.
    pub(crate) fn listening(&self, address: &Address, socket: Option<Arc<OwnedFd>>) -> Listening {
        let mut listening = Listening::new(address.clone()).options(self.options.clone());
        listening.limit = self.limit;
        listening.inherited = socket;
        listening
    }
}

/// Reads `ADDR[,KEY=VALUE]...`.
pub(crate) fn parse(text: &str) -> Result<At, String> {
    let mut rest = text;
    let mut given = Vec::new();
    // A path may have commas: only what looks like an option ends it.
    while let Some((before, option)) = rest.rsplit_once(',') {
        let Some((key, value)) = option.split_once('=') else { break };
        given.push((key, value));
        rest = before;
    }
    let place = match rest.strip_prefix(SYSTEMD) {
        Some("") => return Err("names no socket: write systemd:NAME, with the FileDescriptorName of the socket unit".to_owned()),
        Some(name) => Place::Systemd(name.to_owned()),
        None => Place::Address(rest.parse().map_err(|error: sockdrawer::AddressError| error.to_string())?),
    };
    let mut at = At { place, limit: None, options: ListenOptions::default() };
    given.into_iter().rev().try_for_each(|(key, value)| set(&mut at, key, value))?;
    Ok(at)
}

fn set(at: &mut At, key: &str, value: &str) -> Result<(), String> {
    let switch = || match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key}={value}: write {key}=true or {key}=false")),
    };
    match key {
        "limit" => {
            let limit = count::parse(value).ok().and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
            at.limit = Some(limit.ok_or_else(|| format!("limit={value}: not a count of at least 1: write such as limit=500"))?);
        }
        "v6-only" => at.options.v6_only = switch()?,
        "freebind" => at.options.freebind = switch()?,
        "transparent" => at.options.transparent = switch()?,
        "device" => at.options.device = Some(value.to_owned()),
        _ => return Err(crate::setting::unknown("option of an address", key, &KEYS)),
    }
    Ok(())
}
