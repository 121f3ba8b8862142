//! `sockdrawer ctl` with a server that runs.

use crate::faults::{descriptors, until};
use crate::operated::{Operated, TWO_POOLS};
use crate::program::Program;
use crate::terminal::screen::Terminal;
use rustix::process::Signal;
use sockdrawer_operate::client::Client;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn connect(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
    stream.write_all(b"hello").expect("the server reads");
    stream.read_exact(&mut [0; 5]).expect("the server answers");
    stream
}

/// Returns the row of a table that begins with this word.
fn row<'a>(table: &'a str, begins: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(begins));
    line.unwrap_or_else(|| panic!("no {begins} in {table}")).split_whitespace().collect()
}

#[test]
fn the_server_is_shown_in_tables_and_as_it_answers() {
    let server = Operated::start("ctl-shown", TWO_POOLS);
    let _connections = [connect(&server.addresses[0]), connect(&server.addresses[0])];
    let status = server.says("status");
    assert!(status.starts_with("pid ") && status.contains("revision 1, ready"), "{status}");
    assert_eq!(row(&status, "echo"), ["echo", "echo", "loops", "serving", "2", "1,000", "2", "0"]);
    assert_eq!(row(&server.says("generations"), "echo"), ["echo", "1", "2", "in", "force"]);
    assert_eq!(row(&server.says("listeners"), "echo")[..4], ["echo", &server.addresses[0], "serving", "2"]);
    let connections = server.says("connections --pool echo --peer 127.0.0.0/8");
    assert_eq!(connections.lines().count(), 3, "{connections}");
    assert!(connections.contains(" 5 B  5 B  idle"), "{connections}");
    assert!([&status, &connections].iter().all(|text| text.lines().all(|line| line.len() <= 80)), "{status}{connections}");
    assert_eq!(server.says("connections --older-than 1h").lines().count(), 1, "the head alone");
    let json: serde_json::Value = serde_json::from_str(&server.says("--json status")).expect("JSON");
    assert_eq!(json["pools"]["echo"]["connections"], 2);
    let line = server.says("connections --json --pool echo");
    assert_eq!(line.lines().filter(|line| line.starts_with('{') && line.contains("\"pool\":\"echo\"")).count(), 2, "{line}");
}

#[test]
fn a_change_shows_its_plan_and_is_undone_by_a_rollback() {
    let server = Operated::start("ctl-changed", TWO_POOLS);
    let limit = || row(&server.says("status"), "echo")[5].to_owned();
    assert_eq!(server.says("reload"), "nothing to change: revision 1 is in force\n");
    server.write(&TWO_POOLS.replace("1000", "2000"));
    let plan = server.says("reload --dry-run");
    assert_eq!(row(&plan, "echo")[..4], ["echo", "limit", "in", "place"], "{plan}");
    assert!(plan.ends_with("nothing was changed (dry run): revision 1 is in force\n") && limit() == "1,000", "{plan}");
    let done = server.says("reload");
    assert!(done.contains("1000 to 2000") && done.contains(": revision 2 is in force\n") && limit() == "2,000", "{done}");
    assert!(server.says("rollback").contains("revision 3 is in force") && limit() == "1,000");
    let refused = server.ctl("rollback");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    let bottom = "error: revision 3 has the configuration of the start: there is none before it; see ctl revisions";
    assert!(refused.stderr.starts_with(bottom), "{}", refused.stderr);
    // All mistakes, each with its place; what runs goes on.
    server.write(&TWO_POOLS.replace("limit = 1000", "limt = 5").replace("\"ping\"", "\"pong\""));
    let wrong = server.ctl("reload");
    let lines: Vec<&str> = wrong.stderr.lines().collect();
    assert_eq!((wrong.code, lines.len()), (Some(1), 2), "{}", wrong.stderr);
    assert!(
        lines[0].contains("a.toml:5:1: pool.echo.limt: ") && lines[1].contains("a.toml:9:12: pool.ping.protocol"),
        "{lines:?}"
    );
    assert!(server.says("status").contains("revision 3"));
    assert_eq!(server.end().code, Some(0));
}

/// Returns lines without their times and pids.
fn undated(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| !word.starts_with("20") && !word.ends_with(')') || line.starts_with(' '));
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect()
}

#[test]
fn revisions_say_who_changed_what_and_where_a_rollback_goes() {
    let server = Operated::start("ctl-revisions", TWO_POOLS);
    let uid = rustix::process::geteuid().as_raw();
    let last = |words: &str| words.lines().last().map(str::to_owned).expect("a line");
    assert_eq!(undated(&server.says("revisions"))[0], "revision 1, start by a.toml");
    for (count, limit) in ["2000", "3000", "4000"].into_iter().enumerate() {
        server.write(&TWO_POOLS.replace("1000", limit));
        assert!(server.says("reload").contains(&format!("revision {} is in force", count + 2)));
    }
    fs::write(server.path("other.toml"), server.says("config").replace("4000", "5000")).expect("a file");
    server.says("apply other.toml");
    server.says("rollback");
    let goes_to =
        |number| format!("revision {}; a rollback goes back to the configuration of revision {number}", "6 is in force");
    let list = server.says("revisions");
    let expected = [
        "revision 1, start by a.toml".to_owned(),
        format!("revision 2, reload by uid {uid} (pid"),
        "  echo: limit: in place (1000 to 2000)".to_owned(),
        format!("revision 3, reload by uid {uid} (pid"),
        "  echo: limit: in place (2000 to 3000)".to_owned(),
        format!("revision 4, reload by uid {uid} (pid"),
        "  echo: limit: in place (3000 to 4000)".to_owned(),
        format!("revision 5, change by uid {uid} (pid"),
        "  echo: limit: in place (4000 to 5000)".to_owned(),
        format!("revision 6, rollback by uid {uid} (pid back to revision 4"),
        "  echo: limit: in place (5000 to 4000)".to_owned(),
        goes_to(3),
    ];
    let list = undated(&list.replace("),", ")"));
    assert_eq!(list, expected);
    let json: serde_json::Value = serde_json::from_str(&server.says("revisions --json")).expect("JSON");
    assert_eq!((json["revision"].as_u64(), json["rollback_to"].as_u64()), (Some(6), Some(3)));
    assert_eq!(json["revisions"].as_array().map(Vec::len), Some(6), "{json}");
    // Rollbacks go back through what was there before until its end, and a change after them goes on from there.
    for back_to in ["3", "2", "1"] {
        server.says("rollback");
        assert!(server.says("revisions").contains(&format!("back to revision {back_to}\n")));
    }
    let refused = server.ctl("rollback");
    assert!(
        refused.code == Some(1) && refused.stderr.contains("revision 9 has the configuration of the start"),
        "{}",
        refused.stderr
    );
    assert_eq!(last(&server.says("revisions")), "revision 9 is in force; no configuration before it is kept for a rollback");
    server.says("reload");
    assert_eq!(
        last(&server.says("revisions")),
        "revision 10 is in force; a rollback goes back to the configuration of revision 1"
    );
}

#[test]
fn a_selector_that_names_what_is_not_there_is_refused_by_each_verb() {
    let server = Operated::start("ctl-named", TWO_POOLS);
    let _stays = connect(&server.addresses[0]);
    for verb in ["drain --within 5s", "purge", "kill", "adopt"] {
        for (selector, why) in [
            ("--id 999999", Some("no connection has the number 999999: it may have ended")),
            ("--listener 127.0.0.1:1", Some("nothing listens at 127.0.0.1:1: there are 127.0.0.1:")),
            ("--listener unix:/none --older-than 0s", Some("nothing listens at unix:/none: there are")),
            ("--generation 7", Some("generation 7 has not begun: the newest is 1")),
            ("--before 7", Some("generation 7 has not begun: the newest is 1")),
            ("--all --pool web", Some("no pool is named web: there are echo, ping")),
            ("--id 1 --pool web", Some("no pool is named web: there are echo, ping")),
            // These name nothing: that none matches is an answer.
            ("--tag nobody", None),
            ("--generation 1 --pool ping", None),
            ("--before 1", None),
            ("--peer 10.0.0.0/8", None),
            ("--older-than 1h", None),
            ("--all --pool ping", None),
        ] {
            let end = server.ctl(&format!("{verb} {selector}"));
            match why {
                Some(why) => {
                    let told = (end.code, end.stdout.as_str(), end.stderr.lines().count());
                    assert!(
                        told == (Some(1), "", 1) && end.stderr.starts_with(&format!("error: {why}")),
                        "{verb} {selector}: {}",
                        end.stderr
                    );
                }
                None => assert!(
                    end.code == Some(0) && end.stdout.starts_with("0 "),
                    "{verb} {selector}: {}{}",
                    end.stdout,
                    end.stderr
                ),
            }
        }
    }
    for verb in ["suspend", "resume"] {
        for (selector, why) in
            [("--listener 127.0.0.1:1", "127.0.0.1:1"), ("--pool web", "no pool is named web: there are echo, ping")]
        {
            let end = server.ctl(&format!("{verb} {selector}"));
            assert!(
                (end.code, end.stdout.as_str()) == (Some(1), "") && end.stderr.contains(why),
                "{verb} {selector}: {}",
                end.stderr
            );
        }
    }
    assert_eq!(row(&server.says("status"), "echo")[4], "1", "none was touched");
    // An address that was removed is a name for as long as connections from there are left.
    let old = &server.addresses[0];
    server.write(&TWO_POOLS.replacen("127.0.0.1:0", "127.0.0.2:0", 1));
    server.says("reload");
    assert_eq!(server.says(&format!("kill --listener {old}")), "1 killed\n");
    let gone = server.ctl(&format!("kill --listener {old}"));
    assert!(gone.code == Some(1) && gone.stderr.contains("nothing listens at"), "{}{}", gone.stdout, gone.stderr);
}

#[test]
fn of_two_operators_one_is_told_that_the_other_was_first() {
    let server = Operated::start("ctl-two", TWO_POOLS);
    let config = server.says("config");
    assert!(config.starts_with("# revision 1\n") && config.contains("[pool.echo]"), "{config}");
    fs::write(server.path("one.toml"), config.replace("1000", "1500")).expect("a file");
    fs::write(server.path("other.toml"), config.replace("1000", "2500")).expect("a file");
    assert!(server.says("apply one.toml --dry-run").contains("1000 to 1500"));
    assert!(server.says("apply one.toml").contains("revision 2 is in force"));
    for words in ["apply other.toml", "apply one.toml --if 1", "apply other.toml --if 7"] {
        let conflict = server.ctl(words);
        assert_eq!((conflict.code, conflict.stdout.as_str()), (Some(1), ""), "{words}");
        assert!(
            conflict.stderr.contains("revision 2 is in force") && conflict.stderr.lines().count() == 1,
            "{}",
            conflict.stderr
        );
    }
    assert_eq!(row(&server.says("status"), "echo")[5], "1,500", "the change of the first stands");
    assert!(server.says("apply other.toml --if 2").contains("revision 3 is in force"));
    // The server takes what it prints as JSON.
    fs::write(server.path("x.json"), server.says("config --json").replace("2500", "3500")).expect("a file");
    assert!(server.says("apply x.json").contains("2500 to 3500"));
    fs::write(server.path("wrong.toml"), "[pool.echo]\nprotocol = \"echo\"\nlisten = 1\nmodel = \"threads\"\nloops = 2\n")
        .expect("a file");
    let wrong = server.ctl("apply wrong.toml");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.starts_with("wrong.toml:5:9: pool.echo.loops is an option of the models"), "{}", wrong.stderr);
    let missing = server.ctl("apply missing.toml");
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.starts_with("error: cannot read missing.toml: "), "{}", missing.stderr);
}

#[test]
fn connections_are_ended_by_selectors_and_pools_are_suspended() {
    let server = Operated::start("ctl-ended", TWO_POOLS);
    let (mut stays, mut ends) = (connect(&server.addresses[0]), connect(&server.addresses[0]));
    let ends_at = ends.local_addr().expect("it is connected").to_string();
    let list = server.says("connections --json");
    let line = list.lines().find(|line| line.contains(&ends_at)).expect(&list);
    let id = serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].to_string();
    assert_eq!(server.says(&format!("kill --pool echo --id {id}")), "1 killed\n");
    assert!(matches!(ends.read(&mut [0]), Ok(0) | Err(_)), "it has ended");
    stays.write_all(b"x").and_then(|()| stays.read_exact(&mut [0])).expect("the other goes on");
    assert_eq!(server.says("suspend --pool ping"), "suspended: ping\n");
    assert_eq!(row(&server.says("status"), "ping")[3], "suspended");
    assert_eq!(server.says("resume"), "resumed: echo, ping\n");
    assert_eq!(server.says("adopt --all"), "0 moved to the newest generation, 0 stay\n");
    assert_eq!(server.says("drain --all --within 20s --rate 1000"), "1 asked, 1 ended, 0 cut\n");
    for (words, part) in [
        ("kill", "which connections?"),
        ("kill --all --id 3", "--all and --id exclude each other"),
        ("kill --id x", "--id x: not a count"),
        ("kill --peer x", "--peer x: not an address or network"),
        ("kill --listener x", "--listener"),
        ("drain --all --rate 0", "--rate 0: must be more than 0"),
        ("reload --dry", "did you mean `--dry-run`?"),
        ("stat", "did you mean `status`?"),
    ] {
        let wrong = server.ctl(words);
        assert_eq!(
            (wrong.code, wrong.stdout.as_str(), wrong.stderr.lines().count()),
            (Some(2), "", 1),
            "{words}: {}",
            wrong.stderr
        );
        assert!(wrong.stderr.contains(part) && wrong.stderr.contains("(try: sockdrawer ctl"), "{words}: {}", wrong.stderr);
    }
    let no_pool = server.ctl("kill --all --pool web");
    assert_eq!((no_pool.code, no_pool.stderr.as_str()), (Some(1), "error: no pool is named web: there are echo, ping\n"));
    let no_upgrade = server.ctl("upgrade --rehearse");
    assert_eq!(no_upgrade.code, Some(1));
    assert!(no_upgrade.stderr.contains("without --upgrade PATH"), "{}", no_upgrade.stderr);
    assert_eq!(server.says("stop"), "draining 0 connections, then the server ends\n");
    assert_eq!(server.has_ended().code, Some(0));
}

#[test]
fn a_drain_goes_on_when_the_operator_leaves_and_says_so() {
    let server = Operated::start("ctl-leaves", TWO_POOLS);
    let mut stays = TcpStream::connect(&server.addresses[1]).expect("it accepts");
    stays.write_all(b"PingPi").and_then(|()| stays.read_exact(&mut [0; 4])).expect("half a ping keeps it from ending");
    let drains = Program::run(server.command("drain --all --within 20s"));
    until("a drain", || server.says("connections --json").contains("\"draining\":true"));
    drains.signal(Signal::INT);
    let end = drains.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(130), "the drain goes on in the server\n"), "{end:?}");
    stays.write_all(b"ng").and_then(|()| stays.read_exact(&mut [0; 4])).expect("it is answered first");
    assert_eq!(stays.read(&mut [0]).expect("an end in order"), 0);
}

#[test]
fn a_server_that_is_not_there_denied_or_stopped_is_told_in_one_line() {
    let server = Operated::start("ctl-absent", TWO_POOLS);
    let told = |words: &str| {
        let end = server.ctl(words);
        assert_eq!((end.code, end.stdout.as_str(), end.stderr.lines().count()), (Some(1), "", 1), "{words}: {}", end.stderr);
        end.stderr
    };
    assert!(told("status --control none.sock").starts_with("error: no control socket at none.sock: "));
    server.signal(Signal::STOP);
    assert!(told("status --timeout 100ms").contains("did not answer within 100ms"));
    server.signal(Signal::CONT);
    server.says("status");
    if !rustix::process::geteuid().is_root() {
        let allow = |mode| fs::set_permissions(server.path("c.sock"), fs::Permissions::from_mode(mode)).expect("it is ours");
        allow(0o000);
        assert!(told("status").contains("permission denied"));
        allow(0o600);
    }
    fs::hard_link(server.path("c.sock"), server.path("old.sock")).expect("the folder takes it");
    server.signal(Signal::KILL);
    let old = loop {
        let end = server.ctl("status --control old.sock");
        if end.stderr.contains("nothing answers at") || end.code == Some(0) {
            break end;
        }
    };
    assert_eq!((old.code, old.stderr.lines().count()), (Some(1), 1), "{}", old.stderr);
}

#[test]
fn a_question_outlives_a_stop_from_the_keyboard() {
    let path = std::env::temp_dir().join(format!("sockdrawer-ctl-stopped-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("the folder takes it");
    let asks = Program::of(&format!("ctl status --json --control {}", path.display()));
    let mut asked = listener.accept().expect("it asks").0;
    asked.read_exact(&mut [0; 3]).expect("a request");
    // The system call that waits for the answer is interrupted, because it has a timeout.
    until("it waits for the answer", || asks.is_asleep());
    asks.stop();
    asks.signal(Signal::CONT);
    asked.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n").expect("it reads");
    let end = asks.end();
    fs::remove_file(path).expect("it is there");
    assert_eq!((end.code, end.stdout.trim(), end.stderr.as_str()), (Some(0), "{}", ""));
}

#[test]
fn events_come_as_they_happen_until_the_reader_has_gone() {
    let server = Operated::start("ctl-events", TWO_POOLS);
    let mut events = server.command("events").stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(events.stdout.take().expect("it was asked for")).lines();
    let (sender, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let first = lines.next().expect("a line").expect("text");
        // The reader goes with this thread.
        sender.send(first).expect("the test waits");
    });
    // It watches from some moment on.
    let first = loop {
        server.says("suspend --pool echo");
        server.says("resume --pool echo");
        if let Ok(first) = told.try_recv() {
            break first;
        }
    };
    reader.join().expect("it has read a line");
    assert!(first.contains("echo"), "{first}");
    while events.try_wait().expect("a child").is_none() {
        server.says("suspend --pool echo");
    }
    assert_eq!(events.wait().expect("a child").code(), Some(0), "a reader that has gone is no error");
}

#[test]
fn top_is_drawn_and_leaves_the_terminal_as_it_was() {
    let server = Operated::start("ctl-top", TWO_POOLS);
    let _connections = [connect(&server.addresses[0]), connect(&server.addresses[0])];
    let words = format!("ctl top --control {}", server.path("c.sock"));
    for (size, signal, code) in [((80, 24), None, 0), ((60, 20), Some(Signal::INT), 130), ((80, 24), Some(Signal::TERM), 143)] {
        let mut terminal = Terminal::start(size, &[("NO_COLOR", "1")], &words);
        let shown = terminal.until("the server", |screen| screen.contains("q quit") && screen.contains("serving"));
        for part in ["connections  2 of ", "ACCEPTS", "generations", "loops", "revision 1"] {
            assert!(shown.contains(part), "no {part} in\n{shown}");
        }
        match signal {
            None => terminal.types("q"),
            Some(signal) => terminal.signal(signal),
        }
        assert_eq!(terminal.end(), Some(code), "{}", terminal.screen());
        terminal.is_as_before();
    }
    // Without a terminal: a table that grows until its reader has gone.
    let mut top = server.command("top").stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(top.stdout.take().expect("it was asked for")).lines().map(|line| line.expect("text"));
    let first: Vec<String> = lines.by_ref().take(3).collect();
    assert!(first[0].starts_with("POOL  CONNECTIONS") && first[1].starts_with("echo            2"), "{first:?}");
    drop(lines);
    assert_eq!(top.wait().expect("a child").code(), Some(0), "a reader that has gone is no error");
}

#[test]
fn a_server_that_does_not_answer_holds_no_signal_up() {
    let server = Operated::start("ctl-top-held", TWO_POOLS);
    let (status, path) = (server.says("status --json"), server.path("held.sock"));
    let listener = UnixListener::bind(&path).expect("the folder takes it");
    let words = format!("ctl top --timeout 1h --control {path}");
    let mut terminal = Terminal::start((80, 24), &[("NO_COLOR", "1")], &words);
    let mut asked = BufReader::new(listener.accept().expect("it asks").0);
    let request =
        |asked: &mut BufReader<UnixStream>| while !asked.by_ref().lines().next().expect("a line").expect("text").is_empty() {};
    request(&mut asked);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{status}", status.len());
    asked.get_mut().write_all(answer.as_bytes()).expect("it reads");
    terminal.until("the server", |screen| screen.contains("serving"));
    request(&mut asked);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.end(), Some(130), "{}", terminal.screen());
    terminal.is_as_before();
}

#[test]
fn where_there_is_no_server_top_says_so_and_ends() {
    let end = Program::of("ctl top --control /no/such/socket").end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(1), ""));
    assert!(end.stderr.starts_with("error: no control socket at /no/such/socket: "), "{}", end.stderr);
}

#[test]
fn a_process_that_was_replaced_ends_though_an_operator_watches_its_events() {
    let upgrade = std::env::temp_dir().join(format!("sockdrawer-ctl-replaced-{}", std::process::id())).join("upgrade");
    let server = Operated::start("ctl-replaced", &format!("upgrade = \"{}\"\n{TWO_POOLS}", upgrade.display()));
    let mut kept = Client::at(server.path("c.sock"));
    let pid = |client: &mut Client| client.send("GET", "/status", &[], b"").expect("an answer").text().expect("text");
    let pid = |client: &mut Client| serde_json::from_str::<serde_json::Value>(&pid(client)).expect("JSON")["pid"].clone();
    let before = pid(&mut kept);
    let mut watching = Client::at(server.path("c.sock"));
    let events = watching.send("GET", "/events", &[], b"").expect("an answer").without_timeout().expect("a socket");
    assert!(server.says("upgrade").contains("serves"), "it is replaced");
    // The old build ends connections at rest just after it has told of the upgrade: a request that is faster has its answer from there.
    let began = Instant::now();
    while pid(&mut kept) == before {
        assert!(began.elapsed() < Duration::from_secs(20), "the next requests are for the new build");
    }
    events.lines(|_| std::ops::ControlFlow::Continue(())).expect("a stream with its end");
    server.was_replaced();
}

#[test]
fn an_operator_is_answered_where_connections_have_all_descriptors_but_a_few() {
    // Fewer than the control socket's own limit of 1,024.
    const ALL: usize = 600;
    const SPARE: usize = 64;
    let folder = std::env::temp_dir().join(format!("sockdrawer-ctl-descriptors-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder of temporary files takes it");
    let (file, control) = (folder.join("a.toml"), folder.join("c.sock"));
    let pool = |name: &str| format!("[pool.{name}]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\n");
    let text = format!("control = \"{}\"\n{}{}", control.display(), pool("one"), pool("two"));
    fs::write(&file, text).expect("the folder takes it");
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit -n {ALL}; exec \"$0\" serve --log none --config \"$1\""),
        env!("CARGO_BIN_EXE_sockdrawer"),
    ]);
    let mut server = Program::run({
        command.arg(&file);
        command
    });
    let addresses: Vec<String> = (0..2).map(|_| server.line().strip_prefix("listening on ").expect("where").to_owned()).collect();
    let _clients: Vec<TcpStream> = addresses
        .iter()
        .flat_map(|at| (0..ALL / 2 + SPARE).map(move |_| TcpStream::connect(at).expect("the kernel accepts")))
        .collect();
    until("a server whose connections have them all", || descriptors(&server) >= ALL - SPARE);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::at(&control)).collect();
    for client in &mut clients {
        assert_eq!(client.send("GET", "/status", &[], b"").expect("an answer").status, 200);
    }
    assert!(descriptors(&server) < ALL, "the pools take no more");
    server.signal(Signal::TERM);
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_dry_run_that_finds_a_mistake_is_no_change_that_failed() {
    let server = Operated::start("ctl-dry", TWO_POOLS);
    let failed =
        |count: u32| server.metrics().contains(&format!("sockdrawer_config_changes_total{{result=\"failed\"}} {count}\n"));
    server.write("[pool.echo]\nprotocol = \"eko\"\nlisten = \"127.0.0.1:0\"\n");
    let dry = server.ctl("reload --dry-run");
    assert!(dry.code != Some(0) && dry.stderr.contains("did you mean `echo`?") && failed(0), "{dry:?}");
    assert!(server.ctl("reload").code != Some(0) && failed(1));
}
