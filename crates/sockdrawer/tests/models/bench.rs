//! Bench of a test of the suite: a model, and pools that run under it.

use crate::common::{PATIENCE, address, address_of_its_own, connect, read, read_all};
use crate::services::{Actor, Frame, SIZE, frame, parts};
use sockdrawer::{Config, Error, Model, Pool, Selector};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Ends with the refusal of what the model cannot do, or with another error, which is a failure.
pub(crate) type Outcome = Result<(), Error>;

pub(crate) struct Bench {
    pub(crate) model: Model,
}

impl Bench {
    /// Returns a configuration of a pool of this model, of several parts where it has any.
    pub(crate) fn config(&self, behaviour: impl sockdrawer::IntoBehaviour) -> Config {
        self.of_model(Config::accept(behaviour))
    }

    pub(crate) fn of_model(&self, config: Config) -> Config {
        let config = config.model(self.model);
        match self.model {
            Model::Prefork => config.processes(2),
            Model::Loops | Model::Tasks => config.loops(2).workers(1),
            _ => config,
        }
    }

    pub(crate) fn actor(&self) -> Config {
        self.config(Actor { version: 1 })
    }

    /// Starts it at an address where no other test listens, also once it is over.
    pub(crate) fn start(&self, config: Config) -> Result<(Pool, SocketAddr), Error> {
        let pool = Pool::start(config.listen(address_of_its_own()))?;
        let at = address(&pool);
        Ok((pool, at))
    }

    /// Returns true where connections run beside each other. Otherwise each waits for the end of the one before.
    pub(crate) fn side_by_side(&self) -> bool {
        self.model != Model::Single
    }

    /// Returns how many connections the model can have at once, at most `wanted`.
    pub(crate) fn crowd(&self, wanted: usize) -> usize {
        if self.side_by_side() { wanted } else { 1 }
    }

    /// Fails where nothing but a signal reaches a connection: where no notes are brought, nothing else is either.
    pub(crate) fn reaches_connections(&self, pool: &Pool) -> Outcome {
        pool.notify(&Selector::Before(0), [])
    }

    /// Returns true where jobs run elsewhere than their connections.
    pub(crate) fn has_workers(&self) -> bool {
        matches!(self.model, Model::Prefork | Model::Loops | Model::Tasks)
    }
}

/// A client of an [`Actor`].
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// Connects and waits until it is served.
    pub(crate) fn served(at: SocketAddr) -> Client {
        let mut client = Client(connect(at));
        assert_eq!(client.ask(b'a', 0), (b'a', 0));
        client
    }

    pub(crate) fn order(&mut self, letter: u8, number: u32) {
        self.0.write_all(&frame(letter, number)).expect("it stands");
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> (u8, u32) {
        let answer: Frame = read(&mut self.0, SIZE).expect("an answer").try_into().expect("as many bytes as asked for");
        parts(answer)
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, letter: u8, number: u32) -> (u8, u32) {
        self.order(letter, number);
        self.answer()
    }

    #[track_caller]
    pub(crate) fn version(&mut self) -> u32 {
        let (letter, version) = self.ask(b'v', 0);
        assert_eq!(letter, b'v');
        version
    }

    pub(crate) fn finish(&self) {
        self.0.shutdown(Shutdown::Write).expect("it stands");
    }

    /// Returns the bytes that come until the orderly end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        read_all(&mut self.0).expect("an orderly end")
    }

    /// Ends in order, owed nothing.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.finish();
        assert_eq!(self.rest(), b"");
    }
}

/// Waits until as many connections have ended, or were turned away, as were accepted, and none is left.
#[track_caller]
pub(crate) fn assert_settled(pool: &Pool) {
    let settled = pool.wait(PATIENCE, |status| {
        status.connections == 0 && status.counts.closed + status.counts.rejected == status.counts.accepted
    });
    assert!(settled, "{:#?}", pool.status());
}
