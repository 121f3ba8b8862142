//! A thread for each client: a client that asks for work that takes long holds up no other.
use sockdrawer::{Config, Context, Input, Model, Peer, Pool, Protocol, Service, Step};

struct Sums;
impl Service for Sums {
    type Protocol = Sums;
    fn open(&self, _peer: &Peer) -> Sums {
        Sums
    }
}
impl Protocol for Sums {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let sum: u64 = (0..400_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        input.take_all();
        writeln!(cx.out(), "{sum}");
        Step::Continue
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::accept(Sums).model(Model::Threads).listen("127.0.0.1:9000");
    Ok(Pool::start(config)?.join()?)
}
