//! Both ends against each other, without sockets.

use crate::{ClientOptions, Identity, Server, ServerOptions, Trust};
use rcgen::{CertificateParams, KeyPair};
use sockdrawer::layer::Layer;
use sockdrawer::testing::Driver;
use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};

/// A certificate that signed itself, as its own authority.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) identity: Identity,
}

pub(crate) fn certificate(names: &[&str]) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names");
    let pem = parameters.self_signed(&key).expect("a certificate").pem();
    let identity = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).expect("they go together");
    Certificate { pem, identity }
}

/// Sends all back.
pub(crate) struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
}

/// Says this, and keeps what comes.
pub(crate) struct Says(pub(crate) Vec<u8>);

#[derive(Default)]
pub(crate) struct Said {
    first: Vec<u8>,
    pub(crate) heard: Vec<u8>,
    pub(crate) ended: bool,
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

pub(crate) type ServerEnd = Driver<Layer<Server, Echo>>;
pub(crate) type ClientEnd = Driver<Layer<crate::Client, Says>>;

pub(crate) fn ends(server: ServerOptions, client: ClientOptions, says: &[u8]) -> (ServerEnd, ClientEnd) {
    let server = Driver::open(Layer::new(server.build().expect("a server"), Echo));
    let client = Driver::open(Layer::new(client.name("localhost").build().expect("a client"), Says(says.to_vec())));
    (server, client)
}

/// Carries bytes both ways until both ends are silent.
pub(crate) fn run(server: &mut ServerEnd, client: &mut ClientEnd) {
    loop {
        let (to_server, to_client) = (client.sent(), server.sent());
        if to_server.is_empty() && to_client.is_empty() {
            return;
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

#[test]
fn bytes_come_back_through_both_ends_in_both_versions() {
    let certificate = certificate(&["localhost"]);
    let big: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    for version in [crate::Protocol::Tls13, crate::Protocol::Tls12] {
        let trust = Trust::Authorities(certificate.pem.clone().into_bytes());
        let client = crate::Client::new(trust).versions(version..=version);
        let (mut server, mut client) = ends(Server::new([certificate.identity.clone()]), client, &big);
        run(&mut server, &mut client);
        assert_eq!((server.reports(), client.reports()), (&[][..], &[][..]));
        assert!(heard(&mut client) == big, "{} bytes came back", heard(&mut client).len());
    }
}

/// As [`run`], with the jobs of both ends.
fn run_with_workers(server: &mut ServerEnd, client: &mut ClientEnd) {
    loop {
        run(server, client);
        match (server.has_job(), client.has_job()) {
            (true, _) => server.run_job(),
            (_, true) => client.run_job(),
            _ => return,
        }
    }
}

#[test]
fn handshakes_run_on_workers_at_both_ends() {
    let certificate = certificate(&["localhost"]);
    for version in [crate::Protocol::Tls13, crate::Protocol::Tls12] {
        let trust = Trust::Authorities(certificate.pem.clone().into_bytes());
        let client = crate::Client::new(trust).versions(version..=version).on_workers(true);
        let (mut server, mut client) =
            ends(Server::new([certificate.identity.clone()]).on_workers(true), client, b"from a worker");
        run_with_workers(&mut server, &mut client);
        assert_eq!((server.reports(), client.reports()), (&[][..], &[][..]));
        assert_eq!(heard(&mut client), b"from a worker");
    }
}
