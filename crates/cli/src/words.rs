//! A plan in words, so that nobody has to guess what a run does.

use crate::http;
use sockdrawer_load::{End, Ladder, Messages, Plan, Workload};
use std::fmt::Write;
use std::time::Duration;

/// The line a run starts with.
pub(crate) fn start(plan: &Plan) -> String {
    let mut line = what(plan);
    let mut add = |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("a String takes what is written to it");
    if let Some(rate) = plan.connect_rate {
        add(format_args!(", at most {} connects/s", number(rate)));
    }
    match plan.end {
        End::Never => {}
        End::AfterStages => add(format_args!(", until the last stage is over")),
        End::AfterFirstConnect(time) => add(format_args!(", for {}", duration(time))),
        End::AfterLastConnect(time) => add(format_args!(", for {} after the last connect", duration(time))),
    }
    if let Some(operations) = plan.operations {
        add(format_args!(", {operations} operation{}", if operations == 1 { "" } else { "s" }));
    }
    match plan.targets.as_slice() {
        [] => add(format_args!(", to a server in this program")),
        [target] => add(format_args!(", to {target}")),
        [first, rest @ ..] => add(format_args!(", to {first} and {} more in turn", rest.len())),
    }
    if matches!(plan.workload, Workload::Echo { .. }) || plan.http().is_some_and(|wanted| wanted.pages.len() > 1) {
        add(format_args!(", seed {}", plan.seed));
    }
    line
}

fn what(plan: &Plan) -> String {
    let connections = match plan.connections {
        1 => "1 connection".to_owned(),
        connections => format!("{connections} connections"),
    };
    match &plan.workload {
        Workload::Ping { interval } => format!("{connections}, {}", paced(plan.connections, "ping", *interval)),
        Workload::Echo { interval, size } => {
            format!("{connections}, {}", paced(plan.connections, &format!("message of {size} bytes"), *interval))
        }
        Workload::Acks(messages) => {
            let pattern = messages.pattern;
            let unacked = "without ack (--window)";
            format!(
                "{connections}, {}, at most {} {unacked}, --ack {pattern}",
                stream(plan.connections, messages),
                messages.window
            )
        }
        Workload::Http(wanted) => http::what(plan.connections, wanted, &connections),
        workload => format!("{connections} at once, one {} operation each, then the next", workload.name()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "more than 2^53 connections do not exist")]
fn paced(connections: usize, operation: &str, interval: Duration) -> String {
    if interval.is_zero() {
        return format!("one {operation} after the other, back to back");
    }
    let rate = number(connections as f64 / interval.as_secs_f64());
    format!("one {operation} each {}: {rate} operations/s (--interval 0: back to back)", duration(interval))
}

/// The line a ladder starts with.
pub(crate) fn ladder(ladder: &Ladder) -> String {
    let Ladder { messages, duration: time, .. } = ladder;
    let Messages { window, .. } = messages;
    let each = duration(*time);
    format!(
        "acks at 1 and 8 connections, {each} each, {}, at most {window} without ack, to a server in this program",
        stream(1, messages)
    )
}

/// What so many connections send.
#[expect(clippy::cast_precision_loss, reason = "more than 2^53 connections do not exist")]
fn stream(connections: usize, messages: &Messages) -> String {
    let Messages { size, batch, interval, .. } = messages;
    let bytes = format!("{size} byte{}", if *size == 1 { "" } else { "s" });
    if interval.is_zero() {
        return format!("messages of {bytes} back to back, {batch} in a write (--batch)");
    }
    let rate = number(connections as f64 / interval.as_secs_f64());
    format!("{rate} messages/s of {bytes} (--interval 0: back to back), at most {batch} in a write (--batch)")
}

/// A number with the digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if (value - value.round()).abs() < 1e-6 * value => format!("{}", value.round()),
        value if value < 0.1 => format!("{value:.4}"),
        value => format!("{value:.1}"),
    }
}

/// A time in the unit that people say it in.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{} ms", seconds * 1000.0),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_catalog::acks::AckPattern;
    use sockdrawer_load::Reading;

    fn plan(workload: Workload) -> Plan {
        let end = End::AfterFirstConnect(Duration::from_secs(10));
        Plan { end, timeout: Duration::from_secs(1), seed: 7, ..Plan::new(workload) }
    }

    #[test]
    fn pings_say_their_rate_and_how_to_change_it() {
        let each = "64 connections, one ping each 5 s: 12.8 operations/s (--interval 0: back to back), for 10 s, \
                    to a server in this program";
        assert_eq!(start(&plan(Workload::Ping { interval: Duration::from_secs(5) })), each);
        let plan =
            Plan { connections: 1, end: End::Never, operations: Some(7), ..plan(Workload::Ping { interval: Duration::ZERO }) };
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
            ..plan(Workload::Hello)
        };
        let expected = "64 connections at once, one hello operation each, then the next, at most 0.5 connects/s, \
                        for 250 ms after the last connect, to 127.0.0.1:1 and 1 more in turn";
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
                    --ack every=9, for 10 s, to a server in this program";
        assert_eq!(start(&plan(Workload::Acks(messages))), line);
        let messages = Messages { interval: Duration::from_millis(640), size: 5, ..messages };
        let line =
            "64 connections, 100 messages/s of 5 bytes (--interval 0: back to back), at most 10 in a write (--batch), at most 50";
        assert!(start(&plan(Workload::Acks(messages))).starts_with(line));
    }

    #[test]
    fn numbers_keep_what_matters() {
        assert_eq!([12.8, 100.0, 99_999.999_999_9, 9.142, 0.0166].map(number), ["12.8", "100", "100000", "9.1", "0.0166"]);
    }
}
