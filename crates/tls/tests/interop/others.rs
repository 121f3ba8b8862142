//! curl, and the `ssl` of Python.

use crate::common::{Ask, Certificates, Echo, Http, Talk, connect, heard, program, serve};
use sockdrawer_tls::Server;
use std::process::Command;

#[test]
fn curl_is_answered() {
    let Some(curl) = program("curl", "curl") else { return };
    let certificates = Certificates::new();
    let serving = serve(Server::new([certificates.identity("server")]).alpn(["http/1.1"]), Http);
    let (port, authority) = (serving.address.port(), certificates.word("authority.pem"));
    let (url, resolve) = (format!("https://localhost:{port}/"), format!("localhost:{port}:127.0.0.1"));
    let run = |words: &[&str]| {
        let end = Command::new(&curl).args(["--silent", "--resolve", &resolve]).args(words).output().expect("it runs");
        (end.status.code(), String::from_utf8_lossy(&end.stdout).into_owned())
    };
    let answered = (Some(0), "hello\n".to_owned());
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        assert_eq!(run(&[version, &["--cacert", &authority, &url]].concat()), answered);
        assert_eq!(run(&[version, &["--insecure", &url]].concat()), answered);
        // By its address, for which the certificate is too.
        assert_eq!(run(&[version, &["--cacert", &authority, &format!("https://127.0.0.1:{port}/")]].concat()), answered);
        (0..3).for_each(|_| assert_eq!(serving.seen.done().alpn.as_deref(), Some(&b"http/1.1"[..])));
        // Its exit code for a certificate that it does not trust.
        assert_eq!(run(&[version, &["--cacert", &certificates.word("other.pem"), &url]].concat()).0, Some(60));
        assert!(serving.seen.next().is_err());
    }
    // In the clear.
    assert_eq!(run(&[&format!("http://localhost:{port}/")]).1, "");
    assert_eq!(serving.seen.next(), Err("the peer does not speak TLS".to_owned()));
}

/// Says hello twice, ends in order and reads the answer's end; then says hello and goes without a word.
const CLIENT: &str = "
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.maximum_version = ssl.TLSVersion[sys.argv[3]]
def connect():
    stream = context.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[2]))), server_hostname='localhost')
    stream.sendall(b'hello')
    assert stream.recv(100, ) == b'hello'
    return stream
stream = connect()
big = bytes(range(256)) * 400
stream.sendall(big)
got = b''
while len(got) < len(big):
    got += stream.recv(100000)
assert got == big
plain = stream.unwrap()
assert plain.recv(100) == b''
print('ended in order', flush=True)
connect().close()
";

/// Echoes one connection, whose end it answers with its own.
const SERVER: &str = "
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
context.maximum_version = ssl.TLSVersion[sys.argv[3]]
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], 'here', flush=True)
stream, _ = listener.accept()
stream = context.wrap_socket(stream, server_side=True)
while True:
    bytes = stream.recv(100000)
    if not bytes:
        break
    stream.sendall(bytes)
stream.unwrap()
print('ended in order', flush=True)
";

#[test]
fn python_ends_in_order_and_is_told_so() {
    let Some(python) = program("python3", "python3") else { return };
    let certificates = Certificates::new();
    let serving = serve(Server::new([certificates.identity("server")]), Echo);
    let port = serving.address.port().to_string();
    for version in ["TLSv1_2", "TLSv1_3"] {
        let words = ["-c", CLIENT, &certificates.word("authority.pem"), &port, version];
        let mut client = Talk::start(&python, &words);
        client.until("ended in order");
        assert_eq!(client.end().0, Some(0));
        let [chain, key] = [certificates.word("server.pem"), certificates.word("server.key")];
        let mut server = Talk::start(&python, &["-c", SERVER, &chain, &key, version]);
        server.until("port ");
        let at = format!("127.0.0.1:{}", server.until(" here")).parse().expect("an address");
        let (ask, hears) = Ask::new(vec![b'x'; 100_000], 100_000);
        let (_pool, seen) = connect(certificates.client(), at, ask);
        assert_eq!(heard(&hears).len(), 100_000);
        server.until("ended in order");
        assert_eq!(seen.reports(), [""; 0]);
    }
}
