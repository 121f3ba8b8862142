//! Listening sockets: the options they get before they are bound, and the trait that makes them.

use super::{Address, SocketOptions};
use crate::sys::{Errno, System};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The kernel keeps 16 bytes for the name of a device, the last one a NUL.
const DEVICE_MAX: usize = 15;

/// Options of a listener that are in force before the first connection: of a TCP address, or of the path of a Unix socket; an abstract
/// name has none. In a running pool they change like any setting: [`PoolHandle::reconfigure`](crate::PoolHandle::reconfigure) opens new sockets at the
/// address and retires the old ones; no connection is lost, and a path is never absent.
///
/// All options are off by default. A socket that is taken over from a process that this one replaces stays as it is, but for the mode and the
/// owner of its path, which are set in place.
///
/// ```
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step, listening::ListenOptions};
/// # struct Echo;
/// # impl Service for Echo { type Protocol = Echo; fn open(&self, _: &Peer) -> Echo { Echo } }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// let mut options = ListenOptions::default();
/// options.v6_only = true;
/// let config = Config::accept(Echo).listen("0.0.0.0:9000").listen_with("[::]:9000", options);
///
/// // For processes of the group 33, and of this user.
/// let mut options = ListenOptions::default();
/// options.mode = Some(0o660);
/// options.group = Some(33);
/// let config = config.listen_with("unix:/run/name.sock", options);
/// # let _ = config;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ListenOptions {
    /// `[::]` accepts no IPv4 connections (`IPV6_V6ONLY`), so that the pool can listen at `0.0.0.0` as well. Off: as the sysctl
    /// `net.ipv6.bindv6only` says, by default both.
    pub v6_only: bool,
    /// The address may be one that this machine does not have, or not yet (`IP_FREEBIND`).
    pub freebind: bool,
    /// Accept connections to any address that are routed here, for transparent proxies (`IP_TRANSPARENT`). Needs CAP_NET_ADMIN.
    pub transparent: bool,
    /// Accept only connections that arrive by this network device (`SO_BINDTODEVICE`); its name has at most 15 bytes.
    pub device: Option<String>,
    /// The permission bits of a Unix socket's file, whatever the process's umask: write permission is what a client needs to connect
    /// (unix(7)). Off: 0777 without the bits of the umask, mostly 0755, by which only processes of the file's user connect.
    pub mode: Option<u32>,
    /// The number of the user that a Unix socket's file belongs to; another than the process's own takes CAP_CHOWN. Off: the process's user.
    pub user: Option<u32>,
    /// The number of the group that a Unix socket's file belongs to: one that the process's user is in, or any with CAP_CHOWN. Off: the
    /// process's group, or its folder's where that has the set-group-ID bit.
    pub group: Option<u32>,
}

impl ListenOptions {
    /// Checks whether these options make sense at `address`; the error says what is wrong and what to do.
    pub(crate) fn check(&self, address: &Address) -> Result<(), String> {
        if *self == ListenOptions::default() {
            return Ok(());
        }
        let ListenOptions { mode, user, group, .. } = *self;
        let of_path = ListenOptions { mode, user, group, ..ListenOptions::default() };
        if let Address::Unix(_) = address {
            return self.check_path(&of_path, address);
        }
        if of_path != ListenOptions::default() {
            let has_no_file = if matches!(address, Address::Tcp(_)) { "is a TCP address" } else { "is an abstract name" };
            return Err(format!(
                "{address} {has_no_file}, which has no mode and no owner: leave them out, or use a path, unix:/path"
            ));
        }
        let Address::Tcp(tcp) = address else {
            return Err(format!(
                "{address} is no TCP address: v6_only, freebind, transparent and device are for TCP, leave them out"
            ));
        };
        if self.v6_only && tcp.is_ipv4() {
            return Err(format!("v6_only makes no sense at {address}, an IPv4 address: leave it out"));
        }
        let Some(device) = &self.device else { return Ok(()) };
        if device.is_empty() || device.len() > DEVICE_MAX || device.bytes().any(|byte| byte == 0 || byte == b'/') {
            return Err(format!(
                "{device:?} is not the name of a network device: it has 1 to {DEVICE_MAX} bytes, none of them a slash or NUL"
            ));
        }
        Ok(())
    }

    fn check_path(&self, of_path: &ListenOptions, address: &Address) -> Result<(), String> {
        if self != of_path {
            return Err(format!(
                "{address} is no TCP address: v6_only, freebind, transparent and device are for TCP, leave them out"
            ));
        }
        if let Some(mode) = self.mode.filter(|mode| *mode > 0o777) {
            return Err(format!(
                "mode {mode:#o} of {address} has other bits than permissions: write one up to 0o777, such as 0o660"
            ));
        }
        // -1 means to chown(2) that nothing changes.
        if [self.user, self.group].contains(&Some(u32::MAX)) {
            return Err(format!("{} is the number of no user and no group: {address} needs another owner", u32::MAX));
        }
        Ok(())
    }

    /// Returns true where sockets with these options and with `other` are members of one `SO_REUSEPORT` group, among which the kernel chooses.
    pub(crate) fn same_group(&self, other: &ListenOptions) -> bool {
        self.v6_only == other.v6_only && self.device == other.device
    }
}

/// The listening sockets that a pool asks [`Listen`] for.
pub struct ListenRequest<'a> {
    /// The address to listen at. Port 0 means a free port. Where a Unix socket is replaced this is a path beside the one in use, which
    /// the pool gives the new socket as soon as it listens.
    pub address: &'a Address,
    /// The options that the sockets should have before they are bound.
    pub options: &'a ListenOptions,
    /// The number of sockets that the pool would like, so that several loops accept without coordination. One is enough.
    pub sockets: usize,
    /// Maximum of connections in the accept queue of each socket.
    pub backlog: u32,
    /// The pool listens at this address already, and retires those sockets afterwards: the new sockets have to share the
    /// port with them (`SO_REUSEPORT`).
    pub shares_port: bool,
    pub(crate) accepted: &'a SocketOptions,
    pub(crate) system: &'a dyn System,
}

impl fmt::Debug for ListenRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenRequest")
            .field("address", &self.address)
            .field("options", &self.options)
            .field("sockets", &self.sockets)
            .field("backlog", &self.backlog)
            .field("shares_port", &self.shares_port)
            .finish_non_exhaustive()
    }
}

/// Makes listening sockets. The default is [`Bind`]; [`Config::listen_by`](crate::Config::listen_by) sets another, such as one that gets
/// its sockets from a broker with more rights.
///
/// ```
/// use sockdrawer::listening::{Bind, Listen, ListenRequest};
/// use std::os::fd::OwnedFd;
///
/// /// Prints each address that it binds.
/// struct Talking;
///
/// impl Listen for Talking {
///     fn listen(&self, request: &ListenRequest<'_>) -> std::io::Result<Vec<OwnedFd>> {
///         eprintln!("binding {}", request.address);
///         Bind.listen(request)
///     }
/// }
/// ```
pub trait Listen: Send + Sync + 'static {
    /// Makes at least one socket that listens at the requested address. The pool makes the sockets non-blocking and gives them the options
    /// of its connections. It is called while a pool is started or changed, by one thread at a time per pool, and should not block for long.
    ///
    /// # Errors
    /// Any error; the start or change of the pool fails with it and leaves everything as it was.
    fn listen(&self, request: &ListenRequest<'_>) -> io::Result<Vec<OwnedFd>>;

    /// Returns true where no other process has these sockets, so that the pool may steer new connections away from a socket that it retires, and end
    /// its listening. False by default: then retired sockets are only emptied and closed, and go on listening in other processes.
    fn exclusive(&self) -> bool {
        false
    }
}

/// Binds sockets of this process: the first alone, so that a second program is refused, then the others, which share its port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bind;

impl Listen for Bind {
    fn listen(&self, request: &ListenRequest<'_>) -> io::Result<Vec<OwnedFd>> {
        let bound = Bound::bind(request)?;
        bound.listen(request).map_err(|(errno, _)| errno.into())
    }

    fn exclusive(&self) -> bool {
        true
    }
}

/// Bound sockets. If they share the port of sockets that listen already, none of them listens yet.
pub(crate) struct Bound {
    sockets: Vec<OwnedFd>,
    listening: usize,
}

impl Bound {
    pub(crate) fn bind(request: &ListenRequest<'_>) -> Result<Bound, Errno> {
        if request.shares_port {
            let bind = |_| open(request, request.address, true);
            let sockets = (0..request.sockets.max(1)).map(bind).collect::<Result<_, _>>()?;
            return Ok(Bound { sockets, listening: 0 });
        }
        let first = open(request, request.address, false)?;
        request.system.listen(first.as_fd(), request.backlog).inspect_err(|_| forget(request.address))?;
        let mut bound = Bound { sockets: vec![first], listening: 1 };
        let Address::Tcp(asked) = request.address else { return Ok(bound) };
        if request.sockets > 1 {
            let first = bound.sockets[0].as_fd();
            let real = real_address(request.system, *asked, first)?;
            request.system.share_port(first)?;
            for _ in 1..request.sockets {
                let socket = open(request, &real, true)?;
                request.system.listen(socket.as_fd(), request.backlog)?;
                bound.sockets.push(socket);
            }
            bound.listening = request.sockets;
        }
        Ok(bound)
    }

    /// Makes all sockets listen. On failure it returns those that do, because clients may have connected to them.
    pub(crate) fn listen(mut self, request: &ListenRequest<'_>) -> Result<Vec<OwnedFd>, (Errno, Vec<OwnedFd>)> {
        for at in self.listening..self.sockets.len() {
            if let Err(errno) = request.system.listen(self.sockets[at].as_fd(), request.backlog) {
                self.sockets.truncate(at);
                return Err((errno, self.sockets));
            }
        }
        Ok(self.sockets)
    }
}

fn open(request: &ListenRequest<'_>, address: &Address, share: bool) -> Result<OwnedFd, Errno> {
    let system = request.system;
    let socket = system.socket(address)?;
    system.set_listen_options(socket.as_fd(), request.options)?;
    if share {
        system.share_port(socket.as_fd())?;
    }
    system.bind(socket.as_fd(), address)?;
    let made = || {
        if let Address::Unix(path) = address {
            // Until it listens, every connect is refused: none comes in by the permissions that it was bound with.
            system.set_permissions(path, request.options)?;
        }
        system.set_options(socket.as_fd(), request.accepted)
    };
    made().inspect_err(|_| forget(address))?;
    Ok(socket)
}

/// Removes the file of a Unix socket that was bound and will not listen.
fn forget(address: &Address) {
    if let Address::Unix(path) = address {
        // The file may be gone already.
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the requested address, with the port that the system chose.
pub(crate) fn real_address(system: &dyn System, asked: SocketAddr, socket: BorrowedFd<'_>) -> Result<Address, Errno> {
    let port = system.local_address(socket)?.map_or(asked.port(), |real| real.port());
    let mut real = asked;
    real.set_port(port);
    Ok(Address::Tcp(real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused_with_what_to_do() {
        let check = |address: &str, change: fn(&mut ListenOptions)| {
            let mut options = ListenOptions::default();
            change(&mut options);
            options.check(&address.parse().expect("an address"))
        };
        assert_eq!(check("unix:/a", |_| {}), Ok(()));
        for address in ["127.0.0.1:1", "[::1]:1"] {
            assert_eq!(check(address, |options| options.freebind = true), Ok(()));
            assert_eq!(check(address, |options| options.device = Some("a23456789012345".to_owned())), Ok(()));
        }
        assert_eq!(check("[::]:1", |options| options.v6_only = true), Ok(()));
        assert!(check("0.0.0.0:1", |options| options.v6_only = true).is_err_and(|why| why.contains("IPv4")));
        assert!(check("unix:/a", |options| options.freebind = true).is_err_and(|why| why.contains("TCP")));
        for name in ["", "a234567890123456", "a/b", "a\0"] {
            let options = ListenOptions { device: Some(name.to_owned()), ..ListenOptions::default() };
            assert!(options.check(&"1".parse().expect("an address")).is_err_and(|why| why.contains("device")), "{name}");
        }
    }
}
