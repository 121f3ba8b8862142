//! The kernel's own count, in a network that nobody else uses: each connection that stood on the passive side was accepted, or
//! waits to be.

use crate::{concurrent, seeds};
use sockdrawer::Model;
use sockdrawer::testing::private_network;
use std::process::Command;

/// Environment variable that says that this process is to be the one in a network of its own.
const ALONE: &str = "SOCKDRAWER_ORACLE";

/// Runs the test in a private network, which is for a process that has one thread yet: this program is started again for it.
pub(crate) fn test(name: &str, model: Model, cases: u64) {
    if std::env::var_os(ALONE).is_some() {
        return alone(name, model, cases);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let ended = Command::new(program).arg(name).env(ALONE, "1").status().expect("this program can be started again");
    assert!(ended.success(), "{name}: {ended}");
}

fn alone(name: &str, model: Model, cases: u64) {
    if let Err(error) = private_network() {
        return println!("{name}: skipped, this user may have no network of its own: {error}");
    }
    for seed in seeds::seeds(cases) {
        let before = passive_opens();
        let tally = concurrent::case(model, 0, seed);
        let opened = passive_opens() - before;
        let (accepted, lost) = (tally.accepted, tally.lost);
        // All queues were empty when it ended. One connection of some 100,000 is counted twice: two CPUs made a socket for it.
        assert!(
            (accepted..=accepted + lost + 1).contains(&opened),
            "PassiveOpens {opened}, accepted {accepted}, {lost} lost; {}",
            seeds::again(name, seed)
        );
    }
}

/// Returns `PassiveOpens` of this network: handshakes that listening sockets completed.
fn passive_opens() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/snmp").expect("/proc is mounted");
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let found = names.zip(values).find(|(name, _)| *name == "PassiveOpens").expect("TCP counts its handshakes");
    found.1.parse().expect("a number")
}
