//! Ways to break a running pool on purpose, and a private network namespace to do it in.

use crate::config::Part;
use crate::pool::Pool;
use crate::sys::{Kernel, System, private_network as enter, sockets};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// Ends a loop of a pool, or a process in models that have processes, as a bug in it would; its connections end with it. Returns false if
/// there is no such loop.
pub fn crash_loop(pool: &Pool, index: usize) -> bool {
    let part = if pool.config().model.has_processes() { Part::Process } else { Part::Loop };
    pool.crash(part, index)
}

/// Ends a part of a pool as a bug in it would; the connections and jobs that run in it end with it. `index` is the number of the part:
/// loops and workers of processes are numbered through all processes, and of threads and workers any one may be ended. A process is
/// killed. Returns false if there is no such part.
pub fn crash(pool: &Pool, part: Part, index: usize) -> bool {
    pool.crash(part, index)
}

/// Resets every connection in the accept queue of a socket, and listens again: what closing a listener does to its queue.
///
/// # Errors
/// The system's, for a socket that does not listen.
pub fn reset_queue(listener: &OwnedFd) -> io::Result<()> {
    // Every socket type of std can shut down any socket; the descriptor is a copy, closed here.
    TcpStream::from(listener.try_clone()?).shutdown(Shutdown::Read)?;
    Ok(Kernel.listen(listener.as_fd(), 4096)?)
}

/// Returns the TCP sockets of this network at a local address's port, by their inode numbers, and whether each of them listens: those of all
/// processes, without handshakes and connections that have ended.
///
/// # Errors
/// The system's error, if the kernel has no sock_diag(7).
pub fn sockets_at(address: SocketAddr) -> io::Result<Vec<(u64, bool)>> {
    Ok(sockets(address)?)
}

/// Moves this thread, and the threads that it starts later, into a new network namespace with a loopback device of its own, whose counters
/// count no traffic of other programs. Call it first in the program.
///
/// # Errors
/// Where neither root nor unprivileged user namespaces are at hand.
pub fn private_network() -> io::Result<()> {
    Ok(enter()?)
}
