//! Asking connections to end, and ending them.

use super::control::Core;
use super::selector::Selector;
use crate::clock::deadline;
use crate::flow::inbox::{Inbox, Letter, Order};
use crate::sync::{lock, mpsc};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How connections are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Drain {
    /// After this, those still there are purged.
    pub deadline: Duration,
    /// The most to ask in a second, in random order; None: all at once.
    pub rate: Option<f64>,
}

impl Drain {
    /// All at once, with this deadline.
    pub fn within(deadline: Duration) -> Drain {
        Drain { deadline, rate: None }
    }

    /// At most so many a second.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Drain {
        self.rate = Some(per_second);
        self
    }
}

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drained {
    /// Connections that matched.
    pub asked: usize,
    /// Of these, ended by themselves.
    pub ended: usize,
    /// Of these, purged at the deadline.
    pub purged: usize,
}

impl std::iter::Sum for Drained {
    fn sum<I: Iterator<Item = Drained>>(all: I) -> Drained {
        let add = |sum: Drained, one: Drained| Drained {
            asked: sum.asked + one.asked,
            ended: sum.ended + one.ended,
            purged: sum.purged + one.purged,
        };
        all.fold(Drained::default(), add)
    }
}

/// A purged connection has this long to take what was written; then it is reset.
const PURGE_WITHIN: Duration = Duration::from_secs(5);
/// How often a pool that ends looks for connections that came in meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Connections are asked in batches this far apart, when there is a rate.
const PACE: Duration = Duration::from_millis(10);

/// A connection and the loop it is in.
type Target = (Arc<Inbox>, u64);

impl Core {
    pub(crate) fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        let until = deadline(Instant::now(), how.deadline);
        let mut left = self.targets(selector, until);
        let asked = left.len();
        shuffle(&mut left);
        ask_to_end(&left, how.rate, until);
        self.shared.bell.wait(until, || {
            left = still_here(std::mem::take(&mut left), until);
            left.is_empty()
        });
        let purged = self.purge_targets(left, PURGE_WITHIN);
        Drained { asked, ended: asked - purged, purged }
    }

    /// Drains the pool to its end: also connections that were still on their way in when it began, until `is_over`.
    pub(crate) fn drain_to_the_end(&self, how: Drain, is_over: impl Fn() -> bool) -> Drained {
        let until = deadline(Instant::now(), how.deadline);
        let mut known: HashSet<(usize, u64)> = HashSet::new();
        let mut rate = how.rate;
        loop {
            let mut new = self.targets(&Selector::All, until);
            new.retain(|(inbox, token)| known.insert((Arc::as_ptr(inbox) as usize, *token)));
            shuffle(&mut new);
            // Those that come in later were let in to be answered: they are asked at once.
            ask_to_end(&new, rate.take(), until);
            let now = Instant::now();
            if self.shared.bell.wait(until.min(now + LOOK_AGAIN), &is_over) || Instant::now() >= until {
                break;
            }
        }
        let purged = self.purge_targets(self.targets(&Selector::All, Instant::now() + PURGE_WITHIN), PURGE_WITHIN);
        let asked = known.len().max(purged);
        Drained { asked, ended: asked - purged, purged }
    }

    pub(crate) fn purge(&self, selector: &Selector, within: Duration) -> usize {
        let until = deadline(Instant::now(), within.max(PURGE_WITHIN));
        self.purge_targets(self.targets(selector, until), within)
    }

    /// Everything that matches, by the loop that has it.
    fn targets(&self, selector: &Selector, until: Instant) -> Vec<Target> {
        let inboxes = self.inboxes();
        let selector = selector.clone();
        self.ask_until(until, &inboxes, move |flow| flow.choose(&selector))
            .into_iter()
            .flat_map(|(index, tokens)| tokens.into_iter().map(move |token| (index, token)))
            .map(|(index, token)| (inboxes[index].clone(), token))
            .collect()
    }

    fn purge_targets(&self, targets: Vec<Target>, within: Duration) -> usize {
        for (inbox, token) in &targets {
            let token = *token;
            let _ = inbox.put(Letter::Order(Box::new(move |flow| flow.purge_one(token, within))));
        }
        let purged = targets.len();
        // What was written has `within` to leave, then the seat lingers for the peer's end.
        let linger = lock(&self.control).config.settings.linger;
        let until = deadline(Instant::now(), within.saturating_add(linger).saturating_add(PACE));
        let mut left = targets;
        self.shared.bell.wait(until, || {
            left = still_here(std::mem::take(&mut left), until);
            left.is_empty()
        });
        purged
    }
}

/// A rate of 0, or none that is a number, means all at once.
fn ask_to_end(targets: &[Target], rate: Option<f64>, until: Instant) {
    let began = Instant::now();
    let gap = rate.filter(|rate| *rate > 0.0).and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok());
    for (done, (inbox, token)) in targets.iter().enumerate() {
        if let Some(gap) = gap {
            let due = deadline(began, gap.saturating_mul(u32::try_from(done).unwrap_or(u32::MAX)));
            if due >= until {
                return;
            }
            let early = due.saturating_duration_since(Instant::now());
            if early > PACE {
                std::thread::sleep(early);
            }
        }
        let token = *token;
        // A loop that is gone has no connections.
        let _ = inbox.put(Letter::Order(Box::new(move |flow| flow.drain_one(token))));
    }
}

/// Which of these still exist, if only to linger. Those of a loop that does not answer in time do, for all that is known.
fn still_here(targets: Vec<Target>, until: Instant) -> Vec<Target> {
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
            let here: Vec<u64> = asked_for.into_iter().filter(|token| flow.is_here(*token)).collect();
            // Nobody may wait for the answer any more.
            let _ = answers.send((index, here));
        });
        match inbox.put(Letter::Order(order)) {
            Ok(()) => asked += 1,
            // The loop is gone, and its connections with it.
            Err(_) => tokens.clear(),
        }
    }
    drop(answers);
    for _ in 0..asked {
        let Ok((index, here)) = received.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        groups[index].1 = here;
    }
    groups.into_iter().flat_map(|(inbox, tokens)| tokens.into_iter().map(move |token| (inbox.clone(), token))).collect()
}

/// Random order, so that a drain does not empty one loop, or one client, first.
fn shuffle<T>(items: &mut [T]) {
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
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..1000).collect();
        shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
