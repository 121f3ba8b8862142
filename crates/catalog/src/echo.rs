//! `echo`: what comes in goes out. Its client sends [`Block`]s, and measures.

mod client;

pub use client::Block;

use crate::{WrongOptions, recipe};
use sockdrawer::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step};

/// Bytes a client has under way at most. Less than a server's and a client's high-water mark, or both could stop reading, each
/// until the other reads.
const WINDOW: u64 = 32 * 1024;

/// The server. A peer that does not read is not read from either: the pool's high-water mark holds it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Echo {
    /// Name of its recipe.
    pub const NAME: &str = "echo";

    /// Creates the service from the options of its recipe: there are none.
    ///
    /// # Errors
    /// When there are some.
    pub fn from_options(options: &[u8]) -> Result<Echo, WrongOptions> {
        WrongOptions::unless_empty(Echo::NAME, options).map(|()| Echo)
    }
}

impl Service for Echo {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        Connection
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Connection, CannotRestore> {
        Ok(Connection)
    }

    fn state(&self) -> State {
        State::of(Echo::NAME, 1)
    }

    fn needs_peer_address(&self) -> bool {
        false
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Echo::NAME, [])
    }
}

/// A connection of [`Echo`]. It remembers nothing.
#[derive(Debug)]
pub struct Connection;

impl Protocol for Connection {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
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
    fn all_comes_back_before_the_end() {
        let mut connection = Driver::open(Echo);
        connection.receive_split(b"byte by byte");
        connection.receive(&[7; 200_000]);
        connection.finish();
        assert_eq!(connection.sent(), [b"byte by byte".as_slice(), &[7; 200_000]].concat());
        assert_eq!(connection.closed(), Some(Closed::Orderly));
    }

    #[test]
    fn a_peer_that_does_not_read_is_held_back_and_loses_nothing() {
        let mut connection = Driver::open(Echo);
        connection.block_output(true);
        connection.receive(&[1; 70_000]);
        connection.receive(b"rest");
        connection.finish();
        assert_eq!((connection.backlog(), connection.kept()), (70_000, &b"rest"[..]));
        connection.block_output(false);
        assert_eq!((connection.sent()[70_000..].to_vec(), connection.closed()), (b"rest".to_vec(), Some(Closed::Orderly)));
    }

    #[test]
    fn it_drains_at_once_can_be_adopted_and_built_elsewhere() {
        let mut connection = Driver::open(Echo).save_and_restore(Echo).expect("it can be saved");
        connection.receive(b"x");
        connection.drain();
        assert_eq!((connection.sent(), connection.closed()), (b"x".to_vec(), Some(Closed::Orderly)));
        assert!(Echo::from_options(&Echo.recipe().expect("it has one").options).is_ok() && Echo::from_options(b"x").is_err());
        assert_eq!(size_of::<super::Connection>(), 0);
    }
}
