//! What a predecessor does: it lets a successor have its listeners, and then its connections.

use super::talk::Talk;
use super::{Named, WITHIN};
use crate::event_loop::inbox::Inbox;
use crate::ipc::messages::{
    Ended, FORMATS, Go, Held, Hello, Left, Listened, Offer, Pooled, Prepared, Refused, Said, Welcome, Yours, state,
};
use crate::pool::Core;
use crate::pool::loops::Loops;
use crate::pool::loops::moving::{let_go, offer};
use crate::protocol::State;
use crate::sys::{Errno, Result, passing};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A successor that takes longer than this to restore what it was offered does not get it.
const RESTORES_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks for connections that have become movable.
const SWEEP: Duration = Duration::from_millis(100);

/// Meets one successor after the other, until one has taken over.
pub(super) fn serve(place: &OwnedFd, version: &str, known: &[(String, Weak<Core<Loops>>)]) {
    while let Ok(socket) = passing::packet_accept(place.as_fd()) {
        let Ok(talk) = Talk::new(socket, WITHIN) else { continue };
        // Pools that have ended have nothing to be taken over.
        let named = |(name, pool): &(String, Weak<Core<Loops>>)| Some(Named { name: name.clone(), pool: pool.upgrade()? });
        let pools: Vec<Named> = known.iter().filter_map(named).collect();
        if (Conversation { talk, pools: &pools, version }).hold(place) {
            return;
        }
    }
}

/// With one successor.
struct Conversation<'a> {
    talk: Talk,
    pools: &'a [Named],
    version: &'a str,
}

impl Conversation<'_> {
    /// Whether the successor has taken over all that there was. If not, this process goes on as it was.
    fn hold(mut self, place: &OwnedFd) -> bool {
        let Ok(Some(prepared)) = self.meet(place) else { return false };
        self.pools.iter().for_each(|named| named.pool.accept(false));
        let moved = self.go().and_then(|()| self.move_all(&prepared));
        match moved {
            Ok(()) => self.pools.iter().for_each(|named| named.pool.end_handed_over()),
            Err(_) => {
                for Named { pool, .. } in self.pools {
                    pool.thaw();
                    pool.accept(true);
                }
            }
        }
        moved.is_ok()
    }

    /// Up to where the successor has all that can fail. None: it was refused.
    fn meet(&mut self, place: &OwnedFd) -> Result<Option<Prepared>> {
        let (_, trusted) = self.talk.peer()?;
        let Said::Hello(hello) = self.talk.answer()? else { return Err(Errno::BADMSG) };
        if let Err(reason) = self.may_replace(&hello, trusted) {
            self.talk.say(Said::Refused(Refused { reason }))?;
            return Ok(None);
        }
        self.welcome(place)?;
        let Said::Prepared(prepared) = self.talk.answer()? else { return Err(Errno::BADMSG) };
        let missing = self.pools.iter().find(|named| !prepared.pools.iter().any(|reads| reads.name == named.name));
        if let Some(missing) = missing {
            let reason = format!("it has no pool {}, which has connections here", missing.name);
            self.talk.say(Said::Refused(Refused { reason }))?;
            return Ok(None);
        }
        Ok(Some(prepared))
    }

    fn may_replace(&self, hello: &Hello, trusted: bool) -> std::result::Result<(), String> {
        if !trusted {
            return Err("another user may not replace it".to_owned());
        }
        if !self.pools.iter().all(|named| named.pool.turns()) {
            return Err("a loop of it hangs".to_owned());
        }
        if hello.lowest_format > FORMATS.1 || hello.highest_format < FORMATS.0 {
            let (low, high) = FORMATS;
            return Err(format!(
                "it speaks formats {low} to {high}, the new one {} to {}",
                hello.lowest_format, hello.highest_format
            ));
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
        let (format, pid, version) = (FORMATS.1, std::process::id(), self.version.to_owned());
        self.talk.mouth.say(Said::Welcome(Welcome { format, pid, version, pools }), &descriptors)
    }

    /// The commit: no loop accepts here any more, and the successor does.
    fn go(&mut self) -> Result<()> {
        let held = |named: &Named| Held {
            name: named.name.clone(),
            connections: named.pool.held() as u64,
            next_id: named.pool.next_id(),
        };
        // From here on only the successor's death brings the listeners back: both would accept.
        self.talk.be_patient(None)?;
        self.talk.say_surely(&Said::Go(Go { pools: self.pools.iter().map(held).collect() }))?;
        match self.talk.answer()? {
            Said::Done(_) => Ok(()),
            _ => Err(Errno::BADMSG),
        }
    }

    /// Offers all connections, again and again, until none is left.
    fn move_all(&mut self, prepared: &Prepared) -> Result<()> {
        loop {
            let mut left = 0;
            for named in self.pools {
                let reads = prepared.pools.iter().find(|reads| reads.name == named.name);
                let reads = state(reads.map(|reads| reads.state.clone()).unwrap_or_default());
                for inbox in named.pool.inboxes() {
                    self.move_loop(&named.name, &inbox, &reads)?;
                }
                let connections = named.pool.held() as u64;
                left += connections;
                self.talk.say_surely(&Said::Left(Left { pool: named.name.clone(), connections }))?;
            }
            if left == 0 {
                // Nothing depends on it any more.
                let _ = self.talk.say(Said::Ended(Ended {}));
                return Ok(());
            }
            if let Some(named) = self.pools.iter().find(|named| named.pool.held() > 0) {
                named.pool.wait_for_none(SWEEP);
            }
        }
    }

    /// Offers the connections of one loop, slice by slice. None is the successor's before this process has closed its copy.
    fn move_loop(&mut self, pool: &str, inbox: &Arc<Inbox>, reads: &State) -> Result<()> {
        let mut from = Some(0);
        while let Some(at) = from {
            let (mouth, pool) = (self.talk.mouth.clone(), pool.to_owned());
            let send =
                move |records, descriptors: &[BorrowedFd<'_>]| mouth.say(Said::Offer(Offer { pool, records }), descriptors);
            let offered = offer(inbox, reads.clone(), at, send)?;
            from = offered.next;
            if offered.count == 0 {
                continue;
            }
            let restored = self.restored(inbox)?;
            let ids = let_go(inbox, restored);
            self.talk.say_surely(&Said::Yours(Yours { ids }))?;
        }
        Ok(())
    }

    /// What the successor says of the last offer. Where it takes long, for it may be stopped, the connections go on here meanwhile, and none
    /// of them is the successor's.
    fn restored(&mut self, inbox: &Arc<Inbox>) -> Result<Vec<u64>> {
        self.talk.be_patient(Some(RESTORES_WITHIN))?;
        let answer = match self.talk.answer() {
            Err(Errno::AGAIN) => {
                let_go(inbox, Vec::new());
                self.talk.be_patient(None)?;
                self.talk.answer()
            }
            answer => answer,
        };
        match answer? {
            Said::Restored(restored) => Ok(restored.ids),
            _ => Err(Errno::BADMSG),
        }
    }
}
