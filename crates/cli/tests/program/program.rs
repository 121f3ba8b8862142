//! The program as a child process, followed by what it prints.

use crate::faults::PATIENCE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::SIGHUP;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// A running program, ended when a test leaves it.
pub(crate) struct Program {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) stderr: BufReader<ChildStderr>,
}

/// End of a program, and what it had still to say.
#[derive(Debug)]
pub(crate) struct End {
    /// Exit code of the program.
    pub(crate) code: Option<i32>,
    /// The rest of its standard output.
    pub(crate) stdout: String,
    /// The rest of its standard error.
    pub(crate) stderr: String,
}

/// Copies a program, to be started. Another process writes it: what this one has open, a child that another test starts at this moment has too,
/// and a file that is open for writing cannot be started.
pub(crate) fn install(from: &Path, to: &Path) {
    let done = Command::new("install").args(["-m", "755"]).args([from, to]).output().expect("coreutils are there");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

impl Program {
    /// Starts it with these words.
    pub(crate) fn start(words: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        command.args(words);
        Program::run(command)
    }

    /// Starts it with the words of this text.
    pub(crate) fn of(text: &str) -> Program {
        Program::start(&text.split_whitespace().collect::<Vec<_>>())
    }

    /// Starts it as this command.
    pub(crate) fn run(mut command: Command) -> Program {
        hear_hangups();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        Program { child, stdout, stderr }
    }

    /// Returns the next line of its standard output.
    pub(crate) fn line(&mut self) -> String {
        line(&mut self.stdout)
    }

    /// Returns the next line of its standard error.
    pub(crate) fn error_line(&mut self) -> String {
        line(&mut self.stderr)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child that nobody has waited for can be signalled");
    }

    /// Returns true where its first thread waits in a system call.
    pub(crate) fn is_asleep(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a child");
        stat.rsplit(") ").next().is_some_and(|state| state.starts_with('S'))
    }

    /// Stops it, and waits until it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED).expect("a child");
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> End {
        // Standard error is short in these tests: it fits into the pipe while standard output is read.
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("it prints text");
        self.stderr.read_to_string(&mut stderr).expect("it prints text");
        let status = self.child.wait().expect("a child can be waited for");
        End { code: status.code(), stdout, stderr }
    }
}

/// Handles SIGHUP: under `nohup` programs that tests start would ignore it. exec sets a signal that has a handler back to its default action.
pub(crate) fn hear_hangups() {
    static HEARD: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
        let heard = Arc::default();
        signal_hook::flag::register(SIGHUP, Arc::clone(&heard)).expect("SIGHUP can be handled");
        heard
    });
    LazyLock::force(&HEARD);
}

/// Runs `load` until its end.
pub(crate) fn load(words: &str) -> End {
    Program::of(&format!("load {words}")).end()
}

/// Returns the next line of a program that lives, without its end; empty at the end of what there is. The test fails where none comes in time.
fn line<R: Read + AsFd>(from: &mut BufReader<R>) -> String {
    let mut line = String::new();
    if from.buffer().is_empty() {
        let mut readable = [PollFd::new(from.get_ref(), PollFlags::IN)];
        let within = PATIENCE.try_into().expect("a time");
        assert_eq!(poll(&mut readable, Some(&within)), Ok(1), "no line within {PATIENCE:?}");
    }
    from.read_line(&mut line).expect("it prints text");
    line.trim_end().to_owned()
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
