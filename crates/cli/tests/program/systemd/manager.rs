//! Messages to a service manager.

use super::activated::folder;
use super::is_there;
use crate::program::Program;
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The manager's socket.
struct Manager {
    socket: UnixDatagram,
    folder: PathBuf,
}

impl Manager {
    fn new(name: &str) -> Manager {
        let folder = folder(name);
        let socket = UnixDatagram::bind(folder.join("notify")).expect("a free path");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        Manager { socket, folder }
    }

    /// Starts a server with these options, which this manages.
    fn serve(&self, words: &str, (name, value): (&str, &str)) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        command.args(["serve"]).args(words.split_whitespace()).env("NOTIFY_SOCKET", self.folder.join("notify")).env(name, value);
        Program::run(command)
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("it is told something");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Returns all that is told until this, which is the last.
    fn until(&self, with: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.push(self.next());
            if all.last().is_some_and(|last| last.contains(with)) {
                return all;
            }
            assert!(all.len() < 300, "{with}: {:?}", &all[..9]);
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_life_of_a_service_is_told() {
    let manager = Manager::new("life");
    let file = manager.folder.join("c.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("a file can be written");
    write("[pool.a]\nprotocol = 'ping'\nlisten = '127.0.0.1:0'\ndrain = '100s'\n");
    let words = format!("--config {} --control {}", file.display(), manager.folder.join("control").display());
    let mut server = manager.serve(&words, ("NAME", "value"));
    assert_eq!(manager.next(), "READY=1\nSTATUS=1 pool, 0 connections, revision 1");
    assert_eq!(server.line().split(':').next(), Some("listening on 127.0.0.1"));
    write("[pool.a]\nprotocol = 'ping'\nlisten = '127.0.0.1:0'\ndrain = '100s'\nlimit = 10\n");
    server.signal(Signal::HUP);
    manager.until("RELOADING=1\nMONOTONIC_USEC=");
    assert_eq!(manager.until("READY=1").last().map(String::as_str), Some("READY=1\nSTATUS=1 pool, 0 connections, revision 2"));
    write("[pool.a]\nprotocol = 'pong'\n");
    server.signal(Signal::HUP);
    manager.until("RELOADING=1\n");
    let failed = manager.until("READY=1").pop().expect("a last one");
    assert!(failed.contains("revision 2; not reloaded: ") && failed.contains("pong"), "{failed}");
    server.signal(Signal::TERM);
    assert_eq!(manager.until("STOPPING=1").last().map(String::as_str), Some("STOPPING=1\nEXTEND_TIMEOUT_USEC=110000000"));
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn the_watchdog_is_kept_over_an_upgrade() {
    let manager = Manager::new("kept");
    let path = manager.folder.join("upgrade");
    let words = format!("ping -l 127.0.0.1:0 --loops 1 --upgrade {}", path.display());
    let mut server = manager.serve(&words, ("WATCHDOG_USEC", "200000"));
    server.line();
    manager.until("WATCHDOG=1");
    server.signal(Signal::USR2);
    let told = manager.until("MAINPID=");
    let pid = told.last().and_then(|last| last.split(['=', '\n']).nth(1)).and_then(|pid| pid.parse().ok()).expect("a pid");
    let next = rustix::process::Pid::from_raw(pid).expect("a pid");
    // The predecessor says no more.
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    manager.until("WATCHDOG=1");
    manager.until("WATCHDOG=1");
    rustix::process::kill_process(next, Signal::TERM).expect("it runs");
    manager.until("STOPPING=1");
}

/// The manager follows the parent, which is no server.
#[test]
fn the_main_process_is_the_parent_that_stays() {
    let manager = Manager::new("parent");
    let path = manager.folder.join("upgrade");
    let path = path.to_str().expect("text");
    // The watchdog's process is the one that sh becomes.
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let mut command = Command::new("sh");
    command.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh", program, "parent", path, "--", program, "serve", "ping"]);
    command.args(["-l", "127.0.0.1:0", "--loops", "1", "--upgrade", path]);
    command.env("NOTIFY_SOCKET", manager.folder.join("notify")).env("WATCHDOG_USEC", "200000");
    let mut parent = Program::run(command);
    parent.line();
    let before = manager.until("WATCHDOG=1");
    parent.signal(Signal::USR2);
    let handed_over = manager.until("READY=1");
    let after = manager.until("WATCHDOG=1");
    let told: Vec<&String> = before.iter().chain(&handed_over).chain(&after).filter(|line| line.contains("MAINPID")).collect();
    assert_eq!(told, [""; 0], "it stays");
    parent.signal(Signal::TERM);
    manager.until("STOPPING=1");
    assert_eq!(parent.child.wait().expect("a child").code(), Some(0));
}

#[test]
fn datagrams_are_those_of_the_real_systemd_notify() {
    if !is_there("systemd-notify") {
        return;
    }
    let manager = Manager::new("datagrams");
    let real = |words: &[&str]| {
        let mut command = Command::new("systemd-notify");
        let status = command.args(words).env("NOTIFY_SOCKET", manager.folder.join("notify")).status();
        assert!(status.expect("it starts").success());
        manager.next()
    };
    let status = "1 pool, 0 connections, revision 1";
    let ready = real(&["--no-block", "--ready", &format!("--status={status}")]);
    let stopping = real(&["--no-block", "STOPPING=1", "EXTEND_TIMEOUT_USEC=40000000"]);
    let server = manager.serve("ping -l 127.0.0.1:0", ("NAME", "value"));
    assert_eq!(manager.next(), ready);
    server.signal(Signal::TERM);
    assert_eq!(manager.until("STOPPING").last(), Some(&stopping));
}
