//! Addresses and options: where a pool listens, what it connects to, and how its sockets are set.

mod address;
mod options;

pub use address::{Address, AddressError};
pub use options::{Keepalive, SocketOptions};
