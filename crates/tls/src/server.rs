//! The accepting end.

mod recipe;

pub(crate) use recipe::build;

use crate::filter::TlsFilter;
use crate::handshake::{HandshakeDone, Observer, Protocol};
use crate::seam::{KeyCapture, Pending, trusted};
use crate::{Error, Identity, Tickets};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sockdrawer::layer::Filtering;
use sockdrawer::{CannotRestore, Peer, Recipe, Saved, State};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// They are asked for one, and refused without one.
    #[default]
    Required,
    /// They are asked for one, and may have none; one that is not valid is refused.
    Optional,
}

/// The accepting end of TLS: give it to [`Layer::new`](sockdrawer::layer::Layer::new), with the service inside. Clones are the same
/// configuration.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    options: Arc<ServerOptions>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("identities", &self.options.identities.len()).finish_non_exhaustive()
    }
}

/// What a [`Server`] is made of.
#[must_use]
pub struct ServerOptions {
    identities: Vec<Identity>,
    versions: RangeInclusive<Protocol>,
    alpn: Vec<Vec<u8>>,
    clients: Option<(Vec<u8>, ClientCertificates)>,
    tickets: Option<Tickets>,
    handshake_timeout: Duration,
    on_workers: bool,
    key_log: Option<PathBuf>,
    observer: Option<Observer>,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions").field("identities", &self.identities.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server with these certificates. A client that asks for a name (SNI) gets the first certificate that is for that name and that it can
    /// verify; any other client gets the first of all.
    // It is where the options begin.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> ServerOptions {
        ServerOptions {
            identities: identities.into_iter().collect(),
            versions: Protocol::Tls12..=Protocol::Tls13,
            alpn: Vec::new(),
            clients: None,
            tickets: Some(Tickets::new()),
            handshake_timeout: Duration::from_secs(10),
            on_workers: false,
            key_log: None,
            observer: None,
        }
    }
}

impl Server {
    /// The certificates.
    pub fn identities(&self) -> &[Identity] {
        &self.options.identities
    }

    /// Whether both serve alike: equal certificates, keys, authorities and options. Tickets and observers are not looked at.
    pub fn is_same(&self, other: &Server) -> bool {
        let pem = |server: &Server| server.options.identities.iter().map(|identity| identity.pem.clone()).collect::<Vec<_>>();
        let [one, two] = [self, other].map(|server| &server.options);
        let equal = (&one.versions, &one.alpn, &one.clients) == (&two.versions, &two.alpn, &two.clients)
            && (one.handshake_timeout, one.on_workers) == (two.handshake_timeout, two.on_workers)
            && (&one.key_log, one.tickets.is_some()) == (&two.key_log, two.tickets.is_some());
        equal && pem(self) == pem(other)
    }
}

impl ServerOptions {
    /// The versions that are spoken. Default: TLS 1.2 and 1.3.
    pub fn versions(mut self, versions: RangeInclusive<Protocol>) -> Self {
        self.versions = versions;
        self
    }

    /// The application's protocols (ALPN), the preferred first. A client that offers others only is refused; one that offers none is not.
    /// Default: none.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Asks clients for certificates that these authorities signed, PEM. Where they are [required](ClientCertificates::Required) no handshake is
    /// resumed: each shows its certificate. Default: clients are not asked.
    pub fn client_authorities(mut self, pem: impl Into<Vec<u8>>, certificates: ClientCertificates) -> Self {
        self.clients = Some((pem.into(), certificates));
        self
    }

    /// The keys of tickets, by which clients resume. Give the servers of one program, and the next server after a change, clones of one
    /// [`Tickets`]. None: nothing is resumed. Default: new keys.
    pub fn tickets(mut self, tickets: Option<Tickets>) -> Self {
        self.tickets = tickets;
        self
    }

    /// The timeout of the handshake, from accept to established. Default: 10 s.
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

    /// Is told of each handshake, done or failed, on the thread that ends it: it must be quick. Not of those in other processes, where models run
    /// connections there: [`Counts::handshakes_full`](sockdrawer::observe::Counts::handshakes_full) and the two beside it count them all.
    pub fn observe(mut self, observer: impl Fn(&HandshakeDone<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The server.
    ///
    /// # Errors
    /// When there is no certificate, the authorities are not PEM, or the file for secrets cannot be written.
    pub fn build(self) -> Result<Server, Error> {
        if self.identities.is_empty() {
            return Err(Error::Unusable("a TLS server needs a certificate and its key".to_owned()));
        }
        let versions = crate::seam::versions(&self.versions);
        let builder = ServerConfig::builder_with_provider(crate::seam::provider()).with_protocol_versions(versions);
        let builder = builder.map_err(unusable)?;
        let required = matches!(self.clients, Some((_, ClientCertificates::Required)));
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some((pem, certificates)) => {
                let are_required = *certificates == ClientCertificates::Required;
                builder.with_client_cert_verifier(trusted::clients(pem, are_required)?)
            }
        };
        let resolver = Arc::new(ByName::new(&self.identities)?);
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols.clone_from(&self.alpn);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match self.tickets.clone().filter(|_| !required) {
            Some(tickets) => config.ticketer = tickets.of(self.clients.as_ref().map(|(pem, _)| &pem[..])),
            None => config.send_tls13_tickets = 0,
        }
        config.key_log = KeyCapture::to(self.key_log.as_deref())?;
        config.enable_secret_extraction = true;
        Ok(Server { config: Arc::new(config), options: Arc::new(self) })
    }
}

pub(crate) fn unusable(error: impl fmt::Display) -> Error {
    Error::Unusable(error.to_string())
}

/// Certificates by the names that they are for.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ByName {
    fn new(identities: &[Identity]) -> Result<ByName, Error> {
        let certificates: Vec<_> = identities.iter().map(|identity| identity.certified.clone()).collect();
        for certificate in &certificates {
            certificate.end_entity_cert().and_then(|it| ParsedCertificate::try_from(it).map(drop)).map_err(unusable)?;
        }
        Ok(ByName(certificates))
    }
}

fn is_for(certificate: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = certificate.end_entity_cert().and_then(ParsedCertificate::try_from);
    parsed.is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        crate::seam::tell_server_name(hello.server_name());
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let verifies = |certificate: &&Arc<CertifiedKey>| certificate.key.choose_scheme(hello.signature_schemes()).is_some();
        let usable = || self.0.iter().filter(verifies);
        let named = name.and_then(|name| usable().find(|certificate| is_for(certificate, &name)));
        named.or_else(|| usable().next()).or(self.0.first()).cloned()
    }
}

impl Filtering for Server {
    type Filter = TlsFilter;

    fn filter(&self, _peer: &Peer) -> TlsFilter {
        TlsFilter::new(Pending::server(self.config.clone()), self.options.on_workers, self.options.observer.clone())
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<TlsFilter, CannotRestore> {
        TlsFilter::restore(from)
    }

    fn handshake_timeout(&self) -> Duration {
        self.options.handshake_timeout
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: recipe::NAME.to_owned(), options: recipe::write(&self.options) })
    }

    fn state(&self) -> State {
        State::of("tls", 1)
    }

    fn longest_record(&self) -> usize {
        crate::record::LONGEST
    }

    fn needs_peer_address(&self) -> bool {
        false
    }
}
