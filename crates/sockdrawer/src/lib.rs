//! sockdrawer holds sockets so that the program around them can change: protocol, options, listeners, limits and threads of a
//! running TCP or Unix-socket service change without a lost connection.
//!
//! Start at [`Protocol`], what you write, and [`Pool`], what runs it.

// Without the feature `processes`, the parts of the event loop that serve other processes are unused.
#![cfg_attr(not(feature = "processes"), allow(dead_code))]

#[cfg(panic = "abort")]
compile_error!(
    "sockdrawer needs panic = \"unwind\": with \"abort\" one connection's panic would end every connection. \
     Remove `panic = \"abort\"` from the profile in Cargo.toml."
);

mod admission;
mod behaviour;
mod blocking;
mod chunks;
mod clock;
mod config;
mod error;
mod event_loop;
#[cfg(feature = "processes")]
mod exec;
mod ipc;
pub mod layer;
mod limit;
mod listen;
mod model;
mod net;
mod observe;
mod operation;
mod pool;
mod protocol;
mod sync;
mod sys;
#[cfg(feature = "tokio")]
pub mod tasks;
pub mod testing;
pub mod upgrade;
mod wake;

pub use admission::{
    AcceptRate, AcceptRequest, Admission, AfterAccept, BeforeAccept, Capacity, Limits, NewPeer, OnFull, PerPeer, Prefixes, Reject,
};
pub use behaviour::{Behaviour, Build};
pub use blocking::{Connection, Wakeup};
pub use config::{
    Config, Connecting, Death, Endpoint, Late, Listening, Model, NotesWhenFull, Part, Replace, RestartPolicy, Restarts, Settings,
};
pub use error::Error;
pub use net::{Address, AddressError, Bind, Keepalive, Listen, ListenOptions, ListenRequest, SocketOptions};
pub use observe::{
    Alarm, ConnectionState, ConnectionStatus, Counts, Event, GenerationStatus, ListenerStatus, LoopStatus, NoObserver, Observer,
    ProcessStatus, Readiness, Status,
};
pub use operation::{Adopted, Drain, Drained, Selector};
#[cfg(feature = "processes")]
pub use pool::processes;
pub use pool::{Applied, Change, How, Plan, Pool};
pub use protocol::*;
pub use upgrade::Upgrade;

/// Raises the soft limit of this process's descriptors (`RLIMIT_NOFILE`) to the hard limit, and returns the new limit. A program calls
/// it once, before it starts a pool; the library never calls it.
///
/// # Errors
/// The error of setrlimit(2). None is expected: raising the soft limit up to the hard limit is always allowed.
pub fn raise_descriptor_limit() -> std::io::Result<usize> {
    Ok(sys::raise_descriptor_limit()?)
}

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
/// let queues = sockdrawer::accept_queues(listener.local_addr()?)?;
/// assert_eq!((queues.len(), queues[0].waiting), (1, 1));
/// # drop(waiting);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn accept_queues(address: std::net::SocketAddr) -> std::io::Result<Vec<AcceptQueue>> {
    let queues = sys::accept_queues(address)?;
    Ok(queues.into_iter().map(|(waiting, backlog)| AcceptQueue { waiting, backlog }).collect())
}
