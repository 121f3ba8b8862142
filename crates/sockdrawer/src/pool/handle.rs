//! The methods of a pool that wait for none of its loops.

use super::change::checked_plan;
use super::manager::Manager;
use super::plan::{Applied, Plan};
use super::running::note_observer;
use crate::config::Config;
use crate::error::Error;
use crate::event_loop::user_code;
use crate::net::Address;
use crate::observe::Status;
use crate::operation::{Op, Selector};
use crate::protocol::{Connect, ConnectFailure, Handle};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A pool for code that its own loops run: callbacks of protocols, services, async handlers on the pool's runtime. It has the methods that wait
/// for no loop, which a [`Pool`](crate::Pool) has too; [`Pool::handle`](crate::Pool::handle) returns one.
///
/// A handle does not keep the pool running. Of a pool that has ended it tells the last state, and changes nothing any more. A service that keeps a
/// handle of its own pool is kept in memory by it, also after the pool's end.
///
/// A change of loops, of addresses or of the count of peers waits for loops: [`PoolHandle::reconfigure`] and [`PoolHandle::update`] refuse it in a
/// callback of the pool with [`Error::Invalid`]. In an observer, which is called while the pool changes, every method panics with a message that says
/// so.
///
/// ```
/// use sockdrawer::{Config, Context, Error, Input, Peer, Pool, PoolHandle, Protocol, Service, Step};
/// # use std::io::{Read, Write};
///
/// /// Tells each client how many connections another pool has.
/// #[derive(Clone)]
/// struct Count(PoolHandle);
///
/// impl Service for Count {
///     type Protocol = Count;
///     fn open(&self, _peer: &Peer) -> Count {
///         self.clone()
///     }
/// }
///
/// impl Protocol for Count {
///     fn opened(&mut self, cx: &mut Context<'_>) -> Step {
///         cx.send(self.0.status().connections.to_string().as_bytes());
///         Step::Close
///     }
///     fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step {
///         Step::Close
///     }
/// }
///
/// # struct Silent;
/// # impl Service for Silent { type Protocol = Silent; fn open(&self, _: &Peer) -> Silent { Silent } }
/// # impl Protocol for Silent { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
/// let pool = Pool::serve(Silent, "127.0.0.1:0")?;
/// let counts = Pool::serve(Count(pool.handle()), "127.0.0.1:0")?;
/// # let sockdrawer::Address::Tcp(at) = counts.addresses()[0] else { unreachable!() };
/// # let mut told = String::new();
/// # std::net::TcpStream::connect(at).unwrap().read_to_string(&mut told).unwrap();
/// # assert_eq!(told, "0");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct PoolHandle {
    pub(super) manager: Arc<dyn Manager>,
}

/// Prints the model and the addresses, without waiting: while the pool changes it prints neither.
impl fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print("PoolHandle", f)
    }
}

impl PoolHandle {
    pub(super) fn print(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.manager.unlocked() {
            Some((model, addresses)) => {
                let addresses: Vec<String> = addresses.iter().map(Address::to_string).collect();
                f.debug_struct(name).field("model", &model).field("addresses", &addresses).finish_non_exhaustive()
            }
            None => write!(f, "{name} {{ .. }}"),
        }
    }

    /// # Panics
    /// In a callback or an observer of this pool.
    #[track_caller]
    pub(super) fn waits(&self, method: &str) {
        if let Some(code) = self.manager.waited_code() {
            panic!(
                "Pool::{method} was called in {code} of its own pool and would wait for itself: call it from a job or another thread"
            );
        }
    }

    /// Panics in an observer, which is called while the pool is locked. Callbacks may call what this guards, because it waits for no loop.
    #[track_caller]
    fn locks(&self, method: &str) {
        if self.manager.waited_code() == Some(user_code::OBSERVER) {
            self.waits(method);
        }
    }

    /// Returns the running configuration, to change a copy of it.
    #[track_caller]
    pub fn config(&self) -> Config {
        self.locks("config");
        self.manager.config()
    }

    /// Returns the addresses at which the pool listens, with real ports; empty once it has stopped.
    #[track_caller]
    pub fn addresses(&self) -> Vec<Address> {
        self.locks("addresses");
        self.manager.addresses()
    }

    /// Returns what [`PoolHandle::reconfigure`] would do. Changes nothing. A plan with a change that is [refused](crate::changing::How::Refused) is no
    /// error.
    ///
    /// # Errors
    /// Mistakes in the wanted configuration by itself, as [`PoolHandle::reconfigure`] returns them.
    #[track_caller]
    pub fn plan(&self, wanted: &Config) -> Result<Plan, Error> {
        self.locks("plan");
        checked_plan(&self.manager.config(), wanted)
    }

    /// Changes the pool to what is wanted. No connection is lost, refused or ended by it. When this returns, every connection
    /// accepted from then on, by any loop, has the new generation.
    ///
    /// What is wanted is a changed copy of [`PoolHandle::config`], or a configuration made from nothing, which is applied whatever the
    /// pool is now. Of several changes that are based on the same copy one wins.
    ///
    /// # Errors
    /// What is wrong with the wanted configuration, or what the system refuses; [`Error::Conflict`] when the pool was changed since
    /// it was taken. The pool goes on as it was.
    #[track_caller]
    pub fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        self.locks("reconfigure");
        note_observer(&wanted);
        self.manager.reconfigure(wanted)
    }

    /// Changes the running configuration, also while other threads change it: `change` is given it, and is given the newer one
    /// where another change was faster. So it may be called several times, and must not wait for this pool.
    ///
    /// ```
    /// # use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
    /// # struct Silent;
    /// # impl Service for Silent { type Protocol = Silent; fn open(&self, _: &Peer) -> Silent { Silent } }
    /// # impl Protocol for Silent { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
    /// let pool = Pool::serve(Silent, "127.0.0.1:0")?;
    /// let applied = pool.update(|config| config.limit(100))?;
    /// assert_eq!((applied.revision, pool.status().limit), (2, 100));
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`PoolHandle::reconfigure`], but for conflicts.
    #[track_caller]
    pub fn update(&self, mut change: impl FnMut(Config) -> Config) -> Result<Applied, Error> {
        loop {
            match self.reconfigure(change(self.config())) {
                // Another thread's change was applied: there is progress.
                Err(Error::Conflict { .. }) => {}
                done => return done,
            }
        }
    }

    /// Brings a note of shared bytes to all connections that match, never waiting for them. Whether loops of a process before this one are
    /// slower than their senders is not told: connections there may miss it then, and those that move [together](crate::State::together) at
    /// the moment when they change owner.
    ///
    /// # Errors
    /// [`Error::InboxFull`] when a loop is slower than its senders; the other loops' connections got the note.
    /// [`Error::NotInModel`] in [`Model::Fork`](crate::Model::Fork), where only signals reach a connection.
    #[track_caller]
    pub fn notify(&self, selector: &Selector, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.locks("notify");
        let answer = self.manager.apply(Op::Notify(bytes.into()), selector)?;
        if answer.silent > 0 { Err(Error::InboxFull) } else { Ok(()) }
    }

    /// Connects to a target, as [`Context::connect`](crate::Context::connect) does for a connection, and waits for nothing. `told` hears what
    /// came of it on the thread of a loop, and must be quick: a note by the handle tells the protocol what the connection is for. Where the pool,
    /// or the loop, ends before that, it is dropped. Models that run in other processes, and `threads`, answer with `EOPNOTSUPP`. A pool of
    /// [`Connecting::on_request`](crate::connecting::Connecting::on_request) makes no other connections.
    #[track_caller]
    pub fn connect(
        &self,
        target: &Address,
        within: Duration,
        told: impl FnOnce(Result<Handle, ConnectFailure>) + Send + 'static,
    ) {
        self.locks("connect");
        self.manager.connect(Connect { target: target.clone(), within, first: Vec::new() }, Box::new(told));
    }

    /// Returns the state of the pool now.
    #[track_caller]
    pub fn status(&self) -> Status {
        self.locks("status");
        self.manager.status()
    }
}
