//! A process for each client: `crash` ends its own, and no other notices.
use sockdrawer::{Config, Context, Input, Model, Peer, Pool, Protocol, Recipe, Service, Step};

struct Fragile;
impl Service for Fragile {
    type Protocol = Fragile;
    fn open(&self, _peer: &Peer) -> Fragile {
        Fragile
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "fragile".to_owned(), options: Vec::new() })
    }
}
impl Protocol for Fragile {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes().starts_with(b"crash") {
            std::process::abort();
        }
        cx.send(input.take_all());
        Step::Continue
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    sockdrawer::processes(&[("fragile", |_options| Ok(Fragile.into()))]);
    let config = Config::accept(Fragile).model(Model::Fork).listen("127.0.0.1:9000");
    Ok(Pool::start(config)?.join()?)
}
