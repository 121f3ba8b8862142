//! Loops in four processes: each client hears which one serves it. One that is killed is replaced.
use sockdrawer::{Config, Context, Input, Model, Peer, Pool, Protocol, Recipe, Service, Step};

struct Where;
impl Service for Where {
    type Protocol = Where;
    fn open(&self, _peer: &Peer) -> Where {
        Where
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "where".to_owned(), options: Vec::new() })
    }
}
impl Protocol for Where {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        writeln!(cx.out(), "{}", std::process::id());
        input.take_all();
        Step::Continue
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    sockdrawer::processes(&[("where", |_options| Ok(Where.into()))]);
    let config = Config::accept(Where).model(Model::Prefork).processes(4).listen("127.0.0.1:9000");
    Ok(Pool::start(config)?.join()?)
}
