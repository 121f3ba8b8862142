//! Clients that do not go on with their handshake, beside some that are served; and what the scanners of others find.

use crate::common::{Certificates, Echo, PATIENCE, Talk, is_long, program, serve};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sockdrawer_tls::Server;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An established client of rustls.
type Stream = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn config(certificates: &Certificates) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&certificates.authority()).expect("PEM")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth())
}

fn stream(certificates: &Certificates, at: SocketAddr) -> Stream {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = rustls::ClientConnection::new(config(certificates), name).expect("a client");
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    rustls::StreamOwned::new(connection, stream)
}

/// Returns the time that 99 of 100 questions are answered within, and that of the middle one: the least of ten rounds, as other programs have the
/// machine too.
fn answers(stream: &mut Stream, questions: usize) -> [Duration; 2] {
    let rounds: Vec<_> = (0..10).map(|_| answers_of_a_round(stream, questions / 10)).collect();
    [0, 1].map(|at| rounds.iter().map(|round| round[at]).min().expect("ten rounds"))
}

fn answers_of_a_round(stream: &mut Stream, questions: usize) -> [Duration; 2] {
    let mut times: Vec<_> = (0..questions)
        .map(|_| {
            let (began, mut answer) = (Instant::now(), [0; 64]);
            stream.write_all(&[7; 64]).expect("it is served");
            stream.read_exact(&mut answer).expect("it is served");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    [times[questions * 99 / 100], times[questions / 2]]
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Opens connections, each of which says the first half of a hello, or its answer to nothing; then holds them.
const HALF: &str = "
import resource, socket, sys
address, port, count, half = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
streams = []
for turn in range(count):
    streams.append(socket.create_connection((address, port)))
    streams[-1].sendall(half if turn % 2 else half + bytes.fromhex(sys.argv[5]))
print('held', flush=True)
sys.stdin.read()
";

/// 10,000 handshakes, 500 unless long, that stop half-way or after their hello: those that are served notice nothing.
#[test]
fn handshakes_that_stop_half_way_hold_up_nobody() {
    let Some(python) = program("python3", "python3") else { return };
    let certificates = Certificates::new();
    let count = if is_long() { 10_000 } else { 500 };
    let serving = serve(Server::new([certificates.identity("server")]).handshake_timeout(Duration::from_secs(20)), Echo);
    let mut served = stream(&certificates, serving.address);
    let questions = if is_long() { 20_000 } else { 500 };
    let before = answers(&mut served, questions);
    let memory = resident();
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = rustls::ClientConnection::new(config(&certificates), name).expect("a client");
    client.write_tls(&mut hello).expect("memory");
    let (half, rest) = hello.split_at(hello.len() / 2);
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (port, number) = (serving.address.port().to_string(), count.to_string());
    let words = ["-c", HALF, "127.0.0.1", &port, &number, &hexadecimal(half), &hexadecimal(rest)];
    let mut held = Talk::start(&python, &words);
    let meanwhile = answers(&mut served, questions);
    held.until("held");
    let then = answers(&mut served, questions);
    let each = resident().saturating_sub(memory) * 1024 / count;
    println!("p99 and p50 before {before:?}, meanwhile {meanwhile:?}, held {then:?}; {each} bytes each");
    assert!(each < 64 * 1024, "{each} bytes each");
    if is_long() {
        assert!(meanwhile[0].max(then[0]) < 2 * before[0], "p99 {meanwhile:?} and {then:?}, and {before:?} before");
    }
    // They go when they gave up, and then when their time was up.
    assert_eq!(held.end().0, Some(0));
    let failed = (0..=count).filter(|_| serving.seen.next().is_err()).count();
    assert_eq!((failed, answers(&mut served, 100).len()), (count, 2));
}

/// Starts a plain server of rustls, with the certificate and the options of ours, for as long as the test runs.
fn plain(certificates: &Certificates) -> SocketAddr {
    let chain =
        CertificateDer::pem_file_iter(certificates.path("server.pem")).expect("a file").map(|of| of.expect("PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(certificates.path("server.key")).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("a key");
    // As ours: resumed by tickets alone.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.ticketer = rustls::crypto::ring::Ticketer::new().expect("random numbers");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let at = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).expect("a server");
                let mut stream = rustls::StreamOwned::new(connection, stream);
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    at
}

/// Name of a line that differs: whether testssl sees one by ID in TLS 1.3 depends on whether a ticket came before its client ended.
const RESUMPTION: &str = "Session Resumption";

/// Returns what a scanner says of a server, without what differs between two runs.
fn found(scanner: &std::path::Path, words: &[&str], at: SocketAddr) -> Vec<String> {
    let end = Command::new(scanner).args(words).arg(at.to_string()).output().expect("it runs");
    let text = String::from_utf8_lossy(&end.stdout).replace(&at.to_string(), "ADDRESS").replace(&at.port().to_string(), "PORT");
    assert!(text.lines().count() > 20, "{text}");
    let differs =
        ["Start ", "Done ", "Session Ticket RFC 5077 hint", "TLS clock skew", "Fingerprint", "SHA1 ", "SHA256 ", RESUMPTION];
    text.lines().filter(|line| !differs.iter().any(|sign| line.contains(sign))).map(str::to_owned).collect()
}

#[test]
fn scanners_find_nothing_that_plain_rustls_has_not() {
    let scanners: [(&str, &[&str]); 2] = [
        ("sslscan", &["--no-colour", "--show-sigs"]),
        (
            "testssl",
            &["--quiet", "--color", "0", "--warnings", "batch", "--ip", "one", "--fast", "--openssl", "/usr/bin/openssl"],
        ),
    ];
    if !is_long() {
        println!("skipped: scanners take minutes (ci/long tls-interop)");
        return;
    }
    let certificates = Certificates::new();
    let serving = serve(Server::new([certificates.identity("server")]), Echo);
    let plain = plain(&certificates);
    for (name, words) in scanners {
        let Some(scanner) = program(name, if name == "testssl" { "testssl.sh" } else { name }) else { continue };
        let [ours, theirs] = [serving.address, plain].map(|at| found(&scanner, words, at));
        println!("{name}: {} lines", ours.len());
        for line in &ours {
            if !theirs.contains(line) {
                println!("ours: {line}");
            }
        }
        assert!(ours == theirs, "{name} of plain rustls: {}", theirs.join("\n"));
    }
}
