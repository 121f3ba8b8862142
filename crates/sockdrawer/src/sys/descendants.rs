//! A process with all that it has started.

use rustix::process::{Pid, Signal, kill_process};

/// Kills a process, and what it has started and has not ended since: a shell around a program dies without that.
pub(crate) fn kill_with_descendants(pid: u32) {
    let descendants = children(pid);
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
    descendants.into_iter().for_each(kill_with_descendants);
}

/// Returns the children of a process: of each of its threads. None where the kernel does not say.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let all: String = threads.map(of_thread).collect();
    all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_shell_has_started_is_killed_with_it() {
        let mut shell = Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().expect("a shell");
        let until = Instant::now() + Duration::from_secs(20);
        let started = loop {
            if let [started, ..] = children(shell.id())[..] {
                break started;
            }
            assert!(Instant::now() < until, "waited for the shell to start a program");
            std::thread::yield_now();
        };
        kill_with_descendants(shell.id());
        shell.wait().expect("a child");
        // Its parent is gone: another process reaps it, or leaves it dead.
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with(['Z', 'X']))
        };
        while lives() {
            assert!(Instant::now() < until, "waited for the end of what the shell has started");
            std::thread::yield_now();
        }
    }
}
