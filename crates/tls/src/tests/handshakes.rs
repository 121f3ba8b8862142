//! Handshakes that succeed: what both ends agree on.

use super::*;
use crate::{ClientCertificates, Handshake, HandshakeKind, Tickets, TlsFilter};
use sockdrawer::Side;
use sockdrawer::layer::{Filter, Filtering, Progress, Refused, Watch, Watched};
use std::sync::Mutex;

const SUITES: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The handshakes of one end, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Result<Handshake, String>>>>);

impl Seen {
    fn observer(&self) -> impl Fn(&crate::HandshakeDone<'_>) + Send + Sync + 'static {
        let seen = self.0.clone();
        move |done| {
            let outcome = done.outcome.cloned().map_err(|refused| refused.to_string());
            seen.lock().expect("a test").push(outcome);
        }
    }

    fn last(&self) -> Handshake {
        self.0.lock().expect("a test").last().cloned().expect("a handshake").expect("it was done")
    }

    /// Returns how many handshakes were resumed, and how many there were.
    fn resumed(&self) -> (usize, usize) {
        let seen = self.0.lock().expect("a test");
        let resumed = |outcome: &&Result<Handshake, String>| outcome.as_ref().is_ok_and(|of| of.kind == HandshakeKind::Resumed);
        (seen.iter().filter(resumed).count(), seen.len())
    }
}

/// Makes a connection whose client says something, hears it and ends in order.
fn visit(server: &Server, client: &Client, says: &[u8]) {
    let (mut server, mut client) = join(server, client, says);
    run(&mut server, &mut client);
    assert_eq!((server.reports(), client.reports()), (&[][..], &[][..]));
    assert!(heard(&mut client) == says, "{} of {} bytes came back", heard(&mut client).len(), says.len());
}

#[test]
fn bytes_come_back_with_every_suite() {
    let certificate = certificate(&["localhost"]);
    let big: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    for suite in SUITES.into_iter().filter(|suite| !format!("{suite:?}").contains("RSA_")) {
        for on_workers in [false, true] {
            only(Some(suite));
            let version = if format!("{suite:?}").starts_with("TLS13") { crate::Protocol::Tls13 } else { crate::Protocol::Tls12 };
            let (seen, heard_of) = (Seen::default(), Seen::default());
            let server = Server::new([certificate.identity.clone()]).versions(version..=version).on_workers(on_workers);
            let client = trusting(&certificate).versions(version..=version).on_workers(on_workers).name("localhost");
            let server = server.observe(seen.observer()).build().expect("a server");
            let client = client.observe(heard_of.observer()).build().expect("a client");
            visit(&server, &client, &big);
            let (there, here) = (seen.last(), heard_of.last());
            assert_eq!((there.protocol, here.protocol), (version, version));
            assert_eq!((there.suite, here.suite), (format!("{suite:?}"), format!("{suite:?}")));
            assert_eq!((there.server_name.as_deref(), here.peer_certificates.len()), (Some("localhost"), 1));
        }
    }
    only(None);
}

#[test]
fn every_suite_on_offer_is_tested() {
    let offered: Vec<_> = crate::seam::provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
    assert!(offered.len() == SUITES.len() && offered.iter().all(|suite| SUITES.contains(suite)), "{offered:?}");
}

#[test]
fn a_client_resumes_in_both_versions() {
    let certificate = certificate(&["localhost"]);
    for version in [crate::Protocol::Tls12, crate::Protocol::Tls13] {
        let (there, here, tickets) = (Seen::default(), Seen::default(), Tickets::new());
        let server = |tickets: Option<Tickets>| {
            let options = Server::new([certificate.identity.clone()]).tickets(tickets).observe(there.observer());
            options.build().expect("a server")
        };
        let client = trusting(&certificate).versions(version..=version).name("localhost").observe(here.observer());
        let client = client.build().expect("a client");
        let first = server(Some(tickets.clone()));
        (0..3).for_each(|_| visit(&first, &client, b"hello"));
        assert_eq!((there.resumed(), here.resumed()), ((2, 3), (2, 3)), "{version:?}");
        assert_eq!((there.last().server_name.as_deref(), here.last().peer_certificates.len()), (Some("localhost"), 1));
        // Another process of the program, and the next certificate of this one.
        let elsewhere = Tickets::import(&tickets.export()).expect("it wrote them");
        visit(&server(Some(elsewhere)), &client, b"hello");
        assert_eq!((there.resumed(), here.resumed()), ((3, 4), (3, 4)), "{version:?}");
        // Other keys, or none.
        visit(&server(Some(Tickets::new())), &client, b"hello");
        visit(&server(None), &client, b"hello");
        visit(&server(None), &client, b"hello");
        assert_eq!((there.resumed(), here.resumed()), ((3, 7), (3, 7)), "{version:?}");
        // A client that does not want to.
        let full = trusting(&certificate).versions(version..=version).name("localhost").resumes(false).build().expect("a client");
        (0..2).for_each(|_| visit(&first, &full, b"hello"));
        assert_eq!((there.resumed(), here.resumed()), ((3, 9), (3, 7)), "{version:?}");
    }
}

#[test]
fn client_certificates_are_required_or_optional() {
    let (authority, certificate) = (Authority::new("one"), certificate(&["localhost"]));
    let identity = authority.signs(&parameters(&["a client"]));
    for version in [crate::Protocol::Tls12, crate::Protocol::Tls13] {
        for (certificates, with_one, without) in
            [(ClientCertificates::Required, Some(1), None), (ClientCertificates::Optional, Some(1), Some(0))]
        {
            let seen = Seen::default();
            let server = Server::new([certificate.identity.clone()]).client_authorities(authority.pem.clone(), certificates);
            let server = server.observe(seen.observer()).build().expect("a server");
            let client = || trusting(&certificate).versions(version..=version).name("localhost");
            let showing = client().identity(identity.clone()).build().expect("a client");
            for expected in [with_one, with_one] {
                visit(&server, &showing, b"hello");
                assert_eq!(Some(seen.last().peer_certificates.len()), expected);
            }
            let resumes = usize::from(certificates == ClientCertificates::Optional);
            assert_eq!(seen.resumed(), (resumes, 2), "{version:?} {certificates:?}");
            if let Some(without) = without {
                visit(&server, &client().build().expect("a client"), b"hello");
                assert_eq!(seen.last().peer_certificates.len(), without);
            }
        }
    }
}

/// A ticket says who its client was: only servers with the authorities that checked it take it.
#[test]
fn a_ticket_is_not_taken_by_a_server_that_trusts_others() {
    let (one, another, certificate) = (Authority::new("one"), Authority::new("another"), certificate(&["localhost"]));
    for version in [crate::Protocol::Tls12, crate::Protocol::Tls13] {
        let (seen, tickets) = (Seen::default(), Tickets::new());
        let server = |authority: Option<&Authority>| {
            let options = Server::new([certificate.identity.clone()]).tickets(Some(tickets.clone())).observe(seen.observer());
            let options = match authority {
                Some(authority) => options.client_authorities(authority.pem.clone(), ClientCertificates::Optional),
                None => options,
            };
            options.build().expect("a server")
        };
        let client = trusting(&certificate).versions(version..=version).name("localhost").build().expect("a client");
        for authority in [None, Some(&one), Some(&another), None] {
            visit(&server(authority), &client, b"hello");
            assert_eq!(seen.last().kind, HandshakeKind::Full, "{version:?}");
        }
        visit(&server(None), &client, b"hello");
        assert_eq!(seen.last().kind, HandshakeKind::Resumed, "{version:?}");
    }
}

#[test]
fn the_certificate_is_that_of_the_name_asked_for() {
    let authority = Authority::new("one");
    let certificates =
        [&["one.test"][..], &["two.test", "*.two.test"], &["127.0.0.1"]].map(|names| authority.signs(&parameters(names)));
    let server = Server::new(certificates.clone()).build().expect("a server");
    let shown = |name: &str| {
        let seen = Seen::default();
        // Anybody, so that the first certificate is seen too where the name is of none.
        let client = Client::new(Trust::Anybody).name(name).observe(seen.observer()).build().expect("a client");
        visit(&server, &client, b"hello");
        let shown = seen.last().peer_certificates[0].clone();
        certificates.iter().position(|identity| *identity.certified.cert[0] == shown)
    };
    for (name, expected) in
        [("one.test", 0), ("two.test", 1), ("x.two.test", 1), ("x.y.two.test", 0), ("three.test", 0), ("127.0.0.1", 0)]
    {
        assert_eq!(shown(name), Some(expected), "{name}");
    }
    visit(&server, &authority.trusted().name("x.two.test").build().expect("a client"), b"hello");
}

#[test]
fn the_protocol_is_the_first_of_the_server_that_the_client_offers() {
    let certificate = certificate(&["localhost"]);
    for version in [crate::Protocol::Tls12, crate::Protocol::Tls13] {
        let agreed = |server: &[&str], client: &[&str]| {
            let (there, here) = (Seen::default(), Seen::default());
            let server = Server::new([certificate.identity.clone()]).alpn(server.to_vec()).observe(there.observer());
            let client = trusting(&certificate).versions(version..=version).name("localhost").alpn(client.to_vec());
            visit(&server.build().expect("a server"), &client.observe(here.observer()).build().expect("a client"), b"hello");
            assert_eq!(there.last().alpn, here.last().alpn);
            there.last().alpn.map(|name| String::from_utf8(name).expect("a name"))
        };
        assert_eq!(agreed(&["h2", "http/1.1"], &["http/1.1", "h2"]).as_deref(), Some("h2"));
        assert_eq!(agreed(&["h2", "http/1.1"], &["http/1.1"]).as_deref(), Some("http/1.1"));
        assert_eq!((agreed(&["h2"], &[]), agreed(&[], &["h2"]), agreed(&[], &[])), (None, None, None));
    }
}

#[test]
fn what_is_printed_of_a_handshake_has_no_certificates() {
    let certificate = certificate(&["localhost", "secret.test"]);
    let seen = Seen::default();
    let client = trusting(&certificate).name("localhost").observe(seen.observer()).build().expect("a client");
    visit(&Server::new([certificate.identity.clone()]).build().expect("a server"), &client, b"hello");
    let printed = format!("{:?} {client:?} {:?}", seen.last(), certificate.identity);
    assert!(printed.contains("peer_certificates: 1") && !printed.contains("secret"), "{printed}");
}

/// Hears nothing.
struct Deaf;

impl Watch<TlsFilter> for Deaf {
    fn seen(&mut self, _filter: &TlsFilter, _progress: Result<&Progress, &Refused>) {}
}

#[test]
fn a_pool_counts_the_handshakes_of_watched_clients() {
    let client = Client::new(Trust::Anybody).name("localhost").build().expect("a client");
    let filter = Watched::new(client.filter(&Peer::new(None, Side::Connected)), Deaf);
    assert_eq!(filter.handshake(), Some(HandshakeKind::Full));
}
