//! Ways to break a running pool on purpose, and a network of one's own to do it in.

use crate::config::Part;
use crate::pool::Pool;
use crate::sys::{Kernel, System, private_network as enter};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// Ends one of a pool's loops, or of its processes where it has some, as a bug in it would; its connections end with it. False when
/// there is no such loop.
pub fn crash_loop(pool: &Pool, index: usize) -> bool {
    pool.crash_loop(index)
}

/// Ends a part of a pool as a bug in it would; what runs in it ends with it. `index` says which of several; loops and workers of
/// processes are numbered through the processes, and of threads and workers any one may be meant. A process is killed. False when there
/// is no such part.
pub fn crash(pool: &Pool, part: Part, index: usize) -> bool {
    pool.crash(part, index)
}

/// Resets every connection that waits at a listening socket, and listens again: what closing a listener does to its queue.
///
/// # Errors
/// The system's, for a socket that does not listen.
pub fn reset_queue(listener: &OwnedFd) -> io::Result<()> {
    // Any socket can be shut down through any socket type of std; the descriptor is a copy, closed here.
    TcpStream::from(listener.try_clone()?).shutdown(Shutdown::Read)?;
    Ok(Kernel.listen(listener.as_fd(), 4096)?)
}

/// Moves this thread, and those it starts later, into a new network namespace with a loopback of its own, whose counters count
/// nobody else's traffic. Call it before anything else.
///
/// # Errors
/// Where neither root nor unprivileged user namespaces are at hand.
pub fn private_network() -> io::Result<()> {
    Ok(enter()?)
}
