//! `ping`: the client sends `Ping`, the server answers `Pong`, 4 bytes each, without a terminator. Several may share a segment.

mod client;

pub use client::Question;

use crate::{WrongOptions, recipe};
use sockdrawer::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step};

/// Message that the client sends.
pub const PING: &[u8; 4] = b"Ping";
/// Answer of the server.
pub const PONG: &[u8; 4] = b"Pong";

/// The server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ping;

impl Ping {
    /// Name of its recipe.
    pub const NAME: &str = "ping";

    /// Creates the service from the options of its recipe: there are none.
    ///
    /// # Errors
    /// When there are some.
    pub fn from_options(options: &[u8]) -> Result<Ping, WrongOptions> {
        WrongOptions::unless_empty(Ping::NAME, options).map(|()| Ping)
    }
}

impl Service for Ping {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        Connection { answered: 0 }
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Connection, CannotRestore> {
        Ok(Connection { answered: from.u64()? as u32 })
    }

    fn state(&self) -> State {
        State::of(Ping::NAME, 1)
    }

    fn needs_peer_address(&self) -> bool {
        false
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Ping::NAME, [])
    }
}

/// A connection of [`Ping`].
#[derive(Debug)]
pub struct Connection {
    answered: u32,
}

impl Connection {
    /// Pings answered on this connection, modulo 2^32; kept when it is adopted.
    pub fn answered(&self) -> u32 {
        self.answered
    }
}

impl Protocol for Connection {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let (pings, rest) = input.bytes().as_chunks::<4>();
        let good = pings.iter().take_while(|ping| *ping == PING).count();
        for _ in 0..good {
            cx.send(PONG);
        }
        self.answered = self.answered.wrapping_add(good as u32);
        // Bytes that are no ping end the connection, but not the answers that are owed.
        if good < pings.len() || !PING.starts_with(rest) {
            return Step::Close;
        }
        input.take(4 * good);
        Step::Continue
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.answered.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;

    #[test]
    fn pings_are_answered_wherever_they_are_split() {
        let pings = b"PingPingPing";
        for at in 0..=pings.len() {
            let mut connection = Driver::open(Ping);
            connection.receive(&pings[..at]);
            assert_eq!(connection.sent(), b"Pong".repeat(at / 4));
            connection.receive(&pings[at..]);
            assert_eq!(connection.sent(), b"Pong".repeat(3 - at / 4));
        }
        let mut connection = Driver::open(Ping);
        connection.receive_split(pings);
        assert_eq!((connection.sent(), connection.closed()), (b"PongPongPong".to_vec(), None));
    }

    #[test]
    fn garbage_ends_the_connection_after_what_is_owed() {
        for garbage in [&b"PingPong"[..], b"PingPo", b"Ping\n"] {
            let mut connection = Driver::open(Ping);
            connection.receive(garbage);
            assert_eq!((connection.sent(), connection.closed()), (b"Pong".to_vec(), Some(Closed::Orderly)), "{garbage:?}");
        }
    }

    #[test]
    fn an_end_closes_even_behind_half_a_ping_and_a_drain_waits_for_its_other_half() {
        let mut connection = Driver::open(Ping);
        connection.receive(b"PingPi");
        connection.finish();
        assert_eq!((connection.sent(), connection.closed()), (b"Pong".to_vec(), Some(Closed::Orderly)));
        let mut connection = Driver::open(Ping);
        connection.receive(b"Pi");
        connection.drain();
        assert_eq!(connection.closed(), None);
        connection.receive(b"ng");
        assert_eq!((connection.sent(), connection.closed()), (b"Pong".to_vec(), Some(Closed::Orderly)));
    }

    #[test]
    fn it_can_be_adopted_and_built_elsewhere() {
        let mut connection = Driver::open(Ping);
        connection.receive(b"PingPi");
        let mut connection = connection.save_and_restore(Ping).expect("it can be saved");
        connection.receive(b"ng");
        assert_eq!((connection.sent(), connection.protocol().map(|ping| ping.answered())), (b"PongPong".to_vec(), Some(2)));
        assert!(Ping::from_options(&Ping.recipe().expect("it has one").options).is_ok() && Ping::from_options(b"x").is_err());
        assert_eq!(size_of::<super::Connection>(), 4);
    }
}
