//! Pace of clients: each asks at its own interval or back to back, with one question under way on each connection.

use crate::meter::{End, Meter, Phase, TIMED_OUT, connect_failed, ended, meter};
use crate::numbers::scatter;
use sockdrawer::{Closed, ConnectionId, Context, Input, Local, Note, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum of times: nothing is further ahead.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Number of operations that may be begun.
#[derive(Clone, Debug, Default)]
pub enum Budget {
    /// Any number.
    #[default]
    Unlimited,
    /// Maximum per connection. [`Asking`] counts to `u32::MAX`: more is any number to it.
    Each(u64),
    /// Number left for all connections that share it, whichever is first.
    Shared(Arc<AtomicU64>),
}

impl Budget {
    /// Takes up to `wanted` operations of a connection that has begun `begun` operations. Returns how many it got.
    pub(crate) fn take(&self, begun: u64, wanted: u64) -> u64 {
        match self {
            Budget::Unlimited => wanted,
            Budget::Each(limit) => limit.saturating_sub(begun).min(wanted),
            Budget::Shared(left) => {
                // The number alone is shared, so no order with other memory is needed.
                let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)));
                before.unwrap_or(0).min(wanted)
            }
        }
    }

    /// Gives back an operation that was taken: another connection will ask it again.
    pub(crate) fn give_back(&self) {
        if let Budget::Shared(left) = self {
            left.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns true where a connection that has begun `begun` operations gets no more.
    pub(crate) fn is_spent(&self, begun: u64) -> bool {
        match self {
            Budget::Unlimited => false,
            Budget::Each(limit) => begun >= *limit,
            Budget::Shared(left) => left.load(Ordering::Relaxed) == 0,
        }
    }
}

/// Time from one question to the next; zero is back to back. Connections that share it follow when it changes. Those at rest have a timer by the old
/// one: a note, whatever it says, makes them look again ([`sockdrawer::PoolHandle::notify`]).
#[derive(Clone, Debug)]
pub struct Interval(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Nanoseconds of the interval; the highest bit says that no question is asked.
    nanoseconds: AtomicU64,
    /// Moments at which questions are due whose connections have ended: each is for a connection that takes the place of one. None: none is replaced.
    left: Option<Mutex<Vec<Instant>>>,
    /// The last random number, where times are random; None: they are all as long.
    random: Option<AtomicU64>,
}

impl Interval {
    /// Maximum of nanoseconds; the bit above says that no question is asked.
    const MOST: u64 = SUSPENDED - 1;

    /// Creates an interval, of 292 years at most. A connection that takes the place of another goes on with its schedule: what was due meanwhile is
    /// asked late, and counts from when it was due.
    pub fn new(interval: Duration) -> Interval {
        Interval::of(interval, Some(Mutex::default()))
    }

    /// Creates an interval of connections that are not replaced: one that is new has a schedule of its own.
    pub fn without_successors(interval: Duration) -> Interval {
        Interval::of(interval, None)
    }

    fn of(interval: Duration, left: Option<Mutex<Vec<Instant>>>) -> Interval {
        Interval(Arc::new(Shared { nanoseconds: AtomicU64::new(nanoseconds(interval)), left, random: None }))
    }

    /// Makes the times random, as long on the average: as between questions of people that know nothing of each other, whose times are distributed
    /// exponentially (a Poisson process). Call it before it is shared.
    #[must_use]
    pub fn poisson(self, seed: u64) -> Interval {
        let Shared { nanoseconds, left, .. } = &*self.0;
        let nanoseconds = AtomicU64::new(nanoseconds.load(Ordering::Relaxed));
        Interval(Arc::new(Shared {
            nanoseconds,
            left: left.as_ref().map(|_| Mutex::default()),
            random: Some(AtomicU64::new(seed)),
        }))
    }

    /// Returns the time until the next question.
    fn next(&self, interval: Duration) -> Duration {
        let Some(random) = &self.0.random else { return interval };
        let number = scatter(random.fetch_add(1, Ordering::Relaxed)) >> 11;
        let uniform = number as f64 / (1_u64 << 53) as f64;
        Duration::try_from_secs_f64(-interval.as_secs_f64() * (1.0 - uniform).ln()).unwrap_or(CENTURY)
    }

    /// Sets another interval, on a new schedule.
    pub fn set(&self, interval: Duration) {
        let change = |before| Some(before & SUSPENDED | nanoseconds(interval));
        // The number alone is shared, so no order with other memory is needed.
        let _ = self.0.nanoseconds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        self.left().into_iter().for_each(|mut left| left.clear());
    }

    /// Suspends the questions: none is asked any more; what was asked is answered.
    pub fn suspend(&self) {
        self.0.nanoseconds.fetch_or(SUSPENDED, Ordering::Relaxed);
    }

    /// Resumes the questions, on a new schedule: what was due meanwhile is not made up for.
    pub fn resume(&self) {
        self.left().into_iter().for_each(|mut left| left.clear());
        self.0.nanoseconds.fetch_and(!SUSPENDED, Ordering::Relaxed);
    }

    /// Keeps what is due of this number of connections that have ended, at most: no more will be replaced. A connection that is made
    /// later would ask at once what was due long ago.
    pub fn keep(&self, most: usize) {
        self.left().into_iter().for_each(|mut left| left.truncate(most));
    }

    /// Returns the interval. None: nothing is asked.
    pub(crate) fn get(&self) -> Option<Duration> {
        let now = self.0.nanoseconds.load(Ordering::Relaxed);
        (now & SUSPENDED == 0).then(|| Duration::from_nanos(now))
    }

    /// Returns when the next question is due, after one that was due then and was answered now.
    pub(crate) fn after(&self, due: Instant, now: Instant) -> Instant {
        match self.get() {
            // Farther than the clock can say is as late as it can be told to be.
            Some(interval) if !interval.is_zero() => due.checked_add(self.next(interval)).unwrap_or(due + CENTURY),
            _ => now,
        }
    }

    /// Returns when the next question of a connection is due that begins a schedule.
    pub(crate) fn soon(&self, seed: u64, cx: &Context<'_>) -> Instant {
        let interval = self.get().unwrap_or_default();
        if self.0.random.is_some() { cx.now() + self.next(interval) } else { first(interval, cx.now(), seed, cx.id()) }
    }

    /// Returns when the first question of a new connection is due.
    pub(crate) fn first(&self, seed: u64, cx: &Context<'_>) -> Instant {
        self.left().and_then(|mut left| left.pop()).unwrap_or_else(|| self.soon(seed, cx))
    }

    /// Leaves the question that is due to another connection, which takes the place of one that has ended. Back to back nothing is due, nor while
    /// questions are suspended.
    pub(crate) fn leave(&self, due: Instant) {
        if self.get().is_some_and(|interval| !interval.is_zero()) {
            self.left().into_iter().for_each(|mut left| left.push(due));
        }
    }

    /// Locks the moments that are left. Nothing panics while it is held.
    fn left(&self) -> Option<MutexGuard<'_, Vec<Instant>>> {
        self.0.left.as_ref().map(|left| left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const SUSPENDED: u64 = 1 << 63;

fn nanoseconds(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).min(Interval::MOST)
}

impl From<Duration> for Interval {
    fn from(interval: Duration) -> Interval {
        Interval::new(interval)
    }
}

/// Pace of a connection: when it asks, how long it waits for an answer, and how often it may ask.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Time from one question to the next; zero is back to back. Each connection begins at a random point of its first interval. A late answer delays
    /// the next question but not its schedule.
    pub interval: Interval,
    /// Timeout of a whole answer. Then the operation has failed and the connection is aborted.
    pub timeout: Duration,
    /// Budget of questions. When it is spent, connections at rest end by themselves.
    pub budget: Budget,
    /// Time after which a connection ends by itself ([`End::Complete`]); what it has asked by then is answered first. None: it stays.
    pub lifetime: Option<Duration>,
    /// Seed of the random points. Pools that connect at once need seeds that differ: the numbers of their connections do not.
    pub seed: u64,
}

/// Returns a random point of a connection's first interval, so that connections begun together do not ask together.
pub(crate) fn first(interval: Duration, now: Instant, seed: u64, id: ConnectionId) -> Instant {
    match u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX) {
        0 => now,
        interval => now + Duration::from_nanos(scatter(seed ^ scatter(id.0)) % interval),
    }
}

/// State of an answer after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A part of it; the rest is awaited.
    Partial,
    /// The whole answer.
    Complete,
    /// Something else.
    Wrong,
}

/// Kind of question, for [`Asking`] to ask again and again.
pub trait Ask: Send + 'static {
    /// Sends the question.
    fn ask(&mut self, cx: &mut Context<'_>);

    /// Takes what has come of the answer, or leaves a part of it for later. May send more of a long question. Bytes left when it
    /// is complete are a failure: they answer nothing that was asked.
    fn answered(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Answer;
}

/// A client whose connections ask again and again, each for itself.
#[derive(Clone, Debug)]
pub struct Client<A, F> {
    ask: A,
    pace: Arc<Pace>,
    meter: F,
}

impl<A, F> Client<A, F> {
    /// Creates a client. Each connection begins with a clone of `ask`. `meter` makes the meter of a loop.
    pub fn new(ask: A, pace: Pace, meter: F) -> Client<A, F> {
        Client { ask, pace: Arc::new(pace), meter }
    }
}

impl<A: Ask + Clone + Sync, M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Client<A, F> {
    type Protocol = Asking<M, A>;

    fn open(&self, peer: &Peer) -> Asking<M, A> {
        Asking::new(self.pace.clone(), self.ask.clone(), peer)
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

enum AskingState {
    /// Connected after this time; not yet told.
    New(Duration),
    /// The next question is due then.
    Resting(Instant),
    Asked {
        scheduled: Instant,
        sent: Instant,
    },
}

/// Connection of a client that asks again and again, at a [`Pace`], and reports to a [`Meter`], the loop's local.
///
/// Its one timer is the next question's or the end of its life's while it rests, whichever is first, and the time-out's while it
/// waits for an answer.
pub struct Asking<M, A> {
    pace: Arc<Pace>,
    ask: A,
    state: AskingState,
    /// Moment at which its life is over.
    ends: Option<Instant>,
    done: u32,
    heard: bool,
    stopping: bool,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter, A: Ask> Asking<M, A> {
    /// Creates the connection to `peer`.
    pub fn new(pace: Arc<Pace>, ask: A, peer: &Peer) -> Asking<M, A> {
        let state = AskingState::New(peer.connect_time());
        Asking { pace, ask, state, ends: None, done: 0, heard: false, stopping: false, end: None, meter: PhantomData }
    }

    fn waiting_for(&self) -> Phase {
        match self.state {
            AskingState::Asked { .. } => Phase::Answer,
            AskingState::Resting(_) if self.heard => Phase::Closed,
            AskingState::New(_) | AskingState::Resting(_) => Phase::Unused,
        }
    }

    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.end(end)
    }

    fn end(&mut self, end: End) -> Step {
        self.end = Some(end);
        if end == End::Failed { Step::Abort } else { Step::Close }
    }

    /// Rests until `due`: asks now, sets the timer for it, or ends.
    fn rest(&mut self, due: Instant, cx: &mut Context<'_>) -> Step {
        self.state = AskingState::Resting(due);
        if self.stopping {
            return self.end(End::Stopped);
        }
        let now = cx.now();
        let (done, ends) = (self.done.into(), self.ends);
        if self.pace.budget.is_spent(done) || ends.is_some_and(|ends| ends <= now) {
            return self.end(End::Complete);
        }
        if self.pace.interval.get().is_none() {
            match ends {
                Some(ends) => cx.set_timer_at(ends),
                None => cx.clear_timer(),
            }
            return Step::Continue;
        }
        if due > now {
            cx.set_timer_at(ends.map_or(due, |ends| ends.min(due)));
            return Step::Continue;
        }
        if self.pace.budget.take(done, 1) == 0 {
            return self.end(End::Complete);
        }
        self.state = AskingState::Asked { scheduled: due, sent: now };
        cx.set_timer(self.pace.timeout);
        meter::<M>(cx).asked();
        self.ask.ask(cx);
        Step::Continue
    }
}

impl<M: Meter, A: Ask> Protocol for Asking<M, A> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        if let AskingState::New(took) = self.state {
            meter::<M>(cx).connected(took);
        }
        let now = cx.now();
        self.ends = self.pace.lifetime.and_then(|lifetime| now.checked_add(lifetime));
        self.rest(self.pace.interval.first(self.pace.seed, cx), cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let AskingState::Asked { scheduled, sent } = self.state else {
            return self.fail(Phase::Verify, None, End::Failed, cx);
        };
        let now = cx.now();
        if !self.heard {
            self.heard = true;
            meter::<M>(cx).first_byte(now - sent);
        }
        match self.ask.answered(input, cx) {
            Answer::Partial => Step::Continue,
            // More than the answer is an answer to nothing.
            Answer::Complete if input.is_empty() => {
                meter::<M>(cx).operation(scheduled, sent, now);
                self.done = self.done.saturating_add(1);
                self.rest(self.pace.interval.after(scheduled, now), cx)
            }
            Answer::Complete | Answer::Wrong => self.fail(Phase::Verify, None, End::Failed, cx),
        }
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.fail(self.waiting_for(), None, End::Lost, cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        match self.state {
            AskingState::Resting(due) => {
                let step = self.rest(due, cx);
                // A connection that reads a late answer asks late because of the server; where the timer was late, this side held it up.
                if let AskingState::Asked { sent, .. } = self.state {
                    meter::<M>(cx).lag(sent - due);
                }
                step
            }
            AskingState::New(_) | AskingState::Asked { .. } => self.fail(Phase::Answer, TIMED_OUT, End::Failed, cx),
        }
    }

    /// Looks at the interval again: it has changed.
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        match self.state {
            AskingState::Resting(_) => self.rest(self.pace.interval.soon(self.pace.seed, cx), cx),
            AskingState::New(_) | AskingState::Asked { .. } => Step::Continue,
        }
    }

    /// Lets the answer to a question that was asked come first.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        match self.state {
            AskingState::Resting(_) => self.end(End::Stopped),
            AskingState::New(_) | AskingState::Asked { .. } => Step::Continue,
        }
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        let interval = &self.pace.interval;
        let next = match self.state {
            AskingState::New(_) => None,
            AskingState::Resting(due) => Some(due),
            AskingState::Asked { scheduled, .. } => Some(interval.after(scheduled, cx.now())),
        };
        if self.end.is_none_or(|end| matches!(end, End::Lost | End::Failed)) && !self.stopping {
            next.into_iter().for_each(|due| interval.leave(due));
        }
        ended::<M>(cx, why, self.end, self.waiting_for());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, connect};
    use crate::ping;

    #[test]
    fn what_was_due_on_connections_that_are_not_replaced_is_forgotten() {
        let interval = Interval::new(Duration::from_secs(3_600));
        (0..3).for_each(|_| interval.leave(Instant::now()));
        interval.keep(1);
        let timeout = Duration::from_secs(1);
        let pace = Pace { interval, timeout, budget: Budget::Unlimited, lifetime: None, seed: 0 };
        let first_words = || connect(Client::new(ping::Question, pace.clone(), Book::default)).sent();
        assert_eq!(first_words(), b"Ping", "it takes the place of another");
        assert_eq!(first_words(), b"", "its first question is due within the hour");
    }

    #[test]
    fn another_seed_gives_the_same_connections_other_points() {
        let (now, interval) = (Instant::now(), Duration::from_secs(1));
        let points = |seed| {
            (1..=100).map(|id| first(interval, now, seed, ConnectionId(id)) - now).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(points(7), points(7));
        assert!(points(7).is_disjoint(&points(8)) && points(7).iter().all(|point| *point < interval));
        assert_eq!(first(Duration::ZERO, now, 7, ConnectionId(1)), now, "back to back there is none");
    }

    #[test]
    fn times_at_random_are_as_long_on_the_average_and_half_of_them_shorter_than_most() {
        let mean = Duration::from_millis(100);
        let times = |seed| {
            let interval = Interval::new(mean).poisson(seed);
            (0..100_000).map(|_| interval.next(mean).as_secs_f64()).collect::<Vec<f64>>()
        };
        let (all, other) = (times(7), times(1 << 40));
        assert_ne!(all, other);
        for times in [all, other] {
            let average = times.iter().sum::<f64>() / 1e5;
            assert!((average - 0.1).abs() < 0.001, "{average}");
            // The median of an exponential distribution is its mean times the logarithm of 2.
            let short = times.iter().filter(|time| **time < 0.1 * 2_f64.ln()).count();
            assert!((49_000..51_000).contains(&short), "{short}");
        }
        assert_eq!(Interval::new(mean).next(mean), mean);
    }
}
