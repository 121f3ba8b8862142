//! `acks`.

use super::Told;
use super::lines::Lines;
use super::options::{OperationArguments, first_given, usage};
use crate::outcome::Failure;
use crate::values::{number, positive};
use clap::Args;
use sockdrawer_catalog::acks::{AckPattern, MAX_PAYLOAD};
use sockdrawer_catalog::time;
use sockdrawer_load::{Ladder, Messages, Plan, Reading};
use std::time::Duration;

/// Bytes of a payload, messages in a write, and messages without ack, unless something else is said.
const SIZE: u32 = 5;
const BATCH: u64 = 1_000;
const WINDOW: u64 = 100_000;
/// A batch is prepared in memory, for each connection that has one unsent.
const BATCH_BYTES: u64 = 64 * 1024 * 1024;

/// Options of `acks` alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "acks")]
pub(crate) struct AcksArguments {
    /// How the server acknowledges: reply, read, timer=5ms, async=20,5ms or every=K [default: read].
    #[arg(long, value_name = "HOW")]
    pub(crate) ack: Option<AckPattern>,
    /// Messages in one write [default: 1000, or as many as --window allows].
    #[arg(long, value_name = "K", value_parser = positive::<u64>)]
    pub(crate) batch: Option<u64>,
    /// Maximum of messages of a connection without ack; at the maximum it waits for an ack [default: 100000, or --batch if that is
    /// more].
    ///
    /// No less than --batch.
    #[arg(long, value_name = "W", value_parser = positive::<u64>)]
    pub(crate) window: Option<u64>,
    /// Run all patterns one after the other, at 1 and 8 connections, against a server inside this program, -d each [default: 2s],
    /// and compare them.
    ///
    /// Without TARGET; see [load acks](#load-acks).
    #[arg(long, conflicts_with_all = ["ack", "connections", "operations", "stage", "hold", "connect_rate", "interval", "rate", "source", "local_ports", "proxy_protocol", "processes", "server_pid", "dry_run", "seed"])]
    pub(crate) ladder: bool,
}

impl AcksArguments {
    /// Returns the first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--ack", self.ack.is_some()),
            ("--batch", self.batch.is_some()),
            ("--window", self.window.is_some()),
            ("--ladder", self.ladder),
        ])
    }
}

/// Returns the messages that are asked for, or the reason why they make no sense.
pub(crate) fn messages(arguments: &AcksArguments, options: &OperationArguments, connections: usize) -> Result<Messages, Failure> {
    let AcksArguments { ack, batch, window, .. } = arguments;
    let size = options.size.unwrap_or(SIZE);
    if size > MAX_PAYLOAD {
        return Err(usage(format_args!("--size {size}: a payload has at most {MAX_PAYLOAD} bytes, write less")));
    }
    let (batch, window) = match (*batch, *window) {
        (Some(batch), Some(window)) if window < batch => {
            return Err(usage(format_args!(
                "--window {window} is smaller than --batch {batch}: a batch would never be sent; raise --window or lower --batch"
            )));
        }
        (batch, window) => {
            let fits = (BATCH_BYTES / 64 / u64::from(size)).clamp(1, BATCH);
            let batch = batch.unwrap_or(fits.min(window.unwrap_or(fits)));
            (batch, window.unwrap_or(WINDOW.max(batch)))
        }
    };
    let messages = Messages {
        pattern: ack.unwrap_or_default(),
        reading: Reading::Whole,
        size,
        batch,
        window,
        interval: interval(options, connections)?,
    };
    let bytes = batch.saturating_mul(messages.bytes());
    if bytes > BATCH_BYTES {
        return Err(usage(format_args!(
            "--batch {batch}: {bytes} bytes in one write are more than 64 MiB; lower --batch or --size"
        )));
    }
    Ok(messages)
}

/// Returns the time from one message of a connection to its next.
fn interval(options: &OperationArguments, connections: usize) -> Result<Duration, Failure> {
    match (options.interval, options.rate) {
        (Some(interval), _) => Ok(interval),
        (None, Some(rate)) => {
            let each = Duration::try_from_secs_f64(connections as f64 / rate).unwrap_or(Duration::MAX);
            // Zero would be back to back.
            if each.is_zero() {
                return Err(usage("--rate: more than a message each nanosecond; leave it out to send back to back"));
            }
            Ok(each)
        }
        (None, None) => Ok(Duration::ZERO),
    }
}

impl Told for Messages {
    fn words(&self, plan: &Plan, connections: &str) -> String {
        let Messages { pattern, window, .. } = self;
        let stream = stream(plan.connections, self);
        format!("{connections}, {stream}, at most {window} without ack (--window), --ack {pattern}")
    }

    fn keys(&self, _plan: &Plan, lines: &mut Lines) {
        let Messages { pattern, size, batch, window, interval, .. } = self;
        lines.add("ack", pattern.to_string());
        lines.count("size", u64::from(*size));
        lines.count("batch", *batch);
        lines.count("window", *window);
        lines.time("interval", *interval);
    }
}

/// Returns the line that a ladder starts with.
pub(crate) fn ladder(ladder: &Ladder) -> String {
    let Ladder { messages, duration, .. } = ladder;
    let Messages { window, .. } = messages;
    let each = time::format(*duration);
    format!(
        "acks at 1 and 8 connections, {each} each, {}, at most {window} without ack, to a server in this program",
        stream(1, messages)
    )
}

/// Returns words for the messages that this many connections send.
fn stream(connections: usize, messages: &Messages) -> String {
    let Messages { size, batch, interval, .. } = messages;
    let bytes = format!("{size} byte{}", if *size == 1 { "" } else { "s" });
    if interval.is_zero() {
        return format!("messages of {bytes} back to back, {batch} in a write (--batch)");
    }
    let rate = number(connections as f64 / interval.as_secs_f64());
    format!("{rate} messages/s of {bytes} (--interval 0: back to back), at most {batch} in a write (--batch)")
}
