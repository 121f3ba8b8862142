//! A process that is to be killed, with all that it has started: stopped first, so that what it has at its death can be counted.

use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::{Address, testing};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// A process that is not stopped by then is killed as it is.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// Processes that are stopped.
pub(crate) struct Victim {
    pids: Vec<Pid>,
}

impl Victim {
    /// Stops a process and all that it has started but `spared`, and what that has started.
    pub(crate) fn stop(root: Pid, spared: Pid) -> Victim {
        let mut victim = Victim { pids: Vec::new() };
        // It may start one more until it is stopped.
        loop {
            let more: Vec<Pid> = family(root, Some(spared)).into_iter().filter(|pid| !victim.pids.contains(pid)).collect();
            if more.is_empty() {
                return victim;
            }
            more.iter().for_each(|pid| _ = kill_process(*pid, Signal::STOP));
            let until = Instant::now() + STOPS_WITHIN;
            while more.iter().any(|pid| runs(*pid)) && Instant::now() < until {
                std::thread::yield_now();
            }
            victim.pids.extend(more);
        }
    }

    /// Returns how many connections at `target` it has, and whether it alone has a socket that listens there. Where it is the one that is taken over from,
    /// those of older processes count too: their successor dies, and they are drained.
    pub(crate) fn has(&self, target: &Address, survivor: Pid, is_old: bool) -> (u64, bool) {
        let sockets = |pids: &[Pid]| -> BTreeSet<u64> { pids.iter().flat_map(|pid| descriptors(*pid)).collect() };
        let (own, others) = (sockets(&self.pids), sockets(&family(survivor, None)));
        let there = at(target);
        // A connection that was not accepted has no number.
        let is_older = |inode: &u64| is_old && *inode != 0 && !others.contains(inode);
        let connections = there.iter().filter(|(inode, listens)| !listens && (own.contains(inode) || is_older(inode))).count();
        let alone = |(inode, listens): &(u64, bool)| *listens && own.contains(inode) && !others.contains(inode);
        (connections as u64, there.iter().any(alone))
    }

    pub(crate) fn kill(self) {
        // The first one last: the survivor sees its end, and must not find sockets in processes that it has started.
        self.pids.into_iter().rev().for_each(|pid| _ = kill_process(pid, Signal::KILL));
    }
}

/// Returns a process, and all below it but `spared`.
fn family(root: Pid, spared: Option<Pid>) -> Vec<Pid> {
    let mut all = vec![root];
    let mut looked_at = 0;
    while let Some(pid) = all.get(looked_at) {
        all.extend(children(*pid).into_iter().filter(|child| Some(*child) != spared).collect::<Vec<_>>());
        looked_at += 1;
    }
    all
}

/// Returns what a process has started, or has in the place of its parent.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text: String = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have any characters.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'S', 'D']))
}

fn descriptors(pid: Pid) -> impl Iterator<Item = u64> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links.filter_map(|link| {
        let to = fs::read_link(link.path()).ok()?;
        to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

/// Returns the server's sockets at an address, by their inode numbers, and whether each of them listens.
fn at(target: &Address) -> Vec<(u64, bool)> {
    match target {
        // The table in /proc has 60 s of connections that have ended, too.
        Address::Tcp(target) => testing::sockets_at(*target).unwrap_or_default(),
        target => {
            let name = target.to_string();
            let path = name.trim_start_matches("unix:");
            let table = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
            let socket = |line: &str| {
                let fields: Vec<&str> = line.strip_suffix(path)?.split_whitespace().collect();
                // The flag of a socket that listens.
                Some((fields.get(6)?.parse().ok()?, *fields.get(3)? == "00010000"))
            };
            table.lines().filter_map(socket).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    fn own() -> Victim {
        Victim { pids: vec![rustix::process::getpid()] }
    }

    #[test]
    fn connections_and_listeners_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let target = Address::Tcp(listener.local_addr().expect("it is bound"));
        let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(target.to_string()).expect("it listens")).collect();
        let accepted: Vec<_> = clients.iter().map(|_| listener.accept().expect("a connection")).collect();
        let mut other = Command::new("sleep").arg("100").spawn().expect("it starts");
        let (nothing, this) = (Pid::from_child(&other), rustix::process::getpid());
        assert_eq!(own().has(&target, nothing, false), (3, true));
        assert_eq!(own().has(&target, this, true), (3, false), "another process has the socket too");
        let path = std::env::temp_dir().join(format!("sockdrawer-victim-{}", std::process::id()));
        let unix = UnixListener::bind(&path).expect("a free name");
        let stream = UnixStream::connect(&path).expect("it listens");
        let one = unix.accept().expect("a connection");
        assert_eq!(own().has(&Address::Unix(path.clone()), nothing, false), (1, true));
        std::fs::remove_file(&path).expect("it is there");
        other.kill().expect("it runs");
        other.wait().expect("a child");
        drop((accepted, stream, one));
    }

    #[test]
    fn a_process_is_stopped_with_what_it_started_but_for_what_is_spared() {
        let mut shell = Command::new("sh").args(["-c", "sleep 100 & sleep 101 & wait"]).spawn().expect("it starts");
        let root = Pid::from_child(&shell);
        let until = Instant::now() + Duration::from_secs(10);
        while children(root).len() < 2 {
            assert!(Instant::now() < until, "it starts two");
        }
        let [spared, other] = children(root)[..] else { panic!("two children") };
        let victim = Victim::stop(root, spared);
        assert_eq!(victim.pids, [root, other]);
        assert!(!runs(root) && !runs(other) && runs(spared));
        victim.kill();
        kill_process(spared, Signal::KILL).expect("it runs");
        shell.wait().expect("a child");
    }
}
