//! Addresses and socket options: where a pool listens, what it connects to, and the options of its sockets.

mod address;
mod listen;
mod options;

pub use address::{Address, AddressError};
pub use listen::{Bind, Listen, ListenOptions, ListenRequest};
pub(crate) use listen::{Bound, real_address};
pub use options::{Keepalive, SocketOptions};
