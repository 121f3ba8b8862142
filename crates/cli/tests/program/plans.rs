//! Plans in files: what is said in words is a plan again, the command line counts more, and every example does what it says.

use crate::program::{End, Program};
use crate::report::{number, numbers, report};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

fn run(words: &[&str]) -> End {
    Program::start(words).end()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&path, text).expect("a file of this test can be written");
    path
}

/// Returns what `load` would do with these words, as a plan.
#[track_caller]
fn dry(words: &[&str]) -> String {
    let end = run(&[&["load"], words, &["--dry-run"]].concat());
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{words:?}: {end:?}");
    end.stdout
}

#[test]
fn a_dry_run_is_a_plan_that_says_the_same_again() {
    let stages = ["ping", "127.0.0.1:9000-9003", "--stage", "1s:5,1s:0", "--threshold", "p99<50ms", "--source", "127.0.0.0/28"];
    let dialogue = ["echo", "127.0.0.1:9", "--send", r"a\r\n", "--expect", r"/\w+\r\n/", "-c", "3", "--lifetime", "5"];
    for words in [&stages[..], &dialogue, &["http", "--mix", "fast=9,slow=1", "-n", "9"]] {
        let first = dry(words);
        assert!(first.starts_with("# ") && first.contains("\n# budget") && first.contains("\nworkload = "), "{first}");
        let path = file("dry", &first);
        let again = dry(&["--plan", path.to_str().expect("a path of text")]);
        let plan =
            |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(plan(&again), plan(&first));
        std::fs::remove_file(path).expect("it was written");
    }
}

#[test]
fn the_command_line_counts_more_than_the_file() {
    let text = "workload = 'ping'\ntargets = ['127.0.0.1:1', '127.0.0.1:2']\nstage = '1s:5'\nhold = '7s'\ntimeout = 3\nkeep-alive = false\n";
    let path = file("overruled", text);
    let plan = ["--plan", path.to_str().expect("a path of text")];
    let says = |words: &[&str], lines: &[&str]| {
        let said = dry(words);
        for line in lines {
            match line.strip_prefix("no ") {
                Some(absent) => assert!(!said.contains(&format!("\n{absent} = ")), "{words:?}: {said}"),
                None => assert!(said.contains(&format!("\n{line}\n")), "{words:?}: no {line} in {said}"),
            }
        }
    };
    says(&plan, &["targets = [\"127.0.0.1:1-2\"]", "stage = [\"1s:5\"]", "hold = \"7s\"", "timeout = \"3s\""]);
    // Keys that an option excludes go with it.
    says(
        &[&plan[..], &["-c", "9", "-d", "4"]].concat(),
        &["connections = 9", "duration = \"4s\"", "no stage", "no hold", "timeout = \"3s\""],
    );
    says(
        &[&["echo", "127.0.0.1:9"], &plan[..]].concat(),
        &["workload = \"echo\"", "targets = [\"127.0.0.1:9\"]", "stage = [\"1s:5\"]"],
    );
    says(&[&plan[..], &["--timeout=5"]].concat(), &["timeout = \"5s\"", "hold = \"7s\""]);
    std::fs::remove_file(path).expect("it was written");
}

/// Answers every question that ends like this, on every connection.
fn answering(end: &'static [u8], answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let converse = move |mut stream: TcpStream| {
        let (mut asked, mut byte) = (Vec::new(), [0]);
        while stream.read_exact(&mut byte).is_ok() {
            asked.push(byte[0]);
            if asked.ends_with(end) {
                asked.clear();
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || converse(stream));
        }
    });
    address.to_string()
}

/// Starts a server of this project, and returns it with where it is.
fn serving(words: &[&str]) -> (Program, String) {
    let mut server = Program::start(&[&["serve"], words, &["--listen", "127.0.0.1:0"]].concat());
    let line = server.line();
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{words:?}: {line}")).to_owned();
    (server, address)
}

/// Runs an example for a second, with 20 connections, at this pace, and against this server; none of its operations fails.
#[track_caller]
fn example(name: &str, workload: &str, target: &str, pace: &[&str]) {
    let path = format!("{}/../../examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    // As it is, it is a plan, whatever this machine has.
    dry(&["--plan", &path, "--force"]);
    let shorter =
        ["-c", "20", "-d", "1s", "--timeout", "20s", "--threshold", "failed==0", "--threshold", "lost==0", "--json", "-"];
    let end = run(&[&["load", workload, target, "--plan", &path], &shorter[..], pace].concat());
    assert_eq!(end.code, Some(0), "{name}: {end:?}");
    let report = report(&end);
    assert!(number(&report, "/operations/ok") > 0, "{name}: {report}");
    assert_eq!(
        numbers(&report, ["/operations/failed", "/connections/failed", "/connections/lost"]),
        [0, 0, 0],
        "{name}: {report}"
    );
}

/// Runs an example that says how to search: 20 hold.
#[track_caller]
fn search(name: &str, target: &str) {
    let path = format!("{}/../../examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let shorter = ["-c", "20", "--max", "20", "--hold", "300ms", "--interval", "100ms", "--timeout", "20s", "--json", "-"];
    let judged = ["--threshold", "failed==0", "--threshold", "lost==0"];
    let end = run(&[&["find", "ping", target, "--plan", &path], &shorter[..], &judged].concat());
    assert_eq!((end.code, number(&report(&end), "/found")), (Some(0), 20), "{name}: {end:?}");
}

/// Runs each example: an example without a test is a failure.
#[test]
fn every_example_runs() {
    const NAMES: [&str; 8] = ["capacity", "many", "messages", "nginx", "ramp", "redis", "short-connections", "soak"];
    let often = ["--interval", "100ms"];
    let (_ping, ping) = serving(&["ping"]);
    let (_echo, echo) = serving(&["echo"]);
    let (_http, http) = serving(&["http", "--workers", "8"]);
    let (_acks, acks) = serving(&["acks", "--ack", "every=250"]);
    let redis = answering(b"PING\r\n", b"+PONG\r\n");
    let page = b"HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n<html>\n<p></p></html>\n";
    let nginx = answering(b"\r\n\r\n", page);
    for name in NAMES {
        match name {
            "capacity" => {
                example(name, "ping", &ping, &often);
                search(name, &ping);
            }
            "many" | "ramp" => example(name, "ping", &ping, &often),
            "soak" => example(name, "echo", &echo, &[&often[..], &["--lifetime", "300ms"]].concat()),
            "short-connections" => example(name, "http", &http, &["--rate", "200"]),
            "messages" => example(name, "acks", &acks, &[]),
            "redis" => example(name, "ping", &redis, &often),
            "nginx" => example(name, "ping", &nginx, &often),
            other => panic!("how is {other} run?"),
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).expect("the examples can be listed").map(|file| file.expect("a file").path());
    let mut stems: Vec<String> = files.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    stems.sort();
    assert_eq!(stems, NAMES);
}
