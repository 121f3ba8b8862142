//! Upgrades leave nothing behind.

use super::common::{PATIENCE, any_port, is_long, play, role};
use super::place::{Place, config, many_sums, moved};
use super::sums::{add, build};
use sockdrawer::Address;
use std::time::{Duration, Instant};

/// Runs alone in its process: what it counts is the process's.
#[test]
fn nothing_is_left_of_those_that_were_replaced() {
    let name = "left::nothing_is_left_of_those_that_were_replaced";
    if role().is_none() {
        let mut alone = play(name, "alone");
        let told = alone.errors();
        assert!(alone.0.wait().expect("it ran").success(), "{told}");
        return println!("{told}");
    }
    let place = Place::new("left");
    let (mut pool, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 20);
    // Beyond the sum that is refused.
    clients.iter_mut().for_each(|client| _ = add(client, 99));
    let mut before = None;
    let upgrades = if is_long() { 1000 } else { 40 };
    for upgrade in 1..=upgrades {
        let (next, _) = place.serve(config(build(1)).listen(Address::Tcp(at)));
        moved(&pool, &next, 20);
        pool = next;
        clients.iter_mut().for_each(|client| assert_eq!(add(client, 1).1, 100 + upgrade));
        // The first few make what all have.
        if upgrade == 20 {
            before = Some(Left::now());
        }
    }
    let (before, mut after) = (before.expect("there were as many"), Left::now());
    let began = Instant::now();
    while !after.is_no_more_than(&before) && began.elapsed() < PATIENCE {
        // waits because: a thread that ends tells nothing, nor what it closes.
        std::thread::sleep(Duration::from_millis(10));
        after = Left::now();
    }
    eprintln!("after 20 upgrades {before:?}, after {upgrades} {after:?}");
    assert!(after.is_no_more_than(&before), "{before:?}, {after:?}");
}

#[derive(Debug)]
struct Left {
    descriptors: usize,
    threads: usize,
    kib: u64,
}

impl Left {
    fn now() -> Left {
        let count = |of: &str| std::fs::read_dir(format!("/proc/self/{of}")).expect("a list").count();
        let status = std::fs::read_to_string("/proc/self/status").expect("a text");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Left { descriptors: count("fd"), threads: count("task"), kib: kib.expect("a number") }
    }

    fn is_no_more_than(&self, other: &Left) -> bool {
        self.descriptors <= other.descriptors && self.threads <= other.threads && self.kib <= other.kib + 1024
    }
}
