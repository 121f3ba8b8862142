//! Targets of a proxy: which one a client gets, and which are left out because connects to them fail. No I/O, and no clock of its own.

use super::score::{self, Balance};
use sockdrawer::Address;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause after the first failed connect; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time in which a target that is back gets its share step by step.
const SLOW_START: Duration = Duration::from_secs(10);

/// A target as it is written: an address, then `weight=N` or `backup` with commas between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address at which it listens.
    pub address: Address,
    /// The share of the clients that it gets, beside the other targets' weights. 0: new clients go elsewhere, those that it has stay.
    pub weight: u32,
    /// True for a target that gets clients only while every target that is no backup is left out.
    pub backup: bool,
}

impl Target {
    /// A target of weight 1.
    #[must_use]
    pub fn new(address: Address) -> Target {
        Target { address, weight: 1, backup: false }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let mut parts = text.split(',');
        let address = parts.next().unwrap_or_default();
        let mut target = Target::new(address.parse().map_err(|error| format!("{error}"))?);
        for part in parts {
            match part.split_once('=') {
                Some(("weight", weight)) => {
                    let why = |_| format!("weight={weight} is no weight: write a number from 0 to 4294967295");
                    target.weight = weight.parse().map_err(why)?;
                }
                None if part == "backup" => target.backup = true,
                _ => return Err(format!("unknown `{part}` behind {address}: there are weight=N, backup")),
            }
        }
        Ok(target)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.weight != 1 {
            write!(f, ",weight={}", self.weight)?;
        }
        if self.backup { f.write_str(",backup") } else { Ok(()) }
    }
}

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
    /// Nothing names the target any more, and no client has a place there.
    Gone,
}

/// Hears of targets, on the threads of loops: it must not block.
type Observer = Arc<dyn Fn(&Address, TargetEvent) + Send + Sync>;

/// Numbers and health of one target, shared by all that name its address.
struct TargetState {
    address: Address,
    open: AtomicUsize,
    health: Mutex<Health>,
    observer: Option<Observer>,
}

impl fmt::Debug for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetState").field("address", &self.address).field("open", &self.open).finish_non_exhaustive()
    }
}

impl Drop for TargetState {
    fn drop(&mut self) {
        self.tell(TargetEvent::Gone);
    }
}

impl TargetState {
    fn tell(&self, event: TargetEvent) {
        if let Some(observer) = &self.observer {
            observer(&self.address, event);
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Counts and health of targets by their addresses: a change of the configuration keeps counts and health of those that stay.
#[derive(Clone, Default)]
pub struct Known {
    targets: Arc<Mutex<HashMap<Address, Arc<TargetState>>>>,
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
    pub fn observed(observer: impl Fn(&Address, TargetEvent) + Send + Sync + 'static) -> Known {
        Known { observer: Some(Arc::new(observer)), ..Known::default() }
    }

    fn of(&self, address: &Address) -> Arc<TargetState> {
        let mut known = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        // Addresses that nothing names any more, and no client has a place at.
        known.retain(|_, shared| Arc::strong_count(shared) > 1);
        let new = || {
            let (open, health, observer) = (AtomicUsize::new(0), Mutex::default(), self.observer.clone());
            Arc::new(TargetState { address: address.clone(), open, health, observer })
        };
        known.entry(address.clone()).or_insert_with(new).clone()
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
    fn new(number: Option<usize>, taken: Option<Instant>, shared: Arc<TargetState>) -> Place {
        shared.open.fetch_add(1, Relaxed);
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
        *health = Health { back: if was_out { Some(now) } else { health.back }, ..Health::default() };
        was_out
    }

    /// Counts a connect that failed. Returns for how long the target is left out. Failures of connects that were under way at the same time double the pause
    /// once.
    pub fn failed(&self, now: Instant, errno: i32) -> Duration {
        let mut health = self.shared.health();
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
        self.shared.open.fetch_sub(1, Relaxed);
        self.shared.tell(TargetEvent::Closed);
    }
}

/// State of a target, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// The target.
    pub target: Target,
    /// Clients that have a place there.
    pub open: usize,
    /// Connects that failed since the last that did not.
    pub failures: u32,
    /// Time for which it is left out still.
    pub left_out: Option<Duration>,
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
    /// longer soonest: the last target is never left out. None: there is no other.
    #[must_use]
    pub fn take(&self, peer: Option<IpAddr>, tried: &[usize], now: Instant) -> Option<Place> {
        let health: Vec<Health> = self.all.iter().map(|(_, shared)| *shared.health()).collect();
        let may = |number: &usize| !tried.contains(number) && self.all[*number].0.weight > 0;
        let of = |backup: bool| {
            let healthy = |number: &usize| self.all[*number].0.backup == backup && !health[*number].is_left_out(now);
            (0..self.all.len()).filter(may).filter(healthy).collect::<Vec<_>>()
        };
        let mut candidates = of(false);
        if candidates.is_empty() {
            candidates = of(true);
        }
        let number = if candidates.is_empty() {
            (0..self.all.len()).filter(may).min_by_key(|number| health[*number].until)?
        } else {
            self.due(&candidates, &health, peer, now)
        };
        let shared = &self.all[number].1;
        if health[number].until.is_some() {
            // This client tries it, and no other does before that is known.
            let mut health = shared.health();
            health.until = now.checked_add(health.pause());
        }
        Some(Place::new(Some(number), Some(now), shared.clone()))
    }

    /// Returns the place that a client had at this address in another process.
    #[must_use]
    pub fn place_of(&self, address: &Address) -> Place {
        let number = self.all.iter().position(|(target, _)| target.address == *address);
        let shared = number.map_or_else(|| self.known.of(address), |number| self.all[number].1.clone());
        Place::new(number, None, shared)
    }

    fn due(&self, candidates: &[usize], health: &[Health], peer: Option<IpAddr>, now: Instant) -> usize {
        let weight = |number: usize| f64::from(self.all[number].0.weight) * health[number].share(now);
        match self.balance {
            Balance::Least => {
                let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
                // Counted once: other loops take places meanwhile.
                let load = |number: &usize| self.all[*number].1.open.load(Relaxed) as f64 / weight(*number);
                let loads: Vec<f64> = candidates.iter().map(load).collect();
                let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
                let equal: Vec<usize> =
                    candidates.iter().zip(&loads).filter(|(_, load)| **load <= least).map(|(number, _)| *number).collect();
                score::rotate(&mut turns, &equal, weight)
            }
            Balance::Rotate => score::rotate(&mut self.turns.lock().unwrap_or_else(PoisonError::into_inner), candidates, weight),
            Balance::Hash => {
                let address = |number: usize| self.all[number].0.address.to_string();
                score::hash(candidates, peer, |number| f64::from(self.all[number].0.weight), address)
            }
        }
    }

    /// Returns the state of all, in the order of the configuration.
    #[must_use]
    pub fn status(&self, now: Instant) -> Vec<TargetStatus> {
        let status = |(target, shared): &(Target, Arc<TargetState>)| {
            let health = *shared.health();
            let left_out = health.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero());
            TargetStatus { target: target.clone(), open: shared.open.load(Relaxed), failures: health.failures, left_out }
        };
        self.all.iter().map(status).collect()
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
