//! TLS of the clients.

use crate::clients::{Cause, PATIENCE, Phase, Witness};
use sockdrawer::Peer;
use sockdrawer::layer::{Filtering, Progress, Refused, Watch, Watched};
use sockdrawer_tls::{Client, TlsFilter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// TLS between the clients and the server. A handshake that fails is a connect that fails.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Client,
    why: Arc<Mutex<Option<String>>>,
}

impl Tls {
    /// Creates the TLS of this client. The timeout of a handshake is [`PATIENCE`].
    pub fn new(client: Client) -> Tls {
        Tls { client, why: Arc::default() }
    }

    /// Returns the first reason why TLS failed, in words; None: it did not.
    pub fn refused(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the layer around clients that report to this witness.
    pub(crate) fn layer<W: Witness>(&self, witness: &Arc<W>) -> Secured<W> {
        Secured { tls: self.clone(), witness: witness.clone() }
    }

    fn note(&self, refused: &Refused) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| refused.to_string());
    }
}

/// The layer of [`Tls::layer`].
pub(crate) struct Secured<W> {
    tls: Tls,
    witness: Arc<W>,
}

impl<W: Witness> Filtering for Secured<W> {
    type Filter = Watched<TlsFilter, Shaking<W>>;

    fn filter(&self, peer: &Peer) -> Watched<TlsFilter, Shaking<W>> {
        let (tls, handshake) = (self.tls.clone(), Some(self.witness.clone()));
        Watched::new(self.tls.client.filter(peer), Shaking { tls, handshake, cause: Cause::Early })
    }

    fn handshake_timeout(&self) -> Duration {
        PATIENCE
    }

    fn needs_peer_address(&self) -> bool {
        self.tls.client.needs_peer_address()
    }
}

/// State of the handshake of a connection's TLS.
pub(crate) struct Shaking<W: Witness> {
    tls: Tls,
    /// Witness that is told when the handshake does not end well: the clients inside are opened after it. None: it is over.
    handshake: Option<Arc<W>>,
    cause: Cause,
}

impl<W: Witness> Watch<TlsFilter> for Shaking<W> {
    fn seen(&mut self, _filter: &TlsFilter, progress: Result<&Progress, &Refused>) {
        match progress {
            Ok(Progress::Established(_)) => self.handshake = None,
            Ok(_) => {}
            Err(refused) => {
                self.tls.note(refused);
                self.cause = Cause::Tls;
            }
        }
    }

    fn timed_out(&mut self) {
        self.cause = Cause::Late;
    }
}

impl<W: Witness> Drop for Shaking<W> {
    fn drop(&mut self) {
        if let Some(witness) = self.handshake.take() {
            witness.failed(Phase::Connect, self.cause);
        }
    }
}
