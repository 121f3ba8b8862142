//! Bytes that are written before a close arrive, whatever the peer does meanwhile, and no closed connection stays.

use crate::common::{
    self, PATIENCE, Random, address, any_port, assert_empty, connect, echoes, in_time, read, read_all, reset, start,
};
use sockdrawer::{
    Closed, Closing, Config, Context, Drain, Drained, Input, Peer, Pool, Protocol, Selector, Service, Settings, Step,
    observe::Event,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Service that answers each connection once, with so many bytes, and closes.
struct Answering {
    answer: Arc<[u8]>,
    closing: Closing,
}

struct Answer(Arc<[u8]>);

impl Service for Answering {
    type Protocol = Answer;
    fn open(&self, _peer: &Peer) -> Answer {
        Answer(self.answer.clone())
    }
    fn closing(&self) -> Closing {
        self.closing
    }
}

impl Protocol for Answer {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(&self.0);
        Step::Close
    }
}

fn answering(bytes: usize, closing: Closing) -> Answering {
    Answering { answer: pattern(bytes).into(), closing }
}

/// Bytes of which none can be missing or moved unseen.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Asks, sends one more byte within 1 ms before or after the answer's first bytes, and reads all; returns how many answers were
/// whole.
fn ask_and_disturb(answer: usize, connections: usize, seed: u64) -> usize {
    let (pool, at) = start(Config::accept(answering(answer, Closing::PeerMaySend)).loops(2));
    let expected = pattern(answer);
    let one = |random: &mut Random| {
        let mut stream = connect(at);
        stream.write_all(b"?").expect("it stands");
        let mut first = Vec::new();
        if random.below(2) == 0 {
            first = read(&mut stream, 1).unwrap_or_default();
        }
        let until = Instant::now() + Duration::from_micros(random.below(1000));
        while Instant::now() < until {
            std::thread::yield_now();
        }
        // Both the connection's end and its beginning may be over by now.
        let _ = stream.write_all(b"!");
        let rest = read_all(&mut stream).unwrap_or_default();
        usize::from([first, rest].concat() == expected)
    };
    let whole = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn(move || {
                    let mut random = Random(seed + client);
                    (0..connections / 4).map(|_| one(&mut random)).sum::<usize>()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).sum()
    });
    assert_empty(&pool);
    whole
}

/// Service that says more than a socket takes, as soon as it is spoken to.
struct Talks;

impl Service for Talks {
    type Protocol = Talks;
    fn open(&self, _peer: &Peer) -> Talks {
        Talks
    }
}

impl Protocol for Talks {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(&vec![0; 8_000_000]);
        Step::Continue
    }
}

#[test]
fn who_hangs_up_on_a_backlog_ends_its_connection() {
    let name = format!("unix:@sockdrawer-hangs-up-{}", std::process::id());
    let pool = Pool::start(Config::accept(Talks).listen(&name)).expect("starts");
    let at = std::os::unix::net::SocketAddr::from_abstract_name(&name[6..]).expect("a name");
    let mut stream = UnixStream::connect_addr(&at).expect("it listens");
    stream.write_all(b"?").expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out > 0));
    // Its own end stays open: a Unix socket says of this neither an error nor an end of input, only that it hung up.
    stream.shutdown(Shutdown::Both).expect("it stands");
    assert_empty(&pool);
}

/// Asks for an answer and reads it in parts of so many bytes, each after this pause. Returns what came, and whether it came to its end.
fn read_slowly(mut stream: impl Read + Write, pause: Duration, part: usize) -> (Vec<u8>, bool) {
    stream.write_all(b"?").expect("it stands");
    let (mut all, mut part) = (Vec::new(), vec![0; part]);
    loop {
        // waits because: the peer is slow.
        std::thread::sleep(pause);
        match stream.read(&mut part) {
            Ok(0) => return (all, true),
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(_) => return (all, false),
        }
    }
}

#[test]
fn a_peer_that_reads_slowly_gets_all_of_a_closed_connection_and_one_that_stops_reading_is_cut_off() {
    let name = format!("unix:@sockdrawer-slow-{}", std::process::id());
    let flush = Duration::from_secs(1);
    let config = Config::accept(answering(8_000_000, Closing::PeerMaySend)).listen(any_port()).listen(&name).loops(1);
    let pool = Pool::start(config.settings(|settings| settings.flush = flush)).expect("starts");
    let unix = std::os::unix::net::SocketAddr::from_abstract_name(&name[6..]).expect("a name");
    let (began, pause) = (Instant::now(), Duration::from_millis(60));
    std::thread::scope(|scope| {
        let tcp = connect(address(&pool));
        let tcp = scope.spawn(move || read_slowly(tcp, pause, 128 * 1024));
        let unix = UnixStream::connect_addr(&unix).expect("it listens");
        let unix = scope.spawn(move || read_slowly(unix, pause, 128 * 1024));
        for slow in [tcp, unix] {
            let (came, ended) = slow.join().expect("no panic");
            assert!(ended && came == pattern(8_000_000), "{} bytes, ended: {ended}", came.len());
        }
    });
    assert!(began.elapsed() > 2 * flush, "{:?}", began.elapsed());
    let mut deaf = connect(address(&pool));
    deaf.write_all(b"?").expect("it stands");
    let asked = Instant::now();
    assert!(pool.wait(PATIENCE, |status| status.counts.accepted == 3 && status.connections == 0));
    let cut_after = asked.elapsed();
    assert!(cut_after >= flush && cut_after < 5 * flush && read_all(&mut deaf).is_err(), "it was cut off after {cut_after:?}");
}

#[test]
fn a_closed_connection_that_still_sends_is_among_all_that_are_ended() {
    let within = Duration::from_millis(200);
    let ends: [fn(&Pool, Duration) -> Drained; 3] = [
        |pool, _| pool.kill(&Selector::All),
        |pool, within| pool.purge(&Selector::All, within),
        |pool, within| pool.drain(&Selector::All, Drain::within(within)),
    ];
    for end in ends {
        let config = Config::accept(answering(8_000_000, Closing::PeerMaySend)).loops(1);
        let (pool, at) = start(config.settings(|settings| settings.flush = 10 * PATIENCE));
        let mut deaf = connect(at);
        deaf.write_all(b"?").expect("it stands");
        // The list has connections with a protocol, and the status those that are closed, too.
        assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out > 0));
        assert!(pool.connections(&Selector::All).is_empty() && pool.status().connections == 1);
        assert_eq!(end(&pool, within).cut, 1);
        assert_empty(&pool);
        assert!(read_all(&mut deaf).is_err(), "it was cut off");
    }
}

#[test]
fn a_peer_that_reads_slowly_is_not_idle() {
    // The kernel takes more when a third of its buffer is free: that takes longer than the timeout.
    let (pool, at) = start(Config::accept(Talks).loops(1).settings(|settings| settings.idle = Some(Duration::from_millis(500))));
    let (came, _) = read_slowly(connect(at), Duration::from_millis(60), 100_000);
    assert_eq!((came.len(), pool.status().counts.idle), (8_000_000, 1), "it is idle once the kernel has all");
}

#[test]
fn a_late_byte_destroys_no_short_answer() {
    assert_eq!(ask_and_disturb(57, 10_000, 1), 10_000);
}

#[test]
fn a_late_byte_destroys_no_long_answer() {
    assert_eq!(ask_and_disturb(60_000, 10_000, 2), 10_000);
}

#[test]
fn the_end_rides_on_the_last_bytes_where_peers_are_done() {
    for answer in [57, 60_000, 1_000_000] {
        let (pool, at) = start(Config::accept(answering(answer, Closing::PeerIsDone)).loops(2));
        for _ in 0..100 {
            let mut stream = connect(at);
            stream.write_all(b"?").expect("it stands");
            assert_eq!(read_all(&mut stream).expect("an orderly end"), pattern(answer));
        }
        assert_empty(&pool);
    }
}

/// Service that greets with so many bytes, then reads nothing, and says goodbye.
struct Deaf(usize);

impl Service for Deaf {
    type Protocol = Deaf;
    fn open(&self, _peer: &Peer) -> Deaf {
        Deaf(self.0)
    }
}

impl Protocol for Deaf {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&pattern(self.0));
        cx.pause();
        Step::Continue
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        unreachable!("nothing is received while it is paused")
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"goodbye");
        Step::Close
    }
}

/// Purges connections that have unread input and were sent `bytes` each.
fn purge_with_unread_input(connections: usize, bytes: usize) {
    let (pool, at) = start(Config::accept(Deaf(bytes)).loops(2));
    let mut streams: Vec<_> = (0..connections).map(|_| connect(at)).collect();
    for stream in &mut streams {
        stream.write_all(&[7; 1000]).expect("it stands");
    }
    assert!(pool.wait(PATIENCE, |status| status.counts.accepted as usize == connections));
    let expected = [&pattern(bytes)[..], b"goodbye"].concat();
    let (purged, whole) = std::thread::scope(|scope| {
        let purge = scope.spawn(|| pool.purge(&Selector::All, PATIENCE).asked);
        let readers = std::iter::repeat_with(|| streams.split_off(streams.len() - connections / 4)).take(4).map(|part| {
            let expected = &expected;
            scope.spawn(move || {
                // Each is closed as soon as it was read: the purge waits for that.
                part.into_iter().filter_map(|mut stream| read_all(&mut stream).ok()).filter(|read| read == expected).count()
            })
        });
        let readers: Vec<_> = readers.collect();
        let whole: usize = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum();
        (purge.join().expect("purged"), whole)
    });
    assert_eq!((purged, whole), (connections, connections));
    assert_empty(&pool);
}

#[test]
fn a_purge_delivers_what_was_written_before() {
    purge_with_unread_input(1000, 20_000);
}

#[test]
fn a_purge_delivers_what_the_kernel_had_not_taken_yet() {
    purge_with_unread_input(20, 8_000_000);
}

/// Service that says its end after the first input, with so many bytes, and goes on receiving, or says the last word after the peer's end.
struct Half(mpsc::Sender<Vec<u8>>, usize);

impl Service for Half {
    type Protocol = HalfClosed;
    fn open(&self, _peer: &Peer) -> HalfClosed {
        HalfClosed { told: self.0.clone(), last: self.1, got: Vec::new(), finished: false }
    }
}

struct HalfClosed {
    told: mpsc::Sender<Vec<u8>>,
    last: usize,
    got: Vec<u8>,
    finished: bool,
}

impl Protocol for HalfClosed {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.got.extend_from_slice(input.bytes());
        input.take_all();
        if self.got == b"finish" {
            self.finished = true;
            cx.send(&pattern(self.last));
            return Step::EndOutput;
        }
        Step::Continue
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.told.send(std::mem::take(&mut self.got)).expect("the test listens");
        if self.finished {
            return Step::Close;
        }
        cx.set_timer(Duration::from_millis(1));
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&pattern(self.last));
        Step::Close
    }
}

#[test]
fn a_server_that_said_its_end_goes_on_receiving() {
    // The kernel takes the first at once. The second is above the high-water mark until the client has read it.
    for bytes in [100_000, 8_000_000] {
        let (told, hears) = mpsc::channel();
        let (pool, at) = start(Config::accept(Half(told, bytes)).loops(1));
        let mut stream = connect(at);
        stream.write_all(b"finish").expect("it stands");
        assert_eq!(read_all(&mut stream).expect("an orderly end"), pattern(bytes));
        for part in [&b" and"[..], b" more"] {
            stream.write_all(part).expect("our half is open");
        }
        stream.shutdown(Shutdown::Write).expect("it stands");
        assert_eq!(hears.recv_timeout(PATIENCE).expect("finished"), b"finish and more");
        assert_empty(&pool);
    }
}

#[test]
fn a_peer_that_said_its_end_is_still_answered() {
    let (told, hears) = mpsc::channel();
    let (pool, at) = start(Config::accept(Half(told, 100_000)).loops(1));
    let mut stream = connect(at);
    stream.write_all(b"the last word").expect("it stands");
    stream.shutdown(Shutdown::Write).expect("it stands");
    assert_eq!(read_all(&mut stream).expect("an orderly end"), pattern(100_000));
    assert_eq!(hears.recv_timeout(PATIENCE).expect("finished"), b"the last word");
    assert_empty(&pool);
}

#[test]
fn a_peer_that_never_closes_is_given_up_after_the_linger_time() {
    let mut settings = Settings::default();
    settings.linger = Duration::from_millis(200);
    let (pool, at) = start(Config::accept(answering(57, Closing::PeerMaySend)).loops(1).settings(|to| *to = settings));
    let mut streams: Vec<_> = (0..100).map(|_| connect(at)).collect();
    let began = Instant::now();
    for stream in &mut streams {
        stream.write_all(b"?").expect("it stands");
        assert_eq!(read_all(stream).expect("an orderly end"), pattern(57));
    }
    assert_empty(&pool);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200), "gone after {took:?}");
    assert!(took < Duration::from_secs(2), "gone after {took:?} only");
}

#[test]
fn a_peer_that_is_not_read_any_more_is_given_up_when_it_resets() {
    let mut settings = Settings::default();
    settings.linger = 10 * PATIENCE;
    let (pool, at) = start(Config::accept(answering(57, Closing::PeerMaySend)).loops(1).settings(|to| *to = settings));
    let mut stream = connect(at);
    stream.write_all(b"?").expect("it stands");
    assert_eq!(read_all(&mut stream).expect("an orderly end"), pattern(57));
    // Until nothing is taken any more: the connection has discarded as much as it does.
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("not zero");
    let refused = loop {
        if let Err(error) = stream.write(&[0; 65_536]) {
            break error.kind();
        }
    };
    assert_eq!((refused, pool.status().connections), (ErrorKind::WouldBlock, 1));
    reset(stream);
    assert_empty(&pool);
}

/// Service that sends 8 MB for what it gets, of which a peer that does not read leaves most unsent. It closes when asked to, after a `c`.
struct Generous;

const GIFT: usize = 8_000_000;

impl Service for Generous {
    type Protocol = Giving;
    fn open(&self, _peer: &Peer) -> Giving {
        Giving { closes: false }
    }
}

struct Giving {
    closes: bool,
}

impl Protocol for Giving {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.closes = input.bytes() == b"c";
        input.take_all();
        cx.send(&vec![7; GIFT]);
        Step::Continue
    }
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        if self.closes { Step::Close } else { Step::Continue }
    }
}

/// Returns a pool whose connections have time to flush, and a connection that the peer does not read, after asking for this.
fn unread(asks: &[u8]) -> (Pool, TcpStream) {
    let mut settings = Settings::default();
    (settings.flush, settings.linger) = (10 * PATIENCE, Duration::from_millis(100));
    let (pool, at) = start(Config::accept(Generous).loops(1).settings(|to| *to = settings));
    let mut deaf = connect(at);
    deaf.write_all(asks).expect("it stands");
    // The kernel took what it could.
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out > 0));
    (pool, deaf)
}

#[test]
fn a_purge_waits_no_longer_than_it_was_told_for_a_peer_that_does_not_read() {
    let (pool, mut deaf) = unread(b"x");
    let began = Instant::now();
    assert_eq!(pool.purge(&Selector::All, Duration::from_millis(200)).asked, 1);
    assert_empty(&pool);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200) && took < PATIENCE / 3, "gone after {took:?}");
    assert!(read_all(&mut deaf).is_err(), "it was cut off");
}

#[test]
fn a_drain_ends_who_closes_towards_a_peer_that_does_not_read() {
    let (pool, mut deaf) = unread(b"c");
    let began = Instant::now();
    let drained = pool.drain(&Selector::All, Drain::within(Duration::from_millis(200)));
    assert_eq!((drained.asked, drained.ended, drained.cut), (1, 0, 1));
    assert_empty(&pool);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200) && took < PATIENCE, "gone after {took:?}");
    assert!(read_all(&mut deaf).is_err(), "it was cut off");
}

#[test]
fn a_reset_is_noticed_by_who_waits_since_it_opened() {
    let (pool, at) = start(Config::accept(Deaf(0)).loops(1));
    let stream = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.loops[0].connections == 1));
    common::reset(stream);
    assert_empty(&pool);
}

/// Service that takes whole lines, answers each with one byte, and leaves the rest until it is whole. It does not end by itself.
struct Lines;

impl Service for Lines {
    type Protocol = Lines;
    fn open(&self, _peer: &Peer) -> Lines {
        Lines
    }
}

impl Protocol for Lines {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while input.line().is_some() {
            cx.send(b".");
        }
        Step::Continue
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

fn is_draining(pool: &Pool) -> bool {
    pool.connections(&Selector::All).iter().any(|one| one.draining)
}

#[test]
fn a_drain_that_waits_for_the_rest_of_a_line_ends_with_the_peer() {
    let (pool, at) = start(Config::accept(Lines).loops(1));
    let mut stream = connect(at);
    stream.write_all(b"whole\nhal").expect("it stands");
    assert_eq!(read(&mut stream, 1).as_deref(), Some(&b"."[..]));
    let began = Instant::now();
    let drained = std::thread::scope(|scope| {
        let drain = scope.spawn(|| pool.drain(&Selector::All, Drain::within(PATIENCE)));
        assert!(pool.wait(PATIENCE, |_| is_draining(&pool)));
        stream.shutdown(Shutdown::Write).expect("it stands");
        drain.join().expect("drained")
    });
    assert_eq!((drained.asked, drained.ended, drained.cut), (1, 1, 0));
    assert!(began.elapsed() < PATIENCE / 3, "after {:?}", began.elapsed());
    assert!(read_all(&mut stream).expect("an orderly end").is_empty());
}

#[test]
fn a_drain_that_waits_is_not_busy() {
    let (pool, at) = start(Config::accept(Lines).loops(1));
    let mut stream = connect(at);
    stream.write_all(b"whole\nhal").expect("it stands");
    assert_eq!(read(&mut stream, 1).as_deref(), Some(&b"."[..]));
    let (turns, purged) = std::thread::scope(|scope| {
        let drain = scope.spawn(|| pool.drain(&Selector::All, Drain::within(PATIENCE)));
        assert!(pool.wait(PATIENCE, |_| is_draining(&pool)));
        let before = pool.status().counts.turns;
        // waits because: what is counted is what a drain does while nothing happens.
        std::thread::sleep(Duration::from_secs(1));
        let turns = pool.status().counts.turns - before;
        stream.shutdown(Shutdown::Write).expect("it stands");
        (turns, drain.join().expect("drained").cut)
    });
    assert_eq!(purged, 0);
    assert!(turns < 1000, "{turns} turns in a second");
}

#[test]
fn a_drain_at_an_odd_rate_ends_at_its_deadline() {
    in_time(|| {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 1e-20] {
            let (pool, at) = start(Config::accept(common::Echo).loops(1));
            let mut streams: Vec<_> = (0..3).map(|_| connect(at)).collect();
            assert!(streams.iter_mut().all(|stream| echoes(stream, b"x")));
            let clients = std::thread::spawn(move || streams.iter_mut().all(|stream| read_all(stream).is_ok()));
            let drained = pool.drain(&Selector::All, Drain::within(Duration::from_secs(1)).rate(rate));
            assert_eq!((drained.asked, drained.ended + drained.cut), (3, 3), "{rate}");
            assert!(clients.join().expect("no panic"), "{rate}");
            assert_eq!(pool.shutdown(Drain::within(Duration::from_secs(1)).rate(rate)), Drained::default(), "{rate}");
            assert_eq!(pool.status().restarts, 0, "{rate}");
        }
    });
}

#[test]
fn a_drain_purge_or_shutdown_of_ages_ends_with_its_connections() {
    type End = fn(&Pool);
    let ends: [(&str, End); 3] = [
        ("drain", |pool| assert_eq!(pool.drain(&Selector::All, Drain::within(Duration::MAX)).ended, 2)),
        ("purge", |pool| assert_eq!(pool.purge(&Selector::All, Duration::MAX).asked, 2)),
        ("shutdown", |pool| assert_eq!(pool.shutdown(Drain::within(Duration::MAX)).ended, 2)),
    ];
    for (what, end) in ends {
        in_time(move || {
            let (pool, at) = start(Config::accept(common::Echo).loops(1));
            let mut streams: Vec<TcpStream> = (0..2).map(|_| connect(at)).collect();
            assert!(streams.iter_mut().all(|stream| echoes(stream, b"x")));
            let clients = std::thread::spawn(move || streams.iter_mut().all(|stream| read_all(stream).is_ok()));
            end(&pool);
            assert!(clients.join().expect("no panic"), "{what}");
            assert_empty(&pool);
            assert_eq!(pool.status().restarts, 0, "{what}");
        });
    }
}

/// Reports how it ended.
struct Reports;

impl Service for Reports {
    type Protocol = Reports;
    fn open(&self, _peer: &Peer) -> Reports {
        Reports
    }
}

impl Protocol for Reports {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        cx.report(format!("it ended: {why:?}"));
    }
}

#[test]
fn the_last_callback_may_report() {
    let (tell, told) = mpsc::channel();
    let config = Config::accept(Reports).observer(move |event: &Event| {
        if let Event::Reported { report: sockdrawer::Report { message, .. }, .. } = event {
            // The receiver lives until the report has come.
            let _ = tell.send(message.clone());
        }
    });
    let (_pool, at) = start(config);
    connect(at).write_all(b"x").expect("it stands");
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("it ended: Orderly"));
    let mut driver = sockdrawer::testing::Driver::open(Reports);
    driver.receive(b"x");
    assert_eq!(driver.reports(), ["it ended: Orderly"]);
}
