//! Connecting: the acceptor's mirror. It takes a permit, makes a socket and puts it into a seat while the handshake runs.

use super::acceptor::Parcel;
use super::gate::{Permit, Waiter};
use super::ports::Ports;
use super::seat::Flags;
use super::{Flow, lock};
use crate::behaviour::Panicked;
use crate::clock::deadline;
use crate::config::{Connecting, Late};
use crate::net::Address;
use crate::observe::Event as Told;
use crate::protocol::{ConnectFailure, Peer, Side};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects begun in one turn, so that the loops share the work and events are seen.
const CONNECTS_PER_TURN: usize = 64;
/// The pause after connects that all failed: doubled each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Connects that are late by more are not made up for, unless each is.
const MOST_LAG: Duration = Duration::from_millis(100);

/// What the loops of a connect pool share: targets and sources in turn, how many are left, and when the next is due.
pub(crate) struct Course {
    connecting: Connecting,
    ports: Ports,
    /// Shared with the courses before and after, so that none begins one more.
    begun: Arc<AtomicU64>,
    turn: AtomicUsize,
    next_due: Mutex<Instant>,
}

impl Course {
    /// A new course; the connects begun on the one before count towards its total.
    pub(crate) fn new(connecting: Connecting, before: Option<&Course>) -> Arc<Course> {
        let begun = before.map_or_else(Arc::default, |before| before.begun.clone());
        let ports = Ports::new(connecting.local_ports);
        Arc::new(Course { connecting, ports, begun, turn: AtomicUsize::new(0), next_due: Mutex::new(Instant::now()) })
    }

    fn is_over(&self) -> bool {
        self.connecting.total.is_some_and(|total| self.begun.load(Ordering::Relaxed) >= total)
    }

    /// The right to one more connect, unless all were begun.
    fn begin(&self) -> bool {
        let total = self.connecting.total.unwrap_or(u64::MAX);
        let one_more = |begun: u64| (begun < total).then_some(begun + 1);
        self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Takes the next one that is due, and says when it was, where that is a schedule and not a limit. An error is when to ask
    /// again.
    fn pace(&self, now: Instant) -> Result<Option<Instant>, Instant> {
        let Some(rate) = self.connecting.rate else { return Ok(None) };
        let mut next = lock(&self.next_due);
        if *next > now {
            return Err(*next);
        }
        let (from, due) = match self.connecting.late {
            Late::Forget => ((*next).max(now - MOST_LAG), None),
            Late::MakeUp => (*next, Some(*next)),
        };
        *next = deadline(from, Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX));
        Ok(due)
    }
}

/// The connecting part of a loop.
pub(super) struct Connector {
    course: Option<Arc<Course>>,
    /// Every target there was; connecting seats name theirs by its place.
    targets: Vec<Address>,
    waiter: Arc<Waiter>,
    waiting: bool,
    retry_at: Option<Instant>,
    pause: Duration,
}

impl Connector {
    pub(super) fn new(waiter: Arc<Waiter>) -> Connector {
        Connector { course: None, targets: Vec::new(), waiter, waiting: false, retry_at: None, pause: FIRST_PAUSE }
    }

    fn number_of(&mut self, target: &Address) -> u32 {
        let known = self.targets.iter().position(|known| known == target);
        let number = known.unwrap_or_else(|| {
            self.targets.push(target.clone());
            self.targets.len() - 1
        });
        u32::try_from(number).expect("fewer than 4 billion targets")
    }

    pub(super) fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.course.as_ref().and(self.retry_at)
    }
}

impl Flow {
    /// Connects along this course from now on; None stops. Connections that stand stay.
    pub(crate) fn set_course(&mut self, course: Option<Arc<Course>>) {
        self.connector.course = course;
        self.connector.retry_at = Some(Instant::now());
        self.shared.gate.stop_waiting(&self.connector.waiter);
        self.connector.waiting = false;
        while let Some(permit) = self.connector.waiter.claim() {
            drop(permit);
        }
    }

    /// Begins the connects that are due and allowed.
    pub(super) fn connect_more(&mut self) {
        let Some(course) = self.connector.course.clone() else { return };
        let mut permit = self.connector.waiter.claim();
        if permit.is_some() {
            self.connector.waiting = false;
        }
        let now = Instant::now();
        if self.connector.waiting || self.has_unplaced() {
            self.connector.retry_at = None;
            return;
        }
        if self.connector.retry_at.is_some_and(|at| at > now) {
            // Also with a permit, which a connect that has just failed may have left.
            return;
        }
        self.connector.retry_at = None;
        for _ in 0..CONNECTS_PER_TURN {
            if course.is_over() {
                return;
            }
            let Some(permit) = permit.take().or_else(|| self.shared.gate.take()) else {
                self.connector.waiting = true;
                return self.shared.gate.wait(&self.connector.waiter);
            };
            let due = match course.pace(now) {
                Ok(due) => due,
                Err(later) => {
                    self.connector.retry_at = Some(later);
                    return;
                }
            };
            if !course.begin() {
                return;
            }
            self.connect(&course, course.turn.fetch_add(1, Ordering::Relaxed), due, permit);
            if self.connector.retry_at.is_some() {
                return;
            }
        }
        self.connector.retry_at = Some(now);
    }

    fn connect(&mut self, course: &Course, turn: usize, due: Option<Instant>, permit: Permit) {
        self.counters.connects().add(1);
        let connecting = &course.connecting;
        let target = &connecting.targets[turn % connecting.targets.len()];
        let began = Instant::now();
        let lag = due.map_or(Duration::ZERO, |due| began.saturating_duration_since(due));
        match self.open_connecting(course, turn, target) {
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

    fn open_connecting(&self, course: &Course, turn: usize, target: &Address) -> Result<OwnedFd, Errno> {
        let connecting = &course.connecting;
        let socket = self.system.socket(target)?;
        let same_family = |source: &&std::net::IpAddr| internet(target).is_some_and(|to| to.is_ipv4() == source.is_ipv4());
        let sources = connecting.sources.iter().filter(same_family);
        let count = sources.clone().count();
        if count > 0
            && let Some(source) = sources.clone().nth(turn / connecting.targets.len() % count)
        {
            self.system.bind_source(socket.as_fd(), *source)?;
        }
        match self.connect_from_a_port(&course.ports, turn, (socket.as_fd(), target)) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
            Err(errno) => Err(errno),
        }
    }

    /// From the first part of the ports that has a free one.
    fn connect_from_a_port(&self, ports: &Ports, turn: usize, (socket, target): (BorrowedFd<'_>, &Address)) -> Result<(), Errno> {
        let parts = internet(target).map_or([None; 2], |to| ports.towards(to, turn));
        let mut full = None;
        for part in parts.into_iter().flatten() {
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
            return self.arrive(Parcel { socket, permit, remote, side: Side::Connected, lag, connect_time: took });
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
        if self.connector.course.as_ref().is_some_and(|course| course.connecting.total.is_none()) {
            // A target that refuses must not make the loop spin for ever.
            self.connector.retry_at = Some(Instant::now() + self.connector.pause);
            self.connector.pause = (self.connector.pause * 2).min(LONGEST_PAUSE);
        }
        let told = self.refresh().and_then(|()| {
            let active = self.active;
            self.place(active).table.connect_failed(failure)
        });
        if let Err(Panicked(message)) = told {
            self.counters.panics().add(1);
            self.tell_panic(Told::ServicePanicked { message });
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A thousand connects a second, asked for at these times after the first was due: when each was due, where that is told, or
    /// when to ask again.
    fn asked(late: Late, at: &[u32]) -> Vec<Result<Option<u32>, u32>> {
        let mut connecting = Connecting::to(Vec::new());
        (connecting.rate, connecting.late) = (Some(1000.0), late);
        let course = Course::new(connecting, None);
        let start = *lock(&course.next_due);
        let since = |at: Instant| u32::try_from((at - start).as_millis()).expect("a short time");
        let answer = |at: &u32| course.pace(start + *at * MS).map(|due| due.map(since)).map_err(since);
        at.iter().map(answer).collect()
    }

    #[test]
    fn each_connect_is_due_when_the_rate_says() {
        let made_up = [Ok(Some(0)), Err(1), Ok(Some(1)), Err(2), Ok(Some(2)), Ok(Some(3))];
        assert_eq!(asked(Late::MakeUp, &[0, 0, 1, 1, 5, 5]), made_up);
        let limited = [Ok(None), Err(1), Ok(None), Err(2), Ok(None), Ok(None), Ok(None), Ok(None), Err(6)];
        assert_eq!(asked(Late::Forget, &[0, 0, 1, 1, 5, 5, 5, 5, 5]), limited);
    }

    #[test]
    fn after_a_long_pause_a_schedule_is_made_up_for_and_a_limit_is_not() {
        assert_eq!(asked(Late::MakeUp, &[0, 900, 900, 900]), [Ok(Some(0)), Ok(Some(1)), Ok(Some(2)), Ok(Some(3))]);
        let most = u32::try_from(MOST_LAG.as_millis()).expect("a short time") as usize + 1;
        let answers = asked(Late::Forget, &[[0].as_slice(), &vec![900; most + 1]].concat());
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1 + most);
        assert_eq!(answers.last(), Some(&Err(901)));
    }

    #[test]
    fn without_a_rate_nothing_is_due_and_nothing_waits() {
        assert_eq!(Course::new(Connecting::to(Vec::new()), None).pace(Instant::now()), Ok(None));
    }
}
