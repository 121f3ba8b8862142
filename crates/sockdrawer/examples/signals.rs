//! SIGTERM and Ctrl-C end this server in order: it stops listening, answers what it has received, and ends within 30 seconds.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sockdrawer::{Context, Drain, Input, Peer, Pool, Protocol, Service, Step};
use std::error::Error;
use std::time::Duration;

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

/// Serves at this address until a signal comes, or the pool gives up.
pub(crate) fn run(address: &str, begun: impl FnOnce(&Pool)) -> Result<(), Box<dyn Error>> {
    // Before the pool: from here on neither signal ends the process at once.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let pool = Pool::serve(Echo, address)?;
    begun(&pool);
    let stopping = pool.clone();
    std::thread::spawn(move || signals.forever().next().map(|_| stopping.shutdown(Drain::within(Duration::from_secs(30)))));
    Ok(pool.join()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    run("127.0.0.1:9000", |_| ())
}
