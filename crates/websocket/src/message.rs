//! The traits of a user: a protocol of messages, and the service that makes one for each WebSocket.

use crate::handshake;
use crate::{Close, Frame, Message, Opening, Part, Socket, code};
use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{CannotRestore, CannotSave, JobResult, Local, Note, Peer, Recipe, Saved, Saver, State, Step};
use sockdrawer_catalog::web::{Answer, Request};

/// The behaviour of one WebSocket: what [`Protocol`](sockdrawer::Protocol) is for bytes. All callbacks of a connection run one after another.
///
/// These callbacks return [`Step::Continue`], [`Step::Work`], [`Step::Close`] or [`Step::Abort`]. [`Step::Close`] is
/// [`Socket::close`] with [`code::NORMAL`].
pub trait MessageProtocol: Send + 'static {
    /// Called when the handshake is complete; nothing was received yet. Notes that came before are dropped.
    fn opened(&mut self, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Called when a whole message arrived. Messages that the peer sent before it heard of a [close](Socket::close) arrive after
    /// it. Not called where the service gives away [parts](crate::WebSocket::parts).
    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step;

    /// A part of a message arrived, where the service gives away [parts](crate::WebSocket::parts): each message has a first and a last one, which may be one. Default: the
    /// connection is aborted, and says so in a report.
    fn part(&mut self, _part: Part<'_>, socket: &mut Socket<'_>) -> Step {
        socket.report("its service gives away parts of messages, and its protocol takes none: write MessageProtocol::part");
        Step::Abort
    }

    /// Called when a message was published to a group of this connection, or sent by a handle. Default: it is sent to the peer as
    /// it is.
    fn published(&mut self, frame: Frame, socket: &mut Socket<'_>) -> Step {
        socket.send_frame(&frame);
        Step::Continue
    }

    /// Called when a note arrived that is no [`Frame`].
    fn notified(&mut self, _note: Note, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Called when the timer set by [`Socket::set_timer`] is due. It is off until it is set again.
    fn timeout(&mut self, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Called when the job asked for by [`Step::Work`] ended.
    fn job_done(&mut self, _result: JobResult, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Called when there is room for more output: see [`Protocol::writable`](sockdrawer::Protocol::writable).
    fn writable(&mut self, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Called when the pool asks this connection to end. Default: it is closed with [`code::GOING_AWAY`], which browsers report
    /// to the page.
    fn draining(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.close(code::GOING_AWAY, "");
        Step::Continue
    }

    /// Called last, when a connection has ended, with what the peer said. What is sent here is ignored. It is not called where
    /// the connection goes on under another service, or in another process: this protocol is dropped then.
    fn closed(&mut self, _close: &Close, _socket: &mut Socket<'_>) {}

    /// Called when the connection goes on with this state, which [`MessageService::restore`] made, in the middle of a frame
    /// perhaps. Time to join groups again, and to keep the handle. The timer came along.
    fn restored(&mut self, _socket: &mut Socket<'_>) -> Step {
        Step::Continue
    }

    /// Writes the state, so that a newer service, or another process, goes on with the connection: see
    /// [`Protocol::save`](sockdrawer::Protocol::save).
    ///
    /// # Errors
    /// When the state cannot be saved, which is the default: the connection stays with its service.
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Err(CannotSave::because("its protocol does not save its state"))
    }
}

/// Makes a protocol for each WebSocket: what [`Service`](sockdrawer::Service) is for bytes.
pub trait MessageService: Send + Sync + 'static {
    /// The state of one connection.
    type Protocol: MessageProtocol;

    /// Makes a new connection's state. A server may choose a subprotocol and add fields to its answer, or refuse.
    ///
    /// # Errors
    /// An answer of HTTP with which a server refuses the handshake, such as `Answer::text(403, "not you\n")`. A client whose service refuses
    /// ends the connection.
    fn open(&self, opening: &mut Opening<'_>) -> Result<Self::Protocol, Answer>;

    /// Answers a `GET` or `HEAD` that asks for no WebSocket: a page, or the health of the service. It may not block; the connection ends after
    /// it. Default: 426, and a line that says so.
    fn page(&self, _request: &Request, _peer: &Peer) -> Answer {
        handshake::nothing_else()
    }

    /// Makes the state of a connection from what an older service saved: see [`Service::restore`](sockdrawer::Service::restore).
    ///
    /// # Errors
    /// When these bytes are not a state that this service knows, which is the default: the connection stays with the older service.
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Self::Protocol, CannotRestore> {
        Err(CannotRestore::because("its service does not restore states"))
    }

    /// Returns the name and the version of the states that its protocols save. Default: none, and connections do not move to
    /// another process.
    fn state(&self) -> State {
        State::none()
    }

    /// Makes the state of a loop, once per loop and generation, reached by [`Socket::local`].
    fn local(&self) -> Box<Local> {
        Box::new(())
    }

    /// Called when a connect failed. Only in a pool that connects.
    fn connect_failed(&self, _failure: &ConnectFailure, _local: &mut Local) {}

    /// Returns the name and options from which another process builds this service: see
    /// [`Service::recipe`](sockdrawer::Service::recipe).
    fn recipe(&self) -> Option<Recipe> {
        None
    }
}
