//! Guards against much load on machines that need not be one's own: it is refused unless it is said to be meant.

use crate::outcome::Failure;
use crate::values::number;
use crate::workload::usage;
use sockdrawer::Address;
use sockdrawer_load::Plan;
use std::net::IpAddr;
use std::time::Duration;

const MAX_CONNECTIONS: usize = 10_000;
/// Maximum number of connects, and of operations, per second.
const MAX_PER_SECOND: f64 = 5_000.0;

/// Returns the most connections, and operations per second, that a run may be told to have while it goes on; None: any number.
pub(crate) fn most(plan: &Plan) -> Option<(usize, f64)> {
    let far = plan.targets.iter().any(|target| !is_near(target));
    far.then_some((MAX_CONNECTIONS.max(plan.connections), MAX_PER_SECOND))
}

/// Refuses what is more than that to a public address.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    let Some(far) = plan.targets.iter().find(|target| !is_near(target)) else { return Ok(()) };
    let too_much = if plan.connections > MAX_CONNECTIONS {
        format!("{} connections are more than {MAX_CONNECTIONS}", plan.connections)
    } else if let Some(what) = too_fast(connects_per_second(plan), "connects") {
        what
    } else if let Some(what) = too_fast(operations_per_second(plan), "operations") {
        what
    } else {
        return Ok(());
    };
    Err(usage(format_args!("{far} is a public address, and {too_much}: ask for less, or say --yes if you may do that to it")))
}

fn too_fast(rate: f64, what: &str) -> Option<String> {
    match rate {
        rate if rate <= MAX_PER_SECOND => None,
        rate if rate.is_finite() => Some(format!("{} {what}/s are more than {MAX_PER_SECOND}/s", number(rate))),
        _ => Some(format!("{what} as fast as it goes may be more than {MAX_PER_SECOND}/s")),
    }
}

/// Returns the most connects that there can be in a second. So many as there are in all can be no more in one.
fn connects_per_second(plan: &Plan) -> f64 {
    let in_all = plan.operations.map_or(f64::INFINITY, |operations| operations as f64);
    if plan.is_short() {
        return plan.workload.properties().schedule.or(plan.connect_rate).unwrap_or(in_all);
    }
    let replaced = plan.lifetime.map_or(0.0, |lifetime| each(plan.connections, lifetime));
    let connections = plan.connections as f64;
    if plan.stages.is_empty() {
        return replaced.max(plan.connect_rate.unwrap_or(connections).min(connections));
    }
    let befores = [0].into_iter().chain(plan.stages.iter().map(|stage| stage.connections));
    let ramps = plan.stages.iter().zip(befores);
    ramps.map(|(stage, before)| each(stage.connections.saturating_sub(before), stage.time)).fold(replaced, f64::max)
}

fn operations_per_second(plan: &Plan) -> f64 {
    if plan.is_short() {
        // Their operations are connects.
        return 0.0;
    }
    let interval = plan.workload.properties().interval;
    each(plan.connections, interval).min(plan.operations.map_or(f64::INFINITY, |operations| operations as f64))
}

/// Returns the rate per second of a count in each such time.
fn each(count: usize, time: Duration) -> f64 {
    if count == 0 { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Returns whether a target is on this machine, or in a private or link-local network.
pub(super) fn is_near(target: &Address) -> bool {
    let Address::Tcp(target) = target else { return true };
    match target.ip().to_canonical() {
        // 0.0.0.0 and :: are this machine to connect(2).
        address if address.is_loopback() || address.is_unspecified() => true,
        IpAddr::V4(address) => address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::planned;

    #[test]
    fn what_is_near_is_on_this_machine_or_in_a_network_of_ones_own() {
        let near = |text: &str| is_near(&text.parse().expect(text));
        for text in
            ["127.0.0.1:1", "127.9.9.9:1", "10.0.0.1:1", "172.31.255.255:1", "192.168.0.1:1", "169.254.1.1:1", "0.0.0.0:1"]
        {
            assert!(near(text), "{text}");
        }
        for text in ["[::1]:1", "[fd12::1]:1", "[fe80::1]:1", "[::ffff:10.0.0.1]:1", "[::]:1", "unix:/run/a", "unix:@a"] {
            assert!(near(text), "{text}");
        }
        for text in ["192.0.2.1:1", "172.32.0.1:1", "8.8.8.8:1", "100.64.0.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
            assert!(!near(text), "{text}");
        }
    }

    /// Checks that a plan is refused for the last of the targets, and neither for those nearby nor with --yes.
    #[track_caller]
    fn refused(words: &str, reason: &str) {
        let far = words.replace("AT", "127.0.0.1:9 192.0.2.1:9");
        let line = planned(&far).expect_err(&far).to_string();
        assert!(line.starts_with("192.0.2.1:9 is a public address, and ") && line.contains(reason), "{line}");
        assert!(planned(&format!("{far} --yes")).is_ok(), "{far}");
        assert!(planned(&words.replace("AT", "127.0.0.1:9 10.0.0.1:9")).is_ok(), "{words}");
    }

    #[test]
    fn each_rule_refuses_and_says_why() {
        refused("ping AT -c 10001 --interval 1h", "10001 connections are more than 10000");
        refused("ping AT --stage 1h:10001 --interval 1h", "10001 connections are more than 10000");
        refused("ping AT -c 6k --connect-rate 5001", "5001 connects/s are more than 5000/s");
        refused("ping AT --stage 1s:1k,1s:6001 --interval 1h", "5001 connects/s are more than");
        refused("ping AT -c 10k --lifetime 1s --interval 1h", "10000 connects/s are more than");
        refused("http AT", "connects as fast as it goes may be more than 5000/s");
        refused("hello AT --connect-rate 6k", "6000 connects/s are more than");
        refused("http AT --rate 6k", "6000 connects/s are more than");
        refused("ping AT -c 6k --interval 1s", "6000 operations/s are more than");
        refused("ping AT --send x --interval 1ms", "64000 operations/s are more than");
        refused("echo AT", "operations as fast as it goes may be more than");
        refused("acks AT", "operations as fast as it goes may be more than");
        refused("acks AT --rate 6k", "operations/s are more than");
        refused("http AT --keep-alive", "operations as fast as it goes may be more than");
    }

    #[test]
    fn as_much_as_may_be_is_not_refused() {
        for words in [
            "ping 192.0.2.1:9",
            "ping 192.0.2.1:9 -c 10k --connect-rate 5k",
            "ping 192.0.2.1:9 --stage 2s:10k,2s:0",
            "echo 192.0.2.1:9 --interval 100ms",
            "echo 192.0.2.1:9 -n 5000",
            "http 192.0.2.1:9 -n 5k",
            "http 192.0.2.1:9 --rate 5k",
            "hello 192.0.2.1:9 --connect-rate 5k",
            "acks 192.0.2.1:9 --rate 5k",
            "acks 192.0.2.1:9 -n 5k -c 5k",
        ] {
            assert!(planned(words).is_ok(), "{words}: {:?}", planned(words));
        }
    }
}
