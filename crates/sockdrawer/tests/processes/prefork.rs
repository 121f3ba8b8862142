//! Properties of the model `prefork` alone: processes come, go and die; the suite tests the rest.

use crate::common::{PATIENCE, address, any_port, children, connect, echoes, kill, lives, many, overflow};
use crate::helpers::soon;
use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::{
    Address, Behaviour, Build, Config, Context, Drain, Error, Input, Model, Peer, Pool, Protocol, Recipe, Selector, Service,
    Step,
    listening::Listening,
    observe::{Event, Status},
    restarting::Restarts,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Service that sends back what it gets, but what begins with `half`, which it leaves, `abort` and `overflow`, which end its
/// process, and `hold`,
/// which holds up its loop.
struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "prefork".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        match input.bytes() {
            b"abort" => std::process::abort(),
            b"pid" => {
                input.take_all();
                cx.send(&std::process::id().to_le_bytes());
                return Step::Continue;
            }
            // waits because: a loop that is held up is what is tried.
            b"hold" => std::thread::sleep(2 * PATIENCE),
            b"overflow" => _ = std::hint::black_box(overflow(0)),
            [b'h', b'a', b'l', b'f', ..] => return Step::Continue,
            _ => {}
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

/// Returns the path of this test's file: what is in it happens to processes of the recipe `fragile` that are started.
fn fate() -> PathBuf {
    std::env::temp_dir().join(format!("sockdrawer-fragile-{}", std::process::id()))
}

/// Dies or hangs where it is started, as the file says.
fn build_fragile(fate: &[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>> {
    match std::fs::read(OsStr::from_bytes(fate)).unwrap_or_default().as_slice() {
        b"dies" => std::process::abort(),
        // waits because: a process that takes long to start is what is tried.
        b"hangs" => std::thread::sleep(2 * PATIENCE),
        _ => {}
    }
    Ok(Behaviour::from(Echo))
}

pub(crate) const RECIPES: &[(&str, Build)] = &[("prefork", |_| Ok(Behaviour::from(Echo))), ("fragile", build_fragile)];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("connections_are_shared_among_the_processes", connections_are_shared_among_the_processes),
    ("a_process_that_is_killed_is_replaced_and_costs_its_connections_only", a_process_that_is_killed_is_replaced),
    ("processes_come_and_go_and_connections_stay", processes_come_and_go),
    ("a_limit_is_exact_among_processes", a_limit_is_exact_among_processes),
    ("a_pool_that_ends_refuses_while_it_waits", a_pool_that_ends_refuses_while_it_waits),
    ("who_waits_at_an_address_that_is_gone_is_served_before_the_end", who_waits_is_served_before_the_end),
    ("a_socket_that_all_processes_have_ends_with_its_queue", a_socket_that_all_processes_have_ends),
    ("processes_listen_at_a_path_that_is_no_text", processes_listen_at_a_path_that_is_no_text),
    ("a_process_that_does_not_turn_keeps_nothing_from_the_others", a_process_that_does_not_turn_keeps_nothing),
    ("a_process_that_cannot_be_started_is_a_matter_of_the_policy", a_process_that_cannot_be_started),
    ("a_process_that_takes_long_to_start_holds_up_nothing_else", a_process_that_takes_long_to_start),
    ("a_shutdown_keeps_its_time_though_a_process_is_stopped", a_shutdown_keeps_its_time),
    ("a_short_shutdown_at_a_rate_keeps_its_time_though_a_process_is_stopped", a_short_shutdown_at_a_rate_keeps_its_time),
    ("a_shutdown_keeps_its_time_though_a_stopped_process_has_a_full_queue", a_shutdown_keeps_its_time_where_a_queue_is_full),
    ("a_helper_that_cannot_be_told_to_begin_is_not_left_behind", a_helper_that_cannot_be_told_to_begin),
    ("a_drain_of_so_many_counts_none_of_a_loop_that_hangs", a_drain_of_so_many_beside_a_loop_that_hangs),
    ("a_drain_counts_what_a_stopped_process_has", a_drain_counts_what_a_stopped_process_has),
    ("a_crash_of_foreign_code_costs_the_connections_of_its_process", a_crash_costs_the_connections_of_its_process),
];

fn start(config: Config) -> (Pool, SocketAddr) {
    let config = config.model(Model::Prefork).listen("127.0.0.1:0");
    let pool = Pool::start(config).expect("the pool starts");
    let at = address(&pool);
    (pool, at)
}

fn connections_are_shared_among_the_processes() {
    let (pool, at) = start(Config::accept(Echo).processes(3));
    let clients = many(at, 60);
    let status = pool.status();
    assert_eq!((status.connections, status.processes.len(), status.counts.accepted), (60, 3, 60), "{status:#?}");
    assert!(status.processes.iter().all(|process| process.connections > 0), "{status:#?}");
    let ids: HashSet<_> = pool.connections(&Selector::All).into_iter().map(|connection| connection.id).collect();
    assert_eq!(ids.len(), 60, "numbers are unique in the pool");
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.counts.closed == 60));
    pool.shutdown(Drain::within(PATIENCE));
}

fn a_process_that_is_killed_is_replaced() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    let mut clients = many(at, 40);
    let before = pool.status();
    let victim = before.processes[0];
    kill(victim.pid);
    let replaced = |status: &Status| status.processes.len() == 2 && status.processes[0].pid != victim.pid;
    assert!(pool.wait(PATIENCE, replaced), "{:#?}", pool.status());
    let alive = clients.iter_mut().map(|client| usize::from(echoes(client, b"again"))).sum::<usize>();
    assert_eq!(alive, 40 - victim.connections, "those of the other process live");
    assert!(pool.wait(PATIENCE, |status| status.connections == alive), "{:#?}", pool.status());
    let more = many(at, 40);
    assert_eq!(pool.status().connections, alive + 40);
    assert_eq!(pool.status().counts.accepted, 80, "what the dead one counted is there");
    drop((clients, more));
}

fn processes_come_and_go() {
    let (pool, at) = start(Config::accept(Echo).processes(1));
    let mut clients = many(at, 10);
    for processes in [3, 1, 2] {
        pool.reconfigure(pool.config().processes(processes)).expect("reconfigures");
        clients.extend(many(at, 30));
        clients.iter_mut().for_each(|client| assert!(echoes(client, b"still here")));
        let active = pool.status().processes.iter().filter(|process| process.active).count();
        assert_eq!(active, processes);
    }
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.processes.len() == 2), "{:#?}", pool.status());
}

fn a_limit_is_exact_among_processes() {
    let (pool, at) = start(Config::accept(Echo).processes(3).limit(7));
    let mut waiting: Vec<TcpStream> = (0..40).map(|_| connect(at)).collect();
    waiting.iter_mut().for_each(|client| client.write_all(b"x").expect("written"));
    let mut served = 0;
    while !waiting.is_empty() {
        assert!(
            pool.wait(PATIENCE, |status| {
                assert!(status.connections <= 7, "{status:#?}");
                status.connections == waiting.len().min(7)
            }),
            "{:#?}",
            pool.status()
        );
        let answered: Vec<usize> = (0..waiting.len()).filter(|index| has_answer(&waiting[*index])).collect();
        served += answered.len();
        answered.into_iter().rev().for_each(|index| drop(waiting.remove(index)));
    }
    assert_eq!(served, 40);
}

fn a_crash_costs_the_connections_of_its_process() {
    for crash in [&b"abort"[..], b"overflow"] {
        let (pool, at) = start(Config::accept(Echo).processes(2));
        let mut clients = many(at, 20);
        let before = pool.status();
        clients[0].write_all(crash).expect("written");
        assert!(pool.wait(PATIENCE, |status| status.restarts == 1), "{:#?}", pool.status());
        let alive = clients.iter_mut().map(|client| usize::from(echoes(client, b"again"))).sum::<usize>();
        assert!(before.processes.iter().any(|process| process.connections == alive), "{alive} of {before:#?}");
        assert!(pool.wait(PATIENCE, |status| status.connections == alive && status.processes.len() == 2), "{:#?}", pool.status());
        drop(many(at, 20));
    }
}

fn a_process_that_does_not_turn_keeps_nothing() {
    for is_stopped in [false, true] {
        let mut config = Config::accept(Echo).processes(2).limit(2);
        config.stuck_after = Duration::from_millis(500);
        let (pool, at) = start(config);
        // Each process gets one connection.
        let (goes, mut stays) = loop {
            let mut both = many(at, 2);
            if pool.status().processes.iter().all(|process| process.connections == 1) {
                break (both.remove(0), both.remove(0));
            }
            drop(both);
            assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        };
        let mut waiting: Vec<TcpStream> = (0..16).map(|_| connect(at)).collect();
        waiting.iter_mut().for_each(|client| client.write_all(b"x").expect("written"));
        let of = pool.status().processes;
        if is_stopped {
            // Whichever it is: the other's connection goes.
            stop(pid_of(&mut stays));
        } else {
            stays.write_all(b"hold").expect("written");
        }
        drop(goes);
        // The pool is not asked meanwhile: one that is stopped does not answer.
        let until = Instant::now() + PATIENCE;
        waiting.iter().for_each(|client| client.set_read_timeout(Some(Duration::from_millis(5))).expect("not zero"));
        while !waiting.is_empty() {
            waiting.retain(|client| !client.peek(&mut [0]).is_ok_and(|count| count == 1));
            assert!(Instant::now() < until, "stopped: {is_stopped}: {} wait", waiting.len());
        }
        if is_stopped {
            of.iter().for_each(|process| signal(process.pid, Signal::CONT));
            assert!(echoes(&mut stays, b"again"), "it lives");
            drop(stays);
            // It is given permits again.
            (0..40).for_each(|_| drop(many(at, 1)));
            assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
        }
    }
}

/// Returns the process that has a connection.
fn pid_of(client: &mut TcpStream) -> u32 {
    client.write_all(b"pid").expect("written");
    let answer = crate::common::read(client, 4).expect("an answer");
    u32::from_le_bytes(answer.try_into().expect("four bytes"))
}

/// Stops a process, which takes until its threads have seen it.
fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    let is_stopped = |task: &std::path::Path| std::fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") T "));
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").filter_map(Result::ok);
    while !tasks().all(|task| is_stopped(&task.path())) {
        std::thread::yield_now();
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it lives");
}

fn a_shutdown_keeps_its_time() {
    shutdown_keeps_its_time(Drain::within(Duration::from_secs(3)), false);
}

fn a_shutdown_keeps_its_time_where_a_queue_is_full() {
    shutdown_keeps_its_time(Drain::within(Duration::from_secs(3)), true);
}

fn a_short_shutdown_at_a_rate_keeps_its_time() {
    shutdown_keeps_its_time(Drain::within(Duration::from_millis(900)).rate(10_000.0), false);
}

/// Shuts a pool down of which one process is stopped; where `is_full`, no request to it finds room.
fn shutdown_keeps_its_time(how: Drain, is_full: bool) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let config = Config::accept(Echo).processes(2);
    let (pool, at) = start(config.observer(move |event: &Event| told.lock().expect("no panic").push(format!("{event:?}"))));
    let clients = many(at, 20);
    let stopped = pool.status().processes[0];
    stop(stopped.pid);
    if is_full {
        assert!(pool.notify(&Selector::Tag("none".to_owned()), vec![0; 1 << 20]).is_err(), "it takes no more");
    }
    let began = Instant::now();
    let drained = pool.shutdown(how);
    assert!(began.elapsed() < how.deadline + Duration::from_millis(500), "{:?}", began.elapsed());
    let took = began.elapsed();
    assert_eq!((drained.asked, drained.cut), (20, stopped.connections), "the others ended in order: {drained:?} in {took:?}");
    assert_eq!(pool.shutdown(how), drained, "it is over, and so it ended");
    let events = events.lock().expect("no panic").join("\n");
    let counts = ["ReadinessChanged(Draining)", "ListenerRemoved"].map(|event| events.matches(event).count());
    assert_eq!(counts, [1, 1], "{events}");
    drop(clients);
}

fn a_drain_counts_what_a_stopped_process_has() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    let clients = many(at, 20);
    let stopped = pool.status().processes[0];
    stop(stopped.pid);
    let some = pool.drain(&Selector::All, Drain::within(Duration::from_secs(1)).max_connections(1));
    assert!(some.asked <= 1 && some.cut == 0 && some.silent == 1, "none of those that do not answer is meant for sure: {some:?}");
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE / 10));
    assert_eq!(
        (drained.asked, drained.cut),
        (20 - some.ended, stopped.connections),
        "what does not answer counts as cut: {drained:?}"
    );
    drop(clients);
}

/// Returns a pool of the recipe `fragile`, one of whose two processes was just killed, and what it told.
fn fragile(how: &str, restarts: Restarts) -> (Pool, SocketAddr, Arc<Mutex<Vec<String>>>) {
    std::fs::write(fate(), b"").expect("a file");
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let recipe = Recipe { name: "fragile".to_owned(), options: fate().into_os_string().into_vec() };
    let config = Config::accept(Behaviour::from(Echo).with_recipe(recipe)).processes(2).restarts(restarts);
    let (pool, at) = start(config.observer(move |event: &Event| told.lock().expect("no panic").push(format!("{event:?}"))));
    std::fs::write(fate(), how).expect("a file");
    kill(pool.status().processes[0].pid);
    (pool, at, events)
}

fn a_process_that_cannot_be_started() {
    let (pool, _, events) = fragile("dies", Restarts { max: 3, within: 2 * PATIENCE, ..Restarts::default() });
    let Err(Error::Stopped { reason }) = pool.join() else { panic!("it gave up") };
    assert!(reason.contains("could not be started"), "{reason}");
    let events = events.lock().expect("no panic").join("\n");
    // A death, and three starts that failed, the last of which is one too many.
    assert_eq!((events.matches("ProcessNotStarted").count(), events.matches("GaveUp").count()), (3, 1), "{events}");
    std::fs::remove_file(fate()).expect("it is there");
}

fn a_helper_that_cannot_be_told_to_begin() {
    // No message is as long.
    let recipe = Recipe { name: "prefork".to_owned(), options: vec![0; 65 << 20] };
    let error = Pool::start(
        Config::accept(Behaviour::from(Echo).with_recipe(recipe)).model(Model::Prefork).processes(1).listen(any_port()),
    );
    let error = error.expect_err("it cannot be told").to_string();
    soon(PATIENCE, || children(std::process::id()).into_iter().filter(|pid| lives(*pid)).count() == 0);
    assert!(error.contains("long"), "{error}");
}

fn a_drain_of_so_many_beside_a_loop_that_hangs() {
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let mut clients = many(at, 20);
    let received = pool.status().counts.bytes_in;
    clients[0].write_all(b"hold").expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == received + 4));
    let drained = pool.drain(&Selector::All, Drain::within(Duration::from_secs(1)).max_connections(1));
    assert!(drained.asked <= 1 && drained.silent == 1, "{drained:?}");
}

fn a_process_that_takes_long_to_start() {
    let (pool, at, _) = fragile("hangs", Restarts::default());
    assert!(pool.wait(PATIENCE, |status| status.processes.len() == 1));
    for limit in 100..110 {
        let began = Instant::now();
        pool.update(|config| config.limit(limit)).expect("it can be changed");
        assert_eq!(pool.status().limit, limit);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        pool.wait(Duration::from_millis(100), |_| false);
    }
    drop(many(at, 10));
    std::fs::write(fate(), b"").expect("a file");
    assert!(pool.wait(PATIENCE, |status| status.processes.len() == 2), "{:#?}", pool.status());
    drop(many(at, 10));
    // A program that ends now leaves nothing behind: the one that took too long is not there any more.
    let stays: HashSet<u32> = pool.status().processes.iter().map(|process| process.pid).collect();
    let children = children(std::process::id()).into_iter().filter(|pid| lives(*pid));
    assert_eq!(children.collect::<HashSet<_>>(), stays);
    std::fs::remove_file(fate()).expect("it is there");
}

fn a_pool_that_ends_refuses_while_it_waits() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    let mut stays = many(at, 1).remove(0);
    stays.write_all(b"half").expect("written");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == 9), "{:#?}", pool.status());
    let ending = pool.clone();
    let ending = std::thread::spawn(move || ending.shutdown(Drain::within(PATIENCE)));
    // Clients that come in meanwhile are accepted and told to go; none is left in a queue from which nobody accepts.
    while let Ok(late) = TcpStream::connect(at) {
        drop(late);
    }
    drop(stays);
    assert_eq!(ending.join().expect("no panic").cut, 0);
}

/// Checks that clients that wait are served one after the other: each has to go before the next is let in.
fn who_waits_is_served_before_the_end() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    pool.suspend();
    let mut clients: Vec<TcpStream> = (0..12).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"hello").expect("it is in the queue"));
    listen(&pool, |listeners| listeners[0].limit = Some(1));
    // Port 0 stays what it is: an address of another kind takes its place.
    listen(&pool, |listeners| listeners[0] = Listening::new("unix:@sockdrawer-elsewhere"));
    std::thread::scope(|scope| {
        scope.spawn(|| pool.shutdown(Drain::within(PATIENCE)));
        for mut client in clients {
            scope.spawn(move || assert_eq!(crate::common::read_all(&mut client).expect("an orderly end"), b"hello"));
        }
    });
    assert_eq!(pool.status().counts.accepted, 12);
}

fn a_socket_that_all_processes_have_ends() {
    let (pool, at) = start(Config::accept(Echo).processes(2).limit(2));
    let name = format!("sockdrawer-prefork-{}", std::process::id());
    listen(&pool, |listeners| listeners.push(Listening::new(format!("unix:@{name}").as_str())));
    let mut clients = many(at, 2);
    let path = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let mut waits = UnixStream::connect_addr(&path).expect("the kernel queues it");
    waits.set_read_timeout(Some(PATIENCE)).expect("not zero");
    waits.write_all(b"hello").expect("it is in the queue");
    // Without room both processes keep the socket.
    listen(&pool, |listeners| listeners.truncate(1));
    assert_eq!(pool.status().retiring, 1);
    drop(clients.pop());
    let mut answer = [0; 5];
    waits.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"hello");
    // Room came for one of them. The other is to see that nothing is left.
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    assert_eq!(pool.status().connections, 2);
}

fn processes_listen_at_a_path_that_is_no_text() {
    let (pool, _) = start(Config::accept(Echo).processes(2));
    let mut name = format!("sockdrawer-prefork-{}-", std::process::id()).into_bytes();
    name.push(0xff);
    let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
    listen(&pool, |listeners| listeners.push(Listening::new(Address::Unix(path.clone()))));
    let mut client = UnixStream::connect(&path).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("not zero");
    client.write_all(b"hello").expect("it stands");
    let mut answer = [0; 5];
    client.read_exact(&mut answer).expect("an answer");
    let found = pool.connections(&Selector::Listener(Address::Unix(path.clone())));
    assert_eq!((&answer, found.len()), (b"hello", 1));
}

fn listen(pool: &Pool, change: impl Fn(&mut Vec<Listening>)) {
    let changed = pool.update(|config| config.listeners(&change));
    changed.expect("it can be changed");
}

fn has_answer(client: &TcpStream) -> bool {
    client.set_nonblocking(true).expect("a socket");
    let mut byte = [0];
    let answered = client.peek(&mut byte).is_ok_and(|count| count == 1);
    client.set_nonblocking(false).expect("a socket");
    answered
}
