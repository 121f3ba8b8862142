//! Sends back every byte that a client sends.
use sockdrawer::{Context, Error, Input, Peer, Pool, Protocol, Service, Step};

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
    Pool::serve(Echo, "127.0.0.1:9000")?.join()
}
