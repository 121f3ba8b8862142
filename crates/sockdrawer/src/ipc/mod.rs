//! PROCESSES: the numbers that the processes of a pool share, and messages between processes.

pub(crate) mod child_page;
pub(crate) mod codec;
pub(crate) mod messages;
pub(crate) mod operations;
pub(crate) mod packets;
pub(crate) mod plans;
pub(crate) mod shared_counters;
pub(crate) mod state_level;
pub(crate) mod yours;
