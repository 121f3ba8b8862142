//! Beginning connects: the acceptor's mirror. It takes a permit, makes a socket and puts it into a slot while the handshake runs.

use super::dialer::Dialer;
use super::io::Io;
use super::ports::Ports;
use super::streams::Streams;
use super::streams::connects::{self, Connects};
use crate::config::Late;
use crate::limit::limiter::Waiter;
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::protocol::ConnectFailure;
use crate::sys::{self, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects begun in one turn, so that the loops share the work and events are seen.
const CONNECTS_PER_TURN: usize = 64;
/// The pause after connects that all failed: doubled each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// After these the pause is the longest.
const MAX_DOUBLINGS: u32 = 10;

/// The connecting part of a loop.
pub(super) struct Connector {
    dialer: Option<Arc<Dialer>>,
    waiter: Waiter,
    next: NextDial,
    /// The connect that this loop has taken from the dialer, by when it is due.
    taken: Option<Instant>,
    /// After a connect that failed, nothing before this.
    rests_until: Option<Instant>,
    pause: Duration,
}

/// Event that the connector waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextDial {
    /// Another dialer.
    Dialer,
    /// A permit.
    Permit,
    /// Next turn, whatever there may be: connections that have no place yet are in the way.
    Turn,
    Moment(Instant),
}

impl Connector {
    /// Returns true where the connector has, or may have, something to do.
    #[inline(always)]
    pub(super) fn has_more(&self) -> bool {
        self.next != NextDial::Dialer
    }

    pub(super) fn new(waiter: Waiter) -> Connector {
        Connector { dialer: None, waiter, next: NextDial::Dialer, taken: None, rests_until: None, pause: FIRST_PAUSE }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.next {
            NextDial::Moment(at) => Some(at),
            NextDial::Dialer | NextDial::Permit | NextDial::Turn => None,
        }
    }

    /// Returns the moment at which the connector may go on: not before its rest is over.
    fn rested(&self, now: Instant) -> Instant {
        let at = if let NextDial::Moment(at) = self.next { at } else { now };
        self.rests_until.map_or(at, |rested| rested.max(at))
    }

    /// Leaves the connect that it has taken to others.
    fn give_back(&mut self) {
        if let (Some(_), Some(dialer)) = (self.taken.take(), &self.dialer) {
            dialer.give_back();
        }
    }

    /// Connects as this dialer says from now on; None stops. Connections that stand stay.
    pub(super) fn set_dialer(&mut self, dialer: Option<Arc<Dialer>>) {
        self.give_back();
        if dialer.is_some() {
            // Connects that a schedule begins, and questions that it asks, are measured from when they were due.
            sys::wait_exactly();
        }
        self.next = if dialer.is_some() { NextDial::Moment(Instant::now()) } else { NextDial::Dialer };
        self.dialer = dialer;
        self.waiter.leave();
    }

    /// Begins the next connect in the place of a connection that has just ended, before other events are looked at: a client that always
    /// has N connections under way has no fewer while this loop is busy.
    #[inline(never)]
    pub(super) fn redial(&mut self, streams: &mut Streams) {
        if self.next == NextDial::Permit {
            self.connect_more(streams);
        }
    }

    /// Waits until connections that were made have a place to run.
    pub(super) fn wait_for_places(&mut self) {
        if self.has_more() {
            self.next = NextDial::Turn;
            self.waiter.leave();
        }
    }

    /// Begins the connects that are due and allowed.
    pub(super) fn connect_more(&mut self, streams: &mut Streams) {
        match self.next {
            NextDial::Dialer => return,
            NextDial::Permit if !self.waiter.is_called() => return,
            NextDial::Permit | NextDial::Turn | NextDial::Moment(_) => {}
        }
        self.connect_due(streams);
        if self.next != NextDial::Permit {
            self.waiter.leave();
        }
    }

    fn connect_due(&mut self, streams: &mut Streams) {
        let now = Instant::now();
        self.heed(streams.connects.take());
        self.next = NextDial::Moment(self.rested(now));
        let Some(dialer) = self.dialer.clone() else { return };
        for _ in 0..CONNECTS_PER_TURN {
            if self.rested(now) > now {
                return;
            }
            if !self.connect_next(&dialer, streams, now) {
                return;
            }
            self.heed(streams.connects.take());
        }
    }

    /// Heeds the results of connects: a target that refuses must not make the loop spin for ever.
    fn heed(&mut self, connects: Connects) {
        if connects.established {
            self.pause = FIRST_PAUSE;
        }
        let endless = self.dialer.as_ref().is_some_and(|dialer| dialer.connecting.total.is_none());
        if !endless || connects.failed == 0 {
            return;
        }
        for _ in 1..connects.failed.min(MAX_DOUBLINGS) {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        let rested = Instant::now() + self.pause;
        self.rests_until = Some(rested);
        if self.retry_at().is_some_and(|at| at < rested) {
            self.next = NextDial::Moment(rested);
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Begins the next connect. False when it must wait for something, which is noted.
    fn connect_next(&mut self, dialer: &Dialer, streams: &mut Streams, now: Instant) -> bool {
        if dialer.is_over() {
            self.give_back();
            self.next = NextDial::Dialer;
            return false;
        }
        let due = *self.taken.get_or_insert_with(|| dialer.take(now));
        if due > now {
            self.next = NextDial::Moment(self.rests_until.map_or(due, |rested| rested.max(due)));
            return false;
        }
        let Some(permit) = Permit::take(&streams.io.shared.limiter) else {
            if dialer.connecting.late == Late::Forget {
                // The loop that gets a permit first goes on, with what is due then.
                self.give_back();
            }
            self.next = NextDial::Permit;
            self.waiter.wait();
            return false;
        };
        // Where it waits once more, it waits behind the others.
        self.waiter.leave();
        if let Some(turn) = dialer.begin() {
            self.taken = None;
            connect(streams, dialer, (turn, due), permit);
        }
        true
    }
}

/// Begins one connect, on behalf of this turn of the dialer's.
fn connect(streams: &mut Streams, dialer: &Dialer, (turn, due): (usize, Instant), permit: Permit) {
    streams.io.counters.connects().add(1);
    let connecting = &dialer.connecting;
    let target = &connecting.targets[turn % connecting.targets.len()];
    let began = Instant::now();
    let lag = dialer.lag(due, began);
    let opened = open_connecting(&streams.io, dialer, turn, target);
    let begun =
        opened.and_then(|socket| connects::begin(streams, socket, permit, target, (began, lag), connecting.timeout, false));
    match begun {
        Ok(_) => {}
        Err(errno) => {
            let (target, after) = (target.internet(), began.elapsed());
            connects::tell_failed(streams, &ConnectFailure { target, errno: errno.raw_os_error(), after, lag });
        }
    }
}

fn open_connecting(io: &Io, dialer: &Dialer, turn: usize, target: &Address) -> Result<OwnedFd, Errno> {
    let connecting = &dialer.connecting;
    let socket = io.system.socket(target)?;
    let same_family = |source: &&std::net::IpAddr| target.internet().is_some_and(|to| to.is_ipv4() == source.is_ipv4());
    let sources = connecting.sources.iter().filter(same_family);
    let count = sources.clone().count();
    if count > 0
        && let Some(source) = sources.clone().nth(turn / connecting.targets.len() % count)
    {
        io.system.bind_source(socket.as_fd(), *source)?;
    }
    match connect_from_a_port(io, &dialer.ports, turn, (socket.as_fd(), target)) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Connects from the first part of the ports that has a free one.
fn connect_from_a_port(io: &Io, ports: &Ports, turn: usize, (socket, target): (BorrowedFd<'_>, &Address)) -> Result<(), Errno> {
    let Some(to) = target.internet() else { return io.system.connect(socket, target) };
    // A range of ports that was asked for may have none but the target's own.
    let mut full = ports.asked.then_some(Err(Errno::ADDRNOTAVAIL));
    for part in ports.towards(to, turn).into_iter().flatten() {
        match io.system.limit_ports(socket, part) {
            Err(errno) if ports.asked => return Err(errno),
            // A kernel without it has ports all the same, and the target's own may be the one that it gives.
            Err(_) => return io.system.connect(socket, target),
            Ok(()) => {}
        }
        match io.system.connect(socket, target) {
            Err(Errno::ADDRNOTAVAIL) => full = Some(Err(Errno::ADDRNOTAVAIL)),
            connected => return connected,
        }
    }
    full.unwrap_or_else(|| io.system.connect(socket, target))
}
