//! The layer of the clients, which counts their handshakes.

use super::Tls;
use crate::workload::Handshakes;
use sockdrawer::layer::{Filtering, Progress, Refused};
use sockdrawer::{Error, Peer};
use sockdrawer_tls::{Client, HandshakeDone, Watch, Watched};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What came of the handshakes of this process. Its loops share it: a handshake costs far more than the lock.
#[derive(Debug)]
pub(crate) struct Ledger {
    timeout: Duration,
    /// Those that are done, well or not, and counted. No other memory depends on it but `recent`, which has a lock.
    over: AtomicU64,
    /// What ends from now on was cut off by this side.
    ending: AtomicBool,
    /// Since it was taken before.
    recent: Mutex<Handshakes>,
}

impl Ledger {
    pub(crate) fn new(timeout: Duration) -> Arc<Ledger> {
        Arc::new(Ledger { timeout, over: AtomicU64::new(0), ending: AtomicBool::new(false), recent: Mutex::default() })
    }

    /// Handshakes that are over and counted.
    pub(crate) fn over(&self) -> u64 {
        self.over.load(Ordering::Acquire)
    }

    /// What ends from now on, ends because the run does.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Handshakes {
        std::mem::take(&mut *self.recent())
    }

    fn recent(&self) -> MutexGuard<'_, Handshakes> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, done: &HandshakeDone<'_>) {
        match done.outcome {
            Ok(handshake) => self.recent().succeeded(handshake, done.took, done.cpu),
            // The reason says that the connection ended, whichever side ended it.
            Err(_) if self.ending.load(Ordering::Relaxed) => self.recent().failed("it was under way when the run ended"),
            Err(refused) => self.recent().failed(&refused.to_string()),
        }
        self.over.fetch_add(1, Ordering::Release);
    }
}

/// TLS around the clients of a run.
pub(crate) struct Secured {
    client: Client,
    ledger: Arc<Ledger>,
}

impl Secured {
    pub(crate) fn new(tls: &Tls, ledger: &Arc<Ledger>) -> Result<Secured, Error> {
        let told = ledger.clone();
        let options = tls.options().map(|options| options.handshake_timeout(ledger.timeout).observe(move |done| told.done(done)));
        let client = options.and_then(sockdrawer_tls::ClientOptions::build);
        let client = client.map_err(|error| Error::Invalid { setting: "tls", reason: error.to_string() })?;
        Ok(Secured { client, ledger: ledger.clone() })
    }
}

impl Filtering for Secured {
    type Filter = Watched<Breaks>;

    fn filter(&self, peer: &Peer) -> Watched<Breaks> {
        self.client.watched(peer, Breaks { is_established: false, ledger: self.ledger.clone() })
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

impl Watch for Breaks {
    fn seen(&mut self, progress: Result<&Progress, &Refused>) {
        match progress {
            Ok(Progress::Established(_)) => self.is_established = true,
            Err(refused) if self.is_established => self.ledger.recent().broke(&refused.to_string()),
            _ => {}
        }
    }
}
