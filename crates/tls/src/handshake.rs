//! What both ends agreed on.

use rustix::time::{ClockId, clock_gettime};
use sockdrawer::layer::{HandshakeKind, Refused};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What came of a handshake.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handshake {
    /// The version of TLS.
    pub protocol: Protocol,
    /// Whether it was resumed.
    pub kind: HandshakeKind,
    /// The name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub suite: String,
    /// At a server, the name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// The application's protocol (ALPN), such as `h2`; None where none was agreed on.
    pub alpn: Option<Vec<u8>>,
    /// The peer's certificates as DER, its own first; empty where it sent none.
    pub peer_certificates: Vec<Vec<u8>>,
}

/// Certificates are counted, not printed.
impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("protocol", &self.protocol)
            .field("kind", &self.kind)
            .field("suite", &self.suite)
            .field("server_name", &self.server_name)
            .field("alpn", &self.alpn.as_deref().map(String::from_utf8_lossy))
            .field("peer_certificates", &self.peer_certificates.len())
            .finish()
    }
}

/// The version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Protocol {
    /// TLS 1.2, RFC 5246.
    Tls12,
    /// TLS 1.3, RFC 8446.
    Tls13,
}

/// A handshake that is over: what an observer is told.
#[derive(Debug)]
#[non_exhaustive]
pub struct HandshakeDone<'h> {
    /// What was agreed on, or why nothing was.
    pub outcome: Result<&'h Handshake, &'h Refused>,
    /// The time since the connection was there.
    pub took: Duration,
    /// The CPU time that this end spent on it.
    pub cpu: Duration,
}

/// Is told of each handshake, on the thread that ends it: it must be quick.
pub(crate) type Observer = Arc<dyn Fn(&HandshakeDone<'_>) + Send + Sync>;

/// The CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
