//! The handshakes of this process, counted. Its loops share the ledger: a handshake costs far more than the lock.

use crate::workload::{Handshakes, Layers, Recent, WebSockets};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The reason of a handshake that this side cut off.
pub(crate) const RUN_ENDED: &str = "it was under way when the run ended";

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) timeout: Duration,
    layers: Layers,
    /// Connections whose handshakes are over, well or not, and counted. No other memory depends on it but `recent`, which has a lock.
    over: AtomicU64,
    /// This side cuts connections off from now on.
    ending: AtomicBool,
    /// Handshakes since they were taken before.
    recent: Mutex<Recent>,
}

impl Ledger {
    pub(crate) fn new(timeout: Duration, layers: Layers) -> Arc<Ledger> {
        let (over, ending) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Ledger { timeout, layers, over, ending, recent: Mutex::new(Recent::of(layers)) })
    }

    /// Returns the number of connections whose handshakes are over and counted.
    pub(crate) fn over(&self) -> u64 {
        self.over.load(Ordering::Acquire)
    }

    /// Ends all handshakes, with the run.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Recent {
        std::mem::replace(&mut *self.recent(), Recent::of(self.layers))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something that is no end of a handshake.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Recent)) {
        note(&mut self.recent());
    }

    /// Notes the end of a handshake of TLS.
    pub(crate) fn secured(&self, is_established: bool, note: impl FnOnce(&mut Handshakes)) {
        note(self.recent().tls());
        if !(is_established && self.layers.websocket) {
            self.over.fetch_add(1, Ordering::Release);
        }
    }

    /// Notes the end of a handshake of WebSocket.
    pub(crate) fn opened(&self, note: impl FnOnce(&mut WebSockets)) {
        note(self.recent().websocket());
        self.over.fetch_add(1, Ordering::Release);
    }
}
