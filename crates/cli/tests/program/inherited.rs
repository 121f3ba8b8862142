//! State that the program inherits from what starts it: shells, supervisors, `nohup`, wrappers.

use crate::operated::Operated;
use crate::program::{End, Program, install};
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum time that anything takes here, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server on a free port by `env`, which leaves signals as these words say.
fn serve(by: &[&str], words: &[&str]) -> (Program, SocketAddr) {
    let mut command = Command::new("env");
    command.args(by).args([env!("CARGO_BIN_EXE_sockdrawer"), "serve", "-l", "127.0.0.1:0"]).args(words);
    let mut program = Program::run(command);
    let line = program.line();
    let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok());
    (program, address.unwrap_or_else(|| panic!("{line:?} is not what a server says first")))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}

/// Sends the signal and waits for the end, which comes by itself within the drain.
#[track_caller]
fn ends_by(program: Program, signal: Signal) -> End {
    program.signal(signal);
    let end = program.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{end:?}");
    end
}

#[test]
fn ended_programs_are_noticed_where_sigchld_was_ignored() {
    let (server, address) = serve(&["--ignore-signal=CHLD"], &["exec", "--limit", "2", "--", "echo", "hi"]);
    for served in 1..=5 {
        let mut said = String::new();
        connect(address).read_to_string(&mut said).unwrap_or_else(|error| panic!("client {served}: {error}"));
        assert_eq!(said, "hi\n", "client {served}");
    }
    ends_by(server, Signal::TERM);
    // Its own children, too: a new build that fails is told with its status.
    let path = std::env::temp_dir().join(format!("sockdrawer-inherited-{}", std::process::id()));
    let at = path.to_str().expect("text");
    let (server, _) = serve(&["--ignore-signal=CHLD"], &["echo", "--upgrade", at]);
    let failed = Program::start(&["upgrade", at, "--", "sh", "-c", "exit 7"]).end();
    assert!(failed.code == Some(1) && failed.stderr.contains("exit status: 7"), "{failed:?}");
    ends_by(server, Signal::TERM);
    let _ = std::fs::remove_file(path);
}

#[test]
fn signals_that_were_blocked_are_obeyed() {
    for signal in [Signal::TERM, Signal::INT] {
        let (server, _) = serve(&["--block-signal"], &["ping", "--drain", "1s"]);
        ends_by(server, signal);
    }
}

/// A program that is started for a client: its signals that are ignored, blocked, or handled.
#[test]
fn programs_inherit_no_signals() {
    let by = ["--block-signal", "--ignore-signal=USR1,USR2,ALRM,CHLD,QUIT,HUP"];
    let (server, address) = serve(&by, &["exec", "--", "grep", "^Sig[BI]", "/proc/self/status"]);
    let mut said = String::new();
    connect(address).read_to_string(&mut said).expect("an orderly end");
    let sets: Vec<u64> = said.lines().filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).collect();
    // Signals 32 and 33 are the C library's own.
    assert_eq!(sets.iter().map(|set| set & !(3 << 31)).collect::<Vec<_>>(), [0, 0], "{said}");
    ends_by(server, Signal::TERM);
}

/// Processes that lost their parent are those of process 1, which alone can reap them.
#[test]
fn process_1_reaps_what_is_left_to_it() {
    let within = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new(within[0]).args(&within[1..]).arg("true").output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        eprintln!("skipped: this user may not make a namespace of processes");
        return;
    }
    let mut command = Command::new(within[0]);
    command.args(&within[1..]).args([env!("CARGO_BIN_EXE_sockdrawer"), "serve", "exec", "-l", "127.0.0.1:0", "--"]);
    command.args(["sh", "-c", "setsid true & echo hi"]);
    let mut server = Program::run(command);
    let line = server.line();
    let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok()).expect("an address");
    let children = |pid: u32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
        list.split_whitespace().map(|pid| pid.parse::<u32>().expect("a number")).collect::<Vec<_>>()
    };
    let [init] = children(server.child.id())[..] else { panic!("one child") };
    for _ in 0..5 {
        let mut said = String::new();
        connect(address).read_to_string(&mut said).expect("an orderly end");
        assert_eq!(said, "hi\n");
    }
    // Its threads have children, too, but it starts the server in the first.
    let began = std::time::Instant::now();
    while children(init).len() != 1 {
        assert!(began.elapsed() < PATIENCE, "not reaped: {:?}", children(init));
    }
    let init = rustix::process::Pid::from_raw(init.cast_signed()).expect("a process");
    rustix::process::kill_process(init, Signal::TERM).expect("it runs");
    assert_eq!(server.end().code, Some(0), "the server's own end");
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sockdrawer-inherited-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

#[test]
fn a_hangup_that_is_ignored_is_told() {
    let folder = folder("hangup");
    let file = folder.join("c.toml");
    std::fs::write(&file, "[pool.echo]\nprotocol = \"echo\"\nlisten = [\"127.0.0.1:0\"]\n").expect("a file can be written");
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_sockdrawer"), "serve", "--control", "none", "--config"]).arg(&file);
    let mut program = Program::run(command);
    assert!(program.line().starts_with("listening on "), "it serves");
    program.signal(Signal::HUP);
    program.signal(Signal::TERM);
    let end = program.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    let told = end.stderr.matches("SIGHUP is ignored since before the program began: reload by sockdrawer ctl reload").count();
    assert!(told == 1 && !end.stderr.contains("reload by SIGHUP"), "{end:?}");
    std::fs::remove_dir_all(folder).expect("it is there");
}

/// The table of descriptors, which otherwise grows in steps that stop every accept for milliseconds.
#[test]
fn a_raised_limit_has_room_for_its_descriptors() {
    let size = |pid: u32| -> usize {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("the kernel says so");
        size.trim().parse().expect("a number")
    };
    let file = |limit| format!("[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\nloops = 1\nlimit = {limit}\n");
    let server = Operated::start("raised", &file(100));
    assert!(size(server.pid()) < 6_000, "{}", size(server.pid()));
    server.write(&file(6_000));
    server.says("reload");
    assert!(size(server.pid()) >= 6_000, "{}", size(server.pid()));
    assert_eq!(server.end().code, Some(0));
}

/// Kernels before 5.9, and container profiles that do not know the call, as `ENOSYS` or `EPERM`.
#[test]
fn calls_that_are_refused_have_a_substitute_or_are_named() {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "-e", "trace=close_range", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is missing, or may not be used");
        return;
    }
    for (call, errno) in [("close_range", "EPERM"), ("close_range", "ENOSYS"), ("pidfd_open", "EPERM"), ("epoll_pwait2", "EPERM")]
    {
        for model in ["prefork", "fork"] {
            let (server, address) = refusing(call, errno, model);
            let Some(address) = address else { panic!("{call} {errno} {model}: {:?}", server.end()) };
            let (mut client, mut answer) = (connect(address), [0; 4]);
            client.write_all(b"Ping").expect("it stands");
            client.read_exact(&mut answer).unwrap_or_else(|error| panic!("{call} {errno} {model}: {error}"));
            drop(client);
            // strace passes no signal on; the server is its only child.
            let strace = server.child.id();
            let child = std::fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).expect("it runs");
            let child = rustix::process::Pid::from_raw(child.trim().parse().expect("one child")).expect("a process");
            rustix::process::kill_process(child, Signal::TERM).expect("it runs");
            let end = server.end();
            assert_eq!(end.code, Some(0), "{call} {errno} {model}: {end:?}");
        }
    }
    let (server, _) = refusing("memfd_create", "EPERM", "prefork");
    let end = server.end();
    assert!(end.code == Some(1) && end.stderr.contains("memfd_create, Linux 3.17"), "{end:?}");
}

/// Starts a server whose kernel refuses a call, and returns it with its address; None where it does not come to serving.
fn refusing(call: &str, errno: &str, model: &str) -> (Program, Option<SocketAddr>) {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:error={errno}")]);
    command.args([env!("CARGO_BIN_EXE_sockdrawer"), "serve", "ping", "-l", "127.0.0.1:0", "--model", model]);
    let mut program = Program::run(command);
    let address = program.line().strip_prefix("listening on ").and_then(|address| address.parse().ok());
    (program, address)
}

/// Starts a server below a shell that does this first.
fn serve_after(first: &str, words: &[&str]) -> (Program, SocketAddr) {
    serve(&["sh", "-c", &format!("{first}; exec \"$0\" \"$@\"")], words)
}

#[track_caller]
fn answers(address: SocketAddr, of: &str) {
    let (mut client, mut answer) = (connect(address), [0; 4]);
    client.write_all(b"Ping").expect("it stands");
    client.read_exact(&mut answer).unwrap_or_else(|error| panic!("{of}: {error}"));
}

/// State that makes no difference, whatever runs the connections.
#[test]
fn a_server_serves_whatever_it_inherits() {
    for first in [
        "umask 0777",
        "cd \"$(mktemp -d)\" && rmdir \"$PWD\"",
        "ulimit -c 0",
        "ulimit -s 1024",
        "ulimit -v 2000000",
        "ulimit -l 0",
        "exec 0<&- 2>&-",
        "exec 7</dev/null 8</dev/null 9</dev/null",
        "unset HOME PATH TERM LANG LC_ALL USER; LANG=xx TERM=none",
        "export HOME=/none LC_ALL=xx_YY.none TZ=none TERM=none COLUMNS=x",
        "renice -n 5 -p $$ >/dev/null",
    ] {
        for model in ["loops", "threads", "prefork", "fork"] {
            let (server, address) = serve_after(first, &["ping", "--model", model]);
            answers(address, &format!("{first}: {model}"));
            server.signal(Signal::TERM);
            let end = server.end();
            assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{first}: {model}");
        }
    }
}

/// `ulimit -u`, or the number of threads of a cgroup, is reached after the start.
#[test]
fn a_server_that_gets_no_thread_any_more_goes_on_and_ends_in_order() {
    // A user that runs nothing else: the limit is that of all its processes.
    let user = 100_000 + std::process::id();
    if !Command::new("prlimit").arg("--nproc").uid(user).gid(user).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: prlimit is missing, or no program may be started as another user, whose limit counts");
        return;
    }
    let folder = folder("threads");
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is the test's");
    let (program, file) = (folder.join("sockdrawer"), folder.join("config"));
    install(Path::new(env!("CARGO_BIN_EXE_sockdrawer")), &program);
    let pool = |name: &str| format!("[pool.{name}]\nprotocol = \"ping\"\nlisten = \"127.0.0.1:0\"\n");
    std::fs::write(&file, pool("one") + &pool("two")).expect("there is room");
    let mut command = Command::new(&program);
    command.arg("serve").arg("--config").arg(&file).uid(user).gid(user);
    let mut server = Program::run(command);
    let addresses = [server.line(), server.line()].map(|line| {
        let address = line.rsplit(' ').next().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("{line:?} is not what a server says first"))
    });
    let mut clients = addresses.map(connect);
    let mut none = Command::new("prlimit");
    none.args(["--nproc=1:1", "--pid", &server.child.id().to_string()]).uid(user).gid(user);
    assert!(none.status().is_ok_and(|status| status.success()), "a user may lower its own limit");
    server.signal(Signal::HUP);
    let mut told = String::new();
    while !told.contains("cannot start a thread") {
        told = server.error_line();
    }
    assert!(told.contains("all goes on as it was"), "{told}");
    addresses.iter().for_each(|address| answers(*address, "after the reload"));
    server.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).expect("an orderly end"), 0);
    }
    let end = server.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    let _ = std::fs::remove_dir_all(folder);
}

/// The first descriptors that a process opens get the lowest numbers: what is written to standard error would go to a client.
#[test]
fn closed_standard_descriptors_are_no_sockets() {
    for (model, closed) in
        [("loops", "0<&- 1>&- 2>&-"), ("prefork", "0<&- 1>&- 2>&-"), ("fork", "0<&- 1>&- 2>&-"), ("loops", "1>&-")]
    {
        let folder = folder("closed");
        let path = folder.join("s");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$0\" \"$@\" {closed}"), env!("CARGO_BIN_EXE_sockdrawer"), "serve", "ping", "-v"]);
        command.args(["--model", model, "-l", &format!("unix:{}", path.display())]);
        let server = Program::run(command);
        let began = std::time::Instant::now();
        let mut client = loop {
            match std::os::unix::net::UnixStream::connect(&path) {
                Ok(client) => break client,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{model} {closed}: {error}"),
            }
        };
        client.write_all(b"Ping").and_then(|()| client.read_exact(&mut [0; 4])).expect("it answers");
        let processes = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.child.id())).expect("it runs");
        let processes = processes.split_whitespace().map(str::to_owned).chain([server.child.id().to_string()]);
        for (process, number) in processes.flat_map(|process| [0, 1, 2].map(|number| (process.clone(), number))) {
            let open = std::fs::read_link(format!("/proc/{process}/fd/{number}")).expect("it is open");
            let open = open.to_string_lossy().into_owned();
            assert!(!open.starts_with("socket:") && !open.starts_with("anon_inode:"), "{model} {closed}: {number} is {open}");
        }
        drop(client);
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, Some(0), "{model} {closed}");
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}

/// The signal of a file that is too large would end the process without a word.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_signal() {
    for model in ["prefork", "fork"] {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -f 0; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_sockdrawer"),
            "serve",
            "ping",
            "--model",
            model,
        ]);
        command.args(["-l", "127.0.0.1:0"]);
        let end = Program::run(command).end();
        assert!(end.code == Some(1) && end.stderr.contains("allow larger files (ulimit -f)"), "{model}: {end:?}");
    }
    // A log that is full is no end of the server.
    let folder = folder("full");
    let log = folder.join("log");
    let (server, address) = serve_after(&format!("ulimit -f 0; exec 2>{}", log.display()), &["ping", "-v"]);
    answers(address, "a full log");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
    assert_eq!(std::fs::read(&log).expect("it was made"), b"", "no line fits");
    std::fs::remove_dir_all(folder).expect("it is there");
}

/// A program that is started for a client has nothing of the server's own.
#[test]
fn programs_inherit_no_descriptors_and_nothing_that_is_meant_for_the_service() {
    let by = [
        "NOTIFY_SOCKET=/none",
        "WATCHDOG_USEC=5000000",
        "WATCHDOG_PID=1",
        "LISTEN_PID=1",
        "LISTEN_PIDFDID=1",
        "LISTEN_FDS=1",
        "LISTEN_FDNAMES=a",
        "SOCKDRAWER_REPLACES=any",
        "OTHER=kept",
        "sh",
        "-c",
        "exec 9</dev/null; exec \"$0\" \"$@\"",
    ];
    let told = ["exec", "--", "sh", "-c", "env; ls /proc/self/fd"];
    let (server, address) = serve(&by, &told);
    let mut said = String::new();
    connect(address).read_to_string(&mut said).expect("an orderly end");
    let of_service = ["NOTIFY_", "WATCHDOG_", "LISTEN_", "SOCKDRAWER_REPLACES"];
    let left: Vec<&str> = said.lines().filter(|line| of_service.iter().any(|begin| line.starts_with(begin))).collect();
    assert!(left.is_empty() && said.contains("OTHER=kept"), "{left:?} of {said}");
    // The last one is the list's own.
    let open: Vec<&str> = said.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
    assert_eq!(open, ["0", "1", "2", "3"], "{said}");
    ends_by(server, Signal::TERM);
}
