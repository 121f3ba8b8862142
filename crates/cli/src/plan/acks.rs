//! What the options of `load acks` make.

use super::{connections, usage};
use crate::arguments::{AcksArguments, LoadArguments};
use crate::outcome::Failure;
use crate::values::{Rate, Size, Time};
use sockdrawer_catalog::acks::MAX_PAYLOAD;
use sockdrawer_load::{Messages, Reading};
use std::time::Duration;

/// Bytes of a payload, messages in a write, and messages without ack, unless something else is said.
const SIZE: u32 = 5;
const BATCH: u64 = 1_000;
const WINDOW: u64 = 100_000;
/// A batch is prepared in memory, for each connection that has one unsent.
const BATCH_BYTES: u64 = 64 * 1024 * 1024;

/// The messages that are asked for, or what makes no sense about them.
pub(crate) fn messages(arguments: &LoadArguments) -> Result<Messages, Failure> {
    let AcksArguments { ack, batch, window, .. } = &arguments.acks;
    let size = arguments.size.map_or(SIZE, |Size(size)| size);
    if size > MAX_PAYLOAD {
        return Err(usage(format_args!("--size {size}: a payload has at most {MAX_PAYLOAD} bytes, write less")));
    }
    let (batch, window) = match (batch.map(|batch| batch.0), window.map(|window| window.0)) {
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
        interval: interval(arguments)?,
    };
    let bytes = batch.saturating_mul(messages.bytes());
    if bytes > BATCH_BYTES {
        return Err(usage(format_args!(
            "--batch {batch}: {bytes} bytes in one write are more than 64 MiB; lower --batch or --size"
        )));
    }
    Ok(messages)
}

/// From one message of a connection to its next.
fn interval(arguments: &LoadArguments) -> Result<Duration, Failure> {
    match (arguments.interval, arguments.rate) {
        (Some(Time(interval)), _) => Ok(interval),
        (None, Some(Rate(rate))) => {
            let each = Duration::try_from_secs_f64(connections(arguments) as f64 / rate).unwrap_or(Duration::MAX);
            // Zero would be back to back.
            if each.is_zero() {
                return Err(usage("--rate: more than a message each nanosecond; leave it out to send back to back"));
            }
            Ok(each)
        }
        (None, None) => Ok(Duration::ZERO),
    }
}
