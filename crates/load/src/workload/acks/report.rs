//! Results of a run of `acks`, besides those of every run; and what its times give away.

use super::Messages;
use crate::latency::Latency;
use crate::numbers::{float, thousands};
use crate::workload::errors::Errors;
use crate::workload::tally::{Ended, Operations, Tally};
use serde::{Deserialize, Serialize};
use sockdrawer_catalog::acks::AckPattern;
use std::fmt;
use std::time::Duration;

/// Time that Linux waits for something to send before it sends a TCP ACK alone: 40 ms, and a tick of 10 ms more at most on kernels that tick so
/// slowly. A busy machine makes it longer, never shorter: what comes of it begins with an edge.
const EDGE: Duration = Duration::from_millis(38);
const EDGE_ENDS: Duration = Duration::from_millis(54);
const LATE_ENDS: Duration = Duration::from_millis(80);
/// Minimum share of all messages that waited so long where it is no chance, and minimum share of those that waited no longer than the edge.
const SHARE: f64 = 0.2;
const SHARE_AT_EDGE: f64 = 0.1;
/// Minimum factor by which more messages came than in as long a time before the edge.
const STEEP: u64 = 3;

/// Less of the rate that was asked for is not what was asked for, when so many messages were due.
const BEHIND: f64 = 0.9;
const SCHEDULED_AT_LEAST: f64 = 1_000.0;

/// Messages and their acks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Acks {
    /// Pattern that the client was told the server has.
    pub pattern: String,
    /// Bytes of a payload.
    pub size: u32,
    /// Messages in one write.
    pub batch: u64,
    /// Maximum of messages of a connection without ack.
    pub window: u64,
    /// Messages per second that were asked for; null: as many as possible.
    pub rate: Option<f64>,
    /// Messages that were sent: those that ended well, and those that did not.
    pub written: u64,
    /// Bytes of the acknowledged messages, headers too, per second.
    pub bytes_per_second: f64,
    /// Acks that came; all were verified.
    pub acks: u64,
    /// Acknowledged messages for each; null without acks.
    pub messages_per_ack: Option<f64>,
    /// Nanoseconds of the client's CPU for each acknowledged message, where it is known.
    pub client_cpu_ns: Option<f64>,
    /// Nanoseconds of the server's CPU for each acknowledged message, where it is known.
    pub server_cpu_ns: Option<f64>,
    /// Share of the acknowledged messages that waited as long as a delayed TCP ACK takes, when these stand out and the pattern does not explain them.
    pub delayed_ack: Option<f64>,
}

impl Acks {
    pub(crate) fn of(messages: &Messages, tally: &Tally, run: &Ended) -> Acks {
        let Messages { pattern, size, batch, window, interval, .. } = *messages;
        let ok = tally.numbers.operations_ok;
        let per = |whole: f64, parts: u64| (parts > 0).then(|| whole / float(parts));
        let [client_cpu_ns, server_cpu_ns] = run.cpu.map(|seconds| seconds.and_then(|seconds| per(seconds * 1e9, ok)));
        Acks {
            pattern: pattern.to_string(),
            size,
            batch,
            window,
            rate: (!interval.is_zero()).then(|| float(run.connections) / interval.as_secs_f64()),
            written: tally.written,
            bytes_per_second: run.per_second(ok * messages.bytes()),
            acks: tally.acks,
            messages_per_ack: per(float(ok), tally.acks),
            client_cpu_ns,
            server_cpu_ns,
            delayed_ack: tally.connect.median().and_then(|trip| delayed(&tally.operation, trip, pattern)),
        }
    }
}

/// Returns the share of messages that waited for a delayed TCP ACK. A server that writes an answer in two pieces on a socket without TCP_NODELAY
/// sends the second when the first is acknowledged; and a client that has nothing to send delays that.
fn delayed(times: &Latency, trip: Duration, pattern: AckPattern) -> Option<f64> {
    let timer = match pattern {
        AckPattern::Timer(after) | AckPattern::Async { after, .. } => after,
        AckPattern::Reply | AckPattern::Read | AckPattern::Every(_) => Duration::ZERO,
    };
    let width = EDGE_ENDS - EDGE;
    // The timer alone explains it, or waits so long that it hides it.
    if timer >= EDGE - width {
        return None;
    }
    let between = |from, to| times.between(trip + from, trip + to);
    let share = |messages| float(messages) / float(times.count().max(1));
    let at_edge = between(EDGE, EDGE_ENDS);
    let all = share(between(EDGE, LATE_ENDS));
    let steep = at_edge / STEEP >= between(EDGE - width, EDGE);
    (steep && share(at_edge) >= SHARE_AT_EDGE && all >= SHARE).then_some(all)
}

/// Writes for people the lines that follow `operations`.
pub(crate) fn numbers(f: &mut fmt::Formatter<'_>, acks: &Acks) -> fmt::Result {
    let each = acks.messages_per_ack.map_or_else(|| "-".to_owned(), |each| format!("{each:.1}"));
    let Acks { acks: count, bytes_per_second, .. } = acks;
    writeln!(f, "bytes        {:.2} MB/s, headers too", bytes_per_second / 1e6)?;
    writeln!(f, "acks         {}, {each} messages each", thousands(*count))
}

/// Writes for people what to look at.
pub(crate) fn hints(
    f: &mut fmt::Formatter<'_>,
    acks: &Acks,
    (operations, errors): (&Operations, &[Errors]),
    seconds: f64,
) -> fmt::Result {
    let reached = operations.per_second;
    let behind = |rate: &f64| reached < BEHIND * rate && rate * seconds >= SCHEDULED_AT_LEAST;
    let behind = acks.rate.filter(behind);
    // The times of a queue that grows say nothing of the server's acks.
    if let Some(share) = acks.delayed_ack.filter(|_| behind.is_none()) {
        write!(
            f,
            "\nhint         {:.0} % of the messages waited about 40 ms for their ack: the server seems to write an ack in pieces, and \
             Nagle's algorithm holds the last one back until this side's delayed TCP ACK; set TCP_NODELAY on the server's sockets, \
             or write an ack at once (if its own timer takes 40 ms, say so: --ack timer=40ms)",
            share * 100.0
        )?;
    }
    if let Some(rate) = behind {
        write!(
            f,
            "\nhint         {reached:.0} of {rate:.0} messages/s were reached: the times are those of a queue that grows; lower --rate"
        )?;
    }
    let answered = errors.iter().any(|error| matches!(&*error.phase, "send" | "answer" | "verify") && error.errno != "ETIMEDOUT");
    if answered && operations.ok == 0 {
        write!(
            f,
            "\nhint         the server took no message as --ack {} writes it: say the pattern that the server has (reply writes sizes \
             big-endian and acks without a count, all others do not), and see that it speaks acks",
            acks.pattern
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn share(times: impl IntoIterator<Item = u32>, trip: Duration, pattern: AckPattern) -> Option<f64> {
        let mut latency = Latency::new();
        times.into_iter().for_each(|milliseconds| latency.record(MILLISECOND * milliseconds));
        delayed(&latency, trip, pattern)
    }

    #[test]
    fn times_that_cluster_at_the_delay_give_it_away() {
        let half = || (0..50).map(|_| 1).chain((0..50).map(|_| 41));
        assert_eq!(share(half(), MILLISECOND / 10, AckPattern::Read), Some(0.5));
        assert_eq!(share(half(), MILLISECOND / 10, AckPattern::Timer(MILLISECOND * 5)), Some(0.5));
        assert_eq!(share(half(), MILLISECOND / 10, AckPattern::Timer(MILLISECOND * 40)), None, "its own timer");
        assert_eq!(share(half(), MILLISECOND / 10, AckPattern::Async { reads: 9, after: MILLISECOND * 40 }), None);
        assert_eq!(share(half(), MILLISECOND * 40, AckPattern::Read), None, "that is how far away the server is");
        let late = || half().chain((0..40).map(|_| 60));
        assert_eq!(share(late(), MILLISECOND / 10, AckPattern::Read), Some(90.0 / 140.0), "a busy machine adds to it");
        assert_eq!(share(half().map(|time| time + 40), MILLISECOND * 40, AckPattern::Read), Some(0.5), "far away, and delayed");
    }

    #[test]
    fn a_slow_server_is_not_accused() {
        assert_eq!(share(0..100, MILLISECOND / 10, AckPattern::Read), None, "some times are always there");
        assert_eq!(share(20..70, MILLISECOND / 10, AckPattern::Read), None, "a third of them, as beside it");
        assert_eq!(share((0..100).map(|_| 60), MILLISECOND / 10, AckPattern::Read), None);
        assert_eq!(share((0..100).map(|_| 20), MILLISECOND / 10, AckPattern::Read), None);
        assert_eq!(share([], MILLISECOND / 10, AckPattern::Read), None);
    }
}
