//! Addresses that the pools of a configuration, and the program itself, cannot have all at once.

use super::Document;
use crate::listen::{self, Place};
use sockdrawer::Address;
use std::path::PathBuf;

/// An address, and the setting that asks for it.
struct AskedAddress {
    setting: String,
    address: Address,
    /// Sockets of different network devices are not in each other's way.
    device: Option<String>,
}

/// Returns the clashes that were found, each with the name of the later setting.
pub(super) fn clashes(document: &Document) -> Vec<(String, String)> {
    let all = asked(document);
    let mut found = Vec::new();
    for (at, later) in all.iter().enumerate() {
        let Some(first) = all[..at].iter().find(|first| first.setting != later.setting && meet(first, later)) else { continue };
        let AskedAddress { setting, address, .. } = later;
        let what = match first.address == *address {
            true => format!("{setting}: {address} is that of {} too: choose another", first.setting),
            false => format!("{setting}: {address} is at the port of {}, {}: choose another port", first.setting, first.address),
        };
        found.push((setting.clone(), what));
    }
    found
}

fn asked(document: &Document) -> Vec<AskedAddress> {
    let path = |setting: &str| {
        let path = document.program.path(setting)?;
        Some(AskedAddress { setting: setting.to_owned(), address: Address::Unix(PathBuf::from(path)), device: None })
    };
    let metrics = document.program.text("metrics").and_then(|text| text.parse().ok());
    let metrics = metrics.map(|address| AskedAddress { setting: "metrics".to_owned(), address, device: None });
    let mut all: Vec<AskedAddress> = [path("control"), path("upgrade"), metrics].into_iter().flatten().collect();
    for (name, pool) in &document.pools {
        for at in pool.values.list("listen").iter().filter_map(|text| listen::parse(text).ok()) {
            let device = at.device().map(str::to_owned);
            let Place::Address(address) = at.place else { continue };
            all.push(AskedAddress { setting: format!("pool.{name}.listen"), address, device });
        }
    }
    all
}

fn meet(one: &AskedAddress, other: &AskedAddress) -> bool {
    match (&one.address, &other.address) {
        (Address::Tcp(first), Address::Tcp(second)) => {
            let is_same_port = first.port() == second.port() && first.port() != 0;
            let is_wide = first.ip().is_unspecified() || second.ip().is_unspecified();
            let both = first.is_ipv4() == second.is_ipv4();
            is_same_port && one.device == other.device && (first.ip() == second.ip() || (is_wide && both))
        }
        (one, other) => one == other,
    }
}
