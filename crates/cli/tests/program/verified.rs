//! An echo under TLS, and clients of rustls whose every byte and record is in the hands of the test.

use crate::operated::Operated;
use crate::tls::{Certificate, certificate};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Tls13CipherSuite};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::scope;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Clients of TLS 1.3 that trust these certificates.
pub(crate) fn trusting(certificates: &[Certificate], resumes: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    certificates.iter().for_each(|certificate| roots.add(certificate.der()).expect("a certificate"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = builder.expect("a version").with_root_certificates(roots).with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Arc::new(config)
}

/// An echo under TLS that can be upgraded, with two certificates of which one is in force.
pub(crate) struct Secured {
    pub(crate) server: Operated,
    pub(crate) at: String,
    pub(crate) certificates: [Certificate; 2],
}

impl Secured {
    pub(crate) fn start(name: &str, settings: &str) -> Secured {
        let folder = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        let certificates = ["0", "1"].map(|number| {
            let (folder, made) = (folder.join(number), certificate(|_| {}));
            std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join("chain.pem"), &made.pem))
                .and_then(|()| std::fs::write(folder.join("key.pem"), &made.key))
                .expect("the folder of temporary files takes it");
            made
        });
        choose(&folder, 0);
        // As Kubernetes has them: links through one that is replaced.
        ["chain.pem", "key.pem"].into_iter().for_each(|file| {
            symlink(format!("data/{file}"), folder.join(file)).expect("a link");
        });
        let path = |file: &str| folder.join(file).to_str().expect("text").to_owned();
        let file = format!(
            "upgrade = \"{}\"\n[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\ntls-cert = [\"{}\"]\ntls-key = [\"{}\"]\n{settings}\n",
            path("upgrade"),
            path("chain.pem"),
            path("key.pem")
        );
        let server = Operated::start(name, &file);
        let at = server.addresses[0].clone();
        Secured { server, at, certificates }
    }

    pub(crate) fn client(&self, number: u64) -> Client {
        Client::connect(&trusting(&self.certificates, false), &self.at, number)
    }

    /// Clients that have shaken hands.
    pub(crate) fn clients(&self, count: u64) -> Vec<Client> {
        let established = |number| {
            let mut client = self.client(number);
            client.exchanges(100);
            client
        };
        (0..count).map(established).collect()
    }

    /// Returns what the server says of its pool.
    pub(crate) fn status(&self) -> Value {
        let status: Value = serde_json::from_str(&self.server.says("status --json")).expect("JSON");
        status["pools"]["echo"].clone()
    }

    /// Returns the process that serves.
    pub(crate) fn pid(&self) -> u32 {
        let status: Value = serde_json::from_str(&self.server.says("status --json")).expect("JSON");
        status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_else(|| panic!("{status}"))
    }

    /// Returns what it has counted, once it has counted so many of these: a close is counted a moment after the client knows of it.
    pub(crate) fn counts(&self, name: &str, count: u64) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let counts = self.status()["counts"].take();
            if counts[name] == count {
                return counts;
            }
            assert!(Instant::now() < until, "{name} is not {count}: {counts}");
        }
    }

    /// Has the certificate of this number be the one in force, once the server has seen it.
    pub(crate) fn choose(&self, number: usize) {
        choose(&self.server.folder, number);
    }
}

fn choose(folder: &Path, number: usize) {
    symlink(number.to_string(), folder.join("next"))
        .and_then(|()| std::fs::rename(folder.join("next"), folder.join("data")))
        .expect("a link");
}

/// A client of an echo. Each says another stream of bytes, of which none may be missing in what it hears.
pub(crate) struct Client {
    tls: ClientConnection,
    socket: TcpStream,
    number: u64,
    said: u64,
    heard: u64,
    /// The end of what was sealed and is not sent yet.
    kept: Vec<u8>,
}

fn byte(of: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ of.wrapping_mul(0xd6e8_feb8)).to_le_bytes()[1]
}

impl Client {
    pub(crate) fn connect(config: &Arc<ClientConfig>, at: &str, number: u64) -> Client {
        let name = ServerName::try_from("localhost").expect("a name");
        let socket = TcpStream::connect(at).expect("it accepts");
        socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(PATIENCE))).expect("a socket");
        let tls = ClientConnection::new(config.clone(), name).expect("a client");
        Client { tls, socket, number, said: 0, heard: 0, kept: Vec::new() }
    }

    /// Returns the certificate that the server showed; None of a handshake that was resumed.
    pub(crate) fn shown(&self) -> Option<&CertificateDer<'static>> {
        let full = self.tls.handshake_kind() != Some(HandshakeKind::Resumed);
        self.tls.peer_certificates().filter(|_| full).and_then(<[_]>::first)
    }

    pub(crate) fn suite(&self) -> &'static Tls13CipherSuite {
        self.tls.negotiated_cipher_suite().and_then(|suite| suite.tls13()).expect("TLS 1.3")
    }

    pub(crate) fn was_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    fn sealed(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut wire).expect("room");
        }
        wire
    }

    fn send(&mut self) {
        let wire = self.sealed();
        self.socket.write_all(&wire).expect("the connection stands");
    }

    fn seal(&mut self, count: u64) {
        let bytes: Vec<u8> = (self.said..self.said + count).map(|at| byte(self.number, at)).collect();
        self.tls.writer().write_all(&bytes).expect("room");
        self.said += count;
    }

    /// Says the next bytes.
    pub(crate) fn says(&mut self, count: u64) {
        self.seal(count);
        self.send();
    }

    /// Says so many, but keeps the second half of the records.
    pub(crate) fn says_half(&mut self, count: u64) {
        self.seal(count);
        self.send_half();
    }

    /// Takes new keys, which half a record tells.
    pub(crate) fn updates_half(&mut self) {
        self.tls.refresh_traffic_keys().expect("TLS 1.3");
        self.send_half();
    }

    /// Begins its handshake with half of what it says first.
    pub(crate) fn greets_half(&mut self) {
        self.send_half();
    }

    /// Goes through its handshake, but keeps the last that it has to say.
    pub(crate) fn greets(&mut self) {
        self.send();
        while !self.tls.wants_write() {
            assert!(self.tls.read_tls(&mut self.socket).expect("an answer") > 0, "it is ended");
            self.tls.process_new_packets().expect("TLS");
        }
        self.kept = self.sealed();
    }

    fn send_half(&mut self) {
        let mut wire = self.sealed();
        self.kept = wire.split_off(wire.len() / 2);
        self.socket.write_all(&wire).expect("the connection stands");
    }

    /// Sends what was kept.
    pub(crate) fn says_the_rest(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.socket.write_all(&kept).expect("the connection stands");
    }

    /// Takes new keys and tells of them.
    pub(crate) fn updates(&mut self) {
        self.tls.refresh_traffic_keys().expect("TLS 1.3");
        self.send();
    }

    /// Hears all that it said, with not a byte another.
    pub(crate) fn hears(&mut self) {
        while self.heard < self.said {
            let taken = self.tls.read_tls(&mut self.socket).unwrap_or_else(|error| panic!("{}: {error}", self.number));
            assert!(taken > 0, "{}: the connection ended after {} bytes", self.number, self.heard);
            let state = self.tls.process_new_packets().unwrap_or_else(|error| panic!("{}: {error}", self.number));
            let mut bytes = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut bytes).expect("it is there");
            for found in bytes {
                assert!(found == byte(self.number, self.heard), "{}: byte {} is wrong", self.number, self.heard);
                self.heard += 1;
            }
            // The rest of the handshake, and answers to new keys.
            self.send();
        }
        assert_eq!(self.heard, self.said, "{}", self.number);
    }

    pub(crate) fn exchanges(&mut self, count: u64) {
        self.says(count);
        self.hears();
    }

    /// Ends in order, both ways.
    pub(crate) fn ends(mut self) {
        self.tls.send_close_notify();
        self.send();
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return assert!(self.is_ended(), "{}: it ended without a goodbye", self.number),
                Ok(_) => {}
                Err(error) => panic!("{}: {error}", self.number),
            }
        }
    }

    /// Returns the number of bytes that came back.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    fn is_ended(&mut self) -> bool {
        self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed() && state.plaintext_bytes_to_read() == 0)
    }
}

/// Has other threads stop, after a failure too.
pub(crate) struct Stops<'s>(pub(crate) &'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Behaviour of a client while its server is changed.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Speaks,
    Idles,
    SaysHalf,
    UpdatesHalf,
}

const ALL: [Does; 4] = [Does::Speaks, Does::Idles, Does::SaysHalf, Does::UpdatesHalf];
/// Threads of clients that speak.
const SPEAKERS: usize = 2;

/// Speaks with all of them, and says so after each round, until it is to stop.
fn speak(clients: &mut [&mut Client], told: &mpsc::Sender<()>, stop: &AtomicBool) {
    for round in 0.. {
        clients.iter_mut().for_each(|client| client.says(1 + (round * 997) % 20_000));
        // New keys before the answers, of some.
        if round % 3 == 0 {
            clients.iter_mut().for_each(|client| client.updates());
        }
        clients.iter_mut().for_each(|client| client.hears());
        let _ = told.send(());
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Does this under all kinds of clients, which have the bytes of one round behind them.
pub(crate) fn under<T>(clients: &mut [Client], act: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let (told, rounds) = mpsc::channel();
    let mut speaking: Vec<Vec<&mut Client>> = (0..SPEAKERS).map(|_| Vec::new()).collect();
    let mut halves = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        match ALL[number % ALL.len()] {
            Does::Speaks => speaking[number / ALL.len() % SPEAKERS].push(client),
            Does::Idles => {}
            Does::SaysHalf => {
                client.says_half(1 + number as u64 * 31 % 40_000);
                halves.push(client);
            }
            Does::UpdatesHalf => {
                client.updates_half();
                halves.push(client);
            }
        }
    }
    scope(|scope| {
        let _stops = Stops(&stop);
        for clients in &mut speaking {
            let (told, stop) = (told.clone(), &stop);
            scope.spawn(move || speak(clients, &told, stop));
        }
        drop(told);
        // All speak by then.
        (0..SPEAKERS).for_each(|_| rounds.recv_timeout(PATIENCE).expect("a round"));
        let came = act();
        stop.store(true, Ordering::SeqCst);
        halves.iter_mut().for_each(|client| client.says_the_rest());
        halves.iter_mut().for_each(|client| client.hears());
        came
    })
}
