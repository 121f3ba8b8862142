//! Way by which a pool hears that one of its connections has gone.

use crate::connect::Target;
use crate::engine::JobId;
use crate::shared::Shared;
use crate::stats::Reason;
use std::fmt;
use std::sync::{Arc, Weak};

/// Tells a pool that a connection has gone: see [`Connect::watch`](crate::Connect::watch). Clones tell of the same connection.
#[derive(Clone)]
pub struct Gone {
    pool: Weak<dyn Hears>,
    connection: JobId,
}

/// A pool, whatever its connections are.
trait Hears: Send + Sync {
    fn hear(&self, connection: JobId, reason: Reason);
}

impl<K: Target, C: Send + 'static> Hears for Shared<K, C> {
    fn hear(&self, connection: JobId, reason: Reason) {
        self.gone(connection, reason);
    }
}

impl Gone {
    pub(crate) fn new<K: Target, C: Send + 'static>(pool: &Arc<Shared<K, C>>, connection: JobId) -> Self {
        let pool: Weak<Shared<K, C>> = Arc::downgrade(pool);
        Gone { pool, connection }
    }

    /// Tells that the connection has gone, or is of no use any more. If it is free, it is closed; if it is leased, it is closed when it comes
    /// back; if it is being checked or reset, it is not leased afterwards. Of a connection that is not the pool's any more nothing is told, and
    /// after the first time nothing more.
    ///
    /// It waits for the pool's lock alone: what follows, as a connect in the place of the connection, is done by a thread of the pool's.
    pub fn tell(&self, reason: Reason) {
        if let Some(pool) = self.pool.upgrade() {
            pool.hear(self.connection, reason);
        }
    }
}

impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gone").field(&self.connection).finish()
    }
}
