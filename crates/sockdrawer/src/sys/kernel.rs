//! The implementation of [`System`] by system calls.

use super::{Errno, Events, Interest, Result, System, Woken, handshakes, milliseconds, options, paths, steering};
use crate::net::{Address, ListenOptions, SocketOptions};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel of this machine.
pub(crate) struct Kernel;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl System for Kernel {
    fn is_kernel(&self) -> bool {
        true
    }

    fn socket(&self, address: &Address) -> Result<OwnedFd> {
        let family = match address {
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Address::Unix(_) | Address::Abstract(_) => AddressFamily::UNIX,
        };
        rustix::net::socket_with(family, SocketType::STREAM, FLAGS, None)
    }

    fn bind(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()> {
        if let Address::Tcp(_) = address {
            // Without it, connections in TIME_WAIT from before a restart make bind fail.
            sockopt::set_socket_reuseaddr(socket, true)?;
        }
        rustix::net::bind(socket, &any(address)?)
    }

    fn bind_source(&self, socket: BorrowedFd<'_>, source: IpAddr) -> Result<()> {
        options::bind_address_without_port(socket)?;
        rustix::net::bind(socket, &SocketAddr::new(source, 0))
    }

    fn limit_ports(&self, socket: BorrowedFd<'_>, ports: (u16, u16)) -> Result<()> {
        options::set_local_ports(socket, ports)
    }

    fn share_port(&self, socket: BorrowedFd<'_>) -> Result<()> {
        sockopt::set_socket_reuseport(socket, true)
    }

    fn set_listen_options(&self, socket: BorrowedFd<'_>, options: &ListenOptions) -> Result<()> {
        options::set_for_listening(socket, options)
    }

    fn set_permissions(&self, path: &Path, options: &ListenOptions) -> Result<()> {
        paths::set_permissions(path, options)
    }

    fn exchange_names(&self, one: &Path, other: &Path) -> Result<()> {
        paths::exchange(one, other)
    }

    fn rename_to_free(&self, from: &Path, to: &Path) -> Result<()> {
        paths::rename_to_free(from, to)
    }

    fn steer(&self, member: BorrowedFd<'_>, to: &[Range<usize>]) -> Result<()> {
        steering::steer(member, to)
    }

    fn unsteer(&self, member: BorrowedFd<'_>) -> Result<()> {
        steering::unsteer(member)
    }

    fn turn_away(&self, listener: BorrowedFd<'_>) -> Result<()> {
        steering::turn_away(listener)
    }

    fn await_input(&self) -> Result<()> {
        steering::await_input()
    }

    fn handshakes(&self, address: SocketAddr) -> Result<Vec<u64>> {
        handshakes::list(address)
    }

    fn stop_listening(&self, listener: BorrowedFd<'_>) -> Result<()> {
        rustix::net::shutdown(listener, Shutdown::Read)
    }

    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<()> {
        rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
    }

    #[inline]
    fn accept(&self, listener: BorrowedFd<'_>) -> Result<OwnedFd> {
        rustix::net::accept_with(listener, FLAGS)
    }

    fn accept_named(&self, listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>)> {
        let (socket, peer) = rustix::net::acceptfrom_with(listener, FLAGS)?;
        Ok((socket, peer.and_then(internet)))
    }

    fn connect(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()> {
        rustix::net::connect(socket, &any(address)?)
    }

    fn take_error(&self, socket: BorrowedFd<'_>) -> Result<()> {
        sockopt::socket_error(socket)?
    }

    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>> {
        rustix::net::getsockname(socket).map(internet)
    }

    fn peer_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>> {
        Ok(rustix::net::getpeername(socket)?.and_then(internet))
    }

    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool> {
        sockopt::socket_acceptconn(socket)
    }

    fn set_nonblocking(&self, socket: BorrowedFd<'_>) -> Result<()> {
        rustix::io::ioctl_fionbio(socket, true)
    }

    fn queued(&self, listener: BorrowedFd<'_>) -> Result<usize> {
        options::accept_queue(listener)
    }

    fn peek(&self, socket: BorrowedFd<'_>) -> Result<usize> {
        rustix::net::recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(_, count)| count)
    }

    #[inline]
    fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize> {
        rustix::net::recv(socket, into, RecvFlags::empty()).map(|(_, count)| count)
    }

    #[inline]
    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize> {
        let more = if more { SendFlags::MORE } else { SendFlags::empty() };
        rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more)
    }

    fn finish(&self, socket: BorrowedFd<'_>) -> Result<()> {
        rustix::net::shutdown(socket, Shutdown::Write)
    }

    fn reset_on_close(&self, socket: BorrowedFd<'_>) -> Result<()> {
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))
    }

    fn end_on_close(&self, socket: BorrowedFd<'_>) -> Result<()> {
        sockopt::set_socket_linger(socket, None)
    }

    fn has_room_once_sent(&self, socket: BorrowedFd<'_>) -> Result<()> {
        options::room_once_sent(socket)
    }

    fn unacknowledged(&self, socket: BorrowedFd<'_>) -> Result<usize> {
        options::unacknowledged(socket)
    }

    fn reset(&self, socket: BorrowedFd<'_>) -> Result<()> {
        // TCP sends a reset for a disconnect. A Unix socket has neither.
        rustix::net::connect_unspec(socket).or_else(|_| rustix::net::shutdown(socket, Shutdown::Both))
    }

    fn set_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()> {
        options::set(socket, options, false)
    }

    fn set_first_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()> {
        options::set(socket, options, true)
    }

    fn options(&self, socket: BorrowedFd<'_>) -> Result<SocketOptions> {
        options::get(socket)
    }

    fn readable(&self, sockets: &[BorrowedFd<'_>], ready: &mut Vec<bool>) -> Result<()> {
        let mut asked: Vec<PollFd<'_>> = sockets.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        rustix::event::poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        ready.clear();
        ready.extend(asked.iter().map(|fd| !fd.revents().is_empty()));
        Ok(())
    }

    fn epoll(&self) -> Result<OwnedFd> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
    }

    fn event(&self) -> Result<OwnedFd> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
    }

    fn notify(&self, event: BorrowedFd<'_>) -> Result<()> {
        rustix::io::write(event, &1_u64.to_ne_bytes()).map(|_| ())
    }

    fn unring(&self, event: BorrowedFd<'_>) -> Result<()> {
        match rustix::io::read(event, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn wait_for(
        &self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        event: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<Woken> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, interest.read);
        wanted.set(PollFlags::OUT, interest.write);
        let mut asked = [PollFd::from_borrowed_fd(socket, wanted), PollFd::from_borrowed_fd(event, PollFlags::IN)];
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
            match rustix::event::poll(&mut asked, left.as_ref()) {
                Ok(0) => return Ok(Woken::TooLate),
                Ok(_) if asked[0].revents().is_empty() => return Ok(Woken::Rung),
                Ok(_) => return Ok(Woken::Ready),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn watch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        epoll::add(epoll, fd, EventData::new_u64(token), flags(interest))
    }

    fn watch_event(&self, epoll: BorrowedFd<'_>, event: BorrowedFd<'_>, token: u64) -> Result<()> {
        epoll::add(epoll, event, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)
    }

    fn rewatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        epoll::modify(epoll, fd, EventData::new_u64(token), flags(interest))
    }

    fn watch_end(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> Result<()> {
        epoll::add(epoll, fd, EventData::new_u64(token), EventFlags::RDHUP | EventFlags::ONESHOT)
    }

    fn unwatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        epoll::delete(epoll, fd)
    }

    fn wait(&self, epoll: BorrowedFd<'_>, events: &mut Events, timeout: Option<Duration>) -> Result<()> {
        let exactly = timeout.map(timespec);
        events.0.clear();
        let waited = match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events.0), exactly.as_ref()) {
            Err(Errno::NOSYS | Errno::PERM) => milliseconds::wait(epoll, &mut events.0, timeout),
            waited => waited.map(|_| ()),
        };
        match waited {
            Err(Errno::INTR) => Ok(()),
            waited => waited,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

fn flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest.read);
    flags.set(EventFlags::RDHUP, interest.read || interest.end);
    flags.set(EventFlags::OUT, interest.write);
    flags
}

fn any(address: &Address) -> Result<SocketAddrAny> {
    Ok(match address {
        Address::Tcp(address) => (*address).into(),
        Address::Unix(path) => SocketAddrUnix::new(path)?.into(),
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?.into(),
    })
}

fn internet(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}
