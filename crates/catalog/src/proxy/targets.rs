//! Targets of a proxy: which one a client gets, and which are left out because connects to them fail. No I/O, and no clock of its own.

use super::hello::ClientHello;
use super::known::{Health, Known, TargetEvent, TargetState, TargetStatus, Written};
use super::queue::{Waiting, Wanted, locked};
use super::score::{self, Balance};
use super::target::{Fit, Target};
use sockdrawer::Address;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A client's place at a target, which it has until this is dropped.
#[derive(Debug)]
pub struct Place {
    /// Number of the target among the targets; of one that is among them no more, None.
    pub number: Option<usize>,
    /// The time at which it was taken; None for a client that came from another process.
    taken: Option<Instant>,
    /// True of a client that tries a target in its pause, because every other one is left out too: a failure says nothing new.
    is_early: bool,
    /// False of a client that comes from the process before this one, and has not arrived.
    is_counted: bool,
    has_moved: bool,
    shared: Arc<TargetState>,
}

impl Place {
    /// Notes that the client that has the place connects now.
    pub(super) fn taken_at(mut self, now: Instant) -> Place {
        self.taken = Some(now);
        self.is_early = self.shared.health().begin_try(now);
        self
    }

    /// Creates a place that is among those of its target already.
    pub(super) fn counted(number: Option<usize>, shared: Arc<TargetState>) -> Place {
        shared.tell(TargetEvent::Opened);
        Place { number, taken: None, is_early: false, is_counted: true, has_moved: false, shared }
    }

    /// Returns where the target listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Counts a connect that succeeded, after this time. Returns true if the target was left out until now.
    pub fn succeeded(&self, now: Instant, took: Duration) -> bool {
        self.shared.tell(TargetEvent::Connected(took));
        self.shared.health().connects[0] += 1;
        self.shared.recovers(now)
    }

    /// Notes that the client has come from the process before this one, with its place.
    pub fn arrived(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.shared.arrive();
            self.shared.tell(TargetEvent::Opened);
        }
    }

    /// Notes that the client has moved: where [`Known::hand_over`] was called to the next build, with its place.
    pub fn moved(&mut self) {
        self.has_moved = true;
    }

    /// Counts the bytes of a pair that has ended: those to the target, and those from it.
    pub fn carried(&self, to: u64, from: u64) {
        self.shared.tell(TargetEvent::Carried(to, from));
    }

    /// Counts a connect that failed. Returns the pause that begins with it, for which the target is left out; None where a failure before it, while this connect
    /// was under way or before it began, has begun one.
    pub fn failed(&self, now: Instant, errno: i32) -> Option<Duration> {
        let mut health = self.shared.health();
        (health.connects[1], health.last_error) = (health.connects[1] + 1, Some(errno));
        let is_news = !self.is_early && health.counted.is_none_or(|counted| self.taken.is_none_or(|taken| taken >= counted));
        let pause = is_news.then(|| health.begin_pause(now));
        drop(health);
        self.shared.tell(TargetEvent::Failed(errno));
        pause
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_counted {
            self.shared.leave(self.has_moved);
        }
    }
}

/// A client gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Each target has as many clients as it may have: the client may [wait](Targets::wait).
    Full,
    /// Each target was tried, or has no weight.
    NoTarget,
}

/// Targets among which a client's is.
struct Class {
    numbers: Vec<usize>,
    all_left_out: bool,
}

/// The targets of a proxy.
#[derive(Debug)]
pub struct Targets {
    balance: Balance,
    all: Arc<Written>,
    /// Turns that each target has had, as `score::rotate` counts them.
    turns: Mutex<Vec<f64>>,
    pub(super) known: Known,
    /// A client has asked for a place: they are in force.
    are_asked: AtomicBool,
}

impl Targets {
    /// Targets that share what is `known` of their addresses.
    #[must_use]
    pub fn new(targets: Vec<Target>, balance: Balance, known: Known) -> Targets {
        let turns = Mutex::new(vec![0.0; targets.len()]);
        let all = targets.into_iter().map(|target| (target.clone(), known.of(&target.address))).collect();
        let all = known.write(all);
        Targets { balance, all, turns, known, are_asked: AtomicBool::new(false) }
    }

    /// Takes a place for a client at the target that is due, but for those that were `tried`. Where every other one is left out, at that which was tried
    /// longest ago: the last target is never left out.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn take(&self, peer: Option<IpAddr>, tried: &[usize], now: Instant) -> Result<Place, NoPlace> {
        if !self.are_asked.load(Relaxed) && !self.are_asked.swap(true, Relaxed) {
            self.known.shared.queue.change(&self.known.pool, &self.all);
        }
        loop {
            let health: Vec<Health> = self.all.iter().map(|(_, shared)| *shared.health()).collect();
            let class = self.class(tried, |number| health[number].is_left_out(now));
            let with_room: Vec<usize> = class.numbers.iter().copied().filter(|number| self.has_room(*number)).collect();
            if class.numbers.is_empty() {
                return Err(NoPlace::NoTarget);
            }
            let number = match class.all_left_out {
                true => with_room.into_iter().min_by_key(|number| health[*number].tried),
                false if with_room.is_empty() => None,
                false => Some(self.due(&with_room, &health, peer, now)),
            };
            let number = number.ok_or(NoPlace::Full)?;
            let shared = &self.all[number].1;
            if !shared.reserve(self.limit(number)) {
                // Another loop was faster.
                continue;
            }
            return Ok(Place::counted(Some(number), shared.clone()).taken_at(now));
        }
    }

    /// Returns whether a client's first bytes decide which targets it may get: [`Begun::read`](super::Begun::read).
    #[must_use]
    pub fn ask_clients(&self) -> bool {
        self.all.iter().any(|(target, _)| target.is_for_some())
    }

    /// Returns the numbers of the targets that are not for a client that asks for this, which [`Targets::take`] takes for tried. Those are for it whose `sni` fits best, and
    /// of these those whose `alpn` does; for a client that does not speak TLS, which asks for nothing, those that have neither.
    #[must_use]
    pub fn elsewhere(&self, asks: &ClientHello) -> Vec<usize> {
        let fits: Vec<Option<Fit>> = self.all.iter().map(|(target, _)| target.fit(asks)).collect();
        let best = fits.iter().max().copied().flatten();
        (0..fits.len()).filter(|number| fits[*number].is_none() || fits[*number] != best).collect()
    }

    /// Waits for a place at a target, but for those that were `tried`, after [`NoPlace::Full`]: the one that has waited longest, `since` that time, gets the next place. `wake` is called
    /// when there is one, on any thread: it must not block. Nothing limits for how long a client waits, nor how many do.
    pub fn wait(&self, tried: &[usize], since: Instant, wake: impl FnOnce() + Send + 'static) -> Waiting {
        let class = self.class(tried, |number| self.all[number].1.is_out());
        let backups = class.all_left_out || class.numbers.iter().any(|number| self.all[*number].0.backup);
        let may = |number: &usize| self.may(*number, tried) && (backups || !self.all[*number].0.backup);
        let wanted = |number: usize| {
            let (target, state) = self.all[number].clone();
            Wanted { number: Some(number), target, state }
        };
        Waiting::begin(&self.known, (0..self.all.len()).filter(may).map(wanted).collect(), since, wake)
    }

    /// Returns the targets that a client may have now: those that are no backup, else the backups, else those that are left out.
    fn class(&self, tried: &[usize], is_out: impl Fn(usize) -> bool) -> Class {
        let may = |number: &usize| self.may(*number, tried);
        let of = |backup: bool| {
            let healthy = |number: &usize| self.all[*number].0.backup == backup && !is_out(*number);
            (0..self.all.len()).filter(may).filter(healthy).collect::<Vec<_>>()
        };
        let healthy = [of(false), of(true)].into_iter().find(|numbers| !numbers.is_empty());
        let all_left_out = healthy.is_none();
        Class { numbers: healthy.unwrap_or_else(|| (0..self.all.len()).filter(may).collect()), all_left_out }
    }

    fn may(&self, number: usize, tried: &[usize]) -> bool {
        !tried.contains(&number) && self.all[number].0.weight > 0
    }

    fn limit(&self, number: usize) -> usize {
        self.all[number].0.most()
    }

    fn has_room(&self, number: usize) -> bool {
        self.all[number].1.has_room(self.limit(number))
    }

    /// Returns the place of a client that has one at this address: of one of this process, such as one that is adopted, another place until the first is dropped; of one that is `to_come` from the process before
    /// this one, that which it brings along once it has [`arrived`](Place::arrived).
    #[must_use]
    pub fn place_of(&self, address: &Address, to_come: bool) -> Place {
        let number = self.all.iter().position(|(target, _)| target.address == *address);
        let shared = number.map_or_else(|| self.known.of(address), |number| self.all[number].1.clone());
        if to_come {
            return Place { number, taken: None, is_early: false, is_counted: false, has_moved: false, shared };
        }
        shared.add();
        Place::counted(number, shared)
    }

    fn due(&self, candidates: &[usize], health: &[Health], peer: Option<IpAddr>, now: Instant) -> usize {
        let weight = |number: usize| f64::from(self.all[number].0.weight) * health[number].share(now);
        let is_beside = |one: usize, other: usize| self.all[one].0.is_beside(&self.all[other].0);
        match self.balance {
            Balance::Least => {
                let mut turns = locked(&self.turns);
                // Counted once: other loops take places meanwhile.
                let load = |number: &usize| self.all[*number].1.open() as f64 / weight(*number);
                let loads: Vec<f64> = candidates.iter().map(load).collect();
                let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
                let equal: Vec<usize> =
                    candidates.iter().zip(&loads).filter(|(_, load)| **load <= least).map(|(number, _)| *number).collect();
                score::rotate(&mut turns, &equal, weight, is_beside)
            }
            Balance::Rotate => score::rotate(&mut locked(&self.turns), candidates, weight, is_beside),
            Balance::Hash => {
                let address = |number: usize| self.all[number].0.address.to_string();
                score::hash(candidates, peer, |number| f64::from(self.all[number].0.weight), address)
            }
        }
    }

    /// Returns the state of all, in the order of the configuration.
    #[must_use]
    pub fn status(&self, now: Instant) -> Vec<TargetStatus> {
        self.all.iter().map(|(target, shared)| shared.status(Some(target.clone()), now)).collect()
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
#[path = "targets_tests.rs"]
mod tests;
