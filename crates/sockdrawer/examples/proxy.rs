//! A TCP proxy: each client that connects gets a connection to the target, and the two are joined.
//!
//! `cargo run --release --example proxy -- 127.0.0.1:9000 127.0.0.1:6379`, then `redis-cli -p 9000`.

use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{Address, Context, Handle, Input, Peer, Pool, Protocol, Service, Side, Step};
use std::time::Duration;

pub(crate) struct Proxy(pub(crate) Address);

impl Service for Proxy {
    type Protocol = End;
    fn open(&self, peer: &Peer) -> End {
        End { target: (peer.side() == Side::Accepted).then(|| self.0.clone()) }
    }
}

/// One end of a joined pair. That of a client knows where to connect to.
pub(crate) struct End {
    target: Option<Address>,
}

impl Protocol for End {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.pause();
        self.target.iter().for_each(|target| cx.connect(target, Duration::from_secs(5)));
        Step::Continue
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, _cx: &mut Context<'_>) -> Step {
        result.map_or(Step::Abort, Step::Relay)
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue // The relay passes it on.
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, listen, target] = &std::env::args().collect::<Vec<_>>()[..] else { return Err("usage: proxy LISTEN TARGET".into()) };
    Ok(Pool::serve(Proxy(target.parse()?), listen.as_str())?.join()?)
}
