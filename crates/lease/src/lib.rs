//! Leases of client connections, for threads and async tasks at once: a pool of connections of any kind, with a queue that does not lie.
//!
//! A [`Pool`] keeps connections that [`Connect`] or [`ConnectAsync`] makes, by target. A [`Lease`] is one of them until it is dropped.
//!
//! ```
//! use sockdrawer_lease::{BoxError, Connect, Pool, Settings};
//! use std::io::{Read, Write};
//! use std::net::{SocketAddr, TcpStream};
//! use std::time::{Duration, Instant};
//!
//! struct Tcp;
//! impl Connect for Tcp {
//!     type Target = SocketAddr;
//!     type Connection = TcpStream;
//!     fn connect(&self, target: &SocketAddr, timeout: Duration) -> Result<TcpStream, BoxError> {
//!         Ok(TcpStream::connect_timeout(target, timeout)?)
//!     }
//! }
//!
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let server = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     let (mut stream, _) = listener.accept().unwrap();
//! #     std::io::copy(&mut stream.try_clone().unwrap(), &mut stream)
//! # });
//! let pool = Pool::new(Tcp, Settings { max: 8, ..Settings::default() })?;
//! for _ in 0..2 {
//!     let mut connection = pool.lease(&server, Instant::now() + Duration::from_secs(1))?;
//!     connection.write_all(b"ping")?;
//!     let mut answer = [0; 4];
//!     connection.read_exact(&mut answer)?;
//!     assert_eq!(&answer, b"ping");
//! }
//! assert_eq!(pool.status().free, 1);
//! # Ok::<(), BoxError>(())
//! ```
//!
//! # Promises
//!
//! - A connection that comes back goes directly to the waiter whose turn it is. No newcomer overtakes a waiter for that target, unless
//!   a [`Policy`] says so.
//! - [`Settings::max`] and [`Settings::max_per_target`] are exact: what is being connected or closed counts until it is gone.
//! - A future that is dropped, a holder that panics, a connect that hangs loses no place, no turn and no connection.
//! - Connects are the pool's: they have a time of their own, end for no caller, and are begun only where a waiter, or
//!   [`Settings::min_free`], has need of them, and no return is expected to come sooner.
//! - A connection in use is replaced before the end of its lifetime, where there is room.
//! - An [`Error`] says why there was no connection; [`Stats`] and [`Event`]s say how the pool does.
//!
//! # Not promised
//!
//! A connection that was free for less than [`Settings::check_after`] is leased unchecked, and its peer may have closed it. Targets are
//! served in turn only as far as the maximum of the pool makes them compete: see [`Settings::max_per_target`]. A lease is not taken away from
//! its holder, however long it has it.
//!
//! # Without this pool
//!
//! The [`engine`] is the pool without I/O, clock and threads.

mod connect;
pub mod engine;
mod error;
mod gone;
mod histogram;
mod lease;
mod policy;
mod pool;
mod random;
mod request;
mod runners;
#[cfg(test)]
mod schedules;
mod settings;
mod shared;
#[cfg(feature = "sockets")]
pub mod sockets;
mod stats;
mod sync;
mod workers;

pub use connect::{BoxError, Connect, ConnectAsync, Target};
pub use engine::{Returned, Status};
pub use error::{ConnectError, Error};
pub use gone::Gone;
pub use histogram::Histogram;
pub use lease::{Lease, LeaseFuture};
pub use policy::Policy;
pub use pool::Pool;
pub use random::Random;
pub use request::Request;
pub use runners::Spawned;
pub use settings::{Order, Settings};
pub use stats::{Event, Reason, Refusal, Stats};
