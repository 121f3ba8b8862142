//! `openssl s_client` and `openssl s_server`.

use crate::common::{Ask, Certificates, Echo, Serving, Talk, connect, heard, is_long, program, serve};
use sockdrawer_tls::{ClientCertificates, HandshakeKind, Protocol, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// The versions with their suites, by OpenSSL's names and by those of the standard.
const SUITES: [(&str, &str, &str); 9] = [
    ("-tls1_3", "TLS_AES_128_GCM_SHA256", "TLS13_AES_128_GCM_SHA256"),
    ("-tls1_3", "TLS_AES_256_GCM_SHA384", "TLS13_AES_256_GCM_SHA384"),
    ("-tls1_3", "TLS_CHACHA20_POLY1305_SHA256", "TLS13_CHACHA20_POLY1305_SHA256"),
    ("-tls1_2", "ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("-tls1_2", "ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("-tls1_2", "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("-tls1_2", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("-tls1_2", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("-tls1_2", "ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];
const VERSIONS: [(&str, Protocol); 2] = [("-tls1_2", Protocol::Tls12), ("-tls1_3", Protocol::Tls13)];

/// Returns the words that choose a suite.
fn suite<'w>(version: &'w str, suite: &'w str) -> [&'w str; 3] {
    [version, if version == "-tls1_3" { "-ciphersuites" } else { "-cipher" }, suite]
}

/// Starts a client that checks the certificate, and is connected.
fn client(openssl: &Path, certificates: &Certificates, at: SocketAddr, words: &[&str]) -> Talk {
    let (at, authority) = (at.to_string(), certificates.word("authority.pem"));
    let always = ["s_client", "-connect", &at, "-CAfile", &authority, "-verify_return_error", "-servername", "localhost"];
    // OpenSSL writes about certificates to standard error, which on a busy machine comes amid the data.
    Talk::start(openssl, &[&always[..], &["-verify_quiet"], words].concat())
}

/// Starts a server with the certificates `server` and `rsa`, and returns it with where it is.
fn server(openssl: &Path, certificates: &Certificates, words: &[&str]) -> (Talk, SocketAddr) {
    let file = |name: &str| certificates.word(name);
    let [chain, key, rsa, rsa_key] = [file("server.pem"), file("server.key"), file("rsa.pem"), file("rsa.key")];
    let always = ["s_server", "-accept", "127.0.0.1:0", "-cert", &chain, "-key", &key, "-dcert", &rsa, "-dkey", &rsa_key];
    let mut server = Talk::start(openssl, &[&always[..], words].concat());
    server.until("ACCEPT ");
    let at = server.until("\n");
    let at = at.trim().parse().expect("an address");
    (server, at)
}

fn both(certificates: &Certificates) -> sockdrawer_tls::ServerOptions {
    Server::new([certificates.identity("server"), certificates.identity("rsa")])
}

/// Returns a text of digits, which are no commands of OpenSSL's.
fn digits(count: usize) -> String {
    (0..count).map(|at| if at % 100 == 99 { '\n' } else { char::from(b'0' + (at % 10) as u8) }).collect()
}

#[test]
fn its_client_speaks_every_suite() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    for (version, name, standard) in SUITES {
        let mut client =
            client(&openssl, &certificates, serving.address, &[&suite(version, name)[..], &["-quiet", "-no_ign_eof"]].concat());
        client.say("hello\n");
        client.until("hello\n");
        assert_eq!(client.end().0, Some(0), "{name}");
        assert_eq!(serving.seen.done().suite, standard);
    }
    assert_eq!(serving.seen.reports(), [""; 0]);
}

#[test]
fn its_server_speaks_every_suite() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    for (version, name, standard) in SUITES {
        let (_server, at) = server(&openssl, &certificates, &[&suite(version, name)[..], &["-rev"]].concat());
        let (ask, hears) = Ask::new("hello\n", 6);
        let (_pool, seen) = connect(certificates.client(), at, ask);
        assert_eq!(heard(&hears), b"olleh\n", "{name}");
        assert_eq!((seen.done().suite, seen.reports()), (standard.to_owned(), vec![]));
    }
}

/// Data of all sizes comes back through records of the smallest and the largest size that OpenSSL sends.
#[test]
fn its_records_of_any_size_are_read() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    let text = digits(300_000);
    for (version, _) in VERSIONS {
        let sizes: [&[&str]; 3] = [
            &["-max_send_frag", "512", "-split_send_frag", "512"],
            &["-max_send_frag", "16384"],
            &["-read_buf", "64000", "-max_send_frag", "1021"],
        ];
        for size in sizes {
            let words = [&[version, "-quiet", "-no_ign_eof"][..], size].concat();
            let mut client = client(&openssl, &certificates, serving.address, &words);
            for part in text.as_bytes().chunks(10_000) {
                let part = std::str::from_utf8(part).expect("digits");
                client.say(part);
                client.until(part);
            }
            assert_eq!(client.end().0, Some(0));
        }
    }
    assert_eq!(serving.seen.reports(), [""; 0]);
}

/// The pool's client echoes what is typed at OpenSSL's server.
#[test]
fn its_server_sends_records_of_any_size() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let text = digits(100_000);
    for (version, _) in VERSIONS {
        let (mut server, at) = server(&openssl, &certificates, &[version, "-max_send_frag", "512", "-split_send_frag", "512"]);
        let (_pool, seen) = connect(certificates.client(), at, Echo);
        for part in text.as_bytes().chunks(10_000) {
            let part = std::str::from_utf8(part).expect("digits");
            server.say(part);
            server.until(part);
        }
        assert_eq!(seen.reports(), [""; 0]);
    }
}

/// Updates keys with OpenSSL as the peer: `k` updates its keys, `K` asks for new ones of this end too.
fn updates(peer: &mut Talk, sign: &str) {
    for (command, text) in [("", "one\n"), ("k\n", "two\n"), ("K\n", "three\n"), ("K\n", "four\n"), ("k\n", "five\n")] {
        if !command.is_empty() {
            peer.say(command);
            peer.until(sign);
        }
        peer.say(text);
        peer.until(text);
    }
}

#[test]
fn keys_are_updated_by_either_end_of_it() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    for (version, name, _) in SUITES.into_iter().filter(|(version, ..)| *version == "-tls1_3") {
        let mut client = client(&openssl, &certificates, serving.address, &suite(version, name));
        client.until("Verify return code: 0 (ok)");
        updates(&mut client, "KEYUPDATE");
        client.say("Q\n");
        assert_eq!(client.end().0, Some(0));
        let (mut server, at) = server(&openssl, &certificates, &[&suite(version, name)[..], &["-msg"]].concat());
        let (_pool, seen) = connect(certificates.client(), at, Echo);
        server.until("CIPHER is ");
        updates(&mut server, ">>> TLS 1.3, Handshake [length 0005], KeyUpdate");
        assert_eq!(seen.reports(), [""; 0]);
    }
    assert_eq!(serving.seen.reports(), [""; 0]);
}

/// A million records, 2,000 unless long, each of 512 bytes there and some that are larger back; then new keys.
#[test]
fn keys_are_updated_after_a_million_records() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    let part = format!("{}\n", "0123456789".repeat(819));
    let parts = if is_long() { 1_000_000 } else { 2_000 } / part.len().div_ceil(512);
    for (version, name, _) in SUITES.into_iter().filter(|(version, ..)| *version == "-tls1_3") {
        let words = [&suite(version, name)[..], &["-max_send_frag", "512", "-split_send_frag", "512"]].concat();
        let mut client = client(&openssl, &certificates, serving.address, &words);
        client.until("Verify return code: 0 (ok)");
        for _ in 0..parts {
            client.say(&part);
            client.until(&part);
        }
        updates(&mut client, "KEYUPDATE");
        client.say("Q\n");
        assert_eq!(client.end().0, Some(0));
    }
    assert_eq!(serving.seen.reports(), [""; 0]);
}

/// It may go on or not: this end does not renegotiate, and serves the others.
#[test]
fn it_is_not_renegotiated_with() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    let mut client = client(&openssl, &certificates, serving.address, &["-tls1_2"]);
    client.until("Verify return code: 0 (ok)");
    client.say("hello\n");
    client.until("hello\n");
    client.say("R\n");
    client.until("RENEGOTIATING");
    assert!(client.end().1.contains("no renegotiation"));
    let (mut server, at) = server(&openssl, &certificates, &["-tls1_2"]);
    let (_pool, _) = connect(certificates.client(), at, Echo);
    server.until("CIPHER is ");
    server.say("r\n");
    // It gives up, and the next connection is as good.
    server.until("no renegotiation");
    let mut other = client_that_asks(&openssl, &certificates, &serving);
    other.until("hello\n");
}

/// A byte is changed on its way.
#[test]
fn it_is_told_by_an_alert_that_a_record_is_damaged() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    let relay = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (at, to) = (relay.local_addr().expect("bound"), serving.address);
    let relaying = std::thread::spawn(move || {
        let (mut near, _) = relay.accept().expect("it connects");
        let mut far = TcpStream::connect(to).expect("it listens");
        let (mut back, mut to_near) = (far.try_clone().expect("a copy"), near.try_clone().expect("a copy"));
        let answers = std::thread::spawn(move || std::io::copy(&mut back, &mut to_near));
        let mut bytes = [0; 4096];
        while let count @ 1.. = near.read(&mut bytes).expect("it sends") {
            // In TLS 1.2 the first record of this type is data.
            bytes[count - 1] ^= u8::from(bytes[0] == 23);
            far.write_all(&bytes[..count]).expect("it reads");
        }
        answers.join().expect("no panic").expect("an orderly end");
    });
    let mut client = client(&openssl, &certificates, at, &["-tls1_2"]);
    client.until("Verify return code: 0 (ok)");
    client.say("hello\n");
    client.until("alert bad record mac");
    client.end();
    relaying.join().expect("no panic");
    assert_eq!(serving.seen.reports(), ["a record that was forged, damaged or sealed with another key"]);
}

fn client_that_asks(openssl: &Path, certificates: &Certificates, serving: &Serving) -> Talk {
    let mut client = client(openssl, certificates, serving.address, &["-quiet"]);
    client.say("hello\n");
    client
}

#[test]
fn its_client_resumes() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates), Echo);
    for (at, (version, protocol)) in VERSIONS.into_iter().enumerate() {
        let file = certificates.word("session");
        for (words, sign) in [(["-sess_out", &file], "New, TLSv1."), (["-sess_in", &file], "Reused, TLSv1.")] {
            let mut client = client(&openssl, &certificates, serving.address, &[version, words[0], words[1]]);
            client.until(sign);
            client.say("hello\n");
            client.until("hello\n");
            client.say("Q\n");
            assert_eq!(client.end().0, Some(0));
            assert_eq!(serving.seen.done().protocol, protocol);
        }
        assert_eq!(serving.seen.resumed(), at + 1);
    }
}

#[test]
fn its_server_is_resumed() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    for (version, protocol) in VERSIONS {
        let (_server, at) = server(&openssl, &certificates, &[version, "-rev"]);
        let (ask, hears) = Ask::new("hello\n", 6);
        let (pool, seen) = connect(certificates.client(), at, ask);
        // Each connection ends when it was answered, and another begins.
        (0..3).for_each(|_| assert_eq!(heard(&hears), b"olleh\n"));
        drop(pool);
        let kinds: Vec<_> = seen.handshakes().into_iter().flatten().map(|done| (done.kind, done.protocol)).collect();
        let resumed = (HandshakeKind::Resumed, protocol);
        assert_eq!(kinds[..3], [(HandshakeKind::Full, protocol), resumed, resumed]);
    }
}

#[test]
fn client_certificates_are_shown_and_checked() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let authority = certificates.authority();
    let required = serve(both(&certificates).client_authorities(authority, ClientCertificates::Required), Echo);
    let words = |name: &str| [certificates.word(&format!("{name}.pem")), certificates.word(&format!("{name}.key"))];
    for (version, _) in VERSIONS {
        let [chain, key] = words("client");
        let mut client_of =
            client(&openssl, &certificates, required.address, &[version, "-cert", &chain, "-key", &key, "-quiet", "-no_ign_eof"]);
        client_of.say("hello\n");
        client_of.until("hello\n");
        assert_eq!((client_of.end().0, required.seen.done().peer_certificates.is_empty()), (Some(0), false));
        let [other, other_key] = words("other");
        let refused: [(&[&str], &str, &str); 2] = [
            (&[], "alert certificate required", "the client sent no certificate, and one is required"),
            (
                &["-cert", &other, "-key", &other_key],
                "alert unknown ca",
                "the peer's certificate is signed by no trusted authority: it is self-signed, or its authority has to be named",
            ),
        ];
        for (words, alert, line) in refused {
            let mut client = client(&openssl, &certificates, required.address, &[&[version][..], words].concat());
            client.until(alert);
            assert_eq!(required.seen.next(), Err(line.to_owned()));
        }
        // Its server, which requires one.
        let authority = certificates.word("authority.pem");
        let (_server, at) =
            server(&openssl, &certificates, &[version, "-Verify", "2", "-verify_return_error", "-CAfile", &authority, "-rev"]);
        let (ask, hears) = Ask::new("hello\n", 6);
        let (_pool, _) = connect(certificates.client().identity(certificates.identity("client")), at, ask);
        assert_eq!(heard(&hears), b"olleh\n");
    }
    assert_eq!(required.seen.resumed(), 0);
}

#[test]
fn names_and_protocols_are_agreed_on() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let serving = serve(both(&certificates).alpn(["h2", "http/1.1"]), Echo);
    for (version, _) in VERSIONS {
        for (offered, sign) in [("http/1.1,h2", "ALPN protocol: h2"), ("http/1.1", "ALPN protocol: http/1.1")] {
            client(&openssl, &certificates, serving.address, &[version, "-alpn", offered]).until(sign);
            assert_eq!(serving.seen.done().server_name.as_deref(), Some("localhost"));
        }
        client(&openssl, &certificates, serving.address, &[version, "-alpn", "spdy"]).until("alert no application protocol");
        assert!(serving.seen.next().is_err());
        // The certificate is one that the client can verify.
        for (signatures, sign) in [("ECDSA+SHA256", "CN = server"), ("RSA-PSS+SHA256:RSA+SHA256", "CN = rsa")] {
            client(&openssl, &certificates, serving.address, &[version, "-sigalgs", signatures]).until(sign);
            // The client is killed once it has seen the certificate, so this handshake may be done or not.
            let _ = serving.seen.next();
        }
        let (_server, at) = server(&openssl, &certificates, &[version, "-alpn", "h2", "-rev"]);
        let (ask, hears) = Ask::new("hello\n", 6);
        let (_pool, seen) = connect(certificates.client().alpn(["http/1.1", "h2"]), at, ask);
        assert_eq!((heard(&hears), seen.done().alpn), (b"olleh\n".to_vec(), Some(b"h2".to_vec())));
    }
}

#[test]
fn its_server_with_a_wrong_certificate_is_refused() {
    let Some(openssl) = program("openssl", "openssl") else { return };
    let certificates = Certificates::new();
    let [other, key] = [certificates.word("other.pem"), certificates.word("other.key")];
    for (version, _) in VERSIONS {
        let words = ["s_server", "-accept", "127.0.0.1:0", "-cert", &other, "-key", &key, version];
        let mut server = Talk::start(&openssl, &words);
        server.until("ACCEPT ");
        let at = server.until("\n").trim().parse().expect("an address");
        let (_pool, seen) = connect(certificates.client(), at, Echo);
        server.until("alert unknown ca");
        let line =
            "the peer's certificate is signed by no trusted authority: it is self-signed, or its authority has to be named";
        assert_eq!(seen.next(), Err(line.to_owned()));
        // The server has no version in common with the client.
        let other_version = if version == "-tls1_2" { Protocol::Tls13 } else { Protocol::Tls12 };
        let (_server, at) = self::server(&openssl, &certificates, &[version]);
        let (_pool, seen) = connect(certificates.client().versions(other_version..=other_version), at, Echo);
        let line = "the peer refused the handshake with the TLS alert ProtocolVersion: it speaks other versions of TLS";
        assert_eq!(seen.next(), Err(line.to_owned()));
    }
}
