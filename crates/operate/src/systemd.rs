//! Sockets that systemd made before the program began
//! ([sd_listen_fds(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html)).

use crate::pool_settings::{Made, Sockets};
use sockdrawer::Address;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The sockets of this process, by name.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    sockets: Vec<(String, Address, Arc<OwnedFd>)>,
}

/// The sockets that a pool may name: those that systemd passed to this process, or else those that the predecessor listens at.
pub(crate) struct OfPool<'a> {
    pub(crate) passed: &'a Passed,
    /// Addresses of the predecessor's pool.
    pub(crate) before: Vec<Address>,
}

impl Sockets for OfPool<'_> {
    fn named(&self, name: &str) -> Result<Vec<Made>, String> {
        let own = self.passed.sockets.iter().filter(|(known, ..)| known == name);
        let mut found: Vec<Made> = own.map(|(_, address, socket)| (address.clone(), Some(socket.clone()))).collect();
        if self.passed.sockets.is_empty() {
            found.extend(self.before.iter().map(|address| (address.clone(), None)));
        }
        if found.is_empty() {
            let known: Vec<&str> = self.passed.sockets.iter().map(|(known, ..)| known.as_str()).collect();
            let known = if known.is_empty() { "it passed none".to_owned() } else { format!("it passed {}", known.join(", ")) };
            return Err(format!(
                "systemd passed no socket named {name}: {known}; name it by FileDescriptorName in the socket unit"
            ));
        }
        Ok(found)
    }
}
