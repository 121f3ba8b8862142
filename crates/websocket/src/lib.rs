//! WebSocket (RFC 6455) for [`sockdrawer`], both ends. You write a [`MessageProtocol`], a state machine of messages; the pool holds its connections, and
//! they live through new code, new certificates and a new build of the program as all others do, in the middle of a message too.
//!
//! ```
//! use sockdrawer::testing::Driver;
//! use sockdrawer::{Group, Step};
//! use sockdrawer_websocket::{Answer, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};
//!
//! /// All that a guest says goes to all guests.
//! #[derive(Clone, Default)]
//! struct Room(Group);
//!
//! impl MessageService for Room {
//!     type Protocol = Room;
//!     fn open(&self, opening: &mut Opening<'_>) -> Result<Room, Answer> {
//!         match opening.request().path.as_str() {
//!             "/room" => Ok(self.clone()),
//!             path => Err(Answer::error(404, format_args!("nothing is at {path}"))),
//!         }
//!     }
//! }
//! impl MessageProtocol for Room {
//!     fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
//!         socket.join(&self.0);
//!         Step::Continue
//!     }
//!     fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
//!         socket.publish(&self.0, message);
//!         Step::Continue
//!     }
//! }
//!
//! // Pool::serve(WebSocket::new(Room::default()), "127.0.0.1:9000")?.join()
//! let mut guest = Driver::open(WebSocket::new(Room::default()));
//! guest.receive(b"GET /kitchen HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
//! guest.receive(b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
//! assert!(guest.sent().starts_with(b"HTTP/1.1 404 Not Found\r\n"));
//! ```
//!
//! - Whole frames are unmasked where they were received, and are not copied; fragments are joined up to [`WebSocket::max_message`], or
//!   [given away as they come](WebSocket::parts). Text is checked as it comes.
//! - A [`Carrier`] is a layer that carries any protocol of bytes.
//! - A [`Frame`] is encoded once for all members of a [`Group`](sockdrawer::Group).
//! - Compression ([`WebSocket::deflate`]) keeps nothing for an idle connection.
//! - A peer that reads more slowly than others publish is closed with 1013 ([`WebSocket::max_behind`]).
//! - Silent peers are sent pings, and end without a pong; both have their [times](WebSocket::ping_after).
//! - A drain closes with 1001, and waits for the peer's close frame up to [`WebSocket::close_within`].
//! - Requests that ask for no WebSocket are answered by [`MessageService::page`].
//!
//! Not spoken: extensions but `permessage-deflate`, and WebSocket over HTTP/2 (RFC 8441). TLS and PROXY headers are layers of the pool.

mod close;
mod connection;
mod deflate;
mod echo;
mod frame;
mod handshake;
mod layer;
mod link;
mod mask;
mod message;
mod partial;
mod received;
mod service;
mod settings;
mod socket;

pub use close::{Close, code};
pub use connection::Connection;
pub use echo::{Echo, EchoConnection};
pub use frame::{Frame, Message, Part};
pub use handshake::Opening;
pub use layer::{Carrier, CarrierFilter};
pub use message::{MessageProtocol, MessageService};
pub use service::WebSocket;
pub use sockdrawer_catalog::web::{Answer, Request};
pub use socket::Socket;
