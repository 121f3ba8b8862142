//! Addresses: where a pool listens and what it connects to.

mod address;

pub use address::{Address, AddressError};
