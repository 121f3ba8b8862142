//! Counts of WebSockets, and all handshakes of clients.

use super::handshakes::{HandshakeCounts, Handshakes};
use crate::numbers::{float, per_second, thousands};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// WebSockets of a process, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WebSockets {
    pub(crate) handshakes: Handshakes,
    /// Connections that the server closed, by its code.
    closed: BTreeMap<u16, u64>,
}

impl WebSockets {
    /// Counts a WebSocket that the server closed.
    pub(crate) fn closed(&mut self, code: u16) {
        *self.closed.entry(code).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &WebSockets) {
        self.handshakes.add(&other.handshakes);
        other.closed.iter().for_each(|(code, count)| *self.closed.entry(*code).or_default() += count);
    }

    pub(crate) fn report(&self, seconds: f64) -> WebSocketReport {
        let HandshakeCounts { full: opened, failed, .. } = self.handshakes.counts;
        let per_second = if seconds > 0.0 { float(opened) / seconds } else { 0.0 };
        let closed = self.closed.iter().map(|(code, connections)| ClosedWith { code: *code, connections: *connections });
        WebSocketReport { opened, failed, per_second, closed: closed.collect() }
    }
}

/// The layers that shake hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers {
    pub(crate) tls: bool,
    pub(crate) websocket: bool,
}

/// Handshakes of each layer that there is.
#[derive(Debug)]
pub(crate) struct Recent {
    pub(crate) tls: Option<Handshakes>,
    pub(crate) websocket: Option<WebSockets>,
}

impl Recent {
    pub(crate) fn of(layers: Layers) -> Recent {
        Recent { tls: layers.tls.then(Handshakes::default), websocket: layers.websocket.then(WebSockets::default) }
    }

    pub(crate) fn tls(&mut self) -> &mut Handshakes {
        self.tls.get_or_insert_default()
    }

    pub(crate) fn websocket(&mut self) -> &mut WebSockets {
        self.websocket.get_or_insert_default()
    }
}

/// WebSockets of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebSocketReport {
    /// Handshakes that ended well: the connections that were established.
    pub opened: u64,
    /// Handshakes that failed, or were refused; the connections are among those that failed.
    pub failed: u64,
    /// Handshakes that ended well, per second.
    pub per_second: f64,
    /// Connections that the server closed by a close frame, by its code, the lowest first.
    pub closed: Vec<ClosedWith>,
}

/// Connections that were closed with one code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClosedWith {
    /// The code; 1005: the close frame had none.
    pub code: u16,
    /// Connections.
    pub connections: u64,
}

/// Writes the report for people.
impl fmt::Display for WebSocketReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [opened, failed] = [self.opened, self.failed].map(thousands);
        write!(f, "WebSockets   {opened} opened, {failed} failed, {}/s", per_second(self.per_second))?;
        for (nth, ClosedWith { code, connections }) in self.closed.iter().enumerate() {
            let what = if nth == 0 { "; closed by the server: " } else { ", " };
            write!(f, "{what}{} with {code}", thousands(*connections))?;
        }
        Ok(())
    }
}
