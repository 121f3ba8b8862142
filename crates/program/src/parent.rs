//! `parent`: stays the parent of a server that is replaced by new builds of itself, for what follows one process only: process 1 of
//! a container, runit, s6. It has no socket and no thread that could hold it up, only the children of the server.

use crate::arguments::ParentArguments;
use crate::outcome::{Exit, Failure};
use crate::{executable, print, signals};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, set_child_subreaper, test_kill_process, wait};
use signal_hook::consts::SIGUSR2;
use sockdrawer::listening::PARENT;
use sockdrawer::upgrade::Replace;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

/// A server that does not say within this time that it serves gets no signal; the one that served last does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// News for the main thread.
enum News {
    Signal(i32),
    Ended(Pid, WaitStatus),
    /// No child is left.
    Childless,
}

/// The server, whichever process it is now.
struct Server {
    /// The path at which it meets its next build; without it, it is never replaced.
    path: Option<PathBuf>,
    command: Vec<OsString>,
    /// The process that served when it was last looked for.
    pid: Pid,
    /// The server was met at the path: from then on, where none is met there, none serves.
    met: bool,
}

/// Starts the server and stays until none serves any more. Ends as the last one did.
pub(crate) fn run(arguments: ParentArguments) -> Result<Exit, Failure> {
    stay(Some(arguments.path), arguments.command)
}

/// Starts a server and stays until none serves any more, its parent and that of all processes that lost theirs: process 1 alone can reap those.
pub(crate) fn stay(path: Option<PathBuf>, command: Vec<OsString>) -> Result<Exit, Failure> {
    command.first().map_or(Ok(()), |program| executable::find(program))?;
    // A child of the server is this process's once the server is gone. Process 1 has that right anyway.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
    let (news, told) = mpsc::channel();
    let signalled = news.clone();
    signals::pass_on(move |signal| drop(signalled.send(News::Signal(signal))))?;
    let pid = start(&command, false)?;
    // The server has them.
    drop(sockdrawer::listening::passed_sockets());
    let mut server = Server { path, command, pid, met: false };
    spawn(move || reap(&news))?;
    let mut last = None;
    loop {
        match told.recv().expect("the signals' thread has a sender") {
            News::Signal(SIGUSR2) if server.path.is_some() => server.replace(),
            News::Signal(signal) => server.pass_on(signal),
            News::Ended(pid, status) => {
                last = Some(status);
                if !server.serves(pid) {
                    return end(status);
                }
            }
            News::Childless => return last.map_or(Ok(Exit::Ok), end),
        }
    }
}

/// Tells of each child that ends, those included that this process did not start.
fn reap(news: &Sender<News>) {
    loop {
        let told = match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => news.send(News::Ended(pid, status)),
            Err(rustix::io::Errno::CHILD) => {
                let _ = news.send(News::Childless);
                return;
            }
            _ => continue,
        };
        if told.is_err() {
            return;
        }
    }
}

/// Starts a command in a process group of its own: a Ctrl-C at a terminal reaches it once, by this process.
fn start(command: &[OsString], replaces: bool) -> Result<Pid, Failure> {
    let [program, arguments @ ..] = command else { return Err(Failure::usage("no COMMAND: name it behind --")) };
    let mut command = Command::new(program);
    let own = std::process::id().to_string();
    command.args(arguments).process_group(0).env(PARENT, &own);
    if std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == own) {
        // The manager hears of the server that this process lives, too.
        command.env_remove("WATCHDOG_PID");
    }
    if replaces {
        command.env("SOCKDRAWER_REPLACES", "any");
        // A manager's sockets come from the server that runs.
        ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].iter().for_each(|name| _ = command.env_remove(name));
    }
    let started = command.spawn();
    let child = started.map_err(|error| Failure::run(format_args!("cannot start {}: {error}", program.display())))?;
    Ok(Pid::from_child(&child))
}

impl Server {
    /// Starts the command again: the file that stands there now takes over.
    fn replace(&mut self) {
        // The one that is replaced may be gone before the next is looked for.
        self.look();
        if let Err(failure) = start(&self.command, true) {
            print::tell_within(Duration::ZERO, format_args!("error: {failure}; the server goes on"));
        }
    }

    fn pass_on(&mut self, signal: i32) {
        self.look();
        if let Some(signal) = Signal::from_named_raw(signal) {
            // It may have ended: then that is told next.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Finds the process that serves now; where it does not say so, it is the one that did.
    fn look(&mut self) {
        let Some(path) = &self.path else { return };
        let (says, said) = mpsc::channel();
        let replace = Replace::at(path);
        // A server that hangs must not keep signals from it.
        let looked = spawn(move || drop(says.send(replace.build())));
        let found = looked.ok().and_then(|()| said.recv_timeout(ANSWERS_WITHIN).ok()?.ok());
        if let Some(pid) = found.and_then(|build| Pid::from_raw(build.pid.cast_signed())) {
            (self.pid, self.met) = (pid, true);
        }
    }

    /// Returns whether a process serves after this one has ended.
    fn serves(&mut self, ended: Pid) -> bool {
        let Some(path) = &self.path else { return self.pid != ended };
        // A stream does not get to a socket of packets, but where no process listens the error is another one.
        let none = UnixStream::connect(path)
            .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused));
        if !none {
            self.look();
            return true;
        }
        !self.met && self.pid != ended && test_kill_process(self.pid).is_ok()
    }
}

/// Ends as the server ended.
fn end(status: WaitStatus) -> Result<Exit, Failure> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(Exit::Ok),
        (code, signal) => std::process::exit(code.unwrap_or_else(|| 128 + signal.unwrap_or_default())),
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = thread::Builder::new().name("parent".to_owned()).spawn(run);
    spawned.map(drop).map_err(|error| Failure::run(format_args!("cannot start a thread: {error}")))
}
