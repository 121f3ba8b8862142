//! Errors: of which kind, how many and when.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Instant;

/// Errors of one kind: how many, and when the first and the last one came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) count: u64,
    #[serde(with = "crate::moment")]
    pub(crate) first: Option<Instant>,
    #[serde(with = "crate::moment")]
    pub(crate) last: Option<Instant>,
}

impl Seen {
    pub(crate) fn now() -> Seen {
        let now = Some(Instant::now());
        Seen { count: 1, first: now, last: now }
    }

    /// Returns the errors of this kind, by the clock of a run that began at `start`.
    pub(crate) fn errors(&self, phase: &'static str, errno: String, start: Instant) -> Errors {
        let since = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(start).as_secs_f64());
        Errors { phase: phase.into(), errno, count: self.count, first: since(self.first), last: since(self.last) }
    }

    pub(crate) fn add(&mut self, other: &Seen) {
        self.count += other.count;
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
    }
}

/// Errors of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Errors {
    /// Thing that was waited for: `connect`, `handshake` (of TLS), `send`, `answer`, `verify` (the right bytes), `status` (2xx or 3xx), `length`
    /// (that of the first body), `end` (of the stream), `closed` (nothing), `unused` (nothing yet: the connection was new); `tls` (after the
    /// handshake: what ended the connection), `upgrade` (the handshake of a WebSocket), `websocket` (after it: what the server did wrong); or
    /// `unfinished`: the operation was under way when the run ended, or was stopped, and did not end soon after.
    pub phase: Cow<'static, str>,
    /// The errno's name, or the status that came, `NO_HTTP`, `EOF` when the peer ended too early, `WRONG_BYTES` when it sent something else,
    /// `CUT_OFF` when this side ended the connection; of the phases `handshake`, `tls`, `upgrade` and `websocket` the reason in words.
    pub errno: String,
    /// Number of such errors.
    pub count: u64,
    /// Seconds from the begin of the run to the first one; null where that is not kept.
    pub first: Option<f64>,
    /// Seconds from the begin of the run to the last one; null where that is not kept.
    pub last: Option<f64>,
}
