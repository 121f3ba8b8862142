//! The changes that ask connections to end, applied to the second set and to the requests.

use super::change::{Changer, SHOWS_WITHIN, Unseen};
use crate::Group;
use crate::PATIENCE;
use crate::tally::Ending;
use sockdrawer::{Drain, Drained, Selector};
use std::time::{Duration, Instant};

/// The deadline of a drain. An echo that is asked to end does so at once, so the deadline must be kept.
const DEADLINE: Duration = Duration::from_secs(2);
/// Minimum of requests under way when their connections are asked to end.
const UNDER_WAY: u64 = 2;

impl Changer<'_> {
    pub(crate) fn drain(&mut self, value: u64) -> Result<Duration, Unseen> {
        // 16 connections in 4 to 16 ms.
        const RATES: [f64; 3] = [1_000.0, 2_000.0, 4_000.0];
        let rate = RATES[usize::try_from(value % 3).expect("less than 3")];
        let (at_once, slowly) = (Drain::within(DEADLINE), Drain::within(DEADLINE).rate(rate));
        let second = self.drain_set(Group::Second, slowly)?;
        let requests = self.drain_set(Group::Requests, if value & 1 == 0 { at_once } else { slowly })?;
        Ok(second + requests)
    }

    fn drain_set(&mut self, group: Group, how: Drain) -> Result<Duration, Unseen> {
        self.asked(group, |changer| whole(changer.scene.server().drain(&group.selector(), how)))
    }

    /// Waits for enough requests under way and returns their number. They are short, so an earlier count would say nothing.
    fn await_requests(&self) -> Result<u64, Unseen> {
        let (server, ledger) = (&self.scene.server(), &self.scene.props.ledger);
        let mut under_way = 0;
        let enough = server.wait(SHOWS_WITHIN, |_| {
            under_way = ledger.under_way();
            under_way >= UNDER_WAY
        });
        match enough {
            true => Ok(under_way),
            false => Err(format!("fewer than {UNDER_WAY} requests were under way at once within {SHOWS_WITHIN:?}")),
        }
    }

    pub(crate) fn purge(&mut self) -> Result<Duration, Unseen> {
        self.asked(Group::Second, |changer| whole(changer.scene.server().purge(&Group::Second.selector(), DEADLINE)))
    }

    /// Calls `end`, which ends connections of a set and returns their number. Exactly as many clients must see an orderly end.
    fn asked(&mut self, group: Group, end: impl FnOnce(&mut Changer<'_>) -> Result<usize, Unseen>) -> Result<Duration, Unseen> {
        let before = self.before(group, Ending::Orderly)?;
        if group == Group::Requests {
            self.at_drains += self.await_requests()?;
        }
        let begun = Instant::now();
        let asked = end(self)?;
        let took = begun.elapsed();
        self.after(group, Ending::Orderly, before, asked)?;
        Ok(took)
    }

    pub(crate) fn kill(&mut self, value: u64) -> Result<Duration, Unseen> {
        let before = self.before(Group::Second, Ending::Reset)?;
        let server = &self.scene.server();
        let there: Vec<_> = server.connections(&Group::Second.selector()).into_iter().filter(|one| !one.draining).collect();
        if there.is_empty() {
            return Err("the server lists no connection of the second set".to_owned());
        }
        let chosen = usize::try_from(value % there.len() as u64).expect("less than the number of connections");
        let begun = Instant::now();
        let killed = server.kill(&Selector::Id(there[chosen].id));
        let took = begun.elapsed();
        if killed.cut != 1 {
            return Err("a connection that is there was not killed".to_owned());
        }
        self.after(Group::Second, Ending::Reset, before, 1)?;
        Ok(took)
    }

    fn before(&self, group: Group, ending: Ending) -> Result<u64, Unseen> {
        if !self.scene.stands(group) {
            return Err(format!("{}: not all stand again within {PATIENCE:?}", group.name()));
        }
        Ok(self.scene.tally.endings(group, ending))
    }

    fn after(&mut self, group: Group, ending: Ending, before: u64, asked: usize) -> Result<(), Unseen> {
        if asked == 0 {
            return Err("no connection was asked to end".to_owned());
        }
        let tally = &self.scene.tally;
        self.asked[tally.change()] += asked as u64;
        let seen = || tally.endings(group, ending) - before;
        self.scene.set(group).0.wait(PATIENCE, |_| seen() >= asked as u64);
        if seen() == asked as u64 {
            return Ok(());
        }
        Err(format!("{asked} connections were asked to end, {} did so", seen()))
    }
}

/// Returns the number of connections that ended, if all ended in order.
fn whole(drained: Drained) -> Result<usize, Unseen> {
    if drained.cut == 0 { Ok(drained.asked) } else { Err(format!("connections were cut off within {DEADLINE:?}: {drained:?}")) }
}
