//! Connecting: the acceptor's mirror. It takes a permit, makes a socket and puts it into a seat while the handshake runs.

use super::EventLoop;
use super::acceptor::Incoming;
use super::dialer::Dialer;
use super::limiter::{Permit, Waiter};
use super::ports::Ports;
use super::seat::Flags;
use crate::behaviour::Panicked;
use crate::clock::deadline;
use crate::config::Late;
use crate::net::Address;
use crate::observe::Event as Told;
use crate::protocol::{ConnectFailure, Peer, Side};
use crate::sys::{self, Errno};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects begun in one turn, so that the loops share the work and events are seen.
const CONNECTS_PER_TURN: usize = 64;
/// The pause after connects that all failed: doubled each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The connecting part of a loop.
pub(super) struct Connector {
    dialer: Option<Arc<Dialer>>,
    /// Every target there was; connecting seats name theirs by its place.
    targets: Vec<Address>,
    waiter: Waiter,
    next: Next,
    /// The connect that this loop has taken from the dialer, by when it is due.
    taken: Option<Instant>,
    /// After a connect that failed, nothing before this.
    rests_until: Option<Instant>,
    pause: Duration,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another dialer.
    Dialer,
    /// A permit.
    Permit,
    /// Whatever there may be next: connections that have no place yet are in the way.
    Turn,
    Moment(Instant),
}

impl Connector {
    /// Whether it has, or may have, something to do.
    #[inline(always)]
    pub(super) fn has_more(&self) -> bool {
        self.next != Next::Dialer
    }

    pub(super) fn new(waiter: Waiter) -> Connector {
        Connector {
            dialer: None,
            targets: Vec::new(),
            waiter,
            next: Next::Dialer,
            taken: None,
            rests_until: None,
            pause: FIRST_PAUSE,
        }
    }

    fn number_of(&mut self, target: &Address) -> u32 {
        let known = self.targets.iter().position(|known| known == target);
        let number = known.unwrap_or_else(|| {
            self.targets.push(target.clone());
            self.targets.len() - 1
        });
        u32::try_from(number).expect("fewer than 4 billion targets")
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.next {
            Next::Moment(at) => Some(at),
            Next::Dialer | Next::Permit | Next::Turn => None,
        }
    }

    /// When it may go on, of what may be before.
    fn rested(&self, now: Instant) -> Instant {
        let at = if let Next::Moment(at) = self.next { at } else { now };
        self.rests_until.map_or(at, |rested| rested.max(at))
    }

    /// Leaves the connect that it has taken to others.
    fn give_back(&mut self) {
        if let (Some(_), Some(dialer)) = (self.taken.take(), &self.dialer) {
            dialer.give_back();
        }
    }
}

impl EventLoop {
    /// Connects as this dialer says from now on; None stops. Connections that stand stay.
    pub(crate) fn set_dialer(&mut self, dialer: Option<Arc<Dialer>>) {
        self.connector.give_back();
        if dialer.is_some() {
            // What is begun by a schedule, or asked by one, is measured from when it was due.
            sys::wait_exactly();
        }
        self.connector.next = if dialer.is_some() { Next::Moment(Instant::now()) } else { Next::Dialer };
        self.connector.dialer = dialer;
        self.connector.waiter.leave();
    }

    /// Begins the next connect in the place of a connection that has just ended, before other events are looked at: a client that always
    /// has N connections under way has no fewer while this loop is busy.
    #[inline(never)]
    pub(super) fn redial(&mut self) {
        if self.connector.next == Next::Permit {
            self.connect_more();
        }
    }

    /// Begins the connects that are due and allowed.
    pub(super) fn connect_more(&mut self) {
        match self.connector.next {
            Next::Dialer => return,
            Next::Permit if !self.connector.waiter.is_called() => return,
            Next::Permit | Next::Turn | Next::Moment(_) => {}
        }
        self.connect_due();
        if self.connector.next != Next::Permit {
            self.connector.waiter.leave();
        }
    }

    fn connect_due(&mut self) {
        if self.has_unplaced() {
            self.connector.next = Next::Turn;
            return;
        }
        let now = Instant::now();
        self.connector.next = Next::Moment(self.connector.rested(now));
        let Some(dialer) = self.connector.dialer.clone() else { return };
        for _ in 0..CONNECTS_PER_TURN {
            if self.connector.rested(now) > now {
                return;
            }
            if !self.connect_next(&dialer, now) {
                return;
            }
        }
    }

    /// Begins the next connect. False when it must wait for something, which is noted.
    fn connect_next(&mut self, dialer: &Dialer, now: Instant) -> bool {
        if dialer.is_over() {
            self.connector.give_back();
            self.connector.next = Next::Dialer;
            return false;
        }
        let due = *self.connector.taken.get_or_insert_with(|| dialer.take(now));
        if due > now {
            self.connector.next = Next::Moment(self.connector.rests_until.map_or(due, |rested| rested.max(due)));
            return false;
        }
        let Some(permit) = self.shared.limiter.take() else {
            if dialer.connecting.late == Late::Forget {
                // Whoever has a permit first goes on, and what is due then is another matter.
                self.connector.give_back();
            }
            self.connector.next = Next::Permit;
            self.connector.waiter.wait();
            return false;
        };
        // Where it waits once more, it waits behind the others.
        self.connector.waiter.leave();
        if let Some(turn) = dialer.begin() {
            self.connector.taken = None;
            self.connect(dialer, turn, due, permit);
        }
        true
    }

    fn connect(&mut self, dialer: &Dialer, turn: usize, due: Instant, permit: Permit) {
        self.counters.connects().add(1);
        let connecting = &dialer.connecting;
        let target = &connecting.targets[turn % connecting.targets.len()];
        let began = Instant::now();
        let lag = dialer.lag(due, began);
        match self.open_connecting(dialer, turn, target) {
            Ok(socket) => {
                let seat = self.seats.take(socket, permit);
                let number = self.connector.number_of(target);
                let since = began - self.start;
                let id = self.next_id();
                let place = self.seats.at(seat);
                place.id = id;
                place.slot = number;
                place.bytes_in = nanoseconds(since);
                place.bytes_out = nanoseconds(lag);
                place.flags.set(Flags::CONNECTED.and(Flags::CONNECTING));
                self.set_timer(seat, deadline(began, connecting.timeout), began);
                self.watch_connecting(seat);
            }
            Err(errno) => {
                drop(permit);
                self.tell_connect_failed(&ConnectFailure {
                    target: internet(target),
                    errno: errno.raw_os_error(),
                    after: began.elapsed(),
                    lag,
                });
            }
        }
    }

    fn open_connecting(&self, dialer: &Dialer, turn: usize, target: &Address) -> Result<OwnedFd, Errno> {
        let connecting = &dialer.connecting;
        let socket = self.system.socket(target)?;
        let same_family = |source: &&std::net::IpAddr| internet(target).is_some_and(|to| to.is_ipv4() == source.is_ipv4());
        let sources = connecting.sources.iter().filter(same_family);
        let count = sources.clone().count();
        if count > 0
            && let Some(source) = sources.clone().nth(turn / connecting.targets.len() % count)
        {
            self.system.bind_source(socket.as_fd(), *source)?;
        }
        match self.connect_from_a_port(&dialer.ports, turn, (socket.as_fd(), target)) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
            Err(errno) => Err(errno),
        }
    }

    /// From the first part of the ports that has a free one.
    fn connect_from_a_port(&self, ports: &Ports, turn: usize, (socket, target): (BorrowedFd<'_>, &Address)) -> Result<(), Errno> {
        let Some(to) = internet(target) else { return self.system.connect(socket, target) };
        // What was asked for may have none but the target's own.
        let mut full = ports.asked.then_some(Err(Errno::ADDRNOTAVAIL));
        for part in ports.towards(to, turn).into_iter().flatten() {
            match self.system.limit_ports(socket, part) {
                Err(errno) if ports.asked => return Err(errno),
                // A kernel without it has ports all the same, and the target's own may be the one that it gives.
                Err(_) => return self.system.connect(socket, target),
                Ok(()) => {}
            }
            match self.system.connect(socket, target) {
                Err(Errno::ADDRNOTAVAIL) => full = Some(Err(Errno::ADDRNOTAVAIL)),
                connected => return connected,
            }
        }
        full.unwrap_or_else(|| self.system.connect(socket, target))
    }

    /// The handshake is over, either way, when the socket can be written.
    fn watch_connecting(&mut self, seat: u32) {
        let token = self.seats.token(seat);
        let interest = crate::sys::Interest { read: false, write: true };
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket").as_fd();
        match self.system.watch(self.epoll.as_fd(), socket, token, interest) {
            Ok(()) => self.seats.at(seat).flags.set(Flags::WATCHED.and(Flags::WATCH_WRITE)),
            Err(errno) => self.connect_failed(seat, errno),
        }
    }

    /// The handshake is over.
    pub(super) fn connect_event(&mut self, seat: u32) {
        let ended = self.with_socket(seat, |system, socket| {
            system.take_error(socket)?;
            system.local_address(socket)
        });
        let remote = self.connecting_to(seat);
        match ended {
            // A connect to a port of this machine where nobody listens can meet itself: the kernel chose that very port.
            Ok(local) if local.is_some() && local == remote => {
                // Without a reset it would keep the port for a minute, and the server could not bind it.
                let _ = self.with_socket(seat, |system, socket| system.reset_on_close(socket));
                self.connect_failed(seat, Errno::CONNREFUSED);
            }
            Ok(_) => self.connected(seat, remote),
            Err(errno) => self.connect_failed(seat, errno),
        }
    }

    fn connected(&mut self, seat: u32, remote: Option<SocketAddr>) {
        self.counters.connected().add(1);
        self.connector.pause = FIRST_PAUSE;
        self.clear_timer(seat);
        let (lag, took) = (self.connect_lag(seat), self.connect_time(seat));
        if self.shared.placement.is_some() {
            // The old epoll must not go on watching what runs elsewhere.
            self.unwatch(seat);
            let (socket, permit) = self.seats.give_up(seat);
            return self.arrive(Incoming { socket, permit, remote, side: Side::Connected, lag, connect_time: took });
        }
        let place = self.seats.at(seat);
        (place.bytes_in, place.bytes_out) = (0, 0);
        place.flags.clear(Flags::CONNECTING);
        self.set_active_options(seat);
        self.open_protocol(seat, &Peer::new(remote, Side::Connected).with_lag(lag).with_connect_time(took));
    }

    /// Gives a connection made here the options that an accepted one has from its listener.
    pub(super) fn set_active_options(&mut self, seat: u32) {
        if self.refresh().is_ok() {
            let active = self.active;
            let options = self.place(active).generation.settings.options;
            // It fails where the connection is gone, which using it will tell.
            let _ = self.with_socket(seat, |system, socket| system.set_options(socket, &options));
        }
    }

    pub(super) fn connecting_to(&mut self, seat: u32) -> Option<SocketAddr> {
        let number = self.seats.at(seat).slot;
        internet(&self.connector.targets[number as usize])
    }

    fn connect_time(&mut self, seat: u32) -> Duration {
        let began = self.start + Duration::from_nanos(self.seats.at(seat).bytes_in);
        began.elapsed()
    }

    fn connect_lag(&mut self, seat: u32) -> Duration {
        Duration::from_nanos(self.seats.at(seat).bytes_out)
    }

    /// There will be no connection.
    pub(super) fn connect_failed(&mut self, seat: u32, errno: Errno) {
        let (target, after, lag) = (self.connecting_to(seat), self.connect_time(seat), self.connect_lag(seat));
        let reset = errno == Errno::TIMEDOUT;
        self.leave(seat, reset);
        self.tell_connect_failed(&ConnectFailure { target, errno: errno.raw_os_error(), after, lag });
    }

    fn tell_connect_failed(&mut self, failure: &ConnectFailure) {
        self.counters.connect_failed().add(1);
        if self.connector.dialer.as_ref().is_some_and(|dialer| dialer.connecting.total.is_none()) {
            // A target that refuses must not make the loop spin for ever.
            let rested = Instant::now() + self.connector.pause;
            self.connector.rests_until = Some(rested);
            if self.connector.retry_at().is_some_and(|at| at < rested) {
                self.connector.next = Next::Moment(rested);
            }
            self.connector.pause = (self.connector.pause * 2).min(LONGEST_PAUSE);
        }
        let told = self.refresh().and_then(|()| {
            let active = self.active;
            let place = self.place(active);
            place.table.connect_failed(failure, &mut *place.local)
        });
        if let Err(Panicked(message)) = told {
            self.counters.panics().add(1);
            self.tell_some(Told::ServicePanicked { message });
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn internet(address: &Address) -> Option<SocketAddr> {
    match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) | Address::Abstract(_) => None,
    }
}
