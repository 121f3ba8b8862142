//! The end of a listening socket: what waits in its queue is accepted first.

use super::{ACCEPTS_PER_TURN, Accepted, Acceptor, State};
use crate::admission::Capacity;
use crate::config::Reject;
use crate::event_loop::listener::Shard;
use crate::event_loop::{EventLoop, Shared};
use crate::net::Address;
use crate::observe::Event as Told;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::mpsc;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The end of an address, shared by the loops that hold its shards. When the last gives up its own, who asked sees its channel
/// closed, and this is told where it is the end of the address too.
pub(crate) struct Retiring {
    address: Option<Address>,
    shared: Arc<Shared>,
    _done: mpsc::Sender<()>,
}

impl Retiring {
    pub(crate) fn new(address: Option<Address>, shared: Arc<Shared>, done: mpsc::Sender<()>) -> Arc<Retiring> {
        shared.leaving.fetch_add(1, SeqCst);
        Arc::new(Retiring { address, shared, _done: done })
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        if let Some(address) = self.address.take() {
            self.shared.tell(&Told::ListenerRemoved(address));
        }
        self.shared.leaving.fetch_sub(1, SeqCst);
        self.shared.bell.ring();
    }
}

/// Connections that are turned away one by one at a socket whose time is over; more, from clients that are faster, are counted and
/// reset with the socket.
const TURNED_AWAY: usize = 8192;

impl Acceptor {
    pub(super) fn is_retiring(&self) -> bool {
        self.held.iter().flatten().any(|held| held.retiring.is_some())
    }
}

impl EventLoop {
    /// Gives up a shard for good, after accepting what waits in its queue. `retiring` is dropped then.
    pub(crate) fn retire_shard(&mut self, shard: &Arc<Shard>, retiring: &Arc<Retiring>) {
        for held in self.acceptor.held.iter_mut().flatten() {
            if Arc::ptr_eq(&held.shard, shard) {
                held.retiring = Some(retiring.clone());
            }
        }
        self.retire_empty_shards();
    }

    /// Accepts what waits at retiring shards and gives up those that are empty. Without permits they stay until there are some; where
    /// more comes than a turn may accept, connections have their turn first.
    pub(super) fn retire_empty_shards(&mut self) {
        let (mut lacking, mut left) = (false, ACCEPTS_PER_TURN);
        self.acceptor.retires_more = false;
        for index in 0..self.acceptor.held.len() {
            while self.acceptor.held[index].as_ref().is_some_and(|held| held.retiring.is_some()) {
                if !self.acceptor.unplaced.is_empty() {
                    return;
                }
                // An empty one needs no permit to go, which at the limit others would have taken again and again.
                // The mistake of a broken build: who waits there is reset.
                if self.has_nothing(index) || cfg!(sockdrawer_broken = "close-without-drain") {
                    self.unwatch_shard(index);
                    self.acceptor.held[index] = None;
                    break;
                }
                if left == 0 {
                    self.acceptor.retires_more = true;
                    break;
                }
                left -= 1;
                if let Some(reject) = self.refuses_at(index) {
                    self.turn_away(index, &reject);
                    if matches!(self.acceptor.state, State::Starved(_)) {
                        break;
                    }
                    continue;
                }
                match self.take_room(index) {
                    Ok(()) => _ = self.accept(index),
                    Err(room) => match self.rejects_without_room(index, room) {
                        Some(reject) => _ = self.turn_away(index, &reject),
                        // Also while suspended: what waits here has been let in.
                        None if room == Capacity::ListenerFull => {
                            let door = self.door_of(index);
                            self.wait_at(&door);
                            break;
                        }
                        None => {
                            lacking = true;
                            break;
                        }
                    },
                }
                if matches!(self.acceptor.state, State::Starved(_)) {
                    break;
                }
            }
        }
        if self.acceptor.state == State::Full || lacking {
            self.acceptor.waiter.wait();
        } else {
            self.acceptor.waiter.leave();
        }
    }

    /// Resets what waits at retiring sockets, and what was accepted and had nothing to run it with, and gives the sockets up; how many
    /// connections that were.
    pub(in crate::event_loop) fn turn_away_retiring(&mut self, how: &Reject) -> usize {
        let unplaced = self.take_unplaced();
        let mut waited = unplaced.len();
        for incoming in unplaced {
            self.counters.closed().add(1);
            // It fails only where the connection is gone already.
            let _ = self.system.reset_on_close(incoming.socket.as_fd());
        }
        for index in 0..self.acceptor.held.len() {
            if self.acceptor.held[index].as_ref().is_none_or(|held| held.retiring.is_none()) {
                continue;
            }
            let turned_away =
                (0..TURNED_AWAY).take_while(|_| !self.has_nothing(index) && matches!(self.turn_away(index, how), Accepted::Yes));
            waited += turned_away.count();
            self.unwatch_shard(index);
            let held = self.acceptor.held[index].take();
            waited += held.map_or(0, |held| self.system.queued(held.shard.socket()).unwrap_or(0));
        }
        // Nothing is left to be accepted.
        self.acceptor.state = State::Open;
        self.acceptor.waiter.leave();
        waited
    }
}
