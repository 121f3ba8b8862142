//! Asking connections to end, and ending them.

use super::control::Core;
use super::halt::End;
use super::selector::Selector;
use crate::clock::deadline;
use crate::flow::Flow;
use crate::flow::inbox::{Inbox, Letter, Order};
use crate::sync::{Mutex, lock, mpsc};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How connections are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Drain {
    /// After this, those still there are purged.
    pub deadline: Duration,
    /// The most to ask in a second, in random order; None: all at once.
    pub rate: Option<f64>,
    /// So many of those that stand and were not asked yet, chosen at random, or all where there are fewer; with processes each takes
    /// its part.
    /// Who had no turn before the deadline stays. None, and always when a pool ends: all.
    pub at_most: Option<usize>,
    /// Before [`Pool::shutdown`](crate::Pool::shutdown) stops accepting, readiness is false for so long, for those who send
    /// connections here to notice.
    pub notice: Duration,
}

impl Drain {
    /// All at once, with this deadline.
    pub fn within(deadline: Duration) -> Drain {
        Drain { deadline, rate: None, at_most: None, notice: Duration::ZERO }
    }

    /// At most so many a second.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Drain {
        self.rate = Some(per_second);
        self
    }

    /// So many, chosen at random.
    #[must_use]
    pub fn at_most(mut self, connections: usize) -> Drain {
        self.at_most = Some(connections);
        self
    }

    /// Before a shutdown stops accepting, readiness is false for so long.
    #[must_use]
    pub fn notice(mut self, notice: Duration) -> Drain {
        self.notice = notice;
        self
    }
}

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drained {
    /// Connections that matched, or as many of them as were to end.
    pub asked: usize,
    /// Of these, ended by themselves.
    pub ended: usize,
    /// Of these, cut off at the deadline.
    pub cut: usize,
}

impl std::iter::Sum for Drained {
    fn sum<I: Iterator<Item = Drained>>(all: I) -> Drained {
        let add = |sum: Drained, one: Drained| Drained {
            asked: sum.asked + one.asked,
            ended: sum.ended + one.ended,
            cut: sum.cut + one.cut,
        };
        all.fold(Drained::default(), add)
    }
}

/// A purged connection has this long to take what was written; then it is reset.
const PURGE_WITHIN: Duration = Duration::from_secs(5);
/// How often a pool that ends looks for connections that came in meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Who is busy for longer is asked again later.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Who is asked within this time of another is asked with it, when there is a rate.
const PACE: Duration = Duration::from_millis(1);

/// A connection and the loop it is in.
type Target = (Arc<Inbox>, u64);

/// Connections that were asked to end, by the flow that has them. It notes them itself, so that those of one that answers too late
/// count. A flow that is gone keeps its name.
type Known = Arc<Mutex<HashMap<(usize, u64), Weak<Inbox>>>>;

impl Core {
    pub(crate) fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        let until = deadline(Instant::now(), how.deadline);
        // Who it is about is found out whatever the deadline.
        let answer = until.max(Instant::now() + ANSWER_WITHIN);
        let mut left = match how.at_most {
            Some(most) => self.ask_some(selector, most, Moments::at(how.rate.unwrap_or_default(), Instant::now()), until),
            None => self.ask_matching(selector, (how.rate, End::Begun), answer, until, &Known::default()),
        };
        let asked = left.len();
        self.shared.bell.wait(until, || {
            left = still_here(std::mem::take(&mut left), until);
            left.is_empty()
        });
        let purged = left.len();
        for (inbox, token) in &left {
            let token = *token;
            let _ = inbox.put(Letter::Order(Box::new(move |flow| flow.purge_one(token, PURGE_WITHIN))));
        }
        self.wait_for_purged(left, PURGE_WITHIN);
        Drained { asked, ended: asked - purged, cut: purged }
    }

    /// Asks all that match to end. Without a rate each flow does so as soon as it hears of it: one that is busy holds up no other,
    /// and purges what it has when it hears of it too late. With a rate those are left that had no turn before the `end`.
    fn ask_matching(
        &self,
        selector: &Selector,
        (rate, end): (Option<f64>, End),
        answer: Instant,
        until: Instant,
        known: &Known,
    ) -> Vec<Target> {
        let known = known.clone();
        let note =
            move |inbox: &Arc<Inbox>, token| _ = lock(&known).insert((Arc::as_ptr(inbox) as usize, token), Arc::downgrade(inbox));
        if rate.is_none() {
            return self.targets(selector, answer, move |inbox, token| {
                note(inbox, token);
                Some(Box::new(move |flow| {
                    let too_late = Instant::now() > until.max(answer);
                    if too_late { flow.purge_one(token, PURGE_WITHIN) } else { _ = flow.drain_one(token) }
                }))
            });
        }
        let mut targets = self.targets(selector, answer, move |inbox, token| {
            note(inbox, token);
            None
        });
        // So that a drain does not empty one loop, or one client, first.
        shuffle(&mut targets);
        let mut moments = rate.map(|rate| Moments::at(rate, Instant::now())).unwrap_or_default();
        for (inbox, token) in &targets {
            let due = moments.next();
            if due >= until || (due > Instant::now() + PACE && !self.halt.wait_until(due, end)) {
                break;
            }
            let token = *token;
            // A loop that is gone has no connections.
            let _ = inbox.put(Letter::Order(Box::new(move |flow| _ = flow.drain_one(token))));
        }
        targets
    }

    /// Asks so many of those that match to end, whoever else asks at the same time; whom it has asked.
    fn ask_some(&self, selector: &Selector, most: usize, mut moments: Moments, until: Instant) -> Vec<Target> {
        let answer = until.max(Instant::now() + ANSWER_WITHIN);
        let mut targets = self.targets(selector, answer, |_, _| None);
        shuffle(&mut targets);
        let (mut targets, mut asked) = (targets.into_iter(), Vec::new());
        let mut due = moments.next();
        while asked.len() < most {
            if due >= until || (due > Instant::now() + PACE && !self.halt.wait_until(due, End::Begun)) {
                break;
            }
            let (soon, mut next) = (Instant::now() + PACE, Vec::new());
            while due <= soon && due < until && asked.len() + next.len() < most {
                let Some(target) = targets.next() else { break };
                next.push(target);
                due = moments.next();
            }
            if next.is_empty() && targets.len() == 0 {
                break;
            }
            // Those that still connect, have ended, or were asked by somebody else, have others in their place.
            asked.extend(those(next, answer, Flow::drain_standing));
        }
        asked
    }

    /// Drains the pool to its end: also connections that were still on their way in when it began, until `is_over`.
    pub(crate) fn drain_to_the_end(&self, how: Drain, is_over: impl Fn() -> bool) -> Drained {
        let until = deadline(Instant::now(), how.deadline);
        let (known, mut rate) = (Known::default(), how.rate);
        loop {
            // Who does not answer now is asked again. Those that come in later were let in to be answered: at once.
            let answer = until.min(Instant::now() + ANSWER_WITHIN);
            self.ask_matching(&Selector::All, (rate.take(), End::Here), answer, until, &known);
            let now = Instant::now();
            if self.shared.bell.wait(until.min(now + LOOK_AGAIN), &is_over) || Instant::now() >= until {
                break;
            }
        }
        let purged = self.purge(&Selector::All, PURGE_WITHIN);
        let asked = lock(&known).len().max(purged);
        Drained { asked, ended: asked - purged, cut: purged }
    }

    pub(crate) fn purge(&self, selector: &Selector, within: Duration) -> usize {
        let until = deadline(Instant::now(), within.max(PURGE_WITHIN));
        let targets = self.targets(selector, until, move |_, token| Some(Box::new(move |flow| flow.purge_one(token, within))));
        let purged = targets.len();
        self.wait_for_purged(targets, within);
        purged
    }

    /// Everything that matches, by the flow that has it, which writes itself an order for each: it keeps its pace with orders.
    fn targets(
        &self,
        selector: &Selector,
        until: Instant,
        order: impl Fn(&Arc<Inbox>, u64) -> Option<Order> + Send + Sync + 'static,
    ) -> Vec<Target> {
        let inboxes = self.inboxes();
        let selector = selector.clone();
        let ask = move |flow: &mut Flow| {
            let tokens = flow.choose(&selector);
            for order in tokens.iter().filter_map(|token| order(&flow.inbox, *token)) {
                // It reads its inbox at this moment.
                let _ = flow.inbox.put(Letter::Order(order));
            }
            tokens
        };
        self.ask_until(until, &inboxes, ask)
            .into_iter()
            .flat_map(|(index, tokens)| tokens.into_iter().map(move |token| (index, token)))
            .map(|(index, token)| (inboxes[index].clone(), token))
            .collect()
    }

    fn wait_for_purged(&self, targets: Vec<Target>, within: Duration) {
        // What was written has `within` to leave, then the seat lingers for the peer's end.
        let linger = lock(&self.control).config.settings.linger;
        let until = deadline(Instant::now(), within.saturating_add(linger).saturating_add(PACE));
        let mut left = targets;
        self.shared.bell.wait(until, || {
            left = still_here(std::mem::take(&mut left), until);
            left.is_empty()
        });
    }
}

/// When the next of several is due at a rate, so that an error of one does not add to the next. A rate of 0, or none that is a number,
/// means all at once.
pub(super) struct Moments {
    began: Instant,
    gap: f64,
    done: u32,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { began: Instant::now(), gap: 0.0, done: 0 }
    }
}

impl Moments {
    pub(super) fn at(rate: f64, began: Instant) -> Moments {
        let gap = if rate > 0.0 { rate.recip() } else { 0.0 };
        Moments { began, gap, done: 0 }
    }

    pub(super) fn next(&mut self) -> Instant {
        let after = Duration::try_from_secs_f64(self.gap * f64::from(self.done)).unwrap_or(Duration::MAX);
        self.done = self.done.saturating_add(1);
        deadline(self.began, after)
    }
}

/// Which of these still exist, if only to linger.
fn still_here(targets: Vec<Target>, until: Instant) -> Vec<Target> {
    those(targets, until, Flow::is_here)
}

/// Those of which this is true. It is taken to be of those of a loop that does not answer in time.
fn those(targets: Vec<Target>, until: Instant, is: fn(&mut Flow, u64) -> bool) -> Vec<Target> {
    let mut groups: Vec<(Arc<Inbox>, Vec<u64>)> = Vec::new();
    for (inbox, token) in targets {
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &inbox)) {
            Some((_, tokens)) => tokens.push(token),
            None => groups.push((inbox, vec![token])),
        }
    }
    let (answers, received) = mpsc::channel();
    let mut asked = 0;
    for (index, (inbox, tokens)) in groups.iter_mut().enumerate() {
        let (answers, asked_for) = (answers.clone(), tokens.clone());
        let order: Order = Box::new(move |flow| {
            let they_are: Vec<u64> = asked_for.into_iter().filter(|token| is(flow, *token)).collect();
            // Nobody may wait for the answer any more.
            let _ = answers.send((index, they_are));
        });
        match inbox.put(Letter::Order(order)) {
            Ok(()) => asked += 1,
            // The loop is gone, and its connections with it.
            Err(_) => tokens.clear(),
        }
    }
    drop(answers);
    for _ in 0..asked {
        let Ok((index, they_are)) = received.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        groups[index].1 = they_are;
    }
    groups.into_iter().flat_map(|(inbox, tokens)| tokens.into_iter().map(move |token| (inbox.clone(), token))).collect()
}

/// Random order.
pub(super) fn shuffle<T>(items: &mut [T]) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut random = RandomState::new().build_hasher().finish() | 1;
    for index in (1..items.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        items.swap(index, (random % (index as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_a_gap_apart() {
        let began = Instant::now();
        let mut moments = Moments::at(3.0, began);
        let due: Vec<Duration> = (0..3001).map(|_| moments.next() - began).collect();
        assert_eq!(due[0], Duration::ZERO);
        assert!(due[3000].abs_diff(Duration::from_secs(1000)) < Duration::from_micros(1), "{:?}", due[3000]);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX] {
            let mut moments = Moments::at(rate, began);
            assert!((0..3).all(|_| moments.next() == began), "{rate}");
        }
        let mut moments = Moments::at(1e-300, began);
        assert_eq!(moments.next(), began);
        assert!(moments.next() > began + Duration::from_secs(1 << 30));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..1000).collect();
        shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
