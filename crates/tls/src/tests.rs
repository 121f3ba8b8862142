//! Both ends against each other, without sockets.

use crate::{Client, ClientOptions, Identity, Server, ServerOptions, Trust};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use sockdrawer::layer::Layer;
use sockdrawer::testing::{Bounds, Driver};
use sockdrawer::{Context, Input, Peer, Protocol, Service, Side, Step};
use sockdrawer_catalog::echo::Echo;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

mod failures;
mod handshakes;
mod wire;

/// A certificate that signed itself, as its own authority.
struct Certificate {
    pem: String,
    identity: Identity,
}

fn parameters(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names")
}

fn certificate(names: &[&str]) -> Certificate {
    signed_by_itself(&parameters(names))
}

fn signed_by_itself(parameters: &CertificateParams) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    let pem = parameters.self_signed(&key).expect("a certificate").pem();
    let identity = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).expect("they go together");
    Certificate { pem, identity }
}

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = parameters(&[]);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(parameters, key) }
    }

    fn signs(&self, parameters: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let pem = parameters.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).expect("they go together")
    }

    fn trusted(&self) -> ClientOptions {
        Client::new(Trust::Authorities(self.pem.clone().into_bytes()))
    }
}

/// Says this, and keeps what comes.
struct Says(Vec<u8>);

#[derive(Default)]
struct Said {
    first: Vec<u8>,
    heard: Vec<u8>,
    ended: bool,
}

impl Service for Says {
    type Protocol = Said;
    fn open(&self, _peer: &Peer) -> Said {
        Said { first: self.0.clone(), ..Said::default() }
    }
    fn local(&self) -> Box<sockdrawer::Local> {
        Box::new(Vec::<u8>::new())
    }
}

impl Protocol for Said {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&std::mem::take(&mut self.first));
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let all = input.take_all();
        cx.local::<Vec<u8>>().expect("made by the service").extend_from_slice(all);
        self.heard.extend_from_slice(all);
        Step::Continue
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        self.ended = true;
        Step::Close
    }
}

type ServerEnd = Driver<Layer<Server, Echo>>;
type ClientEnd = Driver<Layer<Client, Says>>;

thread_local!(static ONLY: Cell<Option<CipherSuite>> = const { Cell::new(None) });

/// Makes all that is built on this thread from now on speak one cipher suite. None: every suite.
fn only(suite: Option<CipherSuite>) {
    ONLY.set(suite);
}

pub(crate) fn provider_of_one_suite() -> Option<Arc<CryptoProvider>> {
    let mut provider = rustls::crypto::ring::default_provider();
    let suite = ONLY.get()?;
    provider.cipher_suites.retain(|of| of.suite() == suite);
    Some(Arc::new(provider))
}

/// Makes a new connection.
fn join(server: &Server, client: &Client, says: &[u8]) -> (ServerEnd, ClientEnd) {
    (Driver::open(Layer::new(server.clone(), Echo)), connected(client.clone(), says))
}

/// Makes one end of a connection that was made.
fn connected(client: Client, says: &[u8]) -> ClientEnd {
    let peer = sockdrawer::testing::peer(Side::Connected, Duration::ZERO);
    Driver::open_with(Layer::new(client, Says(says.to_vec())), peer, Bounds::default())
}

fn trusting(certificate: &Certificate) -> ClientOptions {
    Client::new(Trust::Authorities(certificate.pem.clone().into_bytes()))
}

/// Carries bytes both ways, and runs jobs, until both ends are silent.
fn run(server: &mut ServerEnd, client: &mut ClientEnd) {
    loop {
        let (to_server, to_client) = (client.sent(), server.sent());
        match (server.has_job(), client.has_job()) {
            (true, _) => server.run_job(),
            (_, true) => client.run_job(),
            _ if to_server.is_empty() && to_client.is_empty() => return,
            _ => {}
        }
        if !to_server.is_empty() && server.closed().is_none() {
            server.receive(&to_server);
        }
        if !to_client.is_empty() && client.closed().is_none() {
            client.receive(&to_client);
        }
    }
}

fn heard(client: &mut ClientEnd) -> Vec<u8> {
    client.local::<Vec<u8>>().expect("made by the service").clone()
}
