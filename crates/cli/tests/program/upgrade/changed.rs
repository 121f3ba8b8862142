//! A new build together with a changed file: pools that it drops, renames, or that exchange their addresses.

use crate::faults::until;
use crate::operated::Operated;
use crate::program::{End, Program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// Returns the text of a file of pools by name, with their addresses.
fn file(pools: &[(&str, &[&str])], model: &str) -> String {
    let pool = |(name, listen): &(&str, &[&str])| {
        format!("[pool.{name}]\nprotocol = \"echo\"\nmodel = \"{model}\"\nlisten = {listen:?}\ndrain = \"20s\"\n")
    };
    pools.iter().fold("upgrade = \"upgrade\"\n".to_owned(), |file, one| file + &pool(one))
}

/// Starts a server with two pools, and returns where they listen, which does not change from here on.
fn start(name: &str, model: &str) -> (Operated, String, String) {
    let server = Operated::told(name, &file(&[("one", &["127.0.0.1:0"]), ("two", &["127.0.0.1:0"])], model), |_| {});
    let [one, two] = [0, 1].map(|at: usize| server.addresses[at].clone());
    (server, one, two)
}

fn upgrade(server: &Operated, words: &str) -> End {
    let path = server.path("upgrade");
    let words = ["upgrade", &path, "--json", "-"].into_iter().chain(words.split_whitespace());
    Program::start(&words.collect::<Vec<_>>()).end()
}

/// Waits for the end of a process that was replaced.
fn ended(pid: u32) {
    let itself =
        pidfd_open(Pid::from_raw(pid.cast_signed()).expect("a pid"), PidfdFlags::empty()).expect("nobody has waited for it");
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&itself, PollFlags::IN)], Some(&patience)), Ok(1), "it goes on");
}

fn connected(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    is_served(&mut stream);
    stream
}

fn is_served(stream: &mut TcpStream) {
    let mut answer = [0; 4];
    stream.write_all(b"Ping").expect("it stands");
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"Ping");
}

/// Returns what the plan of an upgrade says of a pool.
fn planned<'a>(report: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let pools = report["plan"]["pools"].as_array().expect("a plan");
    pools.iter().find(|pool| pool["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn report(end: &End, code: i32) -> serde_json::Value {
    assert_eq!(end.code, Some(code), "{end:?}");
    serde_json::from_str(&end.stdout).expect("JSON")
}

#[test]
fn a_pool_that_the_next_build_drops_is_named_and_drained_once_that_stands() {
    for model in ["loops", "prefork", "fork"] {
        let (mut server, one, two) = start(&format!("changed-dropped-{model}"), model);
        let (mut kept, mut dropped) = (connected(&one), connected(&two));
        server.write(&file(&[("one", &[&one])], model));
        let rehearsed = upgrade(&server, "--rehearse");
        let plan = report(&rehearsed, 0);
        let (of_two, stays) = (planned(&plan, "two"), "the new build has no such pool");
        assert_eq!(
            (&of_two["connections"], &of_two["staying"][stays], &of_two["given_up"][0]),
            (&1.into(), &1.into(), &two.as_str().into())
        );
        assert!(rehearsed.stderr.contains(&format!("  two: gives up {two}; ends once the new build stands")), "{rehearsed:?}");
        let all = upgrade(&server, "--rehearse --require-all");
        assert!(all.code == Some(1) && all.stderr.contains(&format!("two: 1 stay ({stays})")), "{all:?}");
        [&mut kept, &mut dropped].into_iter().for_each(is_served);
        // Twice, and never as a failure of the server in whose log it stands.
        (0..2).for_each(|_| assert_eq!(server.event(&["Rehearsed", "Failed"])["event"], "Rehearsed", "{model}"));
        let done = report(&upgrade(&server, ""), 0);
        assert_eq!(done["result"]["staying"], if model == "fork" { 2 } else { 1 }, "{done}");
        [&mut kept, &mut dropped].into_iter().for_each(is_served);
        drop(connected(&two));
        // In some seconds the new build stands.
        assert_eq!(dropped.read(&mut [0]).expect("an end in order"), 0, "{model}");
        is_served(&mut kept);
        if model == "fork" {
            drop(kept);
        }
        ended(server.pid());
        assert!(TcpStream::connect(&two).is_err(), "{model}: nobody listens there any more");
        drop(connected(&one));
    }
}

#[test]
fn a_file_of_other_names_and_exchanged_addresses_refuses_nobody() {
    let (server, one, two) = start("changed-names", "loops");
    let files = [
        file(&[("uno", &[&one]), ("two", &[&two])], "prefork"),
        file(&[("uno", &[&two]), ("two", &[&one])], "loops"),
        file(&[("all", &[&two, &one])], "loops"),
        file(&[("one", &[&one]), ("two", &[&two])], "loops"),
    ];
    files.iter().enumerate().for_each(|(at, file)| {
        server.write(file);
        fs::rename(server.path("a.toml"), server.path(&format!("{at}.toml"))).expect("the folder takes it");
    });
    server.write(&files[3]);
    let change = format!(
        "n=$(cat n 2>/dev/null || echo 0); cp $((n % 4)).toml a.toml; echo $((n + 1)) > n; {} upgrade {}",
        env!("CARGO_BIN_EXE_sockdrawer"),
        server.path("upgrade")
    );
    fs::write(server.path("change.sh"), change).expect("the folder takes it");
    let targets = [&one, &two].map(|target| {
        let changes = if *target == one {
            ["--changes", "8", "--change", "sh change.sh"]
        } else {
            ["--changes", "8", "--change", "sleep 0.5"]
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        command.args(["trial", target, "--every", "1s", "--json", "-"]).args(changes).current_dir(&server.folder);
        Program::run(command)
    });
    for end in targets.map(Program::end) {
        let report: serde_json::Value = serde_json::from_str(&end.stdout).expect(&end.stderr);
        // A client that has connected and not asked yet is drained with the pool of the old name.
        let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"));
        assert_eq!(["changes", "wrong_bytes", "refused", "reset"].map(count), [8, 0, 0, 0], "{} {report}", end.stderr);
    }
    let first = server.pid();
    let status: serde_json::Value = serde_json::from_str(&upgrade(&server, "--status").stdout).expect("JSON");
    assert_ne!(status["plan"]["from"]["pid"], first, "it was replaced");
    drop([&one, &two].map(|at| connected(at)));
}

#[test]
fn a_pool_that_a_reload_has_removed_ends_in_its_own_time_after_an_upgrade() {
    let goes = "[pool.goes]\nprotocol = \"ping\"\nlisten = \"127.0.0.1:0\"\ndrain = \"20s\"\n";
    let stays = |at: &str| format!("upgrade = \"upgrade\"\n[pool.stays]\nprotocol = \"echo\"\nlisten = \"{at}\"\n");
    let server = Operated::start("changed-removed", &(stays("127.0.0.1:0") + goes));
    let mut client = TcpStream::connect(&server.addresses[0]).expect("it accepts");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    client.write_all(b"Pi").expect("it stands");
    until("half a message", || server.says("connections").contains("receiving"));
    server.write(&stays(&server.addresses[1]));
    server.says("reload");
    report(&upgrade(&server, ""), 0);
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("a pid");
    let itself = pidfd_open(pid, PidfdFlags::empty()).expect("nobody has waited for it");
    // Longer than it stands by.
    let time = Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&itself, PollFlags::IN)], Some(&time)), Ok(0), "a connection is left");
    let mut answer = Vec::new();
    client.write_all(b"ng").expect("it stands");
    client.read_to_end(&mut answer).expect("an orderly end");
    assert_eq!(answer, b"Pong");
    ended(server.pid());
}
