//! What a successor does: it meets its predecessor, takes its listeners over, and then its connections.

use super::talk::Talk;
use super::{Named, WITHIN};
use crate::event_loop::inbox::Inbox;
use crate::ipc::messages::{Done, FORMATS, Go, Hello, Offer, Prepared, Reads, Restored, Said, Welcome, Yours, levels};
use crate::net::Address;
use crate::pool::Inherited;
use crate::pool::loops::moving::{restore, seat};
use crate::sys::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Listening sockets by the names of their pools, and their addresses.
type Sockets = Vec<(String, Address, Vec<OwnedFd>)>;

/// The process that is replaced.
pub(super) struct Predecessor {
    talk: Talk,
    sockets: Sockets,
}

impl std::fmt::Debug for Predecessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Predecessor")
    }
}

/// The connections of a predecessor, on their way.
pub(super) struct Arrivals {
    talk: Talk,
    pools: Vec<Arriving>,
}

/// A pool whose connections come.
struct Arriving {
    named: Named,
    /// Permits that are held for connections that are the predecessor's still.
    held: u64,
    /// The loops that get them, in turn.
    turn: usize,
}

/// What was restored last and is not this process's yet: the pool's place, the loop, and the ids.
type Pending = Option<(usize, Arc<Inbox>, Vec<u64>)>;

impl Predecessor {
    /// Returns the predecessor and the socket of the meeting place.
    pub(super) fn meet(socket: OwnedFd, version: &str, replaces: Option<&str>) -> Result<(Predecessor, OwnedFd), String> {
        let mut talk = Talk::new(socket, WITHIN).map_err(line)?;
        let (pid, trusted) = talk.peer().map_err(line)?;
        if !trusted {
            return Err(format!("pid {pid} there is of another user"));
        }
        if !replaces.is_some_and(|whom| whom == "any" || whom == pid.to_string()) {
            return Err(format!("pid {pid} serves here; start it with {}={pid} to replace it", super::REPLACES));
        }
        let (lowest_format, highest_format) = FORMATS;
        let hello = Hello { lowest_format, highest_format, version: version.to_owned(), replaces: pid };
        talk.say(Said::Hello(hello)).map_err(line)?;
        let (said, descriptors) = talk.hear().map_err(line)?.ok_or("it is gone")?;
        let welcome = match said {
            Said::Welcome(welcome) => welcome,
            Said::Refused(refused) => return Err(refused.reason),
            _ => return Err("what it says is not understood".to_owned()),
        };
        let descriptors = descriptors.ok_or("this process has no descriptors left: raise `ulimit -n`")?;
        let (sockets, place) = sorted(welcome, descriptors)?;
        Ok((Predecessor { talk, sockets }, place))
    }

    /// The listening sockets of a pool.
    pub(super) fn take_sockets(&mut self, name: &str) -> Inherited {
        let (of, others) = std::mem::take(&mut self.sockets).into_iter().partition(|(pool, ..)| pool == name);
        self.sockets = others;
        let of: Sockets = of;
        of.into_iter().map(|(_, address, sockets)| (address, sockets)).collect()
    }

    /// The commit. When it returns, this process accepts and the other does not; an error means that the other goes on.
    pub(super) fn take_over(mut self, pools: &[Named]) -> Result<Arrivals, String> {
        let reads = pools.iter().map(|Named { name, pool }| Reads { name: name.clone(), state: levels(&pool.state()) });
        let said = self.talk.say(Said::Prepared(Prepared { pools: reads.collect() })).and_then(|()| self.talk.answer());
        let go = match said {
            Ok(Said::Go(go)) => go,
            Ok(Said::Refused(refused)) => return Err(refused.reason),
            Ok(_) => return Err("what it says is not understood".to_owned()),
            // It has died: its listeners are this process's, and it has no connections.
            Err(Errno::PIPE | Errno::CONNRESET) => Go::default(),
            Err(errno) => return Err(line(errno)),
        };
        let arriving = pools.iter().map(|named| {
            let held = go.pools.iter().find(|held| held.name == named.name);
            let (connections, next_id) = held.map_or((0, 0), |held| (held.connections, held.next_id));
            named.pool.count_predecessor(connections, next_id);
            Arriving { named: named.clone(), held: connections, turn: 0 }
        });
        let pools: Vec<Arriving> = arriving.collect();
        pools.iter().for_each(|arriving| arriving.named.pool.accept(true));
        // One that is dead by now is found so by the first look at its connections.
        let _ = self.talk.say(Said::Done(Done {}));
        let _ = self.talk.be_patient(None);
        Ok(Arrivals { talk: self.talk, pools })
    }
}

/// The sockets of a welcome by pool and address, and that of the meeting place, which is the last.
fn sorted(welcome: Welcome, mut descriptors: Vec<OwnedFd>) -> Result<(Sockets, OwnedFd), String> {
    let place = descriptors.pop().ok_or("it passed no socket")?;
    let (mut sockets, mut left) = (Vec::new(), descriptors.into_iter());
    for pool in welcome.pools {
        for listener in pool.listeners {
            let address = listener.address.parse().map_err(|_| format!("{} is no address", listener.address))?;
            let of: Vec<OwnedFd> = left.by_ref().take(listener.sockets as usize).collect();
            if of.len() != listener.sockets as usize {
                return Err("it passed too few sockets".to_owned());
            }
            sockets.push((pool.name.clone(), address, of));
        }
    }
    Ok((sockets, place))
}

impl Arrivals {
    /// Takes connections until the predecessor has none, or is dead: then those are this process's that it was offered last.
    pub(super) fn receive(mut self) {
        let mut pending: Pending = None;
        while let Ok(Some((said, descriptors))) = self.talk.hear() {
            match said {
                Said::Offer(offer) => {
                    let restored = self.offered(offer, descriptors, &mut pending);
                    if self.talk.say(Said::Restored(restored)).is_err() {
                        break;
                    }
                }
                Said::Yours(Yours { ids }) => self.seat(&mut pending, Some(ids)),
                Said::Left(left) => {
                    if let Some(arriving) = self.pools.iter_mut().find(|arriving| arriving.named.name == left.pool) {
                        arriving.keep_held(left.connections);
                    }
                }
                Said::Ended(_) => break,
                _ => {}
            }
        }
        self.seat(&mut pending, None);
        self.pools.iter_mut().for_each(|arriving| arriving.keep_held(0));
    }

    fn offered(&mut self, offer: Offer, descriptors: Option<Vec<OwnedFd>>, pending: &mut Pending) -> Restored {
        let refused = |why: &str| Restored { ids: Vec::new(), reasons: vec![why.to_owned()] };
        let Some(descriptors) = descriptors else { return refused("the new process has no descriptors left") };
        let Some(at) = self.pools.iter().position(|arriving| arriving.named.name == offer.pool) else {
            return refused("the new process has no such pool");
        };
        let Some(inbox) = self.pools[at].next_loop() else { return refused("the new process has no loop") };
        let Some(restored) = restore(&inbox, offer.records, descriptors) else {
            return refused("a loop of the new process hangs");
        };
        *pending = Some((at, inbox, restored.ids.clone()));
        restored
    }

    /// Those of what was restored are this process's; None: all are, for the predecessor is dead.
    fn seat(&mut self, pending: &mut Pending, ids: Option<Vec<u64>>) {
        let Some((at, inbox, restored)) = pending.take() else { return };
        let arriving = &mut self.pools[at];
        let seated = seat(&inbox, ids.unwrap_or(restored), arriving.named.pool.listener_states()) as u64;
        arriving.held = arriving.held.saturating_sub(seated);
    }
}

impl Arriving {
    fn next_loop(&mut self) -> Option<Arc<Inbox>> {
        let inboxes = self.named.pool.inboxes();
        self.turn += 1;
        inboxes.get(self.turn % inboxes.len().max(1)).cloned()
    }

    /// The predecessor has so many left: the others' permits are free.
    fn keep_held(&mut self, left: u64) {
        self.named.pool.release_predecessor(self.held.saturating_sub(left));
        self.held = self.held.min(left);
    }
}

fn line(errno: Errno) -> String {
    match errno {
        Errno::PIPE | Errno::CONNRESET => "it is gone".to_owned(),
        Errno::AGAIN => "it does not answer".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    }
}
