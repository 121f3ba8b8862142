//! The command that changes the server.

use crate::Stopped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The timeout of a command.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);
/// The time for which a command that is asked to end may go on.
const GRACE: Duration = Duration::from_secs(1);
/// The time between two checks whether the trial was stopped.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Maximum of a command's output that is shown, in bytes: its end.
const SHOWN: usize = 2_000;
/// Maximum of a command's output that is kept, in bytes, except for what it writes between two checks.
const KEPT: u64 = 1 << 20;

/// End of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Signalled(i32),
    /// It did not end within 60 s, and was killed with its process group.
    TimedOut,
    /// The trial was stopped meanwhile, and the command was killed with its process group.
    Stopped,
    /// It could not be started.
    NotStarted(String),
    /// An upgrade: it was refused, or nothing served after it.
    Failed(String),
}

impl Ended {
    /// Returns true where the command did what it should: it exited with 0.
    pub fn is_success(&self) -> bool {
        *self == Ended::Exited(0)
    }

    /// Returns true where it did not, and not because the trial was stopped.
    pub fn has_failed(&self) -> bool {
        !self.is_success() && *self != Ended::Stopped
    }

    /// Returns the exit status, if the command exited.
    pub fn status(&self) -> Option<i32> {
        match self {
            Ended::Exited(status) => Some(*status),
            _ => None,
        }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited(status) => write!(f, "{status}"),
            Ended::Signalled(signal) => write!(f, "signal {signal}"),
            Ended::TimedOut => f.write_str("time-out"),
            Ended::Stopped => f.write_str("stopped"),
            Ended::NotStarted(_) => f.write_str("not started"),
            Ended::Failed(_) => f.write_str("failed"),
        }
    }
}

/// A run of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// End of the command.
    pub ended: Ended,
    /// The time that the command took.
    pub took: Duration,
    /// The end of the output to standard output and standard error.
    pub said: String,
    /// An upgrade: what it may cost.
    pub promise: Option<Promise>,
}

/// Maximum cost of an upgrade in which a process may be killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// The change, in two words.
    pub change: &'static str,
    /// A process was killed.
    pub killed: bool,
    /// The connections of the process that was killed.
    pub connections: u64,
    /// Connections that moved to the next process, in an upgrade that was left alone.
    pub moved: u64,
    /// Connections that stayed in the process before.
    pub stayed: u64,
    /// Reasons why connections stayed, each once.
    pub left_behind: Vec<String>,
    /// State that connections share which the next build does not take, a line each.
    pub dropped: Vec<String>,
    /// It was the only one that listened, so that connects may fail until the next process does.
    pub may_refuse: bool,
}

impl Ran {
    /// Returns true for an upgrade in which a process was killed.
    pub(crate) fn is_kill(&self) -> bool {
        self.promise.as_ref().is_some_and(|promise| promise.killed)
    }
}

impl Promise {
    /// Returns true for an upgrade without a kill.
    pub(crate) fn is_left_alone(&self) -> bool {
        !self.killed && !self.change.is_empty()
    }
}

/// Runs `command` by `sh -c`, in a process group of its own. Meanwhile `tick` is called at each check.
pub(crate) fn run(command: &str, stop: Stopped<'_>, mut tick: impl FnMut()) -> Ran {
    let begun = Instant::now();
    let ran = start(command).and_then(|(child, said)| Ok((follow(child, &said, stop, begun, &mut tick)?, said.tail()?)));
    let took = begun.elapsed();
    match ran {
        Ok((ended, said)) => Ran { ended, took, said, promise: None },
        Err(error) => Ran { ended: Ended::NotStarted(error.to_string()), took, said: String::new(), promise: None },
    }
}

fn start(command: &str) -> io::Result<(Child, Output)> {
    let said = Output::new()?;
    let (out, err) = said.pair()?;
    let child = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).spawn()?;
    Ok((child, said))
}

fn follow(mut child: Child, said: &Output, stop: Stopped<'_>, begun: Instant, tick: &mut impl FnMut()) -> io::Result<Ended> {
    let pid = Pid::from_child(&child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if ends(&descriptor, TICK)? {
            return Ok(ended(child.wait()?));
        }
        tick();
        said.forget()?;
        let because = match (stop(Duration::ZERO), begun.elapsed() >= WITHIN) {
            (true, _) => Ended::Stopped,
            (_, true) => Ended::TimedOut,
            _ => continue,
        };
        end(pid, &descriptor)?;
        child.wait()?;
        return Ok(because);
    }
}

/// Ends the whole process group, so that all processes of the command end with it: first by SIGTERM, then by SIGKILL.
fn end(group: Pid, descriptor: &OwnedFd) -> io::Result<()> {
    kill_process_group(group, Signal::TERM)?;
    ends(descriptor, GRACE)?;
    match kill_process_group(group, Signal::KILL) {
        // The group is empty.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns true where the process ends within this time.
pub(crate) fn ends(descriptor: &OwnedFd, within: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(within).expect("a short time");
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    match poll(&mut watched, Some(&timeout)) {
        Ok(events) => Ok(events > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or(0)),
    }
}

/// The output of processes: a file in memory, because a pipe would stay open as long as any process that is left running.
pub(crate) struct Output(File);

impl Output {
    pub(crate) fn new() -> io::Result<Output> {
        Ok(Output(File::from(memfd_create("sockdrawer-command", MemfdFlags::CLOEXEC)?)))
    }

    /// Returns standard output and standard error. One open file description: both append in the order of writing.
    pub(crate) fn pair(&self) -> io::Result<(Stdio, Stdio)> {
        Ok((Stdio::from(self.0.try_clone()?), Stdio::from(self.0.try_clone()?)))
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn length(&self) -> u64 {
        self.0.metadata().map_or(0, |file| file.len())
    }

    /// Frees the memory of all but the end.
    pub(crate) fn forget(&self) -> io::Result<()> {
        let length = self.0.metadata()?.len();
        if length > KEPT {
            fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length - KEPT)?;
        }
        Ok(())
    }

    pub(crate) fn tail(&self) -> io::Result<String> {
        self.since(0)
    }

    /// Returns the end of what was written behind this number of bytes.
    pub(crate) fn since(&self, from: u64) -> io::Result<String> {
        let length = self.0.metadata()?.len();
        let start = length.saturating_sub(KEPT).max(from);
        let mut bytes = vec![0; usize::try_from(length - start).expect("at most what is kept")];
        self.0.read_exact_at(&mut bytes, start)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !is_of_backtrace(line)).collect();
        let text = lines.join("\n");
        let start = (text.len().saturating_sub(SHOWN)..).find(|at| text.is_char_boundary(*at)).expect("the end is one");
        Ok(text[start..].trim().to_owned())
    }
}

/// Returns whether a line is of the backtrace of a panic: it would hide the line that says why.
fn is_of_backtrace(line: &str) -> bool {
    let frame = line.trim_start();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    line == "stack backtrace:"
        || line.starts_with("note: Some details are omitted, run with `RUST_BACKTRACE")
        || (frame.len() < line.len()
            && (frame.starts_with("at ") || frame.split_once(": ").is_some_and(|(number, _)| is_number(number))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn ran(command: &str) -> Ran {
        run(command, &|_| false, || {})
    }

    #[test]
    fn a_command_is_told_by_its_end_and_its_words() {
        let ran_well = ran("echo out; echo err >&2");
        assert_eq!((ran_well.ended, ran_well.said.as_str()), (Ended::Exited(0), "out\nerr"));
        assert_eq!(ran("exit 7").ended, Ended::Exited(7));
        assert_eq!(ran("kill -9 $$").ended, Ended::Signalled(9));
        assert_eq!(ran("nothing-of-this-name").ended, Ended::Exited(127));
        let backtrace = ran(
            r#"printf 'a: panicked\nwhy\nstack backtrace:\n   0: core::f\n             at /rustc/a.rs:1\n  12: b::c\n'; echo after"#,
        );
        assert_eq!(backtrace.said, "a: panicked\nwhy\nafter");
        let long = ran("i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done").said;
        assert!(long.len() <= 2_000 && long.ends_with("line 999"), "{long}");
    }

    #[test]
    fn a_command_that_says_very_much_takes_little_memory() {
        let (child, said) = start("head -c 20000000 /dev/zero; echo the end; exec sleep 50").expect("starts");
        let stop = std::cell::Cell::new(false);
        let mut look = || {
            let told = said.0.metadata().expect("it is there");
            if told.len() > 20_000_000 && 512 * told.blocks() <= 2 * KEPT {
                stop.set(true);
            }
        };
        assert_eq!(follow(child, &said, &|_| stop.get(), Instant::now(), &mut look).expect("it is awaited"), Ended::Stopped);
        assert!(said.tail().expect("it is read").ends_with("the end"));
    }

    #[test]
    fn what_a_command_leaves_running_is_not_awaited() {
        let left = ran("sleep 30 & echo $!");
        assert!(left.ended.is_success() && left.took < Duration::from_secs(10), "{left:?}");
        assert!(ran(&format!("kill {}", left.said)).ended.is_success(), "it still runs");
    }

    #[test]
    fn a_stop_ends_the_command_with_its_group() {
        let stop = std::cell::Cell::new(false);
        let mut ticks = 0;
        let stopped = run("echo begun; sleep 30 & echo $!; wait", &|_| stop.get(), || {
            ticks += 1;
            if ticks == 2 {
                stop.set(true);
            }
        });
        assert_eq!(stopped.ended, Ended::Stopped);
        let child = stopped.said.lines().nth(1).expect("it told its child");
        // A zombie that was not waited for yet counts as gone. A process that stays is noticed by the timeout of a command.
        let gone = ran(&format!("while grep -qs '^State:.[^Z]' /proc/{child}/status; do :; done"));
        assert!(gone.ended.is_success(), "{gone:?}");
    }
}
