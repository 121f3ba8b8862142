//! Targets of a proxy: which one a client gets, and which are left out because connects to them fail. No I/O, and no clock of its own.

use super::hello::ClientHello;
use super::queue::{Queue, Waiting, Wanted, locked};
use super::score::{self, Balance};
use super::target::{Fit, Target};
use sockdrawer::Address;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Pause after the first failed connect; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time in which a target that is back gets its share step by step.
const SLOW_START: Duration = Duration::from_secs(10);

/// An event of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A client has a place there.
    Opened,
    /// A client has given its place up.
    Closed,
    /// A connect succeeded, after this time.
    Connected(Duration),
    /// A connect failed with this errno.
    Failed(i32),
    /// A client waits for a place there, and perhaps at others.
    Waits,
    /// A client does not wait any more.
    WaitsNoMore,
    /// A pair has ended that carried so many bytes to the target, and so many from it.
    Carried(u64, u64),
    /// Nothing names the target any more, and no client has a place there.
    Gone,
}

/// Hears of targets, by the name of the pool, on the threads of loops: it must not block.
type Observer = Arc<dyn Fn(&str, &Address, TargetEvent) + Send + Sync>;

/// Numbers and health of one target, shared by all generations of its pool. Other pools may reach the address by other TLS: what they learn of it is theirs.
pub(super) struct TargetState {
    pool: Arc<str>,
    address: Address,
    /// Clients of the address, of all pools.
    places: Arc<AtomicUsize>,
    /// Clients of this pool.
    clients: AtomicUsize,
    waiting: AtomicUsize,
    health: Mutex<Health>,
    queue: Arc<Queue>,
    observer: Option<Observer>,
}

impl fmt::Debug for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetState").field("address", &self.address).field("places", &self.places).finish_non_exhaustive()
    }
}

impl Drop for TargetState {
    fn drop(&mut self) {
        self.tell(TargetEvent::Gone);
    }
}

impl TargetState {
    pub(super) fn tell(&self, event: TargetEvent) {
        match event {
            TargetEvent::Opened => _ = self.clients.fetch_add(1, Relaxed),
            TargetEvent::Closed => _ = self.clients.fetch_sub(1, Relaxed),
            TargetEvent::Waits => _ = self.waiting.fetch_add(1, Relaxed),
            TargetEvent::WaitsNoMore => _ = self.waiting.fetch_sub(1, Relaxed),
            _ => {}
        }
        if let Some(observer) = &self.observer {
            observer(&self.pool, &self.address, event);
        }
    }

    /// Returns whether both have the clients of one address.
    pub(super) fn shares_places(&self, other: &TargetState) -> bool {
        Arc::ptr_eq(&self.places, &other.places)
    }

    pub(super) fn open(&self) -> usize {
        self.places.load(Relaxed)
    }

    /// Counts one more client, if that is within the limit.
    pub(super) fn reserve(&self, limit: usize) -> bool {
        self.places.fetch_update(Relaxed, Relaxed, |open| (open < limit).then_some(open + 1)).is_ok()
    }

    /// A client gave its place up.
    pub(super) fn free(&self) {
        self.places.fetch_sub(1, Relaxed);
    }

    /// Returns true if the last connect to it failed.
    pub(super) fn is_out(&self) -> bool {
        self.health().until.is_some()
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        locked(&self.health)
    }

    fn status(&self, now: Instant) -> TargetStatus {
        let health = *self.health();
        let left_out = health.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero());
        TargetStatus {
            pool: self.pool.to_string(),
            address: self.address.clone(),
            open: self.clients.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            connects: health.connects[0],
            failed: health.connects[1],
            last_error: health.last_error,
            failures: health.failures,
            left_out,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Health {
    /// Connects that failed since the last that did not. Of those that were under way at the same time, one.
    failures: u32,
    /// Time of the last failure that was counted.
    counted: Option<Instant>,
    /// The time until which it is left out. Then one client tries it, and meanwhile it is left out for the next pause.
    until: Option<Instant>,
    /// Time of the first connect that succeeded after a failure.
    back: Option<Instant>,
    /// Connects that succeeded, and that failed, in all.
    connects: [u64; 2],
    last_error: Option<i32>,
}

impl Health {
    fn is_left_out(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
    }

    /// Returns the part of its share that it gets now, from 0.1 to 1.
    fn share(&self, now: Instant) -> f64 {
        let Some(back) = self.back else { return 1.0 };
        (now.saturating_duration_since(back).as_secs_f64() / SLOW_START.as_secs_f64()).clamp(0.1, 1.0)
    }
}

/// The name of a pool, and the address of a target of it.
type Named = (Arc<str>, Address);

/// Counts and health of targets by pools and addresses: a change of the configuration keeps counts and health of those that stay.
#[derive(Clone, Default)]
pub struct Known {
    pool: Arc<str>,
    targets: Arc<Mutex<HashMap<Named, Arc<TargetState>>>>,
    queue: Arc<Queue>,
    observer: Option<Observer>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.targets).finish()
    }
}

impl Known {
    /// Nothing is known yet. The observer hears what happens to targets from now on, on the threads of loops: it must not block.
    #[must_use]
    pub fn observed(observer: impl Fn(&str, &Address, TargetEvent) + Send + Sync + 'static) -> Known {
        Known { observer: Some(Arc::new(observer)), ..Known::default() }
    }

    /// Returns what is known, for a pool of this name: limits of addresses hold for all pools together, and each pool finds out by itself which targets are well.
    #[must_use]
    pub fn of_pool(&self, name: &str) -> Known {
        Known { pool: name.into(), ..self.clone() }
    }

    fn of(&self, address: &Address) -> Arc<TargetState> {
        let mut known = locked(&self.targets);
        // Addresses that nothing names any more, and no client has a place at.
        known.retain(|_, shared| Arc::strong_count(shared) > 1);
        if let Some(state) = known.get(&(self.pool.clone(), address.clone())) {
            return state.clone();
        }
        let places = known.values().find(|state| state.address == *address).map(|state| state.places.clone());
        let state = Arc::new(TargetState {
            pool: self.pool.clone(),
            address: address.clone(),
            places: places.unwrap_or_default(),
            clients: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            health: Mutex::default(),
            queue: self.queue.clone(),
            observer: self.observer.clone(),
        });
        known.insert((self.pool.clone(), address.clone()), state.clone());
        state
    }

    /// Returns the state of all targets that are named, or that clients have places at, by pools and addresses.
    #[must_use]
    pub fn status(&self, now: Instant) -> Vec<TargetStatus> {
        let mut all: Vec<TargetStatus> = locked(&self.targets).values().map(|state| state.status(now)).collect();
        all.sort_by_key(|one| (one.pool.clone(), one.address.to_string()));
        all
    }
}

/// A client's place at a target, which it has until this is dropped.
#[derive(Debug)]
pub struct Place {
    /// Number of the target among the targets; of one that is among them no more, None.
    pub number: Option<usize>,
    /// The time at which it was taken; None for a client that came from another process.
    taken: Option<Instant>,
    shared: Arc<TargetState>,
}

impl Place {
    pub(super) fn taken_at(mut self, now: Instant) -> Place {
        self.taken = Some(now);
        self
    }

    /// The place is among those of its target already.
    pub(super) fn counted(number: Option<usize>, taken: Option<Instant>, shared: Arc<TargetState>) -> Place {
        shared.tell(TargetEvent::Opened);
        Place { number, taken, shared }
    }

    /// Returns where the target listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Counts a connect that succeeded, after this time. Returns true if the target was left out until now.
    pub fn succeeded(&self, now: Instant, took: Duration) -> bool {
        self.shared.tell(TargetEvent::Connected(took));
        let mut health = self.shared.health();
        let was_out = health.until.is_some();
        let Health { connects: [succeeded, failed], last_error, .. } = *health;
        let back = if was_out { Some(now) } else { health.back };
        *health = Health { back, connects: [succeeded + 1, failed], last_error, ..Health::default() };
        drop(health);
        if was_out {
            self.shared.queue.fill(&self.shared);
        }
        was_out
    }

    /// Counts the bytes of a pair that has ended: those to the target, and those from it.
    pub fn carried(&self, to: u64, from: u64) {
        self.shared.tell(TargetEvent::Carried(to, from));
    }

    /// Counts a connect that failed. Returns for how long the target is left out. Failures of connects that were under way at the same time double the pause
    /// once.
    pub fn failed(&self, now: Instant, errno: i32) -> Duration {
        let mut health = self.shared.health();
        (health.connects[1], health.last_error) = (health.connects[1] + 1, Some(errno));
        if health.counted.is_none_or(|counted| self.taken.is_none_or(|taken| taken >= counted)) {
            health.failures = health.failures.saturating_add(1);
            health.counted = Some(now);
            health.until = now.checked_add(health.pause());
        }
        let left = health.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        drop(health);
        self.shared.tell(TargetEvent::Failed(errno));
        left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.tell(TargetEvent::Closed);
        self.shared.queue.pass_on(&self.shared);
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

/// State of a target, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetStatus {
    /// The name of the pool, where it has one.
    pub pool: String,
    /// The address at which it listens.
    pub address: Address,
    /// Clients of the pool that have a place there.
    pub open: usize,
    /// Clients that wait for a place there, and perhaps at others.
    pub waiting: usize,
    /// Connects that succeeded.
    pub connects: u64,
    /// Connects that failed.
    pub failed: u64,
    /// The errno of the last that failed.
    pub last_error: Option<i32>,
    /// Connects that failed since the last that did not.
    pub failures: u32,
    /// Time for which it is left out still.
    pub left_out: Option<Duration>,
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
    all: Vec<(Target, Arc<TargetState>)>,
    /// Turns that each target has had, as `score::rotate` counts them.
    turns: Mutex<Vec<f64>>,
    known: Known,
}

impl Targets {
    /// Targets that share what is `known` of their addresses.
    #[must_use]
    pub fn new(targets: Vec<Target>, balance: Balance, known: Known) -> Targets {
        let turns = Mutex::new(vec![0.0; targets.len()]);
        let all = targets.into_iter().map(|target| (target.clone(), known.of(&target.address))).collect();
        Targets { balance, all, turns, known }
    }

    /// Takes a place for a client at the target that is due, but for those that were `tried`. Where every other one is left out, at that which is left out no
    /// longer soonest: the last target is never left out.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn take(&self, peer: Option<IpAddr>, tried: &[usize], now: Instant) -> Result<Place, NoPlace> {
        loop {
            let health: Vec<Health> = self.all.iter().map(|(_, shared)| *shared.health()).collect();
            let class = self.class(tried, |number| health[number].is_left_out(now));
            let with_room: Vec<usize> = class.numbers.iter().copied().filter(|number| self.has_room(*number)).collect();
            if class.numbers.is_empty() {
                return Err(NoPlace::NoTarget);
            }
            let number = match class.all_left_out {
                true => with_room.into_iter().min_by_key(|number| health[*number].until),
                false if with_room.is_empty() => None,
                false => Some(self.due(&with_room, &health, peer, now)),
            };
            let number = number.ok_or(NoPlace::Full)?;
            let shared = &self.all[number].1;
            if !shared.reserve(self.limit(number)) {
                // Another loop was faster.
                continue;
            }
            if health[number].until.is_some() {
                // This client tries it, and no other does before that is known.
                let mut health = shared.health();
                health.until = now.checked_add(health.pause());
            }
            return Ok(Place::counted(Some(number), Some(now), shared.clone()));
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

    /// Waits for a place at a target, but for those that were `tried`, after [`NoPlace::Full`]: the first that waits gets the next place. `wake` is called
    /// when there is one, on any thread: it must not block. Nothing limits for how long a client waits, nor how many do.
    pub fn wait(&self, tried: &[usize], wake: impl FnOnce() + Send + 'static) -> Waiting {
        let class = self.class(tried, |number| self.all[number].1.is_out());
        let backups = class.all_left_out || class.numbers.iter().any(|number| self.all[*number].0.backup);
        let may = |number: &usize| self.may(*number, tried) && (backups || !self.all[*number].0.backup);
        let wanted = |number| Wanted { number, limit: self.limit(number), state: self.all[number].1.clone() };
        self.known.queue.wait((0..self.all.len()).filter(may).map(wanted).collect(), wake)
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
        self.all[number].0.limit.unwrap_or(usize::MAX)
    }

    fn has_room(&self, number: usize) -> bool {
        self.all[number].1.open() < self.limit(number)
    }

    /// Returns the place that a client had at this address in another process.
    #[must_use]
    pub fn place_of(&self, address: &Address) -> Place {
        let number = self.all.iter().position(|(target, _)| target.address == *address);
        let shared = number.map_or_else(|| self.known.of(address), |number| self.all[number].1.clone());
        shared.places.fetch_add(1, Relaxed);
        Place::counted(number, None, shared)
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
        self.all.iter().map(|(_, shared)| shared.status(now)).collect()
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
