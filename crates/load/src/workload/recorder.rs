//! The meter of one loop's clients.

use super::errors::Seen;
use super::shared::Shared;
use super::tally::Tally;
use sockdrawer_catalog::meter::{End, Meter, Phase};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The meter of one loop's clients.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) tally: Tally,
    shared: Arc<Shared>,
    /// Operations are messages, of which a connection has many under way.
    of_messages: bool,
    /// Messages of the connection that ends now, which nothing has acknowledged.
    unacknowledged: u64,
    /// Questions that have no answer yet, less the operations of clients that do not say when they ask.
    pub(crate) under_way: i64,
}

impl Recorder {
    /// Makes one for each loop.
    pub(super) fn each(shared: &Arc<Shared>) -> impl Fn() -> Recorder + Send + Sync + use<> {
        let shared = shared.clone();
        move || Recorder::new(shared.clone())
    }

    /// Makes one for each loop, for clients of `acks`.
    pub(super) fn each_of_messages(shared: &Arc<Shared>) -> impl Fn() -> Recorder + Send + Sync + use<> {
        let shared = shared.clone();
        move || Recorder { of_messages: true, ..Recorder::new(shared.clone()) }
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Recorder {
        Recorder { tally: Tally::default(), shared, of_messages: false, unacknowledged: 0, under_way: 0 }
    }

    fn operations_failed(&mut self, operations: u64) {
        self.tally.numbers.operations_failed += operations;
        self.finish(operations, Instant::now());
    }

    fn finish(&mut self, operations: u64, now: Instant) {
        self.tally.ended = Some(now);
        self.under_way -= operations.cast_signed();
        self.shared.finish(operations);
    }
}

impl Meter for Recorder {
    fn connected(&mut self, took: Duration) {
        self.tally.numbers.established += 1;
        self.tally.connect.record(took);
        self.tally.connected = Some(Instant::now());
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
        self.finish(messages, now);
    }

    fn written(&mut self, messages: u64, _bytes: u64) {
        self.tally.written += messages;
    }

    fn acks(&mut self, acks: u64) {
        self.tally.acks += acks;
    }

    fn unacknowledged(&mut self, messages: u64) {
        self.unacknowledged = messages;
        self.operations_failed(messages);
    }

    fn failed(&mut self, phase: Phase, errno: Option<i32>) {
        self.tally.errors.entry((phase, errno)).or_default().add(&Seen::now());
        match phase {
            Phase::Connect => self.tally.numbers.failed += 1,
            // The connection was at rest: it is lost, but no operation was under way.
            Phase::Closed | Phase::Unused => {}
            // Messages under way are told when the connection ends.
            _ if self.of_messages => {}
            _ => self.operations_failed(1),
        }
    }

    fn closed(&mut self, end: End) {
        let unacknowledged = std::mem::take(&mut self.unacknowledged);
        match end {
            End::Lost => self.tally.numbers.lost += 1,
            _ => self.tally.numbers.closed += 1,
        }
        match end {
            End::CutOff if self.of_messages => self.tally.unfinished += unacknowledged,
            End::CutOff => {
                self.tally.unfinished += 1;
                self.operations_failed(1);
            }
            _ => {}
        }
        self.shared.fell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Errors, Numbers};
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;
    use sockdrawer_catalog::{Budget, Client, Pace, ping};

    fn errors(tally: &Tally) -> Vec<String> {
        tally.errors(Instant::now()).iter().map(|Errors { phase, errno, count, .. }| format!("{phase} {errno} {count}")).collect()
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
        let mut recorder = Recorder::each_of_messages(&shared)();
        (0..4).for_each(|_| recorder.connected(took));
        recorder.written(40, 680);
        recorder.acknowledged(30, now, now, now + took);
        recorder.acks(2);
        // A connection fails with messages under way, another is cut off.
        recorder.failed(Phase::Verify, None);
        recorder.unacknowledged(4);
        recorder.closed(End::Failed);
        recorder.unacknowledged(6);
        recorder.closed(End::CutOff);
        // A third connection had nothing under way when it was cut off: what fails later is not unfinished.
        recorder.closed(End::CutOff);
        recorder.written(20, 340);
        recorder.failed(Phase::Answer, Some(110));
        recorder.unacknowledged(20);
        recorder.closed(End::Failed);
        assert_eq!((shared.standing(), shared.peak()), (0, 4));
        let tally = &recorder.tally;
        assert_eq!((tally.written, tally.acks, tally.unfinished), (60, 2, 6));
        assert_eq!((tally.numbers.operations_ok, tally.numbers.operations_failed), (30, 30));
        assert_eq!((tally.operation.count(), tally.last), (30, Some(now + took)));
        assert_eq!(errors(tally), ["answer ETIMEDOUT 1", "verify WRONG_BYTES 1", "unfinished CUT_OFF 6"]);
        assert!(shared.is_spent());
    }

    fn numbers(answered: u64, asking: bool) -> (Numbers, u64) {
        let shared = Arc::new(Shared::new(None, Duration::ZERO));
        let interval = Duration::from_secs(if asking { 0 } else { 5 });
        let pace = Pace {
            interval: interval.into(),
            timeout: Duration::from_secs(9),
            budget: Budget::Unlimited,
            lifetime: None,
            seed: 0,
        };
        let mut client = Driver::open(Client::new(ping::Question, pace, Recorder::each(&shared)));
        client.advance(interval);
        (0..answered).for_each(|_| client.receive(b"Pong"));
        client.drain();
        if client.closed().is_none() {
            client.end(Closed::Purged);
        }
        let tally = &client.local::<Recorder>().expect("the client's local").tally;
        (tally.numbers, tally.unfinished)
    }

    #[test]
    fn an_operation_that_is_cut_off_is_failed() {
        let cut = Numbers { established: 1, closed: 1, operations_ok: 3, operations_failed: 1, ..Numbers::default() };
        assert_eq!(numbers(3, true), (cut, 1), "the fourth question was under way");
        let at_rest = Numbers { established: 1, closed: 1, operations_ok: 1, ..Numbers::default() };
        assert_eq!(numbers(1, false), (at_rest, 0), "no question was under way");
    }
}
