//! Pools whose connections live in other processes. Each process is this program, started again as a helper that builds the
//! service from its recipe; pool and helper speak over a packet pair, and share a few numbers.

mod change;
mod child;
mod doors;
mod ends;
mod forking;
mod helper;
mod helpers;
mod link;
mod members;
mod recount;
mod registry;
mod speaker;
mod supervise;
mod tally;
mod wire;

pub(super) use helpers::Helpers;
pub use registry::processes;
