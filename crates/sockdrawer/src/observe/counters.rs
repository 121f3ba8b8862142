//! Counters: one set per loop, written by that loop alone, added up when read.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sys::shared::Words;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
/// The counters of a pool since it started. They only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl std::ops::AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl Counts {
/// Returns each counter by its name, for what exports them.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

/// Reads these counters by their names; unknown names are left out.
            pub(crate) fn of_names(value: impl Fn(&str) -> u64) -> Counts {
                Counts { $($name: value(stringify!($name)),)* }
            }

/// Returns these counters, each at most `most`.
            pub(crate) fn at_most(self, most: u64) -> Counts {
                Counts { $($name: self.$name.min(most),)* }
            }
        }

/// The index of each counter in a loop's set.
        #[allow(non_camel_case_types)]
        enum Place {
            $($name,)*
            count,
        }

        impl Counters {
/// The number of counters.
            pub(crate) const WORDS: usize = Place::count as usize;

            $(pub(crate) fn $name(&self) -> Counter<'_> {
                Counter(&self.words[self.first + Place::$name as usize])
            })*

/// Adds counts from another process or loop.
            pub(crate) fn add_all(&self, counts: &Counts) {
                $(self.$name().add(counts.$name);)*
            }

/// Sets all counters to 0.
            pub(crate) fn clear(&self) {
                $(self.$name().0.store(0, Ordering::Relaxed);)*
            }

            pub(crate) fn add_to(&self, counts: &mut Counts) {
                let own = Counts { $($name: self.$name().get(),)* };
                *counts += Counts { rejected: own.rejected_for_reasons(), ..own };
            }

/// Returns the sum of all sets, while loops count: `closed` is never higher than what was begun.
            pub(crate) fn sum(all: impl Iterator<Item = Counters> + Clone) -> Counts {
// A connection is counted as begun before it is counted as closed, so `closed` is read first.
                let closed = all.clone().map(|one| one.closed().get()).sum();
                fence(Ordering::SeqCst);
                let mut counts = Counts::default();
                all.for_each(|one| one.add_to(&mut counts));
                Counts { closed, ..counts }
            }
        }
    };
}

/// The counters of one loop.
#[derive(Clone)]
pub(crate) struct Counters {
    words: Words,
    first: usize,
}

impl Counters {
    /// Counters in memory that other processes read too.
    pub(crate) fn at(words: Words, first: usize) -> Counters {
        Counters { words, first }
    }
}

/// Reason why a connection is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    PoolFull,
    ListenerFull,
    TooFast,
    PerPeer,
    Policy,
    Refusing,
}

impl Counters {
    /// Returns the counter of connections that are turned away for a reason, which are counted only there: `rejected` is the sum of these whenever it
    /// is read, also where the process was killed that counted.
    pub(crate) fn rejected_for(&self, reason: RejectReason) -> Counter<'_> {
        match reason {
            RejectReason::PoolFull => self.rejected_pool_full(),
            RejectReason::ListenerFull => self.rejected_listener_full(),
            RejectReason::TooFast => self.rejected_too_fast(),
            RejectReason::PerPeer => self.rejected_per_peer(),
            RejectReason::Policy => self.rejected_by_policy(),
            RejectReason::Refusing => self.rejected_refusing(),
        }
    }
}

impl Counts {
    fn rejected_for_reasons(&self) -> u64 {
        let limits = [self.rejected_pool_full, self.rejected_listener_full, self.rejected_too_fast, self.rejected_per_peer];
        // A process that is not trusted may have written them.
        limits.into_iter().fold(self.rejected_by_policy.saturating_add(self.rejected_refusing), u64::saturating_add)
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { words: Words::private(Counters::WORDS), first: 0 }
    }
}

counters! {
    /// Connections taken from the kernel, those turned away included: when none is left, as many as `closed` and
    /// `rejected` together.
    accepted,
    /// Connections made by connecting.
    connected,
    /// Connects that failed.
    connect_failed,
    /// Connects begun.
    connects,
    /// Connections that ended, for whatever reason; those turned away are not among them, whether at the accept or when a layer had learned who the
    /// peer is: their protocol was never opened.
    closed,
    /// Connections turned away, for whatever reason: the sum of the six that follow. They are counted as accepted too.
    rejected,
    /// Connections turned away because the pool was at its limit.
    rejected_pool_full,
    /// Connections turned away because their listener was at its limit, and the pool was not.
    rejected_listener_full,
    /// Connections turned away because the last ones came faster than the accept rate allows.
    rejected_too_fast,
    /// Connections turned away because their peer had as many as it may.
    rejected_per_peer,
    /// Connections that an admission policy turned away where no limit was reached.
    rejected_by_policy,
    /// Connections turned away because the pool, or their listener, refused all, or ended.
    rejected_refusing,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Panics of callbacks and services. A connection may count several: in a callback, then in Drop.
    panics,
    /// Connections that ended by an error of their socket or of their layer, such as TLS that ended without close_notify.
    errors,
    /// Connections that ended because a message grew too long.
    too_long,
    /// Connections that their protocol ended by [`Step::Abort`](crate::Step::Abort).
    aborted,
    /// Connections ended by a panic of their protocol, or of the code that they were delegated to.
    crashed,
    /// Connections closed because a note came while the peer did not read.
    overflow,
    /// Connections that were purged, or were still open at the deadline of a drain, and owed their peers nothing.
    purged,
    /// Connections ended by [`Pool::kill`](crate::Pool::kill), and those of a loop that died.
    killed,
    /// Connections reset although they owed their peers something: output that the peer did not take in time, or an answer.
    cut,
    /// Connections closed by the idle timeout.
    idle,
    /// Handshakes that were completed in full, such as those of TLS with a certificate. Only of layers that
    /// [count](crate::layer::Filter::handshake), on either side.
    handshakes_full,
    /// Handshakes that were completed by what was kept of an earlier one, such as by a ticket of TLS.
    handshakes_resumed,
    /// Handshakes in which the connection ended.
    handshakes_failed,
    /// Jobs handed to workers or run in place.
    jobs,
    /// Jobs refused because the queue was full.
    jobs_refused,
    /// Jobs that panicked.
    job_panics,
    /// Times a connection was given away by [`Step::Delegate`](crate::Step::Delegate).
    delegated,
    /// Connections that ended before they were taken from a [`Pool::listener`](crate::Pool::listener).
    untaken,
    /// Notes brought to connections.
    notes,
    /// Notes dropped because the receiver was above its high-water mark, or was delegated and did not take its notes.
    notes_dropped,
    /// Connections moved to a newer generation.
    adopted,
    /// Connections that came from the process that this one replaced.
    moved_in,
    /// Connections that went to the process that replaced this one. They are not among those that were closed.
    moved_out,
    /// Panics of the admission policy.
    admission_panics,
    /// Failures of `accept4` that concerned one connection, such as one that was reset before it was accepted, and of listeners that another
    /// process shut down.
    accept_failed,
    /// Pauses of accepting because the system had no descriptor, memory or thread, or denied it. Which of those it was is not counted:
    /// [`Event::AcceptStarved`](crate::observe::Event::AcceptStarved) says it.
    accept_starved,
    /// Calls of `accept4` that found no connection.
    accept_empty,
    /// Turns of the loops. A turn is one wait for events and the work that follows.
    turns,
}

/// A counter with a single writer: a load and a store, no locked instruction.
pub(crate) struct Counter<'a>(&'a AtomicU64);

impl Counter<'_> {
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.get().wrapping_add(by), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
