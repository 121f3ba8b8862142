//! sockdrawer holds sockets so that the program around them can change: protocol, options, listeners, limits and threads of a
//! running TCP or Unix-socket service change without a lost connection.
//!
//! Start at [`Protocol`], what you write, and [`Pool`], what runs it.

// What loops do for the sake of other processes is used by none without them.
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
mod wake;

pub use admission::{
    AcceptRate, AcceptRequest, Admission, AfterAccept, BeforeAccept, Capacity, Limits, NewPeer, PerPeer, Prefixes,
};
pub use behaviour::{Behaviour, Build};
pub use blocking::{Connection, Waited};
pub use config::{
    Alarm, Config, Connecting, Death, Endpoint, Late, Listening, Model, NotesWhenFull, OnFull, Part, Reject, Replace,
    RestartPolicy, Restarts, Settings,
};
pub use error::Error;
pub use net::{Address, AddressError, Bind, Keepalive, Listen, ListenOptions, SocketOptions, Wanted};
pub use observe::{
    ConnectionState, ConnectionStatus, Counts, Event, GenerationStatus, ListenerStatus, LoopStatus, NoObserver, Observer,
    ProcessStatus, Readiness, Status,
};
pub use operation::{Adopted, Drain, Drained, Selector};
#[cfg(feature = "processes")]
pub use pool::processes;
pub use pool::{Applied, Change, How, Plan, Pool};
pub use protocol::*;

/// Raises this process's descriptor limit as far as it may without privileges; what it is now. A program calls it once, first
/// of all; the library never does by itself.
///
/// # Errors
/// The system's, which is not expected: the hard limit is always allowed.
pub fn raise_descriptor_limit() -> std::io::Result<usize> {
    Ok(sys::raise_descriptor_limit()?)
}

/// The queue of a socket that listens: connections that are complete and were not accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// How many wait.
    pub waiting: u32,
    /// How many may: what was asked of listen(2), or `net.core.somaxconn` where that was less. The kernel takes one more.
    pub backlog: u32,
}

/// The queues of all sockets that listen for `address` in this network of this machine, whoever has them; empty where there is none.
///
/// # Errors
/// The system's, where it has no sock_diag(7).
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
