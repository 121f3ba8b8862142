//! Tools that the tests of running pools share.
// Each test program uses a part of it.
#![allow(dead_code)]

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sockdrawer::testing::private_network;
use sockdrawer::{Address, Config, Context, Input, Peer, Pool, Protocol, Service, Step};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::time::Duration;

/// Nothing on this machine takes longer, however busy it is; a test that waits for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(if BROKEN { 3 } else { 30 });

/// A build with a mistake: what it is waited for may never come.
pub(crate) const BROKEN: bool = cfg!(any(
    sockdrawer_broken = "permit-leak",
    sockdrawer_broken = "switch-before-prepare",
    sockdrawer_broken = "close-without-drain",
    sockdrawer_broken = "stale-note"
));

/// Guard that stops the threads of a scope when it is dropped, also by an assertion that fails: a scope waits for its threads.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Service that sends back what it gets.
pub(crate) struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

/// Starts a pool on a free port.
pub(crate) fn start(config: Config) -> (Pool, SocketAddr) {
    let pool = Pool::start(config.listen(any_port())).expect("the pool starts");
    let at = address(&pool);
    (pool, at)
}

/// Raises the limit of descriptors, once: the tests of a program run at once, and a shell gives 1,024 to all of them.
pub(crate) fn raise_descriptors() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| _ = sockdrawer::raise_descriptor_limit().expect("the hard limit is allowed"));
}

/// Returns an address with a free port, once it is bound.
pub(crate) fn any_port() -> Address {
    raise_descriptors();
    Address::Tcp(([127, 0, 0, 1], 0).into())
}

pub(crate) fn address(pool: &Pool) -> SocketAddr {
    tcp(&pool.addresses()[0])
}

pub(crate) fn tcp(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// Returns an address at which no other test listens, of this process and of others. It is not tried: a process that is forked at
/// that moment would keep the socket.
pub(crate) fn address_of_its_own() -> SocketAddr {
    static ADDRESSES: AtomicU16 = AtomicU16::new(0);
    let (process, number) = (std::process::id(), ADDRESSES.fetch_add(1, Ordering::Relaxed));
    let ip = Ipv4Addr::new(127, 192 + (process / 251 % 32) as u8, (process % 251) as u8, number as u8);
    // The kernel chooses ports for others from 32768 on.
    SocketAddr::from((ip, 10_000 + number / 256))
}

/// Returns a connection whose reads fail when they take too long.
pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    connect_from(Ipv4Addr::LOCALHOST, at)
}

/// Connects like [`connect`], from an address of 127.0.0.0/8: the server knows clients by it.
pub(crate) fn connect_from(source: Ipv4Addr, at: SocketAddr) -> TcpStream {
    try_connect_from(source, at).expect("the server listens")
}

pub(crate) fn try_connect_from(source: Ipv4Addr, at: SocketAddr) -> std::io::Result<TcpStream> {
    raise_descriptors();
    // Processes that tests start must not have it.
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    if source != Ipv4Addr::LOCALHOST {
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).expect("all of 127.0.0.0/8 is local");
    }
    rustix::net::connect(&socket, &at)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
    stream.set_nodelay(true).expect("a TCP socket");
    Ok(stream)
}

/// Closes with a reset, which also leaves no TIME_WAIT behind.
pub(crate) fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(stream.as_fd(), Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}

/// Sends `bytes` and waits until they come back.
pub(crate) fn echoes(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok() && read(stream, bytes.len()).is_some_and(|back| back == bytes)
}

/// Returns the next `count` bytes; `None` when the connection ends before or nothing comes.
pub(crate) fn read(stream: &mut TcpStream, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).ok().map(|()| bytes)
}

/// Bytes that differ from their neighbours, also a buffer's length away.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index.wrapping_mul(2_654_435_761) >> 8) as u8).collect()
}

/// Returns all bytes until the end, which must be an orderly one.
pub(crate) fn read_all(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map(|_| bytes)
}

/// Returns the bytes that the server sends to a connection that it ends at once; a reset may come before `connect` returns.
pub(crate) fn turned_away(source: Ipv4Addr, at: SocketAddr) -> std::io::Result<Vec<u8>> {
    read_all(&mut try_connect_from(source, at)?)
}

/// Asserts that the connection was reset: the peer was cut off, and is told so.
#[track_caller]
pub(crate) fn assert_reset(stream: &mut TcpStream) {
    assert_eq!(read_all(stream).expect_err("a reset").kind(), std::io::ErrorKind::ConnectionReset);
}

/// Waits until no connection is left, not even one that lingers.
#[track_caller]
pub(crate) fn assert_empty(pool: &Pool) {
    let empty = pool.wait(PATIENCE, |status| {
        status.connections == 0 && status.loops.iter().all(|one| one.connections == 0) && status.jobs_waiting == 0
    });
    assert!(empty, "{:#?}", pool.status());
}

/// Runs `test`, which must own every handle of its pools, and fails when it hangs: its threads are left behind then.
#[track_caller]
pub(crate) fn in_time(test: impl FnOnce() + Send + 'static) {
    let (tells, hears) = mpsc::channel::<()>();
    let running = std::thread::spawn(move || {
        let _tells_when_dropped = tells;
        test();
    });
    // Many waits, each shorter than its own bound, are no hang.
    let ended = hears.recv_timeout(6 * PATIENCE);
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "the test hangs");
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `test` where no other program has a port, and where the system's settings are its own.
pub(crate) fn alone(test: impl FnOnce() + Send + 'static) {
    raise_descriptors();
    let tested = std::thread::spawn(|| match private_network() {
        Ok(()) => test(),
        Err(why) => println!("skipped, for want of a network of its own: {why}"),
    });
    tested.join().expect("no panic");
}

/// Descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count() - 1
}

/// Returns the last number of an IPv4 address, by which tests tell their clients apart.
pub(crate) fn last_octet(peer: &Peer) -> u8 {
    match peer.remote().map(|remote| remote.ip()) {
        Some(IpAddr::V4(ip)) => ip.octets()[3],
        other => panic!("{other:?} is no IPv4 address"),
    }
}

/// Returns the duration below which `share` of all are.
pub(crate) fn percentile(durations: &mut [Duration], share: f64) -> Duration {
    durations.sort_unstable();
    durations[((durations.len() - 1) as f64 * share) as usize]
}

/// Returns true where this run may take longer, for numbers worth more.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SOCKDRAWER_LONG").is_some()
}

/// Random numbers, equal in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const ROLE: &str = "SOCKDRAWER_TEST_ROLE";

/// This test program once more, running only the test `name`, which does what `role` says instead of testing. Its pipes are
/// ours. It must print [`READY`] before its first line for us.
pub(crate) fn play(name: &str, role: &str) -> Player {
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    Player(child)
}

/// Returns what [`play`] asked this process to do, if it did.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Beginning of each line that a child says; the other lines are from the test harness.
const SAYS: &str = "says: ";

/// Tells the parent something, in a child.
pub(crate) fn say(what: &str) {
    println!("\n{SAYS}{what}");
    std::io::stdout().flush().expect("the parent listens");
}

/// Returns what the parent tells next, in a child; `None` at its end.
pub(crate) fn hear() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("text");
    (!line.is_empty()).then(|| line.trim_end().to_owned())
}

/// A child process; killed when it is dropped.
pub(crate) struct Player(pub(crate) Child);

impl Player {
    /// Returns the next thing that the child says.
    pub(crate) fn hear(&mut self) -> String {
        let stdout = self.0.stdout.as_mut().expect("a pipe");
        loop {
            let line = read_line(stdout);
            if let Some(said) = line.strip_prefix(SAYS) {
                return said.to_owned();
            }
            assert!(!line.is_empty(), "the child ended: {}", self.errors());
        }
    }

    /// Tells it something.
    pub(crate) fn tell(&mut self, what: &str) {
        writeln!(self.0.stdin.as_mut().expect("a pipe"), "{what}").expect("the child listens");
    }

    /// Waits for its end and returns what it wrote to stderr.
    pub(crate) fn errors(&mut self) -> String {
        drop(self.0.stdin.take());
        let mut text = String::new();
        self.0.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
        text
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

/// Returns the text of a panic, without where it was.
pub(crate) fn without_place(message: &str) -> String {
    message.split_once(", at ").expect("it says where").0.to_owned()
}

/// Reads one line, byte by byte, so that the bytes after it stay in the pipe. Returns an empty line at the end.
fn read_line(from: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).expect("a pipe") == 1 {
        if byte[0] != b'\n' {
            line.push(byte[0]);
        } else if !line.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&line).into_owned()
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tests of a file by its name.
pub(crate) type Tests<'a> = (&'a str, &'a [(&'a str, fn())]);

/// The main of a test program that pools start again as their helpers. Each test runs in a process of its own, because what belongs
/// to a process, such as its children, is what these tests are about; several run at once. With `--exact` it runs in this process.
pub(crate) fn run_tests(files: &[Tests<'_>]) -> ! {
    let mut arguments = Arguments::from_args();
    // Most of their time is waiting.
    arguments.test_threads.get_or_insert(8);
    let is_here = arguments.exact;
    let trial = |name: String, test: fn()| {
        let here = move || {
            test();
            Ok(())
        };
        Trial::test(name.clone(), move || if is_here { here() } else { in_its_own_process(&name) })
    };
    let trials =
        files.iter().flat_map(|(file, tests)| tests.iter().map(move |(name, test)| trial(format!("{file}::{name}"), *test)));
    libtest_mimic::run(&arguments, trials.collect()).exit()
}

fn in_its_own_process(name: &str) -> Result<(), Failed> {
    let program = std::env::current_exe()?;
    let ended = Command::new(program).args(["--exact", name, "--test-threads=1"]).output()?;
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() { Ok(()) } else { Err(said.into()) }
}

/// Returns `count` connections that are served.
pub(crate) fn many(at: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut clients: Vec<TcpStream> = (0..count).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| assert!(echoes(client, b"hello")));
    clients
}

/// Uses up the stack of its thread.
pub(crate) fn overflow(depth: u64) -> u64 {
    let page = std::hint::black_box([depth; 512]);
    if depth == u64::MAX { 0 } else { page[1] ^ overflow(depth + 1) }
}

/// Ends a process of a pool, which is not told.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
}

/// Returns true where the process lives; a process that has ended and was not reaped yet does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

/// Returns the children of all threads of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Service that holds its loop up when it gets `h`: says so, and waits until it is let go.
pub(crate) struct Holding {
    pub(crate) holds: mpsc::Sender<()>,
    pub(crate) lets_go: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// Protocol of [`Holding`].
pub(crate) struct Held {
    holds: mpsc::Sender<()>,
    lets_go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Service for Holding {
    type Protocol = Held;
    fn open(&self, _peer: &Peer) -> Held {
        Held { holds: self.holds.clone(), lets_go: self.lets_go.clone() }
    }
}

impl Protocol for Held {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"h" {
            self.holds.send(()).expect("the test listens");
            self.lets_go.lock().expect("no panic").recv_timeout(PATIENCE).expect("let go");
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}
