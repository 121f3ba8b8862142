//! A server and clients of `acks`, both counting.

use sockdrawer::{Address, Behaviour, Config, Drain, Model, Pool, connecting::Connecting};
use sockdrawer_catalog::Budget;
use sockdrawer_catalog::acks::{AckPattern, Acks, Client, Consumer, Options, Part};
use sockdrawer_catalog::meter::{End, Meter, Phase};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum time of waits: nothing on this machine takes longer, however busy it is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PATTERNS: [&str; 5] = ["reply", "timer=5ms", "read", "async=20,5ms", "every=100"];

pub(crate) fn is_long() -> bool {
    std::env::var_os("SOCKDRAWER_LONG").is_some()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) model: Model,
    pub(crate) pattern: AckPattern,
    pub(crate) connections: usize,
    pub(crate) size: u32,
    /// Messages of each connection.
    pub(crate) each: u64,
    pub(crate) batch: u64,
    pub(crate) window: u64,
}

impl Case {
    pub(crate) fn small(model: Model, pattern: AckPattern) -> Case {
        Case { model, pattern, connections: 1, size: 0, each: 1, batch: 1, window: 1 }
    }
}

/// Reports of the clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) written: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unacknowledged: u64,
    pub(crate) failures: Vec<(Phase, Option<i32>)>,
    pub(crate) ends: Vec<End>,
}

/// Numbers that both ends count, and a test waits for.
#[derive(Default)]
struct Counts {
    told: Mutex<Told>,
    changed: Condvar,
    received: AtomicU64,
    /// Number of received messages that a test waits for.
    awaited: AtomicU64,
}

impl Counts {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("nobody panicked")
    }

    fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.told());
        self.changed.notify_all();
    }

    #[track_caller]
    fn wait(&self, what: &str, mut reached: impl FnMut(&Told) -> bool) {
        let told = self.told();
        let (told, late) = self.changed.wait_timeout_while(told, PATIENCE, |told| !reached(told)).expect("nobody panicked");
        assert!(!late.timed_out(), "{what} never came: {:?}", (told.written, told.acknowledged, told.ends.len()));
    }
}

/// The meter of a loop's clients.
struct Tally(Arc<Counts>);

impl Meter for Tally {
    fn connected(&mut self, _took: Duration) {}
    fn operation(&mut self, _scheduled: Instant, _sent: Instant, _now: Instant) {
        unreachable!("messages are acknowledged together");
    }
    fn acknowledged(&mut self, messages: u64, scheduled: Instant, sent: Instant, now: Instant) {
        assert!(scheduled == sent && sent <= now);
        self.0.tell(|told| told.acknowledged += messages);
    }
    fn written(&mut self, messages: u64, _bytes: u64) {
        self.0.told().written += messages;
    }
    fn unacknowledged(&mut self, messages: u64) {
        self.0.told().unacknowledged += messages;
    }
    fn failed(&mut self, phase: Phase, errno: Option<i32>) {
        self.0.told().failures.push((phase, errno));
    }
    fn closed(&mut self, end: End) {
        self.0.tell(|told| told.ends.push(end));
    }
}

/// Sees that a connection's messages are numbered from 0 and their payloads what the client says they are.
struct Check {
    counts: Arc<Counts>,
    expected: Arc<[u8]>,
    next: u64,
}

impl Consumer for Check {
    fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        let begin = part.begin as usize;
        assert_eq!(part.id, self.next);
        assert!(part.bytes == &self.expected[begin..begin + part.bytes.len()]);
        if part.is_last() {
            self.next += 1;
            let received = self.counts.received.fetch_add(1, Ordering::SeqCst) + 1;
            if received >= self.counts.awaited.load(Ordering::SeqCst) {
                self.counts.awaited.store(u64::MAX, Ordering::SeqCst);
                self.counts.tell(|_| {});
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns an address that no other test uses, so that none gets the port while the server of a scene is away.
fn ip_of_its_own() -> Ipv4Addr {
    static SCENES: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    Ipv4Addr::new(127, 192 + (process / 251 % 32) as u8, (process % 251) as u8, SCENES.fetch_add(1, Ordering::Relaxed) as u8)
}

pub(crate) struct Scene {
    counts: Arc<Counts>,
    server: Pool,
    at: SocketAddr,
    config: Config,
}

impl Scene {
    pub(crate) fn start(case: &Case) -> Scene {
        let counts = Arc::new(Counts { awaited: u64::MAX.into(), ..Counts::default() });
        let expected: Arc<[u8]> = (0..=250).cycle().take(case.size as usize).collect();
        let of_server = counts.clone();
        let check = move |_: &_| Check { counts: of_server.clone(), expected: expected.clone(), next: 0 };
        Scene::with(Acks { pattern: case.pattern }.consuming(check).into(), case, counts)
    }

    /// Starts a server that counts nothing.
    pub(crate) fn start_with(behaviour: Behaviour, case: &Case) -> Scene {
        Scene::with(behaviour, case, Arc::default())
    }

    fn with(behaviour: Behaviour, case: &Case, counts: Arc<Counts>) -> Scene {
        // A shell gives 1,024 to all tests of this process.
        sockdrawer::raise_descriptor_limit().expect("the hard limit is allowed");
        let loops = if matches!(case.model, Model::Loops | Model::Tasks) { 2 } else { 1 };
        let config = Config::accept(behaviour).model(case.model).loops(loops).workers(0);
        let server = Pool::start(config.clone().listen(Address::Tcp((ip_of_its_own(), 0).into()))).expect("it starts");
        let Address::Tcp(at) = server.addresses()[0] else { panic!("it is a TCP address") };
        Scene { counts, server, at, config: config.listen(Address::Tcp(at)) }
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn server(&self) -> &Pool {
        &self.server
    }

    /// Restarts the server: it ends in order, and another begins at its address.
    pub(crate) fn restart(&mut self) {
        self.server.shutdown(Drain::within(PATIENCE));
        self.server = Pool::start(self.config.clone()).expect("the address is free");
    }

    /// Connects clients; as many in all as `total` says, or again and again.
    pub(crate) fn connect(&self, case: &Case, to: SocketAddr, budget: Budget, total: Option<usize>) -> Clients {
        let Case { pattern, size, batch, window, .. } = *case;
        let options = Options { pattern, size, batch, window, budget, ..Options::default() };
        let counts = self.counts.clone();
        let client = Client::new(options, move || Tally(counts.clone()));
        let mut connecting = Connecting::to([to]).keep(case.connections);
        connecting.total = total.map(|total| total as u64);
        let config = Config::connect(client, connecting).loops(2).workers(0);
        let config = config.settings(|settings| settings.max_unsent = None);
        let ended = self.counts.told().ends.len();
        Clients { pool: Pool::start(config).expect("it starts"), counts: self.counts.clone(), ended }
    }

    pub(crate) fn clients(&self) -> Told {
        self.counts.told().clone()
    }

    pub(crate) fn received(&self) -> u64 {
        self.counts.received.load(Ordering::SeqCst)
    }

    /// Checks that the server received the messages that the clients sent, each in its order and with its payload, and not a byte more.
    pub(crate) fn assert_received(&self, case: &Case) {
        let all = case.each * case.connections as u64;
        let counts = self.server.status().counts;
        assert_eq!((self.received(), counts.bytes_in, counts.panics), (all, all * (12 + u64::from(case.size)), 0), "{case:?}");
    }

    /// Waits until this number of messages more was received.
    pub(crate) fn wait_for_messages(&self, more: u64) {
        let until = self.received() + more;
        self.counts.awaited.store(until, Ordering::SeqCst);
        self.counts.wait("messages", |_| self.received() >= until);
    }

    /// Waits until this number of messages more was acknowledged.
    pub(crate) fn wait_for_acks(&self, more: u64) {
        let until = self.clients().acknowledged + more;
        self.counts.wait("acks", |told| told.acknowledged >= until);
    }

    /// Sends these bytes, and returns what comes back until the server's end.
    pub(crate) fn say(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.write_all(bytes).expect("it stands");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an orderly end");
        answer
    }
}

pub(crate) struct Clients {
    pool: Pool,
    counts: Arc<Counts>,
    /// Number of connections that had ended before.
    ended: usize,
}

impl Clients {
    /// Waits until this number of connections has ended.
    #[track_caller]
    pub(crate) fn wait_for_ends(&self, connections: usize) {
        self.counts.wait("an end", |told| told.ends.len() >= self.ended + connections);
    }

    /// Drains the clients: they send no more, and wait for what they sent.
    pub(crate) fn drain(&self) {
        let drained = self.pool.shutdown(Drain::within(PATIENCE));
        assert_eq!(drained.cut, 0);
    }
}
