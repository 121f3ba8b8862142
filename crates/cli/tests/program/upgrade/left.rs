//! Processes that were replaced: nothing is left of them.

use super::Scene;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of the first upgrades, which make what all have.
const FIRST: usize = 5;

/// Resources that a process has.
#[derive(Debug)]
struct Has {
    descriptors: usize,
    threads: usize,
    /// Memory of its own: how much of a file is in memory is no matter of upgrades.
    kib: u64,
    /// Children that have ended, and that it has not asked for.
    zombies: usize,
}

impl Has {
    fn now(pid: u32) -> Has {
        let entries = |of: &str| std::fs::read_dir(format!("/proc/{pid}/{of}")).expect("it lives");
        let children =
            entries("task").flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let zombies = |list: String| list.split_whitespace().filter(|child| state(child) == Some('Z')).count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
        Has {
            descriptors: entries("fd").count(),
            threads: entries("task").count(),
            kib: kib.expect("a number"),
            zombies: children.map(zombies).sum(),
        }
    }

    fn is_no_more_than(&self, other: &Has) -> bool {
        let Has { descriptors, threads, kib, zombies } = other;
        self.descriptors <= *descriptors && self.threads <= *threads && self.kib <= kib + 1024 && self.zombies <= *zombies
    }
}

/// Returns the state of a process. None: there is no such process.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Looks again until it is so.
fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        // waits because: neither a thread that ends nor another parent's process tells anything.
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn nothing_is_left_of_processes_that_were_replaced() {
    let mut scene = Scene::new("upgrade-left", None);
    let (mut pids, mut before) = (vec![scene.server.child.id()], None);
    let upgrades = if std::env::var_os("SOCKDRAWER_LONG").is_some() { 100 } else { 2 * FIRST };
    for upgrade in 1..=upgrades {
        // An upgrade that comes to nothing leaves nothing either.
        assert_eq!(scene.upgrade("-- /bin/false").code, Some(1));
        let told = scene.upgrade("");
        assert_eq!(told.code, Some(0), "{told:?}");
        let pid = scene.serves_alone(told.stdout.lines().last().expect("a last line"));
        scene.is_served();
        pids.push(pid);
        if upgrade == FIRST {
            before = Some(Has::now(pid));
        }
    }
    let (before, last) = (before.expect("there were as many"), *pids.last().expect("one"));
    assert!(comes(|| Has::now(last).is_no_more_than(&before)), "{before:?}, {:?}", Has::now(last));
    println!("after {FIRST} upgrades {before:?}, after {upgrades} {:?}", Has::now(last));
    // All but the last and the one before it, which stands by. To reap the others is their parents' matter, which have ended.
    let ended = |pid: &u32| matches!(state(&pid.to_string()), None | Some('Z'));
    assert!(comes(|| pids[..upgrades - 1].iter().all(ended)), "{pids:?}");
}
