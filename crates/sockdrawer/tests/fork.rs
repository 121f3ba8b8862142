//! What is special to the model `fork`: each connection is a process, and leaves nothing behind; the rest is the suite's.

mod common;

use common::{PATIENCE, address, connect, echoes, overflow, read_all};
use sockdrawer::{
    Behaviour, Config, Connection, Context, Drain, Input, Model, Peer, Pool, Protocol, Recipe, Selector, Service, Step, Waited,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Sends back what it gets; `crash` and `overflow` end its process as foreign code might.
struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "echo".to_owned(), options: Vec::new() })
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

fn main() {
    sockdrawer::processes(&[("echo", |_| Ok(Behaviour::from(Echo))), ("answer", |_| Ok(answer()))]);
    common::run_tests(&[
        ("each_connection_is_a_process_and_none_is_left", each_connection_is_a_process),
        ("a_signal_ends_one_connection_and_is_counted", a_signal_ends_one_connection),
        ("a_stuck_child_is_listed_and_killed", a_stuck_child_is_listed_and_killed),
        ("a_program_is_a_behaviour", a_program_is_a_behaviour),
        ("a_program_that_stays_is_ended_at_the_deadline", a_program_that_stays),
        ("blocking_code_runs_in_a_process_of_its_own", blocking_code_runs_in_a_process_of_its_own),
        ("the_helper_is_small_and_alone", the_helper_is_small_and_alone),
        ("children_end_with_their_pool", children_end_with_their_pool),
    ]);
}

fn start(behaviour: impl Into<Behaviour>) -> (Pool, SocketAddr) {
    let config = Config::accept(behaviour).model(Model::Fork).listen("127.0.0.1:0".parse().expect("an address"));
    let pool = Pool::start(config).expect("the pool starts");
    let at = address(&pool);
    (pool, at)
}

fn helper(pool: &Pool) -> u32 {
    pool.status().processes[0].pid
}

/// Children of a process, and how many of them are zombies.
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
        assert!(!matches!(goes.read(&mut [0; 8]), Ok(1..)));
        let counted = |status: &sockdrawer::Status| status.signalled == [(6, ended)] && status.connections == 1;
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
    assert_eq!(pool.kill(&Selector::Id(list[0].id)), 1);
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
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");
}

/// Answers lines by the number of its process, until there are no more or the pool asks it to end.
fn answer() -> Behaviour {
    let handler = |connection: &mut Connection| {
        while connection.wait()? == Waited::Input {
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
