//! Listeners: bound sockets, long-lived. A TCP address is many sockets that share its port, so that loops come and go
//! by taking over sockets, and none is closed for it: closing one would reset the connections in its queue.

use super::path_lock::PathLock;
use super::reuseport_group::{Joining, PortGroups, SocketsOfListener};
use super::socket::ListenSocket;
use super::state::ListenerState;
use super::unix_path::{OwnedPath, beside, is_socket, is_stale, path_of, take_over};
use crate::admission::AcceptState;
use crate::error::Error;
use crate::net::{Address, Bound, Listen, ListenOptions, ListenRequest, SocketOptions, real_address};
use crate::observe::{ListenerStatus, Readiness};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, System};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Sockets of one TCP address.
pub(crate) const SOCKETS: usize = 16;
/// Maximum number of sockets of an address: more loops than [`SOCKETS`] have one each, up to here.
pub(crate) const MAX_SOCKETS: usize = 1024;

/// A listener: one address with its sockets.
pub(crate) struct BoundListener {
    /// The address, with the real port.
    pub(crate) address: Address,
    pub(crate) sockets: Vec<Arc<ListenSocket>>,
    pub(crate) ownership: Ownership,
    /// Removed with the listener.
    path: Option<OwnedPath>,
    /// The sockets are closed by their retirement, in order.
    retires: bool,
    /// Another process listens at these sockets now.
    handed_over: bool,
}

impl Drop for BoundListener {
    fn drop(&mut self) {
        // While its socket still listens: another program must not take the path for stale, and lose it a moment later.
        // Only in a build with this mistake: the end of a predecessor removes the path of its successor.
        if let (Some(path), true) = (self.path.take(), self.handed_over && !cfg!(sockdrawer_broken = "unlinks")) {
            path.leave();
        }
        if let (Ownership::Ordered(membership), false) = (&self.ownership, self.retires) {
            // A change that failed: none of them was for anybody yet.
            membership.leave(&mut self.sockets);
        }
    }
}

/// Ownership of a listener's sockets: what may be done to them at its end.
#[derive(Clone)]
pub(crate) enum Ownership {
    /// Other processes have the sockets too: nothing is done to them but to close this process's copies.
    Shared,
    /// No other process has them.
    Own,
    /// No other process has them, and the order is known in which they share their port.
    Ordered(SocketsOfListener),
}

/// A listener as it is asked for.
pub(crate) struct Ask<'a> {
    pub(crate) system: &'a dyn System,
    pub(crate) address: &'a Address,
    pub(crate) options: &'a ListenOptions,
    /// Options of its connections.
    pub(crate) accepted: &'a SocketOptions,
    pub(crate) backlog: u32,
    pub(crate) sockets: usize,
    /// The maker of its sockets, if not this module.
    pub(crate) by: Option<&'a dyn Listen>,
}

/// The way in which two addresses of a port meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Clash {
    Same,
    /// Either takes all addresses, the other a single one. The kernel sends a connection to the narrower.
    Overlapping,
}

impl Clash {
    /// Returns how two addresses meet; None: they do not.
    pub(crate) fn of(one: &Address, other: &Address) -> Option<Clash> {
        let (Address::Tcp(one), Address::Tcp(other)) = (one, other) else { return None };
        if one.port() != other.port() {
            return None;
        }
        let (one, other) = (one.ip(), other.ip());
        // An IPv6 socket that takes every address takes those of IPv4, too.
        let takes = |wide: IpAddr, narrow: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
        match one == other {
            true => Some(Clash::Same),
            false => (takes(one, other) || takes(other, one)).then_some(Clash::Overlapping),
        }
    }
}

/// A listener could not be opened.
pub(crate) struct NotOpened {
    pub(crate) error: Error,
    /// Sockets that listened by then at an address that the pool has already: a client may have connected.
    pub(crate) left: Option<Box<BoundListener>>,
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> NotOpened {
        NotOpened { error, left: None }
    }
}

impl BoundListener {
    /// Binds and listens, a TCP address with so many sockets. The first is bound alone, so that a second program is refused; then
    /// the port is shared among the others.
    pub(crate) fn open(ask: &Ask<'_>) -> Result<BoundListener, Error> {
        let wanted = ask.wanted(ask.address, false);
        if let Some(by) = ask.by {
            return ask.opened_by(by, &wanted);
        }
        // From the look at the path until the socket listens: another program that starts there would take it for stale in between.
        let lock = PathLock::of(path_of(ask.address));
        let bound = match Bound::bind(&wanted) {
            Err(Errno::ADDRINUSE) if is_stale(ask.system, ask.address) => {
                take_over(&lock, ask.address).and_then(|()| Bound::bind(&wanted))
            }
            bound => bound,
        };
        let sockets = bound.and_then(|bound| bound.listen(&wanted).map_err(|(errno, _)| errno));
        let sockets = sockets.map_err(|errno| ask.error(errno))?;
        ask.opened(sockets, PortGroups::lease(&Arc::default()))
    }

    /// Opens sockets at the address of `old`, or at a wider or narrower one; they share its port from now on. `old` goes on as well.
    pub(crate) fn open_beside(old: &BoundListener, ask: &Ask<'_>) -> Result<BoundListener, NotOpened> {
        if !matches!(ask.address, Address::Tcp(_)) {
            return Ok(BoundListener::open_for_path(old, ask)?);
        }
        old.check_not_borrowed()?;
        let same = old.is_at(ask.address);
        let address = if same { &old.address } else { ask.address };
        let wanted = ask.wanted(address, true);
        let fail = |errno| ask.error(errno);
        if !matches!(old.ownership, Ownership::Shared) {
            for socket in old.sockets.iter().filter(|socket| !socket.is_gone()) {
                ask.system.share_port(socket.fd()).map_err(fail)?;
            }
        }
        if let Some(by) = ask.by {
            return Ok(ask.opened_by(by, &wanted)?);
        }
        let groups = match &old.ownership {
            Ownership::Ordered(membership) if same => membership.groups().clone(),
            _ => Arc::default(),
        };
        let bound = Bound::bind(&wanted).map_err(fail)?;
        let joining = PortGroups::lease(&groups);
        match bound.listen(&wanted) {
            Ok(sockets) => Ok(ask.opened(sockets, joining)?),
            Err((errno, sockets)) if sockets.is_empty() => Err(fail(errno).into()),
            Err((errno, sockets)) => Err(NotOpened { error: fail(errno), left: Some(Box::new(ask.opened(sockets, joining)?)) }),
        }
    }

    /// Opens a Unix socket that is to have the path of `old`: it listens under a name of its own until [`BoundListener::exchange_paths`].
    fn open_for_path(old: &BoundListener, ask: &Ask<'_>) -> Result<BoundListener, Error> {
        old.check_not_borrowed()?;
        let (Some(path), Some(_)) = (path_of(ask.address), &old.path) else { return Err(no_path(ask.address)) };
        let at = Address::Unix(beside(path).ok_or_else(|| ask.error(Errno::NAMETOOLONG))?);
        let mut listener = BoundListener::open(&Ask { address: &at, ..*ask }).map_err(|error| of_address(error, ask.address))?;
        listener.address = ask.address.clone();
        if listener.path.is_none() { Err(no_path(ask.address)) } else { Ok(listener) }
    }

    /// Gives the path of `old` to this one, at once: no connect finds it absent or refused. Once more gives it back. Sockets that have no path, as
    /// those of TCP, stay as they are.
    pub(crate) fn exchange_paths(&mut self, old: &mut BoundListener, system: &dyn System) -> Result<(), Error> {
        let (Some(path), Some(before)) = (&mut self.path, &mut old.path) else { return Ok(()) };
        path.exchange(before, system).map_err(|errno| match errno {
            Errno::INVAL | Errno::NOSYS => Error::Listen {
                address: self.address.clone(),
                source: errno.into(),
                remedy: "the file system of its folder cannot exchange two names: use a path on another one, such as /run",
            },
            errno => listen_error(&self.address, &ListenOptions::default(), errno),
        })
    }

    /// Returns true where this is its address, whatever port was asked for.
    fn is_at(&self, asked: &Address) -> bool {
        match (&self.address, asked) {
            (Address::Tcp(real), Address::Tcp(asked)) => real.ip() == asked.ip(),
            (real, asked) => real == asked,
        }
    }

    /// Returns how the sockets asked for meet these at their port; None: they do not, or they are not the pool's alone.
    pub(crate) fn meets(&self, asked: &Address) -> Option<Clash> {
        if matches!(self.ownership, Ownership::Shared) { None } else { Clash::of(&self.address, asked) }
    }

    /// Makes a listener with sockets that another process bound; they come one by one.
    pub(crate) fn shared(address: Address) -> BoundListener {
        BoundListener {
            address,
            sockets: Vec::new(),
            ownership: Ownership::Shared,
            path: None,
            retires: false,
            handed_over: false,
        }
    }

    /// Has the connections of each socket go round among all loops, where there are more loops than sockets, or a single socket.
    pub(crate) fn spread_over(&self, loops: usize) {
        let spread = self.sockets.len() < loops || self.sockets.len() == 1;
        self.sockets.iter().for_each(|socket| socket.spread.store(spread, Ordering::Relaxed));
    }

    /// Makes a listener of a socket that listens already.
    pub(crate) fn inherit(ask: &Ask<'_>, socket: Arc<OwnedFd>) -> Result<BoundListener, Error> {
        let real = ask.checked(socket.as_fd()).map_err(|errno| ask.error(errno))?.ok_or_else(|| {
            let reason = format!("the socket inherited for {} does not listen: call listen on it first", ask.address);
            Error::Invalid { setting: "listeners", reason }
        })?;
        let socket = ListenSocket::new(socket, true);
        socket.set_options(ask.system, ask.accepted).map_err(|errno| ask.error(errno))?;
        Ok(BoundListener {
            address: real,
            sockets: vec![socket],
            ownership: Ownership::Shared,
            path: None,
            retires: false,
            handed_over: false,
        })
    }

    /// Goes on with the sockets of a process that this one replaces, which shared their port in this order. That process may take them back
    /// until [`BoundListener::take_for_good`]: it must find them, and their path, as it left them.
    pub(crate) fn go_on(ask: &Ask<'_>, sockets: Vec<OwnedFd>, is_shared: bool) -> Result<BoundListener, Error> {
        let mut listener = ask.opened(sockets, PortGroups::lease(&Arc::default()))?;
        listener.hand_over(true);
        listener.sockets.iter().for_each(|socket| socket.set_borrowed(true, ask.system));
        if is_shared {
            listener.ownership = Ownership::Shared;
            listener.path.take().into_iter().for_each(OwnedPath::leave);
        }
        Ok(listener)
    }

    /// Sets whether the sockets are another process's: then this one does nothing to them but to close its copies.
    pub(crate) fn hand_over(&mut self, is_handed_over: bool) {
        self.handed_over = is_handed_over;
    }

    /// Gives the sockets what this process's configuration says: no other process takes them back any more.
    pub(crate) fn take_for_good(&mut self, ask: &Ask<'_>) {
        self.handed_over = false;
        self.sockets.iter().for_each(|socket| socket.set_borrowed(false, ask.system));
        // Where the system refuses, the socket listens as it did.
        let _ = self.set_options(ask.system, ask.accepted);
        let _ = self.set_permissions(ask.system, ask.options);
        let _ = self.set_backlog(ask.system, ask.backlog);
    }

    /// # Errors
    /// [`Error::HandingOver`]: sockets beside these would change their group or their path.
    fn check_not_borrowed(&self) -> Result<(), Error> {
        match self.is_borrowed() {
            true => Err(Error::HandingOver {
                reason: "the process before it stands by to take its addresses back: replace them once it does not, in some seconds",
            }),
            false => Ok(()),
        }
    }

    /// Returns true where the process that this one replaced may take the sockets back.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.sockets.iter().any(|socket| socket.is_borrowed())
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.ownership, Ownership::Shared)
    }

    /// Returns true where all of its sockets listen, and its path is the one that it was.
    pub(crate) fn is_whole(&self, system: &dyn System) -> bool {
        self.path.as_ref().is_none_or(OwnedPath::is_there)
            && self.sockets.iter().all(|socket| system.is_listening(socket.fd()).unwrap_or(false))
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Leaves the closing of the sockets to their retirement. No client finds it by its path any more; one that did is still served.
    pub(crate) fn retires(&mut self) {
        self.retires = true;
        self.path = None;
    }

    /// Returns the same sockets for others to join, however far their end is; the retirement of this listener closes them.
    pub(crate) fn to_join(&self) -> BoundListener {
        let (address, sockets, ownership) = (self.address.clone(), self.sockets.clone(), self.ownership.clone());
        BoundListener { address, sockets, ownership, path: None, retires: true, handed_over: false }
    }

    pub(crate) fn set_backlog(&self, system: &dyn System, backlog: u32) -> Result<(), Errno> {
        self.sockets
            .iter()
            .filter(|socket| !socket.is_gone() && !socket.is_borrowed())
            .try_for_each(|socket| system.listen(socket.fd(), backlog))
    }

    pub(crate) fn set_options(&self, system: &dyn System, options: &SocketOptions) -> Result<(), Errno> {
        self.sockets.iter().filter(|socket| !socket.is_gone()).try_for_each(|socket| socket.set_options(system, options))
    }

    /// Sets the mode and the owner of its path that are asked for. Those that are not asked for stay.
    pub(crate) fn set_permissions(&self, system: &dyn System, options: &ListenOptions) -> Result<(), Errno> {
        self.path.as_ref().map_or(Ok(()), |path| path.set_permissions(system, options))
    }

    pub(crate) fn status(&self, system: &dyn System, listener: &ListenerState, backlog: u32) -> ListenerStatus {
        ListenerStatus {
            address: self.address.clone(),
            connections: listener.limiter.taken(),
            limit: listener.limit(),
            readiness: match listener.accept_state() {
                AcceptState::Open => Readiness::Serving,
                AcceptState::Suspended => Readiness::Suspended,
                AcceptState::Refusing(_) => Readiness::Refusing,
            },
            queued: self.queued(system),
            backlog,
            sockets: self.sockets.len(),
        }
    }

    /// Returns the number of connections that wait in the kernel.
    pub(crate) fn queued(&self, system: &dyn System) -> usize {
        self.sockets.iter().map(|socket| system.queued(socket.fd()).unwrap_or(0)).sum()
    }

    /// Returns true where a connection can be accepted: the kernel does not count those that wait at a Unix socket.
    pub(crate) fn is_readable(&self, system: &dyn System) -> bool {
        let listens = |socket: &&Arc<ListenSocket>| !socket.is_gone() && system.is_listening(socket.fd()).unwrap_or(false);
        let sockets: Vec<_> = self.sockets.iter().filter(listens).map(|socket| socket.fd()).collect();
        let mut ready = Vec::new();
        system.readable(&sockets, &mut ready).is_ok() && ready.contains(&true)
    }
}

impl Ask<'_> {
    pub(super) fn error(&self, errno: Errno) -> Error {
        listen_error(self.address, self.options, errno)
    }

    fn wanted<'a>(&'a self, address: &'a Address, shares_port: bool) -> ListenRequest<'a> {
        let Ask { system, options, accepted, backlog, sockets, .. } = *self;
        let sockets = if matches!(address, Address::Tcp(_)) { sockets } else { 1 };
        ListenRequest { address, options, sockets, backlog, shares_port, accepted, system }
    }

    /// Makes a listener of sockets that this module has bound.
    fn opened(&self, sockets: Vec<OwnedFd>, mut joining: Joining<'_>) -> Result<BoundListener, Error> {
        let alone = !matches!(self.address, Address::Tcp(_));
        let address = match (self.address, sockets.first()) {
            (Address::Tcp(asked), Some(first)) => {
                real_address(self.system, *asked, first.as_fd()).map_err(|errno| self.error(errno))?
            }
            _ => self.address.clone(),
        };
        let sockets: Vec<_> = sockets.into_iter().map(|socket| ListenSocket::new(Arc::new(socket), alone)).collect();
        let ownership = if alone { Ownership::Own } else { Ownership::Ordered(joining.join(self.options, &sockets)) };
        let path = OwnedPath::new(&address);
        Ok(BoundListener { address, sockets, ownership, path, retires: false, handed_over: false })
    }

    /// Makes a listener of sockets that the system interface has made.
    fn opened_by(&self, by: &dyn Listen, wanted: &ListenRequest<'_>) -> Result<BoundListener, Error> {
        let address = wanted.address;
        let fail = |source| Error::Listen { address: address.clone(), source, remedy: "it was asked of Config::listen_by" };
        let sockets = by.listen(wanted).map_err(fail)?;
        let wrong = |what: &str| fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
        let mut real = None;
        for socket in &sockets {
            let checked = self.checked(socket.as_fd()).map_err(|errno| fail(errno.into()))?;
            let at = checked.ok_or_else(|| wrong("a socket that does not listen came back"))?;
            if *real.get_or_insert_with(|| at.clone()) != at {
                return Err(wrong("sockets of different addresses came back"));
            }
        }
        let Some(address) = real else { return Err(wrong("no socket came back")) };
        let alone = sockets.len() == 1;
        let sockets: Vec<_> = sockets.into_iter().map(|socket| ListenSocket::new(Arc::new(socket), alone)).collect();
        for socket in &sockets {
            socket.set_options(self.system, self.accepted).map_err(|errno| fail(errno.into()))?;
        }
        let ownership = if by.exclusive() { Ownership::Own } else { Ownership::Shared };
        let path = if by.exclusive() { OwnedPath::new(&address) } else { None };
        Ok(BoundListener { address, sockets, ownership, path, retires: false, handed_over: false })
    }

    /// Makes a socket of another maker fit to accept from. Returns its real address; None: it does not listen.
    fn checked(&self, socket: BorrowedFd<'_>) -> Result<Option<Address>, Errno> {
        if !self.system.is_listening(socket)? {
            return Ok(None);
        }
        // A blocking listener would hold up the loop whenever a process that shares it, or a peer that gave up, was faster.
        self.system.set_nonblocking(socket)?;
        Ok(Some(match self.address {
            Address::Tcp(_) => self.system.local_address(socket)?.map_or(self.address.clone(), Address::Tcp),
            _ => self.address.clone(),
        }))
    }
}

/// Returns the reason why a Unix socket cannot be replaced: it has an abstract name, or a path of other processes.
fn no_path(address: &Address) -> Error {
    let reason =
        format!("{address} has no path of this process that a new socket could take over: remove it, and add it after that");
    Error::Invalid { setting: "listeners", reason }
}

/// Returns an error of the address that is meant, where a socket could not get a name beside it.
fn of_address(error: Error, address: &Address) -> Error {
    let address = address.clone();
    match error {
        Error::AddressInUse(_) => Error::AddressInUse(address),
        Error::PermissionDenied { remedy, .. } => Error::PermissionDenied { address, remedy },
        Error::Listen { source, remedy, .. } => Error::Listen { address, source, remedy },
        error => error,
    }
}

fn listen_error(address: &Address, options: &ListenOptions, errno: Errno) -> Error {
    match errno {
        Errno::ADDRINUSE if matches!(address, Address::Unix(_)) && !is_socket(address) => Error::Listen {
            address: address.clone(),
            source: std::io::Error::new(std::io::ErrorKind::AlreadyExists, "a file that is no socket has this path"),
            remedy: "choose another path, or move the file away",
        },
        Errno::ADDRINUSE => Error::AddressInUse(address.clone()),
        Errno::NOLCK => Error::Listen {
            address: address.clone(),
            source: std::io::Error::new(std::io::ErrorKind::AddrInUse, "a socket without a listener has this path"),
            remedy: "remove it: its lock file, the path with .lock behind it, cannot be locked (flock), so another program that starts there now would not be seen",
        },
        Errno::PERM | Errno::INVAL if options.user.is_some() || options.group.is_some() => Error::Listen {
            address: address.clone(),
            source: errno.into(),
            remedy: "only root (CAP_CHOWN) gives a socket to another user, and others only to groups that they are in: \
                     leave the owner out, or start it as that user",
        },
        Errno::ACCESS | Errno::PERM => Error::PermissionDenied {
            address: address.clone(),
            remedy: match address {
                Address::Tcp(_) => "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher port",
                _ => "the directory must be writable for this user",
            },
        },
        errno => Error::Listen {
            address: address.clone(),
            source: errno.into(),
            remedy: match (address, errno) {
                (Address::Tcp(_), Errno::NODEV) => "name a network device of this machine",
                (Address::Tcp(_), _) => "check that the address belongs to this machine",
                (_, Errno::ROFS) => "its file system is read-only: choose a path on another one, such as /run",
                (_, Errno::NOENT) => "its directory does not exist: make it, or choose another path",
                (_, Errno::NAMETOOLONG) => "use a path of at most 107 bytes, or unix:@name",
                _ => "choose another path, or a name without a file: unix:@name",
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicUsize;
    use crate::sys::Kernel;
    use std::path::{Path, PathBuf};

    fn open(address: &Address) -> Result<BoundListener, Error> {
        let (options, accepted) = (ListenOptions::default(), SocketOptions::default());
        let ask =
            Ask { system: &Kernel, address, options: &options, accepted: &accepted, backlog: 16, sockets: SOCKETS, by: None };
        BoundListener::open(&ask)
    }

    #[test]
    fn a_path_that_a_crash_left_behind_is_taken_over_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("sockdrawer-stale-{}", std::process::id()));
        let address = Address::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
        let live = open(&address).expect("the path is stale");
        let second = open(&address);
        assert!(matches!(second, Err(Error::AddressInUse(_))));
        drop(live);
        assert!(!path.exists(), "removed with its listener");
    }

    fn unix(name: &str) -> (PathBuf, Address) {
        let path = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        (path.clone(), Address::Unix(path))
    }

    #[test]
    fn of_two_that_start_on_a_stale_path_one_listens_there_and_the_other_is_refused() {
        let (path, address) = unix("race");
        for round in 0..200 {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
            let ready = AtomicUsize::new(0);
            let start = || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                open(&address)
            };
            let (one, other) = std::thread::scope(|scope| {
                let other = scope.spawn(start);
                (start(), other.join().expect("no panic"))
            });
            assert!(one.is_ok() != other.is_ok(), "round {round}");
            let live = one.or(other).expect("one started");
            std::os::unix::net::UnixStream::connect(&path).expect("the holder of the path listens");
            drop(live);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_path_between_bind_and_listen_is_not_taken_for_stale() {
        let folder = std::env::temp_dir().join(format!("sockdrawer-starting-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let address = Address::Unix(folder.join("socket"));
        let starting = PathLock::of(path_of(&address));
        let socket = Kernel.socket(&address).expect("a socket");
        Kernel.bind(socket.as_fd(), &address).expect("binds");
        let second = std::thread::spawn({
            let address = address.clone();
            move || open(&address).map(|_| ())
        });
        // waits because: that the second one does not take the path over is told by nothing.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!second.is_finished(), "it waits for the first");
        Kernel.listen(socket.as_fd(), 1).expect("listens");
        drop(starting);
        assert!(matches!(second.join().expect("no panic"), Err(Error::AddressInUse(_))));
        std::os::unix::net::UnixStream::connect(folder.join("socket")).expect("the first listens there");
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone_and_said_to_be_there() {
        let (path, address) = unix("file");
        let kinds: [fn(&Path) -> std::io::Result<()>; 3] = [
            |path| std::fs::write(path, "mine"),
            |path| std::fs::create_dir(path),
            |path| std::os::unix::fs::symlink("/nowhere/at-all", path),
        ];
        for make in kinds {
            make(&path).expect("it is made");
            let error = open(&address).map(|_| ()).expect_err("it is refused").to_string();
            assert!(error.contains("a file that is no socket has this path"), "{error}");
            assert!(std::fs::symlink_metadata(&path).is_ok(), "it is there still");
            std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).expect("it is removed");
        }
    }

    #[test]
    fn a_second_listener_of_the_same_user_is_refused() {
        // At an address where no other test listens: the port stays free.
        let address = "127.0.96.3:0".parse().expect("an address");
        let first = open(&address).expect("binds");
        assert_eq!(first.sockets.len(), SOCKETS);
        let second = open(&first.address);
        assert!(matches!(second, Err(Error::AddressInUse(_))));
        let address = first.address.clone();
        drop(first);
        assert!(open(&address).is_ok(), "closed with its last owner");
    }
}
