//! Failures among processes, in both models that have some: they are killed, stopped, out of descriptors, refuse, and hang.

use crate::common::{PATIENCE, Stops, address, children, connect, echoes, is_long, lives, many, raise_descriptors};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use sockdrawer::{
    Behaviour, Build, Config, Context, Drain, Error, Input, Keepalive, Model, Peer, Pool, Protocol, Recipe, Selector, Service,
    Step,
    observe::{Event, Readiness},
    restarting::Restarts,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Service that sends back what it gets; a connection that is asked to end stays until its peer goes.
struct Echo(&'static str, Vec<u8>);

impl Service for Echo {
    type Protocol = Stays;
    fn open(&self, _peer: &Peer) -> Stays {
        Stays
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: self.0.to_owned(), options: self.1.clone() })
    }
}

fn echo() -> Echo {
    Echo("echo", Vec::new())
}

struct Stays;

impl Protocol for Stays {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"hang" {
            loop {
                std::thread::park();
            }
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

/// Builds in the first processes that ask and in no other: each leaves a file in a folder.
fn build_few(folder: &[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>> {
    let folder = Path::new(std::str::from_utf8(folder)?);
    if std::fs::read_dir(folder)?.count() >= 2 {
        return Err("enough".into());
    }
    std::fs::write(folder.join(std::process::id().to_string()), "")?;
    Ok(echo().into())
}

/// Environment variable with which this program does not begin as it should.
const FORGETFUL: &str = "SOCKDRAWER_TEST_FORGETFUL";

pub(crate) const RECIPES: &[(&str, Build)] = &[("echo", |_| Ok(echo().into())), ("few", build_few)];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_helper_that_is_stopped_holds_nothing_up_for_ever", || a_helper_that_is_stopped(Model::Prefork)),
    ("a_forking_helper_that_is_stopped_holds_nothing_up_for_ever", || a_helper_that_is_stopped(Model::Fork)),
    ("what_was_started_of_a_change_that_failed_is_ended", what_was_started_of_a_change_that_failed),
    ("the_end_of_each_generation_is_told_once", the_end_of_each_generation_is_told_once),
    ("who_connects_while_processes_end_is_refused", who_connects_while_processes_end),
    ("a_process_without_descriptors_refuses_sockets_and_lives", a_process_without_descriptors),
    ("a_forking_helper_needs_few_descriptors", a_forking_helper_needs_few_descriptors),
    ("what_was_counted_adds_up_after_processes_were_killed", what_was_counted_adds_up),
    ("options_that_are_refused_are_set_nowhere", options_that_are_refused),
    ("nothing_but_signals_reaches_a_child", nothing_but_signals_reaches_a_child),
    ("permits_come_back_from_processes_killed_under_load", permits_come_back),
    ("permits_that_a_killed_process_lost_are_found", permits_that_a_killed_process_lost),
    ("nothing_is_left_of_a_pool_whose_program_is_killed", nothing_is_left),
    ("a_loop_that_hangs_hides_no_other", a_loop_that_hangs),
    ("suspending_and_resuming_at_once_ends_as_it_says", suspending_and_resuming_at_once),
    ("a_program_that_is_no_helper_is_killed", a_program_that_is_no_helper),
    ("helpers_and_children_have_what_is_their_own", helpers_and_children_have_what_is_their_own),
];

/// Parks this process for ever where it is a helper that was told not to begin as it should.
pub(crate) fn may_forget() {
    let is_helper = std::env::args().next().is_some_and(|name| name.starts_with("sockdrawer: "));
    while is_helper && std::env::var_os(FORGETFUL).is_some() {
        std::thread::park();
    }
}

/// This process is the program of [`be_killed`].
pub(crate) fn is_victim() -> bool {
    std::env::args().nth(1).is_some_and(|word| word == "--victim")
}

const BOTH: [Model; 2] = [Model::Prefork, Model::Fork];

fn start(model: Model, config: Config) -> (Pool, SocketAddr) {
    let config = config.model(model).loops(1).listen("127.0.0.1:0");
    let pool = Pool::start(config).expect("the pool starts");
    let at = address(&pool);
    (pool, at)
}

fn helpers(pool: &Pool) -> Vec<u32> {
    pool.status().processes.iter().map(|process| process.pid).collect()
}

fn send(pid: u32, signal: Signal) -> bool {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, signal).is_ok()
}

/// Waits for what other processes do, which nobody tells.
#[track_caller]
pub(crate) fn soon(within: Duration, holds: impl Fn() -> bool) {
    let until = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < until, "not within {within:?}");
        // waits because: nobody tells when the kernel is done with a process or a socket.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn with_descriptors<T>(most: u64, run: impl FnOnce() -> T) -> T {
    raise_descriptors();
    let before = getrlimit(Resource::Nofile);
    let mut fewer = getrlimit(Resource::Nofile);
    fewer.current = Some(most);
    setrlimit(Resource::Nofile, fewer).expect("fewer are always allowed");
    let result = run();
    setrlimit(Resource::Nofile, before).expect("the hard limit is as it was");
    result
}

fn a_helper_that_is_stopped(model: Model) {
    let (pool, at) = start(model, Config::accept(echo()).processes(2));
    let clients = many(at, 4);
    let victim = helpers(&pool)[0];
    assert!(send(victim, Signal::STOP));
    let began = Instant::now();
    // More than a socket's buffer takes.
    assert!(pool.notify(&Selector::All, vec![0; 1 << 20]).is_err(), "it did not get it");
    pool.status();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop(pool);
    soon(Duration::from_secs(5), || !Path::new(&format!("/proc/{victim}")).exists());
    drop(clients);
}

fn what_was_started_of_a_change_that_failed() {
    let folder = std::env::temp_dir().join(format!("sockdrawer-few-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let few = Echo("few", folder.to_str().expect("text").as_bytes().to_vec());
    let (pool, at) = start(Model::Prefork, Config::accept(few).processes(1));
    let before = helpers(&pool);
    // The second is built, the third is not.
    pool.reconfigure(pool.config().processes(4)).expect_err("it cannot be built");
    soon(PATIENCE, || children(std::process::id()) == before);
    assert_eq!(helpers(&pool), before);
    drop(many(at, 2));
    drop(pool);
    std::fs::remove_dir_all(&folder).expect("it was there");
}

fn the_end_of_each_generation_is_told_once() {
    const CHANGES: u32 = 40;
    for model in BOTH {
        let told: Arc<Mutex<BTreeMap<u32, usize>>> = Arc::default();
        let tells = told.clone();
        let observer = move |event: &Event| {
            if let Event::GenerationEnded(generation) = event {
                *tells.lock().expect("no panic").entry(*generation).or_default() += 1;
            }
        };
        let (pool, at) = start(model, Config::accept(echo()).processes(2).observer(observer));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert!(echoes(&mut connect(at), b"hello"));
                    }
                });
            }
            let _stops = Stops(&stop);
            for _ in 0..CHANGES {
                pool.reconfigure(pool.config().behaviour(echo())).expect("reconfigures");
            }
        });
        let expected: BTreeMap<u32, usize> = (1..=CHANGES).map(|generation| (generation, 1)).collect();
        let as_expected = pool.wait(PATIENCE, |_| *told.lock().expect("no panic") == expected);
        assert!(as_expected, "{model}: {:?}", told.lock().expect("no panic"));
    }
}

fn who_connects_while_processes_end() {
    for model in BOTH {
        let (pool, at) = start(model, Config::accept(echo()).processes(2));
        let mut stays = many(at, 2);
        let ending = pool.clone();
        let drained = std::thread::spawn(move || ending.shutdown(Drain::within(PATIENCE)));
        soon(Duration::from_secs(10), || TcpStream::connect(at).is_err());
        stays.iter_mut().for_each(|client| assert!(echoes(client, b"still here")));
        drop(stays);
        assert_eq!(drained.join().expect("no panic").cut, 0, "{model}");
    }
}

fn a_process_without_descriptors() {
    let (pool, at) = with_descriptors(128, || start(Model::Prefork, Config::accept(echo()).processes(1)));
    let helper = helpers(&pool);
    let mut clients = many(at, pool.status().limit);
    let more = (0..4).fold(pool.config(), |config, _| config.listen("127.0.0.1:0"));
    pool.reconfigure(more).expect("reconfigures");
    clients.iter_mut().for_each(|client| assert!(echoes(client, b"still here")));
    assert_eq!(helpers(&pool), helper, "it lives");
    clients.clear();
    for address in pool.addresses() {
        let sockdrawer::Address::Tcp(at) = address else { panic!("{address} is no TCP address") };
        // Each socket gets a connection, as far as chance has it.
        drop(many(at, 32));
    }
}

fn a_forking_helper_needs_few_descriptors() {
    let (pool, at) = with_descriptors(128, || start(Model::Fork, Config::accept(echo())));
    let clients = many(at, 200);
    assert_eq!(pool.connections(&Selector::All).len(), 200);
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
    let config = Config::accept(echo()).model(Model::Fork).listen("127.0.0.1:0");
    let refused = with_descriptors(12, || Pool::start(config.clone()).map(|_| ()));
    assert!(matches!(refused, Err(Error::LimitTooHigh { asked: 1, fits: 0, .. })), "{refused:?}");
    // It keeps the connection of another program.
    let cat = config.behaviour(Behaviour::exec("cat", [] as [&str; 0]));
    let refused = with_descriptors(128, || Pool::start(cat.limit(128)).map(|_| ()));
    assert!(matches!(refused, Err(Error::LimitTooHigh { asked: 128, .. })), "{refused:?}");
}

fn what_was_counted_adds_up() {
    for model in BOTH {
        let (pool, at) = start(model, Config::accept(echo()).processes(2));
        let clients = many(at, 20);
        assert_eq!(pool.status().counts.bytes_in, 100, "{model}");
        // The answer is there before it is counted.
        assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out == 100), "{model}");
        if model == Model::Fork {
            assert!(send(children(helpers(&pool)[0])[0], Signal::KILL));
        }
        assert!(send(helpers(&pool)[0], Signal::KILL));
        drop(clients);
        let adds_up = pool.wait(PATIENCE, |status| {
            assert!(status.counts.closed <= status.counts.accepted, "{model}: {status:#?}");
            status.counts.closed == 20 && status.connections == 0 && status.restarts == 1
        });
        assert!(adds_up, "{model}: {:#?}", pool.status());
        drop(many(at, 3));
        let counts = || pool.status().counts;
        assert!(pool.wait(PATIENCE, |status| status.counts.closed == 23), "{model}: {:#?}", pool.status());
        assert_eq!((counts().accepted, counts().bytes_in, counts().bytes_out), (23, 115, 115), "{model}");
    }
}

fn options_that_are_refused() {
    for model in BOTH {
        let (pool, at) = start(model, Config::accept(echo()).processes(2));
        let mut settings = pool.config().settings;
        settings.options.nodelay = !settings.options.nodelay;
        let year = Duration::from_secs(365 * 24 * 3600);
        settings.options.keepalive = Some(Keepalive { idle: year, interval: year, probes: 1 });
        pool.reconfigure(pool.config().settings(|to| *to = settings)).expect_err("the kernel does not take it");
        let clients = many(at, 20);
        // Into a connection's own process it cannot look.
        for connection in pool.connections(&Selector::All).into_iter().filter(|_| model == Model::Prefork) {
            let options = pool.options(connection.id).expect("it is there");
            assert_eq!((options.nodelay, options.keepalive), (pool.config().settings.options.nodelay, None), "{model}");
        }
        drop(clients);
    }
}

fn nothing_but_signals_reaches_a_child() {
    let (pool, at) = start(Model::Fork, Config::accept(echo()));
    let mut clients = many(at, 3);
    clients[0].write_all(b"hang").expect("written");
    let began = Instant::now();
    pool.reconfigure(pool.config().behaviour(echo())).expect("reconfigures");
    let late = many(at, 1);
    let adopted = pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed), (0, 3), "those of the service before");
    assert_eq!((pool.apply_options(&Selector::All), pool.tag(&Selector::All, "tag")), (0, 0));
    let listed = pool.connections(&Selector::All);
    assert!(listed.iter().all(|one| one.tag.is_none() && pool.options(one.id).is_none()));
    assert_eq!((listed.len(), pool.connections(&Selector::tag("tag")).len()), (4, 0));
    let refused = pool.notify(&Selector::All, *b"a note").expect_err("it reaches no process");
    assert!(refused.to_string().contains("the model fork cannot bring notes"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(2), "a stuck child is not waited for");
    assert!(echoes(&mut clients[1], b"still here"));
    drop(late);
}

fn permits_come_back() {
    const KILLS: usize = 20;
    let restarts = Restarts { max: 1000, within: Duration::from_secs(1), ..Restarts::default() };
    for model in BOTH {
        let mut config = Config::accept(echo()).processes(3).limit(20);
        config = config.restarts(restarts);
        let (pool, at) = start(model, config);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let Ok(mut client) = TcpStream::connect(at) else { continue };
                        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
                        // Its process may be killed.
                        let _ = client.write_all(b"x");
                        let _ = client.read(&mut [0]);
                    }
                });
            }
            let _stops = Stops(&stop);
            for turn in 0..KILLS {
                let pids = helpers(&pool);
                send(pids[turn % pids.len()], Signal::KILL);
                let replaced = pool.wait(PATIENCE, |status| {
                    assert!(status.connections <= 20 && status.counts.closed <= status.counts.accepted, "{model}: {status:#?}");
                    status.restarts > turn && status.processes.len() == pids.len()
                });
                assert!(replaced, "{model}: {:#?}", pool.status());
            }
        });
        let none = pool.wait(PATIENCE, |status| status.connections == 0 && status.counts.closed == status.counts.accepted);
        assert!(none, "{model}: {:#?}", pool.status());
        drop(many(at, 20));
    }
}

/// Checks permits that are lost: a process that is killed between two instructions leaves one permit more in the first of
/// the shared words than is held.
fn permits_that_a_killed_process_lost() {
    let (pool, at) = start(Model::Prefork, Config::accept(echo()).processes(2).limit(10));
    let clients = many(at, 4);
    let shared = std::fs::read_dir("/proc/self/fd")
        .expect("/proc is mounted")
        .flatten()
        .find(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:sockdrawer")));
    let words = std::fs::OpenOptions::new().read(true).write(true).open(shared.expect("there are some").path());
    let words = words.expect("it can be opened again");
    let mut taken = [0; 8];
    words.read_exact_at(&mut taken, 0).expect("it is there");
    assert_eq!(u64::from_ne_bytes(taken), 4);
    words.write_all_at(&6_u64.to_ne_bytes(), 0).expect("written");
    let victim = pool.status().processes[0];
    assert!(send(victim.pid, Signal::KILL));
    let left = 4 - victim.connections;
    assert!(pool.wait(PATIENCE, |status| status.connections == left), "{:#?}", pool.status());
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
    drop(many(at, 10));
}

/// Runs a program with a pool of its own; it lives until its standard input ends, or it is killed.
pub(crate) fn be_killed() {
    let asked = std::env::args().nth(2).expect("a model");
    let model = BOTH.into_iter().find(|model| model.to_string() == asked).expect("one of both");
    let config = Config::accept(echo()).model(model).processes(2).listen("127.0.0.1:0");
    let pool = Pool::start(config);
    match &pool {
        Ok(pool) => println!("{}", address(pool)),
        Err(error) => println!("{error}"),
    }
    let _ = std::io::stdin().read(&mut [0]);
}

fn nothing_is_left() {
    for model in BOTH {
        let program = std::env::current_exe().expect("/proc is mounted");
        let mut command = Command::new(program);
        command.args(["--victim", &model.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut victim = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(victim.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it says where");
        let clients = many(line.trim().parse().expect("an address"), 5);
        let mut all = children(victim.id());
        all.extend(all.clone().into_iter().flat_map(children));
        assert_eq!(all.len(), if model == Model::Fork { 6 } else { 2 });
        victim.kill().expect("it lives");
        victim.wait().expect("it was killed");
        soon(Duration::from_secs(1), || all.iter().all(|pid| !lives(*pid)));
        drop(clients);
    }
}

fn a_loop_that_hangs() {
    let config = Config::accept(echo()).model(Model::Prefork).processes(1).loops(2);
    let pool = Pool::start(config.listen("127.0.0.1:0")).expect("the pool starts");
    let mut clients = many(address(&pool), 40);
    clients[0].write_all(b"hang").expect("written");
    // The kernel chose the loop of each: some are of the other.
    let (here, there) = (pool.status().loops[0].connections, pool.status().loops[1].connections);
    assert!(here > 0 && there > 0 && here + there == 40);
    let listed = pool.connections(&Selector::All).len();
    assert!(listed == here || listed == there, "{listed} of {here} and {there}");
}

fn suspending_and_resuming_at_once() {
    for model in BOTH {
        let (pool, at) = start(model, Config::accept(echo()).processes(2));
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| pool.suspend());
                scope.spawn(|| pool.resume());
            });
            if pool.status().readiness == Readiness::Serving {
                drop(many(at, 2));
            }
            pool.resume();
        }
    }
}

fn a_program_that_is_no_helper() {
    let program = std::env::current_exe().expect("/proc is mounted");
    let mut command = Command::new(program);
    command.args(["--victim", &Model::Fork.to_string()]).env(FORGETFUL, "yes");
    let mut victim = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(victim.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it says why not");
    assert!(line.contains("sockdrawer::processes"), "{line}");
    soon(PATIENCE, || children(victim.id()).is_empty());
    drop(victim.stdin.take());
    assert!(victim.wait().expect("it ends").success());
}

/// Returns the names of all that a process has open.
fn open(pid: u32) -> Vec<String> {
    let list = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    list.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).map(|path| path.display().to_string()).collect()
}

/// Returns the memory of its own that a process has, in KiB.
fn memory(pid: u32) -> usize {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it lives");
    let dirty = smaps.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("the kernel says so");
    dirty.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn helpers_and_children_have_what_is_their_own() {
    for model in BOTH {
        let (pool, at) = start(model, Config::accept(echo()).processes(1));
        let helper = helpers(&pool)[0];
        let serve = |times: usize| {
            for _ in 0..times {
                let clients = many(at, 40);
                drop(clients);
                // Some have ended, some are about to.
                let _ = pool.notify(&Selector::All, *b"a note");
                pool.apply_options(&Selector::All);
            }
            assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        };
        serve(3);
        let before = (open(helper).len(), memory(helper));
        serve(if is_long() { 500 } else { 10 });
        soon(PATIENCE, || open(helper).len() == before.0);
        assert!(memory(helper) < before.1 + 256, "{model}: {} KiB, then {}", before.1, memory(helper));
        if model == Model::Fork {
            let clients = many(at, 10);
            for child in children(helper) {
                // The connection, and no other socket.
                assert_eq!(open(child).iter().filter(|path| path.starts_with("socket:")).count(), 1);
            }
            drop(clients);
        }
    }
}
