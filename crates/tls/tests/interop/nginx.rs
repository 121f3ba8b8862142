//! nginx as a server of TLS, and as a proxy in front that speaks TLS to this library.

use crate::common::{Ask, Certificates, Http, Talk, connect, heard, program, serve};
use sockdrawer_tls::{ClientCertificates, HandshakeKind, Protocol, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Returns a free port, at an address that is nobody else's in these tests: until nginx has it, no other test gets it.
fn address(last: u8) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 92, last], 0))).expect("a free port");
    listener.local_addr().expect("a bound socket has an address")
}

/// Runs it with a configuration of `http` or `stream`, and waits until it listens.
fn nginx(certificates: &Certificates, name: &str, inner: &str, at: SocketAddr) -> Option<Talk> {
    let program = program("nginx", "nginx-light")?;
    let folder = certificates.word("");
    let text = format!(
        "daemon off; master_process off; pid {folder}{name}.pid; error_log stderr notice;
        events {{ worker_connections 64; }}
        http {{
            access_log off; client_body_temp_path {folder}1; proxy_temp_path {folder}2; fastcgi_temp_path {folder}3;
            uwsgi_temp_path {folder}4; scgi_temp_path {folder}5;
            {inner}
        }}"
    );
    certificates.write(name, &text);
    let mut nginx = Talk::start(&program, &["-e", "stderr", "-c", &certificates.word(name), "-p", &folder]);
    nginx.until("getrlimit");
    while TcpStream::connect(at).is_err() {
        std::thread::yield_now();
    }
    Some(nginx)
}

#[test]
fn its_server_is_spoken_to() {
    let certificates = Certificates::new();
    let [chain, key, authority] = ["server.pem", "server.key", "authority.pem"].map(|name| certificates.word(name));
    let at = address(1);
    let inner = format!(
        "server {{ listen {at} ssl; ssl_certificate {chain}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
            ssl_client_certificate {authority}; ssl_verify_client optional; ssl_session_cache shared:a:1m; ssl_session_tickets on;
            location / {{ return 200 \"$ssl_protocol $ssl_client_verify $ssl_session_reused $ssl_server_name\\n\"; }} }}"
    );
    let Some(_nginx) = nginx(&certificates, "server.conf", &inner, at) else { return };
    for (version, name) in [(Protocol::Tls12, "TLSv1.2"), (Protocol::Tls13, "TLSv1.3")] {
        for (identity, verified) in [(None, "NONE"), (Some("client"), "SUCCESS")] {
            let options = certificates.client().versions(version..=version);
            let options = match identity {
                Some(identity) => options.identity(certificates.identity(identity)),
                None => options,
            };
            let (ask, hears) = Ask::new("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", usize::MAX);
            let (_pool, seen) = connect(options, at, ask);
            for reused in [".", "r"] {
                let answer = String::from_utf8(heard(&hears)).expect("text");
                assert!(answer.ends_with(&format!("\r\n\r\n{name} {verified} {reused} localhost\n")), "{reused}: {answer}");
            }
            let kinds: Vec<_> = seen.handshakes().into_iter().flatten().map(|done| done.kind).collect();
            assert_eq!(kinds[..2], [HandshakeKind::Full, HandshakeKind::Resumed], "{version:?}");
            assert_eq!(seen.reports(), [""; 0]);
        }
    }
}

/// A proxy that shows a certificate and checks ours, for clients in the clear.
#[test]
fn its_proxy_speaks_to_a_pool() {
    let certificates = Certificates::new();
    let [chain, key, authority] = ["client.pem", "client.key", "authority.pem"].map(|name| certificates.word(name));
    let required = ClientCertificates::Required;
    let serving =
        serve(Server::new([certificates.identity("server")]).client_authorities(certificates.authority(), required), Http);
    let plain = serve(Server::new([certificates.identity("server")]), Http);
    let (at, to, other) = (address(2), serving.address, plain.address);
    let proxy = |place: &str, to: SocketAddr, version: &str| {
        format!(
            "location {place} {{ proxy_pass https://{to}; proxy_ssl_protocols {version}; proxy_ssl_certificate {chain};
            proxy_ssl_certificate_key {key}; proxy_ssl_trusted_certificate {authority}; proxy_ssl_verify on; proxy_ssl_name localhost;
            proxy_ssl_server_name on; proxy_ssl_session_reuse on; proxy_http_version 1.1; proxy_set_header Connection close;
            }}"
        )
    };
    let places = [
        proxy("/2/", to, "TLSv1.2"),
        proxy("/3/", to, "TLSv1.3"),
        proxy("/o2/", other, "TLSv1.2"),
        proxy("/o3/", other, "TLSv1.3"),
    ];
    let inner = format!("server {{ listen {at}; {} }}", places.join("\n"));
    let Some(_nginx) = nginx(&certificates, "proxy.conf", &inner, at) else { return };
    for place in ["/2/", "/3/", "/o2/", "/o2/", "/o3/", "/o3/"] {
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        write!(stream, "GET {place} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.ends_with("\r\n\r\nhello\n"), "{place}: {answer}");
    }
    assert_eq!((serving.seen.resumed(), plain.seen.resumed()), (0, 2));
    assert!(serving.seen.handshakes().into_iter().all(|done| done.is_ok_and(|done| !done.peer_certificates.is_empty())));
}
