//! The fate of each pool of the predecessor. Pools that the successor does not have go on until it stands, and end then. Addresses of them at which
//! other pools of the successor listen change owner at the commit.

use super::NamedPool;
use super::handing_over::{Conversation, changed};
use crate::ipc::messages::{BuildId, Hello, Planned, PoolPlanned, Prepared, Reads};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Reason why connections stay whose pool the successor does not have.
const NO_SUCH_POOL: &str = "the new build has no such pool";
/// Connections that can move are still here for this reason: they could not when they were offered, or the successor gave them back.
const NOT_YET: &str = "not moved yet";

/// The answer to the program that asked waits for what stays no longer than this: the successor may have more to say meanwhile.
const TOLD_WITHIN: Duration = Duration::from_millis(200);

/// A pool that the successor does not have.
pub(super) struct GivenUp {
    pub(super) named: NamedPool,
    /// The revision at which the successor took copies of its sockets.
    revision: u64,
    /// Addresses at which other pools of the successor listen.
    passed_on: Vec<String>,
}

fn addresses(named: &NamedPool) -> Vec<String> {
    named.pool.listening_sockets().into_iter().map(|one| one.address.to_string()).collect()
}

/// Returns how many connections of a pool that the successor does not have stay: all. Those that are in an earlier process are among them, other than
/// where the pool goes on: they end with it.
fn all_stay(named: &NamedPool) -> BTreeMap<String, u64> {
    let connections = named.pool.held();
    (connections > 0).then(|| (NO_SUCH_POOL.to_owned(), connections)).into_iter().collect()
}

impl Conversation<'_> {
    /// Sets those pools apart that the successor does not have. Returns the revisions of the others.
    pub(super) fn give_up(&mut self, prepared: &Prepared, revisions: &[u64]) -> Vec<u64> {
        let is_kept = |named: &NamedPool| prepared.pools.iter().any(|reads| reads.name == named.name);
        let all = std::mem::take(&mut self.pools).into_iter().zip(revisions.iter().copied());
        let (kept, given_up): (Vec<_>, Vec<_>) = all.partition(|(named, _)| is_kept(named));
        let given_up = given_up.into_iter().map(|(named, revision)| {
            let passed_on = addresses(&named).into_iter().filter(|at| prepared.listens_at(at)).collect();
            GivenUp { named, revision, passed_on }
        });
        self.given_up = given_up.collect();
        let revisions;
        (self.pools, revisions) = kept.into_iter().unzip();
        revisions
    }

    /// Stops to accept where other pools of the successor do from here on. False where a loop may still accept.
    pub(super) fn pass_addresses_on(&self, within: Duration) -> Result<bool, String> {
        for GivenUp { named, revision, passed_on } in &self.given_up {
            if named.pool.revision() != *revision {
                return Err(changed(&named.name));
            }
            if !named.pool.hand_over_at(passed_on, *revision, within) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns which connections are still here, by pool and reason.
    pub(super) fn what_stays(&self, prepared: &Prepared) -> BTreeMap<String, BTreeMap<String, u64>> {
        let until = Instant::now() + TOLD_WITHIN;
        let kept = self.pools.iter().map(|named| {
            let within = until.saturating_duration_since(Instant::now());
            let (moving, mut stay) = named.plan(&prepared.reads(&named.name), Some(within));
            stay.extend((moving > 0).then(|| (NOT_YET.to_owned(), moving)));
            (named.name.clone(), stay)
        });
        let given_up = self.given_up.iter().map(|one| (one.named.name.clone(), all_stay(&one.named)));
        kept.chain(given_up).filter(|(_, stay)| !stay.is_empty()).collect()
    }

    /// Returns what the successor takes over.
    pub(super) fn plan(&self, hello: &Hello, prepared: &Prepared) -> Planned {
        let here: Vec<String> = self.all().flat_map(addresses).collect();
        let listens = |reads: &Reads| -> (Vec<String>, Vec<String>) {
            reads.listeners.iter().cloned().partition(|address| here.contains(address))
        };
        let of_reads = |reads: &Reads| {
            let (taken_over, added) = listens(reads);
            PoolPlanned { name: reads.name.clone(), taken_over, added, limit: reads.limit, ..PoolPlanned::default() }
        };
        let left = |named| addresses(named).into_iter().filter(|address| !prepared.listens_at(address)).collect();
        let find = |named: &NamedPool| prepared.pools.iter().find(|reads| reads.name == named.name);
        let kept = self.pools.iter().filter_map(|named| Some((named, find(named)?))).map(|(named, reads)| {
            let (move_on, stay) = named.plan(&prepared.reads(&named.name), None);
            let (connections, limit_before) = (named.pool.held(), named.pool.limit());
            PoolPlanned { connections, move_on, stay, given_up: left(named), limit_before, ..of_reads(reads) }
        });
        let given_up = self.given_up.iter().map(|GivenUp { named, .. }| {
            let (stay, limit) = (all_stay(named), named.pool.limit());
            let connections = stay.values().sum();
            let (name, given_up) = (named.name.clone(), left(named));
            PoolPlanned { name, connections, stay, given_up, limit_before: limit, limit, ends: true, ..PoolPlanned::default() }
        });
        let is_new = |reads: &&Reads| !self.pools.iter().any(|named| named.name == reads.name);
        let new = prepared.pools.iter().filter(is_new);
        let new = new.map(|reads| PoolPlanned { limit_before: reads.limit, ..of_reads(reads) });
        let to = Some(BuildId { version: hello.version.clone(), pid: self.pid });
        let is_dropped = |name: &&String| prepared.carried.as_ref().is_some_and(|carried| !carried.contains(name));
        let dropped = self.meeting.carries.iter().map(|carry| &carry.name).filter(is_dropped).cloned().collect();
        Planned { from: self.meeting.build(), to, pools: kept.chain(given_up).chain(new).collect(), dropped }
    }
}
