//! Properties of the model `fork` alone: each connection is a process, and leaves nothing behind; the suite tests the rest.

use crate::common::{PATIENCE, address, connect, echoes, kill, overflow, read_all};
use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::{
    Behaviour, Build, Config, Context, Drain, Input, Model, Peer, Pool, Protocol, Recipe, Selector, Service, Step,
    blocking::{Connection, Wakeup},
    observe::Event,
};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Service that sends back what it gets; `crash` and `overflow` end its process as foreign code might.
struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "fork".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"crash" {
            std::process::abort();
        }
        if input.bytes() == b"overflow" {
            std::hint::black_box(overflow(0));
        }
        if input.bytes() == b"panic" {
            panic!("these words");
        }
        if input.bytes() == b"hang" {
            loop {
                std::thread::park();
            }
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

pub(crate) const RECIPES: &[(&str, Build)] =
    &[("fork", |_| Ok(Behaviour::from(Echo))), ("answer", |_| Ok(answer())), ("look", |path| Ok(Look::new(path)?.into()))];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("each_connection_is_a_process_and_none_is_left", each_connection_is_a_process),
    ("a_signal_ends_one_connection_and_is_counted", a_signal_ends_one_connection),
    ("a_stuck_child_is_listed_and_killed", a_stuck_child_is_listed_and_killed),
    ("a_program_is_a_behaviour", a_program_is_a_behaviour),
    ("a_program_that_stays_is_ended_at_the_deadline", a_program_that_stays),
    ("a_program_hears_that_it_is_to_end", a_program_hears_that_it_is_to_end),
    ("blocking_code_runs_in_a_process_of_its_own", blocking_code_runs_in_a_process_of_its_own),
    ("the_helper_is_small_and_alone", the_helper_is_small_and_alone),
    ("children_end_with_their_pool", children_end_with_their_pool),
    ("a_child_has_its_connection_and_what_its_service_opened", a_child_has_its_connection_and_what_its_service_opened),
    ("a_service_waits_for_its_own_processes", a_service_waits_for_its_own_processes),
    ("a_connection_ends_with_its_program", a_connection_ends_with_its_program),
    ("all_that_a_program_wrote_arrives_though_it_read_nothing", all_that_a_program_wrote_arrives),
    ("a_program_that_dies_has_sent_all_that_it_wrote", a_program_that_dies_has_sent_all_that_it_wrote),
    ("a_program_ends_when_its_peer_is_gone", a_program_ends_when_its_peer_is_gone),
    ("no_program_ends_in_order_with_its_helper", no_program_ends_in_order_with_its_helper),
    ("programs_of_a_stopped_helper_count_as_cut", programs_of_a_stopped_helper_count_as_cut),
    ("a_shutdown_keeps_its_time_with_programs", a_shutdown_keeps_its_time_with_programs),
    ("a_shutdown_keeps_its_time_with_stuck_children", a_shutdown_keeps_its_time_with_stuck_children),
    ("a_panic_in_a_child_is_told_by_its_words", a_panic_in_a_child_is_told_by_its_words),
];

fn start(behaviour: impl sockdrawer::IntoBehaviour) -> (Pool, SocketAddr) {
    let config = Config::accept(behaviour).model(Model::Fork).listen("127.0.0.1:0");
    let pool = Pool::start(config).expect("the pool starts");
    let at = address(&pool);
    (pool, at)
}

fn helper(pool: &Pool) -> u32 {
    pool.status().processes[0].pid
}

/// Returns the number of children of a process, and how many of them are zombies.
fn children(pid: u32) -> (usize, usize) {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let states: Vec<String> =
        list.split_whitespace().filter_map(|child| std::fs::read_to_string(format!("/proc/{child}/stat")).ok()).collect();
    let zombie = |stat: &&String| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    (states.len(), states.iter().filter(zombie).count())
}

fn each_connection_is_a_process() {
    let (pool, at) = start(Echo);
    let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| assert!(echoes(client, b"hello")));
    assert_eq!(children(helper(&pool)), (20, 0));
    let list = pool.connections(&Selector::All);
    assert_eq!((list.len(), pool.status().connections), (20, 20));
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.counts.closed == 20), "{:#?}", pool.status());
    assert_eq!(children(helper(&pool)), (0, 0));
    let counts = pool.status().counts;
    assert_eq!((counts.bytes_in, counts.bytes_out), (100, 100));
}

fn a_signal_ends_one_connection() {
    let (pool, at) = start(Echo);
    let (mut stays, mut goes) = (connect(at), connect(at));
    assert!(echoes(&mut stays, b"hello") && echoes(&mut goes, b"hello"));
    // A stack that overflows is told by the standard library, which aborts then.
    for (ended, crash) in [(1, &b"crash"[..]), (2, b"overflow")] {
        goes.write_all(crash).expect("written");
        assert_eq!(read_all(&mut goes).expect_err("no orderly end").kind(), ErrorKind::ConnectionReset);
        let counted = |status: &sockdrawer::observe::Status| status.signalled == [(6, ended)] && status.connections == 1;
        assert!(pool.wait(PATIENCE, counted), "{:#?}", pool.status());
        assert!(echoes(&mut stays, b"still here"));
        goes = connect(at);
    }
}

fn a_stuck_child_is_listed_and_killed() {
    let (pool, at) = start(Echo);
    let mut client = connect(at);
    client.write_all(b"hang").expect("written");
    assert!(pool.wait(PATIENCE, |status| status.connections == 1));
    let list = pool.connections(&Selector::All);
    assert_eq!(list.len(), 1);
    assert_eq!(pool.kill(&Selector::Id(list[0].id)).cut, 1);
    assert!(!matches!(client.read(&mut [0; 8]), Ok(1..)));
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
}

fn a_program_is_a_behaviour() {
    let (pool, at) = start(Behaviour::exec("cat", [] as [&str; 0]));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"a line\n"));
    client.shutdown(Shutdown::Write).expect("open");
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert_eq!(pool.status().signalled, []);
    pool.reconfigure(pool.config().behaviour(Behaviour::exec("/no/such/program", [] as [&str; 0]))).expect("reconfigures");
    assert!(!matches!(connect(at).read(&mut [0; 8]), Ok(1..)));
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
}

fn a_program_that_stays() {
    let (pool, at) = start(Behaviour::exec("sleep", ["1000"]));
    let mut client = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.connections == 1));
    let began = Instant::now();
    let drained = pool.drain(&Selector::All, Drain::within(Duration::from_millis(100)));
    assert_eq!((drained.asked, drained.ended, drained.cut), (1, 0, 1));
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(read_all(&mut client).expect_err("it was cut off").kind(), ErrorKind::ConnectionReset);
    assert_eq!((pool.status().counts.cut, pool.status().signalled), (1, Vec::new()));
}

fn a_program_hears_that_it_is_to_end() {
    let script = "trap 'echo bye; exit' TERM; echo ready; sleep 1000 & wait";
    let (pool, at) = start(Behaviour::exec("sh", ["-c", script]));
    let mut client = connect(at);
    let mut line = String::new();
    BufReader::new(&mut client).read_line(&mut line).expect("it has begun");
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE / 10));
    assert_eq!((drained.asked, drained.ended, drained.cut), (1, 1, 0));
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"bye\n");
}

/// Answers lines by the number of its process, until there are no more or the pool asks it to end.
fn answer() -> Behaviour {
    let handler = |connection: &mut Connection| {
        while connection.wait()? == Wakeup::Input {
            let read = connection.read(&mut [0; 64])?;
            if read == 0 {
                break;
            }
            writeln!(connection, "{}", std::process::id())?;
        }
        connection.write_all(b"bye")
    };
    Behaviour::blocking(handler).with_recipe(Recipe { name: "answer".to_owned(), options: Vec::new() })
}

fn blocking_code_runs_in_a_process_of_its_own() {
    let (pool, at) = start(answer());
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(at)).collect();
    let numbers: std::collections::HashSet<String> = clients
        .iter_mut()
        .map(|client| {
            client.write_all(b"who?").expect("it stands");
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).expect("an answer");
            line
        })
        .collect();
    assert_eq!((numbers.len(), children(helper(&pool))), (3, (3, 0)));
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.ended, drained.cut), (3, 3, 0));
    clients.iter_mut().for_each(|client| assert_eq!(read_all(client).expect("an orderly end"), b"bye"));
}

fn the_helper_is_small_and_alone() {
    let (pool, at) = start(Echo);
    let mut client = connect(at);
    assert!(echoes(&mut client, b"hello"));
    let pid = helper(&pool);
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").count();
    assert_eq!(threads, 1);
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it lives");
    let dirty = smaps.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("the kernel says so");
    let kilobytes: usize = dirty.trim().trim_end_matches(" kB").parse().expect("a number");
    println!("  private dirty memory of the helper: {kilobytes} kB");
    assert!(kilobytes < 1024, "{smaps}");
}

fn children_end_with_their_pool() {
    let (pool, at) = start(Echo);
    let mut client = connect(at);
    assert!(echoes(&mut client, b"hello"));
    let drained = pool.shutdown(Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.cut), (1, 0));
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");
}

/// A file that a service has open, and a process that it has started.
type Opened = Arc<Mutex<(File, std::process::Child)>>;

/// Service that says what it sees from a child.
struct Look(Opened);

/// File and process of the service that was built before this one in its helper.
static STARTED: Mutex<Option<Opened>> = Mutex::new(None);

impl Look {
    fn new(path: &[u8]) -> Result<Look, String> {
        let mut started = STARTED.lock().expect("no panic");
        if let Some(before) = &*started {
            let ended = before.lock().expect("no panic").1.wait().map_err(|error| error.to_string())?;
            if ended.code() != Some(7) {
                return Err(format!("{ended}"));
            }
        }
        let path = String::from_utf8_lossy(path).into_owned();
        let file = File::options().append(true).create(true).open(path).map_err(|error| error.to_string())?;
        let command = Command::new("sh").args(["-c", "exit 7"]).spawn().map_err(|error| error.to_string())?;
        let own = Arc::new(Mutex::new((file, command)));
        *started = Some(own.clone());
        Ok(Look(own))
    }
}

impl Service for Look {
    type Protocol = Looking;
    fn open(&self, _peer: &Peer) -> Looking {
        Looking(self.0.clone())
    }
}

struct Looking(Opened);

impl Protocol for Looking {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        writeln!(self.0.lock().expect("no panic").0, "a line of the log").expect("the file is open");
        let open = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
        let open = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let sockets = open.filter(|path| path.to_string_lossy().starts_with("socket:")).count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        let shared: Vec<&str> = maps.lines().filter(|line| line.contains("memfd:sockdrawer")).collect();
        let bytes: u64 = shared.iter().map(|line| length(line)).sum();
        cx.send(format!("{sockets} {bytes}").as_bytes());
        Step::Close
    }
}

/// Returns the length in bytes of the range in a line of /proc/PID/maps.
fn length(line: &str) -> u64 {
    let (from, to) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("a number");
    number(to) - number(from)
}

fn a_child_has_its_connection_and_what_its_service_opened() {
    let path = format!("{}/fork-{}.log", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let recipe = Recipe { name: "look".to_owned(), options: path.clone().into_bytes() };
    let (pool, at) = start(Behaviour::from(Look::new(path.as_bytes()).expect("it opens its log")).with_recipe(recipe));
    // Some listeners come after the service has opened its file, and go.
    for more in [3, 0] {
        let mut config = pool.config();
        config = config.listeners(|listeners| listeners.truncate(1));
        let config = (0..more).fold(config, |config, _| config.listen("127.0.0.1:0"));
        pool.reconfigure(config).expect("reconfigures");
        let others: Vec<TcpStream> = (0..3).map(|_| connect(at)).collect();
        let mut client = connect(at);
        client.write_all(b"look").expect("it stands");
        let seen = String::from_utf8(read_all(&mut client).expect("an orderly end")).expect("text");
        // A child has one socket and one page of shared memory, which is its own.
        assert!(["1 4096", "1 16384", "1 65536"].contains(&seen.as_str()), "{seen}");
        drop(others);
    }
    assert_eq!(std::fs::read_to_string(&path).expect("the log"), "a line of the log\n".repeat(2));
    std::fs::remove_file(path).expect("it is there");
}

fn a_service_waits_for_its_own_processes() {
    let path = format!("{}/fork-{}.wait", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let recipe = Recipe { name: "look".to_owned(), options: path.clone().into_bytes() };
    let (pool, at) = start(Behaviour::from(Echo).with_recipe(recipe.clone()));
    // All children are reaped, with a zombie among them that is none of theirs.
    let mut clients: Vec<TcpStream> = (0..5).map(|_| connect(at)).collect();
    for client in &mut clients {
        client.write_all(b"look").expect("it stands");
        read_all(client).expect("an orderly end");
    }
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.counts.closed == 5), "{:#?}", pool.status());
    pool.reconfigure(pool.config().behaviour(Behaviour::from(Echo).with_recipe(recipe)))
        .expect("it has the status of its process");
    std::fs::remove_file(path).expect("it is there");
}

fn a_connection_ends_with_its_program() {
    // A process that the program leaves behind has the connection, too: in its group, and out of it.
    for left_behind in ["sleep 1000 & echo hi", "setsid sleep 3 & echo hi"] {
        let (pool, at) = start(Behaviour::exec("sh", ["-c", left_behind]));
        for served in 1..=3 {
            let mut client = connect(at);
            assert_eq!(read_all(&mut client).expect("an orderly end"), b"hi\n", "{left_behind}");
            assert!(pool.wait(PATIENCE, |status| status.counts.closed == served && status.connections == 0));
        }
        let drained = pool.shutdown(Drain::within(PATIENCE));
        assert_eq!(drained.asked, 0);
    }
}

fn all_that_a_program_wrote_arrives() {
    // More than the kernel buffers at both ends, less than its limit of what waits to be sent.
    const BYTES: usize = 1_000_000;
    let (pool, at) = start(Behaviour::exec("head", ["-c", &BYTES.to_string(), "/dev/zero"]));
    let mut client = connect(at);
    client.write_all(b"a request that is not read").expect("it stands");
    // It has ended before much is read.
    assert!(pool.wait(PATIENCE, |status| status.counts.closed == 1), "{:#?}", pool.status());
    assert_eq!(read_all(&mut client).expect("an orderly end").len(), BYTES);
    drop(client);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
}

fn a_program_that_dies_has_sent_all_that_it_wrote() {
    let (pool, at) = start(Behaviour::exec("sh", ["-c", "echo hi; kill -9 $$"]));
    assert_eq!(read_all(&mut connect(at)).expect("an orderly end"), b"hi\n");
    let told = pool.wait(PATIENCE, |status| status.signalled == [(9, 1)] && status.connections == 0);
    assert!(told, "{:#?}", pool.status());
}

fn a_program_ends_when_its_peer_is_gone() {
    // The second does not hear of it.
    for script in ["echo ready; exec sleep 1000", "trap '' TERM; echo ready; sleep 1000 & wait; wait"] {
        let (pool, at) = start(Behaviour::exec("sh", ["-c", script]));
        let mut client = connect(at);
        client.read_exact(&mut [0; 6]).expect("it has begun");
        crate::common::reset(client);
        assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{script}: {:#?}", pool.status());
        let status = pool.status();
        assert_eq!((status.counts.closed, status.counts.cut, status.signalled), (1, 0, Vec::new()), "{script}");
    }
    // A half-close is no end.
    let (pool, at) = start(Behaviour::exec("sh", ["-c", "cat; exec sleep 1000"]));
    let mut client = connect(at);
    client.write_all(b"all").expect("it stands");
    client.shutdown(Shutdown::Write).expect("it stands");
    assert_eq!(crate::common::read(&mut client, 3).as_deref(), Some(&b"all"[..]));
    assert_eq!(pool.status().connections, 1);
    crate::common::reset(client);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
}

fn no_program_ends_in_order_with_its_helper() {
    let (pool, at) = start(Behaviour::exec("sh", ["-c", "echo hi; exec sleep 1000"]));
    let mut client = connect(at);
    let mut said = [0; 3];
    client.read_exact(&mut said).expect("it runs");
    kill(helper(&pool));
    assert_eq!(read_all(&mut client).expect_err("it was cut off").kind(), ErrorKind::ConnectionReset);
    pool.shutdown(Drain::within(PATIENCE));
}

/// Shuts down a pool that serves some clients, while as many wait at the limit.
fn shut_down_at_the_limit(behaviour: impl sockdrawer::IntoBehaviour, stuck: bool) {
    const LIMIT: usize = 3;
    const WITHIN: Duration = Duration::from_secs(2);
    let (pool, at) = start(behaviour);
    pool.reconfigure(pool.config().limit(LIMIT)).expect("reconfigures");
    let mut clients: Vec<TcpStream> = (0..2 * LIMIT).map(|_| connect(at)).collect();
    clients.iter_mut().filter(|_| stuck).for_each(|client| client.write_all(b"hang").expect("it stands"));
    assert!(pool.wait(PATIENCE, |status| status.connections == LIMIT));
    let began = Instant::now();
    let drained = pool.shutdown(Drain::within(WITHIN));
    let took = began.elapsed();
    // Where a helper has no CPU at the deadline, only what it holds is known, and that is cut with it.
    assert!(drained.ended == 0 && [LIMIT, 2 * LIMIT].contains(&drained.cut), "{drained:?}");
    assert!(took < WITHIN + Duration::from_secs(5), "{took:?}");
    for client in &mut clients {
        assert_eq!(read_all(client).expect_err("it was cut off").kind(), ErrorKind::ConnectionReset);
    }
    let counts = pool.status().counts;
    assert_eq!((counts.accepted, counts.cut), (counts.closed + counts.rejected, counts.closed), "{counts:#?}");
}

fn a_shutdown_keeps_its_time_with_programs() {
    // The second does not hear of it.
    for script in ["sleep 1000", "trap '' TERM; sleep 1000 & wait"] {
        shut_down_at_the_limit(Behaviour::exec("sh", ["-c", script]), false);
    }
}

fn programs_of_a_stopped_helper_count_as_cut() {
    let (pool, at) = start(Behaviour::exec("sh", ["-c", "echo hi; exec sleep 1000"]));
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| client.read_exact(&mut [0; 3]).expect("it runs"));
    let pid = Pid::from_raw(helper(&pool) as i32).expect("a pid");
    kill_process(pid, Signal::STOP).expect("it lives");
    let drained = pool.shutdown(Drain::within(Duration::from_millis(100)));
    assert_eq!((drained.asked, drained.ended, drained.cut), (3, 0, 3), "it was killed, and they with it");
    assert_eq!(pool.status().counts.cut, 3);
    for client in &mut clients {
        assert_eq!(read_all(client).expect_err("it was cut off").kind(), ErrorKind::ConnectionReset);
    }
}

fn a_shutdown_keeps_its_time_with_stuck_children() {
    shut_down_at_the_limit(Echo, true);
}

fn a_panic_in_a_child_is_told_by_its_words() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let config = Config::accept(Echo).model(Model::Fork).listen("127.0.0.1:0");
    let config = config.observer(move |event: &Event| {
        if let Event::ConnectionPanicked { message, .. } = event {
            hears.lock().expect("no panic").push(message.clone());
        }
    });
    let pool = Pool::start(config).expect("the pool starts");
    let mut client = connect(address(&pool));
    client.write_all(b"panic").expect("it stands");
    assert_eq!(read_all(&mut client).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let told = pool.wait(PATIENCE, |status| status.counts.panics == 1 && !heard.lock().expect("no panic").is_empty());
    assert!(told, "{:#?}", pool.status());
    let heard = heard.lock().expect("no panic");
    assert!(heard.len() == 1 && heard[0].starts_with(concat!("these words, at ", file!())), "{heard:?}");
}
