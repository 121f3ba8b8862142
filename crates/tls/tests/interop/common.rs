//! Pools under TLS, certificates in files, and programs that are talked to.

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sockdrawer::connecting::Connecting;
use sockdrawer::layer::Layer;
use sockdrawer::observe::Event;
use sockdrawer::{Address, Config, Context, Input, Peer, Pool, Protocol, Service, Step};
pub(crate) use sockdrawer_catalog::echo::Echo;
use sockdrawer_tls::{Client, ClientOptions, Handshake, HandshakeDone, HandshakeKind, Identity, ServerOptions, Trust};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

/// Maximum time that anything on this machine takes, however busy it is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns whether tests may take minutes: see `ci/long tls-interop`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SOCKDRAWER_LONG").is_some()
}

/// Returns where the program is; if it is missing, says that the test is skipped.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = format!("{}:/usr/sbin:/usr/local/go/bin", std::env::var("PATH").unwrap_or_default());
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|place| place.is_file());
    if found.is_none() {
        println!("skipped: {name} is not installed (Debian: apt-get install {package})");
    }
    found
}

/// A folder of this test, which goes with it.
pub(crate) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Certificates of one authority, in files `NAME.pem` and `NAME.key`: `server`, `rsa` where it was asked for, `client`, and `other`, which
/// another authority signed; `authority.pem`.
pub(crate) struct Certificates(Folder);

impl Certificates {
    pub(crate) fn new() -> Certificates {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("interop-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let certificates = Certificates(Folder(folder));
        let (authority, issuer) = authority("an authority");
        let (_, other) = authority_of_others();
        certificates.write("authority.pem", &authority);
        for name in ["server", "client"] {
            certificates.sign(name, &KeyPair::generate().expect("a key"), &issuer);
        }
        certificates.sign("other", &KeyPair::generate().expect("a key"), &other);
        if let Some(key) = certificates.rsa_key() {
            certificates.sign("rsa", &key, &issuer);
        }
        certificates
    }

    /// Makes an RSA key by OpenSSL: ring makes none.
    fn rsa_key(&self) -> Option<KeyPair> {
        let openssl = program("openssl", "openssl")?;
        let made = Command::new(openssl).args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]).output();
        let pem = String::from_utf8(made.expect("it runs").stdout).expect("PEM");
        Some(KeyPair::from_pem(&pem).expect("a key of RSA"))
    }

    fn sign(&self, name: &str, key: &KeyPair, issuer: &Issuer<'static, KeyPair>) {
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
        parameters.distinguished_name.push(DnType::CommonName, name);
        self.write(&format!("{name}.pem"), &parameters.signed_by(key, issuer).expect("a certificate").pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Returns a path as a word of a command.
    pub(crate) fn word(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path of ASCII").to_owned()
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        let (chain, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        Identity::from_files(chain, key).expect("they were just written")
    }

    pub(crate) fn authority(&self) -> Vec<u8> {
        std::fs::read(self.path("authority.pem")).expect("it was just written")
    }

    /// Makes a client that trusts the authority, and asks for `localhost`.
    pub(crate) fn client(&self) -> ClientOptions {
        Client::new(Trust::Authorities(self.authority())).name("localhost")
    }
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = parameters.self_signed(&key).expect("a certificate").pem();
    (pem, Issuer::new(parameters, key))
}

fn authority_of_others() -> (String, Issuer<'static, KeyPair>) {
    authority("another authority")
}

/// Answers any request of HTTP.
pub(crate) struct Http;

impl Service for Http {
    type Protocol = Http;
    fn open(&self, _peer: &Peer) -> Http {
        Http
    }
}

impl Protocol for Http {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.until(b"\r\n\r\n").is_none() {
            return Step::Continue;
        }
        cx.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        Step::Close
    }
}

/// Sends a text to each connection, and tells what came of it once that is as long as `until`, or the peer has ended.
pub(crate) struct Ask {
    says: Vec<u8>,
    until: usize,
    heard: Mutex<mpsc::Sender<Vec<u8>>>,
}

impl Ask {
    pub(crate) fn new(says: impl Into<Vec<u8>>, until: usize) -> (Ask, mpsc::Receiver<Vec<u8>>) {
        let (heard, hears) = mpsc::channel();
        (Ask { says: says.into(), until, heard: Mutex::new(heard) }, hears)
    }
}

pub(crate) struct Asking {
    says: Vec<u8>,
    until: usize,
    heard: Vec<u8>,
    tell: mpsc::Sender<Vec<u8>>,
}

impl Service for Ask {
    type Protocol = Asking;
    fn open(&self, _peer: &Peer) -> Asking {
        let tell = self.heard.lock().expect("nobody panicked").clone();
        Asking { says: self.says.clone(), until: self.until, heard: Vec::new(), tell }
    }
}

impl Protocol for Asking {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&self.says);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        self.heard.extend_from_slice(input.take_all());
        if self.heard.len() < self.until {
            return Step::Continue;
        }
        // The test may have heard enough.
        let _ = self.tell.send(std::mem::take(&mut self.heard));
        Step::Close
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        let _ = self.tell.send(std::mem::take(&mut self.heard));
        Step::Close
    }
}

/// Outcome of a handshake.
type Outcome = Result<Handshake, String>;

/// Handshakes and reports that one pool saw.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    handshakes: Arc<(Mutex<Vec<Outcome>>, Condvar)>,
    /// The number of those that a test took.
    taken: Arc<AtomicUsize>,
    reports: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    pub(crate) fn observer(&self) -> impl Fn(&HandshakeDone<'_>) + Send + Sync + 'static {
        let handshakes = self.handshakes.clone();
        move |done| {
            let outcome = done.outcome.cloned().map_err(|refused| refused.to_string());
            handshakes.0.lock().expect("nobody panicked").push(outcome);
            handshakes.1.notify_all();
        }
    }

    fn events(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let reports = self.reports.clone();
        move |event| match event {
            Event::Reported { report: sockdrawer::Report { message, .. }, .. } => {
                reports.lock().expect("nobody panicked").push(message.clone())
            }
            Event::ConnectionPanicked { .. } => reports.lock().expect("nobody panicked").push(format!("{event:?}")),
            _ => {}
        }
    }

    pub(crate) fn handshakes(&self) -> Vec<Outcome> {
        self.handshakes.0.lock().expect("nobody panicked").clone()
    }

    /// Returns the outcome of the next handshake, which may still be under way: a peer that prints that its own side is done
    /// is ahead of this side.
    #[track_caller]
    pub(crate) fn next(&self) -> Outcome {
        let (handshakes, changed) = &*self.handshakes;
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        let handshakes = handshakes.lock().expect("nobody panicked");
        let waited = changed.wait_timeout_while(handshakes, PATIENCE, |done| done.len() <= at);
        let (handshakes, over) = waited.expect("nobody panicked");
        assert!(!over.timed_out(), "handshake {at} did not end in time");
        handshakes[at].clone()
    }

    /// Returns the next handshake, which has to be done.
    #[track_caller]
    pub(crate) fn done(&self) -> Handshake {
        self.next().expect("it was done")
    }

    pub(crate) fn reports(&self) -> Vec<String> {
        self.reports.lock().expect("nobody panicked").clone()
    }

    /// Returns how many handshakes were resumed.
    pub(crate) fn resumed(&self) -> usize {
        let resumed = |outcome: &&Outcome| outcome.as_ref().is_ok_and(|of| of.kind == HandshakeKind::Resumed);
        self.handshakes().iter().filter(resumed).count()
    }
}

/// A server on a free port.
pub(crate) struct Serving {
    _pool: Pool,
    pub(crate) address: SocketAddr,
    pub(crate) seen: Seen,
}

pub(crate) fn serve(options: ServerOptions, service: impl Service) -> Serving {
    let seen = Seen::default();
    let tls = options.observe(seen.observer()).build().expect("a server");
    let config = Config::accept(Layer::new(tls, service)).loops(1).workers(1).observer(seen.events());
    let pool = Pool::start(config.listen("127.0.0.1:0")).expect("it starts");
    let Address::Tcp(address) = pool.addresses()[0] else { panic!("it listens to TCP") };
    Serving { _pool: pool, address, seen }
}

/// Keeps one connection to `to`: when it ends, another begins, but no more than a hundred in a second.
pub(crate) fn connect(options: ClientOptions, to: SocketAddr, service: impl Service) -> (Pool, Seen) {
    let seen = Seen::default();
    let tls = options.observe(seen.observer()).build().expect("a client");
    let to = Connecting::to([to.to_string()]).keep(1).rate(100.0);
    let config = Config::connect(Layer::new(tls, service), to).loops(1).workers(1).observer(seen.events());
    (Pool::start(config).expect("it starts"), seen)
}

/// A program that is talked to. Ended when a test leaves it.
pub(crate) struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    says: mpsc::Receiver<Vec<u8>>,
    /// Text that the program said and that was not waited for.
    heard: String,
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Talk {
    pub(crate) fn start(program: &Path, words: &[&str]) -> Talk {
        Talk::run(Command::new(program).args(words))
    }

    pub(crate) fn run(command: &mut Command) -> Talk {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (say, says) = mpsc::channel();
        let stdout = child.stdout.take().expect("asked for");
        listen(stdout, say.clone());
        listen(child.stderr.take().expect("asked for"), say);
        let stdin = child.stdin.take();
        Talk { child, stdin, says, heard: String::new() }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.stdin.as_mut().expect("open").write_all(text.as_bytes()).expect("it reads");
    }

    /// Waits until it has said `sign`, behind what was waited for before. Returns what was said between.
    #[track_caller]
    pub(crate) fn until(&mut self, sign: &str) -> String {
        loop {
            if let Some(at) = self.heard.find(sign) {
                let between = self.heard[..at].to_owned();
                self.heard.drain(..at + sign.len());
                return between;
            }
            match self.says.recv_timeout(PATIENCE) {
                Ok(bytes) => self.heard.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("`{sign}` did not come ({error}), but: {}", self.heard),
            }
        }
    }

    /// Says no more, and waits for its end: its exit code and what it has said that was not waited for.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        while let Ok(bytes) = self.says.recv_timeout(PATIENCE) {
            self.heard.push_str(&String::from_utf8_lossy(&bytes));
        }
        let code = self.child.wait().expect("it is a child").code();
        (code, std::mem::take(&mut self.heard))
    }
}

fn listen(mut from: impl Read + Send + 'static, to: mpsc::Sender<Vec<u8>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
}

/// Waits for a text that a connection of [`Ask`] heard.
#[track_caller]
pub(crate) fn heard(hears: &mpsc::Receiver<Vec<u8>>) -> Vec<u8> {
    hears.recv_timeout(PATIENCE).expect("it is heard in time")
}
