//! `hello`: the server reads once, writes `Hello World\n` and closes.

mod client;

pub use client::{Client, Session};

use crate::{WrongOptions, recipe};
use sockdrawer::{
    CannotRestore, CannotSave, Closing, Context, Input, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step,
};

/// Answer of the server.
pub const ANSWER: &[u8] = b"Hello World\n";

/// The server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello;

impl Hello {
    /// Name of its recipe.
    pub const NAME: &str = "hello";

    /// Creates the service from the options of its recipe: there are none.
    ///
    /// # Errors
    /// When there are some.
    pub fn from_options(options: &[u8]) -> Result<Hello, WrongOptions> {
        WrongOptions::unless_empty(Hello::NAME, options).map(|()| Hello)
    }
}

impl Service for Hello {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        Connection
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Connection, CannotRestore> {
        Ok(Connection)
    }

    fn state(&self) -> State {
        State::of(Hello::NAME, 1)
    }

    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }

    fn needs_peer_address(&self) -> bool {
        false
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Hello::NAME, [])
    }
}

/// A connection of [`Hello`]: one that stands has read nothing, so there is nothing to remember.
#[derive(Debug)]
pub struct Connection;

impl Protocol for Connection {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(ANSWER);
        Step::Close
    }

    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;

    #[test]
    fn one_read_is_answered_and_the_connection_closed() {
        for request in [&b"x"[..], &[0; 100_000]] {
            let mut connection = Driver::open(Hello);
            assert_eq!(connection.sent(), b"");
            connection.receive(request);
            assert_eq!((connection.sent(), connection.closed()), (b"Hello World\n".to_vec(), Some(Closed::Orderly)));
            assert_eq!(connection.kept(), b"", "all is taken, so the end may ride on the answer");
        }
        assert_eq!(Hello.closing(), Closing::PeerIsDone);
    }

    #[test]
    fn a_silent_peer_that_ends_and_a_drain_close_without_an_answer() {
        let mut ended = Driver::open(Hello);
        ended.finish();
        assert_eq!((ended.sent(), ended.closed()), (vec![], Some(Closed::Orderly)));
        let mut drained = Driver::open(Hello);
        drained.drain();
        assert_eq!((drained.sent(), drained.closed()), (vec![], Some(Closed::Orderly)));
    }

    #[test]
    fn it_can_be_adopted_and_built_elsewhere() {
        let mut connection = Driver::open(Hello).save_and_restore(Hello).expect("it can be saved");
        connection.receive(b"x");
        assert_eq!(connection.sent(), ANSWER);
        let recipe = Hello.recipe().expect("it has one");
        assert!(Hello::from_options(&recipe.options).is_ok() && Hello::from_options(b"x").is_err());
    }
}
