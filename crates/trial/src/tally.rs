//! The counts of what the clients saw, read by the trial for each change.

use super::clients::{Cause, Phase, Witness};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A set of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Clients that connect, exchange and end, again and again.
    Churn,
    /// Connections that stay, and must not be lost.
    Kept,
    /// Connections that stay until the server asks them to end.
    Second,
    /// Connections that stay and make slow requests: when they are asked to end, they must still get the answers under way.
    Requests,
    /// Probes: they test whether a change is in force, or how long the server answers no client.
    Probe,
    /// Clients under TLS, of the kind of change "certificate".
    Secure,
    /// Clients of a proxy, of the kind of change "targets".
    Proxied,
}

impl Group {
    /// All sets.
    pub const ALL: [Group; 7] =
        [Group::Churn, Group::Kept, Group::Second, Group::Requests, Group::Probe, Group::Secure, Group::Proxied];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Group::Churn => "churn",
            Group::Kept => "kept",
            Group::Second => "second set",
            Group::Requests => "requests",
            Group::Probe => "probe",
            Group::Secure => "TLS",
            Group::Proxied => "proxied",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// End of a connection that was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An orderly end, after bytes that were all right.
    Orderly,
    /// A reset, after bytes that were all right.
    Reset,
}

impl Phase {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Exchange => "exchange",
            Phase::Between => "between exchanges",
            Phase::Unheard => "before the answer",
            Phase::End => "end",
        }
    }
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The set of the connections.
    pub group: Group,
    /// The phase in which the connections failed.
    pub phase: Phase,
    /// The cause of the failure.
    pub cause: Cause,
    /// The change that was in force, by the number that [`Tally::begin`] was given; 0 before.
    pub change: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.group.name(), self.phase.name(), self.cause)
    }
}

/// The counts of what the clients saw in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Connections of the churn that ended, well or not.
    pub connects: u64,
    /// Connects of the churn that were refused.
    pub refused: u64,
    /// Connects of the churn that were reset.
    pub reset: u64,
    /// Connects of the churn that had no answer, or no end, for 5 s.
    pub timed_out: u64,
    /// Connects of the churn that failed for another reason: ended before the answer, wrong bytes, another error.
    pub failed_otherwise: u64,
    /// Connects that the clients could not begin, for want of a port, a descriptor or memory of their own. They say nothing about
    /// the server and are not among the connects.
    pub not_begun: u64,
    /// Kept connections that ended with a request under way: no answer, or a part of it.
    pub lost_in_exchange: u64,
    /// Lost connections that had answered before, and that ended before the first byte of this answer.
    pub lost_unheard: u64,
    /// Kept connections that ended, unannounced, while no request was under way.
    pub lost_between: u64,
    /// Kept connections that ended as their last answer had announced.
    pub lost_announced: u64,
    /// Failed connects that were to replace a lost kept connection.
    pub kept_not_back: u64,
    /// Bytes that were not the expected ones, of all clients.
    pub wrong_bytes: u64,
    /// Exchanges on kept connections.
    pub kept_exchanges: u64,
    /// Connections that were asked to end and did as asked.
    pub ended_well: u64,
    /// Connections of [`Group::Second`] that ended otherwise.
    pub ended_badly: u64,
    /// The longest time in which no connect of the churn led to an answer.
    pub longest_gap: Duration,
}

impl Seen {
    /// Returns the number of connects that failed for any reason other than the clients' own.
    pub fn failed(&self) -> u64 {
        self.refused + self.reset + self.timed_out + self.failed_otherwise
    }

    /// Returns the number of kept connections lost, in any way.
    pub fn lost(&self) -> u64 {
        self.lost_in_exchange + self.lost_between + self.lost_announced
    }

    /// Returns the number of kept connections lost, where it is allowed or not that a connection is closed at rest or before it is heard.
    pub fn lost_unless_allowed(&self, idle_close: bool) -> u64 {
        if idle_close { self.lost_in_exchange.saturating_sub(self.lost_unheard) } else { self.lost() }
    }

    /// Returns the number of kept connections that were lost at rest: closed as announced, or between exchanges.
    pub fn closed_at_rest(&self) -> u64 {
        self.lost_between + self.lost_announced
    }

    /// Returns true where nothing was lost.
    pub fn is_clean(&self) -> bool {
        self.failed() + self.lost() + self.wrong_bytes + self.ended_badly == 0
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Seen) -> Seen {
        self.by(other, |one, other| one + other)
    }

    /// Returns the counts since `before`. The longest gap is that of `self`.
    fn since(&self, before: &Seen) -> Seen {
        Seen { longest_gap: self.longest_gap, ..self.by(before, u64::saturating_sub) }
    }

    fn by(&self, other: &Seen, combine: impl Fn(u64, u64) -> u64) -> Seen {
        Seen {
            connects: combine(self.connects, other.connects),
            refused: combine(self.refused, other.refused),
            reset: combine(self.reset, other.reset),
            timed_out: combine(self.timed_out, other.timed_out),
            failed_otherwise: combine(self.failed_otherwise, other.failed_otherwise),
            not_begun: combine(self.not_begun, other.not_begun),
            lost_in_exchange: combine(self.lost_in_exchange, other.lost_in_exchange),
            lost_unheard: combine(self.lost_unheard, other.lost_unheard),
            lost_between: combine(self.lost_between, other.lost_between),
            lost_announced: combine(self.lost_announced, other.lost_announced),
            kept_not_back: combine(self.kept_not_back, other.kept_not_back),
            wrong_bytes: combine(self.wrong_bytes, other.wrong_bytes),
            kept_exchanges: combine(self.kept_exchanges, other.kept_exchanges),
            ended_well: combine(self.ended_well, other.ended_well),
            ended_badly: combine(self.ended_badly, other.ended_badly),
            longest_gap: self.longest_gap.max(other.longest_gap),
        }
    }
}

/// The counts until now.
#[derive(Debug, Default)]
struct Counted {
    seen: Seen,
    failures: BTreeMap<Failure, u64>,
}

/// The counts of all clients. A connection counts where it ends: from the start of a change to the start of the next.
///
/// Frequent events are counted by relaxed atomics, because nothing else depends on them; rare events under a lock.
#[derive(Debug)]
pub struct Tally {
    begun: Instant,
    ended: AtomicU64,
    stood: [AtomicU64; Group::ALL.len()],
    exchanges: [AtomicU64; Group::ALL.len()],
    /// Connections that ended as asked: in order, and by a reset.
    endings: [[AtomicU64; 2]; Group::ALL.len()],
    change: AtomicUsize,
    /// The time of the last answered connect, in nanoseconds since `begun`.
    answered_at: AtomicU64,
    longest_gap: AtomicU64,
    rare: Mutex<Counted>,
    /// The counts at the start of the change in force.
    before: Mutex<Seen>,
    unexpected: OnceLock<(String, Instant)>,
    /// WebSockets that the server closed, by its code.
    closed: Mutex<BTreeMap<u16, u64>>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

impl Tally {
    /// Creates an empty tally; the time without an answered connect begins now.
    pub fn new() -> Tally {
        Tally {
            begun: Instant::now(),
            ended: AtomicU64::new(0),
            stood: Default::default(),
            exchanges: Default::default(),
            endings: Default::default(),
            change: AtomicUsize::new(0),
            answered_at: AtomicU64::new(0),
            longest_gap: AtomicU64::new(0),
            rare: Mutex::default(),
            before: Mutex::default(),
            unexpected: OnceLock::new(),
            closed: Mutex::default(),
        }
    }

    /// Returns a witness that counts here for a set.
    pub fn witness(self: &Arc<Tally>, group: Group) -> Arc<Counter> {
        Arc::new(Counter { tally: self.clone(), group })
    }

    /// Returns the first answer that was wrong or late, described, and when it was asked for at the earliest.
    pub fn unexpected(&self) -> Option<(String, Instant)> {
        self.unexpected.get().cloned()
    }

    /// Returns the number of WebSockets that the server closed, by its code.
    pub fn closed(&self) -> BTreeMap<u16, u64> {
        lock(&self.closed).clone()
    }

    /// Returns the counts since the beginning. The longest gap is that of the change in force alone.
    pub fn total(&self) -> Seen {
        let rare = lock(&self.rare).seen;
        let ended = self.ended.load(Ordering::Relaxed);
        Seen {
            connects: rare.connects + ended,
            kept_exchanges: self.exchanges(Group::Kept),
            ended_well: self.endings.iter().flatten().map(|count| count.load(Ordering::Relaxed)).sum(),
            longest_gap: Duration::from_nanos(self.longest_gap.load(Ordering::Relaxed)),
            ..rare
        }
    }

    /// Ends the change in force, returns its counts, and begins the next. A gap that reaches over both changes counts for the first up to
    /// now, and for the second as a whole.
    pub fn next(&self) -> Seen {
        self.gap();
        let total = self.total();
        self.longest_gap.store(0, Ordering::Relaxed);
        let before = std::mem::replace(&mut *lock(&self.before), total);
        total.since(&before)
    }

    /// Returns the counts since the change in force began.
    pub fn current(&self) -> Seen {
        self.gap();
        self.total().since(&lock(&self.before))
    }

    /// Attributes failures to the change of this number from now on.
    pub fn begin(&self, change: usize) {
        self.change.store(change, Ordering::Relaxed);
    }

    /// Returns the number of the change in force.
    pub fn change(&self) -> usize {
        self.change.load(Ordering::Relaxed)
    }

    /// Returns the number of connections of a set that were established, also those that replaced others.
    pub fn stood(&self, group: Group) -> u64 {
        self.stood[group.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of complete exchanges of a set.
    pub fn exchanges(&self, group: Group) -> u64 {
        self.exchanges[group.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of connections of a set that ended in this way, as asked.
    pub(crate) fn endings(&self, group: Group, ending: Ending) -> u64 {
        self.endings[group.index()][ending as usize].load(Ordering::Relaxed)
    }

    /// Counts a connection that ended as the change in force asks for.
    pub(crate) fn ended_as_asked(&self, group: Group, ending: Ending) {
        self.endings[group.index()][ending as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all failures, most frequent first.
    pub fn failures(&self) -> Vec<(Failure, u64)> {
        let mut failures: Vec<_> = lock(&self.rare).failures.iter().map(|(failure, count)| (*failure, *count)).collect();
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failures
    }

    /// Starts the churn: the time before does not count as a gap.
    pub(crate) fn start_churn(&self) {
        self.answered_at.store(self.nanoseconds(), Ordering::Relaxed);
        self.longest_gap.store(0, Ordering::Relaxed);
    }

    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts the time since the last answered connect as a gap.
    fn gap(&self) {
        let since = self.answered_at.load(Ordering::Relaxed);
        self.longest_gap.fetch_max(self.nanoseconds().saturating_sub(since), Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        let now = self.nanoseconds();
        let before = self.answered_at.fetch_max(now, Ordering::Relaxed);
        self.longest_gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }

    fn failed(&self, failure: Failure) {
        let mut rare = lock(&self.rare);
        *rare.failures.entry(failure).or_default() += 1;
        let seen = &mut rare.seen;
        let column = match (failure.group, failure.phase, failure.cause) {
            (Group::Probe, ..) => return,
            (_, Phase::Connect, cause) if is_own(cause) => &mut seen.not_begun,
            (Group::Second, ..) => &mut seen.ended_badly,
            (Group::Kept | Group::Requests, Phase::Connect, _) => &mut seen.kept_not_back,
            (Group::Kept | Group::Requests, _, Cause::Announced) => &mut seen.lost_announced,
            (Group::Kept | Group::Requests, Phase::Between, _) => &mut seen.lost_between,
            (Group::Kept | Group::Requests, Phase::Unheard, _) => {
                seen.lost_unheard += 1;
                &mut seen.lost_in_exchange
            }
            (Group::Kept | Group::Requests, _, _) => &mut seen.lost_in_exchange,
            (Group::Secure | Group::Proxied, Phase::Between | Phase::Unheard, _) => &mut seen.lost_between,
            (Group::Churn | Group::Secure | Group::Proxied, _, cause) => {
                seen.connects += 1;
                match sort(cause) {
                    Sort::Refused => &mut seen.refused,
                    Sort::Reset => &mut seen.reset,
                    Sort::TimedOut => &mut seen.timed_out,
                    Sort::Other => &mut seen.failed_otherwise,
                }
            }
        };
        *column += 1;
    }
}

enum Sort {
    Refused,
    Reset,
    TimedOut,
    Other,
}

fn sort(cause: Cause) -> Sort {
    match cause.errno().map(Errno::from_raw_os_error) {
        // A Unix socket whose queue is full, or that does not exist, refuses with other errnos.
        Some(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOENT) => Sort::Refused,
        Some(Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED) => Sort::Reset,
        Some(Errno::TIMEDOUT) => Sort::TimedOut,
        None if matches!(cause, Cause::Late | Cause::Stayed) => Sort::TimedOut,
        _ => Sort::Other,
    }
}

/// Returns true where a connect failed at this end, before it reached the server.
fn is_own(cause: Cause) -> bool {
    matches!(
        cause.errno().map(Errno::from_raw_os_error),
        Some(Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A witness that counts the results of a set of clients in a [`Tally`].
#[derive(Debug)]
pub struct Counter {
    tally: Arc<Tally>,
    group: Group,
}

impl Counter {
    /// Counts exchanges that were complete and right.
    pub(crate) fn exchanged(&self, count: u64) {
        self.tally.exchanges[self.group.index()].fetch_add(count, Ordering::Relaxed);
    }
}

impl Witness for Counter {
    fn stood(&self) {
        self.tally.stood[self.group.index()].fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self) {
        if self.group == Group::Churn {
            self.tally.answered();
        }
        self.exchanged(1);
    }

    fn ended(&self) {
        if self.group == Group::Churn {
            self.tally.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wrong(&self, bytes: usize) {
        lock(&self.tally.rare).seen.wrong_bytes += bytes as u64;
    }

    fn unexpected(&self, answer: String, asked: Instant) {
        // Only the first is kept.
        let _ = self.tally.unexpected.set((answer, asked));
    }

    fn closed_with(&self, code: u16) {
        *lock(&self.tally.closed).entry(code).or_default() += 1;
    }

    fn failed(&self, phase: Phase, cause: Cause) {
        self.tally.failed(Failure { group: self.group, phase, cause, change: self.tally.change() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Cause = Cause::Errno(104);

    #[test]
    fn each_failure_has_its_column() {
        let tally = Arc::new(Tally::new());
        let (churn, kept) = (tally.witness(Group::Churn), tally.witness(Group::Kept));
        churn.failed(Phase::Connect, Cause::Errno(111));
        churn.failed(Phase::Exchange, RESET);
        churn.failed(Phase::Exchange, Cause::Late);
        churn.failed(Phase::End, Cause::Stayed);
        churn.failed(Phase::Exchange, Cause::Early);
        churn.failed(Phase::Connect, Cause::Errno(99));
        kept.failed(Phase::Exchange, Cause::Early);
        kept.failed(Phase::Unheard, RESET);
        kept.failed(Phase::Between, RESET);
        kept.failed(Phase::Between, Cause::Announced);
        kept.failed(Phase::Connect, Cause::Errno(111));
        kept.wrong(3);
        churn.ended();
        let expected = Seen {
            connects: 6,
            refused: 1,
            reset: 1,
            timed_out: 2,
            failed_otherwise: 1,
            not_begun: 1,
            lost_in_exchange: 2,
            lost_unheard: 1,
            lost_between: 1,
            lost_announced: 1,
            kept_not_back: 1,
            wrong_bytes: 3,
            ..Seen::default()
        };
        let seen = tally.next();
        assert_eq!(Seen { longest_gap: Duration::ZERO, ..seen }, expected);
        assert_eq!((seen.failed(), seen.lost(), seen.is_clean()), (5, 4, false));
        assert_eq!((seen.closed_at_rest(), seen.lost_unheard), (2, 1), "but for the one that ended within its first answer");
        assert!(tally.next().is_clean(), "the next change has its own row");
        assert_eq!(tally.failures().len(), 11);
    }

    #[test]
    fn a_gap_ends_with_an_answer_and_counts_while_it_lasts() {
        let tally = Arc::new(Tally::new());
        let churn = tally.witness(Group::Churn);
        churn.answered();
        let first = tally.next().longest_gap;
        assert!(first > Duration::ZERO && tally.begun.elapsed() >= first);
        let again = tally.current().longest_gap;
        assert!(tally.current().longest_gap >= again, "nobody was answered since");
    }
}
