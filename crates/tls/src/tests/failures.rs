//! Failures of the handshake: each end has one clear line for each way in which it fails.

use super::*;
use crate::{ClientCertificates, Protocol as Version};
use rcgen::date_time_ymd;
use sockdrawer::Closed;

/// Returns what both ends report of a handshake that fails: the server and the client.
fn reports(server: ServerOptions, client: ClientOptions) -> [String; 2] {
    failed(&server.build().expect("a server"), &client.build().expect("a client"))
}

fn failed(server: &Server, client: &Client) -> [String; 2] {
    let (mut server, mut client) = join(server, client, b"hello");
    run(&mut server, &mut client);
    assert_eq!(heard(&mut client), b"", "it should have failed");
    for closed in [server.closed(), client.closed()] {
        assert!(matches!(closed, Some(Closed::Orderly | Closed::Aborted)), "{closed:?}");
    }
    [server.reports().join(" and "), client.reports().join(" and ")]
}

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];

const EXPIRED: &str = "the peer's certificate has expired";
const EARLY: &str = "the peer's certificate is not valid yet; is the clock of this machine right?";
const UNKNOWN: &str =
    "the peer's certificate is signed by no trusted authority: it is self-signed, or its authority has to be named";
const ANEW: &str =
    "the peer's certificate has a signature that is not of the trusted authority with that name: was the authority made anew?";
const AUTHORITY: &str =
    "the peer's certificate is an authority's, as `openssl req -x509` makes it: trust this very certificate, or let it sign one";
const NAME: &str = "the peer's certificate is for other.test, third.test, 192.0.2.7, not for localhost";
const NAMELESS: &str = "the peer's certificate names no host (subjectAltName; a CN is not looked at), and is asked for localhost";

const ALERT_TIME: &str = "CertificateExpired: this end's certificate has expired, or is not valid yet";
const ALERT_UNKNOWN: &str = "UnknownCA: it does not trust the authority of this end's certificate";
const ALERT_ANEW: &str = "DecryptError: it found a signature of this end's certificate wrong";
const ALERT_AUTHORITY: &str = "CertificateUnknown: it does not accept this end's certificate";
const ALERT_NAME: &str = "BadCertificate: it does not accept this end's certificate";

#[test]
fn a_certificate_that_is_not_good_is_refused_with_a_line_at_each_end() {
    let (authority, other) = (Authority::new("one"), Authority::new("another"));
    let good = parameters(&["localhost"]);
    let (mut expired, mut early) = (good.clone(), good.clone());
    (expired.not_after, early.not_before) = (date_time_ymd(2001, 1, 1), date_time_ymd(4000, 1, 1));
    let mut an_authoritys = good.clone();
    an_authoritys.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let cases = [
        (authority.signs(&an_authoritys), AUTHORITY, ALERT_AUTHORITY),
        (authority.signs(&expired), EXPIRED, ALERT_TIME),
        (authority.signs(&early), EARLY, ALERT_TIME),
        (other.signs(&good), UNKNOWN, ALERT_UNKNOWN),
        (signed_by_itself(&good).identity, UNKNOWN, ALERT_UNKNOWN),
        (Authority::new("one").signs(&good), ANEW, ALERT_ANEW),
        (authority.signs(&parameters(&["other.test", "third.test", "192.0.2.7"])), NAME, ALERT_NAME),
        (authority.signs(&parameters(&[])), NAMELESS, ALERT_NAME),
    ];
    for version in VERSIONS {
        for (identity, line, alert) in &cases {
            for on_workers in [false, true] {
                let server = Server::new([identity.clone()]).on_workers(on_workers);
                let client = authority.trusted().name("localhost").versions(version..=version).on_workers(on_workers);
                let told = format!("the peer refused the handshake with the TLS alert {alert}");
                assert_eq!(reports(server, client), [told, (*line).to_owned()], "{version:?}");
            }
        }
    }
}

#[test]
fn a_client_without_a_good_certificate_is_refused_with_a_line_at_each_end() {
    let (authority, other) = (Authority::new("one"), Authority::new("another"));
    let good = parameters(&["a client"]);
    let mut expired = good.clone();
    expired.not_after = date_time_ymd(2001, 1, 1);
    let none = "the client sent no certificate, and one is required";
    let cases = [
        (None, none, "CertificateRequired: it requires a client certificate"),
        (Some(authority.signs(&expired)), EXPIRED, ALERT_TIME),
        (Some(other.signs(&good)), UNKNOWN, ALERT_UNKNOWN),
    ];
    for version in VERSIONS {
        // In TLS 1.3 the client's handshake is over before the server has looked at its certificate.
        let refused = ["the peer refused the handshake with the TLS alert", "the peer sent the TLS alert"];
        let refused = refused[usize::from(version == Version::Tls13)];
        for (identity, line, alert) in &cases {
            for certificates in [ClientCertificates::Required, ClientCertificates::Optional] {
                let server = Server::new([authority.signs(&parameters(&["localhost"]))]);
                let server = server.client_authorities(authority.pem.clone(), certificates);
                let client = authority.trusted().name("localhost").versions(version..=version);
                let client = match identity {
                    Some(identity) => client.identity(identity.clone()),
                    None if certificates == ClientCertificates::Optional => continue,
                    None => client,
                };
                assert_eq!(reports(server, client), [(*line).to_owned(), format!("{refused} {alert}")]);
            }
        }
    }
}

#[test]
fn ends_with_nothing_in_common_say_what() {
    let certificate = certificate(&["localhost"]);
    let server = || Server::new([certificate.identity.clone()]);
    let client = || trusting(&certificate).name("localhost");
    let lines = |line: &str, alert: &str| [line.to_owned(), format!("the peer refused the handshake with the TLS alert {alert}")];
    for (one, other) in [(Version::Tls13, Version::Tls12), (Version::Tls12, Version::Tls13)] {
        assert_eq!(
            reports(server().versions(one..=one), client().versions(other..=other)),
            lines(
                "the client speaks none of the TLS versions that are allowed here",
                "ProtocolVersion: it speaks other versions of TLS"
            )
        );
    }
    for version in VERSIONS {
        assert_eq!(
            reports(server().alpn(["h2"]), client().alpn(["http/1.1"]).versions(version..=version)),
            lines(
                "the client offers none of the protocols that are spoken here (ALPN)",
                "NoApplicationProtocol: it speaks none of the protocols that were offered (ALPN)"
            )
        );
    }
    let suites = [
        (Version::Tls13, CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS13_AES_256_GCM_SHA384),
        (
            Version::Tls12,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
    ];
    for (version, there, here) in suites {
        only(Some(there));
        let server = server().versions(version..=version).build().expect("a server");
        only(Some(here));
        let client = client().versions(version..=version).build().expect("a client");
        only(None);
        assert_eq!(
            failed(&server, &client),
            lines(
                "both ends have no TLS cipher suite in common",
                "HandshakeFailure: it found nothing that both ends speak, or requires a client certificate"
            )
        );
    }
}

/// Bytes that both ends get in the place of a handshake, the line that they report, and the alert that they answer.
const NOT_TLS: [(&[u8], &str, Option<u8>); 9] = [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "the peer does not speak TLS", Some(50)),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "the peer does not speak TLS", Some(50)),
    // The hello of a client of SSL 2.
    (&[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0], "the peer does not speak TLS", Some(50)),
    (&[22, 3, 1, 255, 255], "the TLS handshake failed: received corrupt message of type MessageTooLarge", Some(50)),
    (&[22, 3, 1, 0, 0], "the TLS handshake failed: received corrupt message of type InvalidEmptyPayload", Some(50)),
    (
        &[22, 3, 1, 0, 4, 9, 0, 0, 0],
        "the TLS handshake failed: received unexpected handshake message: got HandshakeType(0x9)",
        Some(10),
    ),
    (&[23, 3, 3, 0, 1, 1], "the TLS handshake failed: received unexpected message: got ApplicationData", Some(10)),
    (&[20, 3, 3, 0, 1, 1], "the TLS handshake failed: received unexpected message: got ChangeCipherSpec", Some(10)),
    (&[21, 3, 3, 0, 2, 2, 40], "the peer refused the handshake with the TLS alert HandshakeFailure: it found nothing", None),
];

#[test]
fn a_peer_that_speaks_no_tls_is_told_so() {
    let certificate = certificate(&["localhost"]);
    for on_workers in [false, true] {
        let server = Server::new([certificate.identity.clone()]).on_workers(on_workers).build().expect("a server");
        let client = trusting(&certificate).name("localhost").on_workers(on_workers).build().expect("a client");
        for (text, line, alert) in NOT_TLS {
            let (mut server, mut client) = join(&server, &client, b"hello");
            client.sent();
            server.receive(text);
            client.receive(text);
            if on_workers {
                server.run_job();
                client.run_job();
            }
            let said = alert.map(|alert| vec![21, 3, 3, 0, 2, 2, alert]).unwrap_or_default();
            assert_eq!([server.sent(), client.sent()], [said.clone(), said], "{line}");
            let closed = if alert.is_some() { Closed::Orderly } else { Closed::Aborted };
            assert_eq!([server.closed(), client.closed()], [Some(closed); 2], "{line}");
            for reports in [server.reports(), client.reports()] {
                assert!(reports.len() == 1 && reports[0].starts_with(line), "{reports:?}");
            }
        }
    }
}

/// Less than a record's header is enough to tell, where the peer waits for an answer.
#[test]
fn a_short_word_is_not_waited_for_to_become_a_record() {
    let certificate = certificate(&["localhost"]);
    for on_workers in [false, true] {
        let server = Server::new([certificate.identity.clone()]).on_workers(on_workers).build().expect("a server");
        let mut server = Driver::open(Layer::new(server, Echo));
        server.receive(b"ping");
        assert_eq!((server.closed(), server.reports()), (Some(Closed::Orderly), &["the peer does not speak TLS".to_owned()][..]));
    }
    let client = trusting(&certificate).name("localhost").build().expect("a client");
    let mut client = connected(client, b"");
    client.receive(&[22]);
    assert_eq!(client.closed(), None);
}

#[test]
fn a_peer_that_sends_back_what_it_is_sent_speaks_no_tls() {
    let certificate = certificate(&["localhost"]);
    for version in VERSIONS {
        let server = Server::new([certificate.identity.clone()]).build().expect("a server");
        let client = trusting(&certificate).versions(version..=version).name("localhost").build().expect("a client");
        let (_, mut client) = join(&server, &client, b"hello");
        let hello = client.sent();
        client.receive(&hello);
        assert_eq!(client.reports(), ["the peer does not speak TLS: it sends back what it is sent"], "{version:?}");
    }
}

/// A server or client of the certificate that it is trusted by: `openssl req -x509` makes an authority's.
#[test]
fn a_certificate_that_is_itself_trusted_is_trusted_for_its_names_and_dates() {
    let mut an_authoritys = parameters(&["localhost"]);
    an_authoritys.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (mut expired, mut early) = (an_authoritys.clone(), an_authoritys.clone());
    (expired.not_after, early.not_before) = (date_time_ymd(2001, 1, 1), date_time_ymd(4000, 1, 1));
    let signed = Authority::new("one").signs(&parameters(&["localhost"]));
    let another = signed_by_itself(&an_authoritys);
    for version in VERSIONS {
        let join = |identity: &Identity, trusted: &[u8], name: &str| {
            let server = Server::new([identity.clone()]).build().expect("a server");
            let client = Client::new(Trust::Authorities(trusted.to_vec())).name(name).versions(version..=version);
            join(&server, &client.build().expect("a client"), b"hello")
        };
        for identity in [&another.identity, &signed] {
            let (mut server, mut client) = join(identity, identity.chain_pem(), "localhost");
            run(&mut server, &mut client);
            assert_eq!(heard(&mut client), b"hello", "{:?}", client.reports());
        }
        let cases = [
            (signed_by_itself(&expired).identity, None, "localhost", EXPIRED),
            (signed_by_itself(&early).identity, None, "localhost", EARLY),
            (another.identity.clone(), None, "other.test", "the peer's certificate is for localhost, not for other.test"),
            // The trusted authority has equal names and another key.
            (signed_by_itself(&an_authoritys).identity, Some(another.pem.as_bytes()), "localhost", AUTHORITY),
        ];
        for (identity, trusted, name, line) in &cases {
            let (mut server, mut client) = join(identity, trusted.unwrap_or(identity.chain_pem()), name);
            run(&mut server, &mut client);
            assert_eq!((heard(&mut client), client.reports().join("")), (vec![], (*line).to_owned()));
        }
        // A client shows one to a server.
        for (shown, is_served) in
            [(&another, true), (&signed_by_itself(&an_authoritys), false), (&signed_by_itself(&expired), false)]
        {
            let trusted = if is_served { &another.pem } else { &signed_by_itself(&early).pem };
            let server =
                Server::new([another.identity.clone()]).client_authorities(trusted.as_bytes(), ClientCertificates::Required);
            let client = trusting(&another).name("localhost").versions(version..=version).identity(shown.identity.clone());
            let (mut server, mut client) =
                super::join(&server.build().expect("a server"), &client.build().expect("a client"), b"hello");
            run(&mut server, &mut client);
            assert_eq!(heard(&mut client) == b"hello", is_served, "{:?}", server.reports());
        }
    }
}

/// Checks that this end does as rustls: what cannot be read is answered by an alert, and the end of a peer by an end.
#[test]
fn a_handshake_that_cannot_go_on_is_not_reset() {
    let certificate = certificate(&["localhost"]);
    let server = Server::new([certificate.identity.clone()]).build().expect("a server");
    let sslv2 = [&[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10][..], &[7; 37]].concat();
    for at in 1..sslv2.len() {
        let mut server = Driver::open(Layer::new(server.clone(), Echo));
        server.receive(&sslv2[..at]);
        assert_eq!((server.sent(), server.closed()), (vec![21, 3, 3, 0, 2, 2, 50], Some(Closed::Orderly)), "{at} bytes");
    }
    let client = trusting(&certificate).name("localhost").build().expect("a client");
    let hello = connected(client, b"").sent();
    for at in 0..hello.len() {
        let mut server = Driver::open(Layer::new(server.clone(), Echo));
        server.receive(&hello[..at]);
        server.finish();
        assert_eq!((server.sent(), server.closed()), (vec![], Some(Closed::Orderly)), "{at} bytes");
    }
}

/// Whatever becomes of one byte of a handshake: no end panics or goes on alone, and no end is established that the other is not.
#[test]
fn a_handshake_with_a_byte_changed_ends_or_is_whole() {
    let certificate = certificate(&["localhost"]);
    for version in VERSIONS {
        let server = Server::new([certificate.identity.clone()]).build().expect("a server");
        let client = trusting(&certificate).versions(version..=version).name("localhost").build().expect("a client");
        let (mut at, mut refused, mut tried) = (0_usize, 0, 0);
        loop {
            let (mut there, mut here) = join(&server, &client, b"hello");
            let mut before = 0;
            for turn in 0..6 {
                let mut wire = if turn % 2 == 0 { here.sent() } else { there.sent() };
                if let Some(byte) = at.checked_sub(before).and_then(|at| wire.get_mut(at)) {
                    *byte ^= 1 << (at % 8);
                }
                before += wire.len();
                if turn % 2 == 0 && there.closed().is_none() {
                    there.receive(&wire);
                } else if turn % 2 == 1 && here.closed().is_none() {
                    here.receive(&wire);
                }
            }
            for closed in [there.closed(), here.closed()].into_iter().flatten() {
                assert!(matches!(closed, Closed::Orderly | Closed::Aborted), "byte {at}: {closed:?}");
            }
            let whole = heard(&mut here) == b"hello";
            assert!(whole || heard(&mut here).is_empty(), "byte {at}");
            (refused, tried) = (refused + usize::from(!whole), tried + 1);
            if at > before {
                assert!(whole && refused * 10 > tried * 9, "{refused} of {tried}");
                break;
            }
            // Each of the first, which are the headers and hellos, and some of the rest.
            at += if at < 120 { 1 } else { 13 };
        }
    }
}
