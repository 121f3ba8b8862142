//! Sockets that the pool does not make itself, as from a broker that may do more than this program. This one is of std.
use sockdrawer::{
    Address, Config, Context, Error, Input, Peer, Pool, Protocol, Service, Step,
    listening::{Listen, ListenRequest},
};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

struct Broker;

impl Listen for Broker {
    fn listen(&self, request: &ListenRequest<'_>) -> io::Result<Vec<OwnedFd>> {
        match request.address {
            Address::Tcp(address) if !request.shares_port => Ok(vec![TcpListener::bind(address)?.into()]),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this broker binds TCP addresses, once each")),
        }
    }

    // No other process has them: when the address is removed, new connections may be kept away until it is closed.
    fn exclusive(&self) -> bool {
        true
    }
}

struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
}

fn main() -> Result<(), Error> {
    let address = Address::Tcp(([127, 0, 0, 1], 9000).into());
    Pool::start(Config::accept(Echo).listen(address).listen_by(Broker))?.join()
}
