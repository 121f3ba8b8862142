//! WebSocket of the clients.

use crate::clients::{Cause, PATIENCE, Phase, Witness};
use sockdrawer::Peer;
use sockdrawer::layer::{Filtering, Progress, Refused, Watch, Watched};
use sockdrawer_websocket::{Carrier, CarrierFilter};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The layer around clients that report to a witness. A handshake that fails is a connect that fails.
pub(crate) struct Carried<W> {
    carrier: Carrier,
    witness: Arc<W>,
}

impl<W: Witness> Carried<W> {
    pub(crate) fn new(carrier: &Carrier, witness: &Arc<W>) -> Carried<W> {
        Carried { carrier: carrier.clone(), witness: witness.clone() }
    }
}

impl<W: Witness> Filtering for Carried<W> {
    type Filter = Watched<CarrierFilter, Opening<W>>;

    fn filter(&self, peer: &Peer) -> Watched<CarrierFilter, Opening<W>> {
        Watched::new(
            self.carrier.filter(peer),
            Opening { stage: Stage::Waits, witness: self.witness.clone(), cause: Cause::Early },
        )
    }

    fn handshake_timeout(&self) -> Duration {
        PATIENCE
    }

    fn needs_peer_address(&self) -> bool {
        self.carrier.needs_peer_address()
    }
}

/// The fate of one connection's WebSocket.
pub(crate) struct Opening<W: Witness> {
    stage: Stage,
    witness: Arc<W>,
    cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The layer waits: layers below shake hands, and tell of it themselves.
    Waits,
    Asked,
    Open,
}

impl<W: Witness> Watch<CarrierFilter> for Opening<W> {
    fn started(&mut self) {
        self.stage = Stage::Asked;
    }

    fn seen(&mut self, filter: &CarrierFilter, progress: Result<&Progress, &Refused>) {
        match progress {
            Ok(Progress::Established(_)) => self.stage = Stage::Open,
            Ok(Progress::PeerEnded) => {
                if let Some(code) = filter.peer_closed() {
                    self.witness.closed_with(code);
                }
            }
            Ok(_) => {}
            Err(refused) => {
                self.witness.unexpected(refused.to_string(), Instant::now());
                self.cause = Cause::Refused;
            }
        }
    }

    fn timed_out(&mut self) {
        self.cause = Cause::Late;
    }
}

impl<W: Witness> Drop for Opening<W> {
    fn drop(&mut self) {
        if self.stage == Stage::Asked {
            self.witness.failed(Phase::Connect, self.cause);
        }
    }
}
