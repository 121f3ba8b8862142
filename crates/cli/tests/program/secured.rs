//! `serve` under TLS as its clients meet it: what is agreed on, and whom it refuses.

use crate::operated::Operated;
use crate::program::Program;
use crate::tls::{Certificate, certificate};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, ProtocolVersion, SignatureScheme, StreamOwned};
use serde_json::Value;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Properties of a connection that a client asks for.
#[derive(Default)]
pub(crate) struct Asks<'a> {
    /// The name (SNI); none: an address, of which there is no SNI.
    pub(crate) name: Option<&'a str>,
    pub(crate) alpn: &'a [&'a str],
    /// The only version; none: both.
    pub(crate) version: Option<&'static rustls::SupportedProtocolVersion>,
    pub(crate) identity: Option<&'a Certificate>,
    /// Sent before all else.
    pub(crate) header: &'a str,
}

/// An established connection, by a client that is not this project's.
pub(crate) struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    /// Makes a connection that is established, and answered: in TLS 1.3 a server refuses a client's certificate after the client's handshake.
    pub(crate) fn connect(at: &str, asks: &Asks<'_>) -> io::Result<Client> {
        let all = [asks.version.unwrap_or(&TLS13), asks.version.unwrap_or(&TLS12)];
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&all).expect("versions of rustls");
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
        let mut config = match asks.identity {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![own.der()], key).expect("they go together")
            }
        };
        config.alpn_protocols = asks.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(asks.name.unwrap_or("127.0.0.1").to_owned()).expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("it can begin");
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(asks.header.as_bytes())?;
        let mut client = Client(StreamOwned::new(tls, stream));
        client.is_answered()?;
        Ok(client)
    }

    /// Sends bytes and gets them back.
    pub(crate) fn is_answered(&mut self) -> io::Result<()> {
        let mut answer = [0; 5];
        self.0.write_all(b"hello").and_then(|()| self.0.read_exact(&mut answer))?;
        assert_eq!(&answer, b"hello");
        Ok(())
    }

    /// Returns whether this certificate was shown.
    pub(crate) fn was_shown(&self, certificate: &Certificate) -> bool {
        self.0.conn.peer_certificates().and_then(<[_]>::first) == Some(&certificate.der())
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.0.conn.alpn_protocol()
    }

    /// Sends these and its end, but no close_notify.
    pub(crate) fn cuts_off(mut self, bytes: &[u8]) -> TcpStream {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).expect("they are taken");
        self.0.sock.shutdown(Shutdown::Write).expect("it stands");
        self.0.sock
    }

    /// Checks that the server ends it, by close_notify: without that it were an error.
    pub(crate) fn ends(mut self) {
        assert_eq!(self.0.read(&mut [0; 64]).expect("the end is told"), 0);
    }
}

/// Connects a client of no special wishes.
pub(crate) fn connect(at: &str) -> Client {
    Client::connect(at, &Asks::default()).expect("it is served")
}

/// Takes any certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Starts an echo under TLS with this certificate, and with these lines more.
fn serving(name: &str, own: &Certificate, more: &str) -> Operated {
    let file =
        format!("[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\ntls-cert = \"a.pem\"\ntls-key = \"a.key\"\n{more}");
    Operated::told(name, &file, |server| server.put("a", own))
}

/// Returns the reason why a client is not served.
#[track_caller]
fn refused(at: &str, asks: &Asks<'_>) -> String {
    match Client::connect(at, asks) {
        Ok(_) => panic!("it is served"),
        Err(error) => error.to_string(),
    }
}

fn status(server: &Operated) -> Value {
    serde_json::from_str(&server.says("status --json")).expect("JSON")
}

#[test]
fn the_name_that_a_client_asks_for_chooses_the_certificate() {
    let named = |name: &str| {
        certificate(|parameters| parameters.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().expect("a name"))])
    };
    let (first, second) = (named("a.example"), named("b.example"));
    let file = "[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\ntls-cert = [\"a.pem\", \"b.pem\"]\ntls-key = [\"a.key\", \"b.key\"]\n";
    let server = Operated::told("secured-names", file, |server| {
        server.put("a", &first);
        server.put("b", &second);
    });
    for (name, certificate) in
        [(Some("a.example"), &first), (Some("b.example"), &second), (Some("c.example"), &first), (None, &first)]
    {
        let client = Client::connect(&server.addresses[0], &Asks { name, ..Asks::default() }).expect("it is served");
        assert!(client.was_shown(certificate), "{name:?}");
    }
}

#[test]
fn what_is_agreed_on_is_what_the_settings_allow() {
    let own = certificate(|_| {});
    let server = serving("secured-agreed", &own, "tls-alpn = [\"one\", \"two\"]\ntls-version = \"1.3\"\n");
    let at = &server.addresses[0];
    for (alpn, agreed) in [(&["two", "one"][..], Some(&b"one"[..])), (&["three", "two"], Some(b"two")), (&[], None)] {
        let client = Client::connect(at, &Asks { alpn, ..Asks::default() }).expect("it is served");
        assert_eq!((client.alpn(), client.0.conn.protocol_version()), (agreed, Some(ProtocolVersion::TLSv1_3)));
    }
    assert!(refused(at, &Asks { alpn: &["three"], ..Asks::default() }).contains("NoApplicationProtocol"));
    assert!(refused(at, &Asks { version: Some(&TLS12), ..Asks::default() }).contains("ProtocolVersion"));
    let shown = status(&server);
    assert_eq!(shown["pools"]["echo"]["tls"]["handshakes"], serde_json::json!({"full": 3, "resumed": 0, "failed": 2}), "{shown}");
}

#[test]
fn clients_show_certificates_where_they_must() {
    let (own, client, stranger) = (certificate(|_| {}), certificate(|_| {}), certificate(|_| {}));
    for clients in ["required", "optional"] {
        let more = format!("tls-client-ca = \"ca.pem\"\ntls-clients = \"{clients}\"\n");
        let file = format!(
            "[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\ntls-cert = \"a.pem\"\ntls-key = \"a.key\"\n{more}"
        );
        let server = Operated::told(&format!("secured-{clients}"), &file, |server| {
            server.put("a", &own);
            server.put("ca", &client);
        });
        let at = &server.addresses[0];
        for version in [&TLS12, &TLS13] {
            let asks = |identity| Asks { identity, version: Some(version), ..Asks::default() };
            Client::connect(at, &asks(Some(&client))).expect("it is served");
            let why = refused(at, &asks(Some(&stranger)));
            assert!(why.contains("alert"), "{why}");
            let without = Client::connect(at, &asks(None));
            assert_eq!(without.is_ok(), clients == "optional", "{:?}", without.err());
        }
    }
}

#[test]
fn a_handshake_that_does_not_end_is_ended_and_counted() {
    let own = certificate(|_| {});
    let server = serving("secured-deadline", &own, "tls-handshake-timeout = \"100ms\"\n");
    let mut silent = TcpStream::connect(&server.addresses[0]).expect("it listens");
    silent.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    match silent.read(&mut [0; 64]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
    // A client that speaks no TLS need not wait for that.
    let mut plain = TcpStream::connect(&server.addresses[0]).expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    plain.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
    let handshakes = &status(&server)["pools"]["echo"]["tls"]["handshakes"];
    assert_eq!(*handshakes, serde_json::json!({"full": 0, "resumed": 0, "failed": 2}));
}

#[test]
fn secrets_are_written_where_that_is_asked_for_and_when_there_are_some() {
    let own = certificate(|_| {});
    let server = serving("secured-keys", &own, "");
    let with = fs::read_to_string(server.path("a.toml")).expect("its file") + "tls-key-log = \"keys\"\n";
    fs::write(server.path("keys.toml"), &with).expect("a file");
    let keys = || fs::read_to_string(server.path("keys")).ok();
    let mut check = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    check.args(["check", "keys.toml"]).current_dir(&server.folder);
    let check = Program::run(check).end();
    assert_eq!((check.code, keys()), (Some(0), None), "{check:?}");
    assert!(server.says("apply keys.toml --dry-run").contains("nothing was changed"));
    connect(&server.addresses[0]);
    assert_eq!(keys(), None, "it was only planned");
    server.says("apply keys.toml");
    connect(&server.addresses[0]);
    let written = keys().expect("it is there");
    let labels: Vec<_> = written.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(labels.contains(&"CLIENT_TRAFFIC_SECRET_0") && labels.contains(&"SERVER_TRAFFIC_SECRET_0"), "{labels:?}");
    let mode = fs::metadata(server.path("keys")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file that cannot be written is told of before it is to be written.
    for (place, says) in [("no/keys", "No such file or directory"), (".", "it is a directory: name a file")] {
        fs::write(server.path("keys.toml"), with.replace("\"keys\"", &format!("\"{place}\""))).expect("a file");
        let end = server.ctl("apply keys.toml");
        assert!(end.code == Some(1) && end.stderr.contains(says) && end.stderr.lines().count() == 1, "{end:?}");
    }
}

#[test]
fn the_environment_names_no_file_of_secrets() {
    let own = certificate(|_| {});
    let files = own.files("environment");
    let log = format!("{}.log", files[0]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command
        .args(["serve", "echo", "-l", "127.0.0.1:0", "--tls-cert", &files[0], "--tls-key", &files[1]])
        .env("SSLKEYLOGFILE", &log);
    let mut server = Program::run(command);
    connect(server.line().strip_prefix("listening on ").expect("where"));
    assert!(!fs::exists(&log).expect("the folder is there"));
}

#[test]
fn the_header_of_a_proxy_comes_before_tls_and_from_proxies_alone() {
    let own = certificate(|_| {});
    let header = "PROXY TCP4 192.0.2.7 192.0.2.1 4321 443\r\n";
    let asks = Asks { header, ..Asks::default() };
    let server = serving("secured-proxy", &own, "proxy-protocol = \"from=127.0.0.0/8\"\n");
    let _client = Client::connect(&server.addresses[0], &asks).expect("it is served");
    let listed = server.says("connections");
    assert!(listed.contains(" 192.0.2.7:4321 "), "{listed}");
    refused(&server.addresses[0], &Asks::default());
    // To a server that expects none, it is no TLS, and the peer is who it is.
    let server = serving("secured-no-proxy", &own, "proxy-protocol = \"from=10.0.0.0/8\"\n");
    refused(&server.addresses[0], &asks);
    let _client = connect(&server.addresses[0]);
    let listed = server.says("connections");
    assert!(listed.contains(" 127.0.0.1:") && !listed.contains("192.0.2.7"), "{listed}");
    assert_eq!(status(&server)["pools"]["echo"]["tls"]["handshakes"]["failed"], 1);
}

#[test]
fn mistakes_of_the_command_line_are_one_line_that_says_what_to_do() {
    let (own, other) = (certificate(|_| {}), certificate(|_| {}));
    let ([cert, key], [_, other]) = (own.files("mistakes"), other.files("mistakes-other"));
    for (words, says) in [
        (format!("--tls-cert {cert}"), "--tls-key is needed once for each tls-cert: certificates: 1, keys: 0"),
        (format!("--tls-key {key}"), "--tls-key is for TLS: set tls-cert and tls-key too"),
        ("--tls-alpn h2".to_owned(), "--tls-alpn is for TLS"),
        (format!("--tls-cert {key} --tls-key {cert}"), "it has a key and no certificate: name the file of the certificate"),
        (format!("--tls-cert {cert} --tls-key {cert}"), "it has a certificate and no key: name the file of the private key"),
        (format!("--tls-cert {cert} --tls-key {other}"), "it is not the key of the certificate in"),
        (format!("--tls-cert / --tls-key {key}"), "--tls-cert: /: it is no regular file"),
        (format!("--tls-cert {cert} --tls-key /dev/zero"), "--tls-key: /dev/zero: it is no regular file"),
        (
            format!("--tls-cert {cert} --tls-key /nowhere"),
            "--tls-key: /nowhere: No such file or directory (os error 2): name a file",
        ),
        (format!("--tls-cert {cert} --tls-key="), "is empty: write the name of a file"),
        (format!("--tls-cert {cert} --tls-key {key} --tls-client-ca {key}"), "--tls-client-ca: "),
        (format!("--tls-cert {cert} --tls-key {key} --tls-clients optional"), "--tls-clients is for tls-client-ca"),
        (
            format!("--tls-cert {cert} --tls-key {key} --tls-alpn="),
            "not a protocol's name of 1 to 255 bytes: write such as http/1.1",
        ),
        (format!("--tls-cert {cert} --tls-key {key} --tls-version 1.1"), "There are 1.2, 1.3"),
        (
            format!("--tls-cert {cert} --tls-key {key} --tls-key-log /no/keys"),
            "--tls-key-log: /no/keys: No such file or directory",
        ),
        (format!("--tls-crt {cert}"), "did you mean `--tls-cert`?"),
    ] {
        let end = Program::of(&format!("serve echo -l 127.0.0.1:0 {words}")).end();
        assert!(end.code == Some(2) && end.stderr.lines().count() == 1 && end.stderr.contains(says), "{words}: {end:?}");
    }
}

#[test]
fn without_a_log_what_cannot_be_used_is_told_on_standard_error() {
    let own = certificate(|_| {});
    let [cert, key] = own.files("unlogged");
    let mut server = Program::of(&format!("serve echo -l 127.0.0.1:0 --tls-cert {cert} --tls-key {key}"));
    let at = server.line().strip_prefix("listening on ").expect("where").to_owned();
    fs::remove_file(&key).expect("it is there");
    let line = server.error_line();
    let says = format!(
        "error: certificates by its files failed, all goes on as it was: --tls-key: {key}: No such file or directory (os error 2): name a file \
         that is there and may be read"
    );
    assert_eq!(line, says);
    connect(&at);
}
