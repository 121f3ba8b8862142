//! Counts and measurements of a loop. Loops share nothing while they measure; tallies are added up when they are asked for.

use super::errors::{Errors, Seen};
use super::handshakes::Handshakes;
use super::http::figures::Figures;
use super::websockets::{Recent, WebSockets};
use crate::errno::errno_name;
use crate::latency::{Latency, Percentiles};
use crate::moment::Ahead;
use crate::numbers::float;
use serde::{Deserialize, Serialize};
use sockdrawer_catalog::meter::Phase;
use std::collections::BTreeMap;
use std::time::Instant;

/// Numbers of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// Connections that stood.
    pub established: u64,
    /// Connects that failed.
    pub failed: u64,
    /// Connections that the peer or the network ended unasked.
    pub lost: u64,
    /// Connections that this side ended.
    pub closed: u64,
    /// Operations that ended well.
    pub operations_ok: u64,
    /// Operations that did not.
    pub operations_failed: u64,
}

impl Numbers {
    pub(crate) fn add(&mut self, other: &Numbers) {
        self.established += other.established;
        self.failed += other.failed;
        self.lost += other.lost;
        self.closed += other.closed;
        self.operations_ok += other.operations_ok;
        self.operations_failed += other.operations_failed;
    }
}

/// Counts and measurements of a loop, or of all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) numbers: Numbers,
    pub(crate) connect: Latency,
    pub(crate) first_byte: Latency,
    /// Times of operations from when they were due.
    pub(crate) operation: Latency,
    /// Times from when they began, of operations that began later than they were due: the others took as long as `operation` says.
    pub(crate) late_begun: Latency,
    /// Times from when they were due, of these operations that began later.
    pub(crate) late_due: Latency,
    /// Times from when a question was due until this side came to ask it.
    pub(crate) lag: Latency,
    pub(crate) errors: BTreeMap<(Phase, Option<i32>), Seen>,
    /// Failed operations that this side cut off at the end of the run.
    pub(crate) unfinished: u64,
    /// Messages that were written, and acks that came. Workload `acks` only.
    pub(crate) written: u64,
    pub(crate) acks: u64,
    /// Figures of the workload `http` only.
    pub(crate) http: Option<Box<Figures>>,
    /// Handshakes of TLS, where the clients speak it.
    pub(crate) tls: Option<Box<Handshakes>>,
    /// WebSockets, where the clients speak it.
    pub(crate) websocket: Option<Box<WebSockets>>,
    /// Moment at which the last operation ended well.
    #[serde(with = "crate::moment")]
    pub(crate) last: Option<Instant>,
    /// Moment at which the last operation ended, well or not.
    #[serde(with = "crate::moment")]
    pub(crate) ended: Option<Instant>,
    /// Moment at which the last connection was established.
    #[serde(with = "crate::moment")]
    pub(crate) connected: Option<Instant>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.numbers.add(&other.numbers);
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.operation.add(&other.operation);
        self.late_begun.add(&other.late_begun);
        self.late_due.add(&other.late_due);
        self.lag.add(&other.lag);
        for (error, seen) in &other.errors {
            self.errors.entry(*error).or_default().add(seen);
        }
        self.unfinished += other.unfinished;
        self.written += other.written;
        self.acks += other.acks;
        if let Some(http) = &other.http {
            self.http().add(http);
        }
        if let Some(tls) = &other.tls {
            self.tls.get_or_insert_default().add(tls);
        }
        if let Some(websocket) = &other.websocket {
            self.websocket.get_or_insert_default().add(websocket);
        }
        self.last = self.last.max(other.last);
        self.ended = self.ended.max(other.ended);
        self.connected = self.connected.max(other.connected);
    }

    /// Adds handshakes: the connections whose handshake failed were not established.
    pub(crate) fn add_handshakes(&mut self, recent: Recent) {
        if let Some(tls) = &recent.tls {
            self.numbers.failed += tls.counts.failed;
            self.tls.get_or_insert_default().add(tls);
        }
        if let Some(websocket) = &recent.websocket {
            self.numbers.failed += websocket.handshakes.counts.failed;
            self.websocket.get_or_insert_default().add(websocket);
        }
    }

    /// Makes moments that were noted by another clock those of this one.
    pub(crate) fn correct(&mut self, ahead: Ahead) {
        ahead.correct(&mut self.last);
        ahead.correct(&mut self.ended);
        ahead.correct(&mut self.connected);
        if let Some(http) = &mut self.http {
            ahead.correct(&mut http.first_due);
        }
        let of_tls = self.tls.iter_mut().flat_map(|tls| tls.seen());
        let of_websocket = self.websocket.iter_mut().flat_map(|websocket| websocket.handshakes.seen());
        for seen in self.errors.values_mut().chain(of_tls).chain(of_websocket) {
            ahead.correct(&mut seen.first);
            ahead.correct(&mut seen.last);
        }
    }

    /// Returns the times of operations from when they began, as tools measure that forget how late they ask.
    pub(crate) fn uncorrected(&self) -> Latency {
        let mut all = self.operation.clone();
        all.subtract(&self.late_due);
        all.add(&self.late_begun);
        all
    }

    /// Returns the latencies that were measured. The first byte is that of each request, of the workload `http`.
    pub(crate) fn latencies(&self) -> Latencies {
        let first_byte = match &self.http {
            Some(http) => Some(http.first_byte.percentiles()),
            None => (self.first_byte.count() > 0).then(|| self.first_byte.percentiles()),
        };
        Latencies {
            connect: self.connect.percentiles(),
            handshake: self.tls.as_ref().map(|tls| tls.took.percentiles()),
            websocket: self.websocket.as_ref().map(|websocket| websocket.handshakes.took.percentiles()),
            first_byte,
            operation: self.operation.percentiles(),
            uncorrected: self.uncorrected().percentiles(),
            lag: self.lag.percentiles(),
        }
    }

    /// Returns the errors by kind: how often each came, and when, from the start of the run.
    pub(crate) fn errors(&self, start: Instant) -> Vec<Errors> {
        let errors = self.errors.iter();
        let errors = errors.map(|((phase, errno), seen)| seen.errors(phase.name(), error_name(*phase, *errno), start));
        let errors = errors.chain(self.tls.iter().flat_map(|tls| tls.errors(["handshake", "tls"], start)));
        let errors = errors
            .chain(self.websocket.iter().flat_map(|websocket| websocket.handshakes.errors(["upgrade", "websocket"], start)));
        let unfinished = (self.unfinished > 0).then(|| Errors {
            phase: "unfinished".into(),
            errno: "CUT_OFF".to_owned(),
            count: self.unfinished,
            first: None,
            last: None,
        });
        errors.chain(unfinished).collect()
    }

    /// Returns the measurements of clients of `http` besides those of every client.
    pub(crate) fn http(&mut self) -> &mut Figures {
        self.http.get_or_insert_default()
    }
}

/// Operations of a run: each one begun is in one of the two counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Operations {
    /// Operations that ended well.
    pub ok: u64,
    /// Operations that did not.
    pub failed: u64,
    /// Operations that ended well, per second.
    pub per_second: f64,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latencies {
    /// Time from the start of a connect until the connection was established.
    pub connect: Percentiles,
    /// Time from the start of a handshake of TLS until it was established; only where the clients speak TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Percentiles>,
    /// Time from the request for a WebSocket until it was open; only where the clients speak it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<Percentiles>,
    /// Time from a question until the first byte of its answer: of each connection the first one, of the workload `http` each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Percentiles>,
    /// Response time: from when the question was due, or the connect began where an operation is a connection, to the whole answer.
    pub operation: Percentiles,
    /// Service time: from when the question was sent, as tools measure that forget how long it had to wait for its turn.
    pub uncorrected: Percentiles,
    /// Send delay: how late this side itself was to ask what was due.
    pub lag: Percentiles,
}

/// A run that is over, as results of one workload alone need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Maximum of connections that there were to be at once.
    pub(crate) connections: u64,
    /// Maximum of operations that there were to be.
    pub(crate) operations: Option<u64>,
    pub(crate) seconds: f64,
    /// CPU seconds of client and server.
    pub(crate) cpu: [Option<f64>; 2],
    /// Connects begun, and when no more were.
    pub(crate) connects: u64,
    pub(crate) at: Instant,
}

impl Ended {
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { float(count) / self.seconds } else { 0.0 }
    }
}

/// Returns the name of an error in a report: that of the errno, or what happened where no errno tells it.
fn error_name(phase: Phase, errno: Option<i32>) -> String {
    match (phase, errno) {
        (Phase::Status, Some(status)) => status.to_string(),
        (_, Some(errno)) => errno_name(errno).map_or_else(|| format!("errno {errno}"), str::to_owned),
        (Phase::Verify, None) => "WRONG_BYTES".to_owned(),
        (Phase::Format, None) => "NO_HTTP".to_owned(),
        (Phase::Client, None) => "CLIENT_BUG".to_owned(),
        (_, None) => "EOF".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unnamed_errno_is_told_by_its_number() {
        assert_eq!(error_name(Phase::Answer, Some(9999)), "errno 9999");
    }
}
