//! The service: its settings, for servers and clients.

use crate::connection::Connection;
use crate::handshake::Asked;
use crate::message::MessageService;
use crate::settings::{Shared, Times};
use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{CannotRestore, Local, Peer, Recipe, Saved, Service, State};
use std::sync::Arc;
use std::time::Duration;

/// WebSockets of a [`MessageService`]: a [`Service`] for any pool, below any layer, under any model.
#[derive(Debug)]
pub struct WebSocket<S> {
    shared: Arc<Shared<S>>,
}

impl<S: MessageService> WebSocket<S> {
    /// Makes a server.
    pub fn new(service: S) -> WebSocket<S> {
        let times = Times {
            handshake_within: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
            pong_within: Duration::from_secs(20),
            close_within: Duration::from_secs(5),
        };
        let (max_message, max_behind) = (1 << 20, 768 << 10);
        let shared = Shared { service, max_message, max_behind, parts: false, deflates: false, times, asked: Asked::default() };
        WebSocket { shared: Arc::new(shared) }
    }

    /// Makes a client, for a pool that connects: this URL, such as `ws://example.org/chat?room=1`, says the host and the target
    /// of the request. The address to connect to, and TLS, are the pool's.
    ///
    /// # Panics
    /// When it is no such URL.
    #[track_caller]
    pub fn client(service: S, url: &str) -> WebSocket<S> {
        let Some(asked) = Asked::by(url) else {
            panic!("{url:?} is no URL of a WebSocket: write such as ws://example.org/chat?room=1")
        };
        WebSocket::new(service).with(|shared| shared.asked = asked)
    }

    /// Offers a subprotocol, on the connecting side; those offered first are preferred.
    #[must_use]
    pub fn subprotocol(self, name: impl Into<String>) -> WebSocket<S> {
        self.with(|shared| shared.asked.subprotocols.push(name.into()))
    }

    /// Adds a field to the request, on the connecting side, such as `Origin`.
    #[must_use]
    pub fn field(self, name: impl Into<String>, value: impl Into<String>) -> WebSocket<S> {
        self.with(|shared| shared.asked.fields.push((name.into(), value.into())))
    }

    /// Sets the maximum of bytes in a message, fragments joined. A peer that sends more is closed with 1009, before the bytes come where a frame says
    /// it. Default: 1 MiB.
    #[must_use]
    pub fn max_message(self, bytes: usize) -> WebSocket<S> {
        self.with(|shared| shared.max_message = bytes)
    }

    /// Has messages of any length given to [`MessageProtocol::part`](crate::MessageProtocol::part) as their bytes come, in the place of whole ones, such as files that are
    /// sent to the service. A compressed message is one part, and keeps its maximum. A connection of which a part was given away does not move
    /// to a service that takes whole messages. Default: false.
    #[must_use]
    pub fn parts(self, parts: bool) -> WebSocket<S> {
        self.with(|shared| shared.parts = parts)
    }

    /// Sets the maximum of unsent bytes at which a connection still gets frames that are published or sent by a handle. At one above it the peer, which
    /// reads too slowly, is closed with 1013 behind what was sent to it before. Give it less than the pool's
    /// [`max_unsent`](sockdrawer::Settings::max_unsent) (1 MiB), by the longest frame at least: above that the connection is reset at its next frame.
    /// Default: 768 KiB.
    #[must_use]
    pub fn max_behind(self, bytes: usize) -> WebSocket<S> {
        self.with(|shared| shared.max_behind = bytes)
    }

    /// Compresses messages from 64 bytes on (permessage-deflate, RFC 7692): a server for clients that offer it, as browsers do, a client if the server agrees. Each message is compressed by
    /// itself, so that an idle connection keeps nothing for it; a message to a group is compressed once in each loop. A peer that asks
    /// for a window of less than 15 bits, as no browser does, is sent messages as they are. It costs CPU time, and an attacker who has a
    /// page send text of the attacker's beside secrets can guess these by the length. Default: false.
    #[must_use]
    pub fn deflate(self, deflates: bool) -> WebSocket<S> {
        self.with(|shared| (shared.deflates, shared.asked.deflates) = (deflates, deflates))
    }

    /// Sets the time in which a handshake is complete. Default: 10 s.
    #[must_use]
    pub fn handshake_within(self, time: Duration) -> WebSocket<S> {
        self.with(|shared| shared.times.handshake_within = time)
    }

    /// Sets how long a peer is silent before it is sent a ping, which goes out up to half of the time later. Default: 30 s, so that proxies that end
    /// what is idle for a minute see a frame.
    ///
    /// # Panics
    /// When the time is zero.
    #[must_use]
    #[track_caller]
    pub fn ping_after(self, time: Duration) -> WebSocket<S> {
        assert!(!time.is_zero(), "a peer is never silent for no time: give WebSocket::ping_after a time above zero");
        self.with(|shared| shared.times.ping_after = time)
    }

    /// Sets how long a pong, or anything else, may take after a ping; then the connection is reset, and reported. Default: 20 s.
    #[must_use]
    pub fn pong_within(self, time: Duration) -> WebSocket<S> {
        self.with(|shared| shared.times.pong_within = time)
    }

    /// Sets how long the peer's close frame is waited for after this side's. Default: 5 s.
    #[must_use]
    pub fn close_within(self, time: Duration) -> WebSocket<S> {
        self.with(|shared| shared.times.close_within = time)
    }

    fn with(mut self, set: impl FnOnce(&mut Shared<S>)) -> WebSocket<S> {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            set(shared);
        }
        self
    }
}

impl<S: MessageService> Service for WebSocket<S> {
    type Protocol = Connection<S>;

    fn open(&self, peer: &Peer) -> Connection<S> {
        Connection::fresh(self.shared.clone(), peer)
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Connection<S>, CannotRestore> {
        Connection::moved(self.shared.clone(), peer, from)
    }

    fn state(&self) -> State {
        self.shared.service.state()
    }

    fn local(&self) -> Box<Local> {
        self.shared.service.local()
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        self.shared.service.connect_failed(failure, local);
    }

    fn recipe(&self) -> Option<Recipe> {
        self.shared.service.recipe()
    }
}
