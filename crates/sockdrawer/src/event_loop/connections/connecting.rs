//! Connections that are being made: a slot each while the handshake runs, and what becomes of it.

use super::Connections;
use super::idle::IdleWatch;
use crate::behaviour::Callback;
use crate::clock::deadline;
use crate::event_loop::inbox::Asker;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::AskedConnect;
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::protocol::{Closed, Connect, ConnectFailure, Handle, Peer, Side};
use crate::sys::{Errno, Interest, Ready};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Results of connects since the connector looked last.
#[derive(Clone, Copy, Default)]
pub(in crate::event_loop) struct Connects {
    /// Number of connects that failed, since the last that did not.
    pub(in crate::event_loop) failed: u32,
    pub(in crate::event_loop) established: bool,
    /// The connection that was opened last has a handshake before it.
    pub(super) shaking: bool,
}

impl Connects {
    pub(super) fn established(&mut self) {
        *self = Connects { failed: 0, established: true, shaking: false };
    }

    /// Counts the handshake that is under way as not over yet: what was before `established` is so still.
    fn wait_for_handshake(&mut self, before: Connects) {
        if std::mem::take(&mut self.shaking) {
            *self = Connects { failed: before.failed + self.failed, ..before };
        }
    }

    pub(in crate::event_loop) fn take(&mut self) -> Connects {
        std::mem::take(self)
    }
}

impl Connections {
    /// Takes a slot for a socket whose connect has begun: at this time, and so much later than it was due.
    pub(in crate::event_loop) fn begin_connecting(
        &mut self,
        socket: OwnedFd,
        permit: Permit,
        target: &Address,
        (began, lag): (Instant, Duration),
        timeout: Duration,
        is_asked: bool,
    ) -> Result<u32, Errno> {
        let slot = self.slots.take(socket, permit);
        let id = self.next_id();
        // Targets of a pool are few; those that protocols name may be any.
        let target = if is_asked { 0 } else { self.slots.number_target(target) };
        let since = began - self.io.start;
        let record = self.slots.at(slot);
        (record.id, record.state) = (id, target);
        (record.bytes_in, record.bytes_out) = (nanoseconds(since), nanoseconds(lag));
        record.flags.set(Flags::CONNECTED);
        record.flags.enter(Phase::Connecting);
        self.timers.set(&mut self.slots, slot, deadline(began, timeout), began);
        let token = self.slots.token(slot);
        // The handshake is over, either way, when the socket can be written.
        let watched = self.io.watch(token, self.slots.at(slot), Interest::WRITE);
        watched.map(|_| slot).inspect_err(|_| self.leave(slot, false))
    }

    /// Begins the connects that protocols asked for since this was called last. None begins in a callback: no slot is taken while something
    /// happens to a connection.
    pub(in crate::event_loop) fn begin_asked(&mut self) {
        let mut asked = std::mem::take(&mut self.asked);
        for (token, connect) in asked.drain(..) {
            if self.slots.with_protocol(token).is_some() {
                self.connect_for(Asker::Connection(token), connect);
            }
        }
        self.asked = asked;
    }

    /// Begins a connect that was asked for: what comes of it is told to its asker, and made here.
    pub(crate) fn connect_for(&mut self, by: Asker, Connect { target, within, first }: Connect) {
        if self.abandoned {
            return;
        }
        let began = Instant::now();
        self.io.counters.connects().add(1);
        let begun = self
            .io
            .open_connecting(&target)
            .and_then(|(socket, permit)| self.begin_connecting(socket, permit, &target, (began, Duration::ZERO), within, true));
        match begun {
            Ok(slot) => {
                let asked = AskedConnect { by, target, first, began, shaking: false };
                self.slots.make_extra(slot).asked = Some(Box::new(asked));
            }
            Err(errno) => {
                self.io.counters.connect_failed().add(1);
                let (target, errno, after) = (target.internet(), errno.raw_os_error(), began.elapsed());
                by.tell_later(&self.io.inbox, Err(ConnectFailure { target, errno, after, lag: Duration::ZERO }));
            }
        }
    }

    /// Tells what came of a connect to what has asked for it.
    pub(in crate::event_loop) fn tell_asker(&mut self, asker: Asker, result: Result<Handle, ConnectFailure>) {
        let Asker::Connection(token) = asker else { return asker.tell_later(&self.io.inbox, result) };
        let made = result.as_ref().ok().map(|handle| handle.token);
        if let Some(slot) = self.slots.with_protocol(token) {
            if let Some(extra) = self.slots.extra_of(slot) {
                extra.connects -= 1;
            }
            self.callback(slot, Callback::Connected(&mut Some(result)));
        }
        // Made for a connection that is gone, it would stay alone.
        if self.slots.with_protocol(token).is_none()
            && let Some(slot) = made.and_then(|made| self.slots.with_protocol(made))
        {
            self.end(slot, Closed::Aborted, true);
        }
    }

    /// Gives up connects that a connection asked for whose protocol is gone: there is nothing to tell what comes of them.
    #[cold]
    pub(super) fn give_connects_up(&mut self, asker: u32) {
        let token = self.slots.token(asker);
        for made in self.slots.having(|extra| extra.asker() == Some(token)) {
            let Some(slot) = self.slots.find(made) else { continue };
            if self.slots.at(slot).flags.is(Phase::Connecting) {
                self.io.counters.connect_failed().add(1);
                self.leave(slot, true);
            } else if self.slots.extra(slot).and_then(|extra| extra.asked.as_ref()).is_some_and(|asked| asked.shaking) {
                self.end(slot, Closed::Aborted, true);
            }
        }
    }

    /// Handles the end of a handshake. Returns a connection that is to run elsewhere.
    pub(super) fn connect_event(&mut self, slot: u32, ready: Ready) -> Option<Incoming> {
        if !self.may_end(ready) {
            return None;
        }
        let socket = self.slots.socket(slot);
        let ended = self.io.system.take_error(socket).and_then(|()| self.io.system.local_address(socket));
        let remote = self.slots.target(slot);
        match ended {
            // A connect to a port of this machine where no socket listens can meet itself: the kernel chose that very port.
            Ok(local) if local.is_some() && local == remote => {
                // Without a reset it would keep the port for a minute, and the server could not bind it.
                let _ = self.io.system.reset_on_close(self.slots.socket(slot));
                self.connect_failed(slot, Errno::CONNREFUSED);
            }
            Ok(_) => return self.connected(slot, remote),
            Err(errno) => self.connect_failed(slot, errno),
        }
        None
    }

    fn connected(&mut self, slot: u32, remote: Option<SocketAddr>) -> Option<Incoming> {
        self.io.counters.connected().add(1);
        self.timers.clear(&mut self.slots, slot);
        let (lag, took) = self.slots.at(slot).connect_times(self.io.start);
        let asker = self.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut()).map(|asked| asked.take_asker());
        let before = self.connects;
        match asker {
            None => self.connects.established(),
            Some(_) => self.connects.shaking = false,
        }
        if asker.is_none() && self.io.shared.placement.is_some() {
            // The old epoll must not go on watching what runs elsewhere.
            self.io.unwatch(self.slots.at(slot));
            let (socket, permit) = self.slots.give_up(slot);
            let socket = socket.expect("a connecting slot has its socket");
            return Some(Incoming { socket, permit, remote, side: Side::Connected, arrival: None, lag, connect_time: took });
        }
        let record = self.slots.at(slot);
        (record.bytes_in, record.bytes_out) = (0, 0);
        record.flags.enter(Phase::Open);
        let record_id = record.id;
        self.set_active_options(slot);
        let (id, token) = (record_id, self.slots.token(slot));
        if let Some(asked) = self.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut()) {
            self.scratch.bytes.append(&mut asked.first);
        }
        self.open_protocol(slot, &Peer::new(remote, Side::Connected).with_lag(lag).with_connect_time(took));
        let shaking = self.connects.shaking;
        if let Some(slot) = self.slots.with_protocol(token) {
            // It is watched since the connect began.
            IdleWatch::of(self).begin(slot);
        }
        let Some(asker) = asker else {
            self.connects.wait_for_handshake(before);
            return None;
        };
        // A pool that connects does not wait for what became of it.
        self.connects = before;
        match self.slots.with_protocol(token) {
            Some(slot) if shaking => {
                if let Some(asked) = self.slots.make_extra(slot).asked.as_mut() {
                    (asked.by, asked.shaking) = (asker, true);
                }
            }
            None if shaking => self.tell_asker(asker, Err(not_shaken(remote, took))),
            Some(slot) => {
                let handle = self.slots.at(slot).handle(slot, &self.post);
                self.tell_asker(asker, Ok(handle));
            }
            None => self.tell_asker(asker, Ok(Handle { post: self.post.clone(), token, id })),
        }
        None
    }

    /// Handles the end of a handshake of layers, or of the connection before that. The asker is told after this callback.
    pub(super) fn shook(&mut self, slot: u32, hands: bool) {
        let asked = self.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut());
        match asked {
            None if hands => self.connects.established(),
            None => (self.connects.failed, self.connects.shaking) = (self.connects.failed + 1, true),
            // It is being opened, or its asker was told.
            Some(asked) if !asked.shaking => self.connects.shaking |= !hands,
            Some(asked) => {
                asked.shaking = false;
                let (by, failure) = (asked.take_asker(), not_shaken(asked.target.internet(), asked.began.elapsed()));
                let result = if hands { Ok(self.slots.at(slot).handle(slot, &self.post)) } else { Err(failure) };
                by.tell_later(&self.io.inbox, result);
            }
        }
    }

    /// Gives a connection made here the options that an accepted one has from its listener.
    pub(super) fn set_active_options(&mut self, slot: u32) {
        if self.generations.refresh(&self.io, &mut self.read).is_ok() {
            let options = self.generations.active_settings().options;
            // It fails where the connection is gone, which using it will tell.
            let _ = self.io.system.set_first_options(self.slots.socket(slot), &options);
        }
    }

    /// Handles a connect that failed: there will be no connection.
    pub(super) fn connect_failed(&mut self, slot: u32, errno: Errno) {
        let (target, (lag, after)) = (self.slots.target(slot), self.slots.at(slot).connect_times(self.io.start));
        let reset = errno == Errno::TIMEDOUT;
        let asker = self.slots.extra_of(slot).and_then(|extra| extra.asked.take()).map(|asked| asked.by);
        self.leave(slot, reset);
        let failure = ConnectFailure { target, errno: errno.raw_os_error(), after, lag };
        match asker {
            None => self.tell_connect_failed(&failure),
            Some(asker) => {
                self.io.counters.connect_failed().add(1);
                self.tell_asker(asker, Err(failure));
            }
        }
    }

    pub(in crate::event_loop) fn tell_connect_failed(&mut self, failure: &ConnectFailure) {
        self.io.counters.connect_failed().add(1);
        self.connects.failed += 1;
        let told = self.generations.refresh(&self.io, &mut self.read).and_then(|()| {
            let generation = self.generations.active();
            generation.table.connect_failed(failure, &mut *generation.local)
        });
        if let Err(panicked) = told {
            self.io.tell_panic("connect_failed", panicked);
        }
    }
}

/// Makes the failure of a connect where the peer has accepted, and its layers have not shaken hands.
fn not_shaken(target: Option<SocketAddr>, after: Duration) -> ConnectFailure {
    ConnectFailure { target, errno: Errno::PROTO.raw_os_error(), after, lag: Duration::ZERO }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
