//! A WebSocket: the handshake, frames in and out, pings, and the close, around the protocol of a user.

use crate::close::Fault;
use crate::deflate::{self, Window};
use crate::frame::{self, Opcode};
use crate::handshake::{self, Opening};
use crate::link::Link;
use crate::message::{MessageProtocol, MessageService};
use crate::partial::Partial;
use crate::received::{self, Received};
use crate::settings::Shared;
use crate::socket::Socket;
use crate::{Close, Frame, Part, code};
use serde::{Deserialize, Serialize};
use sockdrawer::{CannotRestore, CannotSave, Closed, Context, Input, JobResult, Note, Peer, Protocol, Saved, Saver, Side, Step};
use sockdrawer_catalog::web::Request;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks in a row, each half of the time to a ping after the one before, at which nothing had come: the peer has been silent for the whole time, and half
/// of it more at most. So no clock is read for a message.
const SILENT_LOOKS: u8 = 3;
/// Bytes that are decompressed in one callback, up to the end of a message. A read may become a thousand times as long: all at once it
/// would keep the loop from other connections, and the answers would be in memory before it is seen whether the peer takes any.
const UNPACKED_AT_ONCE: usize = 1 << 20;

/// A connection of a [`WebSocket`](crate::WebSocket).
pub struct Connection<S: MessageService> {
    shared: Arc<Shared<S>>,
    stage: Stage<S::Protocol>,
    link: Link,
}

enum Stage<P> {
    /// The request, or its answer, is awaited.
    Handshake(Box<Handshake>),
    Open(P),
    /// The end was asked for: nothing else follows.
    Over,
}

struct Handshake {
    peer: Peer,
    /// The key that a client sent.
    key: Option<String>,
}

/// Prints how far the connection is.
impl<S: MessageService> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match self.stage {
            Stage::Handshake(_) => "handshake",
            Stage::Open(_) => "open",
            Stage::Over => "over",
        };
        f.debug_struct("Connection").field("stage", &stage).field("link", &self.link).finish_non_exhaustive()
    }
}

impl<S: MessageService> Connection<S> {
    fn new(shared: Arc<Shared<S>>, stage: Stage<S::Protocol>, side: Side) -> Connection<S> {
        Connection { shared, stage, link: Link::new(side) }
    }

    pub(crate) fn fresh(shared: Arc<Shared<S>>, peer: &Peer) -> Connection<S> {
        let handshake = Handshake { peer: peer.clone(), key: None };
        Connection::new(shared, Stage::Handshake(Box::new(handshake)), peer.side())
    }

    /// Makes a callback of the protocol: every one goes through here.
    fn call(&mut self, cx: &mut Context<'_>, call: impl FnOnce(&mut S::Protocol, &mut Socket<'_>) -> Step) -> Step {
        let Stage::Open(protocol) = &mut self.stage else { return Step::Continue };
        let step = call(protocol, &mut Socket { cx: cx.reborrow(), link: &mut self.link, times: &self.shared.times });
        match step {
            Step::Continue | Step::Abort => step,
            Step::Work(_) => {
                self.link.has_job = true;
                step
            }
            Step::Close | Step::EndOutput => {
                self.link.close(code::NORMAL, "", &self.shared.times, cx);
                Step::Continue
            }
            _ => panic!("a WebSocket was delegated or relayed, whose peer sends frames: take its messages, or use no WebSocket"),
        }
    }

    /// Answers a request that opens no WebSocket.
    fn refuse(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Step {
        cx.send(bytes);
        self.stage = Stage::Over;
        Step::Close
    }

    /// Goes on with the handshake. None: it is complete.
    fn shake(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Option<Step> {
        let Stage::Handshake(handshake) = &mut self.stage else { return None };
        let result = match &handshake.key {
            None => accepted(&self.shared, &handshake.peer, input, cx),
            Some(key) => connected(&self.shared, &handshake.peer, key, input),
        };
        match result {
            Ok(None) => Some(Step::Continue),
            Ok(Some((protocol, deflates))) => {
                self.link.deflates = deflates;
                self.stage = Stage::Open(protocol);
                self.link.wait(self.shared.times.ping_after / 2, cx);
                match self.call(cx, |protocol, socket| protocol.opened(socket)) {
                    Step::Continue => None,
                    step => Some(step),
                }
            }
            Err(Refused::Answer(bytes)) => {
                input.take_all();
                Some(self.refuse(&bytes, cx))
            }
            Err(Refused::Server(why)) => {
                cx.report(why);
                self.stage = Stage::Over;
                Some(Step::Abort)
            }
        }
    }

    /// Takes what comes next.
    fn next<'a>(&mut self, input: &mut Input<'a>) -> Result<Received<'a>, Fault> {
        let mut partial = self.link.take(|extra| extra.partial.take());
        let (of, bounds) = ((self.link.side, self.link.deflates.is_some()), (self.shared.max_message, self.shared.parts));
        let received = received::next(input, &mut partial, of, bounds);
        if partial.is_some() {
            self.link.extra_mut().partial = partial;
        }
        received
    }

    /// Gives a message away, or a part of one where parts are asked for.
    fn give(&mut self, part: Part<'_>, cx: &mut Context<'_>) -> Step {
        let parts = self.shared.parts;
        self.call(cx, |protocol, socket| match parts {
            true => protocol.part(part, socket),
            false => protocol.message(part.message, socket),
        })
    }

    /// Does what was received asks for. None: there is nothing.
    fn handle(&mut self, received: Received<'_>, cx: &mut Context<'_>) -> Result<Option<Step>, Fault> {
        Ok(Some(match received {
            Received::Nothing => return Ok(None),
            Received::Data(message) => self.give(Part { message, is_first: true, is_last: true }, cx),
            Received::Part(_) => {
                let Some(mut partial) = self.link.take(|extra| extra.partial.take()) else { return Ok(None) };
                let step = self.give(partial.part(), cx);
                partial.forget_part();
                if !partial.is_whole() {
                    self.link.extra_mut().partial = Some(partial);
                }
                step
            }
            Received::Ping(payload) => {
                if !self.link.close_sent {
                    frame::write(Opcode::Pong, payload, self.link.side, cx.out());
                }
                Step::Continue
            }
            Received::Pong => Step::Continue,
            Received::Close(code, reason) => {
                self.link.close(code, "", &self.shared.times, cx);
                self.link.extra_mut().closed = Some(Close { code, reason, is_clean: true });
                // The server ends the connection, so that the client need not linger: RFC 6455, 7.1.1.
                if self.link.side == Side::Accepted { Step::Close } else { Step::Continue }
            }
        }))
    }

    /// Ends the connection for a mistake of the peer, of which it is told.
    fn fail(&mut self, fault: &Fault, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.report(format!("{}: closed with {}", fault.why, fault.code));
        input.take_all();
        self.link.close(fault.code, &fault.why, &self.shared.times, cx);
        let extra = self.link.extra_mut();
        extra.partial = None;
        extra.closed.get_or_insert_with(Close::abnormal);
        Step::Close
    }

    /// Closes a connection whose peer reads more slowly than others send to it, where it is open: what it was sent before still arrives.
    fn is_overloaded(&mut self, cx: &mut Context<'_>) -> bool {
        let is_behind = cx.out().unsent() > self.shared.max_behind;
        if is_behind && !self.link.close_sent {
            let why = "too slow";
            cx.report(format!("{why}: closed with {}", code::OVERLOAD));
            self.link.close(code::OVERLOAD, why, &self.shared.times, cx);
        }
        is_behind
    }

    /// Acts where the connection's own time has come.
    fn due(&mut self, cx: &mut Context<'_>) -> Step {
        if self.link.close_sent {
            return Step::Close;
        }
        let times = &self.shared.times;
        // While no input is taken nothing can be heard, and none is taken from a peer that has much to take itself, and does.
        if self.link.is_taking(cx.out().unsent()) || self.link.is_held() {
            self.link.silent = 0;
        }
        self.link.silent = self.link.silent.saturating_add(1);
        if self.link.is_pinged && self.link.silent > SILENT_LOOKS {
            cx.report(format!("no pong within {:?}: ended", times.pong_within));
            return Step::Abort;
        }
        self.link.is_pinged = self.link.silent >= SILENT_LOOKS;
        let next = if self.link.is_pinged {
            frame::write(Opcode::Ping, b"", self.link.side, cx.out());
            times.pong_within
        } else {
            times.ping_after / 2
        };
        self.link.wait(next, cx);
        Step::Continue
    }
}

/// The protocol of a handshake that is complete, and the compression that was agreed on.
type Begun<S> = (<S as MessageService>::Protocol, Option<Window>);

/// Reason why a handshake opens no WebSocket.
enum Refused {
    /// The bytes of the answer.
    Answer(Vec<u8>),
    /// Refused by the server, or because of its answer.
    Server(String),
}

/// Does a server's side of the handshake. Returns `None` while the request is not whole.
fn accepted<S: MessageService>(
    shared: &Shared<S>,
    peer: &Peer,
    input: &mut Input<'_>,
    cx: &mut Context<'_>,
) -> Result<Option<Begun<S>>, Refused> {
    let request = match Request::read(input) {
        Ok(None) => return Ok(None),
        Ok(Some(request)) => request,
        Err(answer) => {
            cx.report(format!("a request that opens no WebSocket was answered with {}", answer.status()));
            return Err(Refused::Answer(answer.bytes(&Request::default())));
        }
    };
    let refuse = |answer: sockdrawer_catalog::web::Answer| Refused::Answer(answer.bytes(&request));
    if !handshake::is_upgrade(&request) {
        return Err(refuse(shared.service.page(&request, peer)));
    }
    let key = handshake::key(&request).map_err(refuse)?;
    let mut opening = Opening { request: &request, peer, subprotocol: None, fields: Vec::new() };
    let protocol = shared.service.open(&mut opening).map_err(refuse)?;
    let agreed = deflate::accept(handshake::extensions(&request)).filter(|_| shared.deflates);
    let deflates = agreed.map(|(window, answer)| {
        opening.field("Sec-WebSocket-Extensions", answer);
        window
    });
    cx.send(handshake::answer(key, &opening).as_bytes());
    Ok(Some((protocol, deflates)))
}

/// Does a client's side of the handshake. Returns `None` while the answer is not whole.
fn connected<S: MessageService>(
    shared: &Shared<S>,
    peer: &Peer,
    key: &str,
    input: &mut Input<'_>,
) -> Result<Option<Begun<S>>, Refused> {
    let Some(answer) = shared.asked.answered(key, input).map_err(Refused::Server)? else { return Ok(None) };
    let mut opening = Opening { request: &answer, peer, subprotocol: None, fields: Vec::new() };
    let refused = |_| Refused::Server("the service refused the WebSocket that the server opened".to_owned());
    let protocol = shared.service.open(&mut opening).map_err(refused)?;
    // The answer was checked.
    Ok(Some((protocol, deflate::chosen(handshake::extensions(&answer)).ok().flatten())))
}

impl<S: MessageService> Protocol for Connection<S> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(handshake) = &mut self.stage
            && self.link.side == Side::Connected
        {
            let key = handshake.key.insert(handshake::new_key());
            cx.send(self.shared.asked.request(key).as_bytes());
        }
        self.link.wait(self.shared.times.handshake_within, cx);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let Some(step) = self.shake(input, cx) {
            return step;
        }
        self.link.silent = 0;
        let mut unpacked = 0;
        while !self.link.is_held() {
            if self.link.is_closed() {
                // Nothing follows a close frame.
                input.take_all();
                break;
            }
            if unpacked >= UNPACKED_AT_ONCE && !input.is_empty() {
                self.link.rest(cx);
                break;
            }
            let received = self.next(input).and_then(|received| {
                unpacked += received.unpacked();
                self.handle(received, cx)
            });
            match received {
                Ok(Some(Step::Continue)) => {}
                Ok(Some(step)) => return step,
                Ok(None) => break,
                Err(fault) => return self.fail(&fault, input, cx),
            }
        }
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        let now = cx.now();
        if self.link.rests {
            self.link.go_on(cx);
        }
        if self.link.due.is_some_and(|due| due <= now) {
            self.link.due = None;
            let step = match (&self.stage, self.link.side) {
                (Stage::Open(_), _) => self.due(cx),
                (Stage::Over, _) => Step::Continue,
                (_, Side::Accepted) => {
                    cx.report("the client did not complete the handshake in time: answered with 408");
                    let late = sockdrawer_catalog::web::Answer::error(408, "no handshake came in time");
                    self.refuse(&late.bytes(&Request::default()), cx)
                }
                (_, Side::Connected) => {
                    cx.report("the server did not answer the handshake in time");
                    Step::Abort
                }
            };
            if !matches!(step, Step::Continue) {
                return step;
            }
        }
        if self.link.timer().is_some_and(|timer| timer <= now) {
            self.link.take(|extra| extra.timer.take());
            self.link.follow(cx);
            return self.call(cx, |protocol, socket| protocol.timeout(socket));
        }
        self.link.follow(cx);
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.link.has_job = false;
        self.call(cx, |protocol, socket| protocol.job_done(result, socket))
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match Frame::of(note) {
            Ok(_) if self.is_overloaded(cx) => Step::Continue,
            Ok(frame) => self.call(cx, |protocol, socket| protocol.published(frame, socket)),
            Err(note) => self.call(cx, |protocol, socket| protocol.notified(note, socket)),
        }
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        self.link.had_room = true;
        self.call(cx, |protocol, socket| protocol.writable(socket))
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        match self.stage {
            Stage::Open(_) => self.call(cx, |protocol, socket| protocol.draining(socket)),
            _ => Step::Close,
        }
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if why == Closed::Adopted {
            // It goes on, with another protocol.
            return;
        }
        let close = self.link.take(|extra| extra.closed.take()).unwrap_or_else(Close::abnormal);
        let _ = self.call(cx, |protocol, socket| {
            protocol.closed(&close, socket);
            Step::Continue
        });
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        if let Some([due, timer]) = self.link.take(|extra| extra.left.take()) {
            self.link.due = due.and_then(|left| cx.now().checked_add(left));
            if let Some(timer) = timer {
                self.link.extra_mut().timer = cx.now().checked_add(timer);
            }
        }
        self.link.go_on(cx);
        self.link.follow(cx);
        self.call(cx, |protocol, socket| protocol.restored(socket))
    }

    /// Returns true where the peer waits for the answer to a message of which a part was taken.
    fn owes(&self) -> bool {
        self.link.extra().is_some_and(|extra| extra.partial.is_some())
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        let now = to.now();
        let left = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(now));
        let Link { silent, is_pinged, is_paused, close_sent, deflates, due, .. } = self.link;
        let handshake = match &self.stage {
            Stage::Handshake(handshake) => Some(handshake.key.clone()),
            Stage::Open(_) if !self.link.is_closed() => None,
            _ => return Err(CannotSave::because("its WebSocket is closed, or was refused, and ends")),
        };
        let (due, timer) = (left(due), left(self.link.timer()));
        let partial = self.link.take(|extra| extra.partial.take());
        let moved = Moved { handshake, due, timer, silent, is_pinged, is_paused, close_sent, partial, deflates };
        let saved = to.value(&moved);
        if let Some(partial) = moved.partial {
            self.link.extra_mut().partial = Some(partial);
        }
        saved?;
        match &mut self.stage {
            Stage::Open(protocol) => protocol.save(to),
            _ => Ok(()),
        }
    }
}

/// The part of a connection that moves beside its protocol. Fields are added at the end alone, behind a new version.
#[derive(Serialize, Deserialize)]
struct Moved {
    /// The handshake is not complete; with the key that a client sent.
    handshake: Option<Option<String>>,
    due: Option<Duration>,
    timer: Option<Duration>,
    silent: u8,
    is_pinged: bool,
    is_paused: bool,
    close_sent: bool,
    partial: Option<Partial>,
    deflates: Option<Window>,
}

impl<S: MessageService> Connection<S> {
    pub(crate) fn moved(shared: Arc<Shared<S>>, peer: &Peer, from: &mut Saved<'_>) -> Result<Connection<S>, CannotRestore> {
        let moved: Moved = from.value()?;
        if !shared.parts && moved.partial.as_ref().is_some_and(Partial::is_begun) {
            return Err(CannotRestore::because("part of a message was given away, and its service takes whole ones"));
        }
        let stage = match moved.handshake {
            Some(key) => Stage::Handshake(Box::new(Handshake { peer: peer.clone(), key })),
            None => Stage::Open(shared.service.restore(peer, from)?),
        };
        let mut connection = Connection::new(shared, stage, peer.side());
        let Moved { silent, is_pinged, is_paused, close_sent, deflates, .. } = moved;
        let link = &mut connection.link;
        (link.silent, link.is_pinged, link.is_paused, link.close_sent) = (silent, is_pinged, is_paused, close_sent);
        link.deflates = deflates;
        let extra = link.extra_mut();
        extra.left = Some([moved.due, moved.timer]);
        extra.partial = moved.partial;
        Ok(connection)
    }
}
