//! WHO RUNS THE FLOW: one file for each model.

pub(crate) mod fork;
pub(crate) mod loops;
mod single;
mod threads;

use crate::behaviour::Kind;
use crate::config::{Config, Endpoint, Model};
use crate::error::Error;
use crate::flow::Placement;
use std::sync::Arc;

/// Refuses what a model cannot do, by name, with what does it.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let model = config.model;
    let refuse = |what, remedy| Err(Error::NotInModel { model, what, remedy });
    if config.behaviour.service().kind() == Kind::Program && model != Model::Fork {
        return refuse("run another program", "use fork");
    }
    if config.behaviour.service().kind() == Kind::Blocking && model.has_loops() {
        return refuse("run a blocking handler", "use threads, single or fork, or Step::Delegate");
    }
    if !matches!(model, Model::Single | Model::Threads | Model::Fork | Model::Prefork | Model::Loops) {
        return refuse("serve in this build", "use loops");
    }
    if model == Model::Prefork && matches!(config.endpoint, Endpoint::Connect(_)) {
        return refuse("make connections", "use loops");
    }
    if !model.has_loops() && config.loops != 1 {
        return refuse("have several loops", "set loops to 1, or use the model loops");
    }
    if !model.has_loops() && config.workers != 0 {
        return refuse("have workers", "set workers to 0: a job runs where its connection runs; or use the model loops");
    }
    Ok(())
}

/// Where the connections of a model run, if that is not the flow that accepts them. `died` is told of threads that panicked.
pub(crate) fn placement(config: &Config, died: impl Fn(String) + Send + Sync + 'static) -> Option<Arc<dyn Placement>> {
    match config.model {
        Model::Threads => Some(threads::Threads::new(config, died)),
        _ => None,
    }
}

/// The most threads for connections that are given away. In `threads` whoever has a permit has a thread.
pub(crate) fn delegates(config: &Config) -> usize {
    if config.model == Model::Threads { usize::MAX } else { config.delegates }
}

/// Descriptors that a connection needs.
pub(crate) fn descriptors(model: Model) -> usize {
    if model == Model::Threads { threads::DESCRIPTORS } else { 1 }
}

/// The most connections at once that a model can have, whatever the limit.
pub(crate) fn most_connections(model: Model) -> usize {
    if model == Model::Single { single::MOST } else { usize::MAX }
}
