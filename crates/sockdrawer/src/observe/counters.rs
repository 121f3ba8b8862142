//! Counters: one set per loop, written by that loop alone, merged when read.

use crate::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a pool counted since it started. Numbers only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// One loop's own counters.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn add_to(&self, counts: &mut Counts) {
                $(counts.$name += self.$name.get();)*
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Connections made by connecting.
    connected,
    /// Connects that failed.
    connect_failed,
    /// Connects begun.
    connects,
    /// Connections that ended, for whatever reason.
    closed,
    /// Connections turned away above the limit.
    rejected,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Panics of callbacks and services. One connection may count more than one: in a callback, then in Drop.
    panics,
    /// Connections that ended by an error of their socket.
    errors,
    /// Connections that ended because a message grew too long.
    too_long,
    /// Jobs handed to workers or run in place.
    jobs,
    /// Jobs refused because the queue was full.
    jobs_refused,
    /// Jobs that panicked.
    job_panics,
    /// Times a connection was given away by [`Step::Delegate`](crate::Step::Delegate).
    delegated,
    /// Notes brought to connections.
    notes,
    /// Notes dropped because the receiver was above its high-water mark, or away with too many that it did not take.
    notes_dropped,
    /// Connections moved to a newer generation.
    adopted,
    /// Failures of `accept4` that concerned one connection.
    accept_failed,
    /// Pauses of accepting because the system had no descriptor or memory.
    accept_starved,
    /// `accept4` that found nothing.
    accept_empty,
    /// Turns of the loops.
    turns,
}

/// A number with one writer: a load and a store, no locked instruction.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
