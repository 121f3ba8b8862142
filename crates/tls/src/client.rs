//! The connecting end.

use crate::filter::TlsFilter;
use crate::handshake::{HandshakeDone, Observer, Protocol};
use crate::seam::{KeyCapture, Pending, trusted};
use crate::server::unusable;
use crate::{Error, Identity};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use sockdrawer::layer::{Filtering, Refused};
use sockdrawer::{CannotRestore, Peer, Saved, State};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The certificates of servers that a client trusts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Trust {
    /// Those that these authorities signed, PEM; and each of these certificates itself, for its names and until it expires.
    Authorities(Vec<u8>),
    /// All: the peer may be anybody. For tests and measurements.
    Anybody,
}

/// The connecting end of TLS: give it to [`Layer::new`](sockdrawer::layer::Layer::new), with the service inside. Clones are the same
/// configuration, and share the tickets by which they resume.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    handshake_timeout: Duration,
    on_workers: bool,
    observer: Option<Observer>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a [`Client`] is made of.
#[must_use]
pub struct ClientOptions {
    trust: Trust,
    name: Option<String>,
    versions: RangeInclusive<Protocol>,
    alpn: Vec<Vec<u8>>,
    identity: Option<Identity>,
    resumes: bool,
    handshake_timeout: Duration,
    on_workers: bool,
    key_log: Option<PathBuf>,
    observer: Option<Observer>,
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that trusts these servers.
    // It is where the options begin.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(trust: Trust) -> ClientOptions {
        ClientOptions {
            trust,
            name: None,
            versions: Protocol::Tls12..=Protocol::Tls13,
            alpn: Vec::new(),
            identity: None,
            resumes: true,
            handshake_timeout: Duration::from_secs(10),
            on_workers: false,
            key_log: None,
            observer: None,
        }
    }
}

impl ClientOptions {
    /// The name that servers must have a certificate for, and that they are asked for (SNI): a DNS name or an address. Default: the address
    /// that is connected to; of a Unix socket `localhost`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The versions that are spoken. Default: TLS 1.2 and 1.3.
    pub fn versions(mut self, versions: RangeInclusive<Protocol>) -> Self {
        self.versions = versions;
        self
    }

    /// The application's protocols (ALPN) that are offered. Default: none.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// The certificate that is shown to servers that ask for one. Default: none.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whether handshakes are resumed by tickets. Default: they are.
    pub fn resumes(mut self, resumes: bool) -> Self {
        self.resumes = resumes;
        self
    }

    /// The timeout of the handshake, from connected to established. Default: 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// As [`ServerOptions::on_workers`](crate::ServerOptions::on_workers). Default: in the loop.
    pub fn on_workers(mut self, on_workers: bool) -> Self {
        self.on_workers = on_workers;
        self
    }

    /// As [`ServerOptions::key_log`](crate::ServerOptions::key_log). Default: not.
    pub fn key_log(mut self, file: Option<PathBuf>) -> Self {
        self.key_log = file;
        self
    }

    /// Is told of each handshake, done or failed, on the thread that ends it: it must be quick.
    pub fn observe(mut self, observer: impl Fn(&HandshakeDone<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The client.
    ///
    /// # Errors
    /// When the authorities are not PEM, the name is none, or the file for secrets cannot be written.
    pub fn build(self) -> Result<Client, Error> {
        let provider = crate::seam::provider();
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(crate::seam::versions(&self.versions)).map_err(unusable)?;
        let authorities = match &self.trust {
            Trust::Authorities(pem) => Some(&pem[..]),
            Trust::Anybody => None,
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(trusted::servers(authorities)?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity.certified.clone())))
            }
        };
        config.alpn_protocols = self.alpn;
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        config.key_log = KeyCapture::to(self.key_log.as_deref())?;
        config.enable_secret_extraction = true;
        let no_name = |name: &str| Error::Unusable(format!("`{name}` is no name of a TLS server: a DNS name or an IP address"));
        let name = self.name.map(|name| name.strip_suffix('.').map(str::to_owned).unwrap_or(name));
        let name = name.map(|name| ServerName::try_from(name.clone()).map_err(|_| no_name(&name))).transpose()?;
        let (handshake_timeout, on_workers, observer) = (self.handshake_timeout, self.on_workers, self.observer);
        Ok(Client { config: Arc::new(config), name, handshake_timeout, on_workers, observer })
    }
}

impl Filtering for Client {
    type Filter = TlsFilter;

    fn filter(&self, peer: &Peer) -> TlsFilter {
        let of_address = || peer.remote().map(|remote| ServerName::from(remote.ip()));
        let local = || ServerName::try_from("localhost").ok();
        let name = self.name.clone().or_else(of_address).or_else(local);
        let pending = name.ok_or_else(|| Refused::because("the TLS server has no name"));
        let pending = pending.and_then(|name| Pending::client(self.config.clone(), name));
        TlsFilter::new(pending, self.on_workers, self.observer.clone())
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<TlsFilter, CannotRestore> {
        TlsFilter::restore(from)
    }

    fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    fn state(&self) -> State {
        State::of("tls", 1)
    }

    fn longest_record(&self) -> usize {
        crate::record::LONGEST
    }

    fn needs_peer_address(&self) -> bool {
        self.name.is_none()
    }
}
