//! `parent`: a server changes its process, and what follows only the parent does not notice.

use crate::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A parent, its server and a client.
struct Scene {
    parent: Program,
    client: TcpStream,
    path: PathBuf,
}

impl Scene {
    /// Starts a server under a parent, which `within` starts.
    fn new(name: &str, within: &[&str]) -> Scene {
        let path = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let program = env!("CARGO_BIN_EXE_sockdrawer");
        let mut words = within.to_vec();
        let at = path.to_str().expect("text");
        words.extend([program, "parent", at, "--", program, "serve", "ping", "-l", "127.0.0.1:0", "--upgrade", at]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let mut parent = Program::run(command);
        let line = parent.line();
        let at: SocketAddr = line.strip_prefix("listening on ").and_then(|at| at.parse().ok()).expect("an address");
        let client = TcpStream::connect(at).expect("it accepts");
        client.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut scene = Scene { parent, client, path };
        scene.is_served();
        scene
    }

    fn is_served(&mut self) {
        let mut answer = [0; 4];
        self.client.write_all(b"Ping").expect("it stands");
        self.client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"Pong");
    }

    fn serving(&self) -> Option<Pid> {
        serving(&self.path)
    }

    /// Waits until another process serves.
    fn replaced(&mut self, before: Option<Pid>) -> Option<Pid> {
        let began = Instant::now();
        while self.serving().is_none_or(|now| Some(now) == before) {
            assert!(began.elapsed() < PATIENCE, "it was not replaced");
        }
        self.is_served();
        self.serving()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Where the test failed: the parent's own death ends no server.
        self.serving().into_iter().for_each(|pid| _ = kill_process(pid, Signal::KILL));
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) fn serving(path: &Path) -> Option<Pid> {
    let status = Program::start(&["upgrade", path.to_str().expect("text"), "--status"]).end();
    let pid = status.stdout.strip_prefix("pid ")?.split_once(',')?.0;
    Pid::from_raw(pid.parse().expect("a number"))
}

#[test]
fn a_server_changes_its_process_and_its_parent_stays() {
    let mut scene = Scene::new("parent-stays", &[]);
    let first = scene.serving();
    scene.parent.signal(Signal::USR2);
    let second = scene.replaced(first);
    let upgraded = Program::start(&["upgrade", scene.path.to_str().expect("text")]).end();
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let third = scene.replaced(second);
    scene.parent.signal(Signal::USR2);
    scene.replaced(third);
    assert!(scene.parent.child.try_wait().expect("a child").is_none(), "it stays");
    scene.parent.signal(Signal::TERM);
    let ended = scene.parent.child.wait().expect("a child");
    assert_eq!((ended.code(), scene.serving()), (Some(0), None), "the server has drained, and none is left");
    let mut rest = Vec::new();
    assert_eq!(scene.client.read_to_end(&mut rest).expect("an orderly end"), 0);
}

#[test]
fn a_parent_ends_as_its_server_does() {
    let mut scene = Scene::new("parent-ends", &[]);
    let first = scene.serving();
    scene.parent.signal(Signal::USR2);
    let second = scene.replaced(first).expect("it serves");
    // The first one stands by, and serves again.
    kill_process(second, Signal::KILL).expect("it lives");
    scene.client = TcpStream::connect(scene.client.peer_addr().expect("its address")).expect("it listens");
    assert_eq!(scene.replaced(Some(second)), first);
    kill_process(first.expect("it serves"), Signal::KILL).expect("it lives");
    let ended = scene.parent.child.wait().expect("a child");
    assert_eq!(ended.code(), Some(128 + Signal::KILL.as_raw()));
    for (command, code, line) in [
        ("parent /nowhere -- /bin/false", 1, ""),
        ("parent /nowhere -- /bin/true", 0, ""),
        ("parent /nowhere -- /nowhere", 2, "cannot run `/nowhere`: No such file or directory"),
    ] {
        let end = Program::of(command).end();
        assert!(end.code == Some(code) && end.stderr.contains(line), "{command}: {end:?}");
    }
}

#[test]
fn process_1_of_a_container_stays_the_parent() {
    let within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new(within[0]).args(&within[1..]).arg("true").output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        eprintln!("skipped: this user may not make a namespace of processes");
        return;
    }
    let mut scene = Scene::new("parent-pid1", &within);
    // Seen from within, where the parent is process 1 and the first server another.
    let first = scene.serving();
    let upgraded = Program::start(&["upgrade", scene.path.to_str().expect("text")]).end();
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    scene.replaced(first);
    let parent = scene.parent.child.id();
    let init = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("it lives");
    let init = Pid::from_raw(init.trim().parse().expect("one child")).expect("a pid");
    kill_process(init, Signal::TERM).expect("it lives");
    assert_eq!(scene.parent.child.wait().expect("a child").code(), Some(0));
}
