//! The options of a trial by kinds of change.

use crate::Until;
use sockdrawer::Model;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// The options of a trial by kinds of change.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// End of the trial.
    pub until: Until,
    /// The model of the server: any that runs many connections at once and can change them while they live.
    pub model: Model,
    /// Clients that connect, exchange and end all the time.
    pub connections: usize,
    /// Connections kept from the first to the last change; at least one.
    pub kept: usize,
    /// The address of the server under trial; port 0 for any free port.
    pub listen: SocketAddrV4,
    /// The seed of all random choices.
    pub seed: u64,
    /// A fault to inject on purpose.
    pub sabotage: Option<Sabotage>,
    /// The process has a private network namespace, whose counters count this trial alone.
    pub private_network: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            until: Until::Passed(Duration::from_secs(10)),
            model: Model::Loops,
            connections: 32,
            kept: 64,
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            seed: 0,
            sabotage: None,
            private_network: false,
        }
    }
}

/// A fault that a trial must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The address to which the churn connects is removed, and added again after a client has missed it.
    Reopen,
    /// The connections in the accept queue are reset.
    DropQueue,
    /// Now and then the echo of a kept connection lacks a byte.
    LoseByte,
    /// A kept connection is killed.
    CloseKept,
}

impl Sabotage {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Sabotage::Reopen => "reopen",
            Sabotage::DropQueue => "drop-queue",
            Sabotage::LoseByte => "lose-byte",
            Sabotage::CloseKept => "close-kept",
        }
    }
}

/// An address that a trial cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLoopback;

impl std::fmt::Display for NotLoopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a trial listens on an IPv4 loopback address, because its clients tell themselves apart by their own addresses in \
             127.0.0.0/8: write 127.0.0.1:9000, or leave it out for any free port",
        )
    }
}

impl std::error::Error for NotLoopback {}

/// Checks that a trial can listen at `address`, and returns it.
///
/// # Errors
/// When it is not an IPv4 loopback address.
pub fn loopback(address: SocketAddr) -> Result<SocketAddrV4, NotLoopback> {
    match address {
        SocketAddr::V4(address) if address.ip().is_loopback() => Ok(address),
        _ => Err(NotLoopback),
    }
}
