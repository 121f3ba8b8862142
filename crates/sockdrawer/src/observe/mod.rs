//! Observability: events as they happen, counters that only grow, status on request. The library prints and logs nothing.

pub(crate) mod counters;
mod events;
mod status;

pub use counters::Counts;
pub use events::{Alarm, Event, Observer};
pub use status::{
    ConnectionState, ConnectionStatus, GenerationStatus, ListenerStatus, LoopStatus, ProcessStatus, Readiness, Status,
};
