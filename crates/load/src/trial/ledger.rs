//! What the server knows of requests, for the clients to compare with: a request that the server began to read is to be answered,
//! one that crossed the server's end on its way is not.

use std::sync::atomic::{AtomicU64, Ordering};

/// Connections at once are far fewer, so that a slot's last one has ended when it is used again.
const SLOTS: usize = 256;

/// Requests of each connection and of all.
///
/// Relaxed atomics: a client looks when it has seen the server's end, which came after what it looks at.
pub(crate) struct Ledger {
    begun: [AtomicU64; SLOTS],
    all_begun: AtomicU64,
    all_done: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Ledger {
        let begun = std::array::from_fn(|_| AtomicU64::new(0));
        Ledger { begun, all_begun: AtomicU64::new(0), all_done: AtomicU64::new(0) }
    }
}

impl Ledger {
    fn slot(&self, connection: u64) -> &AtomicU64 {
        let place = usize::try_from(connection % SLOTS as u64).expect("less than the number of slots");
        &self.begun[place]
    }

    /// A client begins.
    pub(crate) fn open(&self, connection: u64) {
        self.slot(connection).store(0, Ordering::Relaxed);
    }

    /// The server saw this connection's requests up to the `number`th.
    pub(crate) fn begin(&self, connection: u64, number: u64) {
        let before = self.slot(connection).fetch_max(number, Ordering::Relaxed);
        self.all_begun.fetch_add(number.saturating_sub(before), Ordering::Relaxed);
    }

    /// One is answered.
    pub(crate) fn done(&self) {
        self.all_done.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of this connection's requests the server saw.
    pub(crate) fn begun(&self, connection: u64) -> u64 {
        self.slot(connection).load(Ordering::Relaxed)
    }

    /// Requests of all connections that the server has begun and not answered.
    pub(crate) fn under_way(&self) -> u64 {
        let done = self.all_done.load(Ordering::Relaxed);
        self.all_begun.load(Ordering::Relaxed).saturating_sub(done)
    }
}
