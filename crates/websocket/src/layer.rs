//! WebSocket as a layer: any protocol of bytes, carried by messages.

use crate::close::{self, Fault};
use crate::frame::{self, Opcode};
use crate::handshake::{self, Asked, Opening};
use crate::partial::Partial;
use crate::received::{self, Received};
use crate::{Request, code};
use serde::{Deserialize, Serialize};
use sockdrawer::layer::{Filter, Filtering, Progress, Refused};
use sockdrawer::{CannotRestore, CannotSave, Input, Output, Peer, Saved, Saver, Side, State};
use sockdrawer_catalog::web::Answer;
use std::sync::Arc;

/// A head of HTTP waits for its rest up to this length.
const MAX_HEAD: usize = 8 * 1024;

/// A layer that carries the bytes of any protocol by WebSocket, as MQTT and others are for browsers: all that a callback sends is a message, and the messages of the
/// peer are input, whose borders do not matter. On either side, below TLS where both are used.
///
/// ```
/// use sockdrawer::layer::Layer;
/// use sockdrawer::testing::Driver;
/// use sockdrawer_catalog::ping::Ping;
/// use sockdrawer_websocket::Carrier;
///
/// let mut connection = Driver::open(Layer::new(Carrier::server(), Ping));
/// connection.receive(b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
/// connection.receive(b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
/// assert!(connection.sent().starts_with(b"HTTP/1.1 101 "));
/// connection.receive(b"\x82\x84\0\0\0\0Ping");
/// assert_eq!(connection.sent(), b"\x82\x04Pong");
/// ```
#[derive(Clone, Debug)]
pub struct Carrier {
    shared: Arc<Carried>,
}

#[derive(Clone, Debug)]
struct Carried {
    asked: Asked,
    opcode: Opcode,
}

impl Carrier {
    /// Makes a layer for a pool that accepts, at any path.
    pub fn server() -> Carrier {
        Carrier { shared: Arc::new(Carried { asked: Asked::default(), opcode: Opcode::Binary }) }
    }

    /// Makes a layer for a pool that connects: the URL says the host and the target of the request. Returns `None` where it is no
    /// URL such as `ws://example.org/chat`.
    pub fn client(url: &str) -> Option<Carrier> {
        let asked = Asked::by(url)?;
        Some(Carrier::server().with(|carried| carried.asked = asked))
    }

    /// Sends text. Bytes that are not UTF-8 go as bytes all the same. Default: bytes.
    #[must_use]
    pub fn text(self) -> Carrier {
        self.with(|carried| carried.opcode = Opcode::Text)
    }

    /// Offers a subprotocol, on the connecting side. On the accepting side, speaks it: of those that a client offers, the first that is
    /// spoken is chosen. A browser that offers subprotocols ends a connection for which none is chosen. Default: none.
    #[must_use]
    pub fn subprotocol(self, name: impl Into<String>) -> Carrier {
        self.with(|carried| carried.asked.subprotocols.push(name.into()))
    }

    /// Adds a field to the request, on the connecting side.
    #[must_use]
    pub fn field(self, name: impl Into<String>, value: impl Into<String>) -> Carrier {
        self.with(|carried| carried.asked.fields.push((name.into(), value.into())))
    }

    fn with(mut self, set: impl FnOnce(&mut Carried)) -> Carrier {
        set(Arc::make_mut(&mut self.shared));
        self
    }
}

impl Filtering for Carrier {
    type Filter = CarrierFilter;

    fn filter(&self, peer: &Peer) -> CarrierFilter {
        let own =
            Own { is_client: peer.side() == Side::Connected, stage: Carrying::Handshake(None), partial: None, close_sent: false };
        CarrierFilter { shared: self.shared.clone(), own, peer_closed: None, has_begun: false }
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<CarrierFilter, CannotRestore> {
        Ok(CarrierFilter { shared: self.shared.clone(), own: from.value()?, peer_closed: None, has_begun: false })
    }

    fn saves_handshakes(&self) -> bool {
        true
    }

    fn state(&self) -> State {
        State::of("websocket", 1)
    }

    fn longest_record(&self) -> usize {
        MAX_HEAD
    }

    fn needs_peer_address(&self) -> bool {
        false
    }
}

/// A connection of [`Carrier`].
#[derive(Debug)]
pub struct CarrierFilter {
    shared: Arc<Carried>,
    own: Own,
    peer_closed: Option<u16>,
    /// A frame has begun of which nothing was taken: its header is not whole, or it is a control frame.
    has_begun: bool,
}

/// The part that moves.
#[derive(Debug, Serialize, Deserialize)]
struct Own {
    is_client: bool,
    stage: Carrying,
    partial: Option<Partial>,
    close_sent: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Carrying {
    /// Handshake, with the key that a client sent.
    Handshake(Option<String>),
    Open,
}

impl CarrierFilter {
    fn side(&self) -> Side {
        if self.own.is_client { Side::Connected } else { Side::Accepted }
    }

    /// Returns the code with which the peer closed the WebSocket, where it closed first: see [`code`].
    pub fn peer_closed(&self) -> Option<u16> {
        self.peer_closed
    }

    fn close(&mut self, code: u16, reason: &str, wire: &mut Output) {
        if !std::mem::replace(&mut self.own.close_sent, true) {
            frame::write(Opcode::Close, &close::payload(code, reason), self.side(), wire);
        }
    }

    /// Goes on with the handshake.
    fn shake(&mut self, key: Option<String>, wire: &mut Input<'_>, back: &mut Output) -> Result<Progress, Refused> {
        let is_whole = match key {
            Some(key) => self.shared.asked.answered(&key, wire).map_err(Refused::because)?.is_some(),
            None => match Request::read(wire) {
                Ok(None) => false,
                Ok(Some(request)) => {
                    let answer =
                        answer(&request, &self.shared.asked.subprotocols).map_err(|answer| refused(&answer, &request, back))?;
                    back.push(answer.as_bytes());
                    true
                }
                Err(answer) => return Err(refused(&answer, &Request::default(), back)),
            },
        };
        if !is_whole {
            return Ok(Progress::NeedMore);
        }
        self.own.stage = Carrying::Open;
        Ok(Progress::Established(None))
    }

    fn read(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Fault> {
        let side = self.side();
        self.has_begun = false;
        loop {
            let before = plain.len();
            // Messages have no end here, and so no maximum.
            match received::next(wire, &mut self.own.partial, (side, false), (usize::MAX, true))? {
                Received::Nothing => {
                    self.has_begun = !wire.is_empty();
                    return Ok(Progress::NeedMore);
                }
                Received::Data(message) => plain.extend_from_slice(message.bytes()),
                Received::Part(_) => {
                    if let Some(mut partial) = self.own.partial.take() {
                        plain.extend_from_slice(partial.part().message.bytes());
                        partial.forget_part();
                        self.own.partial = Some(partial).filter(|partial| !partial.is_whole());
                    }
                }
                Received::Ping(payload) if !self.own.close_sent => frame::write(Opcode::Pong, payload, side, back),
                Received::Ping(_) | Received::Pong => {}
                Received::Close(code, _) => {
                    wire.take_all();
                    self.peer_closed = (!self.own.close_sent).then_some(code);
                    self.close(code, "", back);
                    return Ok(Progress::PeerEnded);
                }
            }
            if plain.len() > before {
                return Ok(Progress::Plain);
            }
        }
    }
}

/// Returns the head that opens a WebSocket, for a server that speaks these subprotocols.
fn answer(request: &Request, spoken: &[String]) -> Result<String, Answer> {
    if !handshake::is_upgrade(request) {
        return Err(handshake::nothing_else());
    }
    let key = handshake::key(request)?;
    // The peer does not matter.
    let peer = Peer::new(None, Side::Accepted);
    let mut opening = Opening { request, peer: &peer, subprotocol: None, fields: Vec::new() };
    let chosen = opening.subprotocols().find(|offered| spoken.iter().any(|known| known == offered)).map(str::to_owned);
    opening.subprotocol = chosen;
    Ok(handshake::answer(key, &opening))
}

fn refused(answer: &Answer, request: &Request, back: &mut Output) -> Refused {
    back.push(&answer.bytes(request));
    Refused::because(format!("a request that opens no WebSocket was answered with {}", answer.status()))
}

impl Filter for CarrierFilter {
    fn start(&mut self, wire: &mut Output) {
        if self.own.is_client {
            let key = handshake::new_key();
            wire.push(self.shared.asked.request(&key).as_bytes());
            self.own.stage = Carrying::Handshake(Some(key));
        }
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if let Carrying::Handshake(key) = &self.own.stage {
            let key = key.clone();
            return self.shake(key, wire, back);
        }
        self.read(wire, plain, back).map_err(|fault| {
            wire.take_all();
            self.close(fault.code, &fault.why, back);
            Refused::because(fault.why)
        })
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        if self.own.close_sent {
            return;
        }
        let is_text = self.shared.opcode == Opcode::Text && std::str::from_utf8(plain).is_ok();
        frame::write(if is_text { Opcode::Text } else { Opcode::Binary }, plain, self.side(), wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        self.close(code::NORMAL, "", wire);
    }

    /// Refuses an end within a message. Behind a whole one it is how clients end that send no close frame.
    fn truncated(&mut self) -> Result<(), Refused> {
        if (self.own.partial.is_some() || self.has_begun) && !self.own.close_sent {
            return Err(Refused::because("the stream ended in the middle of a message"));
        }
        Ok(())
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.own)
    }
}
