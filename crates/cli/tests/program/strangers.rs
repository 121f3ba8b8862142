//! Servers of somebody else, as their packages come: what they count is what `load` counts.
//!
//! `SOCKDRAWER_LONG` makes it 10,000 connections.

use crate::program::Program;
use crate::report::{numbers, report};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Returns a free port, at an address that is nobody else's in these tests: until the server has it, no other test gets it.
pub(crate) fn address(last: u8) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 91, last], 0))).expect("a free port");
    listener.local_addr().expect("a bound socket has an address")
}

fn connections() -> u64 {
    if std::env::var_os("SOCKDRAWER_LONG").is_some() { 10_000 } else { 300 }
}

/// Starts it and reads on until it says that it is ready; None where it is not installed.
pub(crate) fn start(
    program: &str,
    package: &str,
    words: &[&str],
    ready: impl Fn(&mut Program) -> String,
    sign: &str,
) -> Option<Program> {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|place| place.is_file());
    let Some(program) = found else {
        println!("skipped: {program} is not installed (Debian: apt-get install {package})");
        return None;
    };
    let mut command = Command::new(program);
    command.args(words);
    let mut server = Program::run(command);
    loop {
        match ready(&mut server) {
            line if line.contains(sign) => return Some(server),
            line if line.is_empty() && server.child.try_wait().is_ok_and(|end| end.is_some()) => panic!("it ended: {words:?}"),
            _ => {}
        }
    }
}

/// Runs it with the connections of this test and returns its report, in which nothing failed.
#[track_caller]
fn load(words: &[&str]) -> Value {
    let count = connections().to_string();
    let end = Program::start(&[&["load"], words, &["--connections", &count, "--json", "-"]].concat()).end();
    assert_eq!(end.code, Some(0), "{words:?}: {end:?}");
    let report = report(&end);
    assert_eq!(numbers(&report, ["/connections/failed", "/connections/lost", "/operations/failed"]), [0, 0, 0], "{report}");
    report
}

/// Returns the numbers of connections, and of operations that ended well.
fn counted(report: &Value) -> [u64; 2] {
    numbers(report, ["/connections/established", "/operations/ok"])
}

/// Connection of this test to ask the server what it has counted.
struct Clerk(BufReader<TcpStream>);

impl Clerk {
    fn connect(server: SocketAddr) -> Clerk {
        let stream = TcpStream::connect(server).expect("the server is ready");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket takes a time-out");
        Clerk(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers in text");
        line.trim_end().to_owned()
    }

    /// Returns the body of an answer, whose length a line with `key` tells.
    fn ask(&mut self, question: &str, key: &str) -> String {
        self.0.get_mut().write_all(question.as_bytes()).expect("the server stands");
        let length = loop {
            let line = self.line();
            if let Some(length) = line.strip_prefix(key) {
                break length.trim().parse().expect("a length");
            }
        };
        while key.ends_with(':') && !self.line().is_empty() {}
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body as long as it says");
        String::from_utf8(body).expect("the server answers in text")
    }
}

/// Returns what redis has counted: connections, commands before this one, connections that it refused.
fn of_redis(clerk: &mut Clerk) -> [u64; 3] {
    let info = clerk.ask("INFO stats\r\n", "$");
    assert_eq!(clerk.line(), "", "the end of the answer");
    ["total_connections_received", "total_commands_processed", "rejected_connections"].map(|name| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name} in {info}")).parse().expect("a number")
    })
}

#[test]
fn redis_counts_the_same() {
    let at = address(1);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let words = ["--bind", &host, "--port", &port, "--save", "", "--maxclients", "12000", "--tcp-backlog", "4096"];
    let sign = "Ready to accept connections";
    let Some(_redis) = start("redis-server", "redis-server", &words, Program::line, sign) else { return };
    let mut clerk = Clerk::connect(at);
    let target = at.to_string();
    let dialogue = [&target, "--send", r"PING\r\n", "--expect", r"+PONG\r\n"];
    for more in
        [&["ping", "--interval", "1s", "--hold", "2s", "--timeout", "10s"][..], &["echo", "--hold", "2s", "--timeout", "10s"]]
    {
        let before = of_redis(&mut clerk);
        let report = load(&[more, &dialogue[..]].concat());
        let after = of_redis(&mut clerk);
        let [established, answered] = counted(&report);
        assert!(established == connections() && answered >= established, "{report}");
        // The question before is a command too.
        let theirs = [after[0] - before[0], after[1] - before[1] - 1, after[2] - before[2]];
        assert_eq!(theirs, [established, answered, 0], "{report}");
        println!("redis: {established} connections, {answered} commands, both counted the same");
    }
}

/// Returns what nginx has counted: connections accepted, connections handled, requests with this one.
fn of_nginx(clerk: &mut Clerk) -> [u64; 3] {
    let status = clerk.ask("GET /status HTTP/1.1\r\nHost: nginx\r\n\r\n", "Content-Length:");
    let line = status.lines().nth(2).unwrap_or_else(|| panic!("a third line: {status}"));
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("three numbers: {status}"))
}

/// Writes a configuration of one process, so that it ends with this test whatever happens; it writes into a folder of this test's own alone.
fn nginx_configuration(at: SocketAddr) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of this test can be made");
    let folder = folder.to_str().expect("a path of text");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {folder}/{name};"));
    let text = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr notice; worker_rlimit_nofile 20000;
         events {{ worker_connections 12000; }}
         http {{
             access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; {}
             server {{
                 listen {at} backlog=4096;
                 location = / {{ return 200 \"pong\\n\"; }}
                 location = /status {{ stub_status; }}
             }}
         }}",
        temporary.concat()
    );
    let path = PathBuf::from(folder).join("nginx.conf");
    std::fs::write(&path, text).expect("a file of this test can be written");
    path
}

#[test]
fn nginx_counts_the_same() {
    let at = address(2);
    let configuration = nginx_configuration(at);
    let words = ["-c", configuration.to_str().expect("a path of text"), "-e", "stderr"];
    let Some(_nginx) = start("nginx", "nginx-light", &words, Program::error_line, "getrlimit") else { return };
    let mut clerk = Clerk::connect(at);
    let target = at.to_string();
    // At 2,000/s, all stand after half of it.
    let time = (connections() / 1_000 + 2).to_string();
    let kept = ["http", &target, "--path", "/", "--keep-alive", "-d", &time, "--connect-rate", "2k"];
    let dialogue = [
        &[
            "ping",
            &target,
            "--interval",
            "1s",
            "--hold",
            "2s",
            "--timeout",
            "10s",
            "--send",
            r"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
        &["--expect", r"/HTTP\/1\.1 200 OK\r\n(?s:.*)\r\n\r\npong\n/"][..],
    ]
    .concat();
    for words in [&kept[..], &dialogue] {
        let before = of_nginx(&mut clerk);
        let report = load(words);
        let after = of_nginx(&mut clerk);
        let [established, answered] = counted(&report);
        assert!(established == connections() && answered >= established, "{report}");
        // The question after is a request too.
        let theirs = [after[0] - before[0], after[1] - before[1], after[2] - before[2] - 1];
        assert_eq!(theirs, [established, established, answered], "{report}");
        println!("nginx: {established} connections, {answered} requests, both counted the same");
    }
}
