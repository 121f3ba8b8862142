//! Addresses to listen at, what makes the sockets there, and how full their accept queues are.

pub use crate::config::Listening;
pub use crate::net::{Bind, Listen, ListenOptions, ListenRequest};

/// The accept queue of one listening socket: connections whose handshake is complete and that were not accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections in the queue.
    pub waiting: u32,
    /// The maximum: the backlog given to listen(2), or `net.core.somaxconn` if that is less. The kernel takes one more.
    pub backlog: u32,
}

/// The accept queues of all sockets that listen at `address` in this network namespace, whichever process owns them; empty if no socket
/// listens there.
///
/// # Errors
/// The system's error, if the kernel has no sock_diag(7).
///
/// ```
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let waiting = std::net::TcpStream::connect(listener.local_addr()?)?;
/// let queues = sockdrawer::listening::accept_queues(listener.local_addr()?)?;
/// assert_eq!((queues.len(), queues[0].waiting), (1, 1));
/// # drop(waiting);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn accept_queues(address: std::net::SocketAddr) -> std::io::Result<Vec<AcceptQueue>> {
    let queues = crate::sys::accept_queues(address)?;
    Ok(queues.into_iter().map(|(waiting, backlog)| AcceptQueue { waiting, backlog }).collect())
}
