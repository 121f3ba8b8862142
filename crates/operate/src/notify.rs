//! Messages to a service manager such as systemd, by datagrams to the socket that the variable `NOTIFY_SOCKET` names
//! ([sd_notify(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html)). Without the variable, nothing is sent.
//!
//! The watchdog is told that the program is alive while the status of each pool can be had and no loop is stuck. The manager restarts the
//! program for what only a restart mends: threads that wait for each other, and a loop that a protocol's code never returns to. A pool that
//! gave up, a full limit and a drain are no reasons.

use crate::lock::lock;
use sockdrawer::observe::{Event, Status};
use sockdrawer_catalog::count::thousands;
use std::fmt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The status line is looked at this often.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// A manager has few places for what it has not read, 10 by the kernel's default: it gets this long to read, and misses a word after that.
const READ_WITHIN: Duration = Duration::from_millis(100);
/// Maximum time of the end beside the drain.
const END: Duration = Duration::from_secs(10);

/// The manager of this service, if there is one.
pub(crate) struct Manager {
    to: Option<SocketAddr>,
    /// Interval at which the manager is told that the program is alive.
    watchdog: Option<Duration>,
    is_main: AtomicBool,
    /// The manager follows a process that stays while builds change, whatever serves.
    has_parent: bool,
    /// Reason why the last change that was asked for was not made.
    failure: Mutex<Option<String>>,
}

/// The variables of its protocol.
#[derive(Default)]
struct Variables {
    socket: Option<std::ffi::OsString>,
    /// Time of the watchdog, in microseconds.
    watchdog: Option<String>,
    /// The process that the watchdog watches.
    watched: Option<String>,
    has_parent: bool,
}

impl Manager {
    /// Returns the manager that the environment names. A program that took over has the environment of the process that the manager started.
    pub(crate) fn of_environment(took_over: bool) -> Manager {
        let text = |name| std::env::var(name).ok();
        let variables = Variables {
            socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog: text("WATCHDOG_USEC"),
            watched: text("WATCHDOG_PID").filter(|_| !took_over),
            has_parent: text(sockdrawer::listening::PARENT).is_some(),
        };
        Manager::of(&variables)
    }

    fn of(variables: &Variables) -> Manager {
        let to = variables.socket.as_ref().and_then(|name| match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        let own = std::process::id().to_string();
        let watched = variables.watched.as_ref().is_none_or(|pid| *pid == own);
        let within =
            variables.watchdog.as_ref().filter(|_| watched).and_then(|text| text.parse().ok()).filter(|within| *within > 0);
        // As sd_watchdog_enabled(3) recommends.
        let watchdog = within.map(|within| Duration::from_micros(within) / 2);
        Manager { to, watchdog, is_main: AtomicBool::new(true), has_parent: variables.has_parent, failure: Mutex::default() }
    }

    /// Returns whether this process is the service's main one: no new build has taken over from it.
    pub(crate) fn is_main(&self) -> bool {
        self.is_main.load(Ordering::Acquire)
    }

    /// Sends lines of `NAME=value`, unless another process is the service's main one. A manager that does not take them is none of the server's
    /// business.
    fn send(&self, lines: impl fmt::Display) {
        if self.is_main() {
            self.send_always(lines);
        }
    }

    fn send_always(&self, lines: impl fmt::Display) {
        let Some(to) = &self.to else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_write_timeout(Some(READ_WITHIN))?;
            socket.send_to_addr(lines.to_string().as_bytes(), to)
        });
        drop(sent);
    }

    /// Tells that the program serves.
    pub(crate) fn ready(&self, line: &Line) {
        self.send(format_args!("READY=1\nSTATUS={}", self.with_failure(line)));
    }

    /// Tells that a change begins: the manager waits for the end of it.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self.send(format_args!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
    }

    /// Tells the end of a change. What failed stays in the status until a change is made.
    pub(crate) fn reloaded(&self, line: &Line, failure: Option<&dyn fmt::Display>) {
        self.failed(failure.map(|why| format!("not reloaded: {why}")));
        self.ready(line);
    }

    /// Tells that a new build could not take over.
    pub(crate) fn not_replaced(&self, line: &Line, why: impl fmt::Display) {
        self.failed(Some(format!("not replaced: {why}")));
        self.ready(line);
    }

    fn failed(&self, why: Option<String>) {
        // A status is a line.
        let why = why.map(|why| why.lines().next().unwrap_or_default().to_owned());
        *lock(&self.failure) = why;
    }

    /// Tells that the program ends, within this time: the manager waits that long, whatever its unit or its system has for a limit.
    pub(crate) fn stopping(&self, drain: Duration) {
        self.send(format_args!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", drain.saturating_add(END).as_micros()));
    }

    /// Tells that the main process is another one once a new build has taken over, and this one where that died; under a parent it stays that.
    pub(crate) fn tell(&self, event: &Event) {
        let main = |pid: u32| if self.has_parent { String::new() } else { format!("MAINPID={pid}\n") };
        match event {
            Event::HandedOver { pid } => {
                self.is_main.store(false, Ordering::Release);
                self.send_always(format_args!("{}READY=1", main(*pid)));
            }
            Event::TakenBack => {
                self.is_main.store(true, Ordering::Release);
                self.send(format_args!("{}READY=1\nSTATUS=the new build died", main(std::process::id())));
            }
            _ => {}
        }
    }

    /// Tells it from now on, in a thread of its own, that the program is alive, and what it does where that has changed; until there is
    /// nothing to look at.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn keep_told(self: &Arc<Self>, mut look: impl FnMut() -> Option<Line> + Send + 'static) -> std::io::Result<()> {
        let (manager, every) = (self.clone(), self.watchdog.unwrap_or(STATUS_EVERY).min(STATUS_EVERY));
        if manager.to.is_none() {
            return Ok(());
        }
        // READY=1 came with this status.
        let mut told = look().map(|line| manager.with_failure(&line)).unwrap_or_default();
        let tell = move || {
            while let Some(line) = look() {
                manager.tell_again(&line, &mut told);
                std::thread::sleep(every);
            }
        };
        std::thread::Builder::new().name("notify".to_owned()).spawn(tell).map(drop)
    }

    fn tell_again(&self, line: &Line, told: &mut String) {
        let status = self.with_failure(line);
        if *told != status {
            self.send(format_args!("STATUS={status}"));
            *told = status;
        }
        if self.watchdog.is_some() && line.stuck == 0 {
            self.send("WATCHDOG=1");
        }
    }

    fn with_failure(&self, line: &Line) -> String {
        match &*lock(&self.failure) {
            Some(why) => format!("{line}; {why}"),
            None => line.to_string(),
        }
    }
}

/// Content of the status line.
pub(crate) struct Line {
    pools: usize,
    connections: usize,
    revision: u64,
    ending: bool,
    /// Loops that do not turn.
    stuck: usize,
}

impl Line {
    /// Makes the line about all pools.
    pub(crate) fn of(pools: impl Iterator<Item = Status>, (revision, ending): (u64, bool)) -> Line {
        let mut line = Line { pools: 0, connections: 0, revision, ending, stuck: 0 };
        for status in pools {
            line.pools += 1;
            line.connections += status.connections;
            line.stuck += status.loops.iter().filter(|one| one.stuck).count();
        }
        line
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { pools, connections, revision, ending, stuck } = *self;
        let counted =
            |count: usize, what: &str| format!("{} {what}{}", thousands(count as u64), if count == 1 { "" } else { "s" });
        if ending {
            return write!(f, "draining, {}", counted(connections, "connection"));
        }
        write!(f, "{}, {}, revision {revision}", counted(pools, "pool"), counted(connections, "connection"))?;
        match stuck {
            0 => Ok(()),
            stuck => write!(f, ", {} stuck", counted(stuck, "loop")),
        }
    }
}

#[cfg(test)]
mod tests;
