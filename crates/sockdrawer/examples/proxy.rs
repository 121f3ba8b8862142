//! A TCP proxy: each client that connects gets a connection to the target, and the two are joined.
//!
//! `cargo run --release --example proxy -- 127.0.0.1:9000 127.0.0.1:6379`, then `redis-cli -p 9000`.

use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{Address, Config, Context, Handle, Input, Peer, Pool, Protocol, Service, Side, Step};
use std::time::Duration;

pub(crate) struct Proxy {
    pub(crate) target: Address,
}

impl Service for Proxy {
    type Protocol = End;
    fn open(&self, peer: &Peer) -> End {
        End { target: (peer.side() == Side::Accepted).then(|| self.target.clone()) }
    }
    fn needs_peer_address(&self) -> bool {
        false
    }
}

/// One end of a joined pair: that of a client has a target.
pub(crate) struct End {
    target: Option<Address>,
}

impl Protocol for End {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.pause();
        if let Some(target) = self.target.take() {
            cx.connect(&target, Duration::from_secs(5));
        }
        Step::Continue
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, _cx: &mut Context<'_>) -> Step {
        result.map_or(Step::Abort, Step::Relay)
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, target, rest @ ..] = &arguments[..] else { return Err("usage: proxy LISTEN TARGET [--loops N]".into()) };
    let mut config = Config::accept(Proxy { target: target.parse()? }).listen(listen.as_str());
    if let [option, loops] = rest
        && option == "--loops"
    {
        config = config.loops(loops.parse()?);
    }
    Ok(Pool::start(config)?.join()?)
}
