//! Handshakes: what both ends agreed on.

use rustix::time::{ClockId, clock_gettime};
use sockdrawer::layer::{HandshakeKind, Refused};
use sockdrawer::{CannotRestore, Saved, Saver};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Outcome of a handshake that succeeded.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handshake {
    /// The version of TLS.
    pub protocol: Protocol,
    /// Kind of the handshake: full or resumed.
    pub kind: HandshakeKind,
    /// The name of the cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub suite: String,
    /// Name that the client asked for (SNI), at a server.
    pub server_name: Option<String>,
    /// The application's protocol (ALPN), such as `h2`; None where none was agreed on.
    pub alpn: Option<Vec<u8>>,
    /// The peer's certificates as DER, its own first; empty where it sent none.
    pub peer_certificates: Vec<Vec<u8>>,
}

impl Handshake {
    pub(crate) fn save(&self, to: &mut Saver) {
        let Handshake { protocol, kind, suite, server_name, alpn, peer_certificates } = self;
        to.u64((*protocol == Protocol::Tls13).into());
        to.u64((*kind == HandshakeKind::Resumed).into());
        to.bytes(suite.as_bytes());
        for optional in [server_name.as_ref().map(String::as_bytes), alpn.as_deref()] {
            to.u64(optional.is_some().into());
            to.bytes(optional.unwrap_or_default());
        }
        to.u64(peer_certificates.len() as u64);
        peer_certificates.iter().for_each(|certificate| to.bytes(certificate));
    }

    pub(crate) fn restore(from: &mut Saved<'_>) -> Result<Handshake, CannotRestore> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| CannotRestore::because("a name of the saved TLS handshake is no text"))
        };
        let protocol = if from.u64()? == 1 { Protocol::Tls13 } else { Protocol::Tls12 };
        let kind = if from.u64()? == 1 { HandshakeKind::Resumed } else { HandshakeKind::Full };
        let suite = text(from.bytes()?)?;
        let mut optional = || Ok((from.u64()? == 1, from.bytes()?));
        let (server_name, alpn) = (optional()?, optional()?);
        let server_name = server_name.0.then(|| text(server_name.1)).transpose()?;
        let alpn = alpn.0.then(|| alpn.1.to_vec());
        let peer_certificates = (0..from.u64()?).map(|_| from.bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?;
        Ok(Handshake { protocol, kind, suite, server_name, alpn, peer_certificates })
    }
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
    /// Handshake as both ends agreed on it, or the reason why it failed.
    pub outcome: Result<&'h Handshake, &'h Refused>,
    /// The time since the connection was there.
    pub took: Duration,
    /// The CPU time that this end spent on it.
    pub cpu: Duration,
}

/// Function that is told of each handshake, on the thread that ends it: it must be quick.
pub(crate) type Observer = Arc<dyn Fn(&HandshakeDone<'_>) + Send + Sync>;

/// Returns the CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_restored_as_it_was_saved() {
        let whole = Handshake {
            protocol: Protocol::Tls13,
            kind: HandshakeKind::Resumed,
            suite: "TLS13_AES_256_GCM_SHA384".to_owned(),
            server_name: Some("example.org".to_owned()),
            alpn: Some(Vec::new()),
            peer_certificates: vec![vec![7; 900], Vec::new()],
        };
        let bare = Handshake {
            protocol: Protocol::Tls12,
            kind: HandshakeKind::Full,
            server_name: None,
            alpn: None,
            peer_certificates: Vec::new(),
            ..whole.clone()
        };
        for handshake in [whole, bare] {
            let mut to = Saver::default();
            handshake.save(&mut to);
            let mut saved = Saved::new(to.written());
            assert_eq!((Handshake::restore(&mut saved), saved.rest()), (Ok(handshake), &[][..]));
            assert!(Handshake::restore(&mut Saved::new(&to.written()[..to.written().len() - 1])).is_err());
        }
    }
}
