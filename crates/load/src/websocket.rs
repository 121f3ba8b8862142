//! WebSocket between the clients and the server: what a plan says of it, and the layer of the clients, which counts its handshakes and ends.

use crate::ledger::{Ledger, RUN_ENDED};
use serde::{Deserialize, Serialize};
use sockdrawer::layer::{Filtering, Progress, Refused, Watch, Watched};
use sockdrawer::{Error, Peer};
use sockdrawer_websocket::{Carrier, CarrierFilter};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The clients speak WebSocket: what each sends at once is a message, and so is an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSocket {
    /// The field `Host` of the request.
    pub host: String,
    /// The path that is asked for.
    pub path: String,
    /// More fields of the request, such as `Origin: https://example.org`.
    pub fields: Vec<String>,
    /// The subprotocols that are offered, the best first.
    pub subprotocols: Vec<String>,
    /// Messages that are UTF-8 go as text.
    pub text: bool,
}

impl WebSocket {
    /// Returns the carrier of clients that speak it.
    ///
    /// # Errors
    /// When host and path make no URL.
    pub fn carrier(&self) -> Result<Carrier, Error> {
        let url = format!("ws://{}{}", self.host, self.path);
        let reason = || format!("{url} is no URL of a WebSocket");
        let carrier = Carrier::client(&url).ok_or_else(|| Error::Invalid { setting: "websocket", reason: reason() })?;
        let carrier = if self.text { carrier.text() } else { carrier };
        let carrier = self.subprotocols.iter().fold(carrier, Carrier::subprotocol);
        let fields = self.fields.iter().filter_map(|field| field.split_once(':'));
        Ok(fields.fold(carrier, |carrier, (name, value)| carrier.field(name, value.trim())))
    }

    /// Returns the layer of the clients.
    pub(crate) fn layer(&self, ledger: &Arc<Ledger>) -> Result<Carried, Error> {
        Ok(Carried { carrier: self.carrier()?, ledger: ledger.clone() })
    }
}

/// WebSocket around the clients of a run.
pub(crate) struct Carried {
    carrier: Carrier,
    ledger: Arc<Ledger>,
}

impl Filtering for Carried {
    type Filter = Watched<CarrierFilter, Opens>;

    fn filter(&self, peer: &Peer) -> Watched<CarrierFilter, Opens> {
        Watched::new(self.carrier.filter(peer), Opens { reached: Reached::Waits, ledger: self.ledger.clone() })
    }

    fn handshake_timeout(&self) -> Duration {
        self.ledger.timeout
    }

    fn needs_peer_address(&self) -> bool {
        self.carrier.needs_peer_address()
    }
}

/// Counts what comes of one connection.
pub(crate) struct Opens {
    reached: Reached,
    ledger: Arc<Ledger>,
}

enum Reached {
    /// The layer waits: layers below shake hands.
    Waits,
    Asked(Instant),
    Open,
    Over,
}

impl Opens {
    fn failed(&mut self, why: &str) {
        if let Reached::Asked(_) = std::mem::replace(&mut self.reached, Reached::Over) {
            let why = if self.ledger.is_ending() { RUN_ENDED } else { why };
            self.ledger.opened(|websockets| websockets.handshakes.failed(why));
        }
    }
}

impl Watch<CarrierFilter> for Opens {
    fn started(&mut self) {
        self.reached = Reached::Asked(Instant::now());
    }

    fn seen(&mut self, filter: &CarrierFilter, progress: Result<&Progress, &Refused>) {
        match (progress, &self.reached) {
            (Ok(Progress::Established(_)), Reached::Asked(asked)) => {
                let took = asked.elapsed();
                self.ledger.opened(|websockets| websockets.handshakes.opened(took));
                self.reached = Reached::Open;
            }
            (Ok(Progress::PeerEnded), Reached::Open) => {
                if let Some(code) = filter.peer_closed() {
                    self.ledger.note(|recent| recent.websocket().closed(code));
                }
            }
            (Err(refused), Reached::Open) => self.ledger.note(|recent| recent.websocket().handshakes.broke(&refused.to_string())),
            (Err(refused), _) => self.failed(&refused.to_string()),
            _ => {}
        }
    }

    fn timed_out(&mut self) {
        self.failed("the handshake did not end in time");
    }
}

impl Drop for Opens {
    fn drop(&mut self) {
        self.failed("the connection ended in the WebSocket handshake");
    }
}
