//! A process that may open no more descriptors waits for some without spinning, and loses no client that waits. A pool leaves some to the others.

use crate::common::{Echo, PATIENCE, Player, connect, echoes, hear, play, raise_descriptors, role, say, start};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sockdrawer::{Config, observe::Event};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Time during which the server has no descriptors.
const STARVED: Duration = Duration::from_secs(5);

/// Runs the server in a process of its own: its limit is nobody else's.
fn serve() {
    let (pool, at) = start(Config::accept(Echo).loops(2).observer(|event: &Event| {
        if let Event::AcceptStarved { errno } = event {
            say(&format!("starved {errno}"));
        }
    }));
    say(&at.to_string());
    while hear().is_some() {
        let counts = pool.status().counts;
        say(&format!("{} {} {}", counts.accepted, counts.accept_starved, counts.turns));
    }
}

/// Connections accepted, failures for want of a descriptor, and turns of the loops, so far.
fn counts(server: &mut Player) -> [u64; 3] {
    server.tell("counts");
    // Events may come in between.
    let said = std::iter::repeat_with(|| server.hear()).find(|said| !said.starts_with("starved")).expect("endless");
    let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

/// Returns the CPU time that a process has used, from the ticks of 10 ms that proc(5) gives.
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // The name, in parentheses, may hold spaces; utime and stime are the 12th and 13th behind it.
    let (_, fields) = stat.rsplit_once(')').expect("proc(5)");
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("proc(5)")).sum();
    Duration::from_millis(ticks * 10)
}

fn set_descriptor_limit(process: u32, current: u64) {
    let pid = Pid::from_raw(process.cast_signed());
    let old = prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum: None });
    // None means no limit, which an unprivileged process may not ask for: then the maximum stays as it is.
    if old.is_err() {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum }).expect("our own child");
    }
}

#[test]
fn a_starved_server_rests_and_then_serves_all_who_waited() {
    if role().is_some() {
        return serve();
    }
    let mut server = play("starvation::a_starved_server_rests_and_then_serves_all_who_waited", "server");
    let at = server.hear().parse().expect("an address");
    let mut held: Vec<_> = (0..50).map(|_| connect(at)).collect();
    assert!(held.iter_mut().all(|stream| echoes(stream, b"held")));
    set_descriptor_limit(server.id(), 60);
    let mut waiting: Vec<_> = (0..50).map(|_| connect(at)).collect();
    for stream in &mut waiting {
        stream.write_all(b"wait").expect("the kernel accepted it");
    }
    assert_eq!(server.hear(), "starved 24", "EMFILE is told");
    let (before, [_, starved_before, turns_before]) = (cpu_time(server.id()), counts(&mut server));
    let first = &mut waiting[0];
    first.set_read_timeout(Some(STARVED)).expect("not zero");
    let error = first.read(&mut [0; 4]).expect_err("nobody can serve it");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    let used = cpu_time(server.id()) - before;
    let [_, starved, turns] = counts(&mut server);
    let (starved, turns) = (starved - starved_before, turns - turns_before);
    println!("{used:?} of CPU, {turns} turns and {starved} failures in {STARVED:?}");
    // Each of two loops tries ten times a second.
    assert!(turns < 400 && starved < 400, "{turns} turns, {starved} failures");
    assert!(used < STARVED / 50, "{used:?} of CPU for {turns} turns and {starved} failures");
    assert!(held.iter_mut().all(|stream| echoes(stream, b"held")), "who is in is served meanwhile");
    set_descriptor_limit(server.id(), 1000);
    let began = Instant::now();
    for stream in &mut waiting {
        let mut back = [0; 4];
        stream.read_exact(&mut back).expect("nobody is lost");
        assert_eq!(&back, b"wait");
    }
    let took = began.elapsed();
    println!("all served after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(counts(&mut server)[0], 100);
}

/// Descriptors that the server's pools leave to the rest of it.
const SPARE: usize = 10;

/// Runs two pools without limits in a process that may have 200 descriptors. Told to, it says how many are open.
fn serve_sparing() {
    raise_descriptors();
    set_descriptor_limit(std::process::id(), 200);
    let pools = [1, 2].map(|loops| start(Config::accept(Echo).loops(loops).spare(SPARE)));
    pools.iter().for_each(|(_, at)| say(&at.to_string()));
    while hear().is_some() {
        say(&std::fs::read_dir("/proc/self/fd").expect("a descriptor is left for it").count().to_string());
    }
}

#[test]
fn pools_without_limits_leave_descriptors_to_the_rest_of_the_program() {
    if role().is_some() {
        return serve_sparing();
    }
    let mut server = play("starvation::pools_without_limits_leave_descriptors_to_the_rest_of_the_program", "server");
    let [one, two] = [(); 2].map(|()| server.hear().parse().expect("an address"));
    let mut clients: Vec<_> = (0..150).flat_map(|_| [connect(one), connect(two)]).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"here").expect("the kernel accepted it"));
    let mut free = || {
        server.tell("how many");
        // The folder is open while they are counted.
        201 - server.hear().parse::<usize>().expect("a number")
    };
    let began = Instant::now();
    while free() > SPARE {
        assert!(began.elapsed() < PATIENCE, "the pools take no more");
    }
    // Each of three loops may have taken one before it saw that there are few, and one more for a descriptor by which they are counted. They look
    // again ten times a second.
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let left = free();
        assert!((SPARE - 6..=SPARE).contains(&left), "{left} descriptors are left");
    }
    // Each that ends lets another one in, of either pool.
    let began = Instant::now();
    clients.iter().for_each(|client| client.set_nonblocking(true).expect("a socket"));
    while !clients.is_empty() {
        let left = free();
        assert!(left >= SPARE - 6, "{left} descriptors are left while connections come and go");
        clients.retain_mut(|client| client.read_exact(&mut [0; 4]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        assert!(began.elapsed() < PATIENCE, "{} are not served", clients.len());
        std::thread::yield_now();
    }
}
