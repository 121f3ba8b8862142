//! One client after another: each says a line, gets it back and goes.
use sockdrawer::{Config, Context, Input, Model, Peer, Pool, Protocol, Service, Step};

struct Line;
impl Service for Line {
    type Protocol = Line;
    fn open(&self, _peer: &Peer) -> Line {
        Line
    }
}
impl Protocol for Line {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let Some(line) = input.line() else { return Step::Continue };
        cx.send(line);
        cx.send(b"\n");
        input.take_all();
        Step::Close
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::accept(Line).model(Model::Single).listen("127.0.0.1:9000");
    Ok(Pool::start(config)?.join()?)
}
