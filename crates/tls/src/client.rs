//! The connecting end.

use crate::filter::TlsFilter;
use crate::options::Options;
use crate::recipe;
use crate::seam::{KeyCapture, Pending, trusted};
use crate::server::unusable;
use crate::{Error, Identity};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use sockdrawer::layer::{Filtering, Refused};
use sockdrawer::{CannotRestore, Peer, Recipe, Saved, Side, State};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The certificates of servers that a client trusts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Trust {
    /// Certificates that these authorities signed, PEM; and each of these certificates itself, for its names and until it expires.
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
    options: Arc<ClientOptions>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Options of a [`Client`].
pub type ClientOptions = Options<ClientEnd>;

/// Options that a client alone has.
pub struct ClientEnd {
    pub(crate) trust: Trust,
    pub(crate) name: Option<String>,
    pub(crate) identity: Option<Identity>,
    pub(crate) resumes: bool,
}

impl fmt::Debug for ClientEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientEnd").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client that trusts these servers.
    // It is where the options begin.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(trust: Trust) -> ClientOptions {
        Options::of(ClientEnd { trust, name: None, identity: None, resumes: true })
    }
}

impl Client {
    /// Returns whether both connect alike: equal authorities, names, certificates and options. Tickets and observers are not looked at.
    pub fn is_same(&self, other: &Client) -> bool {
        // A recipe holds the key of the certificate, of which no copy may stay in memory.
        let options = |client: &Client| Zeroizing::new(recipe::of_client(&client.options));
        options(self) == options(other)
    }
}

impl ClientOptions {
    /// Sets the name that servers must have a certificate for, and that they are asked for (SNI): a DNS name or an address. Default: the address
    /// that is connected to; of a Unix socket `localhost`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.end.name = Some(name.into());
        self
    }

    /// Sets the certificate that is shown to servers that ask for one. Default: none.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.end.identity = Some(identity);
        self
    }

    /// Sets whether handshakes are resumed by tickets. Default: they are.
    pub fn resumes(mut self, resumes: bool) -> Self {
        self.end.resumes = resumes;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    /// When the authorities are not PEM, the name is none, or the file for secrets cannot be written.
    pub fn build(self) -> Result<Client, Error> {
        let provider = crate::seam::provider();
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(crate::seam::versions(&self.versions)).map_err(unusable)?;
        let authorities = match &self.end.trust {
            Trust::Authorities(pem) => Some(&pem[..]),
            Trust::Anybody => None,
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(trusted::servers(authorities)?);
        let mut config = match &self.end.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity.certified.clone())))
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        if !self.end.resumes {
            config.resumption = Resumption::disabled();
        }
        config.key_log = KeyCapture::to(self.key_log.as_deref())?;
        config.enable_secret_extraction = true;
        let no_name = |name: &str| Error::Unusable(format!("`{name}` is no name of a TLS server: a DNS name or an IP address"));
        let name = self.end.name.clone().map(|name| name.strip_suffix('.').map(str::to_owned).unwrap_or(name));
        let name = name.map(|name| ServerName::try_from(name.clone()).map_err(|_| no_name(&name))).transpose()?;
        Ok(Client { config: Arc::new(config), name, options: Arc::new(self) })
    }
}

impl Filtering for Client {
    type Filter = TlsFilter;

    /// Makes the filter of a connection. One that was accepted is not this end's, and has no TLS by it.
    fn filter(&self, peer: &Peer) -> TlsFilter {
        if peer.side() == Side::Accepted {
            return TlsFilter::clear();
        }
        let of_address = || peer.remote().map(|remote| ServerName::from(remote.ip()));
        let local = || ServerName::try_from("localhost").ok();
        let name = self.name.clone().or_else(of_address).or_else(local);
        let pending = name.ok_or_else(|| Refused::because("the TLS server has no name"));
        let pending = pending.and_then(|name| Pending::client(self.config.clone(), name));
        let filter = TlsFilter::new(pending, self.options.on_workers, self.options.observer.clone());
        filter.ignoring_eof(self.options.ignores_eof)
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<TlsFilter, CannotRestore> {
        Ok(TlsFilter::restore(from)?.ignoring_eof(self.options.ignores_eof))
    }

    fn handshake_timeout(&self) -> Duration {
        self.options.handshake_timeout
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: recipe::NAME.to_owned(), options: recipe::of_client(&self.options) })
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
