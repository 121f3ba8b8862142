//! Models whose features are off are refused by name: a program outside the workspace, which turns all of them on. ci/budgets runs it.
use sockdrawer::{Config, Context, Input, Model, Peer, Pool, Protocol, Service, Step};

struct Silent;

impl Service for Silent {
    type Protocol = Silent;
    fn open(&self, _peer: &Peer) -> Silent {
        Silent
    }
}

impl Protocol for Silent {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

fn main() {
    for (model, feature) in [(Model::Tasks, "tokio"), (Model::Prefork, "processes"), (Model::Fork, "processes")] {
        let refused = Pool::start(Config::accept(Silent).model(model)).map(drop).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|line| line.contains(&format!("without the feature {feature}"))), "{model}");
    }
}
