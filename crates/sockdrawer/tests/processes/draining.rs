//! Asking very many connections to end: at a rate, never in a request, and each byte is delivered.

use crate::common::{
    PATIENCE, Random, assert_empty, connect, hear, in_time, is_long, many, play, raise_descriptors, role, say, start,
};
use rustix::net::sockopt;
use sockdrawer::{
    Closed, Config, Context, Drain, Drained, Input, Job, JobResult, Peer, Pool, Protocol, Selector, Service, Settings, Step,
    connecting::Connecting,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_drain_keeps_its_rate_and_cuts_no_request", a_drain_keeps_its_rate_and_cuts_no_request),
    ("two_drains_at_once_end_all_of_both", two_drains_at_once_end_all_of_both),
    ("a_slow_drain_ends_with_its_pool", a_slow_drain_ends_with_its_pool),
    (
        "a_purge_of_1000_connections_with_unread_input_delivers_every_byte",
        a_purge_of_1000_connections_with_unread_input_delivers_every_byte,
    ),
    (
        "a_purge_of_connections_with_much_unread_input_delivers_every_byte",
        a_purge_of_connections_with_much_unread_input_delivers_every_byte,
    ),
    (
        "what_is_in_the_kernel_is_delivered_however_much_the_peer_has_sent",
        what_is_in_the_kernel_is_delivered_however_much_the_peer_has_sent,
    ),
    ("a_drain_of_so_many_leaves_those_that_connect", a_drain_of_so_many_leaves_those_that_connect),
    ("two_drains_of_so_many_at_once_end_exactly_as_many_as_both", two_drains_of_so_many_at_once_end_exactly_as_many_as_both),
];

/// A request is these bytes. After the first half the server says that it has it, after the second it answers.
const REQUEST: [u8; 8] = *b"request!";
const LENGTH: usize = REQUEST.len();
const HALF: usize = LENGTH / 2;
const HAVE_HALF: u8 = b'+';
const ANSWER: u8 = b'=';
const GOODBYE: u8 = b'.';

/// Times and counts of what the server saw.
#[derive(Default)]
struct Seen {
    /// Times at which each connection was asked to end.
    asked: Mutex<Vec<Instant>>,
    /// Connections that were asked, or ended, in a request.
    cut: AtomicUsize,
}

struct Server(Arc<Seen>);

struct Serving {
    seen: Arc<Seen>,
    in_request: bool,
}

impl Service for Server {
    type Protocol = Serving;
    fn open(&self, _peer: &Peer) -> Serving {
        Serving { seen: self.0.clone(), in_request: false }
    }
}

impl Serving {
    fn must_be_idle(&self) {
        self.seen.cut.fetch_add(usize::from(self.in_request), SeqCst);
    }
}

impl Protocol for Serving {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        match input.bytes().len() {
            LENGTH.. => {
                input.take(LENGTH);
                self.in_request = true;
                Step::Work(Job::new(|| ANSWER))
            }
            HALF.. if !self.in_request => {
                self.in_request = true;
                cx.send(&[HAVE_HALF]);
                Step::Continue
            }
            _ => Step::Continue,
        }
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.in_request = false;
        cx.send(&[result.take::<u8>().expect("it ran")]);
        Step::Continue
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.seen.asked.lock().expect("no panic").push(cx.now());
        self.must_be_idle();
        cx.send(&[GOODBYE]);
        Step::Close
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.must_be_idle();
    }
}

/// Counts of what the clients saw.
#[derive(Default)]
struct Told {
    answered: AtomicUsize,
    /// Ended in order, after a goodbye and in no request.
    well: AtomicUsize,
}

/// Clients that send half a request, and the other half a while after the server said that it has the first.
struct Clients(Arc<Told>);

struct Client {
    told: Arc<Told>,
    random: Random,
    /// The server has half a request.
    in_request: bool,
    goodbye: bool,
}

impl Service for Clients {
    type Protocol = Client;
    fn open(&self, _peer: &Peer) -> Client {
        Client { told: self.0.clone(), random: Random(1), in_request: false, goodbye: false }
    }
}

impl Client {
    fn pause(&mut self, cx: &mut Context<'_>, most: u64) {
        cx.set_timer(Duration::from_millis(self.random.below(most)));
    }
}

impl Protocol for Client {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.random = Random(cx.id().0.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        self.pause(cx, 4000);
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(if self.in_request { &REQUEST[HALF..] } else { &REQUEST[..HALF] });
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        for byte in input.bytes() {
            match *byte {
                HAVE_HALF => {
                    self.in_request = true;
                    self.pause(cx, 300);
                }
                ANSWER => {
                    self.told.answered.fetch_add(1, SeqCst);
                    self.in_request = false;
                    self.pause(cx, 4000);
                }
                _ => self.goodbye = true,
            }
        }
        input.take_all();
        Step::Continue
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let well = why == Closed::Orderly && self.goodbye && !self.in_request;
        self.told.well.fetch_add(usize::from(well), SeqCst);
    }
}

/// Runs the clients, in a process of their own, because both ends would need more descriptors than one may have.
fn be_clients() {
    raise_descriptors();
    let at: SocketAddr = hear().expect("told").parse().expect("an address");
    let count: usize = hear().expect("told").parse().expect("a number");
    let told = Arc::new(Told::default());
    let connecting = Connecting::to([at]).keep(count).total(count as u64);
    let pool = Pool::start(Config::connect(Clients(told.clone()), connecting).loops(1).workers(0)).expect("starts");
    assert!(pool.wait(PATIENCE, |status| status.counts.connected == count as u64), "{:#?}", pool.status());
    // Each has asked at least once.
    assert!(pool.wait(PATIENCE, |_| told.answered.load(SeqCst) >= count));
    say("all are there");
    assert!(pool.wait(10 * PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
    say(&told.well.load(SeqCst).to_string());
}

fn a_drain_keeps_its_rate_and_cuts_no_request() {
    if role().is_some() {
        return be_clients();
    }
    let (count, rate) = if is_long() { (10_000, 500.0) } else { (500, 250.0) };
    let seen = Arc::new(Seen::default());
    let (pool, at) = start(Config::accept(Server(seen.clone())).loops(2).workers(1));
    let mut clients = play("draining::a_drain_keeps_its_rate_and_cuts_no_request", "clients");
    clients.tell(&at.to_string());
    clients.tell(&count.to_string());
    assert_eq!(clients.hear(), "all are there");
    let drained = pool.drain(&Selector::All, Drain::within(10 * PATIENCE).rate(rate));
    assert_eq!(drained, Drained { asked: count, ended: count, cut: 0, silent: 0 });
    assert_eq!(clients.hear(), count.to_string(), "clients that ended well");
    assert_eq!(seen.cut.load(SeqCst), 0, "asked in a request");
    let mut asked = std::mem::take(&mut *seen.asked.lock().expect("no panic"));
    asked.sort_unstable();
    assert_eq!(asked.len(), count);
    // A connection that was in a request when its turn came is asked after it: the last ones are late, and nobody follows them.
    let (first, last) = (count / 20, count - count / 20);
    let whole = (last - first) as f64 / (asked[last] - asked[first]).as_secs_f64();
    let mut rates = vec![whole];
    let window = rate as usize;
    rates.extend((first..last - window).step_by(window).map(|at| window as f64 / (asked[at + window] - asked[at]).as_secs_f64()));
    println!("{count} connections at {rate}/s: {whole:.1}/s, in windows {:.1?}", &rates[1..]);
    assert!(rates.iter().all(|found| (found / rate - 1.0).abs() < 0.1), "{rates:?}");
}

fn two_drains_at_once_end_all_of_both() {
    in_time(|| {
        let (pool, at) = start(Config::accept(crate::common::Echo).loops(2));
        let mut clients = many(at, 40);
        let readers =
            std::thread::spawn(move || clients.iter_mut().all(|client| client.read(&mut [0]).is_ok_and(|count| count == 0)));
        pool.tag(&Selector::All, "all");
        let began = Instant::now();
        let [one, two] = std::thread::scope(|scope| {
            [("all", 100.0), ("all", 200.0)]
                .map(|(tag, rate)| {
                    let pool = &pool;
                    scope.spawn(move || pool.drain(&Selector::tag(tag), Drain::within(PATIENCE).rate(rate)))
                })
                .map(|drain| drain.join().expect("no panic"))
        });
        assert_eq!((one.cut, two.cut), (0, 0));
        assert_eq!(one.asked.max(two.asked), 40);
        assert!(began.elapsed() < PATIENCE / 2 && readers.join().expect("no panic"));
        assert_empty(&pool);
    });
}

fn a_slow_drain_ends_with_its_pool() {
    in_time(|| {
        let (pool, at) = start(Config::accept(crate::common::Echo).loops(2));
        let mut clients = many(at, 40);
        let readers =
            std::thread::spawn(move || clients.iter_mut().all(|client| client.read(&mut [0]).is_ok_and(|count| count == 0)));
        let slow = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.drain(&Selector::All, Drain::within(Duration::from_secs(3600)).rate(0.01)))
        };
        // The first is asked at once, and ends.
        assert!(pool.wait(PATIENCE, |status| status.connections < 40));
        pool.shutdown(Drain::within(PATIENCE));
        let drained = slow.join().expect("no panic");
        assert_eq!((drained.asked, drained.ended), (40, 40));
        assert!(readers.join().expect("no panic"));
    });
}

/// Service that says so much when it is spoken to, and then reads no more.
#[derive(Clone, Copy)]
struct Speaker(usize);

fn speech(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 7919) >> 5) as u8).collect()
}

impl Service for Speaker {
    type Protocol = Speaker;
    fn open(&self, _peer: &Peer) -> Speaker {
        *self
    }
}

impl Protocol for Speaker {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(&speech(self.0));
        cx.pause();
        Step::Continue
    }
}

/// Purges connections of clients that were answered, have not read it, and have sent so much more that the server will not read.
fn purge_with_unread_input(count: usize, length: usize, more: usize) {
    let mut settings = Settings::default();
    settings.options.send_buffer = Some(16 * 1024);
    let (pool, at) = start(Config::accept(Speaker(length)).loops(2).settings(|to| *to = settings));
    let mut clients: Vec<TcpStream> = (0..count).map(|_| connect(at)).collect();
    for client in &mut clients {
        client.write_all(b"speak").expect("it stands");
    }
    // Each has been answered: the rest is not read any more.
    let spoken = |pool: &Pool| pool.connections(&Selector::All).iter().filter(|one| one.bytes_in == 5).count();
    assert!(pool.wait(PATIENCE, |_| spoken(&pool) == count), "{}", spoken(&pool));
    let unread = vec![b'x'; more];
    for client in &mut clients {
        // As much as the kernel takes at once.
        client.set_nonblocking(true).expect("a socket");
        let taken = client.write(&unread).expect("there is room in the server's buffer");
        assert!(taken == more || taken > 400 * 1024, "{taken}");
        client.set_nonblocking(false).expect("a socket");
    }
    let applied = pool.reconfigure(pool.config().behaviour(crate::common::Echo)).expect("a newer service");
    assert_eq!(pool.connections(&Selector::Before(applied.generation)).len(), count);
    let clients = Arc::new(Mutex::new(clients));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let clients = clients.clone();
            std::thread::spawn(move || {
                let mut whole = 0;
                loop {
                    let next = clients.lock().expect("no panic").pop();
                    let Some(mut client) = next else { return whole };
                    let mut got = Vec::new();
                    let ended = client.read_to_end(&mut got).is_ok();
                    assert!(ended && got == speech(length), "{} of {length} bytes, orderly: {ended}", got.len());
                    whole += 1;
                }
            })
        })
        .collect();
    assert_eq!(pool.purge(&Selector::Before(applied.generation), PATIENCE).asked, count);
    assert_eq!(readers.into_iter().map(|reader| reader.join().expect("all bytes")).sum::<usize>(), count);
    assert_empty(&pool);
    assert_eq!(pool.status().counts.bytes_out, (count * length) as u64);
}

fn a_purge_of_1000_connections_with_unread_input_delivers_every_byte() {
    purge_with_unread_input(1000, 96 * 1024, 1000);
}

fn a_purge_of_connections_with_much_unread_input_delivers_every_byte() {
    purge_with_unread_input(50, 1 << 20, 4 << 20);
}

fn what_is_in_the_kernel_is_delivered_however_much_the_peer_has_sent() {
    const SPEECH: usize = 64 * 1024;
    let mut settings = Settings::default();
    settings.options.send_buffer = Some(512 * 1024);
    let (pool, at) = start(Config::accept(Speaker(SPEECH)).loops(1).settings(|to| *to = settings));
    let mut client = connect(at);
    // Little fits into the client's own buffer.
    sockopt::set_socket_recv_buffer_size(&client, 4096).expect("a socket");
    client.write_all(b"speak").expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out == SPEECH as u64), "all is in the kernel");
    client.set_nonblocking(true).expect("a socket");
    let mut unread = 0;
    while let Ok(taken) = client.write(&[b'x'; 64 * 1024]) {
        unread += taken;
    }
    assert!(unread > 400 * 1024, "{unread}");
    client.set_nonblocking(false).expect("a socket");
    let pool = &pool;
    std::thread::scope(|scope| {
        let purge = scope.spawn(|| pool.purge(&Selector::All, PATIENCE).asked);
        assert!(pool.wait(PATIENCE, |status| status.live_generations() == 1 && status.generations[0].connections == 0));
        let mut got = Vec::new();
        let ended = client.read_to_end(&mut got);
        assert!(ended.is_ok() && got == speech(SPEECH), "{} of {SPEECH} bytes, then {ended:?}", got.len());
        drop(client);
        assert_eq!(purge.join().expect("no panic"), 1);
    });
    assert_empty(pool);
}

/// Service that waits for nothing but its end.
struct Stays;

impl Service for Stays {
    type Protocol = Stays;
    fn open(&self, _peer: &Peer) -> Stays {
        Stays
    }
}

impl Protocol for Stays {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
}

/// Checks that a drain leaves connections that still connect: they cannot be asked, and go on.
fn a_drain_of_so_many_leaves_those_that_connect() {
    const EACH: usize = 20;
    let (_server, at) = start(Config::accept(Stays).loops(1));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let full = silent.local_addr().expect("bound");
    // Nobody accepts: with a full queue a handshake does not end.
    let _queued: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&full, Duration::from_millis(300)).ok()).collect();
    let connecting = Connecting::to([at, full]).keep(2 * EACH).total(2 * EACH as u64).timeout(PATIENCE);
    let pool = Pool::start(Config::connect(Stays, connecting).loops(2)).expect("starts");
    let begun = |status: &sockdrawer::observe::Status| {
        (status.counts.connects, status.counts.connected) == (2 * EACH as u64, EACH as u64)
    };
    assert!(pool.wait(PATIENCE, begun), "{:?}", pool.status());
    for (how, asked) in [(Drain::within(PATIENCE), EACH / 2), (Drain::within(PATIENCE).rate(10_000.0), EACH / 2)] {
        let most = if how.rate.is_some() { 2 * EACH } else { asked };
        assert_eq!(pool.drain(&Selector::All, how.max_connections(most)), Drained { asked, ended: asked, cut: 0, silent: 0 });
        assert_eq!(pool.status().counts.connect_failed, 0);
    }
    assert_eq!(pool.connections(&Selector::All).len(), EACH, "those that connect");
    pool.kill(&Selector::All);
}

/// Checks that two callers that ask for fewer at once, one of them slowly, have both what they ask for.
fn two_drains_of_so_many_at_once_end_exactly_as_many_as_both() {
    const ALL: usize = 600;
    for loops in [1, 2] {
        let (server, at) = start(Config::accept(Stays).loops(1));
        let connecting = Connecting::to([at]).keep(ALL).total(ALL as u64);
        let pool = Pool::start(Config::connect(Stays, connecting).loops(loops)).expect("starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connected == ALL as u64), "{:?}", pool.status());
        let of_each = || pool.status().loops.iter().map(|one| one.connections).collect::<Vec<_>>();
        let before = of_each();
        let began = Instant::now();
        let hows = [Drain::within(PATIENCE).max_connections(200).rate(2_000.0), Drain::within(PATIENCE).max_connections(150)];
        let asking = hows.map(|how| {
            let pool = pool.clone();
            std::thread::spawn(move || pool.drain(&Selector::All, how))
        });
        let drained = asking.map(|asking| asking.join().expect("no panic"));
        let expected = [200, 150].map(|asked| Drained { asked, ended: asked, cut: 0, silent: 0 });
        assert_eq!(drained, expected, "{loops} loops");
        assert!(began.elapsed() >= Duration::from_millis(90), "at 2,000 a second: {:?}", began.elapsed());
        let left = pool.connections(&Selector::All);
        assert_eq!((left.len(), pool.status().counts.closed), (250, 350), "{loops} loops");
        assert!(left.iter().all(|connection| !connection.draining));
        // By chance, of each loop about as many as it had a share: they do not connect equally many on a busy machine.
        let left = of_each();
        let near = |(before, left): (&usize, &usize)| left.abs_diff(before * 250 / ALL) < 60;
        assert!(before.iter().zip(&left).all(near), "{before:?} and then {left:?}");
        // More than there are, and not in time.
        let slowly = Drain::within(Duration::from_millis(700)).max_connections(1_000).rate(2.5);
        let drained = pool.drain(&Selector::All, slowly);
        // Connections are asked at 0 and at 400 ms, and have time to end.
        assert!((1..=2).contains(&drained.asked) && drained.ended == drained.asked, "{drained:?}");
        assert_eq!(pool.connections(&Selector::All).len(), 250 - drained.asked, "who had no turn stays");
        drop(server);
    }
}
