//! Way by which a pool hears that one of its connections has gone.

use crate::connect::Target;
use crate::engine::JobId;
use crate::shared::Shared;
use crate::stats::Reason;
use std::fmt;
use std::sync::Arc;

/// Tells a pool that a connection has gone: see [`Connect::watch`](crate::Connect::watch). Clones tell of one connection.
#[derive(Clone)]
pub struct Gone {
    connection: JobId,
    told: Arc<dyn Fn(Reason) + Send + Sync>,
}

impl Gone {
    pub(crate) fn new<K: Target, C: Send + 'static>(pool: &Arc<Shared<K, C>>, connection: JobId) -> Self {
        let pool = Arc::downgrade(pool);
        let told = move |reason| {
            if let Some(pool) = pool.upgrade() {
                pool.gone(connection, reason);
            }
        };
        Gone { connection, told: Arc::new(told) }
    }

    /// Tells that the connection has gone, or is of no use any more. If it is free, it is closed; if it is leased, it is closed when it comes
    /// back; if it is being checked or reset, it is not leased afterwards. Of a connection that is not the pool's any more nothing is told, and
    /// after the first time nothing more.
    ///
    /// It waits for the pool's lock alone: what follows, as a connect in the place of the connection, is done by a thread of the pool's.
    pub fn tell(&self, reason: Reason) {
        (self.told)(reason);
    }
}

impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gone").field(&self.connection).finish()
    }
}
