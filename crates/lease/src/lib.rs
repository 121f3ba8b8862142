//! Leases client connections.

pub mod engine;
mod error;
mod random;
mod settings;

pub use error::{ConnectError, Error};
pub use random::Random;
pub use settings::{Order, Settings};
