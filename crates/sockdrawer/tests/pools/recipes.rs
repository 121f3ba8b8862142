//! The examples of docs/guide/recipes.md, over real sockets.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/broker.rs"]
mod broker;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/clients.rs"]
mod clients;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/keepalive.rs"]
mod keepalive;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/operated.rs"]
mod operated;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/signals.rs"]
mod signals;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/stats.rs"]
mod stats;

#[path = "../../examples/telemetry.rs"]
mod telemetry;

use crate::common::{
    PATIENCE, address, address_of_its_own, connect, echoes, in_time, play, read, read_all, role, say, start, tcp,
};
use broker::Broker;
use clients::Clients;
use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::testing::Driver;
use sockdrawer::{Closed, Config, Drain, Pool, Selector, Upgrade};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn what_happens_is_traced_and_counters_are_exported() {
    telemetry::main().expect("it serves");
}

#[test]
fn sigterm_ends_a_server_in_order() {
    const NAME: &str = "recipes::sigterm_ends_a_server_in_order";
    if role().is_some() {
        signals::run("127.0.0.1:0", |pool| say(&address(pool).to_string())).expect("it serves");
        return say("ended");
    }
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = play(NAME, "server");
        let at: SocketAddr = server.hear().parse().expect("an address");
        let mut client = connect(at);
        assert!(echoes(&mut client, b"hello"));
        let pid = Pid::from_raw(i32::try_from(server.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it lives");
        assert!(read_all(&mut client).expect("an orderly end").is_empty());
        drop(client);
        assert_eq!(server.hear(), "ended");
        assert!(server.0.wait().expect("a child").success());
        assert!(TcpStream::connect(at).is_err());
    }
}

#[test]
fn a_second_pool_shows_the_numbers_of_the_first() {
    let pools = stats::start("127.0.0.1:0", "127.0.0.1:0").expect("it starts");
    let [clients, numbers] = [0, 1].map(|index| tcp(&pools[index].addresses()[0]));
    let mut both = [connect(clients), connect(clients)];
    both.iter_mut().for_each(|client| assert!(echoes(client, b"hello")));
    let mut asking = connect(numbers);
    asking.write_all(b"GET /metrics HTTP/1.1\r\nHost: stats\r\n\r\n").expect("open");
    let page = String::from_utf8(read_all(&mut asking).expect("an orderly end")).expect("text");
    let (head, page) = page.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with(&format!("Content-Length: {}", page.len())), "{head}");
    let connections = format!("connections{{address=\"{clients}\"}} 2\n");
    assert!(page.starts_with(&connections) && page.contains("\nlimit 1000\naccepted_total 2\nrejected_total 0\n"), "{page}");
    pools[0].kill(&Selector::All);
}

/// A client of the broker.
struct Subscriber(BufReader<TcpStream>);

impl Subscriber {
    fn connect(at: SocketAddr) -> Subscriber {
        Subscriber(BufReader::new(connect(at)))
    }

    fn to(at: SocketAddr, topic: &str) -> Subscriber {
        let mut subscriber = Subscriber::connect(at);
        assert_eq!(subscriber.ask(&format!("SUB {topic}")), "OK");
        subscriber
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the broker reads");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the broker speaks");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }
}

#[test]
fn a_topic_reaches_its_subscribers_and_no_other() {
    let (pool, at) = start(Config::accept(Broker::default()).loops(2));
    let mut news = [Subscriber::to(at, "news"), Subscriber::to(at, "news")];
    let mut other = Subscriber::to(at, "weather");
    let mut publisher = Subscriber::connect(at);
    (0..500).for_each(|number| publisher.say(&format!("PUB news number {number}")));
    publisher.say("PUB empty is heard by none");
    assert_eq!(publisher.ask("PING"), "PONG");
    for subscriber in &mut news {
        (0..500).for_each(|number| assert_eq!(subscriber.hear(), format!("MSG news number {number}")));
        assert_eq!(subscriber.ask("UNSUB news"), "OK");
    }
    publisher.say("PUB news is over");
    publisher.say("PUB weather it rains");
    assert_eq!(other.hear(), "MSG weather it rains");
    assert_eq!(news[0].ask("PING"), "PONG");
    assert!(publisher.ask("what").starts_with("ERR"));
    assert_eq!(pool.status().counts.notes_dropped, 0);
}

#[test]
fn an_operated_broker_has_limits_and_a_port_for_its_operator_and_ends_in_order() {
    let [pool, operators] = operated::start("127.0.0.1:0", "127.0.0.1:0").expect("it starts");
    let [at, admin] = [&pool, &operators].map(|pool| tcp(&pool.addresses()[0]));
    let mut subscriber = Subscriber::to(at, "news");
    let mut operator = Subscriber::connect(admin);
    assert_eq!(operator.ask("TOPICS"), "news 1");
    assert_eq!(operator.ask("STATS"), "1 connections, 0 rejected");
    assert_eq!(operator.ask("LIMIT 1"), "OK");
    assert_eq!(Subscriber::connect(at).hear(), "ERR full");
    assert!(operator.ask("LIMIT many").starts_with("ERR"));
    assert_eq!(operator.ask("LIMIT 100"), "OK");
    let more: Vec<_> = (0..49).map(|_| Subscriber::to(at, "weather")).collect();
    assert_eq!(Subscriber::connect(at).hear(), "ERR too many from your address");
    drop(operator);
    let ended = std::thread::spawn(move || pool.shutdown(Drain::within(PATIENCE)));
    assert_eq!(subscriber.hear(), "BYE");
    drop((subscriber, more));
    assert_eq!(ended.join().expect("no panic").cut, 0);
}

#[test]
fn a_client_of_an_operated_broker_that_gives_no_sign_of_life_ends() {
    let mut client = Driver::open(operated::Broker::default());
    client.receive(b"SUB news\n");
    assert_eq!(client.sent(), b"OK\n");
    client.advance(operated::SILENCE);
    assert_eq!(client.sent(), b"PING\n");
    client.receive(b"PONG\n");
    client.advance(operated::SILENCE);
    assert_eq!((client.sent(), client.closed()), (b"PING\n".to_vec(), None));
    client.advance(operated::SILENCE);
    assert_eq!(client.closed(), Some(Closed::Orderly));
}

#[test]
fn a_slow_subscriber_ends_and_the_others_lose_nothing() {
    in_time(|| {
        let (pool, at) = start(Config::accept(Broker::default()).loops(2));
        let slow = Subscriber::to(at, "news");
        let mut quick = Subscriber::to(at, "news");
        let mut publisher = Subscriber::connect(at);
        let text = "x".repeat(32 * 1024);
        let mut said = 0;
        while pool.status().counts.overflow == 0 {
            publisher.say(&format!("PUB news {said} {text}"));
            assert_eq!(quick.hear(), format!("MSG news {said} {text}"));
            said += 1;
            assert!(said < 4096, "128 MiB wait for a subscriber that does not read");
        }
        drop(slow);
        assert_eq!(publisher.ask("PING"), "PONG");
        assert!(pool.wait(PATIENCE, |status| status.connections == 2));
    });
}

#[test]
fn a_new_build_of_the_broker_has_the_subscriptions() {
    let place = std::env::temp_dir().join(format!("sockdrawer-recipes-{}", std::process::id()));
    // An earlier run with this pid may have left a file here.
    let _ = std::fs::remove_file(&place);
    let build = |address: &str| -> Pool {
        let upgrade = Upgrade::at(&place).replaces("any").stand_by(Duration::ZERO).begin().expect("it meets the one before it");
        let pool = upgrade.start("broker", Config::accept(Broker::default()).listen(address).loops(2)).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let mut pool = build("127.0.0.1:0");
    let at = address(&pool);
    let (mut subscriber, mut publisher) = (Subscriber::to(at, "news"), Subscriber::connect(at));
    for number in 0..3 {
        let next = build(&at.to_string());
        pool.join().expect("all of the broker moved");
        pool = next;
        publisher.say(&format!("PUB news {number}"));
        assert_eq!(subscriber.hear(), format!("MSG news {number}"));
    }
    assert_eq!(subscriber.ask("UNSUB news"), "OK");
    drop(pool);
    std::fs::remove_file(&place).expect("it was the place of the last");
}

/// Answers each line with `number: line`, and counts nothing else. Ends with its listener's thread, never.
fn answers(number: usize, listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a socket");
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    match line.as_str() {
                        "end" => return,
                        line => writeln!(writer, "{number}: {line}").expect("the client reads"),
                    }
                }
            });
        }
    });
}

#[test]
fn many_threads_ask_by_few_connections_and_each_gets_its_answer() {
    in_time(|| {
        let servers: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let addresses: Vec<String> = servers.iter().map(|server| server.local_addr().expect("bound").to_string()).collect();
        for (number, server) in servers.into_iter().enumerate() {
            answers(number, server);
        }
        let targets: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let (pool, clients) = Clients::start(&targets, 32).expect("it starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connected == 32));
        // The targets had their turns.
        let to = |address: &str| {
            let address: SocketAddr = address.parse().expect("an address");
            pool.connections(&Selector::All).iter().filter(|one| one.peer == Some(address)).count()
        };
        assert_eq!([to(targets[0]), to(targets[1])], [16, 16]);
        thread::scope(|scope| {
            for thread in 0..100 {
                let clients = &clients;
                scope.spawn(move || {
                    for turn in 0..20 {
                        let line = format!("{thread}.{turn}");
                        let answer = clients.ask(&line, PATIENCE).expect("the server is there");
                        assert_eq!(String::from_utf8_lossy(&answer).split_once(": ").expect("two parts").1, line);
                    }
                });
            }
        });
        // A connection that the server ends is told of, and another takes its place.
        assert_eq!(clients.ask("end", PATIENCE).expect_err("it ends").kind(), ErrorKind::ConnectionReset);
        assert!(pool.wait(PATIENCE, |status| status.counts.connected == 33 && status.connections == 32));
        clients.ask("hello", PATIENCE).expect("the server is there");
        assert_eq!(pool.status().counts.connect_failed, 0);
    });
}

#[test]
fn a_pool_of_clients_waits_for_a_server_that_is_away() {
    in_time(|| {
        let at = address_of_its_own();
        let (pool, clients) = Clients::start(&[&at.to_string()], 4).expect("it starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connect_failed > 8));
        let none = clients.ask("hello", Duration::from_millis(10)).expect_err("there is no connection");
        assert_eq!(none.kind(), ErrorKind::TimedOut);
        // It waits meanwhile, up to half a second after each failure.
        let (tells, answer) = mpsc::channel();
        thread::spawn(move || tells.send(clients.ask("hello", PATIENCE)));
        let since = Instant::now();
        answers(0, TcpListener::bind(at).expect("the port is free again"));
        assert_eq!(answer.recv_timeout(PATIENCE).expect("an answer").expect("the server is there"), b"0: hello");
        assert!(since.elapsed() < PATIENCE);
        assert!(pool.wait(PATIENCE, |status| status.connections == 4));
    });
}

#[test]
fn a_client_pool_reads_what_a_server_says_in_pieces() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (_pool, clients) = Clients::start(&[&server.local_addr().expect("bound").to_string()], 1).expect("it starts");
    let (mut stream, _) = server.accept().expect("a connection");
    let asking = thread::spawn(move || clients.ask("question", PATIENCE));
    assert_eq!(read(&mut stream, 10).as_deref(), Some(&b"question\r\n"[..]));
    for piece in ["an", "swer\r", "\n"] {
        stream.write_all(piece.as_bytes()).expect("open");
    }
    assert_eq!(asking.join().expect("no panic").expect("an answer"), b"answer");
}
