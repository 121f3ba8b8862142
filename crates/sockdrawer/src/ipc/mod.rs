//! PROCESSES: the numbers that the processes of a pool share, and messages between processes.

pub(crate) mod child_page;
#[cfg(any(feature = "processes", feature = "upgrade"))]
pub(crate) mod codec;
#[cfg(feature = "upgrade")]
pub(crate) mod messages;
#[cfg(feature = "upgrade")]
pub(crate) mod operations;
#[cfg(any(feature = "processes", feature = "upgrade"))]
pub(crate) mod packets;
#[cfg(feature = "upgrade")]
pub(crate) mod plans;
pub(crate) mod record;
pub(crate) mod shared_counters;
pub(crate) mod state_level;
pub(crate) mod yours;
