//! Asking connections to end, and ending them.

use super::control::Core;
use super::selector::Selector;
use crate::flow::inbox::{Inbox, Letter};
use crate::sync::Mutex;
use crate::sync::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How connections are asked to end.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Connections that matched.
    pub asked: usize,
    /// Of these, ended by themselves.
    pub ended: usize,
    /// Of these, purged at the deadline.
    pub purged: usize,
}

/// A purged connection has this long to take what was written; then it is reset.
const PURGE_WITHIN: Duration = Duration::from_secs(5);
/// Connections are asked in batches this far apart, when there is a rate.
const PACE: Duration = Duration::from_millis(10);

/// A connection and the loop it is in.
type Target = (Arc<Inbox>, u64);

impl Core {
    pub(crate) fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        let until = Instant::now() + how.deadline;
        let mut targets = self.targets(selector);
        let asked = targets.len();
        shuffle(&mut targets);
        self.ask_to_end(&targets, how.rate, until);
        let mut left = targets;
        self.shared.bell.wait(until, || {
            left = self.still_here(&left);
            left.is_empty()
        });
        let purged = self.purge_targets(left, PURGE_WITHIN);
        Drained { asked, ended: asked - purged, purged }
    }

    pub(crate) fn purge(&self, selector: &Selector, within: Duration) -> usize {
        self.purge_targets(self.targets(selector), within)
    }

    /// Everything that matches, by the loop that has it.
    pub(crate) fn targets(&self, selector: &Selector) -> Vec<Target> {
        let inboxes = self.inboxes();
        let selector = selector.clone();
        self.ask(&inboxes, move |flow| flow.choose(&selector))
            .into_iter()
            .flat_map(|(index, tokens)| tokens.into_iter().map(move |token| (index, token)))
            .map(|(index, token)| (inboxes[index].clone(), token))
            .collect()
    }

    fn ask_to_end(&self, targets: &[Target], rate: Option<f64>, until: Instant) {
        let began = Instant::now();
        for (done, (inbox, token)) in targets.iter().enumerate() {
            if let Some(rate) = rate {
                let due = began + Duration::from_secs_f64(done as f64 / rate);
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

    /// Which of these still exist, if only to linger.
    fn still_here(&self, targets: &[Target]) -> Vec<Target> {
        let inboxes = self.inboxes();
        let lists: Vec<Vec<u64>> = inboxes
            .iter()
            .map(|inbox| targets.iter().filter(|(at, _)| Arc::ptr_eq(at, inbox)).map(|(_, token)| *token).collect())
            .collect();
        let lists: Mutex<Vec<Option<Vec<u64>>>> = Mutex::new(lists.into_iter().map(Some).collect());
        let lists = Arc::new(lists);
        let owners = inboxes.clone();
        self.ask(&inboxes, move |flow| {
            let own = owners.iter().position(|inbox| Arc::ptr_eq(inbox, &flow.inbox));
            let tokens = own.and_then(|own| lock(&lists)[own].take()).unwrap_or_default();
            tokens.into_iter().filter(|token| flow.is_here(*token)).collect::<Vec<_>>()
        })
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
        let until = Instant::now() + within + lock(&self.control).config.settings.linger + PACE;
        let mut left = targets;
        self.shared.bell.wait(until, || {
            left = self.still_here(&left);
            left.is_empty()
        });
        purged
    }
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
