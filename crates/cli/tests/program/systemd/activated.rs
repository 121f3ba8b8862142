//! Sockets that are passed to the program at its start.

use super::is_there;
use crate::parent::serving;
use crate::program::{Program, hear_hangups};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Two descriptors become 3 and 4, and all that is printed comes out of one pipe.
const PASS: &str = r#"exec 3<&0 4<&1 0</dev/null 1>&2; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES="$0"; exec "$@""#;

/// A server with two passed sockets, and the folder of its files.
struct Activated {
    child: Child,
    lines: BufReader<ChildStderr>,
    folder: PathBuf,
    /// The process that took over: no child of the test.
    last: Option<Pid>,
}

impl Activated {
    /// Starts the server with this configuration.
    fn start(name: &str, passed: (&str, [OwnedFd; 2]), configuration: &str) -> Activated {
        Activated::within(name, passed, configuration, |_| Vec::new())
    }

    /// Starts the server with this configuration, behind the words that are made for its upgrade path.
    fn within(
        name: &str,
        (names, sockets): (&str, [OwnedFd; 2]),
        configuration: &str,
        behind: impl Fn(&Path) -> Vec<PathBuf>,
    ) -> Activated {
        let folder = folder(name);
        std::fs::write(folder.join("c.toml"), configuration).expect("a file can be written");
        let mut command = Command::new("sh");
        command.args(["-c", PASS, names]).args(behind(&folder.join("upgrade")));
        command.args([env!("CARGO_BIN_EXE_sockdrawer"), "serve", "--config"]).arg(folder.join("c.toml"));
        command.arg("--control").arg(folder.join("control")).arg("--upgrade").arg(folder.join("upgrade"));
        let [first, second] = sockets;
        command.stdin(Stdio::from(first)).stdout(Stdio::from(second)).stderr(Stdio::piped());
        hear_hangups();
        let mut child = command.spawn().expect("sh starts");
        // The copies of the sockets.
        drop(command);
        let lines = BufReader::new(child.stderr.take().expect("it was asked for"));
        Activated { child, lines, folder, last: None }
    }

    /// Returns the next line with this in it.
    fn line(&mut self, with: &str) -> String {
        let mut all = Vec::new();
        loop {
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).expect("it prints text");
            if line.contains(with) {
                return line.trim_end().to_owned();
            }
            all.push(line);
            assert!(length > 0, "{with:?} is not in {all:#?}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.last.unwrap_or(Pid::from_child(&self.child)), signal).expect("it runs");
    }

    /// Reads another configuration; what came of it.
    fn reload(&mut self, configuration: &str) -> String {
        std::fs::write(self.folder.join("c.toml"), configuration).expect("a file can be written");
        self.signal(Signal::HUP);
        self.line("reload by SIGHUP")
    }

    /// Has the server replaced by another process of this program.
    fn upgrade(&mut self) {
        self.signal(Signal::USR2);
        let line = self.line(" serves");
        let before = line.split(" serves").next().and_then(|before| before.rsplit("pid ").next());
        let pid = before.and_then(|pid| pid.parse().ok());
        self.last = pid.and_then(Pid::from_raw);
        assert!(self.last.is_some(), "{line}");
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        self.last.into_iter().for_each(|last| _ = kill_process(last, Signal::TERM));
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes an empty folder, which is that of no other test, whatever names they choose.
pub(super) fn folder(name: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("sockdrawer-systemd-{name}-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder can be made");
    folder
}

/// Makes two listening sockets, and returns them with where they listen.
fn two() -> ([OwnedFd; 2], [SocketAddr; 2]) {
    let sockets = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = [0, 1].map(|at| sockets[at].local_addr().expect("it is bound"));
    (sockets.map(OwnedFd::from), addresses)
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream
}

fn ping(mut stream: impl Read + Write) {
    let mut answer = [0; 4];
    stream.write_all(b"Ping").expect("it stands");
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"Pong");
}

#[test]
fn each_pool_has_the_sockets_of_its_names_and_keeps_them_over_a_reload() {
    let (sockets, [web, admin]) = two();
    let first = "[pool.web]\nprotocol = 'ping'\nlisten = 'systemd:web'\n[pool.admin]\nprotocol = 'ping'\nlisten = ['systemd:admin,limit=5', '127.0.0.1:0']\n";
    let mut server = Activated::start("names", ("web:admin", sockets), first);
    let mut told = [0; 3].map(|_| server.line("listening on 127.0.0.1:"));
    told.sort();
    let at = |address| told.contains(&format!("listening on {address}"));
    assert!(at(web) && at(admin), "{told:?}");
    let kept = connect(web);
    ping(&kept);
    ping(connect(admin));
    let changed = server.reload(&first.replace("'systemd:web'", "'systemd:web'\nlimit = 100"));
    assert!(changed.contains("web: limit: in place") && !changed.contains("socket"), "{changed}");
    ping(&kept);
    // Both at one pool, and then as before: a socket that was named once may be named again.
    let both = "[pool.web]\nprotocol = 'ping'\nlisten = ['systemd:web', 'systemd:admin']\n";
    let changed = server.reload(both);
    assert!(changed.contains("revision 3") && changed.contains("admin: pool: end"), "{changed}");
    ping(connect(admin));
    let changed = server.reload(first);
    assert!(changed.contains("revision 4"), "{changed}");
    ping(connect(admin));
    ping(connect(web));
    ping(kept);
}

#[test]
fn what_is_not_there_is_listed_and_what_no_pool_has_is_told() {
    let (sockets, _) = two();
    let web = "[pool.web]\nprotocol = 'ping'\nlisten = 'systemd:weg'\n";
    let mut server = Activated::start("missing", ("web:admin", sockets), web);
    let line = server.line("error: ");
    let why = "listen: systemd passed no socket named weg: it passed web, admin; set FileDescriptorName=weg in the socket unit";
    assert!(line.contains(why), "{line}");
    assert_eq!(server.child.wait().expect("a child").code(), Some(2));
    let (sockets, [_, admin]) = two();
    let mut server = Activated::start("unused", ("web:admin", sockets), &web.replace("weg", "web"));
    let line = server.line("no pool listens at");
    assert!(
        line.contains(&format!("{admin}, which systemd passed as admin: add systemd:admin to the listen of a pool")),
        "{line}"
    );
    let failed = server.reload(web);
    assert!(failed.contains("it passed web, admin"), "{failed}");
}

#[test]
fn what_does_not_listen_is_refused() {
    let configuration = "[pool.web]\nprotocol = 'ping'\nlisten = 'systemd:web'\n";
    let listening = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let (connection, _other) = UnixStream::pair().expect("a pair");
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    for other in [OwnedFd::from(connection), OwnedFd::from(file)] {
        let mut server = Activated::start("no-listener", ("web:b", [listening(), other]), configuration);
        let line = server.line("error: ");
        let expected = "error: socket activation: descriptor 4 (b) of LISTEN_FDS is no listening stream socket: use ListenStream= and Accept=no in the socket unit";
        assert_eq!(line, expected);
    }
    let mut server = Activated::start("names-missing", ("web", [listening(), listening()]), configuration);
    let line = server.line("error: ");
    assert!(line.contains("LISTEN_FDNAMES=\"web\" has 1 names, for 2 descriptors"), "{line}");
}

#[test]
fn every_model_serves_them() {
    for model in ["single", "threads", "fork", "prefork", "loops", "tasks"] {
        let (sockets, addresses) = two();
        let configuration = format!("[pool.web]\nprotocol = 'ping'\nmodel = '{model}'\nlisten = 'systemd:web'\n");
        let mut server = Activated::start(&format!("model-{model}"), ("web:web", sockets), &configuration);
        server.line("listening on");
        for at in addresses.into_iter().cycle().take(6) {
            ping(connect(at));
        }
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().expect("a child").code(), Some(0), "{model}");
    }
}

/// Upgrades under loops, prefork and fork, whose children stay where they are.
#[test]
fn upgrades_pass_them_on_and_no_client_notices() {
    for model in ["loops", "prefork", "fork"] {
        let (sockets, [web, admin]) = two();
        let configuration =
            format!("[pool.web]\nprotocol = 'ping'\nmodel = '{model}'\nlisten = ['systemd:web,limit=1000', 'systemd:admin']\n");
        let mut server = Activated::start(&format!("upgrade-{model}"), ("web:admin", sockets), &configuration);
        server.line("listening on");
        server.line("listening on");
        let kept = connect(admin);
        ping(&kept);
        let ends = AtomicBool::new(false);
        let served = std::thread::scope(|scope| {
            let clients = [web, admin, web, admin].map(|at| {
                let ends = &ends;
                scope.spawn(move || (0..).take_while(|_| !ends.load(Ordering::Relaxed)).map(|_| ping(connect(at))).count())
            });
            // The second successor has the names from the first.
            for _ in 0..3 {
                server.upgrade();
                ping(&kept);
            }
            let changed = server.reload(&configuration.replace("limit=1000", "limit=900"));
            assert!(changed.contains("in place") && !changed.contains("new socket"), "{changed}");
            ends.store(true, Ordering::Relaxed);
            clients.map(|client| client.join().expect("each is answered"))
        });
        assert!(served.iter().all(|count| *count > 0), "{served:?}");
        ping(kept);
    }
}

/// Its pid is what the manager knows: the sockets are those of the server behind it, before and after a new build.
#[test]
fn a_parent_hands_them_on() {
    let (sockets, [web, admin]) = two();
    let configuration = "[pool.web]\nprotocol = 'ping'\nlisten = ['systemd:web', 'systemd:admin']\n";
    let behind = |path: &Path| {
        [env!("CARGO_BIN_EXE_sockdrawer"), "parent"]
            .map(PathBuf::from)
            .into_iter()
            .chain([path.to_owned(), "--".into()])
            .collect()
    };
    let mut server = Activated::within("parent", ("web:admin", sockets), configuration, behind);
    server.line("listening on");
    server.line("listening on");
    let kept = connect(admin);
    ping(&kept);
    // Started by the parent, by the server, and by the parent again.
    for round in 0..3 {
        let path = server.folder.join("upgrade");
        if round == 1 {
            let upgraded = Program::start(&["upgrade", path.to_str().expect("text")]).end();
            assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
        } else {
            let before = serving(&path);
            server.signal(Signal::USR2);
            let began = std::time::Instant::now();
            while serving(&path).is_none_or(|now| Some(now) == before) {
                assert!(began.elapsed() < Duration::from_secs(20), "round {round}: it was not replaced");
            }
        }
        ping(&kept);
        ping(connect(web));
        ping(connect(admin));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    drop(kept);
    assert!(TcpStream::connect(web).is_err(), "no process has the socket any more");
}

#[test]
fn the_real_systemd_socket_activate_passes_them() {
    if !is_there("systemd-socket-activate") {
        return;
    }
    let folder = folder("activate");
    let [web, admin] = ["web", "admin"].map(|name| folder.join(name));
    std::fs::write(
        folder.join("c.toml"),
        "[pool.web]\nprotocol = 'ping'\nlisten = 'systemd:web'\n[pool.admin]\nprotocol = 'ping'\nlisten = 'systemd:admin'\n",
    )
    .expect("a file can be written");
    let mut command = Command::new("systemd-socket-activate");
    command.args(["--fdname=web:admin", "-l"]).arg(&web).arg("-l").arg(&admin);
    command.args([env!("CARGO_BIN_EXE_sockdrawer"), "serve", "--control", "none", "--config"]).arg(folder.join("c.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    hear_hangups();
    let mut child = command.spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("it was asked for"));
    let mut server = Activated { child, lines, folder, last: None };
    server.line("Listening on");
    server.line("Listening on");
    // The first connection starts the program.
    ping(UnixStream::connect(&web).expect("it listens"));
    server.line(&format!("admin: accepting on unix:{}", admin.display()));
    ping(UnixStream::connect(&admin).expect("it listens"));
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    assert!(Path::exists(&web), "the path is the manager's");
}
