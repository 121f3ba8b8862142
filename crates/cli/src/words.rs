//! A plan in words, so that nobody has to guess what a run does.

use crate::values::{number, proxy_header_text};
use crate::workload::told;
use sockdrawer_catalog::time;
use sockdrawer_load::{End, Plan, Processes, Report, Stage};
use std::fmt::Write;
use std::path::Path;

/// Returns the line a run starts with.
pub(crate) fn start(plan: &Plan) -> String {
    let workload = told(&plan.workload);
    let mut line = workload.words(plan, &connections(plan));
    let mut add = |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("a String takes what is written to it");
    if !plan.stages.is_empty() {
        let stage = |stage: &Stage| format!("{} within {}", stage.connections, time::format(stage.time));
        add(format_args!(", in stages: {}", plan.stages.iter().map(stage).collect::<Vec<_>>().join(", then ")));
    }
    if let Some(lifetime) = plan.lifetime {
        add(format_args!(", each ended after {} and replaced", time::format(lifetime)));
    }
    if plan.reconnect {
        add(format_args!(", each that is lost replaced"));
    }
    if plan.poisson {
        add(format_args!(", at random times"));
    }
    if let Some(rate) = plan.connect_rate {
        add(format_args!(", at most {} connects/s", number(rate)));
    }
    match plan.end {
        End::Never => {}
        End::AfterStages => add(format_args!(", until the last stage is over")),
        End::AfterFirstConnect(time) => add(format_args!(", for {}", time::format(time))),
        End::AfterLastConnect(time) => add(format_args!(", for {} after the last connect", time::format(time))),
    }
    if let Some(operations) = plan.operations {
        add(format_args!(", {operations} operation{}", if operations == 1 { "" } else { "s" }));
    }
    match plan.targets.as_slice() {
        [] => add(format_args!(", to a server in this program")),
        [target] => add(format_args!(", to {target}")),
        [first, rest @ ..] => add(format_args!(", to {first} and {} more in turn", rest.len())),
    }
    if plan.websocket.is_some() {
        add(format_args!(", by WebSocket"));
    }
    if plan.tls.is_some() {
        add(format_args!(", under TLS"));
    }
    match plan.sources.as_slice() {
        [] => {}
        [source] => add(format_args!(", from {source}")),
        [first, rest @ ..] => add(format_args!(", from {first} and {} more in turn", rest.len())),
    }
    if let Some((first, last)) = plan.local_ports {
        add(format_args!(", ports {first} to {last}"));
    }
    if let Some(header) = plan.proxy_header {
        add(format_args!(", with the PROXY header {}", proxy_header_text(header)));
    }
    if let Processes::Exactly(count) = plan.processes {
        add(format_args!(", by {count} process{}", if count == 1 { "" } else { "es" }));
    }
    if workload.has_choices() {
        add(format_args!(", seed {}", plan.seed));
    }
    line
}

/// Returns the last line: what came of the run, and where more of it is.
pub(crate) fn verdict(report: &Report, page: Option<&Path>) -> String {
    let mut line = format!("verdict      {}", report.verdict());
    if !report.complete {
        line += "; it ended early";
    }
    if let Some(page) = page {
        line += &format!("; page: {}", page.display());
    }
    line
}

/// Returns what is loaded, in a few words.
pub(crate) fn title(plan: &Plan) -> String {
    let name = plan.workload.name();
    match plan.targets.as_slice() {
        [] => format!("load {name}, a server in this program"),
        [target] => format!("load {name} {target}"),
        [first, rest @ ..] => format!("load {name} {first} and {} more", rest.len()),
    }
}

/// Returns how many connections there are, in words.
fn connections(plan: &Plan) -> String {
    match plan.connections {
        connections if !plan.stages.is_empty() => format!("up to {connections} connections"),
        1 => "1 connection".to_owned(),
        connections => format!("{connections} connections"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_catalog::acks::AckPattern;
    use sockdrawer_load::{Hello, Messages, Question, Reading, RoundTrips, Workload};
    use std::time::Duration;

    fn plan(workload: Workload) -> Plan {
        let end = End::AfterFirstConnect(Duration::from_secs(10));
        Plan { end, timeout: Duration::from_secs(1), seed: 7, ..Plan::new(workload) }
    }

    #[test]
    fn pings_say_their_rate_and_how_to_change_it() {
        let each = "64 connections, one ping each 5s: 12.8 operations/s (--interval 0: back to back), for 10s, \
                    to a server in this program";
        assert_eq!(start(&plan(Workload::ping(Duration::from_secs(5)))), each);
        let plan = Plan { connections: 1, end: End::Never, operations: Some(7), ..plan(Workload::ping(Duration::ZERO)) };
        assert_eq!(
            start(&plan),
            "1 connection, one ping after the other, back to back, 7 operations, to a server in this program"
        );
    }

    #[test]
    fn every_limit_is_said() {
        let plan = Plan {
            targets: vec!["127.0.0.1:1".parse().expect("an address"), "127.0.0.1:2".parse().expect("an address")],
            connect_rate: Some(0.5),
            end: End::AfterLastConnect(Duration::from_millis(250)),
            ..plan(Workload::Hello(Hello))
        };
        let expected = "64 connections at once, one hello operation each, then the next, at most 0.5 connects/s, \
                        for 250ms after the last connect, to 127.0.0.1:1 and 1 more in turn";
        assert_eq!(start(&plan), expected);
    }

    #[test]
    fn messages_say_how_they_are_sent_and_acknowledged() {
        let messages = Messages {
            pattern: AckPattern::Every(9),
            reading: Reading::Whole,
            size: 1,
            batch: 10,
            window: 50,
            interval: Duration::ZERO,
        };
        let line = "64 connections, messages of 1 byte back to back, 10 in a write (--batch), at most 50 without ack (--window), \
                    --ack every=9, for 10s, to a server in this program";
        assert_eq!(start(&plan(Workload::Acks(messages))), line);
        let messages = Messages { interval: Duration::from_millis(640), size: 5, ..messages };
        let line =
            "64 connections, 100 messages/s of 5 bytes (--interval 0: back to back), at most 10 in a write (--batch), at most 50";
        assert!(start(&plan(Workload::Acks(messages))).starts_with(line));
    }

    #[test]
    fn a_question_of_ones_own_is_shown_with_its_answer() {
        let targets = vec!["127.0.0.1:1".parse().expect("an address")];
        let line = |expect: Option<&str>| {
            let expect = expect.map(|expect| expect.parse().expect("it is one"));
            let question = Question::Other { of_echo: true, send: b"PING\r\n".to_vec(), expect };
            let workload = Workload::RoundTrips(RoundTrips { interval: Duration::ZERO, question });
            start(&Plan { targets: targets.clone(), ..plan(workload) })
        };
        let begin = r"64 connections, one `PING\r\n` after the other, back to back, each answered by ";
        assert_eq!(line(None), format!("{begin}anything, for 10s, to 127.0.0.1:1"));
        assert_eq!(line(Some("/[+]/")), format!("{begin}`/[+]/`, for 10s, to 127.0.0.1:1"));
    }

    #[test]
    fn where_connections_come_from_is_said() {
        let sources = |last: &[u8]| last.iter().map(|last| [127, 0, 0, *last].into()).collect();
        let plan = Plan {
            sources: sources(&[2]),
            local_ports: Some((5, 9)),
            processes: Processes::Exactly(3),
            proxy_header: Some(crate::values::proxy_header("v2").expect("it is one")),
            ..plan(Workload::Hello(Hello))
        };
        assert!(
            start(&plan).ends_with(
                ", to a server in this program, from 127.0.0.2, ports 5 to 9, with the PROXY header v2, by 3 processes"
            )
        );
        let plan = Plan {
            sources: sources(&[2, 3, 4]),
            local_ports: None,
            proxy_header: None,
            processes: Processes::Exactly(1),
            ..plan
        };
        assert!(start(&plan).ends_with(", from 127.0.0.2 and 2 more in turn, by 1 process"), "{}", start(&plan));
    }

    #[test]
    fn stages_and_lifetimes_are_said() {
        let stage = |seconds, connections| Stage { time: Duration::from_secs(seconds), connections };
        let plan = Plan {
            stages: vec![stage(30, 64), stage(5, 0)],
            lifetime: Some(Duration::from_secs(20)),
            end: End::AfterStages,
            ..plan(Workload::ping(Duration::from_secs(5)))
        };
        let line = "up to 64 connections, one ping each 5s: 12.8 operations/s (--interval 0: back to back), in stages: 64 within 30s, \
                    then 0 within 5s, each ended after 20s and replaced, until the last stage is over, to a server in this program";
        assert_eq!(start(&plan), line);
    }
}
