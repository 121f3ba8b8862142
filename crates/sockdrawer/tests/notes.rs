//! Notes: one message to very many connections, and receivers that do not read.

mod common;

use common::{PATIENCE, assert_empty, connect, hear, is_long, percentile, play, read, read_all, role, say, start};
use rustix::net::sockopt;
use sockdrawer::{
    Config, Context, Drain, Group, Handle, Input, Note, NotifyError, Peer, Pool, Protocol, Selector, Service, Settings, Step,
};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The tests of this file measure: one after the other.
static ALONE: Mutex<()> = Mutex::new(());

const MESSAGE: usize = 64;
const MESSAGES: usize = 100;

/// Returns message `number`, of which no byte can be wrong unseen.
fn message(number: usize) -> [u8; MESSAGE] {
    std::array::from_fn(|index| ((number * MESSAGE + index).wrapping_mul(2_654_435_761) >> 8) as u8)
}

/// Service that sends on each note it gets, and gives away its handles.
#[derive(Clone, Default)]
struct Relay {
    handles: Arc<Mutex<Vec<Handle>>>,
    all: Group,
}

impl Service for Relay {
    type Protocol = Relay;
    fn open(&self, _peer: &Peer) -> Relay {
        self.clone()
    }
}

impl Protocol for Relay {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.handles.lock().expect("no panic").push(cx.handle());
        cx.join(&self.all);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().expect("these tests send bytes"));
        Step::Continue
    }
}

/// Runs the clients, in a process of their own, because both ends would need more descriptors than one may have.
fn listen() {
    let at: SocketAddr = hear().expect("told").parse().expect("an address");
    let count: usize = hear().expect("told").parse().expect("a number");
    let mut streams: Vec<_> = (0..count).map(|_| connect(at)).collect();
    say("connected");
    let expected: Vec<u8> = (0..=MESSAGES).flat_map(message).collect();
    let mut got = vec![0; expected.len()];
    let whole = streams.iter_mut().filter(|stream| Read::read_exact(&mut &**stream, &mut got).is_ok() && got == expected).count();
    say(&whole.to_string());
    let ended = streams.iter_mut().filter(|stream| Read::read(&mut &**stream, &mut got).is_ok_and(|count| count == 0)).count();
    say(&ended.to_string());
}

#[test]
fn every_note_reaches_every_connection_once_and_in_order() {
    const NAME: &str = "every_note_reaches_every_connection_once_and_in_order";
    if role().is_some() {
        return listen();
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = sockdrawer::raise_descriptor_limit().expect("the hard limit is allowed");
    let count = limit.saturating_sub(200).min(10_000);
    let relay = Relay::default();
    let (pool, at) = start(Config::accept(relay.clone()).loops(2));
    let mut clients = play(NAME, "clients");
    clients.tell(&at.to_string());
    clients.tell(&count.to_string());
    assert_eq!(clients.hear(), "connected");
    assert!(pool.wait(PATIENCE, |status| status.generations[0].connections == count));
    for number in 0..MESSAGES {
        pool.notify(&Selector::All, message(number)).expect("100 notes fit into the inboxes");
    }
    let handles = std::mem::take(&mut *relay.handles.lock().expect("no panic"));
    assert_eq!(handles.len(), count);
    let last: Arc<[u8]> = message(MESSAGES)[..].into();
    handles.iter().for_each(|handle| handle.notify(last.clone()).expect("10,000 notes fit into the inboxes"));
    assert_eq!(clients.hear(), count.to_string(), "clients that got all in order");
    let counts = pool.status().counts;
    assert_eq!((counts.notes, counts.notes_dropped), ((count * (MESSAGES + 1)) as u64, 0));
    pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!(clients.hear(), count.to_string(), "clients that got no more");
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("proc(5)");
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("proc(5)");
    kibibytes * 1024
}

/// A pool whose connections buffer little, and those of its clients that read.
struct Audience {
    pool: Pool,
    at: SocketAddr,
    all: Group,
    readers: Vec<TcpStream>,
    took: Vec<Duration>,
}

const LAZY: usize = 1000;
const READERS: usize = 200;
/// The two pools take turns: so many blocks of so many messages.
const BLOCKS: usize = 12;
const MESSAGES_PER_BLOCK: usize = 25;

impl Audience {
    fn gather() -> Audience {
        let mut settings = Settings::default();
        settings.options.send_buffer = Some(8 * 1024);
        (settings.high_water, settings.low_water) = (16 * 1024, 8 * 1024);
        let relay = Relay::default();
        let all = relay.all.clone();
        let (pool, at) = start(Config::accept(relay).loops(1).settings(|to| *to = settings));
        Audience { pool, at, all, readers: Vec::new(), took: Vec::new() }
    }

    fn add_readers(&mut self) {
        self.readers.extend((0..READERS).map(|_| connect(self.at)));
        let connections = self.pool.status().connections;
        let all = if connections >= LAZY { LAZY + READERS } else { READERS };
        assert!(self.pool.wait(PATIENCE, |status| status.connections == all));
    }

    /// Sends one message to all and notes when each reader has got it.
    fn send(&mut self, number: usize) {
        let began = Instant::now();
        self.all.offer(message(number)).expect("one note");
        for reader in &mut self.readers {
            assert_eq!(read(reader, MESSAGE).as_deref(), Some(&message(number)[..]));
            self.took.push(began.elapsed());
        }
    }
}

#[test]
fn receivers_that_never_read_cost_bounded_memory_and_little_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut with, mut without) = (Audience::gather(), Audience::gather());
    let lazy: Vec<_> = (0..LAZY).map(|_| connect(with.at)).collect();
    // Their kernel takes little for them, so that they are soon full and stay so.
    lazy.iter().for_each(|stream| sockopt::set_socket_recv_buffer_size(stream, 4096).expect("a socket"));
    assert!(with.pool.wait(PATIENCE, |status| status.connections == LAZY));
    let before = resident();
    let long: Arc<[u8]> = vec![7; 4096].into();
    for _ in 0..300 {
        with.all.offer(long.clone()).expect("300 notes fit into the inbox");
    }
    let all = 300 * LAZY as u64;
    assert!(with.pool.wait(PATIENCE, |status| status.counts.notes + status.counts.notes_dropped == all));
    let growth = resident().saturating_sub(before);
    let counts = with.pool.status().counts;
    println!("{LAZY} receivers that never read hold {} KiB; sent to them were {} KiB", growth / 1024, all * 4);
    assert!(counts.notes_dropped > all / 2, "{counts:#?}");
    // 16 KiB may wait, and one note above it; a Vec may be twice as large as what it holds.
    assert!(growth < LAZY * 2 * (16 + 4) * 1024, "{growth} bytes");

    // Full for good: what is brought now moves no byte.
    let quiet = |pool: &Pool| {
        let before = pool.status().counts;
        with.all.offer(long.clone()).expect("one note");
        let brought = |counts: sockdrawer::observe::Counts| counts.notes + counts.notes_dropped;
        assert!(pool.wait(PATIENCE, |status| brought(status.counts) == brought(before) + LAZY as u64));
        let after = pool.status().counts;
        (after.notes, after.bytes_out) == (before.notes, before.bytes_out)
    };
    assert!((0..1000).any(|_| quiet(&with.pool)), "{:#?}", with.pool.status());

    with.add_readers();
    without.add_readers();
    let (mut with_p99, mut without_p99) = (Vec::new(), Vec::new());
    for block in 0..BLOCKS {
        for number in block * MESSAGES_PER_BLOCK..(block + 1) * MESSAGES_PER_BLOCK {
            with.send(number);
            without.send(number);
        }
        with_p99.push(percentile(&mut std::mem::take(&mut with.took), 0.99));
        without_p99.push(percentile(&mut std::mem::take(&mut without.took), 0.99));
    }
    // A block in which something else had the machine says nothing.
    let [with_p99, without_p99] = [with_p99, without_p99].map(|mut blocks| percentile(&mut blocks, 0.5));
    println!("p99 {with_p99:?} with {LAZY} receivers that never read, {without_p99:?} without");
    // The promise is 2, and `ci/long notes` asks for it; beside other tests on a shared core the clock says less.
    let most = if is_long() { 2 } else { 4 };
    assert!(with_p99 < most * without_p99, "{with_p99:?} with, {without_p99:?} without");
    drop(lazy);
    let Audience { pool, readers, .. } = with;
    readers.into_iter().for_each(|mut reader| {
        reader.shutdown(std::net::Shutdown::Write).expect("it stands");
        assert!(read_all(&mut reader).expect("an orderly end").is_empty());
    });
    assert_empty(&pool);
}

/// Service that hears as many notes as it is allowed to; more wait. It gives away its handle.
#[derive(Clone)]
struct Counted {
    handles: mpsc::Sender<Handle>,
    /// Notes heard, and notes allowed.
    notes: Arc<(Mutex<(usize, usize)>, Condvar)>,
}

impl Counted {
    /// Allows so many more and waits until they are heard.
    fn hear(&self, more: usize) {
        let mut notes = self.notes.0.lock().expect("no panic");
        notes.1 += more;
        self.notes.1.notify_all();
        let behind = |notes: &mut (usize, usize)| notes.0 < notes.1;
        let (notes, _) = self.notes.1.wait_timeout_while(notes, PATIENCE, behind).expect("no panic");
        assert_eq!(notes.0, notes.1, "heard and allowed");
    }
}

impl Service for Counted {
    type Protocol = Counted;
    fn open(&self, _peer: &Peer) -> Counted {
        self.clone()
    }
}

impl Protocol for Counted {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.handles.send(cx.handle()).expect("the test listens");
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        let notes = self.notes.0.lock().expect("no panic");
        let (mut notes, _) = self.notes.1.wait_timeout_while(notes, PATIENCE, |notes| notes.0 == notes.1).expect("no panic");
        notes.0 += 1;
        self.notes.1.notify_all();
        Step::Continue
    }
}

#[test]
fn one_sender_cannot_queue_more_notes_than_the_bound() {
    const BOUND: usize = 10_000;
    let (handles, gives) = mpsc::channel();
    let service = Counted { handles, notes: Arc::default() };
    let mut config = Config::accept(service.clone()).loops(1);
    config.inbox = BOUND;
    let (_pool, at) = start(config);
    let _stream = connect(at);
    let handle = gives.recv_timeout(PATIENCE).expect("opened");
    let note: Arc<[u8]> = b"x"[..].into();
    let (mut queued, mut heard) = (0, 0);
    for _ in 0..10 {
        let refused = std::iter::repeat_with(|| handle.notify(note.clone())).take(100 * BOUND).find_map(|sent| {
            queued += usize::from(sent.is_ok());
            sent.err()
        });
        assert!(matches!(refused, Some(NotifyError::Full(_))), "{queued} were queued");
        // The loop may read one inbox while the next fills.
        assert!(queued - heard <= 2 * BOUND, "{} wait after {heard}", queued - heard);
        // More than the loop reads in one turn, so that it has looked into its inbox meanwhile.
        service.hear(BOUND / 4);
        heard += BOUND / 4;
    }
    service.hear(queued - heard);
}

/// Service that gives its handle away, also at its end.
#[derive(Clone, Default)]
struct Giver(Arc<Mutex<Vec<Handle>>>);

impl Service for Giver {
    type Protocol = Giver;
    fn open(&self, _peer: &Peer) -> Giver {
        self.clone()
    }
    fn restore(&self, _peer: &Peer, _from: &mut sockdrawer::Saved<'_>) -> Result<Giver, sockdrawer::CannotRestore> {
        Ok(self.clone())
    }
}

impl Giver {
    fn give(&self, cx: &mut Context<'_>) {
        self.0.lock().expect("no panic").push(cx.handle());
    }
}

impl Protocol for Giver {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.give(cx);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn closed(&mut self, _why: sockdrawer::Closed, cx: &mut Context<'_>) {
        self.give(cx);
    }
    fn save(&mut self, _to: &mut sockdrawer::Saver) -> Result<(), sockdrawer::CannotSave> {
        Ok(())
    }
}

#[test]
fn a_handle_says_whether_its_connection_is_gone() {
    let giver = Giver::default();
    let (pool, at) = start(Config::accept(giver.clone()).loops(2));
    let streams: Vec<TcpStream> = (0..10).map(|_| connect(at)).collect();
    let given = || giver.0.lock().expect("no panic").clone();
    assert!(pool.wait(PATIENCE, |_| given().len() == 10));
    let ids: std::collections::BTreeSet<_> = given().iter().map(Handle::id).collect();
    assert_eq!(ids, pool.connections(&Selector::All).iter().map(|one| one.id).collect());
    assert!(!given().iter().any(Handle::is_gone));
    pool.update(|config| config.behaviour(giver.clone())).expect("valid");
    assert_eq!(pool.adopt(&Selector::All).moved, 10);
    assert_eq!((given().len(), given().iter().any(Handle::is_gone)), (20, false), "an adopted connection is the one it was");
    drop(streams);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert!(given().len() == 30 && given().iter().all(Handle::is_gone));
}
