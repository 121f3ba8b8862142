//! Mistakes on a command line: each is told in one line that says what, why and what to do, and ends the program with 2.

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn sockdrawer(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    Command::new(program).args(words).stdin(Stdio::null()).output().expect("the program starts")
}

/// Runs it, expects exit code 2 and one line on standard error, nothing on standard output, and all of `parts` in the line.
#[track_caller]
fn refused(words: &str, parts: &[&str]) {
    let output = sockdrawer(&words.split_whitespace().collect::<Vec<_>>());
    let told = String::from_utf8(output.stderr).expect("errors are text");
    assert_eq!(output.status.code(), Some(2), "{words}: {told}");
    assert!(output.stdout.is_empty(), "{words}: {:?}", output.stdout);
    assert_eq!(told.matches('\n').count(), 1, "{words}: {told:?}");
    assert!(told.starts_with("error: ") && told.ends_with('\n'), "{words}: {told:?}");
    for part in parts {
        assert!(told.contains(part), "{words}: no {part:?} in {told:?}");
    }
}

#[test]
fn commands() {
    refused(
        "",
        &[
            "no command",
            "serve, check, ctl, load, doctor, find, report, schema, compare, upgrade, parent, agent, generate or trial",
            "try: sockdrawer --help",
        ],
    );
    refused("serv", &["unknown command `serv`", "did you mean `serve`?"]);
    refused(
        "quux",
        &[
            "unknown command `quux`",
            "there are serve, check, ctl, load, doctor, find, report, schema, compare, upgrade, parent, agent, generate, trial",
        ],
    );
    refused("--lisen", &["unknown option `--lisen`"]);
    refused("--json x", &["unknown option `--json`", "try: sockdrawer --help"]);
}

#[test]
fn protocols() {
    refused("serve", &["no protocol", "echo, hello, ping, http, acks, ws, proxy or exec", "try: sockdrawer serve --help"]);
    refused("load", &["no workload: name ping, echo, hello, http or acks", "try: sockdrawer load --help"]);
    refused("serve ehco", &["unknown protocol `ehco`", "did you mean `echo`?", "try: sockdrawer serve --help"]);
    refused("load ping --junit -", &["--junit", "must be the name of a file", "./-"]);
    refused("trial --junit -", &["--junit", "must be the name of a file", "./-"]);
    refused("serve echo --proxy-protocol 10.0.0.0/8", &["--proxy-protocol", "from=10.0.0.0/8"]);
    refused("serve exec --proxy-protocol from=::1 -- cat", &["cannot run another program under a layer", "leave out the layer"]);
    refused("serve PING", &["did you mean `ping`?"]);
    refused("serve redis", &["unknown protocol `redis`", "there are echo, hello, ping, http, acks, ws, proxy, exec"]);
    refused("load pong", &["did you mean `ping`?", "try: sockdrawer load --help"]);
    refused("load redis", &["unknown workload `redis`: there are ping, echo, hello, http, acks (try: sockdrawer load --help)"]);
    refused("load exec", &["exec is a protocol to serve, no workload", "use ping, echo, hello, http or acks"]);
    refused("load exec -- cat", &["the address \"cat\" has no port"]);
    refused("serve echo hello", &["unexpected argument `hello`", "leave it out"]);
}

#[test]
fn programs() {
    refused("serve exec", &["exec without a program", "name it behind --", "try: sockdrawer serve --help"]);
    refused("serve exec --", &["exec without a program"]);
    refused("serve exec cat", &["unexpected argument `cat`", "exec -- PROGRAM"]);
    refused("serve exec --model fork cat -u", &["unexpected argument `cat`", "exec -- PROGRAM"]);
    refused("serve echo -- cat", &["-- PROGRAM is an option of exec, not of echo", "leave it out"]);
    refused("serve exec -- no-such-program -x", &["no program `no-such-program` in PATH", "give its path"]);
    refused("serve exec -- /no/such/program", &["cannot run `/no/such/program`", "No such file"]);
    refused("serve exec -- /", &["cannot run `/`", "it is no file"]);
    refused("serve exec -- /proc/self/status", &["cannot run `/proc/self/status`", "not executable"]);
    for model in ["single", "threads", "prefork", "loops", "tasks"] {
        refused(&format!("serve exec --model {model} -- cat"), &[&format!("the model {model} cannot"), "use fork"]);
    }
}

#[test]
fn options() {
    refused("serve echo --lisen 1", &["unknown option `--lisen`", "did you mean `--listen`?", "try: sockdrawer serve --help"]);
    refused("serve echo --frobnicate", &["unknown option `--frobnicate`"]);
    refused("load ping -x", &["unknown option `-x`", "try: sockdrawer load --help"]);
    refused("serve echo --loops 1 --loops 2", &["--loops is given twice"]);
    refused("serve echo --loops", &["--loops needs a value"]);
    refused("serve echo --verbose=3", &["--verbose takes no value"]);
    refused("trial --change 5", &["--change needs a TARGET", "did you mean `--changes 5`?", "try: sockdrawer trial --help"]);
    refused("trial 127.0.0.1:9000", &["a trial of 127.0.0.1:9000 needs --change 'COMMAND'", "try: sockdrawer trial --help"]);
}

#[test]
fn counts() {
    refused("serve echo --loops 0", &["--loops 0", "at least 1"]);
    refused("serve echo --limit 0", &["--limit 0", "at least 1"]);
    refused("serve echo --workers many", &["--workers many", "not a count", "10k"]);
    refused("serve echo --capacity -5", &["--capacity -5", "not a count"]);
    refused("serve echo --loops=", &["--loops", "not a count"]);
    refused("load ping -n 1.5", &["--operations 1.5", "not a count"]);
    refused("load ping -n 99999999999999999999", &["--operations", "not a count"]);
    refused("load ping -c 0", &["--connections 0", "at least 1"]);
    refused("load ping -c 10K", &["--connections 10K", "not a count", "10k"]);
    refused("load ping --seed x", &["--seed x", "not a seed"]);
    refused("trial --changes 0", &["--changes 0", "at least 1"]);
    refused("trial --listen unix:/tmp/x", &["serve echo -l unix:/tmp/x", "trial unix:/tmp/x --change COMMAND"]);
}

#[test]
fn times_rates_and_sizes() {
    refused("load ping --stage 30s", &["--stage 30s", "not a stage", "30s:10k"]);
    refused("load ping --lifetime 0", &["--lifetime 0", "more than 0"]);
    refused("load ping -d 0", &["--duration 0", "more than 0"]);
    refused("load ping -d 5sec", &["--duration 5sec", "not a time", "50ms"]);
    refused("load ping -d -1", &["--duration -1", "not a time"]);
    refused("load ping --timeout 0ms", &["--timeout 0ms", "more than 0"]);
    refused("load ping --interval soon", &["--interval soon", "not a time"]);
    refused("load ping --connect-rate 0", &["--connect-rate 0", "more than 0"]);
    refused("load ping --connect-rate fast", &["--connect-rate fast", "not a rate"]);
    refused("load echo --size 0", &["--size 0", "at least 1 byte"]);
    refused("load echo --size 4kb", &["--size 4kb", "not a size"]);
    refused("serve http --slow-duration 30usec", &["--slow-duration 30usec", "not a time"]);
    refused("trial -d 0", &["--duration 0", "more than 0"]);
}

#[test]
fn choices() {
    refused("serve echo --on-full rejet", &["--on-full", "`rejet`", "did you mean `reject`?"]);
    refused("serve echo --on-full panic", &["--on-full", "backpressure, reject"]);
    refused("serve echo --model loop", &["unknown model `loop`", "did you mean `loops`?"]);
    refused("serve echo --model redis", &["unknown model `redis`", "there are single, threads, fork, prefork, loops, tasks"]);
    refused("trial --model single", &["--model single", "one after the other", "use loops, threads, prefork or tasks"]);
    refused("trial --model fork", &["--model fork", "no change reaches", "try: sockdrawer trial --help"]);
    refused("trial --sabotage drop-cue", &["--sabotage", "did you mean `drop-queue`?"]);
}

#[test]
fn what_does_not_go_together() {
    refused("serve echo --slow-duration 1", &["--slow-duration is an option of http, not of echo", "leave it out"]);
    refused("serve ping --ack read", &["--ack is an option of acks, not of ping"]);
    for model in ["single", "threads", "fork"] {
        refused(&format!("serve echo --model {model} --loops 1"), &["--loops is an option of the models", model, "leave it out"]);
        refused(&format!("serve echo --model {model} --workers 0"), &["--workers is an option of the models", model]);
    }
    for model in ["threads", "fork", "tasks"] {
        refused(
            &format!("serve echo --model {model} --spin 50us"),
            &["--spin is an option of the models loops, prefork and single", model],
        );
    }
    refused("serve echo --processes 2", &["--processes is an option of the model prefork, not of the model loops"]);
    refused("load ping --size 5", &["--size is an option of echo and acks, not of ping"]);
    refused("load http --interval 5", &["--interval is for connections with one request after the other: add --keep-alive"]);
    refused("load hello --interval 5", &["--interval is an option of ping, echo, acks and http, not of hello"]);
    refused("load hello --hold 5", &["--hold needs connections that stay", "use --duration"]);
    refused("load ping -d 1 --hold 1", &["--duration and --hold exclude each other"]);
    refused("load ping --stage 1s:5 -c 5", &["--stage", "--connections", "exclude each other"]);
    refused("load ping --stage 1s:5 -d 5", &["--stage", "--duration", "exclude each other"]);
    refused("load ping --stage 1s:5 --connect-rate 5", &["--stage", "--connect-rate", "exclude each other"]);
    refused("load ping --stage 1s:5,1s:0 --hold 5", &["--hold", "no connection is left after the last --stage"]);
    refused("load ping --stage 1s:0", &["--stage", "nothing to do"]);
    refused("load http --stage 1s:5 --rate 5", &["--rate and --stage exclude each other"]);
    refused("load http --lifetime 5", &["--lifetime is an option of ping and echo, not of http"]);
    refused("trial --changes 1 --seconds 1", &["--changes and --duration exclude each other"]);
}

#[test]
fn questions() {
    refused("load ping --send x", &["--send", "name a TARGET"]);
    refused("load hello 127.0.0.1:9 --send x", &["--send is an option of ping and echo, not of hello"]);
    refused("load ping 127.0.0.1:9 --expect x", &["--expect without --send"]);
    refused(r"load ping 127.0.0.1:9 --send a\q", &["--send", r"`\q` begins no escape"]);
    refused("load ping 127.0.0.1:9 --send=", &["--send", "no bytes"]);
    refused("load ping 127.0.0.1:9 --send x --expect /(/", &["--expect", "`(` is no regular expression", "unclosed group"]);
    refused("load ping 127.0.0.1:9 --send x --expect /a$/", &["--expect", "looks at what follows"]);
    refused("load echo 127.0.0.1:9 --send x --size 5", &["--send", "--size", "exclude each other"]);
}

/// Checks that a plan with this text is refused with `parts`, which begin with the number of the line.
#[track_caller]
fn plan_refused(text: &str, words: &str, parts: &[&str]) {
    let path = format!("{}/refused-{:?}.toml", env!("CARGO_TARGET_TMPDIR"), std::thread::current().id());
    std::fs::write(&path, text).expect("a file of this test can be written");
    let [line, parts @ ..] = parts else { panic!("no line") };
    let place = format!("{path}:{line}: ");
    refused(&format!("load --plan {path} {words}"), &[&[&place[..]], parts].concat());
    std::fs::remove_file(&path).expect("it was written");
}

#[test]
fn plans() {
    refused("load --plan /nowhere/at/all.toml", &["cannot read the plan /nowhere/at/all.toml", "No such file"]);
    refused("load --plan Cargo.toml --plan Cargo.toml", &["--plan is given twice"]);
    plan_refused("workload = 'ping'\n\nconections = 5\n", "", &["3", "unknown key `conections`", "did you mean `connections`?"]);
    plan_refused("workload = 'ping'\nplan = 'a'\n", "", &["2", "unknown key `plan`"]);
    plan_refused("workload = 'pong'\n", "", &["1", "did you mean `ping`?"]);
    plan_refused("workload = 'ping'\ntimeout = '5 s'\n", "", &["2", "--timeout 5 s: not a time"]);
    plan_refused("workload = 'ping'\ntargets = ['127.0.0.1:9',\n 'x:y']\n", "", &["2", "x:y"]);
    plan_refused("workload = 'ping'\ntimeout = ['5s']\n", "", &["2", "timeout has one value", "array"]);
    plan_refused("workload = 'http'\nkeep-alive = 'yes'\n", "", &["2", "keep-alive is true or false"]);
    plan_refused("workload = 'ping'\n[source]\na = 1\n", "", &["2", "source has one value", "table"]);
    plan_refused("workload = 'ping'\nhold = '5s\n", "", &["2"]);
    plan_refused("workload = 'ping'\nhold = '5s'\nduration = 5\n", "", &["3", "--duration and --hold exclude each other"]);
    refused("load acks --ladder --dry-run", &["--ladder", "--dry-run", "exclude each other"]);
    refused("load --plan /dev/null", &["no workload: name ping"]);
    refused("load --plan /dev/null 127.0.0.1:9", &["no workload before `127.0.0.1:9`: name one, as in ping 127.0.0.1:9"]);
}

/// A command line, and a part of the line that is told.
const REFUSED: &[(&str, &str)] = &[
    ("compare", "RUN and RUN are missing: add them (try: sockdrawer compare --help)"),
    ("compare a", "RUN is missing: add it"),
    ("compare a b c", "unexpected argument `c`: leave it out"),
    ("compare /nowhere /nowhere", "cannot read /nowhere: No such file or directory (os error 2); name the directory of a run"),
    ("compare a b --threshold p99", "--threshold p99: no comparison in it: write one such as p99<50ms"),
    ("compare a b --frob", "unknown option `--frob`: leave it out"),
    ("doctor x", "the address \"x\" has no port: write HOST:PORT"),
    ("doctor 127.0.0.1:1 127.0.0.1:2", "unexpected argument `127.0.0.1:2`: leave it out"),
    ("doctor -c 0", "--connections 0: must be at least 1"),
    ("doctor --pid x", "--pid x: not a process: write its number, such as 4711"),
    ("doctor --pid 999999999", "--pid 999999999: there is no such process; look for it with ss -lntp"),
    ("report", "DIR is missing: add it (try: sockdrawer report --help)"),
    (
        "ctl upgrade /x",
        "unexpected argument `/x`: it starts the server's own command line again; another one starts sockdrawer upgrade PATH -- COMMAND",
    ),
    ("report /nowhere", "there is neither result.json nor series.ndjson; name the directory of a run"),
    ("report a b", "unexpected argument `b`: leave it out"),
    ("schema x", "unexpected argument `x`: leave it out (try: sockdrawer schema --help)"),
    ("schema --json x", "unknown option `--json`: leave it out"),
    ("upgrade", "PATH is missing: add it (try: sockdrawer upgrade --help)"),
    ("upgrade /a b", "unexpected argument `b`: what is started stands behind --, as in -- b"),
    ("trial upgrade /a /b serve", "unexpected argument `serve`: what is started stands behind --, as in -- serve"),
    ("trial upgrade /a /b --listen /c", "unknown option `--listen`: leave it out; options of what is started stand behind --"),
    ("upgrade /a --status --rehearse", "--status and --rehearse exclude each other: leave one out"),
    ("upgrade /a --status -- cat", "--status and [COMMAND]... exclude each other: leave one out"),
    ("upgrade /a --within 0", "--within 0: must be more than 0: write 50ms or 5s"),
    ("parent", "PATH and COMMAND are missing: add them (try: sockdrawer parent --help)"),
    ("parent /a", "COMMAND is missing: add it"),
    ("parent /a cat", "unexpected argument `cat`: what is started stands behind --, as in -- cat"),
    ("parent /a -- no-such-program", "no program `no-such-program` in PATH: check its name, or give its path"),
    ("find", "no workload: name ping, echo, hello, http or acks (try: sockdrawer find --help)"),
    ("find redis", "unknown workload `redis`: there are ping, echo, hello, http, acks"),
    ("find ping --vary speed", "--vary: unknown value `speed`: there are connections, rate, connect-rate"),
    ("find ping --max 0", "--max 0: must be at least 1"),
    ("find ping -n 5", "--operations: each try takes its time, not a number of operations: use --duration or --hold"),
    ("find ping --stage 1s:1", "--stage: a search changes the connections by itself: leave it out"),
    ("find ping --metrics 9", "--metrics is for one run, and a search makes several: leave it out"),
    ("find ping --threshold p99<+5%", "a change is one between two runs: leave the sign out here, or use compare"),
    ("trial --every 5", "--out and the options of TLS and WebSocket need a TARGET and --change 'COMMAND'"),
    ("trial --kept -1", "--kept -1: not a count: write a whole number such as 250, 10k or 2m"),
    (
        "trial 127.0.0.1:1 --change true --model loops",
        "--model is for the server inside this program: leave it out, or leave out TARGET",
    ),
    ("serve echo --stays 5", "--upgrade is missing: add it (try: sockdrawer serve --help)"),
    ("serve echo --max-per-peer 5/99", "--max-per-peer 5/99: has no prefix of 0 to 32 bits: write one such as 50/24"),
    ("serve echo --spin 5s", "spin: more than 1 s, a loop that never sleeps: use some 50 us"),
    ("serve exec --idle 5 -- cat", "--idle is no option of exec: PROGRAM alone knows what it waits for; leave it out"),
    ("load http --mix x", "--mix x: not a mix: write pages and weights above 0, such as fast=9,slow=1"),
    ("load http --path a", "--path a: not a path: write one that begins with a slash"),
    ("load http --keep-alive --close fin", "--keep-alive and --close exclude each other: leave one out"),
    ("load http -H x", "--header x: not a header: write a name, a colon and a value"),
    (
        "load http --body @/nowhere",
        "cannot read the file /nowhere: No such file or directory (os error 2); name one that is there",
    ),
    ("load http -X get", "--method get: not a method: write one in capitals, such as GET or POST"),
    ("load http --threshold /x.p99<5ms", "the run has no such page: it asks for /test/fast"),
    ("load hello --reconnect", "--reconnect is an option of ping and echo, not of hello: leave it out"),
    ("load acks --batch 5 --window 3", "a batch would never be sent; raise --window or lower --batch"),
    ("load acks 127.0.0.1:1 --ladder", "--ladder compares servers inside this program: leave TARGET out, or --ladder"),
    ("load ping --threshold p99<5", "`5` is no time with its unit: write 50ms, 250us, 10ns or 1s"),
    (
        "load ping --threshold opration.p99<5ms",
        "the closest are operation.p99, operation.p90, operation.p95; the help ends with all",
    ),
    ("load ping --server-pid x", "--server-pid x: not a process: write its number"),
    (
        "load ping --control /nowhere/x",
        "cannot listen on unix:/nowhere/x: No such file or directory (os error 2); its directory does not exist: make it, or choose another path",
    ),
];

#[test]
fn every_command_says_what_to_do() {
    REFUSED.iter().for_each(|(words, line)| refused(words, &[line]));
}

#[test]
fn acknowledgements() {
    refused("serve acks --ack raed", &["--ack", "`raed`", "read"]);
    refused("serve acks --ack timer=soon", &["--ack", "timer=soon"]);
    refused("serve acks --ack every=0", &["--ack", "every=0"]);
}

#[test]
fn addresses() {
    refused("serve echo -l nowhere:at:all", &["--listen nowhere:at:all"]);
    refused("serve echo -l 127.0.0.1:99999", &["--listen 127.0.0.1:99999"]);
    refused("serve echo -l 127.0.0.1:1 -l x:y", &["--listen x:y"]);
    refused("load ping 127.0.0.1:port", &["127.0.0.1:port"]);
    refused("load ping 127.0.0.1:9-8", &["127.0.0.1:9-8", "no range"]);
    refused("load ping http://127.0.0.1:8080/a", &["a URL of http is a target of http, not of ping: write HOST:PORT"]);
    refused("load ping --source localhost", &["--source", "not a local IP address"]);
    refused("load ping --source 127.0.0.0/8", &["--source 127.0.0.0/8", "more than 65536 addresses", "/16"]);
    refused("load ping --source 127.0.0.1/28", &["not where a network begins", "127.0.0.0/28"]);
    refused("load ping --local-ports 9-8", &["--local-ports 9-8", "not a range of ports"]);
    refused("load ping 9 --proxy-protocol v3", &["--proxy-protocol v3", "not a PROXY header", "v2,source=192.0.2.7:4321"]);
    refused("load ping --proxy-protocol v2", &["--proxy-protocol", "reads no header", "name a target"]);
    refused("load ping --processes 0", &["--processes 0", "auto, or 1 to 1000"]);
    // As far as a search may go.
    refused("find ping 192.0.2.1:9 --threshold p99<1s", &["192.0.2.1:9 is a public address", "1000000 connections", "--yes"]);
    refused("load ping 192.0.2.1:9 -c 20k", &["192.0.2.1:9 is a public address", "20000 connections", "--yes"]);
    refused("load ping 127.0.0.1:9000 --source ::1", &["--source ::1", "cannot reach 127.0.0.1:9000"]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    refused("load ping --json /nowhere/at/all.json", &["cannot write /nowhere/at/all.json", "No such file"]);
    refused("load ping --json=", &["--json", "no file"]);
}

#[test]
fn a_line_break_in_an_argument_does_not_make_two_lines() {
    let output = sockdrawer(&["serve", "ec\nho"]);
    let told = String::from_utf8(output.stderr).expect("errors are text");
    assert_eq!((output.status.code(), told.matches('\n').count()), (Some(2), 1), "{told:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    for words in
        [&["--help"][..], &["--version"], &["serve", "--help"], &["load", "-h"], &["trial", "--help"], &["help", "serve"]]
    {
        let output = sockdrawer(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let told = String::from_utf8(output.stdout).expect("help is text");
        assert!(told.starts_with("sockdrawer ") || told.contains("Usage:"), "{words:?}: {told}");
        assert!(output.stderr.is_empty(), "{words:?}: {:?}", output.stderr);
    }
}

#[test]
fn a_reader_that_went_away_is_no_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let output = Command::new(program).arg("--help").stdout(writer).stderr(Stdio::piped()).output().expect("the program starts");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

// From here on the library's sockets are needed.

#[test]
fn a_port_in_use_is_told_with_what_to_do() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("a bound socket has an address").to_string();
    refused(&format!("serve echo -l {address}"), &[&address, "in use", "choose another"]);
}

#[test]
fn an_address_of_another_machine_is_told_with_what_to_do() {
    // 192.0.2.0/24 is reserved for documentation (RFC 5737): no machine has it.
    refused("serve echo -l 192.0.2.1:9000", &["192.0.2.1:9000", "belongs to this machine"]);
}
