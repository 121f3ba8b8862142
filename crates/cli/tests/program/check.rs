//! `sockdrawer check`, and `generate` for what it knows.

use crate::program::{End, Program};
use crate::strangers;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

fn check(name: &str, text: &str) -> (End, String) {
    let path = std::env::temp_dir().join(format!("sockdrawer-check-{}-{name}", std::process::id()));
    fs::write(&path, text).expect("the folder of temporary files takes it");
    let path = path.to_str().expect("text").to_owned();
    let end = Program::start(&["check", &path]).end();
    fs::remove_file(&path).expect("it is there");
    (end, path)
}

const GOOD: &str = "[pool.web]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:1\", \"systemd:web\"]\nlimit = \"10k\"\n\
    [pool.cat]\nprotocol = \"exec\"\nprogram = \"cat\"\nlisten = \"unix:@cat\"\n";

#[test]
fn a_good_file_is_told_by_its_pools_and_nothing_is_started() {
    let (end, path) = check("good.toml", GOOD);
    let expected = "POOL  PROTOCOL  MODEL   LIMIT  LISTEN\ncat   exec      fork        -  unix:@cat\n\
        web   http      loops  10,000  127.0.0.1:1 systemd:web\n";
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert_eq!(end.stdout, format!("{expected}{path}: good\n"), "port 1 may not be listened at, and is not");
}

#[test]
fn all_mistakes_are_told_with_their_places() {
    let text = "metric = 1\n[pool.a]\nprotocol = \"echo\"\nlisten = 1\nlimit = 0\nidle = \"soon\"\n[pool.b]\nprotocol = \"exec\"\nlisten = 2\n\
        [pool.c]\nprotocol = \"ping\"\nlisten = [3, 3]\n[pool.d]\nprotocol = \"http\"\nlisten = 4\nmodel = \"threads\"\nloops = 3\n[pool.e]\nprotocol = \"echo\"\n\
        listen = 5\nmodel = \"fork\"\nspin = \"5s\"\n[pool.f]\nprotocol = \"exec\"\nprogram = \"no-such-program\"\nlisten = 6\n";
    let (end, path) = check("bad.toml", text);
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""));
    let expected = [
        ":1:1: metric: unknown setting `metric`: did you mean `metrics`?",
        ":5:9: pool.a.limit: `0`: must be at least 1",
        ":6:8: pool.a.idle: `soon`: not a time: write ",
        ":8:12: pool.b.protocol: exec without a program: ",
        ":12:10: pool.c.listen: 127.0.0.1:3 is named twice",
        ":17:9: pool.d.loops is an option of the models prefork, loops and tasks, not of the model threads",
        ":22:8: pool.e.spin is an option of the models loops, prefork and single, not of the model fork",
        ":24:12: pool.f.protocol: no program `no-such-program` in PATH",
    ];
    let lines: Vec<&str> = end.stderr.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", end.stderr);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("{path}{expected}")), "{line}\nis not {expected}");
    }
}

#[test]
fn what_is_no_file_of_text_is_told_in_one_line() {
    for (name, text, part) in [
        ("empty.toml", "", ": no pool: write one"),
        ("broken.toml", "[pool.a\n", ":1:8: not TOML: "),
        ("broken.json", "{\"pool\": ", "not an object of JSON"),
        ("escape.toml", "\"\\u001b[2J\" = 1\n", "unknown setting `?[2J`"),
    ] {
        let (end, _) = check(name, text);
        assert_eq!((end.code, end.stdout.as_str(), end.stderr.lines().count()), (Some(2), "", 1), "{name}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{name}: {}", end.stderr);
    }
    for (path, part) in [
        ("/no/such/file", "cannot read /no/such/file: No such file"),
        ("/", "cannot read /: "),
        ("/dev/zero", "cannot read /dev/zero: it is a device, a socket or a FIFO; name a file"),
    ] {
        let end = Program::start(&["check", path]).end();
        assert_eq!((end.code, end.stderr.lines().count()), (Some(2), 1), "{path}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{path}: {}", end.stderr);
    }
}

#[test]
fn what_the_system_would_refuse_is_told_by_its_place_where_it_is_asked_for() {
    let taken = std::net::TcpListener::bind(strangers::address(7)).expect("a port");
    let at = taken.local_addr().expect("an address");
    let text = format!(
        "control = \"/no/such/folder/c.sock\"\n[pool.a]\nprotocol = \"echo\"\nlisten = [\"127.0.0.1:0\", \"unix:@{}\"]\n\
         [pool.b]\nprotocol = \"echo\"\nlisten = \"{at}\"\n",
        std::process::id()
    );
    let path = std::env::temp_dir().join(format!("sockdrawer-check-{}-bind.toml", std::process::id()));
    fs::write(&path, &text).expect("the folder takes it");
    let path = path.to_str().expect("text");
    assert_eq!(Program::start(&["check", path]).end().code, Some(0), "the form is right");
    let end = Program::start(&["check", "--bind", path]).end();
    assert_eq!((end.code, end.stderr.lines().count()), (Some(2), 2), "{}", end.stderr);
    for line in [
        format!("{path}:7:10: pool.b.listen: cannot listen on {at}: the address is in use"),
        format!("{path}:1:11: control: cannot listen on unix:/no/such/folder/c.sock: No such file or directory"),
    ] {
        assert!(end.stderr.contains(&line), "no {line} in {}", end.stderr);
    }
    drop(taken);
    fs::write(path, text.lines().skip(1).collect::<Vec<_>>().join("\n")).expect("the folder takes it");
    let end = Program::start(&["check", "--bind", path]).end();
    fs::remove_file(path).expect("it is there");
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

#[test]
fn a_start_asks_for_the_addresses_of_the_program_before_a_pool_accepts() {
    let taken = [7, 8].map(|octet| std::net::TcpListener::bind(strangers::address(octet)).expect("a port"));
    let [at, pool] = taken.each_ref().map(|taken| taken.local_addr().expect("an address"));
    let path = std::env::temp_dir().join(format!("sockdrawer-check-{}-own.toml", std::process::id()));
    for (own, wrong) in [
        (format!("metrics = \"{at}\""), format!("1:11: metrics: cannot listen on {at}: the address is in use")),
        (
            "control = \"/no/such/folder/c.sock\"".to_owned(),
            "1:11: control: cannot listen on unix:/no/such/folder/c.sock: No such file".to_owned(),
        ),
    ] {
        // The pool's address is taken, too: a start that asked for that first would name it.
        let text = format!("{own}\n[pool.a]\nprotocol = \"echo\"\nlisten = \"{pool}\"\n");
        fs::write(&path, &text).expect("the folder takes it");
        let end = Program::start(&["serve", "--config", path.to_str().expect("text")]).end();
        let line = format!("{}:{wrong}", path.display());
        assert!(end.code == Some(2) && end.stderr.contains(&line), "no {line} in {}", end.stderr);
    }
    // The line of the file is another's: the value is the command line's.
    fs::write(&path, format!("metrics = \"127.0.0.1:0\"\n[pool.a]\nprotocol = \"echo\"\nlisten = \"{pool}\"\n"))
        .expect("as before");
    let end = Program::start(&["serve", "--config", path.to_str().expect("text"), "--metrics", &at.to_string()]).end();
    let line = format!("error: metrics: cannot listen on {at}");
    assert!(end.code == Some(2) && end.stderr.starts_with(&line), "no {line} in {}", end.stderr);
    fs::remove_file(path).expect("it is there");
}

#[test]
fn a_file_that_gives_nothing_holds_up_no_change() {
    let server = crate::operated::Operated::start("check-fifo", crate::operated::TWO_POOLS);
    fs::remove_file(server.path("a.toml")).expect("it is there");
    let made = Command::new("mkfifo").arg(server.path("a.toml")).status().expect("mkfifo");
    assert!(made.success());
    let refused = server.ctl("reload");
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("cannot read a.toml: it is a device, a socket or a FIFO; name a file"), "{}", refused.stderr);
    let config = server.says("config");
    fs::write(server.path("b.toml"), config.replace("1000", "2000")).expect("the folder takes it");
    assert!(server.says("apply b.toml").contains("revision 2 is in force"), "other changes go on");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn standard_input_is_a_file_too() {
    for (text, code, part) in [(GOOD, 0, "good"), ("limt = 1\n", 2, "/dev/stdin:1:1: limt")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        command.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child.stdin.take().expect("it was asked for").write_all(text.as_bytes()).expect("the program reads");
        let output = child.wait_with_output().expect("it ends");
        let told = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert!(output.status.code() == Some(code) && told.contains(part), "{told}");
    }
}

#[test]
fn what_is_generated_is_read_by_the_programs_that_it_is_for() {
    let generated = |words: &str| {
        let end = Program::of(&format!("generate {words}")).end();
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{words}");
        end.stdout
    };
    let schema: serde_json::Value = serde_json::from_str(&generated("schema")).expect("JSON");
    assert!(jsonschema::meta::is_valid(&schema));
    assert!(generated("man").starts_with(".ie") && generated("man").contains(".SH \"SOCKDRAWER CTL DRAIN\""));
    let mut bash = Command::new("bash")
        .args(["-c", "source /dev/stdin && complete -p sockdrawer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    bash.stdin.take().expect("it was asked for").write_all(generated("completions bash").as_bytes()).expect("bash reads");
    let output = bash.wait_with_output().expect("bash ends");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("sockdrawer"));
    let wrong = Program::of("generate completions bahs").end();
    assert_eq!((wrong.code, wrong.stderr.contains("did you mean `bash`?")), (Some(2), true), "{}", wrong.stderr);
}
