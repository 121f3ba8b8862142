//! The predecessor offers its connections, and lets go of those that the successor has restored.

use super::NamedPool;
use super::handing_over::{Conversation, RESTORES_WITHIN};
use super::talk::Room;
use crate::clock::deadline;
use crate::event_loop::connections::moving::Reading;
use crate::ipc::messages::{Offer, Prepared, Said};
use crate::ipc::packets::MAX_MESSAGE;
use crate::ipc::yours::Yours;
use crate::pool::moving::{Holder, heard};
use crate::sys::{Errno, Result};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A longer part of a verdict is said before the rest is made.
const PART: usize = MAX_MESSAGE / 4;
/// Rounds in which connections that move together hear what each has sent to others, at most. Two do for most: a message that a connection
/// answers by another takes a third.
const MAX_ROUNDS: usize = 16;
/// Maximum time that connections that move together are waited for while no process accepts. A loop that takes longer joins the others when it
/// is offered.
const GATHERS_WITHIN: Duration = Duration::from_secs(1);

/// Connections of a loop or helper that the successor has restored.
struct RestoredSlice {
    pool: String,
    holder: Arc<dyn Holder>,
    ids: Vec<u64>,
}

impl Conversation<'_> {
    /// Returns the pools whose connections move together: they are one set, because groups reach over pools.
    fn together(&self) -> Vec<NamedPool> {
        self.pools.iter().filter(|named| named.pool.state().moves_together()).cloned().collect()
    }

    /// Freezes the connections that move together, once each has heard what others have sent it; and those whose peer is still to be learned,
    /// which only the successor can judge: it has the other connections of that peer.
    pub(super) fn gather(&self, prepared: &Prepared) {
        let until = deadline(Instant::now(), GATHERS_WITHIN);
        let freeze = |NamedPool { name, pool, .. }: &NamedPool| pool.freeze(&prepared.reads(name), until);
        let mut frozen: Vec<_> = self.pools.iter().flat_map(freeze).collect();
        // After a round in which no note was heard none is under way: each was put in an inbox before the round reached that.
        (0..MAX_ROUNDS).take_while(|_| heard(&mut frozen, false, until) > 0).count();
        heard(&mut frozen, true, until);
    }

    /// Offers the connections that move together, frozen since then. They become the successor's at one moment: a set that is in both processes
    /// would not hear all that its members publish. Returns false where the successor did not take them: all go on here, and are gathered again.
    pub(super) fn move_together(&mut self, prepared: &Prepared, gathered: Instant) -> Result<bool> {
        let (pools, mut restored) = (self.together(), Vec::new());
        for named in &pools {
            if self.offer_all(named, prepared, &mut restored, Some(gathered))?.is_none() {
                self.take_back(&restored)?;
                self.go_on(false);
                return Ok(false);
            }
        }
        if !pools.is_empty() {
            self.give(&mut restored, gathered, &pools)?;
        }
        Ok(true)
    }

    /// Offers what can move; once the set has moved `whole`, also what is left of it. Returns whether anything moved. Connections that were
    /// `frozen` and cannot be offered now go on here.
    pub(super) fn sweep(&mut self, prepared: &Prepared, whole: bool, frozen: bool) -> Result<bool> {
        let mut moved = 0;
        self.awaited = false;
        for named in self.pools.clone().iter().filter(|named| whole || !named.pool.state().moves_together()) {
            moved += self.offer_all(named, prepared, &mut Vec::new(), None)?.unwrap_or(0);
            if frozen {
                named.pool.thaw(false);
            }
        }
        Ok(moved > 0)
    }

    /// Offers the connections of a pool, slice by slice. None is the successor's before this process has closed its copy. Those that move
    /// together, frozen since `gathered`, are added to `restored`, and the others become the successor's slice by slice. Returns how many did; None
    /// where the successor does not take them now.
    fn offer_all(
        &mut self,
        named: &NamedPool,
        prepared: &Prepared,
        restored: &mut Vec<RestoredSlice>,
        gathered: Option<Instant>,
    ) -> Result<Option<usize>> {
        let NamedPool { name, pool, .. } = named;
        let reads = Reading { state: prepared.reads(name), listeners: pool.listener_states() };
        let (mut moved, together, since) = (0, gathered.is_some(), self.talk.now());
        let waits = |this: &Self| pool.gathers() && gathered.is_some_and(|gathered| this.set_waits(gathered).is_some());
        for holder in pool.holders() {
            let mut from = Some(0);
            while let Some(at) = from {
                let (talk, pool, began) = (self.talk.clone(), name.clone(), self.talk.now());
                let send = move |records, _, descriptors: &[BorrowedFd<'_>]| {
                    talk.say(Said::Offer(Offer { pool, records, together }), descriptors)
                };
                let offered = match holder.offer(&reads, at, Box::new(send)) {
                    Ok(offered) => offered,
                    Err(Errno::PIPE) => return Err(Errno::PIPE),
                    Err(Errno::BUSY) => {
                        self.tell_left(Room::Now)?;
                        // A set waits for a loop that is late.
                        if waits(self) && self.talk.now() < since + self.meeting.turns_within {
                            self.wait_with_set()?;
                            continue;
                        }
                        break;
                    }
                    // The successor reads nothing now, for it may be stopped; or memory is short. They go on here, if they do not wait.
                    Err(_) if waits(self) => {
                        self.wait_with_set()?;
                        continue;
                    }
                    Err(_) => return Ok(None),
                };
                from = offered.next;
                self.awaited |= offered.awaited > 0;
                if offered.count == 0 {
                    continue;
                }
                // Only those that have offered something are asked to let go of it: another one may be busy for any time.
                if restored.last().is_none_or(|last| last.pool != *name || !Arc::ptr_eq(&last.holder, &holder)) {
                    restored.push(RestoredSlice { pool: name.clone(), holder: holder.clone(), ids: Vec::new() });
                }
                match self.restored(restored, gathered)? {
                    Some(ids) => restored.last_mut().expect("just pushed").ids.extend(ids),
                    None if together => return Ok(None),
                    None => {}
                }
                if !together {
                    moved += self.give(restored, began, &[])?;
                }
            }
        }
        Ok(Some(moved))
    }

    /// Lets go of what the successor has restored, and says so. Of pools whose connections moved `together` all others go on here.
    fn give(&mut self, restored: &mut Vec<RestoredSlice>, began: Instant, together: &[NamedPool]) -> Result<usize> {
        let (mut yours, mut count) = (Yours::default(), 0);
        for RestoredSlice { pool, holder, ids } in restored.drain(..) {
            let gone = holder.let_go(ids);
            count += gone.ids.len();
            if !yours.ids.is_empty() && (yours.pool != pool || yours.size() > PART) {
                let part = Yours { more: true, ..std::mem::take(&mut yours) };
                self.talk.say_surely(&Said::Yours(part))?;
            }
            yours.extend(gone);
            yours.pool = pool;
        }
        // Before a successor that may be stopped hears of the rest: none of these is restored there.
        together.iter().for_each(|named| named.pool.thaw(false));
        self.talk.say_surely(&Said::Yours(yours))?;
        self.figures.moved += count as u64;
        if count > 0 {
            self.figures.pauses.push((began.elapsed(), count));
        }
        Ok(count)
    }

    /// Has connections go on here that were offered.
    fn take_back(&self, offered: &[RestoredSlice]) -> Result<()> {
        // Said before they go on: should this process die then, they are not the successor's, whose copies are old.
        self.talk.say_until(&Said::Yours(Yours::default()), &[], Room::Kept, None)?;
        offered.iter().for_each(|slice| _ = slice.holder.let_go(Vec::new()));
        Ok(())
    }

    /// Waits for what the successor says of the last offer. None where it takes long, for it may be stopped: the connections go on here meanwhile,
    /// and none of them is the successor's. Those that move together wait longer.
    fn restored(&mut self, offered: &[RestoredSlice], gathered: Option<Instant>) -> Result<Option<Vec<u64>>> {
        let (mut until, mut in_time) = (Some(self.talk.now() + RESTORES_WITHIN), true);
        loop {
            match self.talk.hear(until) {
                Ok((Said::Restored(restored), _)) => {
                    for why in restored.reasons {
                        if !self.figures.not_restored.contains(&why) {
                            self.figures.not_restored.push(why);
                        }
                    }
                    return Ok(in_time.then_some(restored.ids));
                }
                Ok((said, _)) => self.heard(said),
                Err(Errno::AGAIN) => {
                    until = gathered.and_then(|gathered| self.set_waits(gathered));
                    if until.is_none() {
                        self.take_back(offered)?;
                        in_time = false;
                    }
                    if gathered.is_some() {
                        self.go_on(until.is_some());
                    }
                }
                Err(gone) => return Err(gone),
            }
        }
    }
}
