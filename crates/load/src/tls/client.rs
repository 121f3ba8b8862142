//! The layer of the clients, which counts their handshakes.

use super::Tls;
use crate::ledger::{Ledger, RUN_ENDED};
use sockdrawer::layer::{Filtering, Progress, Refused, Watch, Watched};
use sockdrawer::{Error, Peer};
use sockdrawer_tls::{Client, HandshakeDone, TlsFilter};
use std::sync::Arc;
use std::time::Duration;

fn done(ledger: &Ledger, done: &HandshakeDone<'_>) {
    ledger.secured(done.outcome.is_ok(), |tls| match done.outcome {
        Ok(handshake) => tls.succeeded(handshake, done.took, done.cpu),
        // The reason says that the connection ended, whichever side ended it.
        Err(_) if ledger.is_ending() => tls.failed(RUN_ENDED),
        Err(refused) => tls.failed(&refused.to_string()),
    });
}

/// TLS around the clients of a run.
pub(crate) struct Secured {
    client: Client,
    ledger: Arc<Ledger>,
}

impl Secured {
    pub(crate) fn new(tls: &Tls, ledger: &Arc<Ledger>) -> Result<Secured, Error> {
        let told = ledger.clone();
        let options =
            tls.options().map(|options| options.handshake_timeout(ledger.timeout).observe(move |over| done(&told, over)));
        let client = options.and_then(sockdrawer_tls::ClientOptions::build);
        let client = client.map_err(|error| Error::Invalid { setting: "tls", reason: error.to_string() })?;
        Ok(Secured { client, ledger: ledger.clone() })
    }
}

impl Filtering for Secured {
    type Filter = Watched<TlsFilter, Breaks>;

    fn filter(&self, peer: &Peer) -> Watched<TlsFilter, Breaks> {
        Watched::new(self.client.filter(peer), Breaks { is_established: false, ledger: self.ledger.clone() })
    }

    fn handshake_timeout(&self) -> Duration {
        self.client.handshake_timeout()
    }

    fn needs_peer_address(&self) -> bool {
        self.client.needs_peer_address()
    }
}

/// Counts what breaks a connection after its handshake: the clients inside see only that it ended.
pub(crate) struct Breaks {
    is_established: bool,
    ledger: Arc<Ledger>,
}

impl Watch<TlsFilter> for Breaks {
    fn seen(&mut self, _filter: &TlsFilter, progress: Result<&Progress, &Refused>) {
        match progress {
            Ok(Progress::Established(_)) => self.is_established = true,
            Err(refused) if self.is_established => self.ledger.note(|recent| recent.tls().broke(&refused.to_string())),
            _ => {}
        }
    }
}
