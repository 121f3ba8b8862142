//! TLS of the clients.

use crate::clients::{Cause, PATIENCE, Phase, Witness};
use sockdrawer::layer::{Filter, Filtering, Progress, Refused};
use sockdrawer::{Input, JobResult, Output, Peer};
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
    /// By this client. The timeout of a handshake is [`PATIENCE`].
    pub fn new(client: Client) -> Tls {
        Tls { client, why: Arc::default() }
    }

    /// Why TLS failed first, in words; None: it did not.
    pub fn refused(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The layer around clients that report to this witness.
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
    type Filter = Shaking<W>;

    fn filter(&self, peer: &Peer) -> Shaking<W> {
        Shaking {
            filter: self.tls.client.filter(peer),
            tls: self.tls.clone(),
            handshake: Some(self.witness.clone()),
            cause: Cause::Early,
        }
    }

    fn handshake_timeout(&self) -> Duration {
        PATIENCE
    }

    fn needs_peer_address(&self) -> bool {
        self.tls.client.needs_peer_address()
    }
}

/// TLS of one connection.
pub(crate) struct Shaking<W: Witness> {
    filter: TlsFilter,
    tls: Tls,
    /// Is told when the handshake does not end well: the clients inside are opened after it. None: it is over.
    handshake: Option<Arc<W>>,
    cause: Cause,
}

impl<W: Witness> Shaking<W> {
    fn seen(&mut self, progress: &Result<Progress, Refused>) {
        match progress {
            Ok(Progress::Established(_)) => self.handshake = None,
            Ok(_) => {}
            Err(refused) => {
                self.tls.note(refused);
                self.cause = Cause::Tls;
            }
        }
    }
}

impl<W: Witness> Drop for Shaking<W> {
    fn drop(&mut self) {
        if let Some(witness) = self.handshake.take() {
            witness.failed(Phase::Connect, self.cause);
        }
    }
}

impl<W: Witness> Filter for Shaking<W> {
    fn start(&mut self, wire: &mut Output) {
        self.filter.start(wire);
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        let progress = self.filter.decode(wire, plain, back);
        self.seen(&progress);
        progress
    }

    fn job_done(&mut self, result: JobResult, back: &mut Output) -> Result<Progress, Refused> {
        self.filter.job_done(result, back)
    }

    fn timed_out(&mut self) {
        self.filter.timed_out();
        self.cause = Cause::Late;
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        self.filter.encode(plain, wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        self.filter.goodbye(wire);
    }

    fn truncated(&mut self) -> Result<(), Refused> {
        self.filter.truncated().inspect_err(|refused| self.tls.note(refused))
    }
}
