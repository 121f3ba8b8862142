//! Sockets that systemd made before the program began
//! ([sd_listen_fds(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html)).

use crate::document::Document;
use crate::failure::{Failure, Fault};
use crate::listen::{self, Place};
use crate::pool_settings::Sockets;
use sockdrawer::Upgrade;
use sockdrawer::listening::{Listening, passed_sockets};

/// The sockets that pools may name: those that systemd passed to this process, or else those of them that the predecessor listens at. They stay
/// open while the program runs, so that a reload may name one again.
#[derive(Debug, Default)]
pub(crate) struct Passed(Vec<Listening>);

impl Passed {
    /// Takes the sockets that were passed to this process. Called once.
    pub(crate) fn to_this_process(upgrade: Option<&Upgrade>) -> Result<Passed, Failure> {
        let mut sockets = passed_sockets().map_err(|error| Failure {
            line: format!("socket activation: {error}"),
            fault: Fault::Configuration,
            is_told: false,
        })?;
        if sockets.is_empty() {
            sockets = upgrade.map(Upgrade::named).unwrap_or_default();
        }
        Ok(Passed(sockets))
    }

    /// Returns a line for each name that no pool has: connections there wait in vain.
    pub(crate) fn unused(&self, document: &Document) -> Vec<String> {
        let texts = document.pools.values().flat_map(|pool| pool.values.list("listen"));
        let places: Vec<Place> = texts.filter_map(|text| listen::parse(text).ok()).map(|at| at.place).collect();
        let is_named = |name: &str| places.iter().any(|place| matches!(place, Place::Systemd(known) if known == name));
        let unused = |socket: &Listening| {
            let name = socket.name.as_deref().filter(|name| !is_named(name))?;
            let address = &socket.address;
            Some(format!(
                "no pool listens at {address}, which systemd passed as {name}: add systemd:{name} to the listen of a pool"
            ))
        };
        self.0.iter().filter_map(unused).collect()
    }
}

impl Sockets for Passed {
    fn named(&self, name: &str) -> Result<Vec<Listening>, String> {
        let found: Vec<Listening> = self.0.iter().filter(|socket| socket.name.as_deref() == Some(name)).cloned().collect();
        if found.is_empty() {
            let mut known: Vec<&str> = self.0.iter().filter_map(|socket| socket.name.as_deref()).collect();
            known.dedup();
            let known = if known.is_empty() { "it passed none".to_owned() } else { format!("it passed {}", known.join(", ")) };
            return Err(format!(
                "systemd passed no socket named {name}: {known}; set FileDescriptorName={name} in the socket unit"
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Passed {
        let at = |name: &str, address: &str| Listening::new(address).named(name);
        Passed(vec![at("web", "127.0.0.1:80"), at("web", "[::1]:80"), at("admin", "unix:/run/admin")])
    }

    #[test]
    fn all_sockets_of_a_name_are_meant() {
        let addresses =
            |name: &str| passed().named(name).map(|all| all.iter().map(|one| one.address.to_string()).collect::<Vec<_>>());
        assert_eq!(addresses("web"), Ok(vec!["127.0.0.1:80".to_owned(), "[::1]:80".to_owned()]));
        assert_eq!(addresses("admin"), Ok(vec!["unix:/run/admin".to_owned()]));
        let why = addresses("weg").expect_err("there is none");
        assert_eq!(
            why,
            "systemd passed no socket named weg: it passed web, admin; set FileDescriptorName=weg in the socket unit"
        );
        assert!(Passed::default().named("web").is_err_and(|why| why.contains("it passed none")));
    }
}
