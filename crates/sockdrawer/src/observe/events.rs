//! Every event a pool emits. This file is their specification.

use super::Readiness;
use crate::config::Alarm;
use crate::net::Address;
use crate::protocol::ConnectionId;
use std::time::Duration;

/// Something that happened in a pool. What happens for every connection is counted, not told: see [`Counts`](crate::Counts).
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// Connections are accepted there from now on. Once for each address.
    Listening(Address),
    /// An address was removed; what waited in its queue was accepted first.
    ListenerRemoved(Address),
    /// New sockets have taken the place of others at this address; what waited at those was accepted, and they are closed.
    ListenerReplaced(Address),
    /// A listening socket no longer listens: somebody who shares it shut it down.
    ListenerGone(Address),
    /// `accept4` ran into a limit of the system, or is denied, and pauses. Once for each pause, not for each failure.
    AcceptStarved {
        /// The errno: EMFILE, ENFILE, ENOBUFS or ENOMEM; EPERM, EACCES or another where seccomp or a security module denies it; EAGAIN where there was no thread for a connection that was accepted,
        /// which is served when there is one.
        errno: i32,
    },
    /// Accepting goes on after [`Event::AcceptStarved`].
    AcceptResumed,
    /// The pool takes connections from now on, or does not. Told before its listeners stop.
    ReadinessChanged(Readiness),
    /// So many connections: an alarm of [`Config::alarms`](crate::Config::alarms). Once, until it is cleared.
    AlarmRaised {
        /// Which.
        alarm: Alarm,
        /// Connections at that moment.
        connections: usize,
    },
    /// So few connections again, after [`Event::AlarmRaised`].
    AlarmCleared {
        /// Which.
        alarm: Alarm,
        /// Connections at that moment.
        connections: usize,
    },
    /// The admission policy panicked. The connection it was asked about was decided by the default policy. At most ten a second are
    /// told, all are counted.
    AdmissionPanicked {
        /// The panic's message.
        message: String,
    },
    /// A new generation is in force: every connection accepted from now on has it.
    GenerationStarted(u32),
    /// The last connection of a retired generation ended.
    GenerationEnded(u32),
    /// User code panicked. It cost this connection only. At most ten a second are told, all are counted.
    ConnectionPanicked {
        /// Whose.
        id: ConnectionId,
        /// The panic's message.
        message: String,
    },
    /// A protocol said this about its connection, by [`Context::report`](crate::Context::report). At most ten a second are told.
    Reported {
        /// Whose.
        id: ConnectionId,
        /// What it said.
        message: String,
    },
    /// A job panicked; its connection was told so and lives. Told and counted like a connection's panic.
    JobPanicked {
        /// The panic's message.
        message: String,
    },
    /// User code panicked where there is no connection: in `connect_failed`, or in a restart policy, in whose place the default
    /// decided.
    ServicePanicked {
        /// The panic's message.
        message: String,
    },
    /// A connection was ended by [`Pool::kill`](crate::Pool::kill).
    ConnectionKilled(ConnectionId),
    /// A loop died, and its connections with it. Another has its place, unless the loop was not wanted any more.
    LoopReplaced {
        /// Which.
        index: usize,
        /// The panic's message.
        reason: String,
    },
    /// A loop has not ended its turn for this long; its listeners moved to the others.
    LoopStuck {
        /// Which.
        index: usize,
        /// For how long.
        since: Duration,
    },
    /// A loop that was stuck turns again.
    LoopRecovered {
        /// Which.
        index: usize,
    },
    /// A loop that was asked for could not be started: the others do its work.
    LoopNotStarted {
        /// Why.
        reason: String,
    },
    /// A process died, and its connections with it. Another has its place, unless the process was not wanted any more.
    ProcessReplaced {
        /// Which.
        index: usize,
        /// How it ended.
        reason: String,
    },
    /// A connection's own process was ended by a signal that the pool did not send: a crash in foreign code, or a kill from elsewhere.
    ChildKilled {
        /// Whose.
        id: ConnectionId,
        /// The signal's number.
        signal: i32,
    },
    /// A process could not be started: the others do its work.
    ProcessNotStarted {
        /// Why.
        reason: String,
    },
    /// A thread of [`Model::Threads`](crate::Model::Threads) died, and its connection with it. It counts as a restart.
    ThreadDied {
        /// The panic's message.
        reason: String,
    },
    /// A worker died and was replaced.
    WorkerReplaced {
        /// The panic's message.
        reason: String,
    },
    /// Too many restarts: the pool stops accepting, drains and stops.
    GaveUp {
        /// Why.
        reason: String,
    },
}

/// Told of every [`Event`], on the thread where it happened: it must be quick and must not wait.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// Tells nobody.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn event(&self, _event: &Event) {}
}
