//! `serve proxy`: clients are joined with targets, and notice neither reloads, nor upgrades, nor the death of a target that is not theirs.

use crate::faults;
use crate::operated::Operated;
use crate::program::Program;
use crate::upgrade::tls::came;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const CLIENTS: usize = 20;

/// Starts a server that sends every byte back, and returns it with where it is.
fn echo() -> (Program, String) {
    let mut server = Program::of("serve echo -l 127.0.0.1:0");
    let at = server.line().strip_prefix("listening on ").expect("where").to_owned();
    (server, at)
}

fn file(settings: &str, targets: &[&str]) -> String {
    let targets = targets.iter().map(|target| format!("\"{target}\"")).collect::<Vec<_>>().join(", ");
    format!("upgrade = \"upgrade\"\n[pool.proxy]\nprotocol = \"proxy\"\nlisten = \"127.0.0.1:0\"\nto = [{targets}]\n{settings}\n")
}

fn connect(at: &str) -> TcpStream {
    let client = TcpStream::connect(at).expect("it accepts");
    client.set_read_timeout(Some(PATIENCE)).expect("not zero");
    client
}

/// Sends bytes of its own, and reads them back. False: the connection has ended.
fn echoes(client: &mut TcpStream, number: usize) -> bool {
    let sent: Vec<u8> = (0..10_000).map(|byte: usize| byte.wrapping_mul(31).wrapping_add(number * 7) as u8).collect();
    let mut back = vec![0; sent.len()];
    let is_back = client.write_all(&sent).and_then(|()| client.read_exact(&mut back)).is_ok();
    assert!(!is_back || back == sent, "other bytes came back");
    is_back
}

/// Returns how many clients have this target.
fn clients_of(server: &Operated, target: &str) -> usize {
    server.says("connections").lines().filter(|line| line.ends_with(target)).count()
}

#[test]
fn pairs_go_on_through_reloads_and_upgrades() {
    for model in ["loops", "prefork"] {
        let ((one, one_at), (_two, two_at)) = (echo(), echo());
        let model = format!("model = \"{model}\"");
        let server = Operated::start("proxy", &file(&model, &[&one_at, &two_at]));
        let at = server.addresses[0].clone();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(&at)).collect();
        assert!(clients.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "they are joined");
        for round in 0..6 {
            let targets = [&*one_at, &format!("{two_at},weight=3")];
            match round % 3 {
                0 => assert_eq!(came(&server.says("upgrade --json")).0, 2 * clients.len() as u64),
                1 => server.write(&file(&format!("{model}\nbalance = \"rotate\""), &targets[1..])),
                _ => server.write(&file(&model, &targets)),
            }
            if round % 3 > 0 {
                server.says("reload");
            }
            assert!(clients.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "round {round}");
            if round == 2 {
                let mut late = connect(&at);
                assert!(echoes(&mut late, round));
                clients.push(late);
            }
        }
        let of_one = clients_of(&server, &one_at);
        assert!((8..=12).contains(&of_one) && of_one + clients_of(&server, &two_at) == CLIENTS + 1, "{of_one}");
        // The clients of a target end with it, and no others.
        one.signal(rustix::process::Signal::KILL);
        let mut left = clients.iter_mut().enumerate().map(|(number, client)| echoes(client, number)).collect::<Vec<_>>();
        assert_eq!(left.iter().filter(|stands| !**stands).count(), of_one);
        left.extend((0..4).map(|number| echoes(&mut connect(&at), number)));
        assert!(left[CLIENTS + 1..].iter().all(|served| *served), "new clients get the other target");
    }
}

#[test]
fn each_target_has_metrics_that_go_on_over_an_upgrade() {
    let (_one, one_at) = echo();
    let refused = "unix:/none/of/this/name";
    let server = Operated::start("proxy-metrics", &file("tries = 2", &[&one_at, refused]));
    let at = server.addresses[0].clone();
    let mut clients: Vec<_> = (0..4).map(|_| connect(&at)).collect();
    assert!(clients.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "they are joined");
    let has = |page: &str, line: &str| assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    let all_is_told = |connects: usize, clients: usize| {
        let page = server.metrics();
        has(&page, &format!("proxy_target_clients{{pool=\"proxy\",target=\"{one_at}\"}} {clients}"));
        has(&page, &format!("proxy_target_connects_total{{pool=\"proxy\",target=\"{one_at}\",result=\"ok\"}} {connects}"));
        has(&page, &format!("proxy_target_connect_duration_seconds_count{{pool=\"proxy\",target=\"{one_at}\"}} {connects}"));
        let failed = format!(
            "proxy_target_connects_total{{pool=\"proxy\",target=\"{refused}\",result=\"No such file or directory (os error 2)\"}} "
        );
        assert!(page.contains(&failed), "{failed}\n{page}");
        page
    };
    has(&all_is_told(4, 4), &format!("proxy_target_left_out{{pool=\"proxy\",target=\"{refused}\"}} 1"));
    let shows = || {
        let table = server.says("show targets");
        let cells =
            |line: &str| line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
        let columns = ["POOL", "TARGET", "STATE", "WEIGHT", "CLIENTS", "LIMIT", "WAITING", "CONNECTS", "FAILED", "LAST FAILURE"];
        assert_eq!(rows[0], columns);
        assert_eq!(rows[1], ["proxy", &*one_at, "in use", "1", "4", "0", "4", "0"]);
        let fails = (&*rows[2][1], rows[2][2].starts_with("left out for ") || rows[2][2] == "tried next", &*rows[2][8]);
        assert_eq!(fails, (refused, true, "No such file or directory (os error 2)"), "{table}");
        table
    };
    let table = shows();
    assert!(server.says("status").contains(&table), "it is below the others");
    let unknown = server.ctl("show leases");
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(2), "error: no table leases: there are targets\n"));
    assert_eq!(server.says("show"), "targets\n");
    assert_eq!(came(&server.says("upgrade --json")).0, 8);
    shows();
    all_is_told(4, 4);
    let mut late = connect(&at);
    assert!(echoes(&mut late, 4));
    all_is_told(5, 5);
}

/// Waits until one of these has something to read, and returns its place.
fn readable(clients: &[TcpStream]) -> usize {
    let mut all: Vec<_> = clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
    let within = rustix::time::Timespec::try_from(PATIENCE).expect("it is short");
    assert_ne!(poll(&mut all, Some(&within)).expect("they are open"), 0, "one is served");
    all.iter().position(|one| !one.revents().is_empty()).expect("one is ready")
}

/// Waits until a metric of a target has this value.
fn eventually(server: &Operated, metric: &str, target: &str, value: usize) {
    let (line, began) = (format!("{metric}{{pool=\"proxy\",target=\"{target}\"}} {value}"), Instant::now());
    while !server.metrics().lines().any(|one| one == line) {
        assert!(began.elapsed() < PATIENCE, "{line}: {}", server.metrics());
        // waits because: the page of metrics tells nothing by itself.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn clients_wait_for_a_place_at_a_full_target() {
    let ((_one, one_at), (_two, two_at)) = (echo(), echo());
    let limited = [format!("{one_at},limit=2"), format!("{two_at},limit=1")];
    let settings = |time: &str| file(&format!("loops = 1\nqueue-timeout = \"{time}\""), &[&limited[0], &limited[1]]);
    let mut server = Operated::told("proxy-full", &settings("20s"), |_| {});
    let at = server.addresses[0].clone();
    let mut served: Vec<_> = (0..3).map(|_| connect(&at)).collect();
    assert!(served.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "they are joined");
    let mut waiting: Vec<_> = (0..4).map(|_| connect(&at)).collect();
    eventually(&server, "proxy_target_waiting", &two_at, 4);
    // Their bytes wait, too. The kernel may have put them into the accept queue in another order than they came in.
    waiting.iter_mut().for_each(|client| client.write_all(b"w").expect("it stands"));
    for _ in 0..3 {
        drop(served.remove(0));
        let mut next = waiting.swap_remove(readable(&waiting));
        assert_eq!(next.read(&mut [0; 2]).expect("it is joined"), 1);
        assert!(echoes(&mut next, 7), "it is joined");
        served.push(next);
        eventually(&server, "proxy_target_waiting", &two_at, waiting.len());
    }
    eventually(&server, "proxy_target_clients", &one_at, 2);
    eventually(&server, "proxy_target_clients", &two_at, 1);
    // A client that resets its connection gives its turn up.
    waiting.iter().for_each(|client| set_socket_linger(client, Some(Duration::ZERO)).expect("it stands"));
    drop(waiting);
    eventually(&server, "proxy_target_waiting", &one_at, 0);
    server.write(&settings("100ms"));
    server.says("reload");
    let mut late = connect(&at);
    assert_eq!(late.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let told = server.event(&["PairFailed"])["text"].as_str().expect("a text").to_owned();
    assert!(told.ends_with(": each target has as many clients as its limit, and no place came free in time"), "{told}");
    assert!(server.metrics().contains("sockdrawer_reports_total{pool=\"proxy\",kind=\"PairFailed\"} 1\n"));
    eventually(&server, "proxy_target_queue_timeouts_total", &two_at, 1);
    eventually(&server, "proxy_target_limit", &one_at, 2);
    assert!(served.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "they stay");
    // A pair ends when its sides do: a script learns that these had to be cut off.
    let drained = server.ctl(&format!("drain --tag {two_at} --within 50ms"));
    assert_eq!((drained.code, drained.stdout.as_str()), (Some(1), "1 asked, 0 ended, 1 cut\n"), "{drained:?}");
}

/// Starts a target that sends every byte back. Returns its address, and the most clients that it has had at once.
fn counted() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (at, open, most) = (listener.local_addr().expect("it is bound"), AtomicUsize::new(0), Arc::<AtomicUsize>::default());
    let (open, counts) = (Arc::new(open), most.clone());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            client.set_nodelay(true).expect("it stands");
            counts.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
            let open = open.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    if client.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                // Counted before the proxy can know that it has ended.
                open.fetch_sub(1, SeqCst);
            });
        }
    });
    (at.to_string(), most)
}

#[test]
fn a_target_never_has_more_clients_than_its_limit_also_in_upgrades() {
    let (to, most) = counted();
    let server = Operated::start("proxy-limit", &file("queue-timeout = \"20s\"", &[&format!("{to},limit=5")]));
    let (at, is_over, served) = (server.addresses[0].clone(), AtomicBool::new(false), AtomicUsize::new(0));
    // Some keep their places over an upgrade, and the others wait meanwhile.
    let comes = |number: usize| {
        while !is_over.load(SeqCst) {
            let mut client = connect(&at);
            let rounds = if number.is_multiple_of(3) { 50 } else { 5 };
            assert!((0..rounds).all(|round| echoes(&mut client, number + round)), "{number} has a place in time, and keeps it");
            served.fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|number| scope.spawn(move || comes(number))).collect();
        let mut moved = 0;
        for _ in 0..6 {
            eventually(&server, "proxy_target_clients", &to, 5);
            moved += came(&server.says("upgrade --json")).0;
        }
        is_over.store(true, SeqCst);
        assert!(moved > 0 && all.into_iter().all(|client| client.join().is_ok()), "{moved} moved");
    });
    assert_eq!(most.load(SeqCst), 5, "{} were served", served.load(SeqCst));
    // All places are free.
    let mut last: Vec<_> = (0..5).map(|_| connect(&at)).collect();
    assert!(last.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "five have places");
    assert_eq!(most.load(SeqCst), 5);
}

#[test]
fn clients_that_wait_have_what_a_reload_brings() {
    let ((_one, one_at), (_two, two_at)) = (echo(), echo());
    let settings = |targets: &[&str]| file("loops = 1\nqueue-timeout = \"20s\"", targets);
    let server = Operated::start("proxy-raised", &settings(&[&format!("{one_at},limit=1")]));
    let mut first = connect(&server.addresses[0]);
    assert!(echoes(&mut first, 0), "it is joined");
    let mut waiting: Vec<_> = (0..5).map(|_| connect(&server.addresses[0])).collect();
    eventually(&server, "proxy_target_waiting", &one_at, 5);
    waiting.iter_mut().for_each(|client| client.write_all(b"w").expect("it stands"));
    let is_served = |waiting: &mut Vec<TcpStream>| {
        let mut next = waiting.swap_remove(readable(waiting));
        assert!(next.read(&mut [0; 2]).expect("it is joined") == 1 && echoes(&mut next, 7));
        next
    };
    // No other client comes, and none ends.
    server.write(&settings(&[&format!("{one_at},limit=3")]));
    server.says("reload");
    let mut served = vec![first, is_served(&mut waiting), is_served(&mut waiting)];
    eventually(&server, "proxy_target_waiting", &one_at, 3);
    eventually(&server, "proxy_target_clients", &one_at, 3);
    server.write(&settings(&[&format!("{one_at},limit=3"), &format!("{two_at},limit=2")]));
    server.says("reload");
    served.extend([is_served(&mut waiting), is_served(&mut waiting)]);
    server.write(&settings(&[&one_at, &two_at]));
    server.says("reload");
    served.push(is_served(&mut waiting));
    assert!(served.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "all stay");
}

#[test]
fn the_end_of_each_pair_is_told_on_request_also_in_the_next_build() {
    let (_echo, to) = echo();
    let mut server = Operated::told("proxy-log", &file("log-pairs = true", &[&to]), |_| {});
    let at = server.addresses[0].clone();
    let mut clients = [(); 2].map(|()| connect(&at));
    assert!(clients.iter_mut().enumerate().all(|(number, client)| echoes(client, number)), "they are joined");
    assert_eq!(came(&server.says("upgrade --json")), (4, 0));
    let is_told = |server: &mut Operated, client: SocketAddr, how: &str| {
        let told = server.event(&["PairEnded"]);
        let text = told["text"].as_str().expect("a text");
        let begins = format!(": {client} with {to}: ended by {how}, after ");
        assert!(text.contains(&begins) && text.ends_with(" ms, 10000 bytes there, 10000 back"), "{begins} {text}");
        let data = ["client", "target", "received", "sent"].map(|key| told["data"][key].clone());
        let expected = [Value::from(client.to_string()), to.clone().into(), 10_000.into(), 10_000.into()];
        assert_eq!(data, expected, "{told}");
    };
    let [ends, resets] = clients;
    let own = ends.local_addr().expect("it stands");
    drop(ends);
    is_told(&mut server, own, "the client, in order");
    let own = resets.local_addr().expect("it stands");
    set_socket_linger(&resets, Some(Duration::ZERO)).expect("it stands");
    drop(resets);
    is_told(&mut server, own, "the client, Connection reset by peer (os error 104)");
    server.write(&file("log-pairs = true\nidle = \"200ms\"", &[&to]));
    server.says("reload");
    let mut silent = connect(&at);
    assert!(echoes(&mut silent, 2));
    assert_eq!(silent.read(&mut [0]).expect("an orderly end"), 0);
    is_told(&mut server, silent.local_addr().expect("it stands"), "this proxy, because it was idle");
    let page = server.metrics();
    for direction in ["to", "from"] {
        let bytes = format!("proxy_target_bytes_total{{pool=\"proxy\",target=\"{to}\",direction=\"{direction}\"}} 30000\n");
        assert!(page.contains(&bytes), "{bytes}{page}");
    }
}

#[test]
fn the_side_that_ends_a_pair_first_is_told() {
    let target = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let to = target.local_addr().expect("it is bound").to_string();
    let mut server = Operated::told("proxy-ends", &file("log-pairs = true", &[&to]), |_| {});
    let at = server.addresses[0].clone();
    let mut is_told = |ends: &dyn Fn(TcpStream, TcpStream), by: &str, how: &str| {
        let mut client = connect(&at);
        let (mut far, _) = target.accept().expect("the proxy connects");
        far.write_all(b"!").expect("it stands");
        client.read_exact(&mut [0]).expect("they are joined");
        ends(client, far);
        let told = server.event(&["PairEnded"]);
        assert_eq!((&told["data"]["by"], &told["data"]["how"]), (&by.into(), &how.into()), "{told}");
    };
    // The other side ends only once it has seen the first end.
    let ends_first = |one: TcpStream, mut other: TcpStream| {
        one.shutdown(Shutdown::Write).expect("it stands");
        assert_eq!(other.read(&mut [0]).expect("an orderly end"), 0);
    };
    is_told(&|client, far| ends_first(client, far), "the client", "in order");
    is_told(&|client, far| ends_first(far, client), "the target", "in order");
    let resets = |one: TcpStream, mut other: TcpStream| {
        set_socket_linger(&one, Some(Duration::ZERO)).expect("it stands");
        drop(one);
        assert_eq!(other.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    };
    is_told(&|client, far| resets(client, far), "the client", "Connection reset by peer (os error 104)");
    is_told(&|client, far| resets(far, client), "the target", "by a reset, or by TLS that is not whole");
}

#[test]
fn a_target_is_told_who_the_client_is() {
    for (version, begins) in
        [("v1", &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01")]
    {
        let target = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let to = target.local_addr().expect("it is bound").to_string();
        let server = Operated::start("proxy-header", &file(&format!("proxy-protocol-out = \"{version}\""), &[&to]));
        let mut client = connect(&server.addresses[0]);
        client.write_all(b"early").expect("it stands");
        client.shutdown(Shutdown::Write).expect("it stands");
        let (mut far, _) = target.accept().expect("the proxy connects");
        far.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).expect("an orderly end");
        let (client_at, proxy_at) = (client.local_addr().expect("it stands"), &server.addresses[0]);
        let ports = |at: SocketAddr, proxy: SocketAddr| match version {
            "v1" => format!("{} {}\r\n", at.port(), proxy.port()).into_bytes(),
            _ => [at.port().to_be_bytes(), proxy.port().to_be_bytes()].concat(),
        };
        let wanted = [begins, &ports(client_at, proxy_at.parse().expect("an address")), b"early"].concat();
        assert_eq!(heard, wanted, "{version}");
        far.write_all(b"late").expect("it stands");
        drop(far);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an orderly end");
        assert_eq!(answer, b"late");
    }
}

#[test]
fn a_client_without_a_target_is_reset_and_the_log_says_why() {
    let (_bound, gone) = faults::bound();
    let gone = gone.to_string();
    let mut server = Operated::told("proxy-gone", &file("", &[&gone, "unix:/nowhere/x.sock,backup"]), |_| {});
    let mut client = connect(&server.addresses[0]);
    assert_eq!(client.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let told: Vec<String> =
        (0..2).map(|_| server.event(&["TargetFailed"])["text"].as_str().expect("a text").to_owned()).collect();
    assert!(told[0].ends_with(&format!(": target {gone}: Connection refused (os error 111); left out for 1s")), "{told:?}");
    assert!(
        told[1].ends_with(": target unix:/nowhere/x.sock: No such file or directory (os error 2); left out for 1s"),
        "{told:?}"
    );
}

#[test]
fn proxies_that_lead_back_to_each_other_are_refused() {
    let pool = |name: &str, at: u16, to: u16| {
        format!("[pool.{name}]\nprotocol = \"proxy\"\nlisten = \"127.0.0.1:{at}\"\nto = [\"127.0.0.1:{to}\"]\n")
    };
    let check = |text: &str| {
        let path = std::env::temp_dir().join(format!("sockdrawer-circle-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        let end = Program::start(&["check", path.to_str().expect("text")]).end();
        std::fs::remove_file(&path).expect("it was written");
        end
    };
    let chain = [pool("a", 7001, 7002), pool("b", 7002, 7003), pool("c", 7003, 7004)].concat();
    assert_eq!(check(&chain).code, Some(0), "one behind the other");
    let circle = [pool("a", 7001, 7002), pool("b", 7002, 7003), pool("c", 7003, 7002)].concat();
    let end = check(&circle);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.stderr.contains(".toml:8:6: pool.b.to: 127.0.0.1:7003 leads back to where this pool listens: name another target"),
        "{end:?}"
    );
}

#[test]
fn what_a_proxy_cannot_have_is_refused_at_the_start() {
    for (words, why) in [
        ("", "proxy without a target: name one by to, as in --to 10.0.0.1:6379"),
        ("--to 127.0.0.1:1 --model threads", "both sides of a pair run in one loop, which threads has not: use loops or prefork"),
        ("--to 127.0.0.1:1 --tries 0", "--tries 0: must be at least 1"),
        ("-l :7 --to 127.0.0.1:7", "pool.serve.to: 127.0.0.1:7 leads back to where this pool listens: name another target"),
        (
            "--to 127.0.0.1:1,limit=1 --to 127.0.0.1:1,limit=2",
            "127.0.0.1:1,limit=2: the address is there before, for these clients or with another limit: leave one out",
        ),
        (
            "--to 127.0.0.1:1 --limit 1",
            "limit = 1 lets no client in: one takes two, for its own connection and that to its target",
        ),
        (
            "--tls-cert a --tls-key b --to 127.0.0.1:1,sni=a.example",
            "127.0.0.1:1,sni=a.example is for clients by their TLS, which ends here: leave tls-cert out, and it is passed on as it is, or \
             leave sni and alpn out",
        ),
    ] {
        let end = Program::of(&format!("serve proxy {words}")).end();
        assert_eq!(end.code, Some(2), "{words}");
        assert_eq!(end.stderr, format!("error: {why} (try: sockdrawer serve --help)\n"), "{words}");
    }
}
