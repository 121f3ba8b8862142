//! Changes that are right as a whole: addresses that go from one pool to another in a reload, under traffic.

use crate::operated::Operated;
use crate::program::Program;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Returns the configuration of pools, each with a list of addresses.
fn pools(pools: &[(&str, &str, &[&str])]) -> String {
    let pool = |(name, protocol, listen): &(&str, &str, &[&str])| {
        format!("[pool.{name}]\nprotocol = \"{protocol}\"\nlisten = {listen:?}\ndrain = \"20s\"\n")
    };
    pools.iter().map(pool).collect()
}

/// Starts a server with these two pools, at addresses that do not change from here on.
fn start(name: &str) -> (Operated, String, String) {
    let begun = pools(&[("a", "echo", &["127.0.0.1:0"]), ("b", "echo", &["127.0.0.1:0"])]);
    let server = Operated::start(name, &begun);
    let [one, two] = [0, 1].map(|at: usize| server.addresses[at].clone());
    server.write(&pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])]));
    server.says("reload");
    (server, one, two)
}

/// Checks that an address sends back, as `echo` does.
fn echoes(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    is_echoed(&mut stream);
    stream
}

fn is_echoed(stream: &mut TcpStream) {
    let mut answer = [0; 5];
    stream.write_all(b"hello").expect("it stands");
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"hello");
}

/// Changes the file to each of these in turn, under the clients of a trial: none is refused, and none that stays notices it. Those of a pool
/// that ends are drained.
fn is_lossless(server: &Operated, target: &str, files: &[String], pool_ends: bool) {
    files.iter().enumerate().for_each(|(at, file)| {
        server.write(file);
        fs::rename(server.path("a.toml"), server.path(&format!("{at}.toml"))).expect("the folder takes it");
    });
    server.write(&files[0]);
    let change = format!(
        "n=$(cat n 2>/dev/null || echo 0); cp $((n % {})).toml a.toml; echo $((n + 1)) > n; {} ctl reload --control c.sock",
        files.len(),
        env!("CARGO_BIN_EXE_sockdrawer")
    );
    fs::write(server.path("change.sh"), change).expect("the folder takes it");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command
        .args(["trial", target, "--changes", "12", "--every", "200ms", "--json", "-", "--change", "sh change.sh"])
        .current_dir(&server.folder);
    let end = Program::run(command).end();
    let report: serde_json::Value = serde_json::from_str(&end.stdout).expect(&end.stderr);
    // A client that has connected and not asked yet is drained too.
    let failed = if pool_ends { ["refused", "reset"] } else { ["failed_connects", "lost_connections"] };
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"));
    assert_eq!(["changes", "wrong_bytes", failed[0], failed[1]].map(count), [12, 0, 0, 0], "{}", end.stderr);
}

#[test]
fn addresses_that_two_pools_exchange_lose_nothing() {
    let (server, one, two) = start("moves-swap");
    let swapped = pools(&[("a", "echo", &[&two]), ("b", "echo", &[&one])]);
    server.write(&swapped);
    let plan = server.says("reload --dry-run");
    for step in [format!("{one} to b"), format!("{two} from b"), format!("{two} to a"), format!("{one} from a")] {
        assert!(plan.contains(&step) && plan.contains("socket moves"), "no {step} in\n{plan}");
    }
    is_lossless(&server, &one, &[swapped, pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])])], false);
    echoes(&two);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn one_of_two_addresses_goes_to_another_pool_and_back() {
    let (server, one, two) = start("moves-one");
    let both = |first: &str, second: &str| pools(&[(first, "echo", &[&one, &two]), (second, "echo", &["unix:left.sock"])]);
    // The giver is the first by name, and the second.
    let files = [both("a", "b"), pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])]), both("b", "a")];
    is_lossless(&server, &two, &files, false);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_pool_gets_another_name_and_its_connections_are_drained() {
    let (server, one, two) = start("moves-name");
    let mut kept = echoes(&one);
    let renamed = pools(&[("z", "echo", &[&one]), ("b", "echo", &[&two])]);
    server.write(&renamed);
    let done = server.says("reload");
    assert!(done.contains(&format!("{one} from a")) && done.contains("1 connections, drained within 20s"), "{done}");
    assert_eq!(kept.read(&mut [0]).expect("an end in order"), 0, "the pool that is gone asks its connections to end");
    is_lossless(&server, &one, &[pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])]), renamed], true);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn an_address_becomes_wider_as_it_goes_over() {
    let (server, one, two) = start("moves-wide");
    let wide = format!("0.0.0.0:{}", one.rsplit(':').next().expect("a port"));
    let files = [pools(&[("b", "echo", &[&two, &wide])]), pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])])];
    is_lossless(&server, &one, &files, true);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn what_cannot_all_be_had_leaves_each_address_where_it_was() {
    let (server, one, two) = start("moves-refused");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    let mut kept = [echoes(&one), echoes(&two)];
    server.write(&pools(&[("a", "ping", &[&two]), ("b", "ping", &[&one]), ("c", "echo", &[&at])]));
    for words in ["reload --dry-run", "reload"] {
        let refused = server.ctl(words);
        assert_eq!(refused.code, Some(1), "{words}: {}", refused.stdout);
        let line = format!("a.toml:12:10: pool.c.listen: cannot listen on {at}: the address is in use");
        assert!(refused.stderr.contains(&line), "{words}: {}", refused.stderr);
    }
    kept.iter_mut().for_each(is_echoed);
    [&one, &two].into_iter().for_each(|address| drop(echoes(address)));
    server.write(&pools(&[("a", "echo", &[&one]), ("b", "echo", &[&two])]));
    assert!(server.says("reload").starts_with("nothing to change"), "all is as it was");
    assert_eq!(server.end().code, Some(0));
}
