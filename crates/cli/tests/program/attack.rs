//! The control socket under wrong requests, slow clients, clients that do not read and connections that say nothing, while a pool of its
//! server is used.

use crate::openapi::answer;
use crate::operated::{Operated, TWO_POOLS};
use serde_json::Value;
use sockdrawer_operate::client::Client;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of silent connections: with all others fewer than the control socket lets say nothing, so that none gives way: each is told at its
/// deadline.
const SILENT: u64 = 900;
const ATTACKERS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers that a seed decides: xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("64 bits") % end.max(1)
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Requests that change nothing, whatever becomes of them.
const RIGHT: [&str; 10] = [
    "GET /status",
    "GET /config",
    "GET /connections?pool=echo&older-than=1h",
    "GET /metrics",
    "GET /openapi.json",
    "HEAD /readyz",
    "POST /reload?dry-run",
    "POST /rollback?dry-run",
    "POST /kill?id=99999999999",
    "POST /drain?tag=none&within=1s",
];
const STRANGE: [&str; 12] =
    ["%00", "%zz", "%", "\0", "18446744073709551616", "-1", "1e999", "\u{fffd}", "\r\n", "\"", "{{{{[[[[", "../../etc/passwd"];
const DOUBLED: [&str; 7] = [
    "Content-Length: 0\r\nContent-Length: 5",
    "Content-Length: 18446744073709551616",
    "Content-Length: -5",
    "Content-Length: 5, 5",
    "Transfer-Encoding: chunked",
    "If-Match: \"1\"\r\nIf-Match: \"2\"",
    "Expect: 100-continue\r\nExpect: 100-continue",
];

/// Changes a few places of a text.
fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = (at + random.below(20)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            2 => drop(bytes.splice(at..end, random.one_of(&STRANGE).bytes())),
            3 => bytes.truncate(at),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        }
    }
    bytes
}

/// Returns a request, and whether it must be answered: what never became a request is only closed.
fn request(configurations: &[(&str, Vec<u8>)], random: &mut Random) -> (Vec<u8>, bool) {
    let line = random.one_of(&RIGHT);
    let whole = format!("{line} HTTP/1.1\r\nConnection: close\r\nIf-Match: *\r\n\r\n");
    match random.below(8) {
        0 => ((0..random.below(300)).map(|_| random.below(256).to_le_bytes()[0]).collect(), false),
        1 => (mutated(whole.as_bytes(), random), false),
        2 => (whole.as_bytes()[..random.below(whole.len())].to_vec(), false),
        3 => (format!("{line} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\nhello", random.one_of(&DOUBLED)).into_bytes(), true),
        4 => {
            let (method, path) = line.split_once(' ').expect("two words");
            let method = if random.below(2) == 0 { "DELETE" } else { method };
            let sign = if path.contains('?') { '&' } else { '?' };
            let odd = ["%zz", "%00", "x=1", "pool=%ff", "id=1e99", "older-than=9999999999999999999999h", "/%2e%2e"];
            (format!("{method} {path}{sign}{} HTTP/1.1\r\nConnection: close\r\n\r\n", random.one_of(&odd)).into_bytes(), true)
        }
        5 => (whole.into_bytes(), true),
        _ => {
            let (kind, text) = &configurations[random.below(configurations.len())];
            let body = mutated(text, random);
            let head = format!(
                "PUT /config?dry-run HTTP/1.1\r\nContent-Type: {kind}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            ([head.into_bytes(), body].concat(), true)
        }
    }
}

/// Returns the statuses of all answers of a connection. Each error is an object with one line.
fn statuses(request: &[u8], mut rest: &[u8]) -> Vec<u16> {
    let told = String::from_utf8_lossy(request).into_owned();
    let mut all = Vec::new();
    while !rest.is_empty() {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {told:?}")) + 4;
        let head = String::from_utf8(rest[..end].to_vec()).expect("text");
        rest = &rest[end..];
        let status: u16 = head.split(' ').nth(1).and_then(|text| text.parse().ok()).expect(&head);
        if status == 100 {
            continue;
        }
        let length =
            head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map(|text| text.parse::<usize>().expect(&head));
        // A stream is the last answer here, and the answer to HEAD has no body.
        let body = &rest[..length.unwrap_or(rest.len()).min(rest.len())];
        rest = &rest[body.len()..];
        if status >= 400 && !(body.is_empty() && told.starts_with("HEAD")) {
            let error: Value = serde_json::from_slice(body).unwrap_or_else(|_| panic!("{told:?}: {head}"));
            let line = error["error"].as_str().expect("an error");
            assert!(status != 500 && !line.is_empty() && !line.contains('\n'), "{told:?}: {status} {line}");
        }
        all.push(status);
    }
    all
}

fn attack(path: &str, configurations: &[(&str, Vec<u8>)], mut random: Random, count: u64) -> [u64; 3] {
    let [mut well, mut wrong, mut closed] = [0; 3];
    for _ in 0..count {
        let (bytes, answered) = request(configurations, &mut random);
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        // A server that refuses may close before it has read all.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        assert!(
            !matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "{:?}",
            String::from_utf8_lossy(&bytes)
        );
        let statuses = statuses(&bytes, &text);
        assert!(!answered || !statuses.is_empty(), "no answer: {:?}", String::from_utf8_lossy(&bytes));
        let errors = statuses.iter().filter(|status| **status >= 400).count();
        match (statuses.len(), errors) {
            (0, _) => closed += 1,
            (_, 0) => well += 1,
            _ => wrong += 1,
        }
    }
    [well, wrong, closed]
}

/// Makes connections that say nothing, again and again, and returns the number of errors that they get.
fn silent(path: &str, over: &AtomicBool) -> u64 {
    let mut told = 0;
    loop {
        let all: Vec<_> = (0..SILENT).map(|_| UnixStream::connect(path).expect("it listens")).collect();
        for mut stream in all {
            let mut text = Vec::new();
            let _ = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.read_to_end(&mut text));
            told += u64::from(statuses(b"", &text) == [408]);
        }
        if over.load(Ordering::Relaxed) {
            return told;
        }
    }
}

/// Sends a byte each 50 ms: it is answered at the deadline of requests.
fn slow(path: &str) {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
    let mut text = [0; 1024];
    for byte in b"GET /status HTTP/1.1\r\nA: ".iter().chain(std::iter::repeat(&b'x')) {
        let _ = stream.write_all(&[*byte]);
        if let Ok(count) = stream.read(&mut text) {
            return assert_eq!(statuses(b"", &text[..count]), [408]);
        }
    }
}

/// Asks for much, and for events, and reads nothing until the others are done.
fn unread(path: &str, over: &AtomicBool) {
    let mut streams = [0, 1].map(|_| UnixStream::connect(path).expect("it listens"));
    streams.iter().for_each(|stream| stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a time"));
    while !over.load(Ordering::Relaxed) {
        let _ = streams[0].write_all(b"GET /openapi.json HTTP/1.1\r\n\r\n");
        let _ = streams[1].write_all(b"GET /events HTTP/1.1\r\n\r\n");
        // waits because: the loop that is tried is the server's.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the times of exchanges until the others are done, sorted.
fn exchanges(address: &str, over: &AtomicBool) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_nodelay(true)).expect("options");
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let since = Instant::now();
        stream.write_all(b"how long").and_then(|()| stream.read_exact(&mut [0; 8])).expect("an answer");
        times.push(since.elapsed());
        // waits because: a client that asks all the time would take the time that others are measured in.
        thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    times
}

fn used(pid: u64) -> (usize, u64) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")).expect("a size");
    (descriptors, kib.parse().expect("a number"))
}

fn status(path: &str) -> Value {
    let mut client = Client::at(path);
    let answer = client.send("GET", "/status", &[], b"").expect("an answer");
    assert_eq!(answer.status, 200);
    serde_json::from_str(&answer.text().expect("text")).expect("JSON")
}

/// Takes all places: connections that say nothing give way to one that asks. Where all places are taken by those that have asked, the next one is
/// told so, in a line of JSON.
fn take_all_places(path: &str) {
    let silent: Vec<_> = (0..1_024).map(|_| UnixStream::connect(path).expect("it listens")).collect();
    let asked = answer(path, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(statuses(b"", asked.as_bytes()), [200], "{asked}");
    drop(silent);
    let asking = |_| {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(b"GET /events HTTP/1.1\r\n\r\n").and_then(|()| stream.read(&mut [0; 512])).expect("a head");
        stream
    };
    let all: Vec<_> = (0..1_024).map(asking).collect();
    let full = answer(path, b"");
    assert_eq!(statuses(b"", full.as_bytes()), [503], "{full}");
    drop(all);
}

#[test]
fn the_control_socket_under_attack_answers_an_operator_and_disturbs_no_pool() {
    let count = if std::env::var_os("SOCKDRAWER_LONG").is_some() { 100_000 } else { 2_000 };
    sockdrawer::raise_descriptor_limit().expect("descriptors");
    let server = Operated::start("attack", TWO_POOLS);
    let path = server.path("c.sock");
    let toml = std::fs::read(server.path("a.toml")).expect("it is there");
    let json = Client::at(&path).send("GET", "/config", &[], b"").expect("an answer").text().expect("text");
    let configurations = [("application/toml", toml), ("application/json", json.into_bytes())];
    attack(&path, &configurations, Random(99), 200);
    let pid = status(&path)["pid"].as_u64().expect("a number");
    let before = used(pid);
    take_all_places(&path);
    while used(pid).0 > before.0 {
        thread::yield_now();
    }
    let (over, longest, asked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let ([well, wrong, closed], told, times) = thread::scope(|scope| {
        let (path, over, configurations) = (path.as_str(), &over, &configurations);
        let silent = scope.spawn(move || silent(path, over));
        let exchanges = scope.spawn(|| exchanges(&server.addresses[0], over));
        scope.spawn(move || unread(path, over));
        let slow: Vec<_> = (0..4).map(|_| scope.spawn(move || slow(path))).collect();
        let attackers: Vec<_> = (1..=ATTACKERS)
            .map(|seed| scope.spawn(move || attack(path, configurations, Random(seed), count / ATTACKERS)))
            .collect();
        while !attackers.iter().all(|one| one.is_finished()) || !slow.iter().all(|one| one.is_finished()) {
            let since = Instant::now();
            status(path);
            longest.fetch_max(u64::try_from(since.elapsed().as_millis()).expect("short"), Ordering::Relaxed);
            asked.fetch_add(1, Ordering::Relaxed);
            // waits because: an operator does not ask all the time.
            thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
        let sum = attackers.into_iter().map(|one| one.join().expect("answers as they must be"));
        let sum = sum.fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
        (sum, silent.join().expect("it ends"), exchanges.join().expect("it ends"))
    });
    let until = Instant::now() + PATIENCE;
    while used(pid).0 > before.0 {
        assert!(Instant::now() < until, "descriptors: {before:?} before, {:?} after", used(pid));
    }
    let after = used(pid);
    let (p99, longest, asked) = (times[times.len() * 99 / 100], longest.into_inner(), asked.into_inner());
    println!(
        "{count} requests: {well} answered, {wrong} refused, {closed} closed; {told} silent ones told; echo: {} exchanges, p99 {p99:?}, \
         max {:?}; status: {asked} times, {longest} ms at most; descriptors and KiB: {before:?} before, {after:?} after",
        times.len(),
        times[times.len() - 1]
    );
    assert!(well > count / 20 && wrong > count / 3 && well + wrong + closed == count, "{well} {wrong} {closed}");
    assert!(told >= SILENT * 9 / 10, "{told} were told");
    assert!(longest < 1_000 && asked > 10 && p99 < Duration::from_millis(250), "{longest} ms, {p99:?}");
    assert!(after.1 < before.1 + 32 * 1024, "memory in KiB: {before:?} before, {after:?} after");
    let status = status(&path);
    assert_eq!((&status["pools"]["echo"]["counts"]["panics"], &status["revision"]), (&Value::from(0), &Value::from(1)));
    let end = server.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
}
