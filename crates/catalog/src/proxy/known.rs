//! Counts and health of targets, by pools and addresses: they outlive changes of the configuration, and go along to the next build.

use super::queue::{Queue, locked};
use super::target::Target;
use sockdrawer::{Address, Saved, Saver};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Pause after the first failed connect; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time in which a target that is back gets its share step by step.
pub(super) const SLOW_START: Duration = Duration::from_secs(10);
/// The form of what goes to the next build: another one is not read.
const FORM: u64 = 1;

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
    /// A client that waited for a place there, and perhaps at others, got none in time.
    TimedOut,
    /// A pair has ended that carried these numbers of bytes to the target, and from it.
    Carried(u64, u64),
    /// Nothing names the target any more, and no client has a place there.
    Gone,
}

/// Hears of targets, by the name of the pool, on the threads of loops: it must not block.
type Observer = Arc<dyn Fn(&str, &Address, TargetEvent) + Send + Sync>;

/// Places at an address, of clients of all pools.
#[derive(Debug, Default)]
struct Places {
    taken: AtomicUsize,
    /// The number of these that the process before this one had when it was replaced, and whose clients have not come.
    coming: AtomicUsize,
    /// The number of these whose clients have moved to the next build, which may die soon.
    moved: AtomicUsize,
}

/// Numbers and health of one target, shared by all generations of its pool. Other pools may reach the address by other TLS: what they learn of it is theirs.
pub(super) struct TargetState {
    pool: Arc<str>,
    pub(super) address: Address,
    places: Arc<Places>,
    /// Clients of this pool.
    clients: AtomicUsize,
    waiting: AtomicUsize,
    health: Mutex<Health>,
    shared: Arc<Process>,
}

/// Everything that the targets of a process share.
#[derive(Default)]
pub(super) struct Process {
    pub(super) queue: Queue,
    /// The next build counts the places: no free one is given here.
    handed_over: AtomicBool,
    observer: Option<Observer>,
}

impl fmt::Debug for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetState").field("address", &self.address).field("places", &self.places).finish_non_exhaustive()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("queue", &self.queue).field("handed_over", &self.handed_over).finish_non_exhaustive()
    }
}

impl Drop for TargetState {
    fn drop(&mut self) {
        self.tell(TargetEvent::Gone);
    }
}

impl TargetState {
    /// Returns whether something names it, or a client has a place there, or is to come.
    fn is_used(state: &Arc<TargetState>) -> bool {
        Arc::strong_count(state) > 1 || state.places.coming.load(Relaxed) > 0
    }

    pub(super) fn tell(&self, event: TargetEvent) {
        match event {
            TargetEvent::Opened => _ = self.clients.fetch_add(1, Relaxed),
            TargetEvent::Closed => _ = self.clients.fetch_sub(1, Relaxed),
            TargetEvent::Waits => _ = self.waiting.fetch_add(1, Relaxed),
            TargetEvent::WaitsNoMore => _ = self.waiting.fetch_sub(1, Relaxed),
            _ => {}
        }
        if let Some(observer) = &self.shared.observer {
            observer(&self.pool, &self.address, event);
        }
    }

    /// Returns whether both have the clients of one address.
    pub(super) fn shares_places(&self, other: &TargetState) -> bool {
        Arc::ptr_eq(&self.places, &other.places)
    }

    pub(super) fn open(&self) -> usize {
        self.places.taken.load(Relaxed)
    }

    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.open() < limit && !self.is_closed(limit)
    }

    /// Returns whether the next build alone gives places that are free. Without a limit they need no count.
    fn is_closed(&self, limit: usize) -> bool {
        limit != usize::MAX && self.shared.handed_over.load(SeqCst)
    }

    /// Counts one more client, if that is within the limit.
    pub(super) fn reserve(&self, limit: usize) -> bool {
        let is_taken = self.places.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1)).is_ok();
        // Looked at when the place is counted: what is handed over then has it, or it is not given.
        if is_taken && self.is_closed(limit) {
            self.free();
            return false;
        }
        is_taken
    }

    /// Counts a client that comes from the process before this one, unless it was counted as one that is to come.
    pub(super) fn arrive(&self) {
        if self.places.coming.fetch_update(Relaxed, Relaxed, |coming| coming.checked_sub(1)).is_err() {
            self.add();
        }
    }

    /// Counts a client, whatever the limit is.
    pub(super) fn add(&self) {
        self.places.taken.fetch_add(1, Relaxed);
    }

    /// Frees the place of a client.
    pub(super) fn free(&self) {
        self.places.taken.fetch_sub(1, Relaxed);
    }

    /// Takes the place of a client of this pool that has gone: it goes to one that waits, or with the client to the next build.
    pub(super) fn leave(self: &Arc<TargetState>, has_moved: bool) {
        self.tell(TargetEvent::Closed);
        match has_moved && self.shared.handed_over.load(Relaxed) {
            true => _ = self.places.moved.fetch_add(1, Relaxed),
            false => self.shared.queue.pass_on(self),
        }
    }

    /// Frees places of clients that are in no process any more.
    fn free_all(self: &Arc<TargetState>, of: fn(&Places) -> &AtomicUsize) {
        self.places.taken.fetch_sub(of(&self.places).swap(0, Relaxed), Relaxed);
        self.fill();
    }

    /// Gives its free places to those that wait.
    pub(super) fn fill(self: &Arc<TargetState>) {
        self.shared.queue.fill(self);
    }

    /// Returns true if the last connect to it failed.
    pub(super) fn is_out(&self) -> bool {
        self.health().until.is_some()
    }

    /// Ends the pause of the target: it gets its share step by step. Returns whether it was left out.
    pub(super) fn recovers(self: &Arc<TargetState>, now: Instant) -> bool {
        let mut health = self.health();
        let Health { connects, last_error, .. } = *health;
        let was_out = health.until.is_some();
        if was_out {
            *health = Health { back: Some(now), connects, last_error, ..Health::default() };
            drop(health);
            self.fill();
        }
        was_out
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        locked(&self.health)
    }

    pub(super) fn status(&self, target: Option<Target>, now: Instant) -> TargetStatus {
        let health = *self.health();
        TargetStatus {
            pool: self.pool.to_string(),
            address: self.address.clone(),
            target,
            open: self.clients.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            connects: health.connects[0],
            failed: health.connects[1],
            last_error: health.last_error,
            failures: health.failures,
            left_out: health.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// Connects that failed since the last that did not. Those that were under way at one time count once.
    pub(super) failures: u32,
    /// Time of the last failure that was counted.
    pub(super) counted: Option<Instant>,
    /// The time until which it is left out. Then one client tries it, and meanwhile it is left out for the next pause.
    pub(super) until: Option<Instant>,
    /// The time at which a client tried it last while it was left out, or after.
    pub(super) tried: Option<Instant>,
    /// Time of the first connect that succeeded after a failure.
    pub(super) back: Option<Instant>,
    /// Connects that succeeded, and that failed, in all.
    pub(super) connects: [u64; 2],
    pub(super) last_error: Option<i32>,
}

impl Health {
    pub(super) fn is_left_out(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Notes that a client tries it. Returns true in its pause; else this client is the one that tries it, and the next pause holds for others.
    pub(super) fn begin_try(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return false };
        self.tried = Some(now);
        if until <= now {
            self.until = now.checked_add(self.pause());
        }
        now < until
    }

    /// Counts a failure: the target is left out for the pause that is returned.
    pub(super) fn begin_pause(&mut self, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.counted = Some(now);
        let pause = self.pause();
        self.until = now.checked_add(pause);
        pause
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
    }

    /// Returns the part of its share that it gets now, from 0.1 to 1.
    pub(super) fn share(&self, now: Instant) -> f64 {
        let Some(back) = self.back else { return 1.0 };
        (now.saturating_duration_since(back).as_secs_f64() / SLOW_START.as_secs_f64()).clamp(0.1, 1.0)
    }
}

/// A target, as the next build reads it: times are those since, or until, the moment of writing.
#[derive(serde::Serialize, serde::Deserialize)]
struct HandedOver {
    pool: String,
    address: String,
    /// Places that are taken at the address; with the first target that has it.
    places: usize,
    failures: u32,
    left_out: Option<Duration>,
    back: Option<Duration>,
    connects: [u64; 2],
    last_error: Option<i32>,
}

/// The name of a pool, and the address of a target of it.
type Named = (Arc<str>, Address);
/// Targets as they are written, with what is known of each.
pub(super) type Written = Vec<(Target, Arc<TargetState>)>;
/// The targets of the pool of this name.
type OfPool = (Arc<str>, Weak<Written>);

/// Counts and health of targets by pools and addresses: a change of the configuration keeps counts and health of those that stay.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub(super) pool: Arc<str>,
    targets: Arc<Mutex<HashMap<Named, Arc<TargetState>>>>,
    /// The targets of pools, the newest last.
    written: Arc<Mutex<Vec<OfPool>>>,
    pub(super) shared: Arc<Process>,
}

impl Known {
    /// Creates the knowledge of targets: nothing yet. The observer hears what happens to targets from now on, on the threads of loops: it must not
    /// block.
    #[must_use]
    pub fn observed(observer: impl Fn(&str, &Address, TargetEvent) + Send + Sync + 'static) -> Known {
        let shared = Arc::new(Process { observer: Some(Arc::new(observer)), ..Process::default() });
        Known { shared, ..Known::default() }
    }

    /// Returns what is known, for a pool of this name: limits of addresses hold for all pools together, and each pool finds out by itself which targets are well.
    #[must_use]
    pub fn of_pool(&self, name: &str) -> Known {
        Known { pool: name.into(), ..self.clone() }
    }

    /// Returns the targets, without those that nothing uses any more: these are told to be gone.
    fn in_use(&self) -> MutexGuard<'_, HashMap<Named, Arc<TargetState>>> {
        let mut known = locked(&self.targets);
        known.retain(|_, state| TargetState::is_used(state));
        known
    }

    pub(super) fn of(&self, address: &Address) -> Arc<TargetState> {
        let mut known = self.in_use();
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
            shared: self.shared.clone(),
        });
        known.insert((self.pool.clone(), address.clone()), state.clone());
        state
    }

    /// Targets of the pool, as they are written from now on.
    pub(super) fn write(&self, all: Written) -> Arc<Written> {
        let (all, mut written) = (Arc::new(all), locked(&self.written));
        written.retain(|(_, all)| all.strong_count() > 0);
        written.push((self.pool.clone(), Arc::downgrade(&all)));
        all
    }

    /// Returns the state of all targets that are written, or that clients have places at, by pools and addresses.
    #[must_use]
    pub fn status(&self, now: Instant) -> Vec<TargetStatus> {
        let written = self.written();
        let of = |state: &Arc<TargetState>| {
            let all = written.get(&state.pool)?;
            all.iter().find(|(_, other)| Arc::ptr_eq(other, state)).map(|(target, _)| target.clone())
        };
        let mut all: Vec<TargetStatus> = self.all().iter().map(|state| state.status(of(state), now)).collect();
        // An earlier generation may name it, while clients of others of its targets are there.
        all.retain(|one| one.target.is_some() || one.open + one.waiting > 0);
        all.sort_by_key(|one| (one.pool.clone(), one.address.to_string()));
        all
    }

    /// Notes that a target of this pool was found to be well otherwise than by a client: it is left out no more. Returns whether it was left out.
    #[must_use]
    pub fn is_well(&self, address: &Address, now: Instant) -> bool {
        let state = self.in_use().get(&(self.pool.clone(), address.clone())).cloned();
        state.is_some_and(|state| state.recovers(now))
    }

    /// Notes that the targets of pools were changed, and what was written last is in force: clients that wait for a place have the limits and the
    /// targets of now. The first client of changed [`Targets`](super::Targets) does that, too; it need not come.
    pub fn changed(&self) {
        drop(self.in_use());
        self.written().iter().for_each(|(pool, written)| self.shared.queue.change(pool, written));
    }

    /// Returns the newest targets of each pool.
    fn written(&self) -> HashMap<Arc<str>, Arc<Written>> {
        locked(&self.written).iter().filter_map(|(pool, all)| Some((pool.clone(), all.upgrade()?))).collect()
    }

    fn all(&self) -> Vec<Arc<TargetState>> {
        locked(&self.targets).values().filter(|state| TargetState::is_used(state)).cloned().collect()
    }

    /// Writes counts and health for the next build, which [takes them over](Known::take_over): for `Upgrade::carry`. From then on targets with a limit have no places here but those that clients give
    /// up here, and a client that [has moved](super::Place::moved) has taken its own along, until [`Known::take_back`].
    #[must_use]
    pub fn hand_over(&self) -> Vec<u8> {
        self.shared.handed_over.store(true, SeqCst);
        let (now, mut to, all, mut counted) = (Instant::now(), Saver::default(), self.all(), HashSet::new());
        let handed_over = |state: &Arc<TargetState>| {
            let health = *state.health();
            let is_first = counted.insert(state.address.to_string());
            HandedOver {
                pool: state.pool.to_string(),
                address: state.address.to_string(),
                places: if is_first { state.places.taken.load(SeqCst) } else { 0 },
                failures: health.failures,
                left_out: health.until.map(|until| until.saturating_duration_since(now)),
                back: health.back.map(|back| now.saturating_duration_since(back)),
                connects: health.connects,
                last_error: health.last_error,
            }
        };
        to.u64(FORM);
        // Numbers and texts can be saved.
        let _ = to.value(&all.iter().map(handed_over).collect::<Vec<_>>());
        to.written().to_vec()
    }

    /// Reads what the process before this one has [handed over](Known::hand_over), when there are [`Targets`](super::Targets) and before the first client is accepted. The limits of targets hold for both processes from then on: clients that are still there have their
    /// places here, until [`Known::serves_alone`]. What is not understood is found out again.
    pub fn take_over(&self, bytes: &[u8]) {
        let (now, mut from) = (Instant::now(), Saved::new(bytes));
        let is_known = from.u64().is_ok_and(|form| form == FORM);
        let all = if is_known { from.value::<Vec<HandedOver>>().unwrap_or_default() } else { Vec::new() };
        for one in all {
            let Ok(address) = one.address.parse() else { continue };
            let state = self.of_pool(&one.pool).of(&address);
            let HandedOver { failures, connects, last_error, places, .. } = one;
            let (until, back) =
                (one.left_out.and_then(|left| now.checked_add(left)), one.back.and_then(|back| now.checked_sub(back)));
            *state.health() = Health { failures, counted: None, until, tried: None, back, connects, last_error };
            state.places.taken.fetch_add(places, Relaxed);
            state.places.coming.fetch_add(places, Relaxed);
        }
    }

    /// Notes that the process before this one has no connections any more: clients that did not come from there have ended, and their places are
    /// free.
    pub fn serves_alone(&self) {
        self.all().iter().for_each(|state| state.free_all(|places| &places.coming));
    }

    /// Takes back what this process has [handed over](Known::hand_over), and the places of clients that have moved are free: for
    /// `Upgrade::taken_back`. Does nothing where nothing was handed over.
    pub fn take_back(&self) {
        if self.shared.handed_over.swap(false, SeqCst) {
            self.all().iter().for_each(|state| state.free_all(|places| &places.moved));
        }
    }
}

/// State of a target, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetStatus {
    /// The name of the pool, where it has one.
    pub pool: String,
    /// The address at which it listens.
    pub address: Address,
    /// The target, as it is written; None of one that is written no more.
    pub target: Option<Target>,
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
