//! Every system call of starting, accepting and changing fails with an errno of each class, once and again and again. Nothing is lost but
//! what was hit, and nothing is left behind.

use super::{Echo, LONG, Scene, echoes};
use crate::config::{Config, Model, Restarts};
use crate::operation::Drain;
use crate::pool::Pool;
use crate::sys::Errno;
use crate::sys::faulty::Faulty;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An errno of each class: what is used up, what is forbidden, what makes no sense here.
const ERRNOS: [Errno; 4] = [Errno::MFILE, Errno::NOMEM, Errno::PERM, Errno::INVAL];

/// Calls that a start and a change make.
const MAKING: [&str; 9] =
    ["socket", "bind", "share_port", "listen", "set_options", "epoll", "event", "watch_event", "local_address"];

/// Calls that are made for a connection, and with what they may fail. What is not here cannot fail, or is tried at all of the above.
const SERVING: [(&str, &[Errno]); 10] = [
    ("accept", &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]),
    ("accept", &[Errno::CONNABORTED, Errno::PROTO, Errno::PERM, Errno::NETDOWN, Errno::INTR, Errno::AGAIN]),
    ("accept", &[Errno::INVAL]),
    ("watch", &[Errno::NOMEM, Errno::NOSPC]),
    ("rewatch", &[Errno::NOMEM, Errno::NOENT]),
    ("unwatch", &[Errno::NOENT]),
    ("receive", &[Errno::CONNRESET, Errno::TIMEDOUT, Errno::NOMEM]),
    ("send", &[Errno::PIPE, Errno::CONNRESET, Errno::NOBUFS]),
    ("finish", &[Errno::NOTCONN]),
    ("peer_address", &[Errno::NOTCONN]),
];

/// Once, and until it is healed.
const TIMES: [bool; 2] = [false, true];

fn break_it(system: &Faulty, call: &'static str, errno: Errno, always: bool) {
    if always {
        system.fail_always(call, errno);
    } else {
        system.fail(call, errno, 1);
    }
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("/proc is mounted").count()
}

/// Returns the numbers of descriptors and threads of this process. Threads end a moment after they are done.
fn belongings() -> (usize, usize) {
    (entries("/proc/self/fd"), entries("/proc/self/task"))
}

#[track_caller]
fn assert_nothing_is_left(before: (usize, usize), what: &str) {
    let until = Instant::now() + LONG;
    while belongings() != before {
        assert!(Instant::now() < until, "{what}: {:?} descriptors and threads, before {before:?}", belongings());
        // waits because: a thread's end is told by nothing that a process could wait for.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The test of this name once more in a process of its own, where all descriptors and threads are its own; true in that process.
/// A shell stands between: a child of this process would have a table as long as this one's was at that moment, which another test may
/// have made long, and an exec does not shorten it.
fn alone(name: &str) -> bool {
    const ALONE: &str = "SOCKDRAWER_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let name = format!("pool::tests::refusals::{name}");
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", r#""$0" "$@"; exit $?"#]).arg(program);
    let ended = shell.args(["--exact", &name, "--test-threads=1"]).env(ALONE, "yes").output();
    let ended = ended.expect("this program can be started again");
    let told = String::from_utf8_lossy(&ended.stdout);
    let passed = ended.status.success() && told.contains("1 passed");
    assert!(passed, "{told}{}", String::from_utf8_lossy(&ended.stderr));
    false
}

#[test]
fn a_start_that_fails_anywhere_leaves_nothing_behind() {
    if !alone("a_start_that_fails_anywhere_leaves_nothing_behind") {
        return;
    }
    let before = belongings();
    for call in MAKING {
        for (errno, always) in ERRNOS.into_iter().flat_map(|errno| TIMES.map(|always| (errno, always))) {
            let what = format!("{call} {errno:?}, always: {always}");
            let system = Arc::new(Faulty::default());
            let mut config = Config::accept(Echo).listen("127.0.0.1:0").loops(2).workers(2);
            config.system = system.clone();
            break_it(&system, call, errno, always);
            let error = Pool::start(config).map(|_| ()).expect_err(&what).to_string();
            assert!(!error.contains('\n') && error.len() > 20, "{what}: {error}");
            assert!(system.left() == 0 && (!always || system.met() > 0), "{what}: it was called");
            assert_nothing_is_left(before, &what);
        }
    }
}

#[test]
fn a_pool_makes_room_for_its_descriptors_when_it_starts() {
    if !alone("a_pool_makes_room_for_its_descriptors_when_it_starts") {
        return;
    }
    crate::sys::raise_descriptor_limit().expect("the hard limit is allowed");
    let room = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("the kernel tells it");
        size.trim().parse::<usize>().expect("a number")
    };
    assert!(room() < 2000);
    let mut scene = Scene::with(|config| config.limit(2000));
    assert!(room() >= 2000, "{}", room());
    scene.pool.shutdown(Drain::within(LONG));
    scene = Scene::with(|config| config.model(Model::Threads).limit(1000));
    assert!(room() >= 3000, "three for each: {}", room());
    scene.pool.shutdown(Drain::within(LONG));
}

#[test]
fn a_change_that_fails_anywhere_leaves_the_old_state_serving() {
    if !alone("a_change_that_fails_anywhere_leaves_the_old_state_serving") {
        return;
    }
    let before = belongings();
    for call in MAKING {
        for (errno, always) in ERRNOS.into_iter().flat_map(|errno| TIMES.map(|always| (errno, always))) {
            let what = format!("{call} {errno:?}, always: {always}");
            let scene = Scene::with(|config| config.workers(1));
            let (mut held, mut other) = (scene.client(), scene.client());
            assert!((0..2).all(|_| echoes(&mut held) && echoes(&mut other)), "{what}");
            let config = scene.pool.config().listen("127.0.0.2:0");
            let mut wanted = config.loops(3).workers(3).limit(50).behaviour(Echo);
            wanted.settings.options.nodelay = !wanted.settings.options.nodelay;
            let whole = belongings();
            break_it(&scene.system, call, errno, always);
            scene.pool.reconfigure(wanted.clone()).map(|_| ()).expect_err(&what);
            scene.system.heal();
            let status = scene.pool.status();
            let parts = (status.generation, status.revision, status.loops.len(), status.workers, status.listeners.len());
            assert_eq!(parts, (1, 1, 1, 1, 1), "{what}");
            assert_ne!(status.limit, 50, "{what}");
            assert_nothing_is_left(whole, &what);
            assert!(echoes(&mut held) && echoes(&mut other) && echoes(&mut scene.client()), "{what}");
            // The configuration was not stale, and nothing stands in its way any more.
            let applied = scene.pool.reconfigure(wanted).expect(&what);
            assert_eq!((applied.generation, applied.revision), (2, 2), "{what}");
            assert!(echoes(&mut held) && echoes(&mut scene.client()), "{what}");
            end(scene, vec![held, other], &what);
            assert_nothing_is_left(before, &what);
        }
    }
}

#[test]
fn a_call_that_fails_while_serving_costs_at_most_its_own_connection() {
    if !alone("a_call_that_fails_while_serving_costs_at_most_its_own_connection") {
        return;
    }
    let before = belongings();
    for (call, errnos) in SERVING {
        for (errno, always) in errnos.iter().flat_map(|errno| TIMES.map(|always| (*errno, always))) {
            let what = format!("{call} {errno:?}, always: {always}");
            let scene = Scene::with(|config| {
                let never = Restarts { max: usize::MAX, within: Duration::from_secs(1), ..Restarts::default() };
                let mut config = config.restarts(never);
                config.stuck_after = Duration::from_millis(200);
                config
            });
            let mut held = scene.client();
            assert!((0..2).all(|_| echoes(&mut held)), "{what}");
            break_it(&scene.system, call, errno, always);
            let mut hit = scene.client();
            let asked = std::io::Write::write_all(&mut hit, b"ping").is_ok();
            // It is served, or waits, or ends; nothing of it is waited for but that the call was made, where it is made at all.
            let made = || if always { scene.system.met() > 0 } else { scene.system.left() == 0 };
            let happened = scene.pool.wait(Duration::from_millis(if asked { 200 } else { 0 }), |_| made());
            scene.system.heal();
            // Connections that were not hit are served, and so are later ones.
            assert!(echoes(&mut scene.client()), "{what}, made: {happened}");
            // A connection that waits for its turn, or that had been watched before: its input and output may be what was hit.
            let hits_all = matches!(call, "receive" | "send" | "rewatch");
            assert!(hits_all || echoes(&mut held), "{what}");
            assert_eq!((scene.pool.status().restarts, scene.pool.status().counts.panics), (0, 0), "{what}");
            end(scene, vec![held, hit], &what);
            assert_nothing_is_left(before, &what);
        }
    }
}

/// Ends all of it: every permit comes back.
#[track_caller]
fn end(scene: Scene, clients: Vec<std::net::TcpStream>, what: &str) {
    drop(clients);
    assert!(scene.pool.wait(LONG, |status| status.connections == 0), "{what}: {:#?}", scene.pool.status());
    let status = scene.pool.status();
    assert_eq!(status.counts.accepted, status.counts.closed, "{what}");
    assert_eq!(scene.pool.shutdown(Drain::within(LONG)).cut, 0, "{what}");
}
