//! Every event that a pool emits. This file is their specification.

use super::Readiness;
use crate::net::Address;
use crate::protocol::{ConnectionId, Report};
use std::net::SocketAddr;
use std::time::Duration;

/// A number of connections at which an event is sent, and a lower one at which the alarm is cleared. Between the two numbers no event is
/// sent, so that a count that sways does not repeat them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Alarm {
    /// The alarm is raised when the pool has this many connections.
    pub at: usize,
    /// The alarm is cleared when the pool has only this many connections again; less than `at`.
    pub clear_at: usize,
}

/// Something that happened in a pool. What happens with every connection is counted and sends no event: see [`Counts`](crate::observe::Counts).
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// The pool accepts connections at this address from now on. Sent once per address.
    Listening(Address),
    /// An address was removed; the connections in its accept queue were accepted first.
    ListenerRemoved(Address),
    /// New sockets replaced those at this address; the connections in the old queues were accepted, and the old sockets are closed.
    ListenerReplaced(Address),
    /// A listening socket no longer listens: another process that shares it shut it down.
    ListenerGone(Address),
    /// `accept4` failed at a limit of the system, or was denied, and accepting pauses. Sent once per pause, not per failure.
    AcceptStarved {
        /// The errno: EMFILE, ENFILE, ENOBUFS or ENOMEM; EPERM, EACCES or another if seccomp or a security module denies it; EAGAIN if
        /// there was no thread for an accepted connection, which is served as soon as there is one.
        errno: i32,
    },
    /// Accepting goes on after [`Event::AcceptStarved`].
    AcceptResumed,
    /// The pool's readiness changed: it takes connections from now on, or does not. Sent before its listeners stop.
    ReadinessChanged(Readiness),
    /// A new build of the program has taken the pool over, by an [`Upgrade`](crate::Upgrade): it accepts from now on, and the
    /// connections that can move follow.
    HandedOver {
        /// The process of the new build.
        pid: u32,
    },
    /// The new build died soon after [`Event::HandedOver`], and this process accepts again.
    TakenBack,
    /// The process before this one, from which it has taken the pool over, has no connections any more of pools that both have, or has died.
    ServesAlone,
    /// An alarm of [`Config::alarms`](crate::Config::alarms) was reached. Sent once, until the alarm is cleared.
    AlarmRaised {
        /// The alarm.
        alarm: Alarm,
        /// Connections at that moment.
        connections: usize,
    },
    /// The number of connections fell to [`Alarm::clear_at`] after [`Event::AlarmRaised`].
    AlarmCleared {
        /// The alarm.
        alarm: Alarm,
        /// Connections at that moment.
        connections: usize,
    },
    /// The admission policy panicked; the default policy decided about that connection. At most ten events per second are sent, all
    /// panics are counted.
    AdmissionPanicked {
        /// The panic's message.
        message: String,
    },
    /// A new generation is in force: every connection accepted from now on belongs to it.
    GenerationStarted(u32),
    /// The last connection of a retired generation ended.
    GenerationEnded(u32),
    /// User code panicked, which ended this connection and no other. At most ten events per second are sent, all panics are counted.
    ConnectionPanicked {
        /// The connection.
        id: ConnectionId,
        /// The peer's address; None for a Unix socket, and where the peer has gone.
        peer: Option<SocketAddr>,
        /// The panic's message.
        message: String,
    },
    /// A protocol reported something by [`Context::report`](crate::Context::report). At most ten events of each
    /// [kind](Report::kind) per second are sent, or 1,000 [records](Report::record).
    Reported {
        /// The connection.
        id: ConnectionId,
        /// The peer's address; None for a Unix socket, and where the peer has gone.
        peer: Option<SocketAddr>,
        /// The report.
        report: Report,
    },
    /// A job panicked; its connection gets [`JobError::Panicked`](crate::JobError::Panicked) and lives. At most ten events per second are sent.
    JobPanicked {
        /// The panic's message.
        message: String,
    },
    /// User code panicked in `connect_failed`, or in `save` or `restore`, whose connection goes on where it is. At most ten events per second are
    /// sent, all panics are counted.
    ServicePanicked {
        /// The panic's message.
        message: String,
    },
    /// A connection was ended by [`Pool::kill`](crate::Pool::kill).
    ConnectionKilled {
        /// The connection.
        id: ConnectionId,
        /// The peer's address; None for a Unix socket, and where the peer has gone.
        peer: Option<SocketAddr>,
    },
    /// A loop died, and its connections with it. It was replaced, unless the loop was not wanted any more.
    LoopReplaced {
        /// The loop's number.
        index: usize,
        /// The panic's message.
        reason: String,
    },
    /// A loop has not ended its turn for longer than [`Config::stuck_after`](crate::Config::stuck_after); its listeners moved to other loops.
    LoopStuck {
        /// The loop's number.
        index: usize,
        /// The time that the turn has lasted.
        since: Duration,
    },
    /// A loop that was stuck turns again.
    LoopRecovered {
        /// The loop's number.
        index: usize,
    },
    /// A loop could not be started: the other loops do its work.
    LoopNotStarted {
        /// The reason why the loop could not be started.
        reason: String,
    },
    /// A helper process died, and its connections with it. It was replaced, unless the process was not wanted any more.
    ProcessReplaced {
        /// The process's number in the pool.
        index: usize,
        /// The way in which the process ended.
        reason: String,
    },
    /// A connection's own process was ended by a signal that the pool did not send: a crash in foreign code, or a kill from elsewhere.
    ChildKilled {
        /// The connection.
        id: ConnectionId,
        /// The peer's address; None for a Unix socket.
        peer: Option<SocketAddr>,
        /// The signal's number.
        signal: i32,
    },
    /// A helper process could not be started: the other processes do its work.
    ProcessNotStarted {
        /// The reason why the process could not be started.
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
        /// The reason why the pool gave up.
        reason: String,
    },
}

/// Receives every [`Event`], on the thread on which it happened. It must be quick and must not block or call the methods of its pool.
pub trait Observer: Send + Sync + 'static {
    /// Called for each event.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}
