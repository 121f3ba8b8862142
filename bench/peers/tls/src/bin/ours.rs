//! `sockdrawer_tls::Server` in a `Layer`, one loop. MORE: the number of connections that it expects.

use bench_tls::{Arguments, BLOCK, BLOCK_SENT, Mode};
use sockdrawer::layer::Layer;
use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
use sockdrawer_tls::{Identity, Server};

struct Works(Mode);

struct Connection(Mode);

impl Service for Works {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        Connection(self.0)
    }
}

impl Connection {
    fn fill(cx: &mut Context<'_>) -> Step {
        while cx.out().room() >= BLOCK {
            cx.send(&BLOCK_SENT);
        }
        cx.wake_below(BLOCK);
        Step::Continue
    }
}

impl Protocol for Connection {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let bytes = input.take_all();
        match self.0 {
            Mode::Echo | Mode::Mirror => cx.send(bytes),
            Mode::Sink => {}
            Mode::Source => return Connection::fill(cx),
        }
        Step::Continue
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        if self.0 == Mode::Source { Connection::fill(cx) } else { Step::Continue }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let tls = Server::new([Identity::from_files(&arguments.chain, &arguments.key)?]).build()?;
    let address = format!("127.0.0.1:{}", arguments.port);
    let mut config = Config::accept(Layer::new(tls, Works(arguments.mode))).listen(address.as_str()).loops(1);
    if let Some(capacity) = &arguments.more {
        config = config.capacity(capacity.parse()?);
    }
    Ok(Pool::start(config)?.join()?)
}
