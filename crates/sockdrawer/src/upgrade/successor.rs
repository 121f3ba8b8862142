//! What a predecessor does: it lets a successor have its listeners, and then its connections.

use super::talk::Talk;
use super::{Before, MOST_BEHIND, Named, Place};
use crate::clock::deadline;
use crate::event_loop::inbox::Inbox;
use crate::ipc::messages::{
    Ended, FORMATS, Go, Held, Hello, Listened, Offer, Pooled, Prepared, Refused, Said, Welcome, Yours, state,
};
use crate::listen::state::AcceptState;
use crate::pool::Core;
use crate::pool::loops::Loops;
use crate::pool::loops::moving::{let_go, offer};
use crate::protocol::State;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::{Errno, Result, passing};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A process that connects says at once what it wants.
const GREETS_WITHIN: Duration = Duration::from_secs(1);
/// A successor that takes longer than this to restore what it was offered does not get it.
const RESTORES_WITHIN: Duration = Duration::from_secs(1);
/// Listening sockets that are on their way out are waited for.
const RETIRED_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks for connections that have become movable: at first, and at most, where none has.
const SWEEPS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];
/// Between two words about connections that have ended.
const TELLS: Duration = Duration::from_millis(10);

/// Where successors are met.
pub(super) struct Meeting {
    pub(super) place: Arc<Place>,
    pub(super) version: String,
    pub(super) known: Vec<(String, Weak<Core<Loops>>)>,
    pub(super) before: Arc<Before>,
}

impl Meeting {
    /// Meets one successor after the other, until one has taken over.
    pub(super) fn serve(self) {
        while let Some(socket) = self.place.socket() {
            let Ok(met) = passing::packet_accept(socket.as_fd()) else { return };
            let Ok(talk) = Talk::new(met) else { continue };
            // Pools that have ended have nothing to be taken over.
            let named = |(name, pool): &(String, Weak<Core<Loops>>)| Some(Named { name: name.clone(), pool: pool.upgrade()? });
            let pools: Vec<Named> = self.known.iter().filter_map(named).collect();
            (Conversation { talk, pools: &pools, meeting: &self, settled: false, left: Vec::new() }).hold(&socket);
        }
    }
}

/// With one successor.
struct Conversation<'a> {
    talk: Talk,
    pools: &'a [Named],
    meeting: &'a Meeting,
    /// The successor stands: should it die, nothing is this process's any more but what it has.
    settled: bool,
    /// What was said last of what is left here.
    left: Vec<Held>,
}

impl Conversation<'_> {
    /// The place is left when the successor has taken over for good. If it has not, this process goes on as it was.
    fn hold(mut self, place: &OwnedFd) {
        let prepared = match self.meet(place) {
            Ok(Some(prepared)) => prepared,
            Ok(None) => return,
            Err(errno) => {
                // The end alone would say that this process is dead.
                let reason = if errno == Errno::AGAIN { "it did not wait any longer" } else { "it did not understand" };
                let _ = self.refuse(reason.to_owned());
                return;
            }
        };
        // A process before this one must not accept any more, whatever happens to the next.
        self.meeting.before.settle();
        let states: Vec<AcceptState> = self.pools.iter().map(|named| named.pool.hand_over()).collect();
        let moved = self.go().and_then(|()| self.move_all(&prepared));
        if moved.is_err() && !self.settled {
            self.pools.iter().zip(&states).for_each(|(named, state)| named.pool.take_back(state));
            return;
        }
        self.settle();
        for Named { pool, .. } in self.pools {
            pool.thaw();
            pool.wait_for_none();
            pool.end_handed_over();
        }
    }

    /// Up to where the successor has all that can fail. None: it was refused.
    fn meet(&mut self, place: &OwnedFd) -> Result<Option<Prepared>> {
        let (pid, trusted) = self.talk.peer()?;
        let Said::Hello(hello) = self.talk.answer(Some(GREETS_WITHIN))? else { return Err(Errno::BADMSG) };
        let until = deadline(Instant::now(), Duration::from_millis(hello.within));
        if let Err(reason) = self.may_replace(&hello, trusted) {
            return self.refuse(reason);
        }
        let revisions: Vec<u64> = self.pools.iter().map(|named| named.pool.revision()).collect();
        self.welcome(place)?;
        let Said::Prepared(prepared) = self.prepared(place, pid, until)? else { return Err(Errno::BADMSG) };
        let missing = self.pools.iter().find(|named| !prepared.pools.iter().any(|reads| reads.name == named.name));
        if let Some(missing) = missing {
            return self.refuse(format!("it has no pool {}, which has connections here", missing.name));
        }
        let mut kept = self.pools.iter().zip(revisions);
        if let Some((named, _)) = kept.find(|(named, revision)| !named.pool.stay_as_it_is(*revision)) {
            let reason = format!("the pool {} was changed meanwhile: start the new build again", named.name);
            self.pools.iter().for_each(|named| named.pool.may_change());
            return self.refuse(reason);
        }
        Ok(Some(prepared))
    }

    fn refuse(&self, reason: String) -> Result<Option<Prepared>> {
        self.talk.say(Said::Refused(Refused { reason })).map(|()| None)
    }

    fn may_replace(&self, hello: &Hello, trusted: bool) -> std::result::Result<(), String> {
        if !trusted {
            return Err("another user may not replace it".to_owned());
        }
        if hello.lowest_format > FORMATS.1 || hello.highest_format < FORMATS.0 {
            let (low, high) = FORMATS;
            let (lowest, highest) = (hello.lowest_format, hello.highest_format);
            return Err(format!("it speaks formats {low} to {high}, the new one {lowest} to {highest}"));
        }
        if self.meeting.before.count.load(SeqCst) >= MOST_BEHIND {
            return Err(format!("{MOST_BEHIND} processes before it still have connections: end those first"));
        }
        if !self.pools.iter().all(|named| named.pool.turns()) {
            return Err("a loop of it hangs".to_owned());
        }
        if !self.pools.iter().all(|named| named.pool.wait_for_retired(RETIRED_WITHIN)) {
            return Err("listening sockets of it are still being emptied: try again".to_owned());
        }
        Ok(())
    }

    fn welcome(&self, place: &OwnedFd) -> Result<()> {
        let sockets: Vec<_> = self.pools.iter().map(|named| (named.name.clone(), named.pool.listening_sockets())).collect();
        let listened = |listeners: &Vec<(crate::net::Address, Vec<_>)>| {
            let all = listeners.iter().map(|(address, sockets)| (address.to_string(), sockets.len() as u32));
            all.map(|(address, sockets)| Listened { address, sockets }).collect()
        };
        let pools =
            sockets.iter().map(|(name, listeners)| Pooled { name: name.clone(), listeners: listened(listeners) }).collect();
        let descriptors: Vec<BorrowedFd<'_>> = sockets
            .iter()
            .flat_map(|(_, listeners)| listeners.iter().flat_map(|(_, sockets)| sockets.iter().map(|socket| socket.fd())))
            .chain([place.as_fd()])
            .collect();
        let (format, pid, version) = (FORMATS.1, std::process::id(), self.meeting.version.clone());
        let behind = self.meeting.before.count.load(SeqCst);
        self.talk.mouth.say(Said::Welcome(Welcome { format, pid, version, pools, behind }), &descriptors)
    }

    /// What the successor says once it is prepared. Others that come meanwhile are refused.
    fn prepared(&mut self, place: &OwnedFd, pid: u32, until: Instant) -> Result<Said> {
        let since = Instant::now();
        loop {
            let [said, came] = passing::wait_for_either(self.talk.socket(), place.as_fd(), until)?;
            if said {
                return Ok(self.talk.hear(Some(until))?.ok_or(Errno::PIPE)?.0);
            }
            if came && let Ok(mut other) = passing::packet_accept(place.as_fd()).and_then(Talk::new) {
                // It says first what it wants: a message that nobody reads would destroy the answer.
                let _ = other.answer(Some(GREETS_WITHIN));
                let reason = format!("pid {pid} is taking over since {} s: wait for it", since.elapsed().as_secs());
                let _ = other.say(Said::Refused(Refused { reason }));
            }
        }
    }

    /// The commit: no loop accepts here any more, and the successor does.
    fn go(&mut self) -> Result<()> {
        self.left = self.what_is_left();
        // From here on only the successor's death brings the listeners back: both would accept.
        self.talk.mouth.say_surely(&Said::Go(Go { pools: self.left.clone() }))?;
        match self.talk.answer(None)? {
            Said::Done(_) => Ok(()),
            _ => Err(Errno::BADMSG),
        }
    }

    fn what_is_left(&self) -> Vec<Held> {
        self.pools.iter().map(|named| named.pool.what_is_held(&named.name)).collect()
    }

    /// Offers all connections, again and again, until none is left and the successor stands.
    fn move_all(&mut self, prepared: &Prepared) -> Result<()> {
        let [mut pause, longest] = SWEEPS;
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                let moved = self.sweep(prepared)?;
                pause = if moved { SWEEPS[0] } else { (pause * 2).min(longest) };
                next = Instant::now() + pause;
            }
            self.tell_left()?;
            let none = self.left.iter().all(|left| left.connections == 0);
            if none && self.settled {
                // Nothing depends on it any more.
                let _ = self.talk.say(Said::Ended(Ended {}));
                return Ok(());
            }
            let until = Instant::now() + TELLS;
            match self.talk.hear((!none).then_some(until)) {
                Ok(Some((Said::Settled(_), _))) => self.settle(),
                Ok(Some(_)) | Err(Errno::AGAIN) => {}
                Ok(None) => return Err(Errno::PIPE),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Says how many connections are left, where that changed: their permits may be waited for. The counters come along.
    fn tell_left(&mut self) -> Result<()> {
        let left = self.what_is_left();
        let over = left.iter().all(|left| left.connections == 0);
        let is_news = |(now, before): &(&Held, &Held)| {
            over && now != before || now.connections != before.connections || now.listeners != before.listeners
        };
        for (now, _) in left.iter().zip(&self.left).filter(is_news) {
            self.talk.mouth.say_surely(&Said::Left(now.clone()))?;
        }
        self.left = left;
        Ok(())
    }

    /// The successor stands: it meets the next one, and nothing that listens is this process's.
    fn settle(&mut self) {
        self.settled = true;
        self.meeting.place.leave();
        self.pools.iter().for_each(|named| named.pool.forget_handed_over());
    }

    /// Offers what can move. Whether anything did.
    fn sweep(&mut self, prepared: &Prepared) -> Result<bool> {
        let mut moved = false;
        for named in self.pools {
            let reads = prepared.pools.iter().find(|reads| reads.name == named.name);
            let reads = state(reads.map(|reads| reads.state.clone()).unwrap_or_default());
            for inbox in named.pool.inboxes() {
                moved |= self.move_loop(&named.name, &inbox, &reads)?;
            }
        }
        Ok(moved)
    }

    /// Offers the connections of one loop, slice by slice. None is the successor's before this process has closed its copy.
    fn move_loop(&mut self, pool: &str, inbox: &Arc<Inbox>, reads: &State) -> Result<bool> {
        let (mut from, mut moved) = (Some(0), false);
        while let Some(at) = from {
            let (mouth, pool) = (self.talk.mouth.clone(), pool.to_owned());
            let send =
                move |records, descriptors: &[BorrowedFd<'_>]| mouth.say(Said::Offer(Offer { pool, records }), descriptors);
            let offered = match offer(inbox, reads.clone(), at, send) {
                // The successor reads nothing now, for it may be stopped. They go on here.
                Err(Errno::AGAIN) => return Ok(moved),
                offered => offered?,
            };
            from = offered.next;
            if offered.count == 0 {
                continue;
            }
            let restored = self.restored(inbox)?;
            let ids = let_go(inbox, restored);
            moved |= !ids.is_empty();
            self.talk.mouth.say_surely(&Said::Yours(Yours { ids }))?;
        }
        Ok(moved)
    }

    /// What the successor says of the last offer. Where it takes long, for it may be stopped, the connections go on here meanwhile, and none
    /// of them is the successor's.
    fn restored(&mut self, inbox: &Arc<Inbox>) -> Result<Vec<u64>> {
        let mut until = Some(Instant::now() + RESTORES_WITHIN);
        loop {
            match self.talk.hear(until) {
                Ok(Some((Said::Restored(restored), _))) => return Ok(restored.ids),
                Ok(Some((Said::Settled(_), _))) => self.settle(),
                Ok(Some(_)) => return Err(Errno::BADMSG),
                Ok(None) => return Err(Errno::PIPE),
                Err(Errno::AGAIN) => {
                    let_go(inbox, Vec::new());
                    until = None;
                }
                Err(errno) => return Err(errno),
            }
        }
    }
}
