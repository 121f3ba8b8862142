//! A running pool, as the code sees it that started it.

use super::handle::PoolHandle;
use super::listeners::{Inherited, rehearse};
use super::loops;
#[cfg(not(feature = "upgrade"))]
use super::manager::Manager as Movable;
use super::manager::{Manager, SHUT_DOWN};
#[cfg(feature = "upgrade")]
use super::moving::Movable;
#[cfg(feature = "processes")]
use super::processes::helpers;
use super::validate::{effective_limit, validate_start};
use crate::admission::AcceptState;
use crate::admission::Reject;
use crate::behaviour::IntoBehaviour;
use crate::config::{Config, Listening, Part};
use crate::error::Error;
use crate::net::{Address, AddressError, SocketOptions};
use crate::observe::{ConnectionStatus, Status};
use crate::operation::{Adopted, Drain, Drained, Op, Outcome, Page, Selector};
use crate::protocol::ConnectionId;
use crate::sync::{Mutex, lock};
use crate::sys::{descriptors_open, panics};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A running pool. Clones speak to the same one; when the last is dropped, the pool ends and its connections with it, so keep
/// one, or call [`Pool::shutdown`] or [`Pool::join`]. A service of the pool that holds a clone keeps it alive: such a pool ends by a shutdown.
///
/// Callbacks, and async handlers on the pool's own runtime, may call the methods of [`PoolHandle`], which wait for no loop. Those of a running pool that
/// are described here wait for its loops, but for [`Pool::handle`] and `listener`: in a callback they panic at once, with a message that says so.
/// Call them from a [`Job`](crate::Job) on a worker (without workers a job runs in the loop), or from another thread; in async code, with the feature
/// `tokio`, await `update_async`, `drain_async` and `shutdown_async`. In an observer each of both panics.
///
/// After an [`Upgrade`](crate::Upgrade), what is done to connections by a [`Selector`] is done to those too that stayed in the processes
/// before this one; only [`Pool::adopt`] leaves them alone. Their generations are before all of this pool's. A process that is stopped or
/// stuck, and does not answer, holds such a call up for 8 to 11 s, or for 2 to 5 s more than a drain or purge may take.
#[derive(Clone)]
#[must_use = "a pool ends when its last handle is dropped: keep it, or wait for its end by `join`"]
pub struct Pool {
    handle: PoolHandle,
    _last: Arc<StopWhenDropped>,
}

impl Deref for Pool {
    type Target = PoolHandle;

    fn deref(&self) -> &PoolHandle {
        &self.handle
    }
}

/// Prints the model and the addresses, as a [`PoolHandle`] does.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.print("Pool", f)
    }
}

struct StopWhenDropped(Arc<dyn Manager>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop("every handle of it was dropped");
    }
}

/// Starts a pool of the members that its model asks for; with the listening sockets of a program that it replaces, if there are some: then
/// it takes no connection before it is opened.
pub(crate) fn start(config: Config, inherited: Option<Inherited>) -> Result<Arc<dyn Movable>, Error> {
    note_observer(&config);
    Ok(match config.model {
        #[cfg(feature = "processes")]
        model if model.has_processes() => helpers::start(config, inherited)?,
        _ => loops::start(config, inherited)?,
    })
}

pub(super) fn note_observer(config: &Config) {
    if config.observer.is_some() {
        panics::observed();
    }
}

impl Pool {
    #[track_caller]
    fn apply(&self, method: &str, op: Op, selector: &Selector) -> Outcome {
        self.waits(method);
        // An operation that a model cannot do is done to no connection.
        self.handle.manager.apply(op, selector).unwrap_or_default()
    }

    /// Starts a pool. When this returns, it accepts, or connects.
    ///
    /// # Errors
    /// See [`Error`], which is sorted by the side at fault. Nothing is left behind.
    pub fn start(config: Config) -> Result<Pool, Error> {
        Ok(Pool::of(start(config, None)?))
    }

    /// Checks a configuration without starting anything: whether its settings go together, not whether the system grants them.
    ///
    /// # Errors
    /// As [`Pool::start`] before it asks the system for anything.
    pub fn check(config: &Config) -> Result<(), Error> {
        validate_start(config)
    }

    /// Checks what the system can be asked of a configuration before it serves: whether the limit fits into the descriptors of this process,
    /// and whether each address could be bound now. Nothing listens, and nothing is started.
    ///
    /// # Errors
    /// As [`Pool::check`], and as [`Pool::start`] for limits and addresses.
    pub fn rehearse(config: &Config) -> Result<(), Error> {
        validate_start(config)?;
        // Processes have descriptors of their own.
        if !config.model.has_processes() {
            effective_limit(config, descriptors_open())?;
        }
        config.listened().iter().try_for_each(|listening| rehearse(config, listening))
    }

    pub(crate) fn of(manager: Arc<dyn Manager>) -> Pool {
        Pool { _last: Arc::new(StopWhenDropped(manager.clone())), handle: PoolHandle { manager } }
    }

    /// Serves one address with the defaults: short for [`Config::accept`] with [`Config::listen`], and [`Pool::start`].
    ///
    /// # Errors
    /// [`Error::Address`] when the text is no address, and as [`Pool::start`].
    pub fn serve(
        behaviour: impl IntoBehaviour,
        address: impl TryInto<Address, Error: Into<AddressError>>,
    ) -> Result<Pool, Error> {
        Pool::start(Config::accept(behaviour).listen(address))
    }

    /// Returns the part of this pool that its own callbacks may use, and that does not keep it running.
    #[must_use]
    pub fn handle(&self) -> PoolHandle {
        self.handle.clone()
    }

    /// Gives an address up for another pool of this process: what this returns is that address with its sockets, for
    /// [`Config::listening`] of a pool that starts or changes, or for [`Listening::goes_on_from`]. In between no connection is refused: what
    /// comes, and what waited here, is accepted by the other pool. Connections that were accepted stay. Nothing listens there any more once
    /// all copies of the value are dropped unused.
    ///
    /// ```
    /// # use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
    /// # struct Silent;
    /// # impl Service for Silent { type Protocol = Silent; fn open(&self, _: &Peer) -> Silent { Silent } }
    /// # impl Protocol for Silent { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
    /// let old = Pool::start(Config::accept(Silent).listen("127.0.0.1:0"))?;
    /// let addresses = old.addresses();
    /// let new = Pool::start(Config::accept(Silent).listening(old.give_up(&addresses[0])?))?;
    /// assert_eq!((old.addresses(), new.addresses()), (vec![], addresses));
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchListener`] when the pool does not listen there; [`Error::Stopped`] and [`Error::HandingOver`] as of a change.
    pub fn give_up(&self, address: &Address) -> Result<Listening, Error> {
        self.waits("give_up");
        self.handle.manager.pass_on(address)
    }

    /// Stops accepting, or connecting: what comes waits in the kernel. When this returns, no loop accepts any more. Readiness is false
    /// before the first loop stops.
    #[track_caller]
    pub fn suspend(&self) {
        self.waits("suspend");
        self.handle.manager.set_accept_state(&AcceptState::Suspended);
    }

    /// Turns away all that come, and those that wait, until [`Pool::resume`]; they are counted as rejected. Connections stay.
    #[track_caller]
    pub fn refuse(&self, how: Reject) {
        self.waits("refuse");
        self.handle.manager.set_accept_state(&AcceptState::Refusing(how));
    }

    /// Goes on after [`Pool::suspend`] or [`Pool::refuse`].
    #[track_caller]
    pub fn resume(&self) {
        self.waits("resume");
        self.handle.manager.set_accept_state(&AcceptState::Open);
    }

    /// Stops accepting at one address: what comes there waits in the kernel. The others go on.
    ///
    /// # Errors
    /// [`Error::NoSuchListener`] when the pool does not listen there.
    #[track_caller]
    pub fn suspend_listener(&self, address: &Address) -> Result<(), Error> {
        self.waits("suspend_listener");
        self.handle.manager.set_listener_accept_state(address, &AcceptState::Suspended)
    }

    /// Turns away all that come to one address. The others go on.
    ///
    /// # Errors
    /// As [`Pool::suspend_listener`].
    #[track_caller]
    pub fn refuse_listener(&self, address: &Address, how: Reject) -> Result<(), Error> {
        self.waits("refuse_listener");
        self.handle.manager.set_listener_accept_state(address, &AcceptState::Refusing(how))
    }

    /// Goes on at one address, if the pool does.
    ///
    /// # Errors
    /// As [`Pool::suspend_listener`].
    #[track_caller]
    pub fn resume_listener(&self, address: &Address) -> Result<(), Error> {
        self.waits("resume_listener");
        self.handle.manager.set_listener_accept_state(address, &AcceptState::Open)
    }

    /// Moves connections to the newest generation, between two of their events: the old service saves their state and the new
    /// one restores it; sockets, buffers and timers are untouched. Those that cannot move stay as they are; in
    /// [`Model::Fork`](crate::Model::Fork) none can.
    #[track_caller]
    pub fn adopt(&self, selector: &Selector) -> Adopted {
        self.apply("adopt", Op::Adopt, selector).adopted
    }

    /// Asks connections to end, those that have received part of a message, or work on one, after answering it. Returns when
    /// all have ended, at the deadline at the latest: what is left then is cut off. A connection that moves from another process to this one
    /// at that moment may be missed.
    #[track_caller]
    pub fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        Drained::told(self.apply("drain", Op::Drain(how), selector))
    }

    /// Ends connections: each protocol may say goodbye, and every byte already written is delivered to a peer that reads;
    /// after `within` what is left is reset. Requests that are being received or worked on are not answered. Returns when all have
    /// ended, after `within` at the latest. A connection that moves from another process to this one at that moment may be missed.
    #[track_caller]
    pub fn purge(&self, selector: &Selector, within: Duration) -> Drained {
        Drained::told(self.apply("purge", Op::Purge(within), selector))
    }

    /// Ends connections with a reset. Returns how many, all of them as [`Drained::cut`]. Those whose loop user code keeps from answering for 5 s are
    /// not among them, nor are those of a process that does not answer ([`Drained::silent`]): they end as soon as it goes on.
    #[track_caller]
    pub fn kill(&self, selector: &Selector) -> Drained {
        let outcome = self.apply("kill", Op::Kill, selector);
        Drained { silent: outcome.silent, ..Drained::of((0, outcome.done)) }
    }

    /// Calls connections by a short text, as [`Context::tag`](crate::Context::tag) does; an empty one takes their tags away. Returns
    /// how many. None in [`Model::Fork`](crate::Model::Fork), where only signals reach a connection.
    #[track_caller]
    pub fn tag(&self, selector: &Selector, text: &str) -> usize {
        self.apply("tag", Op::Tag(text.to_owned()), selector).done
    }

    /// Gives live connections the socket options of the running configuration; how many took them. None in
    /// [`Model::Fork`](crate::Model::Fork).
    #[track_caller]
    pub fn apply_options(&self, selector: &Selector) -> usize {
        self.waits("apply_options");
        let options = self.handle.manager.config().settings.options;
        self.apply("apply_options", Op::SetOptions(options), selector).done
    }

    /// Returns a connection's socket options, read from the kernel. It reports twice the buffer size that was asked for. None for one in a
    /// process of its own.
    #[track_caller]
    pub fn options(&self, id: ConnectionId) -> Option<SocketOptions> {
        self.apply("options", Op::Options, &Selector::Id(id)).options
    }

    /// Returns the connections that match. Those of a loop that user code keeps busy for 5 s are left out; in
    /// [`Model::Threads`](crate::Model::Threads), where that costs one connection only, it is listed after 1 s as far as others can
    /// see it, as working.
    pub fn connections(&self, selector: &Selector) -> Vec<ConnectionStatus> {
        self.each_connection(selector).collect()
    }

    /// Returns the connections that match, as [`Pool::connections`] lists them, one by one in the order of their numbers, for lists that are too long
    /// for memory. A loop is asked for at most 256 connections at a time, as the list goes on, and serves the others in between. A connection that
    /// stays for all of that time is in the list once; those that come and go meanwhile are in it or not.
    #[track_caller]
    pub fn each_connection(&self, selector: &Selector) -> impl Iterator<Item = ConnectionStatus> + use<'_> {
        let (selector, mut next) = (selector.clone(), Some(Page::first(selector)));
        let parts = std::iter::from_fn(move || {
            let page = next.take()?;
            let answer = self.apply("connections", Op::List(page), &selector);
            next = page.after(&answer, &selector);
            Some(page.of(answer))
        });
        parts.flatten()
    }

    /// Visits what [`Service::local`](crate::Service::local) made, in each loop and for each live generation, where it is a
    /// `T`; runs on the loops' threads.
    #[track_caller]
    pub fn gather<T: 'static, R: Send + 'static>(&self, visit: impl Fn(&mut T) -> R + Send + Sync + 'static) -> Vec<R> {
        self.waits("gather");
        let results = Arc::new(Mutex::new(Vec::new()));
        let gathered = results.clone();
        self.handle.manager.visit_locals(Arc::new(move |local| {
            if let Some(result) = local.downcast_mut::<T>().map(&visit) {
                lock(&gathered).push(result);
            }
        }));
        std::mem::take(&mut *lock(&results))
    }

    /// Waits until the status satisfies `condition`; false when `within` passed first.
    #[track_caller]
    pub fn wait(&self, within: Duration, mut condition: impl FnMut(&Status) -> bool) -> bool {
        self.waits("wait");
        self.handle.manager.wait(within, &mut condition)
    }

    /// Ends the pool: accepts what already waits in the kernel, stops listening, drains all connections and stops its threads.
    #[track_caller]
    pub fn shutdown(&self, how: Drain) -> Drained {
        self.waits("shutdown");
        self.handle.manager.shutdown(how, SHUT_DOWN)
    }

    /// Waits until the pool has stopped: by [`Pool::shutdown`] on another thread, or because it gave up.
    ///
    /// # Errors
    /// [`Error::Stopped`] when it gave up, with the reason.
    #[track_caller]
    pub fn join(&self) -> Result<(), Error> {
        self.waits("join");
        self.handle.manager.join()
    }

    /// Takes the connections of the behaviour in force, which is a [`Behaviour::listener`](crate::Behaviour::listener).
    ///
    /// # Panics
    /// When it is another: then there is nothing to take.
    #[cfg(feature = "tokio")]
    pub fn listener(&self) -> crate::tasks::Listener {
        let behaviour = self.config().behaviour;
        let queue =
            crate::tasks::queue(&behaviour).expect("a pool of another behaviour has no listener: use Behaviour::listener()");
        crate::tasks::Listener::new(queue.clone(), self.clone())
    }

    /// Ends a part as a bug in it would, for tests of what survives that. Its connections end with it. False when there is no
    /// such part.
    pub(crate) fn crash(&self, part: Part, index: usize) -> bool {
        self.handle.manager.crash(part, index)
    }
}
