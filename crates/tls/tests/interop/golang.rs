//! `crypto/tls` of Go, by a small program that is built where Go is installed.

use crate::common::{Certificates, Echo, Talk, connect, program, serve};
use sockdrawer_tls::{ClientCertificates, Protocol, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

fn peer(go: &Path, certificates: &Certificates) -> PathBuf {
    let (source, built) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peer.go"), certificates.path("peer"));
    let mut build = Command::new(go);
    build
        .args(["build", "-o"])
        .arg(&built)
        .arg(source)
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "off")
        .env("GOTOOLCHAIN", "local");
    let end = build.output().expect("it runs");
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    built
}

#[test]
fn go_speaks_to_both_ends() {
    let Some(go) = program("go", "golang-go") else { return };
    let certificates = Certificates::new();
    let peer = peer(&go, &certificates);
    let folder = certificates.word("");
    let server = || Server::new([certificates.identity("server"), certificates.identity("rsa")]).alpn(["h2", "echo"]);
    let (open, required) =
        (serve(server(), Echo), serve(server().client_authorities(certificates.authority(), ClientCertificates::Required), Echo));
    for (version, protocol) in [("1.2", Protocol::Tls12), ("1.3", Protocol::Tls13)] {
        for (serving, resumed) in [(&open, true), (&required, false)] {
            let client = Talk::start(&peer, &["client", &serving.address.to_string(), &folder, version]);
            let (code, said) = client.end();
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains(&format!("resumed {resumed} alpn echo")), "{said}");
            (0..2).for_each(|_| assert_eq!(serving.seen.done().protocol, protocol));
        }
        let mut server = Talk::start(&peer, &["server", "127.0.0.1:0", &folder, version]);
        server.until("at ");
        let at = server.until("\n").trim().parse().expect("an address");
        let client = certificates.client().identity(certificates.identity("client")).alpn(["echo"]);
        let (pool, seen) = connect(client, at, Echo);
        // It counts connections whose bytes came back, and ends them.
        server.until("echoed 3 resumed 2");
        assert_eq!(seen.done().protocol, protocol);
        drop(pool);
    }
    assert_eq!((open.seen.reports(), required.seen.reports()), (vec![], vec![]));
}
