//! The context of a callback: what it sees of its connection, and asks of its loop.

use super::asks::{Asks, Connect, Learned};
use super::tag::tag;
use super::{ConnectionId, Group, Handle, Local, Note, Output, Peer, Post, Report, Waiter};
use crate::net::Address;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The request of a callback to the connection's one timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The timer stays as it was.
    #[default]
    Keep,
    Off,
    At(Instant),
}

/// A connection as its protocol sees it during one callback. It gives no access to the descriptor.
pub struct Context<'a> {
    pub(crate) out: &'a mut Output,
    pub(crate) timer: &'a mut Timer,
    pub(crate) local: &'a mut Local,
    /// The clock is read at the first call of [`Context::now`]; the value holds for the whole callback.
    pub(crate) now: &'a Cell<Option<Instant>>,
    pub(crate) post: &'a Arc<dyn Post>,
    pub(crate) token: u64,
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    /// Bytes of input that the connection may leave untaken.
    pub(crate) max_partial: usize,
    pub(crate) draining: bool,
    pub(crate) carried: Option<Carried>,
}

/// The bytes that a connection has carried, as they were on the wire, and how its pair ended: see [`Context::carried`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Carried {
    /// Bytes from the peer.
    pub received: u64,
    /// Bytes to the peer, which may not have reached it.
    pub sent: u64,
    /// True where this side of a [relay](crate::Step::Relay) ended before the other; None where neither has, or that was in another process.
    pub ended_first: Option<bool>,
}

impl Context<'_> {
    /// Appends bytes to send.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
    }

    /// Returns the output: append to it, or ask how much fits below the high-water mark.
    pub fn out(&mut self) -> &mut Output {
        self.out
    }

    /// Returns the time, read from the clock at the first call in a callback and unchanged until the callback ends. Not calling it costs nothing.
    pub fn now(&self) -> Instant {
        self.now.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.now.set(Some(now));
            now
        })
    }

    /// Sets the connection's one timer; an earlier setting is replaced. It never fires early. It fires up to 17 µs late, and in a pool
    /// that accepts up to 50 µs more, the timer slack of a thread in Linux; the wake-up and whatever the loop is busy with come on top.
    pub fn set_timer(&mut self, after: Duration) {
        // A time that the clock cannot represent never comes.
        *self.timer = self.now().checked_add(after).map_or(Timer::Off, Timer::At);
    }

    /// Sets the connection's one timer to a point in time: see [`Context::set_timer`].
    pub fn set_timer_at(&mut self, at: Instant) {
        *self.timer = Timer::At(at);
    }

    /// Stops the timer.
    pub fn clear_timer(&mut self) {
        *self.timer = Timer::Off;
    }

    /// Returns a handle that sends notes to this connection from any thread. It may outlive the connection.
    pub fn handle(&mut self) -> Handle {
        self.post.give(self.token);
        self.out.asks.add(Asks::HANDLE);
        Handle { post: self.post.clone(), token: self.token, id: self.id }
    }

    /// Sends `note` to another connection, as [`Handle::notify`] does. It cannot fail: while the inbox of the receiver's loop is full,
    /// [`Protocol::received`](crate::Protocol::received) of this connection is not called, so what it may send stays bounded.
    pub fn notify(&mut self, to: &Handle, note: impl Into<Note>) {
        let full = to.post.push(to.token, note.into(), self.waiter().as_ref());
        self.hold_if(full);
    }

    /// Makes this connection a member of a group: it gets what is published from now on. A member that joins again stays one
    /// member.
    pub fn join(&mut self, group: &Group) {
        group.join(self.post, self.token);
    }

    /// Ends the membership of a group: what was published before still comes. The end of a connection ends all of its memberships. An adoption
    /// by another service leaves them as they are; another process has other groups: see [`Group`].
    pub fn leave(&mut self, group: &Group) {
        group.leave(self.post, self.token);
    }

    /// Publishes these bytes to all members of a group; this connection too, if it is one. It cannot fail: while a loop with members is
    /// behind, [`Protocol::received`](crate::Protocol::received) of this connection is not called.
    pub fn publish(&mut self, group: &Group, bytes: impl Into<Arc<[u8]>>) {
        let full = group.push(&bytes.into(), self.waiter().as_ref());
        self.hold_if(full);
    }

    /// Returns what is told of room: once in a callback, however many of its notes find none.
    fn waiter(&self) -> Option<Waiter> {
        let sender = || -> Waiter { (self.post.clone(), self.token) };
        (!self.out.asks.has(Asks::HOLD)).then(sender)
    }

    fn hold_if(&mut self, full: bool) {
        if full {
            self.out.asks.add(Asks::HOLD);
        }
    }

    /// Begins a connect from this connection's loop. Within that time [`Protocol::connected`](crate::Protocol::connected) is told what came of it.
    /// The connection that is made runs the behaviour of this one's address. It counts for the pool's limit: where the pool is full the connect fails
    /// with `EAGAIN`, so a listener of a proxy has a lower [limit](crate::listening::Listening::limit) than its pool, and `single` has no room for
    /// it. Models that run a connection alone, `threads` and `fork`, answer `EOPNOTSUPP`. If this connection ends before it was told, or in
    /// [`Protocol::connected`](crate::Protocol::connected), the other ends with a reset; until the two are joined by a [relay](crate::Step::Relay),
    /// the other does not move in an upgrade while this one lives. What is asked for in [`Protocol::closed`](crate::Protocol::closed) is not begun.
    /// Under layers that shake hands it is told when they have, in their own time beside that; where they fail, `EPROTO` is told.
    pub fn connect(&mut self, target: &Address, within: Duration) {
        self.connect_with(target, within, Vec::new());
    }

    /// Begins a connect as [`Context::connect`] does. `first` is sent before all that layers and the protocol say: a
    /// [PROXY header](crate::layer::proxy_header::Header), such as for a target that speaks TLS behind it.
    pub fn connect_with(&mut self, target: &Address, within: Duration, first: Vec<u8>) {
        self.out.say().connects.push(Connect { target: target.clone(), within, first });
    }

    /// Holds input back: until [`Context::resume`], neither [`Protocol::received`](crate::Protocol::received) nor
    /// [`Protocol::peer_ended`](crate::Protocol::peer_ended) is called, and the peer is slowed down. Other callbacks come. The end of a peer of
    /// which no input is left is told all the same, and a reset always is. It stays when another service adopts the connection.
    pub fn pause(&mut self) {
        self.out.asks.add(Asks::PAUSE);
    }

    /// Ends [`Context::pause`]: input that was held back is offered after this callback.
    pub fn resume(&mut self) {
        self.out.asks.add(Asks::RESUME);
    }

    /// Has [`Protocol::writable`](crate::Protocol::writable) called once as soon as at most `bytes` of output are unsent, after this callback at
    /// the earliest. It always comes. Asking again replaces what was asked.
    pub fn wake_below(&mut self, bytes: usize) {
        self.out.asks.wake_below = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.out.asks.add(Asks::WAKE);
    }

    /// Gives this connection a tag, a short text for [`Selector::Tag`](crate::Selector::Tag) and lists. A tag has at most 64 bytes, the
    /// rest is cut off; an empty text removes it. It stays when another service adopts the connection.
    pub fn tag(&mut self, text: &str) {
        self.out.say().tag = Some(tag(text));
    }

    /// Reports something about this connection to the pool's observer, as [`Event::Reported`](crate::observe::Event::Reported): for example the
    /// peer's mistake for which it is ended. Only the last report of a callback counts; of each [kind](Report::kind) a loop passes on at most ten per
    /// second, or 1,000 [records](Report::record).
    pub fn report(&mut self, report: impl Into<Report>) {
        self.out.say().report = Some(report.into());
    }

    /// Returns the state that [`Service::local`](super::Service::local) made for this loop and generation; None if its type is not `T`.
    pub fn local<T: 'static>(&mut self) -> Option<&mut T> {
        self.local.downcast_mut()
    }

    /// Returns this connection's number.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns the number of the generation this connection belongs to.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true where this connection was asked to end.
    pub fn draining(&self) -> bool {
        self.draining
    }

    /// Returns what the connection has carried in all, for [`Protocol::closed`](crate::Protocol::closed); None in other callbacks, and without a
    /// pool.
    pub fn carried(&self) -> Option<Carried> {
        self.carried
    }

    /// Tells, for layers, that the peer is known now, by a `real` address where it is not the one that the connection came from. Returns false where
    /// admission turns the connection away, which is to be aborted.
    pub(crate) fn peer_is(&mut self, peer: &Peer, real: Option<SocketAddr>) -> bool {
        let (stays, answer) = self.post.late_admission().map(|late| late.admit(peer)).unzip();
        self.out.say().learned = Some(Learned { real, answer });
        stays.unwrap_or(true)
    }

    /// Returns this context, for as long as what is returned lives: for a type of your own that holds a context by value, as one that knows messages
    /// does.
    pub fn reborrow(&mut self) -> Context<'_> {
        Context { out: &mut *self.out, timer: &mut *self.timer, local: &mut *self.local, ..*self }
    }

    /// Calls the inner protocol, for layers, with a context that writes to `out` and is otherwise this connection's.
    pub fn nested<R>(&mut self, out: &mut Output, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        (out.backlog, out.leaves) = (self.out.unsent(), self.out.leaves);
        let result = call(&mut Context { out: &mut *out, ..self.reborrow() });
        if let Some(inner) = out.said.take() {
            self.out.say().join(*inner);
        }
        self.out.asks.join(std::mem::take(&mut out.asks));
        result
    }
}
