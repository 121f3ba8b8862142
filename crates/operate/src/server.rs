//! The pools of a program, and what is done to all of them: started, changed together, rolled back and ended.

mod planning;

use crate::change::{Changed, REFUSED, Unchanged};
use crate::document::{Document, Format, Known, Mistake, Places, PoolDocument};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::listen;
use crate::lock::lock;
use crate::moves::{Move, UnderWay};
use crate::notify::Line;
use crate::pool_settings::{configure, wrong_of};
use crate::revisions::{Cause, Kept, Revisions};
use crate::setting::{Wrong, wrong_setting};
use crate::systemd::Passed;
use crate::tls::{self, PoolTls};
use crate::watched::Watched;
use planning::Work;
use sockdrawer::observe::{Event, Observer, Readiness, Status};
use sockdrawer::{Config, Drain, Drained, Endpoint, Error, Pool, Selector, Upgrade};
use sockdrawer_tls::Tickets;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time that connections may take to end by themselves, unless told otherwise.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// The maximum of what a second signal waits for loops that user code holds.
const CUT_WITHIN: Duration = Duration::from_millis(250);

/// The pools of a program.
pub(crate) struct Server {
    pub(crate) known: Known,
    pub(crate) hub: Arc<Hub>,
    pub(crate) upgrade: Option<Arc<Upgrade>>,
    pub(crate) passed: Passed,
    pub(crate) began: Instant,
    of_command_line: bool,
    /// Tickets of all pools with TLS, through all changes.
    pub(crate) tickets: Tickets,
    pub(crate) watched: Watched,
    /// Lock that is held from a look at the state in force to the next one: one change at a time. To plan it may take long: names are resolved and
    /// files read.
    changing: Mutex<()>,
    /// Lock that is held while pools are changed. The end waits for it alone.
    carrying_out: Mutex<()>,
    /// State in force; its lock is held for a moment.
    state: Mutex<State>,
    /// Pools that changes have removed, and that have not ended as far as is known: they end in their own time.
    removed: Mutex<Vec<PoolEnd>>,
    /// Told of each pool that is started, to wait for its end.
    started: Box<Started>,
    /// The thread that hears signals ends the program.
    pub(crate) ends_now: AtomicBool,
}

type Started = dyn Fn(&str, &Pool) + Send + Sync;

/// State that is in force.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// 0 until the pools have started.
    pub(crate) revision: u64,
    pub(crate) document: Arc<Document>,
    pub(crate) pools: BTreeMap<String, Pool>,
    /// TLS of those pools that have it.
    pub(crate) tls: BTreeMap<String, PoolTls>,
    pub(crate) revisions: Revisions,
    /// The last change, and how long it took.
    pub(crate) last_change: Option<Duration>,
    pub(crate) changes: u64,
    pub(crate) failed_changes: u64,
    /// The reason why the certificate files' current content was refused. None: the content in force is the current one.
    pub(crate) refused_files: Option<String>,
    /// The program has been asked to end.
    pub(crate) ending: bool,
}

/// A pool, and how it ends.
#[derive(Clone)]
struct PoolEnd {
    name: String,
    pool: Pool,
    drain: Drain,
}

/// The end of all pools.
pub(crate) struct End {
    pub(crate) drained: Drained,
    /// The pools that have cut connections off, each with the time that theirs had.
    pub(crate) cut: Vec<(String, Duration)>,
}

/// Configuration that a running pool is to have.
struct Reconfigured {
    config: Config,
    tls: Option<PoolTls>,
    /// The setting whose value is what it was, and of which another behaviour comes all the same, and why.
    outside: Option<(&'static str, &'static str)>,
}

/// Progress of a change.
#[derive(Default)]
struct Done {
    pools: BTreeMap<String, Pool>,
    changed: Vec<String>,
    begun: Vec<Pool>,
}

impl Server {
    pub(crate) fn new(
        known: Known,
        (hub, upgrade, passed): (Arc<Hub>, Option<Arc<Upgrade>>, Passed),
        of_command_line: bool,
        started: impl Fn(&str, &Pool) + Send + Sync + 'static,
    ) -> Server {
        Server {
            known,
            hub,
            upgrade,
            passed,
            began: Instant::now(),
            of_command_line,
            tickets: Tickets::new(),
            watched: Watched::default(),
            changing: Mutex::default(),
            carrying_out: Mutex::default(),
            state: Mutex::default(),
            removed: Mutex::default(),
            started: Box::new(started),
            ends_now: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// Holds changes back, until the guard is dropped.
    pub(crate) fn hold_changes(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Waits until the pools have started. Returns false where they could not be started.
    pub(crate) fn wait_for_start(&self) -> bool {
        let has_started = || lock(&self.state).revision > 0;
        has_started() || {
            drop(self.hold_changes());
            has_started()
        }
    }

    /// Begins with this configuration. On failure no pool is left.
    pub(crate) fn start(&self, document: Document, _held: MutexGuard<'_, ()>) -> Result<(), Failure> {
        let (mut pools, mut all_tls) = (BTreeMap::new(), BTreeMap::new());
        for (name, of) in &document.pools {
            let wrong = |wrong| Failure::setting(self.named(&document.places, name, &wrong));
            let (config, tls) = self.configure(of).map_err(wrong)?;
            let pool = self.start_pool(name, config).map_err(|error| {
                let line = self.refused(&document.places, name, &error);
                Failure { line, ..Failure::from(error) }
            })?;
            pools.insert(name.clone(), pool);
            all_tls.extend(tls.map(|tls| (name.clone(), tls)));
        }
        self.serve_listeners(&document, &pools);
        self.watched.add(&document);
        let file = document.places.file.clone();
        let by = if self.of_command_line { "the command line" } else { &file };
        let revisions = Revisions::begin(Cause { what: "start", by });
        *lock(&self.state) =
            State { revision: 1, document: Arc::new(document), pools, tls: all_tls, revisions, ..State::default() };
        Ok(())
    }

    /// Returns the line that the service manager shows.
    pub(crate) fn line(&self) -> Line {
        let state = self.state();
        Line::of(state.pools.values().map(|pool| pool.status()), (state.revision, state.ending))
    }

    /// Says which sockets of systemd no pool listens at.
    pub(crate) fn note_unused_sockets(&self) {
        for line in self.passed.unused(&self.state().document) {
            self.hub.note("SocketUnused", &serde_json::json!(line), &line);
        }
    }

    /// Says which certificates are not valid now, or will soon expire.
    pub(crate) fn note_certificates(&self) {
        for tls in self.state().tls.values() {
            if let Some(line) = tls::expiring(&tls.certificates) {
                self.hub.note("CertificateExpires", &serde_json::json!(line), &line);
            }
        }
    }

    /// Waits for the ends of the pools from now on: the commit of an upgrade is behind them.
    pub(crate) fn watch(&self) {
        for (name, pool) in &self.state().pools {
            (self.started)(name, pool);
        }
    }

    /// Has the program take the connections of pools and generations that have begun.
    #[cfg(feature = "tokio")]
    fn serve_listeners(&self, document: &Document, pools: &BTreeMap<String, Pool>) {
        for (name, pool) in pools {
            let Some(of) = document.pools.get(name) else { continue };
            let serve = self.known.protocol(of.protocol).and_then(|protocol| protocol.serve.clone());
            if let Some((serve, listener)) = serve.zip(sockdrawer::tasks::Listener::first_of(pool)) {
                serve(listener, &of.values);
            }
        }
    }

    #[cfg(not(feature = "tokio"))]
    fn serve_listeners(&self, _: &Document, _: &BTreeMap<String, Pool>) {}

    fn start_pool(&self, name: &str, config: Config) -> Result<Pool, Error> {
        self.start_observed(name, config.observer(self.observer(name)))
    }

    /// Starts a pool, which a new build takes over if the program can be upgraded.
    pub(crate) fn start_observed(&self, name: &str, config: Config) -> Result<Pool, Error> {
        match &self.upgrade {
            Some(upgrade) => upgrade.start(name, config),
            None => Pool::start(config),
        }
    }

    fn observer(&self, name: &str) -> impl Observer + use<> {
        let (hub, name) = (self.hub.clone(), name.to_owned());
        move |event: &Event| hub.tell(&name, event)
    }

    /// Returns the configuration of a pool that begins, and its TLS.
    fn configure(&self, of: &PoolDocument) -> Result<(Config, Option<PoolTls>), Wrong> {
        let protocol = self.known.protocol(of.protocol).expect("the document was checked");
        let begun = (protocol.build)(&of.values).map_err(|why| ("protocol", why))?;
        let tls = tls::of(&listen::sets(&of.values), &self.tickets, protocol.look(&of.values))?;
        Ok((configure(begun, &of.values, tls.as_ref(), &self.passed)?, tls))
    }

    /// Returns the configuration of a pool that runs, as this document wants it.
    fn reconfigure(
        &self,
        (from, to): (&PoolDocument, &PoolDocument),
        (pool, old): (&Pool, Option<&PoolTls>),
    ) -> Result<Reconfigured, Wrong> {
        let running = pool.config();
        let (mut config, tls) = self.configure(to)?;
        let protocol = self.known.protocol(to.protocol).expect("the document was checked");
        let is_same = from.protocol == to.protocol && protocol.differing(&from.values, &to.values).is_empty();
        let outside = old.zip(tls.as_ref()).and_then(|(old, new)| old.difference(new));
        let other_files = outside.is_some();
        // To start with an expired certificate may be meant; to replace a good one by it is not.
        let refused = |tls: Option<&PoolTls>| tls.and_then(|tls| tls::refused_now(&tls.certificates));
        if let (true, Some(why), None) = (other_files, refused(tls.as_ref()), refused(old)) {
            return Err((tls::CERTIFICATE, why));
        }
        if is_same && !other_files {
            config.behaviour = running.behaviour.clone();
        }
        if let (false, Endpoint::Accept { listeners, .. }) = (other_files, &running.endpoint) {
            config = config.listeners(|wanted| listen::keep_layers(wanted, &to.values, listeners, &from.values));
        }
        config.observer.clone_from(&running.observer);
        Ok(Reconfigured {
            config,
            tls,
            outside: outside.filter(|_| is_same && from.values.list("listen") == to.values.list("listen")),
        })
    }

    /// Changes all pools to what is wanted; `based_on` is the revision, and a change that is based on another is refused. Either everything is
    /// changed or nothing.
    pub(crate) fn change(
        &self,
        wanted: impl FnOnce(&State) -> Result<Document, Unchanged>,
        based_on: Option<u64>,
        dry_run: bool,
        cause: Cause<'_>,
    ) -> Result<Changed, Unchanged> {
        self.change_to(wanted, based_on, (dry_run, false), cause)
    }

    /// Goes back where the wanted configuration is the last one that is kept, which is forgotten then.
    fn change_to(
        &self,
        wanted: impl FnOnce(&State) -> Result<Document, Unchanged>,
        based_on: Option<u64>,
        (dry_run, goes_back): (bool, bool),
        cause: Cause<'_>,
    ) -> Result<Changed, Unchanged> {
        let _changing = lock(&self.changing);
        let (since, state) = (Instant::now(), self.state());
        if let Some(based_on) = based_on.filter(|based_on| *based_on != state.revision) {
            return Err(Unchanged::Conflict { based_on: based_on.to_string(), current: state.revision });
        }
        self.refuses_at_the_end()?;
        let document = wanted(&state)?;
        let mut work = self.plan(&state, &document)?;
        let unchanged = Changed { revision: state.revision, committed: false, plan: work.plan.clone(), took: since.elapsed() };
        if let Some(step) = work.plan.iter().find(|step| step.how == REFUSED) {
            return Err(Unchanged::Refused(format!(
                "{step}: nothing was changed; leave it as it is, or start the program again, which an upgrade does"
            )));
        }
        if dry_run {
            return self.rehearse(&state, &work).map(|()| unchanged);
        }
        if work.plan.is_empty() {
            return Ok(unchanged);
        }
        let (all_tls, removed) = (std::mem::take(&mut work.tls), std::mem::take(&mut work.end));
        let drain = |name: &str| drain_of(&state.document, name);
        let carrying_out = lock(&self.carrying_out);
        self.refuses_at_the_end()?;
        let removed = removed.into_iter().map(|(name, pool)| PoolEnd { drain: drain(&name), name, pool });
        let removed: Vec<PoolEnd> = removed.collect();
        let mut pools = self.carry_out(&state, work)?;
        removed.iter().for_each(|removed| drop(pools.remove(&removed.name)));
        self.serve_listeners(&document, &pools);
        // Other files change no configuration.
        let is_same = document == *state.document;
        let revision = state.revision + u64::from(!is_same);
        let took = since.elapsed();
        let document = Arc::new(document);
        let mut now = lock(&self.state);
        let mut revisions = std::mem::take(&mut now.revisions);
        let plan = unchanged.plan.clone();
        match (is_same, goes_back) {
            (true, _) => revisions.other_files(revision, cause, plan),
            (false, true) => revisions.went_back(revision, cause, plan),
            (false, false) => revisions.changed(revision, cause, plan, state.document),
        }
        *now = State {
            revision,
            document: document.clone(),
            pools,
            tls: all_tls,
            revisions,
            last_change: Some(took),
            changes: state.changes + 1,
            ..now.clone()
        };
        drop(now);
        // Before they end: the end of each is told, and then it is forgotten.
        lock(&self.removed).extend(removed.iter().cloned());
        removed.into_iter().for_each(|removed| end(removed.pool, removed.drain));
        drop(carrying_out);
        // The end does not wait for a file system that hangs.
        self.watched.add(&document);
        self.note_unused_sockets();
        self.note_certificates();
        Ok(Changed { revision, committed: true, took, ..unchanged })
    }

    fn refuses_at_the_end(&self) -> Result<(), Unchanged> {
        let refusal = || Unchanged::Refused("the program is ending: start it again with the change".to_owned());
        if lock(&self.state).ending { Err(refusal()) } else { Ok(()) }
    }

    /// Goes back to the configuration before the one in force. Once more: to the one before that.
    pub(crate) fn roll_back(&self, based_on: Option<u64>, dry_run: bool, cause: Cause<'_>) -> Result<Changed, Unchanged> {
        let before = |state: &State| {
            let Kept { document, .. } = state.revisions.before(state.revision)?;
            // It may be one of the build before, and has not been checked by this one.
            let text = serde_json::json!(**document).to_string();
            let wrong = |mistakes: Vec<Mistake>| Unchanged::Wrong(mistakes.into_iter().map(|mistake| mistake.what).collect());
            Document::parse(&text, Format::Json, &self.known, |_| ()).map_err(wrong)?;
            Ok(Document::clone(document))
        };
        self.change_to(before, based_on, (dry_run, true), cause)
    }

    pub(crate) fn note_failed_change(&self) {
        lock(&self.state).failed_changes += 1;
    }

    pub(crate) fn note_refused_files(&self, why: Option<String>) {
        lock(&self.state).refused_files = why;
    }

    /// Goes on where the process before this one stopped: with the revision that follows on its own, with those before that,
    /// and with its changes, those that failed included.
    pub(crate) fn go_on(&self, revision: u64, before: Revisions, cause: Cause<'_>, (changes, failed_changes): (u64, u64)) {
        let mut state = lock(&self.state);
        let revisions = before.go_on(revision, cause, &state.document);
        *state = State { revision, revisions, changes, failed_changes, ..state.clone() };
    }

    /// Returns the line about what is wrong with a setting of a pool. The command line knows no pools.
    fn named(&self, places: &Places, pool: &str, (setting, why): &Wrong) -> String {
        match (self.of_command_line, *setting) {
            (true, "protocol" | "listen") => why.clone(),
            (true, setting) => wrong_setting(&format!("--{setting}"), why),
            (false, setting) => {
                let name = format!("pool.{pool}.{setting}");
                places.at(&name) + &wrong_setting(&name, why)
            }
        }
    }

    /// Carries out what was planned; on failure, what was done is taken back.
    fn carry_out(&self, state: &State, work: Work) -> Result<BTreeMap<String, Pool>, Unchanged> {
        let before: BTreeMap<String, Config> = state.pools.iter().map(|(name, pool)| (name.clone(), pool.config())).collect();
        let (mut under_way, mut done) = (UnderWay::default(), Done { pools: state.pools.clone(), ..Done::default() });
        if let Err(why) = self.carry_on(&work, &mut under_way, &mut done) {
            let mut lines = vec![format!("{why}; nothing was changed")];
            under_way.turn_back(|name| done.pools.get(name).cloned());
            let gave = work.moves.iter().map(Move::from);
            for name in gave.chain(done.changed.iter().map(String::as_str)).collect::<BTreeSet<_>>() {
                let configs = under_way.given_back(name, before[name].clone().unconditional());
                if let Err(error) = reconfigure(&state.pools[name], configs) {
                    lines.push(format!("it could not all be taken back: {name}: {error}"));
                }
            }
            done.begun.into_iter().for_each(|pool| end(pool, Drain::within(DRAIN)));
            return Err(Unchanged::Refused(lines.join("; ")));
        }
        Ok(done.pools)
    }

    fn carry_on(&self, work: &Work, under_way: &mut UnderWay, done: &mut Done) -> Result<(), String> {
        under_way.begin(&work.moves)?;
        let wrong = |name: &str, error: &Error| self.refused(&work.places, name, error);
        for (name, pool, config) in &work.change {
            // Also where the second of two steps fails, the first was done.
            done.changed.push(name.clone());
            reconfigure(pool, under_way.taken_by(name, config.clone())).map_err(|error| wrong(name, &error))?;
        }
        for (name, config) in &work.start {
            let (first, then) = under_way.taken_by(name, config.clone());
            let pool = self.start_pool(name, first).map_err(|error| wrong(name, &error))?;
            (self.started)(name, &pool);
            done.begun.push(pool.clone());
            done.pools.insert(name.clone(), pool.clone());
            then.map_or(Ok(()), |then| pool.reconfigure(then).map(drop)).map_err(|error| wrong(name, &error))?;
        }
        Ok(())
    }

    /// Returns the reason why a pool cannot be had, with the setting that is at fault.
    fn refused(&self, places: &Places, name: &str, error: &Error) -> String {
        match wrong_of(error) {
            Some(wrong) => self.named(places, name, &wrong),
            None => format!("pool.{name}: {error}"),
        }
    }

    /// Returns the status of each pool that changes have removed. Each that has ended is told of once, and freed.
    pub(crate) fn removed(&self) -> Vec<(String, Status)> {
        let mut told = Vec::new();
        // Dropped without the lock: the last state of a service may be among it.
        let ended: Vec<PoolEnd> = lock(&self.removed)
            .extract_if(.., |removed| {
                let status = removed.pool.status();
                let has_ended = has_ended(&status);
                told.push((removed.name.clone(), status));
                has_ended
            })
            .collect();
        drop(ended);
        told
    }

    /// Returns the pools that changes have removed, and that have not ended yet.
    fn ending(&self) -> impl Iterator<Item = PoolEnd> + use<> {
        let removed = lock(&self.removed).clone();
        removed.into_iter().filter(|removed| !has_ended(&removed.pool.status()))
    }

    /// Returns whether a pool that a change has removed has not ended yet.
    pub(crate) fn has_removed(&self) -> bool {
        self.ending().next().is_some()
    }

    /// Returns all pools that have not ended: those in force, and those that changes have removed.
    fn running(&self) -> Vec<PoolEnd> {
        let State { pools, document, .. } = self.state();
        let current = pools.into_iter().map(|(name, pool)| PoolEnd { drain: drain_of(&document, &name), name, pool });
        current.chain(self.ending()).collect()
    }

    /// Ends all pools, each in its own way, and says what came of all.
    pub(crate) fn shut_down(&self) -> End {
        // No change is carried out from here on, and what one starts that is being carried out is drained as well.
        lock(&self.state).ending = true;
        drop(lock(&self.carrying_out));
        let end = |PoolEnd { name, pool, drain }: &PoolEnd, turn: Turn| {
            let Drain { notice, deadline, .. } = *drain;
            // Pools that end one after the other share the time.
            let notice = if turn.late.is_zero() { notice } else { Duration::ZERO };
            let share = Drain { notice, deadline: deadline.saturating_sub(turn.late) / turn.left, ..*drain };
            (name.clone(), deadline, pool.shutdown(share))
        };
        let ends = at_once(&self.running(), end);
        let drained = ends.iter().map(|(.., drained)| *drained).sum();
        let cut = ends.into_iter().filter(|(.., drained)| drained.cut > 0).map(|(name, within, _)| (name, within));
        End { drained, cut: cut.collect() }
    }

    /// Ends a drain before its deadline: resets what has not ended, as the deadline does. Returns how many those are, where all loops say so in time.
    pub(crate) fn cut_off(self: &Arc<Self>) -> Option<usize> {
        self.ends_now.store(true, Relaxed);
        let server = self.clone();
        let now = |PoolEnd { pool, .. }: &PoolEnd, _: Turn| pool.drain(&Selector::All, Drain::within(Duration::ZERO));
        let drained: Drained = within("cut off", CUT_WITHIN, move || at_once(&server.running(), now).into_iter().sum())?;
        Some(drained.cut)
    }

    /// Returns the longest time that the end may take.
    pub(crate) fn longest_drain(&self) -> Duration {
        self.running().into_iter().map(|PoolEnd { drain, .. }| drain.deadline + drain.notice).max().unwrap_or(DRAIN)
    }

    /// Returns the number of connections of all pools.
    pub(crate) fn connections(&self) -> usize {
        self.running().into_iter().map(|one| one.pool.status().connections).sum()
    }
}

/// Changes a pool in one step, or in two.
fn reconfigure(pool: &Pool, (first, then): (Config, Option<Config>)) -> Result<(), Error> {
    pool.reconfigure(first)?;
    then.map_or(Ok(()), |then| pool.reconfigure(then).map(drop))
}

pub(crate) fn has_ended(status: &Status) -> bool {
    matches!(status.readiness, Readiness::Stopped(_))
}

/// Does this on a thread, which is left behind where it takes longer. None: then, or where there is no thread.
pub(crate) fn within<T: Send + 'static>(name: &str, time: Duration, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (says, said) = mpsc::channel();
    // Nothing waits for what comes late.
    thread::Builder::new().name(name.to_owned()).spawn(move || drop(says.send(act()))).ok()?;
    said.recv_timeout(time).ok()
}

/// A turn of [`at_once`], where these are done one after the other.
pub(crate) struct Turn {
    /// Time since the first began.
    late: Duration,
    /// Turns that are left, this one included.
    left: u32,
}

/// Does this for all of these at the same time, each on a thread of its own. Those that find no thread, because the limit of threads is reached,
/// have their turns on this one.
pub(crate) fn at_once<T: Sync, R: Send>(these: &[T], act: impl Fn(&T, Turn) -> R + Sync) -> Vec<R> {
    let (began, act) = (Instant::now(), &act);
    thread::scope(|scope| {
        let mut late = Vec::new();
        let start = |one| {
            let started = thread::Builder::new().spawn_scoped(scope, move || act(one, Turn { late: Duration::ZERO, left: 1 }));
            started.inspect_err(|_| late.push(one)).ok()
        };
        let started: Vec<_> = these.iter().filter_map(start).collect();
        let turns = late.iter().zip((1..=late.len() as u32).rev());
        let here: Vec<R> = turns.map(|(one, left)| act(one, Turn { late: began.elapsed(), left })).collect();
        started.into_iter().filter_map(|one| one.join().ok()).chain(here).collect()
    })
}

/// A thread that is slower to begin is not waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Ends a pool in the background: its drain may take long. When this returns the end has begun, and its name is free.
fn end(pool: Pool, drain: Drain) {
    let ending = pool.clone();
    let started = thread::Builder::new().name("end of a pool".to_owned()).spawn(move || ending.shutdown(drain));
    // Where there is no thread, dropping the last handle ends it.
    if started.is_ok() {
        pool.wait(ENDS_WITHIN, |status| status.readiness == Readiness::Draining || has_ended(status));
    }
}

/// Returns how the connections of a pool are asked to end.
pub(crate) fn drain_of(document: &Document, pool: &str) -> Drain {
    let values = document.pools.get(pool).map(|pool| &pool.values);
    let mut drain = Drain::within(values.and_then(|values| values.time("drain")).unwrap_or(DRAIN));
    drain.rate = values.and_then(|values| values.rate("drain-rate"));
    drain.notice = values.and_then(|values| values.time("notice")).unwrap_or_default();
    drain
}

#[cfg(test)]
mod tests;
