//! The threads of this process: the server's, and all others.

use crate::proc::{self, scheduled};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Names of the threads that a pool starts for connections; clients have none of them.
const OF_CONNECTIONS: [&str; 2] = ["sockdrawer-conn", "sockdrawer-dele"];

/// Returns the CPU time of all threads of this process so far, of those that ended too.
pub(crate) fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn own() -> Duration {
    time(ClockId::ThreadCPUTime)
}

fn time(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

/// Returns the threads of this process.
pub(super) fn ids() -> BTreeSet<u32> {
    proc::ids("/proc/self/task").collect()
}

/// The server's threads, and what the others had used.
#[derive(Debug)]
pub(super) struct Threads {
    server: BTreeSet<u32>,
    others: BTreeMap<u32, Duration>,
}

impl Threads {
    /// Tells the server's threads apart: it has all but these. None where the kernel does not tell the time of a thread.
    pub(super) fn new(others: &BTreeSet<u32>) -> Option<Threads> {
        let server = ids().difference(others).copied().collect();
        let others = times(others.iter().copied())?;
        Some(Threads { server, others })
    }

    /// Returns the folders of the server's threads.
    pub(super) fn tasks(&self) -> impl Iterator<Item = String> {
        let here = std::process::id();
        self.server.iter().map(move |id| format!("/proc/{here}/task/{id}"))
    }

    /// Returns the CPU time that all other threads that are there have used since.
    pub(super) fn of_others(&self) -> Option<Duration> {
        let others = ids().into_iter().filter(|id| !self.server.contains(id) && !is_of_connection(*id));
        let used = |(id, now): (u32, Duration)| now.saturating_sub(self.others.get(&id).copied().unwrap_or_default());
        Some(times(others)?.into_iter().map(used).sum())
    }
}

fn is_of_connection(id: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
    OF_CONNECTIONS.contains(&name.trim_end())
}

/// Returns the CPU time of each thread. That of a thread that has just ended is in the whole alone. None where the kernel does not tell.
fn times(ids: impl Iterator<Item = u32>) -> Option<BTreeMap<u32, Duration>> {
    let this = fs::read_link("/proc/thread-self").ok()?;
    let this: u32 = this.file_name()?.to_str()?.parse().ok()?;
    // The table lags behind for a thread that runs, as this one does.
    let is_there = |id: &u32| Path::new(&format!("/proc/self/task/{id}")).exists();
    let time = |id| if id == this { Some(own()) } else { scheduled(&format!("/proc/self/task/{id}")) };
    ids.map(|id| (id, time(id))).filter(|(id, time)| time.is_some() || is_there(id)).map(|(id, time)| Some((id, time?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn work(time: Duration) {
        let until = own() + time;
        while own() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn time_grows_with_work() {
        let (process, thread) = (process_time(), own());
        work(Duration::from_millis(5));
        assert!(own() - thread >= Duration::from_millis(5));
        assert!(process_time() - process >= Duration::from_millis(5));
    }

    #[test]
    fn a_thread_at_rest_is_known_to_the_nanosecond() {
        let (worked, done) = mpsc::channel();
        let (leave, stay) = mpsc::channel::<()>();
        let worker = thread::spawn(move || {
            work(Duration::from_millis(20));
            let id = fs::read_link("/proc/thread-self").expect("threads have a folder");
            worked.send((id, own())).expect("the test waits for it");
            let _ = stay.recv();
        });
        let (id, told) = done.recv().expect("it works and tells");
        let folder = format!("/proc/{}", id.display());
        let state = || fs::read_to_string(format!("{folder}/stat")).expect("it is there");
        while !state().contains(") S") {
            thread::yield_now();
        }
        let seen = scheduled(&folder).expect("the kernel counts");
        assert!(seen >= told && seen < told + Duration::from_millis(5), "{seen:?}, by its own clock {told:?}");
        drop(leave);
        worker.join().expect("it ends");
    }
}
