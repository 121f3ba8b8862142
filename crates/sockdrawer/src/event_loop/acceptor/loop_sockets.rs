//! Listening sockets of a loop: which of them epoll watches, which have something, and from which the system denies accepting.

use super::{Retiring, STARVED};
use crate::event_loop::io::Io;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::observe::Event;
use crate::sys::{Errno, Interest};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// A listening socket that a loop accepts from.
pub(super) struct LoopSocket {
    pub(super) socket: Arc<ListenSocket>,
    pub(super) listener: Arc<ListenerState>,
    watched: bool,
    /// The retirement of the socket, which is given up as soon as its queue is empty.
    pub(super) retiring: Option<Arc<Retiring>>,
    /// The failure of its last accept4.
    refused: Option<DeniedAccept>,
    /// Moment until which the socket is left alone: the system denies accepting from it.
    denied: Option<Instant>,
}

/// An accept4 that failed. Where the next from that socket fails alike, and its queue is not shorter, the system denies accepting
/// (seccomp, a security module): the connection is reported for ever and cannot be had.
struct DeniedAccept {
    errno: Errno,
    /// Connections that were queued afterwards; the kernel does not count those of a Unix socket.
    queued: usize,
}

impl LoopSocket {
    pub(super) fn is_of(&self, listener: &Arc<ListenerState>) -> bool {
        Arc::ptr_eq(&self.listener, listener)
    }

    /// Returns true where connections may be accepted from it, as far as the socket itself is concerned.
    pub(super) fn is_good(&self) -> bool {
        !self.socket.is_gone() && self.denied.is_none()
    }

    /// Returns true where it is on its way out, and may be emptied.
    pub(super) fn may_be_emptied(&self) -> bool {
        self.retiring.is_some() && self.denied.is_none()
    }
}

/// The listening sockets of a loop.
#[derive(Default)]
pub(super) struct LoopSockets {
    /// A socket keeps its place, which its token names, as long as it is here.
    places: Vec<Option<LoopSocket>>,
    /// Sockets that had a connection in the queue when they were last looked at, and were not accepted from since.
    ready: Vec<usize>,
    /// There are sockets of which the last accept4 failed for the sake of a connection.
    pub(super) failing: bool,
    /// Moment at which the first of the sockets is tried again from which the system denies accepting.
    pub(super) denied_until: Option<Instant>,
}

impl LoopSockets {
    /// Adds a socket. Returns false where it is here already.
    pub(super) fn add(&mut self, socket: Arc<ListenSocket>, listener: Arc<ListenerState>) -> bool {
        if self.iter().any(|here| Arc::ptr_eq(&here.socket, &socket)) {
            return false;
        }
        let added = Some(LoopSocket { socket, listener, watched: false, retiring: None, refused: None, denied: None });
        match self.places.iter().position(Option::is_none) {
            Some(free) => self.places[free] = added,
            None => self.places.push(added),
        }
        true
    }

    /// Leaves a socket to another loop; its queue stays as it is.
    pub(super) fn release(&mut self, io: &Io, socket: &Arc<ListenSocket>) {
        for index in self.indices() {
            if self.get(index).is_some_and(|here| Arc::ptr_eq(&here.socket, socket)) {
                drop(self.give_up(io, index));
            }
        }
    }

    /// Takes a socket out: it is watched no more.
    pub(super) fn give_up(&mut self, io: &Io, index: usize) -> Option<LoopSocket> {
        self.unwatch(io, index);
        self.places[index].take()
    }

    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&LoopSocket> {
        self.places.get(index).and_then(Option::as_ref)
    }

    /// Returns a socket that is known to be here.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &LoopSocket {
        self.get(index).expect("the socket is here")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LoopSocket> {
        self.places.iter().flatten()
    }

    /// Returns the number of each place, with or without a socket.
    pub(super) fn indices(&self) -> std::ops::Range<usize> {
        0..self.places.len()
    }

    pub(super) fn are_retiring(&self) -> bool {
        self.iter().any(|here| here.retiring.is_some())
    }

    /// Marks a socket as one on its way out.
    pub(super) fn retire(&mut self, socket: &Arc<ListenSocket>, retiring: &Arc<Retiring>) {
        for here in self.places.iter_mut().flatten() {
            if Arc::ptr_eq(&here.socket, socket) {
                here.retiring = Some(retiring.clone());
            }
        }
    }

    /// Has epoll watch the sockets at which connections may come in.
    pub(super) fn watch(&mut self, io: &Io, is_open: impl Fn(&LoopSocket) -> bool) -> Result<(), Errno> {
        for (index, here) in self.places.iter_mut().enumerate() {
            let Some(here) = here.as_mut().filter(|here| !here.watched && here.is_good() && is_open(here)) else { continue };
            io.system.watch(io.epoll.as_fd(), here.socket.fd(), index as u64 + 1, Interest::READ)?;
            here.watched = true;
        }
        Ok(())
    }

    pub(super) fn unwatch_all(&mut self, io: &Io) {
        self.indices().for_each(|index| self.unwatch(io, index));
    }

    pub(super) fn unwatch_listener(&mut self, io: &Io, listener: &Arc<ListenerState>) {
        for index in self.indices() {
            if self.get(index).is_some_and(|here| here.is_of(listener)) {
                self.unwatch(io, index);
            }
        }
    }

    fn unwatch(&mut self, io: &Io, index: usize) {
        if let Some(Some(here)) = self.places.get_mut(index)
            && std::mem::take(&mut here.watched)
        {
            // This fails only for a socket that is not watched.
            let _ = io.system.unwatch(io.epoll.as_fd(), here.socket.fd());
        }
    }

    /// Notes an accept4 that failed for the sake of a connection. Returns true where it failed with the errno of the last time, and no connection
    /// left the queue since: the system denies accepting.
    pub(super) fn failed(&mut self, io: &Io, index: usize, errno: Errno) -> bool {
        let Some(Some(here)) = self.places.get_mut(index) else { return false };
        let queued = io.system.queued(here.socket.fd()).unwrap_or(0);
        self.failing = true;
        let last = here.refused.replace(DeniedAccept { errno, queued });
        last.is_some_and(|last| last.queued <= queued && last.errno == errno)
    }

    /// Leaves a socket alone for a while from which the system denies accepting. That is of this socket, not of the process: the others go on.
    pub(super) fn deny(&mut self, io: &Io, index: usize) {
        self.unwatch(io, index);
        let until = Instant::now() + STARVED;
        if let Some(Some(here)) = self.places.get_mut(index) {
            here.denied = Some(until);
        }
        self.denied_until.get_or_insert(until);
    }

    /// Returns true where sockets that were left alone for long enough may be tried again.
    pub(super) fn denial_ends(&mut self) -> bool {
        // Each event comes by here: the clock is read where a socket was denied alone.
        let Some(until) = self.denied_until else { return false };
        let now = Instant::now();
        if until > now {
            return false;
        }
        for here in self.places.iter_mut().flatten() {
            here.denied.take_if(|until| *until <= now);
        }
        self.denied_until = self.places.iter().flatten().filter_map(|here| here.denied).min();
        true
    }

    /// Forgets the failures of a socket from which a connection was accepted.
    pub(super) fn accepted_again(&mut self, index: usize) {
        if let Some(Some(here)) = self.places.get_mut(index) {
            (here.refused, here.denied) = (None, None);
        }
        self.failing = self.places.iter().flatten().any(|here| here.refused.is_some());
    }

    /// Returns true where a socket is not here, or listens no more: it is left alone then.
    pub(super) fn has_gone(&mut self, io: &Io, index: usize) -> bool {
        let Some(here) = self.get(index) else { return true };
        if io.system.is_listening(here.socket.fd()).unwrap_or(false) {
            return false;
        }
        if here.socket.mark_gone() {
            io.shared.tell(&Event::ListenerGone(here.listener.address.clone()));
        }
        self.unwatch(io, index);
        true
    }

    /// Returns one of the sockets that has something, each in turn. They are looked at together, and only when all that had something then have
    /// been accepted from; a single one is not looked at, accepting tells as much.
    pub(super) fn next_ready(&mut self, io: &Io, is_open: impl Fn(&LoopSocket) -> bool) -> Result<Option<usize>, Errno> {
        let is_live = |places: &[Option<LoopSocket>], index: usize| {
            places.get(index).and_then(Option::as_ref).is_some_and(|here| here.is_good() && is_open(here))
        };
        while let Some(index) = self.ready.pop() {
            if is_live(&self.places, index) {
                return Ok(Some(index));
            }
        }
        let mut live = self.indices().filter(|index| is_live(&self.places, *index));
        if let (Some(only), None) = (live.next(), live.next()) {
            return Ok(Some(only));
        }
        let indices: Vec<usize> = self.indices().filter(|index| is_live(&self.places, *index)).collect();
        let sockets: Vec<BorrowedFd<'_>> = indices.iter().map(|index| self.at(*index).socket.fd()).collect();
        let mut ready = Vec::new();
        io.system.readable(&sockets, &mut ready)?;
        self.ready.extend(indices.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(index, _)| index));
        Ok(self.ready.pop())
    }

    /// Returns true where no connection waits at a socket, as far as can be told now.
    pub(super) fn has_nothing(&self, io: &Io, index: usize) -> bool {
        let Some(here) = self.get(index) else { return true };
        let mut ready = Vec::with_capacity(1);
        let looked = io.system.readable(&[here.socket.fd()], &mut ready);
        here.socket.is_gone() || (looked.is_ok() && !ready[0])
    }
}
