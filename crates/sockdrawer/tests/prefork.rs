//! What is special to the model `prefork`: processes come, go and die; the rest is the suite's.

mod common;

use common::{PATIENCE, address, connect, echoes, kill, many, overflow};
use sockdrawer::{
    Behaviour, Config, Context, Drain, Endpoint, Input, Listening, Model, Peer, Pool, Protocol, Recipe, Selector, Service,
    Status, Step,
};
use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

/// Sends back what it gets, but what begins with `half`, which it leaves, and `abort` and `overflow`, which end its process.
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
        match input.bytes() {
            b"abort" => std::process::abort(),
            b"overflow" => _ = std::hint::black_box(overflow(0)),
            [b'h', b'a', b'l', b'f', ..] => return Step::Continue,
            _ => {}
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

fn main() {
    sockdrawer::processes(&[("echo", |_| Ok(Behaviour::from(Echo)))]);
    common::run_tests(&[
        ("connections_are_shared_among_the_processes", connections_are_shared_among_the_processes),
        ("a_process_that_is_killed_is_replaced_and_costs_its_connections_only", a_process_that_is_killed_is_replaced),
        ("processes_come_and_go_and_connections_stay", processes_come_and_go),
        ("a_limit_is_exact_among_processes", a_limit_is_exact_among_processes),
        ("a_pool_that_ends_refuses_while_it_waits", a_pool_that_ends_refuses_while_it_waits),
        ("who_waits_at_an_address_that_is_gone_is_served_before_the_end", who_waits_is_served_before_the_end),
        ("a_crash_of_foreign_code_costs_the_connections_of_its_process", a_crash_costs_the_connections_of_its_process),
    ]);
}

fn start(config: Config) -> (Pool, SocketAddr) {
    let config = config.model(Model::Prefork).listen("127.0.0.1:0".parse().expect("an address"));
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

fn a_pool_that_ends_refuses_while_it_waits() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    let mut stays = many(at, 1).remove(0);
    stays.write_all(b"half").expect("written");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == 9), "{:#?}", pool.status());
    let ending = pool.clone();
    let ending = std::thread::spawn(move || ending.shutdown(Drain::within(PATIENCE)));
    // Those that come in meanwhile are accepted and told to go; none is left in a queue of which nobody accepts.
    while let Ok(late) = TcpStream::connect(at) {
        drop(late);
    }
    drop(stays);
    assert_eq!(ending.join().expect("no panic").cut, 0);
}

/// One after the other: each has to go before the next is let in.
fn who_waits_is_served_before_the_end() {
    let (pool, at) = start(Config::accept(Echo).processes(2));
    pool.suspend();
    let mut clients: Vec<TcpStream> = (0..12).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"hello").expect("it is in the queue"));
    listen(&pool, |listeners| listeners[0].limit = Some(1));
    // Port 0 stays what it is: an address of another kind takes its place.
    listen(&pool, |listeners| listeners[0] = Listening::new("unix:@sockdrawer-elsewhere".parse().expect("an address")));
    std::thread::scope(|scope| {
        scope.spawn(|| pool.shutdown(Drain::within(PATIENCE)));
        for mut client in clients {
            scope.spawn(move || assert_eq!(common::read_all(&mut client).expect("an orderly end"), b"hello"));
        }
    });
    assert_eq!(pool.status().counts.accepted, 12);
}

fn listen(pool: &Pool, change: impl Fn(&mut Vec<Listening>)) {
    let changed = pool.update(|mut config| {
        let Endpoint::Accept { listeners, .. } = &mut config.endpoint else { unreachable!("it accepts") };
        change(listeners);
        config
    });
    changed.expect("it can be changed");
}

fn has_answer(client: &TcpStream) -> bool {
    client.set_nonblocking(true).expect("a socket");
    let mut byte = [0];
    let answered = client.peek(&mut byte).is_ok_and(|count| count == 1);
    client.set_nonblocking(false).expect("a socket");
    answered
}
