//! Pools whose connections live in other processes. Each process is this program, started again as a helper that builds the
//! service from its recipe; pool and helper speak over a packet pair, and share a few numbers.

mod change;
mod channel;
mod child;
mod ends;
mod forking;
mod helper;
pub(super) mod helpers;
mod listener_states;
mod members;
#[cfg(feature = "upgrade")]
mod moving;
mod recount;
mod refusals;
mod registry;
mod supervise;
mod tally;
mod to_pool;
mod wire;

pub use helper::{layers, processes};
