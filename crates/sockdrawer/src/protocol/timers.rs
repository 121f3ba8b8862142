//! Several timers of one connection.

use super::Context;
use std::time::{Duration, Instant};

/// Timers of a protocol that needs more than one, told apart by keys. They keep the connection's one timer on the nearest of them, so the
/// protocol does not call [`Context::set_timer`] itself.
///
/// A connection has one timer because most need no more, and an idle connection is 64 bytes of the event loop, its timer included; a
/// timer that is set to a later time again and again costs next to nothing. These are a list in the protocol's state instead: 24 bytes,
/// and an allocation once a timer is set. Setting a timer takes time in proportion to the number of those that are set, so they are for
/// a dozen deadlines of a connection, not for thousands.
///
/// ```
/// use sockdrawer::testing::Driver;
/// use sockdrawer::{Closed, Context, Input, Peer, Protocol, Service, Step, Timers};
/// use std::time::Duration;
///
/// #[derive(PartialEq)]
/// enum Deadline {
///     /// The client is silent: it is asked whether it is there.
///     Ping,
///     /// The client has not logged in.
///     Login,
/// }
///
/// struct Session {
///     timers: Timers<Deadline>,
/// }
/// # struct Sessions;
/// # impl Service for Sessions {
/// #     type Protocol = Session;
/// #     fn open(&self, _peer: &Peer) -> Session {
/// #         Session { timers: Timers::new() }
/// #     }
/// # }
///
/// impl Protocol for Session {
///     fn opened(&mut self, cx: &mut Context<'_>) -> Step {
///         self.timers.set(Deadline::Login, Duration::from_secs(10), cx);
///         self.timers.set(Deadline::Ping, Duration::from_secs(4), cx);
///         Step::Continue
///     }
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
///         self.timers.set(Deadline::Ping, Duration::from_secs(4), cx);
///         if input.take_all() == b"login" {
///             self.timers.clear(&Deadline::Login, cx);
///         }
///         Step::Continue
///     }
///     fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
///         while let Some(deadline) = self.timers.due(cx) {
///             match deadline {
///                 Deadline::Login => return Step::Close,
///                 Deadline::Ping => {
///                     cx.send(b"ping");
///                     self.timers.set(Deadline::Ping, Duration::from_secs(4), cx);
///                 }
///             }
///         }
///         Step::Continue
///     }
/// }
///
/// let mut connection = Driver::open(Sessions);
/// connection.advance(Duration::from_secs(9));
/// assert_eq!((connection.sent(), connection.closed()), (b"pingping".to_vec(), None));
/// connection.receive(b"login");
/// assert_eq!(connection.timer(), Some(Duration::from_secs(4)));
/// connection.advance(Duration::from_secs(5));
/// assert_eq!((connection.sent(), connection.closed()), (b"ping".to_vec(), None));
///
/// let mut silent = Driver::open(Sessions);
/// silent.advance(Duration::from_secs(10));
/// assert_eq!(silent.closed(), Some(Closed::Orderly));
/// ```
///
/// # Saving and restoring
///
/// The timers are part of the protocol's state, so the protocol saves them: not as points in time, which mean nothing in another process,
/// but as the [durations left](Timers::left). In [`Protocol::restored`](crate::Protocol::restored) it sets them again. The connection's one
/// timer comes along by itself, and is replaced by that.
///
/// ```
/// # use sockdrawer::testing::Driver;
/// # use sockdrawer::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Saved, Saver, Service, Step, Timers};
/// # use std::time::Duration;
/// #[derive(Clone, PartialEq, serde::Serialize, serde::Deserialize)]
/// enum Deadline {
///     Ping,
///     Login,
/// }
///
/// struct Session {
///     timers: Timers<Deadline>,
///     /// What `restore` read, until `restored` sets it.
///     left: Vec<(Deadline, Duration)>,
/// }
///
/// # struct Sessions;
/// impl Service for Sessions {
///     type Protocol = Session;
///     fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Session, CannotRestore> {
///         Ok(Session { timers: Timers::new(), left: from.value()? })
///     }
/// #     fn open(&self, _peer: &Peer) -> Session {
/// #         Session { timers: Timers::new(), left: Vec::new() }
/// #     }
/// }
///
/// impl Protocol for Session {
///     fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
///         let left: Vec<_> = self.timers.left(to.now()).collect();
///         to.value(&left)
///     }
///     fn restored(&mut self, cx: &mut Context<'_>) -> Step {
///         for (deadline, left) in self.left.drain(..) {
///             self.timers.set(deadline, left, cx);
///         }
///         Step::Continue
///     }
/// #     fn opened(&mut self, cx: &mut Context<'_>) -> Step {
/// #         self.timers.set(Deadline::Login, Duration::from_secs(10), cx);
/// #         self.timers.set(Deadline::Ping, Duration::from_secs(4), cx);
/// #         Step::Continue
/// #     }
/// #     fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
/// #         Step::Continue
/// #     }
/// #     fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
/// #         while let Some(deadline) = self.timers.due(cx) {
/// #             cx.send(if deadline == Deadline::Ping { b"ping" } else { b"login" });
/// #         }
/// #         Step::Continue
/// #     }
/// }
/// # let mut connection = Driver::open(Sessions);
/// # connection.advance(Duration::from_secs(1));
/// # let mut connection = connection.save_and_restore(Sessions).expect("it moves");
/// # connection.advance(Duration::from_secs(3));
/// # assert_eq!(connection.sent(), b"ping");
/// # connection.advance(Duration::from_secs(6));
/// # assert_eq!(connection.sent(), b"login");
/// ```
#[derive(Clone, Debug)]
pub struct Timers<K> {
    /// The nearest is the last; of those at one time, the first that was set.
    set: Vec<(Instant, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Timers<K> {
        Timers::new()
    }
}

impl<K> Timers<K> {
    /// Makes timers of which none is set.
    pub const fn new() -> Timers<K> {
        Timers { set: Vec::new() }
    }

    /// Returns the timers that are set, the nearest first, and the time left until each is due; zero for those that are overdue. In
    /// [`Protocol::save`](crate::Protocol::save), `now` is [`Saver::now`](crate::Saver::now).
    pub fn left(&self, now: Instant) -> impl Iterator<Item = (&K, Duration)> {
        self.set.iter().rev().map(move |(at, key)| (key, at.saturating_duration_since(now)))
    }

    /// Returns, in [`Protocol::timeout`](crate::Protocol::timeout), the key of a timer that is due, the one that is due for longest first; it is off
    /// until it is set again. None when no other is due; the connection's timer is then set to the nearest. A delegation stops the connection's
    /// timer: asked after it, this sets it again.
    pub fn due(&mut self, cx: &mut Context<'_>) -> Option<K> {
        let is_due = self.nearest().is_some_and(|at| at <= cx.now());
        let due = if is_due { self.set.pop() } else { None };
        self.follow(cx);
        due.map(|(_, key)| key)
    }

    fn nearest(&self) -> Option<Instant> {
        self.set.last().map(|(at, _)| *at)
    }

    /// Sets the connection's timer to the nearest.
    fn follow(&self, cx: &mut Context<'_>) {
        match self.nearest() {
            Some(at) => cx.set_timer_at(at),
            None => cx.clear_timer(),
        }
    }
}

impl<K: PartialEq> Timers<K> {
    /// Sets the timer of this key; an earlier setting of it is replaced. It fires as exactly as the connection's timer does:
    /// see [`Context::set_timer`].
    pub fn set(&mut self, key: K, after: Duration, cx: &mut Context<'_>) {
        match cx.now().checked_add(after) {
            Some(at) => self.set_at(key, at, cx),
            // A time that the clock cannot represent never comes.
            None => self.clear(&key, cx),
        }
    }

    /// Sets the timer of this key to a point in time: see [`Timers::set`].
    pub fn set_at(&mut self, key: K, at: Instant, cx: &mut Context<'_>) {
        let before = self.nearest();
        self.remove(&key);
        let place = self.set.partition_point(|(other, _)| *other > at);
        self.set.insert(place, (at, key));
        self.changed(before, cx);
    }

    /// Stops the timer of this key, where it is set.
    pub fn clear(&mut self, key: &K, cx: &mut Context<'_>) {
        let before = self.nearest();
        self.remove(key);
        self.changed(before, cx);
    }

    fn remove(&mut self, key: &K) {
        self.set.retain(|(_, other)| other != key);
    }

    /// Tells the loop of a change, but for a timer that is not the nearest.
    fn changed(&self, before: Option<Instant>, cx: &mut Context<'_>) {
        if self.nearest() != before {
            self.follow(cx);
        }
    }
}
