//! Costs that a run tells, compared with what the kernel says of the processes.

use crate::program::{End, Program};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// The time of processes that have ended is known in ticks alone: of fewer than five of them nothing is told.
const OPERATIONS: u64 = 30_000;

/// Returns the costs of client and server in a run of pings.
fn run(target: &str) -> [Option<f64>; 2] {
    let words = format!("load ping {target} -c 4 -n {OPERATIONS} --interval 0 --timeout 20 --json -");
    let end = Program::of(&words).end();
    assert_eq!(end.code, Some(0), "{end:?}");
    costs(&end)
}

fn costs(end: &End) -> [Option<f64>; 2] {
    let report: Value = serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"));
    ["/client/cpu_seconds", "/server/cpu_seconds"].map(|pointer| report.pointer(pointer).expect("both are told").as_f64())
}

/// Checks that the costs are alike: each end of a ping has as much to do as the other, give or take.
#[track_caller]
fn are_alike(costs: [Option<f64>; 2]) {
    let [Some(client), Some(server)] = costs else { panic!("{costs:?} are not known") };
    assert!(server > client / 4.0 && client > server / 4.0, "{costs:?}");
    // An empty system call takes a tenth of a microsecond.
    assert!(server > OPERATIONS as f64 * 2e-7, "{costs:?} of {OPERATIONS} round trips");
}

/// Returns the processor time of a process and of those that it has waited for, in seconds.
fn used(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("its name is in parentheses").1.split_whitespace().collect();
    let ticks: u64 = fields[11..15].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn the_server_in_the_program_is_told_from_its_clients() {
    are_alike(run(""));
}

#[test]
fn a_server_that_is_a_process_is_found_under_every_model() {
    for model in ["loops", "tasks", "threads", "prefork", "fork"] {
        let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0", "--model", model]);
        let line = server.line();
        let before = used(server.child.id());
        let costs = run(line.strip_prefix("listening on ").expect("it says where"));
        are_alike(costs);
        if ["loops", "tasks", "threads"].contains(&model) {
            let (used, told) = (used(server.child.id()) - before, costs[1].unwrap_or_default());
            assert!((used - told).abs() < 0.05, "{model}: {used} s by the kernel, {told} s told");
        }
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, Some(0), "{model}");
    }
}

#[test]
fn a_server_on_a_unix_socket_is_found() {
    let path = std::env::temp_dir().join(format!("sockdrawer-cost-of-{}", std::process::id()));
    for address in [format!("unix:{}", path.display()), format!("unix:@sockdrawer-cost-of-{}", std::process::id())] {
        let mut server = Program::start(&["serve", "ping", "-l", &address]);
        assert_eq!(server.line(), format!("listening on {address}"));
        are_alike(run(&address));
        let second = Program::start(&["serve", "ping", "-l", &address]).end();
        assert_eq!(second.code, Some(2), "{second:?}");
        assert!(second.stderr.contains(&format!("cannot listen on {address}: the address is in use")), "{second:?}");
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, Some(0));
    }
    assert!(!path.exists(), "it goes with its server");
}

#[test]
fn what_nobody_serves_costs_nobody_knows_what() {
    let words = ["load", "ping", "127.0.0.1:1", "-c", "1", "-n", "1", "--interval", "0", "--json", "-"];
    let end = Program::start(&words).end();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.starts_with("1 connection, one ping"), "{end:?}");
    let [client, server] = costs(&end);
    assert!(client.is_some() && server.is_none(), "{end:?}");
}

#[test]
fn a_server_with_many_connections_says_what_each_of_them_takes() {
    for model in ["loops", "prefork"] {
        let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0", "--model", model]);
        let line = server.line();
        let target = line.strip_prefix("listening on ").expect("it says where");
        let words = format!("load ping {target} -c 1500 --hold 2s --interval 1s --timeout 20s --json -");
        let end = Program::of(&words).end();
        assert_eq!(end.code, Some(0), "{end:?}");
        let report: Value = serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"));
        let figure = |name: &str| report["server"][name].as_f64();
        let bytes = figure("bytes_per_connection");
        assert!(bytes.is_some_and(|bytes| (0.0..4_096.0).contains(&bytes)), "{model}: {report}");
        // Others on this machine open and close sockets too: the number is not held to a bound here.
        assert!(figure("kernel_bytes_per_connection").is_some(), "{model}: {report}");
        assert!(figure("cpu_us_per_operation").is_some_and(|cost| cost > 0.0), "{model}: {report}");
        assert!(figure("listen_overflows").is_some(), "{model}: {report}");
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, Some(0), "{model}");
    }
}
