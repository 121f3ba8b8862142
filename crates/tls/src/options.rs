//! Options that both ends have.

use crate::handshake::{HandshakeDone, Observer, Protocol};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of one end of TLS: [`ServerOptions`](crate::ServerOptions) of a [`Server`](crate::Server), [`ClientOptions`](crate::ClientOptions) of a
/// [`Client`](crate::Client). Its `build` makes that end.
#[must_use]
pub struct Options<End> {
    pub(crate) end: End,
    pub(crate) versions: RangeInclusive<Protocol>,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) on_workers: bool,
    pub(crate) ignores_eof: bool,
    pub(crate) key_log: Option<PathBuf>,
    pub(crate) observer: Option<Observer>,
}

impl<End: fmt::Debug> fmt::Debug for Options<End> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("end", &self.end).finish_non_exhaustive()
    }
}

impl<End> Options<End> {
    pub(crate) fn of(end: End) -> Options<End> {
        Options {
            end,
            versions: Protocol::Tls12..=Protocol::Tls13,
            alpn: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
            on_workers: false,
            ignores_eof: false,
            key_log: None,
            observer: None,
        }
    }

    /// Sets the versions that are spoken. Default: TLS 1.2 and 1.3.
    pub fn versions(mut self, versions: RangeInclusive<Protocol>) -> Self {
        self.versions = versions;
        self
    }

    /// Takes the end of a peer's stream without TLS's `close_notify` for an end in order, for peers that never send it: OpenSSL has it as `SSL_OP_IGNORE_UNEXPECTED_EOF`. A stream that
    /// was cut off on the way then looks whole. Default: it is refused.
    pub fn ignore_unexpected_eof(mut self, ignore: bool) -> Self {
        self.ignores_eof = ignore;
        self
    }

    /// Sets the application's protocols (ALPN), the preferred first. A server refuses a client that offers others only, and serves one that offers
    /// none. Default: none.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the timeout of the handshake, from accepted or connected to established. Default: 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Runs handshakes on the pool's workers, so that a signature, 0.03 ms with ECDSA and about 1 ms with RSA, holds up no other connection
    /// of the loop. The pool needs workers. Default: in the loop, which costs less CPU time.
    pub fn on_workers(mut self, on_workers: bool) -> Self {
        self.on_workers = on_workers;
        self
    }

    /// Appends the secrets of each connection to this file, in the form of `SSLKEYLOGFILE`: its readers can read all that is sent. For
    /// debugging with Wireshark. It is made with the first handshake, for its owner alone. Default: not; the environment is not looked at.
    pub fn key_log(mut self, file: Option<PathBuf>) -> Self {
        self.key_log = file;
        self
    }

    /// Tells an observer of each handshake, done or failed, on the thread that ends it: it must be quick. Not of those in other processes, where models
    /// run connections there: [`Counts::handshakes_full`](sockdrawer::observe::Counts::handshakes_full) and the two beside it count them all.
    pub fn observe(mut self, observer: impl Fn(&HandshakeDone<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }
}
