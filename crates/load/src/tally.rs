//! What one loop counted and measured. Loops share nothing while they measure; tallies are added up when somebody asks.

use crate::errno::errno_name;
use crate::http::Figures;
use crate::latency::Latency;
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use sockdrawer_catalog::meter::{End, Meter, Phase};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// Connections that stood.
    pub established: u64,
    /// Connects that failed.
    pub failed: u64,
    /// Connections that the peer or the network ended unasked.
    pub lost: u64,
    /// Connections that this side ended.
    pub closed: u64,
    /// Operations that ended well.
    pub operations_ok: u64,
    /// Operations that did not.
    pub operations_failed: u64,
}

impl Numbers {
    pub(crate) fn add(&mut self, other: &Numbers) {
        self.established += other.established;
        self.failed += other.failed;
        self.lost += other.lost;
        self.closed += other.closed;
        self.operations_ok += other.operations_ok;
        self.operations_failed += other.operations_failed;
    }
}

/// What one loop knows, or all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) numbers: Numbers,
    pub(crate) connect: Latency,
    pub(crate) first_byte: Latency,
    /// From when an operation was due.
    pub(crate) operation: Latency,
    /// From when it began, of those that began later than they were due: the others took as long as `operation` says.
    pub(crate) late_begun: Latency,
    /// From when they were due, of the same.
    pub(crate) late_due: Latency,
    /// From when a question was due until this side came to ask it.
    pub(crate) lag: Latency,
    pub(crate) errors: BTreeMap<(Phase, Option<i32>), u64>,
    /// Of the operations that failed: cut off by this side at the end of the run.
    pub(crate) unfinished: u64,
    /// Messages that were written, and acks that came. Workload `acks` only.
    pub(crate) written: u64,
    pub(crate) acks: u64,
    /// Of the workload `http` only.
    pub(crate) http: Option<Box<Figures>>,
    /// When the last operation ended well.
    #[serde(with = "crate::moment")]
    pub(crate) last: Option<Instant>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.numbers.add(&other.numbers);
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.operation.add(&other.operation);
        self.late_begun.add(&other.late_begun);
        self.late_due.add(&other.late_due);
        self.lag.add(&other.lag);
        for (error, count) in &other.errors {
            *self.errors.entry(*error).or_default() += count;
        }
        self.unfinished += other.unfinished;
        self.written += other.written;
        self.acks += other.acks;
        if let Some(http) = &other.http {
            self.http().add(http);
        }
        self.last = self.last.max(other.last);
    }

    /// How long operations took from when they began, as tools measure that forget how late they ask.
    pub(crate) fn uncorrected(&self) -> Latency {
        let mut all = self.operation.clone();
        all.subtract(&self.late_due);
        all.add(&self.late_begun);
        all
    }

    /// What went wrong, and how often.
    pub(crate) fn errors(&self) -> Vec<Errors> {
        let errors = self.errors.iter().map(|((phase, errno), count)| Errors {
            phase: phase.name().into(),
            errno: cause(*phase, *errno),
            count: *count,
        });
        let unfinished = (self.unfinished > 0).then(|| Errors {
            phase: "unfinished".into(),
            errno: "CUT_OFF".to_owned(),
            count: self.unfinished,
        });
        errors.chain(unfinished).collect()
    }

    /// What clients of `http` measured besides.
    pub(crate) fn http(&mut self) -> &mut Figures {
        self.http.get_or_insert_default()
    }
}

/// Errors of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// What was waited for: `connect`, `send`, `answer`, `verify` (the right bytes), `status` (2xx or 3xx), `length` (that of the
    /// first body), `end` (of the stream), `closed` (nothing);
    /// or `unfinished`: the operation was under way when the run ended, or was stopped, and did not end soon after.
    pub phase: Cow<'static, str>,
    /// The errno's name, or the status that came, `OTHER_LENGTH`, `EOF` when the peer ended too early, `WRONG_BYTES` when it sent something else,
    /// `CUT_OFF` when this side ended the connection.
    pub errno: String,
    /// How often.
    pub count: u64,
}

/// The meter of one loop's clients.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) tally: Tally,
    shared: Arc<Shared>,
    /// Operations are messages, of which a connection has many under way.
    of_messages: bool,
    /// This side has cut off the connection that ends now.
    cutting: bool,
    /// Questions that have no answer yet, less the operations of clients that do not say when they ask.
    pub(crate) under_way: i64,
}

impl Recorder {
    pub(crate) fn new(shared: Arc<Shared>) -> Recorder {
        Recorder { tally: Tally::default(), shared, of_messages: false, cutting: false, under_way: 0 }
    }

    /// For clients of `acks`.
    pub(crate) fn of_messages(shared: Arc<Shared>) -> Recorder {
        Recorder { of_messages: true, ..Recorder::new(shared) }
    }

    /// An operation was under way when this side ended its connection; or messages were, and their client says how many.
    pub(crate) fn cut_off(&mut self) {
        self.cutting = true;
        if !self.of_messages {
            self.tally.unfinished += 1;
            self.operations_failed(1);
        }
    }

    fn operations_failed(&mut self, operations: u64) {
        self.tally.numbers.operations_failed += operations;
        self.finish(operations);
    }

    fn finish(&mut self, operations: u64) {
        self.under_way -= operations.cast_signed();
        self.shared.finish(operations);
    }
}

impl Meter for Recorder {
    fn connected(&mut self, took: Duration) {
        self.tally.numbers.established += 1;
        self.tally.connect.record(took);
        self.shared.stands();
    }

    fn asked(&mut self) {
        self.under_way += 1;
    }

    fn first_byte(&mut self, after: Duration) {
        self.tally.first_byte.record(after);
    }

    fn lag(&mut self, lag: Duration) {
        self.tally.lag.record(lag);
    }

    fn operation(&mut self, scheduled: Instant, sent: Instant, now: Instant) {
        self.acknowledged(1, scheduled, sent, now);
    }

    fn acknowledged(&mut self, messages: u64, scheduled: Instant, sent: Instant, now: Instant) {
        self.tally.numbers.operations_ok += messages;
        self.tally.operation.record_many(now.saturating_duration_since(scheduled), messages);
        if sent != scheduled {
            self.tally.late_begun.record_many(now.saturating_duration_since(sent), messages);
            self.tally.late_due.record_many(now.saturating_duration_since(scheduled), messages);
        }
        self.tally.last = Some(now);
        self.finish(messages);
    }

    fn written(&mut self, messages: u64, _bytes: u64) {
        self.tally.written += messages;
    }

    fn acks(&mut self, acks: u64) {
        self.tally.acks += acks;
    }

    fn unacknowledged(&mut self, messages: u64) {
        if self.cutting {
            self.tally.unfinished += messages;
        }
        self.operations_failed(messages);
    }

    fn failed(&mut self, phase: Phase, errno: Option<i32>) {
        *self.tally.errors.entry((phase, errno)).or_default() += 1;
        match phase {
            Phase::Connect => self.tally.numbers.failed += 1,
            // The connection was at rest: it is lost, but no operation was under way.
            Phase::Closed => {}
            // Those under way are told when the connection ends.
            _ if self.of_messages => {}
            _ => self.operations_failed(1),
        }
    }

    fn closed(&mut self, end: End) {
        self.cutting = false;
        match end {
            End::Lost => self.tally.numbers.lost += 1,
            _ => self.tally.numbers.closed += 1,
        }
        self.shared.fell();
    }
}

/// What an error is called in a report: the errno's name, or what happened where no errno tells it.
pub(crate) fn cause(phase: Phase, errno: Option<i32>) -> String {
    match (phase, errno) {
        (Phase::Status, Some(status)) => status.to_string(),
        (_, Some(errno)) => errno_name(errno).map_or_else(|| format!("errno {errno}"), str::to_owned),
        (Phase::Verify, None) => "WRONG_BYTES".to_owned(),
        (Phase::Length, None) => "OTHER_LENGTH".to_owned(),
        (Phase::Client, None) => "CLIENT_BUG".to_owned(),
        (_, None) => "EOF".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(tally: &Tally) -> Vec<String> {
        let words = |((phase, errno), count): (&(Phase, Option<i32>), &u64)| {
            format!("{} {} {count}", phase.name(), cause(*phase, *errno))
        };
        tally.errors.iter().map(words).collect()
    }

    #[test]
    fn what_loops_recorded_adds_up() {
        let (now, took) = (Instant::now(), Duration::from_micros(20));
        let shared = Arc::new(Shared::new(Some(4), Duration::ZERO));
        let (mut one, mut other) = (Recorder::new(shared.clone()), Recorder::new(shared.clone()));
        one.connected(took);
        one.operation(now, now, now + took);
        one.failed(Phase::Connect, Some(111));
        other.connected(took);
        other.operation(now, now, now + 2 * took);
        other.failed(Phase::Answer, Some(110));
        other.closed(End::Failed);
        other.failed(Phase::Connect, Some(111));
        other.connected(took);
        other.failed(Phase::Closed, None);
        other.closed(End::Lost);
        assert!(!shared.is_spent(), "three operations ended");
        other.failed(Phase::Verify, None);
        assert!(shared.is_spent());
        assert_eq!((shared.standing(), shared.peak()), (1, 2));
        let mut sum = one.tally.clone();
        sum.add(&other.tally);
        let numbers = Numbers { established: 3, failed: 2, lost: 1, closed: 1, operations_ok: 2, operations_failed: 2 };
        assert_eq!(sum.numbers, numbers);
        assert_eq!((sum.connect.count(), sum.operation.count()), (3, 2));
        assert_eq!(sum.last, Some(now + 2 * took));
        assert_eq!(errors(&sum), ["connect ECONNREFUSED 2", "answer ETIMEDOUT 1", "verify WRONG_BYTES 1", "closed EOF 1"]);
    }

    #[test]
    fn messages_are_counted_by_the_batch_and_failed_by_the_connection() {
        let (now, took) = (Instant::now(), Duration::from_millis(3));
        let shared = Arc::new(Shared::new(Some(60), Duration::ZERO));
        let mut recorder = Recorder::of_messages(shared.clone());
        (0..4).for_each(|_| recorder.connected(took));
        recorder.written(40, 680);
        recorder.acknowledged(30, now, now, now + took);
        recorder.acks(2);
        // One connection fails with messages under way, one is cut off.
        recorder.failed(Phase::Verify, None);
        recorder.unacknowledged(4);
        recorder.closed(End::Failed);
        recorder.cut_off();
        recorder.unacknowledged(6);
        recorder.closed(End::Stopped);
        // Of a third, nothing was under way when it was cut off: what fails later is not unfinished.
        recorder.cut_off();
        recorder.closed(End::Stopped);
        recorder.written(20, 340);
        recorder.failed(Phase::Answer, Some(110));
        recorder.unacknowledged(20);
        recorder.closed(End::Failed);
        assert_eq!((shared.standing(), shared.peak()), (0, 4));
        let tally = &recorder.tally;
        assert_eq!((tally.written, tally.acks, tally.unfinished), (60, 2, 6));
        assert_eq!((tally.numbers.operations_ok, tally.numbers.operations_failed), (30, 30));
        assert_eq!((tally.operation.count(), tally.last), (30, Some(now + took)));
        assert_eq!(errors(tally), ["answer ETIMEDOUT 1", "verify WRONG_BYTES 1"]);
        assert!(shared.is_spent());
    }

    #[test]
    fn an_unnamed_errno_is_told_by_its_number() {
        assert_eq!(cause(Phase::Answer, Some(9999)), "errno 9999");
    }
}
