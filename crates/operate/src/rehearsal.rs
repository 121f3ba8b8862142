//! Rehearsal of a configuration: what the system would refuse of it is found by asking the system.

use crate::document::{Document, Known, rehearsed};
use crate::pool_settings::wrong_of;
use crate::setting::wrong_setting;
use sockdrawer::{Address, Config, Endpoint, Pool};
use std::path::PathBuf;

/// Returns all that cannot be had here and now, a line each.
pub(crate) fn wrong(document: &Document, known: &Known) -> Vec<String> {
    let mut found = Vec::new();
    for (name, pool) in &document.pools {
        let Some(protocol) = known.protocol(pool.protocol) else { continue };
        // Mistakes of the settings themselves were found before.
        let Ok(config) = rehearsed(protocol, &pool.values) else { continue };
        if !matches!(&config.endpoint, Endpoint::Accept { listeners, .. } if !listeners.is_empty()) {
            continue;
        }
        if let Err(error) = Pool::rehearse(&config) {
            let (setting, why) = wrong_of(&error).unwrap_or_else(|| ("protocol", error.to_string()));
            let setting = format!("pool.{name}.{setting}");
            found.push(document.places.at(&setting) + &wrong_setting(&setting, &why));
        }
    }
    let path = |setting: &'static str| {
        let path = document.program.path(setting);
        path.map(|path| (setting, Address::Unix(PathBuf::from(path))))
    };
    let metrics = document.program.text("metrics").and_then(|text| Some(("metrics", text.parse().ok()?)));
    let own = [path("control"), path("upgrade"), metrics].into_iter().flatten();
    let Some(any) = document.pools.values().find_map(|pool| rehearsed(known.protocol(pool.protocol)?, &pool.values).ok()) else {
        return found;
    };
    for (setting, address) in own {
        let at = |config: Config| config.listeners(|all| all.clear()).listen(address.clone()).limit(1);
        if let Err(error) = Pool::rehearse(&at(any.clone())) {
            found.push(document.places.at(setting) + &wrong_setting(setting, &error.to_string()));
        }
    }
    found
}
