//! What a trial is asked to be.

use crate::Until;
use sockdrawer::Model;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// All that a trial is asked to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How long.
    pub until: Until,
    /// Who runs the server's connections: any that runs many at once and can change them while they live.
    pub model: Model,
    /// Clients that connect, exchange and end all the time.
    pub connections: usize,
    /// Connections kept from the first to the last change; at least one.
    pub kept: usize,
    /// Where the server under trial listens; port 0 for any free one.
    pub listen: SocketAddrV4,
    /// What all random choices begin with.
    pub seed: u64,
    /// A fault to commit on purpose.
    pub sabotage: Option<Sabotage>,
    /// Whether the process has a network of its own, whose counters count this trial alone.
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
    /// The address that the churn connects to is removed, and added again when somebody has missed it.
    Reopen,
    /// What waits in the listening socket's queue is reset.
    DropQueue,
    /// Now and then the echo of a kept connection lacks a byte.
    LoseByte,
    /// A kept connection is killed.
    CloseKept,
}

impl Sabotage {
    /// As the command line spells it.
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

/// `address`, when a trial can listen there.
///
/// # Errors
/// When it is no IPv4 loopback address.
pub fn loopback(address: SocketAddr) -> Result<SocketAddrV4, NotLoopback> {
    match address {
        SocketAddr::V4(address) if address.ip().is_loopback() => Ok(address),
        _ => Err(NotLoopback),
    }
}
