//! Holds sockets so that the program around them can change: protocol, options, listeners, limits and threads of a running TCP or Unix-socket
//! service change without a lost connection, and a new build of the program takes over its live connections.
//!
//! A [`Protocol`] is the behaviour of one connection: a state machine without sockets and clock. A [`Service`] makes one for each connection, and a
//! [`Pool`] runs them:
//!
//! ```
//! use sockdrawer::{Address, Context, Error, Input, Peer, Pool, Protocol, Service, Step};
//! use std::io::{Read, Write};
//!
//! /// Sends back every byte that a client sends.
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Protocol = Echo;
//!     fn open(&self, _peer: &Peer) -> Echo {
//!         Echo
//!     }
//! }
//!
//! impl Protocol for Echo {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         cx.send(input.take_all());
//!         Step::Continue
//!     }
//! }
//!
//! let pool = Pool::serve(Echo, "127.0.0.1:0")?;
//! # let Address::Tcp(at) = pool.addresses()[0] else { unreachable!() };
//! # let mut client = std::net::TcpStream::connect(at).unwrap();
//! # client.write_all(b"hello").unwrap();
//! # let mut answer = [0; 5];
//! # client.read_exact(&mut answer).unwrap();
//! # assert_eq!(&answer, b"hello");
//! // While clients are connected: one loop more, and at most 10,000 connections.
//! pool.update(|config| config.loops(2).limit(10_000))?;
//! # Ok::<(), Error>(())
//! ```
//!
//! | for | see |
//! | --- | --- |
//! | the behaviour of a connection | [`Protocol`], [`Step`], [`Context`], [`Input`], [`Output`], [`Timers`]; messages in a stream: [`codec`] |
//! | messages between connections | [`Handle`], [`Note`], [`Group`] |
//! | slow work | [`Job`]; code that blocks: [`blocking`], [`Step::Delegate`]; async code: [`tasks`]; other programs: [`Behaviour::exec`] |
//! | threads and processes that run it | [`Model`]; what dies is replaced: [`restarting`] |
//! | settings, addresses, limits | [`Config`], [`Settings`], [`listening`], [`admission`] |
//! | clients: pools that connect | [`connecting`] |
//! | changes of a running pool | [`PoolHandle::update`], [`PoolHandle::reconfigure`], and [`PoolHandle::plan`] before them; in callbacks: [`PoolHandle`] |
//! | the end of connections | [`Pool::drain`], [`Pool::purge`], [`Pool::kill`], [`Pool::shutdown`]; which of them: [`Selector`] |
//! | state that outlives a change | [`Saver`], [`Saved`], [`State`], [`Pool::adopt`] |
//! | a new build of the program | [`Upgrade`], [`upgrade`] |
//! | PROXY headers, and filters of one's own | [`layer`]; TLS is the crate `sockdrawer-tls` |
//! | events, counters, status | [`observe`] |
//! | tests without sockets and sleeps | [`testing`] |
//!
//! The folder `docs/guide` of the repository has a guide for each of these; `writing-a-protocol.md` is the first. The feature `processes` has the models
//! `fork` and `prefork`, `upgrade` the live upgrade, `tokio` the model `tasks`, `axum` lets `axum::serve` take a pool's listener, and `testing` drives
//! protocols by scripts. A program compiles those that it names.

#![warn(missing_debug_implementations)]
// Without these features, the parts of the event loop that serve other processes, and tests, are unused.
#![cfg_attr(not(all(feature = "processes", feature = "upgrade", feature = "testing")), allow(dead_code))]

#[cfg(panic = "abort")]
compile_error!(
    "sockdrawer needs panic = \"unwind\": with \"abort\" one connection's panic would end every connection. \
     Remove `panic = \"abort\"` from the profile in Cargo.toml."
);

pub mod admission;
mod behaviour;
pub mod blocking;
mod chunks;
mod clock;
mod config;
#[cfg(test)]
mod documented_defaults;
mod error;
mod event_loop;
#[cfg(feature = "processes")]
mod exec;
mod gather;
mod ipc;
pub mod layer;
mod limit;
mod listen;
pub mod listening;
mod model;
mod net;
pub mod observe;
mod operation;
mod pool;
mod protocol;
mod sync;
mod sys;
#[cfg(feature = "tokio")]
pub mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "upgrade")]
pub mod upgrade;
mod wake;

pub use behaviour::{Behaviour, Build, BuildLayer, IntoBehaviour};
pub use config::{Config, Endpoint, Model, Settings};
pub use error::Error;
pub use net::{Address, AddressError, Keepalive, SocketOptions};
pub use operation::{Adopted, Drain, Drained, Selector};
pub use pool::{Applied, Pool, PoolHandle};
#[cfg(feature = "processes")]
pub use pool::{layers, processes};
pub use protocol::{
    After, CannotRestore, CannotSave, Carried, Closed, Closing, ConnectionId, Context, Delegate, Field, Group, Groups, Handle,
    Input, Job, JobError, JobResult, Local, Note, NotifyError, Output, Peer, Protocol, Receiving, Recipe, Report, Saved, Saver,
    Service, Side, State, Step, Timers,
};
#[cfg(feature = "upgrade")]
pub use upgrade::Upgrade;

/// Messages out of a stream of bytes, and back into it: see [`Codec`](codec::Codec).
pub mod codec {
    pub use crate::protocol::{Codec, Lines, Prefixed, TooLong};
}

/// Making connections: targets, sources, rates, and failures.
pub mod connecting {
    pub use crate::config::{Connecting, Late};
    pub use crate::protocol::{Connect, ConnectFailure};
}

/// Effects of a change, before it is made: see [`PoolHandle::plan`].
pub mod changing {
    pub use crate::pool::{Change, How, Plan};
}

/// Restarts after the death of a loop, a worker or a process.
pub mod restarting {
    pub use crate::config::{Part, Restarts};
}

/// Raises the soft limit of this process's descriptors (`RLIMIT_NOFILE`) to the hard limit, and returns the new limit. A program calls
/// it once, before it starts a pool; the library never calls it.
///
/// # Errors
/// The error of setrlimit(2). None is expected: raising the soft limit up to the hard limit is always allowed.
pub fn raise_descriptor_limit() -> std::io::Result<usize> {
    Ok(sys::raise_descriptor_limit()?)
}

/// Undoes what would stay of this process's ancestors in its signals: an ignored SIGCHLD, with which no child can be waited for, and signals
/// that are blocked in this thread and those that it starts. It also handles SIGXFSZ, which would end the process where a limit on the size of
/// files (`ulimit -f`) is met: the write fails instead. A program calls it once, first of all in `main`. The library never calls it,
/// but wherever it starts a process it undoes an ignored SIGCHLD.
pub fn reset_signals() {
    sys::signals::expect_children();
    sys::signals::bear_full_files();
    sys::signals::unblock();
}
