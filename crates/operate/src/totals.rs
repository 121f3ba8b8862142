//! Totals since the program began, in this process and in those before it. A number that was shown once is never followed by a lower one, whatever
//! ends meanwhile: a pool, a helper process, or this process by an upgrade.

use crate::lock::lock;
use crate::process;
use crate::server::{Server, State, has_ended};
use crate::times::Times;
use serde::{Deserialize, Serialize};
use sockdrawer::observe::Status;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Time after the sums were written for a new build in which it must have taken over: later, this process counts on.
const COMMITS_WITHIN: Duration = Duration::from_secs(5);
/// Restarts of a pool, beside the counters of the library.
pub(crate) const RESTARTS: &str = "restarts";
/// Pools that ended are remembered by this many names, so that one that comes again counts on.
const MAX_ENDED: usize = 256;

/// The counters of a pool, by name.
type Sums = BTreeMap<String, u64>;

/// All that is counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub(crate) pools: BTreeMap<String, Sums>,
    pub(crate) changes: u64,
    pub(crate) failed_changes: u64,
    pub(crate) failed_upgrades: u64,
    pub(crate) events_lost: u64,
    pub(crate) lines_dropped: u64,
    pub(crate) lines_suppressed: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) change_seconds: Times,
    pub(crate) upgrade_seconds: Times,
}

/// Numbers that a new build goes on with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carried {
    totals: Totals,
    ended: BTreeMap<String, Sums>,
}

impl Carried {
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// Keeps the totals.
pub(crate) struct Ledger {
    kept: Mutex<KeptCounts>,
    pub(crate) began: SystemTime,
}

#[derive(Default)]
struct KeptCounts {
    /// Totals that were shown last.
    shown: Totals,
    /// Sums of the pools that have ended.
    ended: BTreeMap<String, Sums>,
    /// CPU time of the processes before this one.
    cpu_before: f64,
    /// Moment at which the totals were written for a new build.
    written: Option<Instant>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger { kept: Mutex::default(), began: SystemTime::now() }
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, KeptCounts> {
        lock(&self.kept)
    }

    /// Keeps what was counted of the pools that have ended, and lets go of them.
    pub(crate) fn fold(&self, server: &Server) {
        let mut kept = self.lock();
        kept.fold(server);
        kept.forget(&server.state());
    }

    pub(crate) fn changed(&self, took: Duration) {
        self.lock().shown.change_seconds.add(took);
    }

    /// Notes that this process has taken over.
    pub(crate) fn upgraded(&self, took: Duration) {
        self.lock().shown.upgrade_seconds.add(took);
    }

    pub(crate) fn upgrade_failed(&self) {
        self.lock().shown.failed_upgrades += 1;
    }

    /// Returns the totals, and the state and the pools' statuses that they are made from.
    pub(crate) fn now(&self, server: &Server) -> (Totals, State, Vec<(String, Status)>) {
        let mut kept = self.lock();
        // Before the state: a pool that is counted in neither is not missed, one that is counted twice would be.
        let mut pools = kept.removed(server);
        let state = server.state();
        let live: Vec<(String, Status)> = state.pools.iter().map(|(name, pool)| (name.clone(), pool.status())).collect();
        let failed = kept.written.is_some_and(|written| written.elapsed() > COMMITS_WITHIN);
        if !server.hub.manager.is_main() || (kept.written.is_some() && !failed) {
            return (kept.shown.clone(), state, live);
        }
        kept.written = None;
        live.iter().for_each(|(name, status)| add(&mut pools, name, status));
        kept.show(pools, server, &state);
        kept.forget(&state);
        (kept.shown.clone(), state, live)
    }

    /// Returns the totals for a new build. From now on, this process shows no higher ones, unless the new one does not take over.
    pub(crate) fn write(&self, server: &Server) -> Carried {
        let (totals, ..) = self.now(server);
        let mut kept = self.lock();
        kept.written = Some(Instant::now());
        // The new build has no pool that goes on with what is ending here.
        let mut ended = kept.removed(server);
        // The new build's pools go on with what the library counts; restarts are the program's to carry.
        for (name, sums) in &totals.pools {
            if let Some(restarts) = sums.get(RESTARTS) {
                ended.entry(name.clone()).or_default().insert(RESTARTS.to_owned(), *restarts);
            }
        }
        Carried { totals, ended }
    }

    /// Goes on where the process before this one stopped.
    pub(crate) fn read(&self, carried: Carried) {
        let mut kept = self.lock();
        kept.cpu_before = carried.totals.cpu_seconds;
        (kept.shown, kept.ended) = (carried.totals, carried.ended);
    }
}

impl KeptCounts {
    /// Adds up what has ended. Returns what is ending.
    fn fold(&mut self, server: &Server) -> Vec<(String, Status)> {
        let (ended, ending): (Vec<_>, Vec<_>) = server.removed().into_iter().partition(|(_, status)| has_ended(status));
        ended.iter().for_each(|(name, status)| add(&mut self.ended, name, status));
        ending
    }

    /// Returns the sums of the pools that have ended, and of those that are ending.
    fn removed(&mut self, server: &Server) -> BTreeMap<String, Sums> {
        let ending = self.fold(server);
        let mut sums = self.ended.clone();
        ending.iter().for_each(|(name, status)| add(&mut sums, name, status));
        sums
    }

    /// Forgets pools that ended long ago, where there are too many.
    fn forget(&mut self, state: &State) {
        let gone: Vec<String> = self.ended.keys().filter(|name| !state.pools.contains_key(*name)).cloned().collect();
        for name in gone.iter().take(self.ended.len().saturating_sub(MAX_ENDED)) {
            self.ended.remove(name);
            self.shown.pools.remove(name);
        }
    }

    fn show(&mut self, pools: BTreeMap<String, Sums>, server: &Server, state: &State) {
        for (name, sums) in pools {
            let shown = self.shown.pools.entry(name).or_default();
            for (counter, count) in sums {
                let shown = shown.entry(counter).or_default();
                *shown = count.max(*shown);
            }
        }
        (self.shown.changes, self.shown.failed_changes) = (state.changes, state.failed_changes);
        self.shown.events_lost = server.hub.lost.load(Ordering::Relaxed);
        self.shown.cpu_seconds = self.cpu_before + process::cpu_seconds();
        if let Some(log) = server.hub.log() {
            (self.shown.lines_dropped, self.shown.lines_suppressed) = log.left_out();
        }
    }
}

fn add(to: &mut BTreeMap<String, Sums>, name: &str, status: &Status) {
    let sums = to.entry(name.to_owned()).or_default();
    let Ok(serde_json::Value::Object(counts)) = serde_json::to_value(status.counts) else { return };
    let counts = counts.into_iter().map(|(counter, count)| (counter, count.as_u64().unwrap_or(0)));
    for (counter, count) in counts.chain([(RESTARTS.to_owned(), status.restarts as u64)]) {
        let sum = sums.entry(counter).or_default();
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Known};
    use crate::hub::Hub;
    use crate::notify::Manager;
    use crate::systemd::Passed;
    use sockdrawer::observe::Event;

    fn server() -> Server {
        let server = Server::new(
            Known::default(),
            (Hub::new(None, Manager::of_environment(false), |_| ()), None, Passed::default()),
            false,
            |_, _| {},
        );
        server.start(Document::default(), server.hold_changes()).expect("nothing to start");
        server
    }

    fn failed(ledger: &Ledger, server: &Server) -> u64 {
        ledger.now(server).0.failed_changes
    }

    #[test]
    fn what_was_passed_on_stands_until_the_new_build_has_failed() {
        let server = server();
        let ledger = Ledger::default();
        server.note_failed_change();
        let carried = ledger.write(&server);
        server.note_failed_change();
        assert_eq!((carried.totals.failed_changes, failed(&ledger, &server)), (1, 1), "no more than the new build begins with");
        ledger.lock().written = Instant::now().checked_sub(COMMITS_WITHIN + Duration::from_secs(1));
        server.hub.tell("web", &Event::HandedOver { pid: 1 });
        assert_eq!(failed(&ledger, &server), 1, "the new build counts on");
        server.hub.tell("web", &Event::TakenBack);
        assert_eq!(failed(&ledger, &server), 2, "it is dead");
        ledger.write(&server);
        server.note_failed_change();
        ledger.lock().written = Instant::now().checked_sub(COMMITS_WITHIN + Duration::from_secs(1));
        assert_eq!(failed(&ledger, &server), 3, "it has never taken over");
    }

    #[test]
    fn a_number_that_was_shown_is_not_followed_by_a_lower_one() {
        let server = server();
        let ledger = Ledger::default();
        let sums = |count: u64| Sums::from([(RESTARTS.to_owned(), count)]);
        let show = |count| {
            let mut kept = ledger.lock();
            kept.show([("web".to_owned(), sums(count))].into(), &server, &server.state());
            kept.shown.pools["web"][RESTARTS]
        };
        assert_eq!([show(3), show(2), show(4)], [3, 3, 4]);
        let carried = ledger.write(&server);
        let next = Ledger::default();
        next.read(carried);
        let (totals, ..) = next.now(&self::server());
        assert_eq!(totals.pools["web"], sums(4));
        assert!(totals.cpu_seconds >= ledger.now(&server).0.cpu_seconds, "CPU time of all processes");
    }
}
