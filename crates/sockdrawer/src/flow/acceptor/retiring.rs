//! The end of a listening socket: what waits in its queue is accepted first.

use super::{Acceptor, State};
use crate::config::OnFull;
use crate::flow::listener::Shard;
use crate::flow::{Flow, Shared};
use crate::net::Address;
use crate::observe::Event as Told;
use crate::sync::{lock, mpsc};
use std::sync::Arc;

/// The end of an address, shared by the loops that hold its shards. When the last gives up its own, the address is gone: this is
/// told, and who asked sees its channel closed.
pub(crate) struct Retiring {
    address: Address,
    shared: Arc<Shared>,
    _done: mpsc::Sender<()>,
}

impl Retiring {
    pub(crate) fn new(address: Address, shared: Arc<Shared>, done: mpsc::Sender<()>) -> Arc<Retiring> {
        Arc::new(Retiring { address, shared, _done: done })
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        self.shared.tell(&Told::ListenerRemoved(self.address.clone()));
    }
}

impl Acceptor {
    pub(super) fn is_retiring(&self) -> bool {
        self.held.iter().flatten().any(|held| held.retiring.is_some())
    }
}

impl Flow {
    /// Gives up a shard for good, after accepting what waits in its queue. `retiring` is dropped then.
    pub(crate) fn retire_shard(&mut self, shard: &Arc<Shard>, retiring: &Arc<Retiring>) {
        for held in self.acceptor.held.iter_mut().flatten() {
            if Arc::ptr_eq(&held.shard, shard) {
                held.retiring = Some(retiring.clone());
            }
        }
        self.retire_empty_shards();
    }

    /// Accepts what waits at retiring shards and gives up those that are empty. Without permits they stay until there are some.
    pub(super) fn retire_empty_shards(&mut self) {
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
                let on_full = lock(&self.shared.on_full).clone();
                let permit = self.acceptor.waiter.claim().or_else(|| self.shared.gate.take());
                if permit.is_none() && on_full == OnFull::Backpressure {
                    // Also while suspended: what waits here has been let in.
                    self.shared.gate.wait(&self.acceptor.waiter);
                    break;
                }
                self.accept(index, permit);
                if matches!(self.acceptor.state, State::Starved(_)) {
                    break;
                }
            }
        }
        if self.acceptor.state == State::Full || self.acceptor.is_retiring() {
            // A permit given for the other shards may have been used up here.
            self.shared.gate.wait(&self.acceptor.waiter);
        } else {
            self.wait_no_more();
        }
    }

    /// Whether nobody waits at a shard, as far as can be told now.
    fn has_nothing(&self, index: usize) -> bool {
        let Some(held) = &self.acceptor.held[index] else { return true };
        let mut ready = Vec::with_capacity(1);
        let asked = self.system.readable(&[held.shard.socket()], &mut ready);
        held.shard.is_gone() || (asked.is_ok() && !ready[0])
    }
}
