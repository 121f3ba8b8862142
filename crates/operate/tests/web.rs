//! The example of an axum app that is operated, started as a program: both versions of HTTP, TLS whose certificate changes, slow heads, metrics of
//! its own and the drain.

mod common;

use common::Scene;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Puts a certificate of its own into the files of the example.
fn certificate(folder: &Path) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate =
        rcgen::CertificateParams::new(["localhost".to_owned()]).and_then(|of| of.self_signed(&key)).expect("signed");
    std::fs::write(folder.join("chain.pem"), certificate.pem()).expect("a file");
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).expect("a file");
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
    stream
}

/// Asks on a connection that is kept, and returns the body.
fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") || !answer.windows(8).any(|bytes| bytes == b"you are ") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).expect("it answers");
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend(&bytes[..count]);
    }
    String::from_utf8(answer).expect("text")
}

fn web_socket(address: &str) -> TcpStream {
    let mut stream = connect(address);
    let request = "GET /chat HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Returns the version of HTTP and the certificates of an answer over TLS.
fn over_tls(address: &str) -> String {
    let url = format!("https://{address}/");
    let curl = Command::new("curl")
        .args(["--silent", "--insecure", "--http2", "--write-out", "%{http_version}\n%{certs}", &url])
        .output();
    let curl = curl.expect("apt-get install curl");
    assert!(curl.status.success(), "{curl:?}");
    String::from_utf8(curl.stdout).expect("text")
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        // waits because: the page of metrics tells nothing by itself.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that a pool that a reload adds is served, and one that goes takes no other with it.
fn a_pool_comes_and_goes_by_reloads(scene: &Scene, configuration: &str, plain: &str) {
    let path = scene.folder.join("second");
    let second = format!("{configuration}\n[pool.second]\nprotocol = \"web\"\nlisten = \"unix:{}\"\n", path.display());
    scene.configure(&second);
    assert_eq!(scene.ask("POST", "/reload").0, 200);
    let mut beside = UnixStream::connect(&path).expect("it listens");
    beside.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    beside.read_to_string(&mut answer).expect("an orderly end");
    assert!(answer.contains("you are "), "{answer}");
    scene.configure(configuration);
    assert_eq!(scene.ask("POST", "/reload").0, 200);
    assert!(ask(&mut connect(plain)).contains("you are "));
}

#[test]
fn an_axum_app_is_operated() {
    let scene = Scene::new("web");
    certificate(&scene.folder);
    let listen = format!(
        "listen = [\"127.0.0.1:0\", {{ address = \"127.0.0.1:0\", tls-cert = \"{0}/chain.pem\", tls-key = \"{0}/key.pem\", tls-alpn = [\"h2\"] }}]",
        scene.folder.display()
    );
    let configuration = include_str!("../examples/web.toml")
        .replace("/tmp/web.sock", &scene.control().display().to_string())
        .replace("/tmp/web.upgrade", &scene.folder.join("upgrade").display().to_string())
        .replace("127.0.0.1:9464", "127.0.0.1:0")
        .replace("listen = \"127.0.0.1:9000\"", &listen)
        .replace("head = \"10s\"", "head = \"1s\"");
    scene.configure(&configuration);
    let mut server = scene.start("web", 2);
    let listening = server.listening.clone();
    let [plain, tls] = &listening[..] else { panic!("{listening:?}") };

    let mut kept = connect(plain);
    assert!(ask(&mut kept).contains("you are 1\n"));
    let first = over_tls(tls);
    assert!(first.contains("2\n") && first.contains("BEGIN CERTIFICATE"), "{first}");
    let mut slow = connect(plain);
    slow.write_all(b"GET / HTTP/1.1\r\nHo").expect("it reads");
    let mut silent = connect(plain);
    let began = Instant::now();
    for late in [&mut slow, &mut silent] {
        assert!(matches!(late.read(&mut [0; 64]), Ok(0) | Err(_)) && began.elapsed() < PATIENCE / 2, "a head that does not end");
    }

    certificate(&scene.folder);
    scene.configure(&configuration.replace("head = \"1s\"", "head = \"20s\""));
    assert_eq!(scene.ask("POST", "/reload").0, 200);
    let second = over_tls(tls);
    assert!(second.contains("BEGIN CERTIFICATE") && second != first, "{second}");

    let mut kept = connect(plain);
    ask(&mut kept);
    let mut left = web_socket(plain);
    left.write_all(&[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8]).expect("it reads");
    let mut goodbye = [0; 4];
    left.read_exact(&mut goodbye).expect("it answers");
    assert_eq!((goodbye, left.read(&mut [0]).expect("an orderly end")), ([0x88, 2, 3, 0xe8], 0));
    drop(web_socket(plain));
    let connections = || scene.ask("GET", "/status").1;
    eventually("a WebSocket whose client has gone ends", || connections().contains("\"connections\":1,"));
    let mut socket = web_socket(plain);
    socket.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x']).expect("it reads");
    let mut echo = [0; 3];
    socket.read_exact(&mut echo).expect("it answers");
    assert_eq!(echo, [0x82, 1, b'x']);
    let page = || scene.ask("GET", "/metrics").1;
    eventually("the app's own counters", || page().contains("web_requests_total{of=\"page\"} 4\n"));
    assert!(page().contains("web_requests_total{of=\"chat\"} 3\n"), "{}", page());

    a_pool_comes_and_goes_by_reloads(&scene, &configuration.replace("head = \"1s\"", "head = \"20s\""), plain);
    let began = Instant::now();
    assert_eq!(scene.ask("POST", "/stop").0, 200);
    let mut goodbye = [0];
    socket.read_exact(&mut goodbye).expect("a goodbye");
    assert_eq!(goodbye[0], 0x88, "a frame that closes");
    drop(socket);
    assert_eq!(kept.read(&mut [0; 64]).expect("no reset"), 0);
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "a connection between two requests is not waited for");
}
