//! `/metrics` and `/readyz`: read by others' parsers, over reloads, upgrades and the end of a server; and the log of a server with a file.

use crate::parent::serving;
use crate::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const OPEN: &str = "Accept: application/openmetrics-text; version=1.0.0\r\n";

const ACCEPTED: &str = r#"sockdrawer_connections_accepted_total{pool="web"}"#;

/// A server with a configuration file, in a folder of its own.
struct Server {
    program: Program,
    folder: PathBuf,
    address: String,
    metrics: String,
}

impl Server {
    fn new(name: &str, rest: &str) -> Server {
        let folder = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        let file = folder.join("sockdrawer.toml");
        std::fs::write(&file, configuration(&folder, 100, rest)).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        let mut program = Program::run({
            command.args(["serve", "--config"]).arg(&file);
            command
        });
        let address = program.line().strip_prefix("listening on ").expect("an address").to_owned();
        let line = program.line();
        let metrics = line.strip_prefix("metrics on http://").and_then(|line| line.strip_suffix("/metrics"));
        let metrics = metrics.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { program, folder, address, metrics }
    }

    /// Returns the status line, the head and the body of an answer.
    fn get(&self, path: &str, fields: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n{fields}\r\n").as_bytes()).expect("it reads");
        answer(stream)
    }

    /// Returns what the control socket answers.
    fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        let mut stream = UnixStream::connect(self.folder.join("control")).expect("it listens");
        let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        answer(stream)
    }

    fn revision(&self) -> u64 {
        let (_, head, _) = self.ask("GET", "/config");
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: \"")?.strip_suffix('"')).expect("a tag");
        tag.parse().expect("a number")
    }

    /// Returns the samples of a page, by name and labels: those of counters and of the parts of histograms.
    fn counters(&self) -> BTreeMap<String, f64> {
        let (status, head, page) = self.get("/metrics", "");
        assert_eq!(status, 200, "{head}{page}");
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').expect("a value"));
        let grows = |name: &str| ["_total", "_bucket", "_count", "_sum"].iter().any(|suffix| name.ends_with(suffix));
        samples
            .filter(|(name, _)| grows(name.split('{').next().unwrap_or_default()))
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be another process by now. Killed, it would be replaced by the one before it.
        serving(&self.folder.join("upgrade")).into_iter().for_each(|pid| _ = kill_process(pid, Signal::TERM));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn configuration(folder: &std::path::Path, limit: u32, rest: &str) -> String {
    let folder = folder.display();
    format!(
        "metrics = \"127.0.0.1:0\"\ncontrol = \"{folder}/control\"\nupgrade = \"{folder}/upgrade\"\n{rest}\n\
         [pool.web]\nprotocol = \"ping\"\nlisten = [\"127.0.0.1:0\"]\nlimit = {limit}\nloops = 1\n"
    )
}

fn answer(mut stream: impl Read) -> (u16, String, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

/// Returns what a program says of this text; None, and a line, where it is not to be had.
fn judged(program: &str, words: &[&str], text: &str) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let required = std::env::var_os("SOCKDRAWER_LONG").is_some();
    let Ok(mut child) = command.spawn() else {
        assert!(!required, "{program} is missing");
        println!("skipped: {program} is missing");
        return None;
    };
    child.stdin.take().expect("it was asked for").write_all(text.as_bytes()).expect("it reads");
    let end = child.wait_with_output().expect("it ends");
    Some((end.status.success(), String::from_utf8_lossy(&[end.stdout, end.stderr].concat()).into_owned()))
}

#[test]
fn parsers_of_others_read_both_forms() {
    let server = Server::new("metrics-forms", "");
    let load = Program::of(&format!("load ping {} -c 3 -n 30", server.address)).end();
    assert_eq!(load.code, Some(0), "{load:?}");
    let (_, head, text) = server.get("/metrics", "");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    let (_, head, open) = server.get("/metrics", OPEN);
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{head}");
    assert!(open.ends_with("\n# EOF\n") && open.contains("\n# UNIT sockdrawer_sent_bytes bytes\n"), "{open}");
    for line in [
        r#"sockdrawer_connections_accepted_total{pool="web"} 3"#,
        r#"sockdrawer_connections_limit{pool="web"} 100"#,
        r#"sockdrawer_received_bytes_total{pool="web"} 120"#,
        &format!(r#"sockdrawer_accept_queue_length{{pool="web",listener="{}"}} 0"#, server.address),
        &format!(r#"sockdrawer_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
    ] {
        assert!([&text, &open].iter().all(|page| page.lines().any(|known| known == line)), "no {line} in {open}");
    }
    if let Some((ok, said)) = judged("promtool", &["check", "metrics"], &text) {
        assert!(ok && said.is_empty(), "promtool: {said}");
    }
    let python = std::env::var("SOCKDRAWER_PYTHON").unwrap_or("python3".to_owned());
    for (module, page) in [("prometheus_client.parser", &text), ("prometheus_client.openmetrics.parser", &open)] {
        let script = format!(
            "import sys\ntry:\n from {module} import text_string_to_metric_families as parse\nexcept ImportError as e:\n sys.exit(f'missing: {{e}}')\n\
             print(len([s for f in parse(sys.stdin.read()) for s in f.samples]))"
        );
        let Some((ok, said)) = judged(&python, &["-c", &script], page) else { continue };
        if !ok && said.contains("missing: ") && std::env::var_os("SOCKDRAWER_LONG").is_none() {
            println!("skipped: {said}");
            continue;
        }
        let samples = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!(ok && said.trim() == samples.to_string(), "{module}: {said}, {samples} lines");
    }
}

#[test]
fn no_counter_jumps_back_over_reloads_and_upgrades() {
    let server = Server::new("metrics-upgrades", "");
    let _load = Program::of(&format!("load ping {} -c 20 --interval 5ms --reconnect -d 60s", server.address));
    while server.counters().get(ACCEPTED).is_none_or(|accepted| *accepted < 20.0) {}
    let over = AtomicBool::new(false);
    let upgrade = |round: u32| {
        std::fs::write(server.folder.join("sockdrawer.toml"), configuration(&server.folder, 100 + round, "")).expect("a file");
        let (status, _, said) = server.ask("POST", "/reload");
        assert!(status == 200 && said.contains("\"committed\":true"), "{said}");
        let before = server.revision();
        let path = server.folder.join("upgrade");
        let upgraded = Program::start(&["upgrade", path.to_str().expect("text")]).end();
        assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
        // With the file as it was, the successor has the configuration of its predecessor, and a revision of its own.
        assert_eq!(server.revision(), before + 1);
    };
    thread::scope(|scope| {
        let upgrades = scope.spawn(|| {
            let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (1..=3).for_each(upgrade)));
            over.store(true, Ordering::Release);
            rounds.expect("three upgrades");
        });
        let (mut last, mut pages, mut once) = (server.counters(), 0, 0);
        // A while longer: the last predecessor has still something to say.
        while once < 20 {
            once += u32::from(over.load(Ordering::Acquire));
            thread::sleep(Duration::from_millis(20)); // waits because: each page is of another moment
            let now = server.counters();
            for (name, value) in &last {
                let now = now.get(name).unwrap_or_else(|| panic!("{name} is gone"));
                assert!(now >= value, "{name}: {value}, then {now}, in page {pages}");
            }
            (last, pages) = (now, pages + 1);
        }
        upgrades.join().expect("the upgrades");
        let value = |name: &str| last.get(name).copied().unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(value("sockdrawer_upgrade_duration_seconds_count"), 3.0);
        assert_eq!(value("sockdrawer_config_changes_total{result=\"ok\"}"), 3.0);
        assert!(value("sockdrawer_connections_moved_in_total{pool=\"web\"}") >= 20.0, "{last:?}");
    });
    // Rollbacks lead to what ran in the process before.
    for limit in [102, 101, 100] {
        let (status, _, said) = server.ask("POST", "/rollback");
        let (_, _, config) = server.ask("GET", "/config");
        let config: Value = serde_json::from_str(&config).expect("JSON");
        assert!(status == 200 && config["pool"]["web"]["limit"] == limit, "{said} {config}");
    }
    let (status, _, said) = server.ask("POST", "/rollback");
    assert!(status == 409 && said.contains("has the configuration of the start: there is none before it"), "{said}");
}

#[test]
fn readiness_says_why_and_ends_with_the_first_signal() {
    let mut server = Server::new("metrics-ready", "");
    assert_eq!(server.get("/readyz", "").2, "ready\n");
    assert_eq!(server.get("/healthz", "").2, "ok\n");
    for path in ["/metrics", "/readyz"] {
        assert_eq!(server.ask("GET", path).0, 200, "the control socket has {path}, too");
    }
    server.ask("POST", "/suspend?pool=web");
    let (status, _, why) = server.get("/readyz", "");
    assert_eq!((status, why.as_str()), (503, "not ready: pool web is suspended\n"));
    assert!(server.get("/metrics", "").2.contains("\nsockdrawer_ready 0\n"));
    assert!(server.ask("GET", "/status").2.contains("\"ready\":false"));
    server.ask("POST", "/resume");
    assert_eq!(server.get("/readyz", "").0, 200);
    assert_eq!((server.get("/", "").0, server.get("/metrics/x", "").0), (404, 404));
    // Half a ping keeps the server from ending.
    let mut client = TcpStream::connect(&server.address).expect("it listens");
    let mut pong = [0; 4];
    client.write_all(b"PingPi").expect("it reads");
    client.read_exact(&mut pong).expect("an answer");
    server.program.signal(Signal::TERM);
    while !server.program.error_line().ends_with("the pool is draining") {}
    let (status, _, why) = server.get("/readyz", "");
    assert_eq!((status, why.as_str()), (503, "not ready: the program ends\n"));
    assert_eq!(server.get("/healthz", "").0, 200);
    drop(client);
    assert_eq!(server.program.child.wait().expect("a child").code(), Some(0));
}

#[test]
fn the_log_of_a_file_has_times_and_the_one_in_json_has_keys() {
    let mut server = Server::new("metrics-text", "");
    let line = server.program.error_line();
    let (time, rest) = line.split_once(' ').expect("a time");
    assert!(time.len() == "2026-01-01T00:00:00.000Z".len() && time.ends_with('Z') && rest.starts_with("web: "), "{line}");
    let mut server = Server::new("metrics-json", "log = \"json\"");
    server.ask("POST", "/reload");
    kill_process(Pid::from_child(&server.program.child), Signal::TERM).expect("it runs");
    let mut lines = String::new();
    server.program.stderr.read_to_string(&mut lines).expect("text");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    for entry in &entries {
        let keys: Vec<&String> = entry.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["at", "data", "event", "level", "number", "pid", "pool", "text"], "{entry}");
    }
    let all: Vec<&str> = entries.iter().filter_map(|entry| entry["event"].as_str()).collect();
    assert!(all.contains(&"Listening") && all.contains(&"NotChanged") && all.last() == Some(&"InAll"), "{all:?}");
    assert_eq!(entries.last().map(|entry| entry["data"]["accepted"].clone()), Some(0.into()));
}

#[test]
fn clients_that_say_nothing_leave_room_for_those_that_ask() {
    let server = Server::new("metrics-silent", "");
    for round in 0..3 {
        let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(&server.metrics).expect("it listens")).collect();
        for path in ["/readyz", "/healthz", "/metrics"] {
            let (status, head, body) = server.get(path, "");
            assert_eq!(status, 200, "{path} in round {round}: {head} {body}");
        }
        drop(silent);
    }
}

#[test]
fn a_pool_that_a_reload_removes_is_freed_when_it_has_ended() {
    let server = Server::new("metrics-removed", "");
    let (file, one) = (server.folder.join("sockdrawer.toml"), configuration(&server.folder, 100, ""));
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", server.program.child.id())).expect("it runs").count();
    let reload = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let (status, _, said) = server.ask("POST", "/reload");
        assert!(status == 200 && said.contains("\"committed\":true"), "{said}");
    };
    let mut first = None;
    for _ in 0..8 {
        reload(&format!("{one}\n[pool.more]\nprotocol = \"ping\"\nlisten = \"127.0.0.1:0\"\nloops = 1\n"));
        reload(&one);
        let before = *first.get_or_insert_with(descriptors);
        // It ends in its own time. Nothing asks for metrics meanwhile.
        let until = Instant::now() + Duration::from_secs(20);
        while descriptors() > before {
            assert!(Instant::now() < until, "waited for {before} descriptors, there are {}", descriptors());
            thread::yield_now();
        }
    }
    let page = server.get("/metrics", "").2;
    assert!(page.contains("sockdrawer_connections_accepted_total{pool=\"more\"} 0"), "what it counted is kept: {page}");
}

#[test]
fn a_log_in_json_has_nothing_but_objects() {
    let server = Server::new("metrics-objects", "log = \"json\"");
    let pid = u64::from(server.program.child.id());
    let file = server.folder.join("sockdrawer.toml");
    let client = TcpStream::connect(&server.address).expect("it listens");
    while !server.get("/metrics", "").2.contains("sockdrawer_connections_open{pool=\"web\"} 1\n") {}
    // The reload fails, and so does the new build, for another program listens there.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("it has one").to_string();
    let more = format!("[pool.more]\nprotocol = \"ping\"\nlisten = \"{taken}\"\n");
    std::fs::write(&file, configuration(&server.folder, 100, "log = \"json\"") + &more).expect("a file");
    assert_eq!(server.ask("POST", "/reload").0, 409);
    let (status, _, why) = server.ask("POST", "/upgrade");
    assert!(
        status == 409 && why.contains(" gave up: ") && why.contains(&taken),
        "what the new build said last is in the answer: {why}"
    );
    server.program.signal(Signal::TERM);
    let mut lines = Vec::new();
    let mut server = server;
    while !lines.iter().any(|line: &Value| line["event"] == "Draining") {
        let line = server.program.error_line();
        lines.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")));
    }
    server.program.signal(Signal::TERM);
    let mut rest = String::new();
    server.program.stderr.read_to_string(&mut rest).expect("text");
    lines.extend(rest.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"))));
    for (event, level) in [
        ("Listening", "info"),
        ("ChangeFailed", "error"),
        ("UpgradeFailed", "error"),
        ("Draining", "info"),
        ("EndedNow", "error"),
    ] {
        let one = lines.iter().find(|line| line["event"] == event && line["pid"] == pid);
        assert_eq!(one.map(|line| &line["level"]), Some(&Value::from(level)), "{event} in {lines:?}");
    }
    let new = lines.iter().find(|line| line["event"] == "Failed").expect("the new build says why");
    assert!(new["pid"] != pid && new["text"].as_str().is_some_and(|text| text.contains(&taken)), "{new}");
    drop(client);
}
