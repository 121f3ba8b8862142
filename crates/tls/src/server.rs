//! The accepting end.

use crate::filter::TlsFilter;
use crate::options::Options;
use crate::recipe;
use crate::seam::{KeyCapture, Pending, trusted};
use crate::{Error, Identity, Tickets};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sockdrawer::layer::Filtering;
use sockdrawer::{CannotRestore, Peer, Recipe, Saved, Side, State};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Choice whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// Clients are asked for a certificate, and refused without one.
    #[default]
    Required,
    /// Clients are asked for a certificate, and may have none; one that is not valid is refused.
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
        f.debug_struct("Server").field("identities", &self.options.end.identities.len()).finish_non_exhaustive()
    }
}

/// Options of a [`Server`].
pub type ServerOptions = Options<ServerEnd>;

/// Options that a server alone has.
pub struct ServerEnd {
    pub(crate) identities: Vec<Identity>,
    pub(crate) clients: Option<(Vec<u8>, ClientCertificates)>,
    pub(crate) tickets: Option<Tickets>,
}

impl fmt::Debug for ServerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEnd").field("identities", &self.identities.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Makes a server with these certificates. A client that asks for a name (SNI) gets the first certificate that is for that name and that it can
    /// verify; any other client gets the first of all.
    // It is where the options begin.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> ServerOptions {
        let identities = identities.into_iter().collect();
        Options::of(ServerEnd { identities, clients: None, tickets: Some(Tickets::new()) })
    }
}

impl Server {
    /// Returns the certificates.
    pub fn identities(&self) -> &[Identity] {
        &self.options.end.identities
    }

    /// Returns whether both serve alike: equal certificates, keys, authorities and options. Tickets and observers are not looked at.
    pub fn is_same(&self, other: &Server) -> bool {
        let pem = |server: &Server| server.options.end.identities.iter().map(|identity| identity.pem.clone()).collect::<Vec<_>>();
        let [one, two] = [self, other].map(|server| &server.options);
        let equal = (&one.versions, &one.alpn, &one.end.clients) == (&two.versions, &two.alpn, &two.end.clients)
            && (one.handshake_timeout, one.on_workers, one.ignores_eof)
                == (two.handshake_timeout, two.on_workers, two.ignores_eof)
            && (&one.key_log, one.end.tickets.is_some()) == (&two.key_log, two.end.tickets.is_some());
        equal && pem(self) == pem(other)
    }
}

impl ServerOptions {
    /// Asks clients for certificates that these authorities signed, PEM. Where they are [required](ClientCertificates::Required) no handshake is
    /// resumed: each shows its certificate. Default: clients are not asked.
    pub fn client_authorities(mut self, pem: impl Into<Vec<u8>>, certificates: ClientCertificates) -> Self {
        self.end.clients = Some((pem.into(), certificates));
        self
    }

    /// Sets the keys of tickets, by which clients resume. Give the servers of one program, and the next server after a change, clones of one
    /// [`Tickets`]. None: nothing is resumed. Default: new keys.
    pub fn tickets(mut self, tickets: Option<Tickets>) -> Self {
        self.end.tickets = tickets;
        self
    }

    /// Makes the server.
    ///
    /// # Errors
    /// When there is no certificate, the authorities are not PEM, or the file for secrets cannot be written.
    pub fn build(self) -> Result<Server, Error> {
        if self.end.identities.is_empty() {
            return Err(Error::Unusable("a TLS server needs a certificate and its key".to_owned()));
        }
        let versions = crate::seam::versions(&self.versions);
        let builder = ServerConfig::builder_with_provider(crate::seam::provider()).with_protocol_versions(versions);
        let builder = builder.map_err(unusable)?;
        let required = matches!(self.end.clients, Some((_, ClientCertificates::Required)));
        let builder = match &self.end.clients {
            None => builder.with_no_client_auth(),
            Some((pem, certificates)) => {
                let are_required = *certificates == ClientCertificates::Required;
                builder.with_client_cert_verifier(trusted::clients(pem, are_required)?)
            }
        };
        let resolver = Arc::new(ByName::new(&self.end.identities)?);
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols.clone_from(&self.alpn);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match self.end.tickets.clone().filter(|_| !required) {
            Some(tickets) => config.ticketer = tickets.of(self.end.clients.as_ref().map(|(pem, _)| &pem[..])),
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

    /// Makes the filter of a connection. One that was made is not this end's, and has no TLS by it.
    fn filter(&self, peer: &Peer) -> TlsFilter {
        if peer.side() == Side::Connected {
            return TlsFilter::clear();
        }
        let filter = TlsFilter::new(Pending::server(self.config.clone()), self.options.on_workers, self.options.observer.clone());
        filter.ignoring_eof(self.options.ignores_eof)
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<TlsFilter, CannotRestore> {
        Ok(TlsFilter::restore(from)?.ignoring_eof(self.options.ignores_eof))
    }

    fn handshake_timeout(&self) -> Duration {
        self.options.handshake_timeout
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: recipe::NAME.to_owned(), options: recipe::of_server(&self.options) })
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
