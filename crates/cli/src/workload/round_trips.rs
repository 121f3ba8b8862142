//! `ping` and `echo`.

use super::Told;
use super::lines::Lines;
use super::options::{OperationArguments, usage};
use crate::outcome::Failure;
use crate::values::{Bytes, number};
use sockdrawer_catalog::time;
use sockdrawer_load::{Plan, Question, RoundTrips};
use std::time::Duration;

/// From one ping to the next, unless something else is said: as of ping(8). Of many connections it is longer, so that all together ask no
/// more than so often, but never longer than this: who holds connections wants to know soon that one is dead.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PINGS_PER_SECOND: f64 = 5_000.0;
const LONGEST_PING_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of a message of `echo`, unless something else is said.
const SIZE: u32 = 4;

/// Makes a workload of the options of `echo`, or of `ping`.
///
/// # Errors
/// When it is not said what is sent, or to which server.
pub(crate) fn round_trips(
    of_echo: bool,
    options: &OperationArguments,
    has_target: bool,
    connections: usize,
) -> Result<RoundTrips, Failure> {
    let OperationArguments { interval, size, send, expect, .. } = options;
    let question = match (send, expect) {
        (Some(_), _) if !has_target => {
            return Err(usage("--send: the server in this program understands nothing else: name a TARGET, or leave --send out"));
        }
        (Some(Bytes(send)), expect) => Question::Other { of_echo, send: send.clone(), expect: expect.clone() },
        (None, Some(_)) => {
            return Err(usage("--expect without --send: say what is sent, or leave it out: the workload knows its own answers"));
        }
        (None, None) if of_echo => Question::Echo { size: size.unwrap_or(SIZE) },
        (None, None) => Question::Ping,
    };
    let default = if of_echo { Duration::ZERO } else { ping_interval(connections) };
    Ok(RoundTrips { interval: interval.unwrap_or(default), question })
}

/// Returns the interval of pings, in whole seconds.
fn ping_interval(connections: usize) -> Duration {
    let seconds = (connections as f64 / PINGS_PER_SECOND).ceil();
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).clamp(PING_INTERVAL, LONGEST_PING_INTERVAL)
}

impl Told for RoundTrips {
    fn words(&self, plan: &Plan, connections: &str) -> String {
        let (what, answer) = match &self.question {
            Question::Ping => ("ping".to_owned(), String::new()),
            Question::Echo { size } => (format!("message of {size} bytes"), String::new()),
            Question::Other { send, expect, .. } => {
                let answer = expect.as_ref().map_or_else(|| "anything".to_owned(), |expect| format!("`{expect}`"));
                (format!("`{}`", Bytes(send.clone())), format!(", each answered by {answer}"))
            }
        };
        if self.interval.is_zero() {
            return format!("{connections}, one {what} after the other, back to back{answer}");
        }
        let rate = number(plan.connections as f64 / self.interval.as_secs_f64());
        let interval = time::format(self.interval);
        format!("{connections}, one {what} each {interval}: {rate} operations/s (--interval 0: back to back){answer}")
    }

    fn keys(&self, _plan: &Plan, lines: &mut Lines) {
        lines.time("interval", self.interval);
        match &self.question {
            Question::Ping => {}
            Question::Echo { size } => lines.count("size", u64::from(*size)),
            Question::Other { send, expect, .. } => {
                lines.add("send", Bytes(send.clone()).to_string());
                if let Some(expect) = expect {
                    lines.add("expect", expect.to_string());
                }
            }
        }
    }

    fn has_choices(&self) -> bool {
        matches!(self.question, Question::Echo { .. })
    }
}
