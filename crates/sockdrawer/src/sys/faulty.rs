//! A system whose calls fail on demand, for tests of every path that the error of a system call takes.

use super::{Errno, Events, Interest, Kernel, Result, System, Woken};
use crate::net::{Address, ListenOptions, SocketOptions};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The kernel of this machine, except for calls that were told to fail.
#[derive(Default)]
pub(crate) struct Faulty(Mutex<VecDeque<(&'static str, Option<Errno>)>>, Mutex<Always>, Mutex<Option<(u16, Errno)>>);

/// The errno of a call that always fails, and the number of failures so far.
#[derive(Default)]
struct Always {
    call: Option<(&'static str, Errno)>,
    met: usize,
}

impl Faulty {
    /// Makes the next `times` calls of this name fail.
    pub(crate) fn fail(&self, call: &'static str, errno: Errno, times: usize) {
        self.0.lock().expect("no test panics here").extend(std::iter::repeat_n((call, Some(errno)), times));
    }

    /// Makes the next `times` calls of this name succeed; failures set later apply to the calls that follow.
    pub(crate) fn spare(&self, call: &'static str, times: usize) {
        self.0.lock().expect("no test panics here").extend(std::iter::repeat_n((call, None), times));
    }

    /// Returns the number of failures that have not happened yet.
    pub(crate) fn left(&self) -> usize {
        self.0.lock().expect("no test panics here").len()
    }

    /// Makes all calls of this name fail from now on.
    pub(crate) fn fail_always(&self, call: &'static str, errno: Errno) {
        *self.1.lock().expect("no test panics here") = Always { call: Some((call, errno)), met: 0 };
    }

    /// Makes all accepts fail of the listeners of one port.
    pub(crate) fn deny(&self, port: u16, errno: Errno) {
        *self.2.lock().expect("no test panics here") = Some((port, errno));
    }

    fn pass_accept(&self, listener: BorrowedFd<'_>) -> Result<()> {
        let denied = *self.2.lock().expect("no test panics here");
        if let Some((port, errno)) = denied
            && SocketAddr::try_from(rustix::net::getsockname(listener)?).is_ok_and(|at| at.port() == port)
        {
            return Err(errno);
        }
        self.pass("accept")
    }

    /// Returns the number of failures so far of a call that always fails.
    pub(crate) fn met(&self) -> usize {
        self.1.lock().expect("no test panics here").met
    }

    /// Removes all failures that have not happened yet.
    pub(crate) fn heal(&self) {
        self.1.lock().expect("no test panics here").call = None;
        *self.2.lock().expect("no test panics here") = None;
        self.0.lock().expect("no test panics here").clear();
    }

    fn pass(&self, call: &str) -> Result<()> {
        {
            let mut always = self.1.lock().expect("no test panics here");
            if let Some((_, errno)) = always.call.filter(|(name, _)| *name == call) {
                always.met += 1;
                return Err(errno);
            }
        }
        let mut faults = self.0.lock().expect("no test panics here");
        match faults.iter().position(|(name, _)| *name == call) {
            Some(at) => faults.remove(at).and_then(|(_, errno)| errno).map_or(Ok(()), Err),
            None => Ok(()),
        }
    }
}

impl System for Faulty {
    fn socket(&self, address: &Address) -> Result<OwnedFd> {
        self.pass("socket")?;
        Kernel.socket(address)
    }

    fn bind(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()> {
        self.pass("bind")?;
        Kernel.bind(socket, address)
    }

    fn bind_source(&self, socket: BorrowedFd<'_>, source: IpAddr) -> Result<()> {
        self.pass("bind_source")?;
        Kernel.bind_source(socket, source)
    }

    fn limit_ports(&self, socket: BorrowedFd<'_>, ports: (u16, u16)) -> Result<()> {
        self.pass("limit_ports")?;
        Kernel.limit_ports(socket, ports)
    }

    fn share_port(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("share_port")?;
        Kernel.share_port(socket)
    }

    fn set_listen_options(&self, socket: BorrowedFd<'_>, options: &ListenOptions) -> Result<()> {
        self.pass("set_listen_options")?;
        Kernel.set_listen_options(socket, options)
    }

    fn set_permissions(&self, path: &Path, options: &ListenOptions) -> Result<()> {
        self.pass("set_permissions")?;
        Kernel.set_permissions(path, options)
    }

    fn exchange_names(&self, one: &Path, other: &Path) -> Result<()> {
        self.pass("exchange_names")?;
        Kernel.exchange_names(one, other)
    }

    fn rename_to_free(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass("rename_to_free")?;
        Kernel.rename_to_free(from, to)
    }

    fn steer(&self, member: BorrowedFd<'_>, to: &[Range<usize>]) -> Result<()> {
        self.pass("steer")?;
        Kernel.steer(member, to)
    }

    fn unsteer(&self, member: BorrowedFd<'_>) -> Result<()> {
        self.pass("unsteer")?;
        Kernel.unsteer(member)
    }

    fn turn_away(&self, listener: BorrowedFd<'_>) -> Result<()> {
        self.pass("turn_away")?;
        Kernel.turn_away(listener)
    }

    fn await_input(&self) -> Result<()> {
        self.pass("await_input")?;
        Kernel.await_input()
    }

    fn handshakes(&self, address: SocketAddr) -> Result<Vec<u64>> {
        self.pass("handshakes")?;
        Kernel.handshakes(address)
    }

    fn stop_listening(&self, listener: BorrowedFd<'_>) -> Result<()> {
        self.pass("stop_listening")?;
        Kernel.stop_listening(listener)
    }

    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<()> {
        self.pass("listen")?;
        Kernel.listen(socket, backlog)
    }

    fn accept(&self, listener: BorrowedFd<'_>) -> Result<OwnedFd> {
        self.pass_accept(listener)?;
        Kernel.accept(listener)
    }

    fn accept_named(&self, listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>)> {
        self.pass_accept(listener)?;
        Kernel.accept_named(listener)
    }

    fn connect(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()> {
        self.pass("connect")?;
        Kernel.connect(socket, address)
    }

    fn take_error(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("take_error")?;
        Kernel.take_error(socket)
    }

    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>> {
        self.pass("local_address")?;
        Kernel.local_address(socket)
    }

    fn peer_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>> {
        self.pass("peer_address")?;
        Kernel.peer_address(socket)
    }

    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool> {
        self.pass("is_listening")?;
        Kernel.is_listening(socket)
    }

    fn set_nonblocking(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("set_nonblocking")?;
        Kernel.set_nonblocking(socket)
    }

    fn queued(&self, listener: BorrowedFd<'_>) -> Result<usize> {
        self.pass("queued")?;
        Kernel.queued(listener)
    }

    fn peek(&self, socket: BorrowedFd<'_>) -> Result<usize> {
        self.pass("peek")?;
        Kernel.peek(socket)
    }

    fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize> {
        self.pass("receive")?;
        Kernel.receive(socket, into)
    }

    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize> {
        self.pass("send")?;
        Kernel.send(socket, bytes, more)
    }

    fn finish(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("finish")?;
        Kernel.finish(socket)
    }

    fn reset_on_close(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("reset_on_close")?;
        Kernel.reset_on_close(socket)
    }

    fn end_on_close(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("end_on_close")?;
        Kernel.end_on_close(socket)
    }

    fn has_room_once_sent(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("has_room_once_sent")?;
        Kernel.has_room_once_sent(socket)
    }

    fn unacknowledged(&self, socket: BorrowedFd<'_>) -> Result<usize> {
        self.pass("unacknowledged")?;
        Kernel.unacknowledged(socket)
    }

    fn reset(&self, socket: BorrowedFd<'_>) -> Result<()> {
        self.pass("reset")?;
        Kernel.reset(socket)
    }

    fn set_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()> {
        self.pass("set_options")?;
        Kernel.set_options(socket, options)
    }

    fn set_first_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()> {
        self.pass("set_first_options")?;
        Kernel.set_first_options(socket, options)
    }

    fn options(&self, socket: BorrowedFd<'_>) -> Result<SocketOptions> {
        self.pass("options")?;
        Kernel.options(socket)
    }

    fn readable(&self, sockets: &[BorrowedFd<'_>], ready: &mut Vec<bool>) -> Result<()> {
        self.pass("readable")?;
        Kernel.readable(sockets, ready)
    }

    fn epoll(&self) -> Result<OwnedFd> {
        self.pass("epoll")?;
        Kernel.epoll()
    }

    fn event(&self) -> Result<OwnedFd> {
        self.pass("event")?;
        Kernel.event()
    }

    fn notify(&self, event: BorrowedFd<'_>) -> Result<()> {
        self.pass("notify")?;
        Kernel.notify(event)
    }

    fn unring(&self, event: BorrowedFd<'_>) -> Result<()> {
        self.pass("unring")?;
        Kernel.unring(event)
    }

    fn wait_for(
        &self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        event: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<Woken> {
        self.pass("wait_for")?;
        Kernel.wait_for(socket, interest, event, timeout)
    }

    fn watch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        self.pass("watch")?;
        Kernel.watch(epoll, fd, token, interest)
    }

    fn watch_event(&self, epoll: BorrowedFd<'_>, event: BorrowedFd<'_>, token: u64) -> Result<()> {
        self.pass("watch_event")?;
        Kernel.watch_event(epoll, event, token)
    }

    fn rewatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        self.pass("rewatch")?;
        Kernel.rewatch(epoll, fd, token, interest)
    }

    fn watch_end(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> Result<()> {
        self.pass("watch_end")?;
        Kernel.watch_end(epoll, fd, token)
    }

    fn unwatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.pass("unwatch")?;
        Kernel.unwatch(epoll, fd)
    }

    fn wait(&self, epoll: BorrowedFd<'_>, events: &mut Events, timeout: Option<Duration>) -> Result<()> {
        self.pass("wait")?;
        Kernel.wait(epoll, events, timeout)
    }
}
