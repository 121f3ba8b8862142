//! The predecessor's side: it lets a successor have its listeners, and then its connections.

use super::asked::Owed;
use super::figures::Figures;
use super::given_up::GivenUp;
use super::meeting::{DIED, GONE, GREETS_WITHIN, Meeting, accept};
use super::talk::{Room, Talk};
use super::{MAX_BEHIND, NamedPool, REHEARSAL, Replace};
use crate::clock::deadline;
use crate::ipc::messages::{
    FORMATS, Go, Held, Hello, Listened, Pooled, Prepared, RefusedSuccessor, ReplaceReport, Said, ShutDown, Welcome,
};
use crate::ipc::packets::MAX_MESSAGE;
use crate::observe::Event;
use crate::operation::{Drain, Op, Selector};
use crate::pool::ListeningSockets;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{MutexGuard, lock};
use crate::sys::{Errno, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A successor that takes longer than this to hear the commit, or to restore what it was offered, does not get it: connections are frozen
/// meanwhile.
pub(super) const RESTORES_WITHIN: Duration = Duration::from_secs(1);
/// A successor that lives keeps those that move together from acting here for so long: it has what they share, and what they changed here would be
/// lost.
const TOGETHER_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time to wait for listening sockets that are on their way out.
const RETIRED_WITHIN: Duration = Duration::from_secs(5);
/// Time for which no process accepts while a loop that is busy is waited for: at the first try, and the maximum.
const STOPS_WITHIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Pauses between two looks for connections that have become movable: at first, and the maximum, where none has.
const SWEEPS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];
/// Time until the first look for a connection that code was asked for: it gives it back between two messages.
const COMES_BACK: Duration = Duration::from_millis(5);
/// Time after which connections that are not given back are told as staying for now.
const TELLS_BY: Duration = Duration::from_secs(1);
/// Maximum time that another process that comes while a successor prepares waits for what the successor has said.
const HEARD_WITHIN: Duration = Duration::from_millis(20);
/// Pauses between two messages about connections that have ended: at first, and the maximum, where none has for a while.
const TELLS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];

/// The conversation with one successor.
pub(super) struct Conversation<'a> {
    pub(super) talk: Talk,
    pub(super) pid: u32,
    pub(super) meeting: &'a Meeting,
    /// Pools of both builds; before the successor has named its own, all.
    pub(super) pools: Vec<NamedPool>,
    pub(super) given_up: Vec<GivenUp>,
    /// The program that asked for it.
    replacing: Option<Replacing>,
    /// The successor stands: should it die, nothing is this process's any more but what it has.
    settled: bool,
    /// Connections may be frozen.
    has_frozen: bool,
    /// Other code was asked for connections, which it gives back.
    pub(super) awaited: bool,
    /// Connections that move together have acted here since the successor read what they share: they wait no longer than others.
    has_acted: bool,
    /// Observers were told that another process took over.
    was_told: bool,
    /// The place where the two met: the next one meets the successor there.
    place: Option<Arc<OwnedFd>>,
    /// Time at which what is left here is ended, and how.
    stays: Option<(Instant, Drain)>,
    /// The last message about what is left here.
    left: Vec<Held>,
    owed: Owed,
    pub(super) figures: Figures,
}

/// A program that has asked for a successor, and is told what comes of it.
pub(super) struct Replacing {
    pub(super) asking: Talk,
    pub(super) rehearsal: bool,
    pub(super) since: Instant,
}

impl Conversation<'_> {
    pub(super) fn new(
        talk: Talk,
        pid: u32,
        meeting: &Meeting,
        pools: Vec<NamedPool>,
        place: Arc<OwnedFd>,
        replacing: Option<Replacing>,
    ) -> Conversation<'_> {
        let (figures, place) = (Figures::default(), Some(place));
        Conversation {
            talk,
            pid,
            meeting,
            pools,
            given_up: Vec::new(),
            replacing,
            settled: false,
            has_frozen: false,
            awaited: false,
            has_acted: false,
            was_told: false,
            place,
            stays: None,
            left: Vec::new(),
            owed: Owed::default(),
            figures,
        }
    }

    /// Holds the conversation, and leaves the place when the successor has taken over for good. If it has not, this process goes on as it was: the
    /// reason is returned.
    pub(super) fn hold(mut self, hello: &Hello) -> Option<String> {
        let met = self.talk.now();
        // An address that this process gives up would be a change meanwhile, until the successor has taken over.
        let before = self.meeting.before.clone();
        let as_it_is = lock(&before.giving_up);
        let prepared = match self.meet(hello) {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(reason)) => return Some(self.refuse(reason)),
            Err(Errno::AGAIN) => return Some(self.refuse("it was not ready in time".to_owned())),
            Err(_) => return Some(self.refuse(GONE.to_owned())),
        };
        self.figures.prepared = self.replacing.as_ref().map_or(met, |replacing| replacing.since).elapsed();
        if let Err(reason) = self.commit(&prepared, as_it_is) {
            self.meeting.pools.take_back();
            for named in self.all() {
                named.pool.take_back();
                if self.was_told {
                    named.pool.tell_event(&Event::TakenBack);
                }
            }
            // All accept again by now: a loop that hangs holds up no other.
            if self.has_frozen {
                self.pools.iter().for_each(|named| named.pool.thaw(true));
                self.meeting.asked.take_back();
            }
            return Some(self.refuse(reason));
        }
        self.settle();
        let (stays, pools, given_up) = (self.stays, std::mem::take(&mut self.pools), std::mem::take(&mut self.given_up));
        let ends = self.meeting.ends;
        // Nothing more is said of what is left here: it ends when it does, or when it may stay no longer.
        drop(self);
        pools.iter().for_each(|named| named.pool.thaw(true));
        if let Some((until, how)) = stays
            && !pools.iter().all(|named| named.pool.wait_for_none(Some(until)))
        {
            pools.iter().for_each(|named| end(named, how, true));
        }
        for NamedPool { pool, .. } in &pools {
            pool.wait_for_none(None);
            pool.end_handed_over();
        }
        // These pools end by now, each on a thread of its own, if there was one.
        given_up.iter().for_each(|one| one.named.pool.end_with_successor(ends));
        None
    }

    /// Returns the pools of this process, whatever becomes of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &NamedPool> {
        self.pools.iter().chain(self.given_up.iter().map(|one| &one.named))
    }

    /// Commits, and goes on until the successor has all that can move. Fails with the reason why this process goes on.
    fn commit(&mut self, prepared: &Prepared, as_it_is: MutexGuard<'_, ()>) -> std::result::Result<(), String> {
        let began = self.stop_accepting()?;
        self.has_frozen = true;
        self.gather(prepared);
        let go = self.meeting.carried()?;
        self.say_go(began, go)?;
        let went = self.go(began);
        // Connections may stay for hours: the process before this one is told that this one stands, whatever stays here.
        drop(as_it_is);
        match went.and_then(|()| self.move_all(prepared, began)) {
            Err(_) if self.has_died() => Err(DIED.to_owned()),
            Err(_) => {
                // The successor stood, and has died. Where it had been replaced in turn, what stayed here counts for no limit of the build that
                // serves now, which cannot ask it to end either.
                if self.stays.is_none() && Replace::at(&self.meeting.path).build().is_ok() {
                    self.stays = Some((self.talk.now(), self.meeting.ends));
                }
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Has every loop stop to accept. One that is busy is waited for while all others accept, and then for a moment only: the next try takes
    /// longer. Returns when the last one began.
    fn stop_accepting(&self) -> std::result::Result<Instant, String> {
        let [mut within, longest] = STOPS_WITHIN;
        let until = deadline(Instant::now(), self.meeting.turns_within);
        while self.all_turn(until.saturating_duration_since(Instant::now())) {
            let began = Instant::now();
            if self.pools.iter().all(|named| named.pool.hand_over(within)) && self.pass_addresses_on(within)? {
                return Ok(began);
            }
            if !self.all().all(|named| named.pool.is_running()) {
                return Err("a pool of it ends".to_owned());
            }
            let revisions: Vec<u64> = self.pools.iter().map(|named| named.pool.revision()).collect();
            self.all().for_each(|named| named.pool.take_back());
            self.stay_as_they_are(&revisions)?;
            within = (within * 2).min(longest);
        }
        Err(self.hangs())
    }

    /// Forbids changes of any pool from here on.
    fn stay_as_they_are(&self, revisions: &[u64]) -> std::result::Result<(), String> {
        let mut kept = self.pools.iter().zip(revisions);
        match kept.find(|(named, revision)| !named.pool.stay_as_it_is(**revision)) {
            Some((named, _)) => Err(changed(&named.name)),
            None => Ok(()),
        }
    }

    fn hangs(&self) -> String {
        format!("a loop of it hangs: its code has not returned for {:?} (Upgrade::turns_within)", self.meeting.turns_within)
    }

    /// Says a last word to a successor that does not take over.
    fn refuse(self, reason: String) -> String {
        self.talk.end(Said::Refused(RefusedSuccessor::because(reason.clone())));
        reason
    }

    fn all_turn(&self, within: Duration) -> bool {
        let until = deadline(Instant::now(), within);
        self.all().all(|named| named.pool.turns(until.saturating_duration_since(Instant::now())))
    }

    /// Returns true where the successor, which is gone, did not say before that it stands. Messages of it that were not heard yet are looked at for
    /// that.
    fn has_died(&mut self) -> bool {
        while let Ok((said, _)) = self.talk.hear(None) {
            if matches!(said, Said::Settled | Said::ShutDown(_)) {
                self.settle();
                // Its pool may have ended with it.
                self.heard(said);
            }
        }
        !self.settled
    }

    /// Meets the successor, up to where it has all that can fail. Returns why it is refused, if it is.
    fn meet(&mut self, hello: &Hello) -> Result<std::result::Result<Prepared, String>> {
        let until = deadline(Instant::now(), Duration::from_millis(hello.within));
        if let Err(reason) = self.may_replace(hello) {
            return Ok(Err(reason));
        }
        let revisions: Vec<u64> = self.pools.iter().map(|named| named.pool.revision()).collect();
        let place = self.place.clone().ok_or(Errno::PIPE)?;
        // From here on the successor has the listeners, too, and serves if this process dies: no process before this one may then.
        self.meeting.before.settle();
        self.welcome(&place, until)?;
        let Said::Prepared(prepared) = self.prepared(&place, until)? else {
            return Ok(Err("what it says is not understood".to_owned()));
        };
        let all = self.pools.clone();
        let revisions = self.give_up(&prepared, &revisions);
        if let Some(replacing) = &self.replacing {
            // The asking program may have gone.
            let until = Some(self.talk.now() + GREETS_WITHIN);
            let _ = replacing.asking.say_until(&Said::Planned(self.plan(hello, &prepared)), &[], Room::Soon, until);
            if replacing.rehearsal {
                return Ok(Err(REHEARSAL.to_owned()));
            }
        }
        all.iter().for_each(|named| named.pool.take_for_good());
        if let Err(reason) = self.stay_as_they_are(&revisions) {
            self.pools.iter().for_each(|named| named.pool.take_back());
            return Ok(Err(reason));
        }
        if !self.meeting.pools.hand_over(&all) {
            self.pools.iter().for_each(|named| named.pool.take_back());
            return Ok(Err("a pool was started meanwhile: start the new build again".to_owned()));
        }
        Ok(Ok(prepared))
    }

    fn may_replace(&self, hello: &Hello) -> std::result::Result<(), String> {
        if hello.lowest_format > FORMATS.1 || hello.highest_format < FORMATS.0 {
            let (low, high) = FORMATS;
            let (lowest, highest) = (hello.lowest_format, hello.highest_format);
            return Err(format!("it speaks formats {low} to {high}, the new one {lowest} to {highest}"));
        }
        if self.meeting.before.count.load(SeqCst) >= MAX_BEHIND {
            return Err(format!("{MAX_BEHIND} processes before it still have connections: end those first"));
        }
        if self.replacing.is_none() {
            // A successor that this process started was asked for before.
            self.meeting.asked.ask()?;
        }
        if !self.all_turn(self.meeting.turns_within) {
            return Err(self.hangs());
        }
        if !self.pools.iter().all(|named| named.pool.wait_for_retired(RETIRED_WITHIN)) {
            return Err("listening sockets of it are still being emptied: try again".to_owned());
        }
        Ok(())
    }

    fn welcome(&self, place: &OwnedFd, until: Instant) -> Result<()> {
        let sockets: Vec<_> = self.pools.iter().map(|named| (named.name.clone(), named.pool.listening_sockets())).collect();
        let listened = |listeners: &Vec<ListeningSockets<_>>| {
            let one = |one: &ListeningSockets<_>| Listened {
                address: one.address.to_string(),
                sockets: one.sockets.len() as u32,
                is_shared: one.is_shared,
                name: one.name.clone(),
            };
            listeners.iter().map(one).collect()
        };
        let pools =
            sockets.iter().map(|(name, listeners)| Pooled { name: name.clone(), listeners: listened(listeners) }).collect();
        let descriptors: Vec<BorrowedFd<'_>> = sockets
            .iter()
            .flat_map(|(_, listeners)| listeners.iter().flat_map(|one| one.sockets.iter().map(|socket| socket.fd())))
            .chain([place.as_fd()])
            .collect();
        let (format, pid, version) = (FORMATS.1, std::process::id(), self.meeting.version.clone());
        let welcome = Said::Welcome(Welcome { format, pid, version, pools });
        self.talk.say_until(&welcome, &descriptors, Room::Soon, Some(until))
    }

    /// Returns what the successor says once it is prepared. Others that come meanwhile are refused.
    fn prepared(&mut self, place: &OwnedFd, until: Instant) -> Result<Said> {
        let since = self.talk.now();
        loop {
            let [said, came] = self.talk.wait_beside(Some(place.as_fd()), until)?;
            // The end of a successor is heard a moment after it where a process that it was starting has a copy of its socket still.
            let soon = until.min(self.talk.now() + HEARD_WITHIN);
            if said || self.talk.wait_beside(None, soon).is_ok() {
                return Ok(self.talk.hear(Some(until))?.0);
            }
            if came && let Ok(other) = accept(place).and_then(Talk::new) {
                // The program says first what it wants: a message that is not read would destroy the answer.
                let asks = match other.answer(Some(GREETS_WITHIN)) {
                    Ok(Said::Replace(asks)) if asks.is_question() => {
                        other.end(Said::Planned(self.meeting.look(&asks)));
                        continue;
                    }
                    said => matches!(said, Ok(Said::Replace(_))),
                };
                let reason = format!("pid {} is taking over since {} s: wait for it", self.pid, since.elapsed().as_secs());
                let refused = ReplaceReport { refused: reason.clone(), ..ReplaceReport::default() };
                other.end(if asks { Said::Replaced(refused) } else { Said::Refused(RefusedSuccessor::because(reason)) });
            }
        }
    }

    /// Says the commit. Fails with the reason why it cannot be said.
    fn say_go(&mut self, began: Instant, mut go: Go) -> std::result::Result<(), String> {
        self.left = self.what_is_left(true);
        self.stays = self.meeting.stays.map(|(time, how)| (deadline(began, time), how));
        go.pools.clone_from(&self.left);
        let until = self.talk.now() + RESTORES_WITHIN;
        // From here on only the successor's death brings the listeners back: both would accept.
        self.talk.say_until(&Said::Go(go), &[], Room::Soon, Some(until)).map_err(|errno| match errno {
            Errno::TOOBIG => format!("what is carried is too long: {} MiB is the most", MAX_MESSAGE >> 20),
            Errno::AGAIN => "it does not read what it is told: it may be stopped".to_owned(),
            _ => DIED.to_owned(),
        })
    }

    /// Hands over: no loop accepts here any more, and the successor does.
    fn go(&mut self, began: Instant) -> Result<()> {
        let mut until = Some(self.talk.now() + RESTORES_WITHIN);
        loop {
            match self.talk.hear(until) {
                Ok((Said::Done, _)) => break,
                Ok((said, _)) => self.heard(said),
                Err(Errno::AGAIN) => {
                    until = self.set_waits(began);
                    self.go_on(until.is_some());
                }
                Err(gone) => return Err(gone),
            }
        }
        self.figures.gap = began.elapsed();
        let pid = self.pid;
        self.was_told = true;
        self.all().for_each(|named| named.pool.tell_event(&Event::HandedOver { pid }));
        Ok(())
    }

    /// Returns until when connections that move together, gathered then, wait for a successor that says nothing. None: they do not, or there are
    /// none.
    pub(super) fn set_waits(&self, gathered: Instant) -> Option<Instant> {
        let until = gathered + TOGETHER_WITHIN;
        let waits = |named: &NamedPool| named.pool.gathers();
        (!self.has_acted && self.talk.now() < until && self.pools.iter().any(waits)).then_some(until)
    }

    /// Has frozen connections go on here, for the successor may be stopped; those that move together do not where these `wait`.
    pub(super) fn go_on(&mut self, wait: bool) {
        self.has_acted |= !wait;
        let goes_on = |named: &&NamedPool| !(wait && named.pool.state().moves_together());
        self.pools.iter().filter(goes_on).for_each(|named| named.pool.thaw(false));
    }

    /// Waits for a moment with what moves together, and does what the successor asks for meanwhile.
    ///
    /// # Errors
    /// `EPIPE`: the successor is gone.
    pub(super) fn wait_with_set(&mut self) -> Result<()> {
        self.go_on(true);
        match self.talk.hear(Some(self.talk.now() + SWEEPS[0])) {
            Ok((said, _)) => self.heard(said),
            Err(Errno::AGAIN) => {}
            Err(gone) => return Err(gone),
        }
        Ok(())
    }

    /// Does what the successor may ask for at any time after the commit. What is not understood changes nothing.
    pub(super) fn heard(&mut self, said: Said) {
        match said {
            Said::Settled => self.settle(),
            Said::ShutDown(ended) => self.shut_down(&ended),
            Said::Asked(asked) => self.owed.answer(asked, &self.pools, &self.talk),
            _ => {}
        }
    }

    fn what_is_left(&self, with_peers: bool) -> Vec<Held> {
        self.pools.iter().map(|named| self.what_is_left_of(named, with_peers)).collect()
    }

    fn what_is_left_of(&self, named: &NamedPool, with_peers: bool) -> Held {
        Held { behind: self.meeting.before.count.load(SeqCst), ..named.pool.what_is_held(&named.name, with_peers) }
    }

    /// Offers all connections, again and again, until none is left and the successor stands.
    ///
    /// # Errors
    /// `EPIPE`: the successor is gone.
    fn move_all(&mut self, prepared: &Prepared, gathered: Instant) -> Result<()> {
        let [mut pause, longest] = SWEEPS;
        let [mut tells, rarest] = TELLS;
        let began = self.talk.now();
        let mut whole = self.move_together(prepared, gathered)?;
        let (mut next, mut frozen) = (began, true);
        loop {
            if self.talk.now() >= next {
                if !whole {
                    let again = self.talk.now();
                    self.gather(prepared);
                    frozen = true;
                    whole = self.move_together(prepared, again)?;
                }
                let moved = self.sweep(prepared, whole, std::mem::take(&mut frozen))?;
                pause = match self.awaited {
                    true => (began.elapsed() / 4).clamp(COMES_BACK, SWEEPS[0]),
                    false if moved => SWEEPS[0],
                    false => (pause * 2).min(longest),
                };
                next = self.talk.now() + pause;
                if !self.awaited || began.elapsed() > TELLS_BY {
                    self.tell_figures(prepared, began.elapsed());
                }
            }
            if let Some((_, how)) = self.stays.take_if(|(until, _)| self.talk.now() >= *until) {
                // Before what stayed ends by that.
                self.tell_figures(prepared, began.elapsed());
                self.pools.iter().for_each(|named| end(named, how, self.settled));
                // The pools end too, where that has not ended all, once they need not be taken back.
                self.stays = (!self.settled).then(|| (deadline(self.talk.now(), how.deadline.max(TELLS[0])), how));
            }
            // An operation that is asked for may end some.
            let some_may_end = self.tell_left(Room::Now)? || self.owed.is_any();
            tells = if some_may_end { TELLS[0] } else { (tells * 2).min(rarest) };
            let none = self.left.iter().all(|left| left.connections == 0) && !self.owed.is_any();
            if none && self.settled {
                // A connection's permit is free a moment before its end is counted: once every loop was asked something, it is.
                self.pools.iter().for_each(|named| named.pool.thaw(false));
                self.tell_left(Room::Soon)?;
                // Nothing depends on it any more.
                let _ = self.talk.say(Said::Ended, &[]);
                return Ok(());
            }
            let until = self.stays.map_or(next, |(until, _)| until.min(next)).min(self.talk.now() + tells);
            match self.talk.hear((!none).then_some(until)) {
                Ok((said, _)) => {
                    self.heard(said);
                    tells = TELLS[0];
                }
                Err(Errno::AGAIN) => {}
                Err(gone) => return Err(gone),
            }
        }
    }

    /// Says how many connections are left, here and in how many processes, where that changed: their permits may be waited for. The counters come
    /// along. What finds no room now, for the successor may be stopped, is said later; with other room it is waited for. Returns whether there was
    /// news.
    pub(super) fn tell_left(&mut self, room: Room) -> Result<bool> {
        let mut any = false;
        let mut left = self.what_is_left(false);
        let over = left.iter().all(|left| left.connections == 0);
        for ((named, now), before) in self.pools.iter().zip(&mut left).zip(&self.left) {
            let is_news = over && *now != *before
                || now.connections != before.connections
                || now.listeners != before.listeners
                || now.behind != before.behind;
            any |= is_news;
            if is_news {
                let said = Said::Left(self.what_is_left_of(named, true));
                let until = (room == Room::Now).then(|| self.talk.now());
                match self.talk.say_until(&said, &[], room, until) {
                    Err(Errno::PIPE) => return Err(Errno::PIPE),
                    Err(_) => now.clone_from(before),
                    Ok(()) => {}
                }
            }
        }
        self.left = left;
        Ok(any)
    }

    /// Tells the asking program, once, what has come of the upgrade by now: all that could move has moved.
    fn tell_figures(&mut self, prepared: &Prepared, moving: Duration) {
        let Some(replacing) = self.replacing.take() else { return };
        let staying = self.what_stays(prepared);
        let replaced = std::mem::take(&mut self.figures).told(self.pid, moving, staying);
        replacing.asking.end(Said::Replaced(replaced));
    }

    /// Settles: the successor stands, and meets the next one. Nothing that listens is this process's but what pools have that it does not: those end.
    fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        self.meeting.place.leave();
        self.place = None;
        self.all().for_each(|named| named.pool.forget_handed_over());
        self.given_up.iter().for_each(|one| end(&one.named, self.meeting.ends, true));
    }

    /// Has a pool end whose successor does; what it has is still told of meanwhile.
    fn shut_down(&self, ended: &ShutDown) {
        let how = Drain::within(Duration::from_millis(ended.within));
        self.pools.iter().filter(|named| named.name == ended.pool).for_each(|named| end(named, how, true));
    }
}

/// Returns the reason why the successor does not have a pool as it is by now.
pub(super) fn changed(name: &str) -> String {
    format!("the pool {name} was changed meanwhile: start the new build again")
}

/// Ends what is left of a pool, which is still told of meanwhile; the pool as well, unless it may have to take its listeners back.
fn end(NamedPool { pool, .. }: &NamedPool, how: Drain, whole: bool) {
    let pool = pool.clone();
    let end = move || match whole {
        true => pool.end_with_successor(how),
        false => _ = pool.apply(Op::Drain(how), &Selector::All),
    };
    // Without a thread for it, its connections end when they do.
    let _ = std::thread::Builder::new().name("sockdrawer-end".to_owned()).spawn(end);
}
