//! A WebSocket as its protocol sees it: messages out, and everything else that a callback asks for.

use crate::deflate;
use crate::frame::{self, Opcode};
use crate::link::Link;
use crate::settings::Times;
use crate::{Frame, Message, close};
use sockdrawer::{ConnectionId, Context, Group, Handle, Note, Output, Side};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// A WebSocket as its protocol sees it during one callback.
pub struct Socket<'a> {
    pub(crate) cx: Context<'a>,
    pub(crate) link: &'a mut Link,
    pub(crate) times: &'a Times,
}

impl std::fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("id", &self.id()).field("close_sent", &self.link.close_sent).finish_non_exhaustive()
    }
}

impl Socket<'_> {
    /// Sends text. After a [close](Socket::close), by either side, nothing is sent any more.
    pub fn text(&mut self, text: &str) {
        self.send(Message::Text(text));
    }

    /// Sends bytes.
    pub fn binary(&mut self, bytes: &[u8]) {
        self.send(Message::Binary(bytes));
    }

    /// Sends a message of either kind.
    pub fn send(&mut self, message: Message<'_>) {
        let packed = self.link.deflates.and_then(|window| deflate::pack(message.bytes(), window));
        match packed {
            Some(packed) if !self.link.close_sent => {
                frame::write_compressed(message.opcode(), &packed, self.link.side, self.cx.out());
            }
            _ => self.write(message.opcode(), message.bytes()),
        }
    }

    /// Sends a message that was encoded before.
    pub fn send_frame(&mut self, frame: &Frame) {
        match (self.link.side, self.link.deflates) {
            _ if self.link.close_sent => {}
            (Side::Accepted, Some(deflate::LARGEST)) => send_compressed(frame, self.cx.out()),
            (Side::Accepted, _) => self.cx.send(frame.bytes()),
            _ => self.send(frame.message()),
        }
    }

    /// Sends a ping of at most 125 bytes; what is longer is cut off. The pong is not told: see [`WebSocket::ping_after`](crate::WebSocket::ping_after)
    /// for pings that find out whether the peer is there.
    pub fn ping(&mut self, payload: &[u8]) {
        self.write(Opcode::Ping, &payload[..payload.len().min(frame::MAX_CONTROL)]);
    }

    fn write(&mut self, opcode: Opcode, payload: &[u8]) {
        if !self.link.close_sent {
            frame::write(opcode, payload, self.link.side, self.cx.out());
        }
    }

    /// Closes the connection: sends a close frame, and waits for the peer's, until [`WebSocket::close_within`](crate::WebSocket::close_within). The
    /// second call, and one after the peer's close, do nothing. A reason of more than 123 bytes is cut off.
    ///
    /// # Panics
    /// When the code may not be sent: it is none of those of [`code`](crate::code), nor from 3000 to 4999. A bug of the protocol, which ends its connection.
    #[track_caller]
    pub fn close(&mut self, code: u16, reason: &str) {
        assert!(close::is_sendable(code), "the code {code} may not be sent in a close frame");
        self.link.close(code, reason, self.times, &mut self.cx);
    }

    /// Returns whether a close frame was sent: nothing else will be.
    pub fn is_closing(&self) -> bool {
        self.link.close_sent
    }

    /// Makes this connection a member of a group: see [`Context::join`].
    pub fn join(&mut self, group: &Group) {
        self.cx.join(group);
    }

    /// Ends the membership of a group: see [`Context::leave`].
    pub fn leave(&mut self, group: &Group) {
        self.cx.leave(group);
    }

    /// Publishes a message to all members of a group: see [`Context::publish`]. It is encoded once for all.
    pub fn publish(&mut self, group: &Group, message: Message<'_>) {
        self.cx.publish(group, Frame::new(message));
    }

    /// Returns a handle that sends notes to this connection from any thread: a [`Frame`] to its peer, any other to
    /// [`notified`](crate::MessageProtocol::notified).
    pub fn handle(&mut self) -> Handle {
        self.cx.handle()
    }

    /// Sends a note to another connection: see [`Context::notify`].
    pub fn notify(&mut self, to: &Handle, note: impl Into<Note>) {
        self.cx.notify(to, note);
    }

    /// Sets the protocol's one timer; an earlier setting is replaced. The connection's pings do not use it.
    pub fn set_timer(&mut self, after: Duration) {
        let at = self.now().checked_add(after);
        self.link.extra_mut().timer = at;
        self.link.follow(&mut self.cx);
    }

    /// Stops the timer.
    pub fn clear_timer(&mut self) {
        self.link.take(|extra| extra.timer.take());
        self.link.follow(&mut self.cx);
    }

    /// Holds messages back: see [`Context::pause`]. Pings are answered, and a close is heard, after [`Socket::resume`].
    pub fn pause(&mut self) {
        self.link.is_paused = true;
        self.cx.pause();
    }

    /// Ends [`Socket::pause`].
    pub fn resume(&mut self) {
        self.link.is_paused = false;
        self.cx.resume();
    }

    /// Has [`writable`](crate::MessageProtocol::writable) called once as soon as at most `bytes` of output are unsent: see [`Context::wake_below`].
    pub fn wake_below(&mut self, bytes: usize) {
        self.cx.wake_below(bytes);
    }

    /// Bytes left below the high-water mark: see [`Output::room`](sockdrawer::Output::room).
    pub fn room(&mut self) -> usize {
        self.cx.out().room()
    }

    /// Gives this connection a tag: see [`Context::tag`].
    pub fn tag(&mut self, text: &str) {
        self.cx.tag(text);
    }

    /// Reports something about this connection to the pool's observer: see [`Context::report`].
    pub fn report(&mut self, message: impl Into<String>) {
        self.cx.report(message);
    }

    /// Returns the state that [`MessageService::local`](crate::MessageService::local) made for this loop; `None` if its type is
    /// not `T`.
    pub fn local<T: 'static>(&mut self) -> Option<&mut T> {
        self.cx.local()
    }

    /// Returns the time of this callback.
    pub fn now(&self) -> Instant {
        self.cx.now()
    }

    /// This connection's number.
    pub fn id(&self) -> ConnectionId {
        self.cx.id()
    }

    /// Returns whether this connection was asked to end.
    pub fn draining(&self) -> bool {
        self.cx.draining()
    }
}

/// Appends a frame as a server sends it to a client with compression. The members of a group in a loop get it one after the other: it is compressed for the first.
fn send_compressed(frame: &Frame, out: &mut Output) {
    thread_local!(static LAST: RefCell<Option<(Frame, Vec<u8>)>> = const { RefCell::new(None) });
    LAST.with_borrow_mut(|last| {
        // It is held here, so that no other frame has its place.
        let is_last = |of: &Frame| std::ptr::eq(of.bytes(), frame.bytes());
        if !last.as_ref().is_some_and(|(of, _)| is_last(of)) {
            let (message, mut packed) = (frame.message(), Output::default());
            match deflate::pack(message.bytes(), deflate::LARGEST) {
                Some(bytes) => frame::write_compressed(message.opcode(), &bytes, Side::Accepted, &mut packed),
                None => packed.push(frame.bytes()),
            }
            *last = Some((frame.clone(), packed.bytes().to_vec()));
        }
        last.iter().for_each(|(_, packed)| out.push(packed));
    });
}
