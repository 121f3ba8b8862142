//! WHO RUNS THE FLOW: one file for each model.

#[cfg(feature = "processes")]
pub(crate) mod fork;
pub(crate) mod loops;
#[cfg(feature = "processes")]
pub(crate) mod prefork;
#[cfg(feature = "processes")]
mod programs;
mod single;
#[cfg(feature = "tokio")]
mod tasks;
mod threads;

use crate::behaviour::Kind;
use crate::config::{Config, Endpoint, Model};
use crate::error::Error;
use crate::event_loop::{EventLoop, Placement};
use loops::Running;
use std::sync::Arc;

/// Descriptors that each loop of a model needs for itself: an epoll and an eventfd. A runtime has its own of these, two
/// duplicates of its epoll and one of the event loop's, and one for signals where the program watches them.
pub(crate) fn descriptors_for_loop(model: Model) -> usize {
    match model {
        Model::Tasks => 7,
        _ => 2,
    }
}

/// Starts a thread that runs `event_loop` until it is told to stop, then calls `ended` with the panic's message, if it was one.
pub(crate) fn start(
    model: Model,
    index: usize,
    event_loop: EventLoop,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> std::io::Result<Running> {
    match model {
        #[cfg(feature = "tokio")]
        Model::Tasks => tasks::start(index, event_loop, ended),
        _ => loops::start(index, event_loop, ended),
    }
}

/// Refuses what a model cannot do, by name, with what does it.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let model = config.model;
    let refuse = |what, remedy| Err(Error::NotInModel { model, what, remedy });
    if config.behaviour.service().kind() == Kind::Program && model != Model::Fork {
        return refuse("run another program", "use fork");
    }
    if config.behaviour.service().kind() == Kind::Program && config.behaviour.service().is_layered() {
        return refuse(
            "run another program under a layer, whose bytes are not the socket's",
            "use a handler, or leave out the layer",
        );
    }
    if config.behaviour.service().kind() == Kind::Blocking && model.has_loops() {
        return refuse("run a blocking handler", "use threads, single or fork, or Step::Delegate");
    }
    #[cfg(feature = "tokio")]
    if config.behaviour.service().kind() == Kind::Task && model != Model::Tasks {
        return refuse("run an async handler", "use tasks");
    }
    if model == Model::Tasks && !cfg!(feature = "tokio") {
        return refuse("serve in this build, which is without the feature tokio", "build with it, or use the model loops");
    }
    if model.has_processes() && !cfg!(feature = "processes") {
        return refuse("serve in this build, which is without the feature processes", "build with it, or use the model loops");
    }
    if matches!(model, Model::Fork | Model::Prefork) && matches!(config.endpoint, Endpoint::Connect(_)) {
        return refuse("make connections", "use loops");
    }
    match config.limits() {
        None if matches!(model, Model::Fork | Model::Prefork) => {
            return refuse("ask an admission policy of your own", "use Limits, or the model loops");
        }
        Some(limits) if limits.per_peer.is_some() && model == Model::Prefork => {
            return refuse(
                "count the connections of a peer, which its processes share",
                "leave out per_peer, or use the model loops",
            );
        }
        _ => {}
    }
    if !model.has_loops() && config.loops != 1 {
        return refuse("have several loops", "set loops to 1, or use the model loops");
    }
    if !model.has_loops() && config.workers != 0 {
        return refuse("have workers", "set workers to 0: a job runs where its connection runs; or use the model loops");
    }
    Ok(())
}

/// Returns the place where the connections of a model run, if that is not the event loop that accepts them. `died` is told of threads that panicked.
pub(crate) fn placement(config: &Config, died: impl Fn(String) + Send + Sync + 'static) -> Option<Arc<dyn Placement>> {
    match config.model {
        Model::Threads => Some(threads::Threads::new(config, died)),
        _ => None,
    }
}

/// Returns the maximum of threads for leased connections. In `threads` every connection with a permit has a thread.
pub(crate) fn delegates(config: &Config) -> usize {
    if config.model == Model::Threads { usize::MAX } else { config.delegates }
}

/// Descriptors that a connection needs.
pub(crate) fn descriptors(model: Model) -> usize {
    if model == Model::Threads { threads::DESCRIPTORS } else { 1 }
}

/// Returns the maximum of connections at once that a model can have, whatever the limit.
pub(crate) fn most_connections(model: Model) -> usize {
    if model == Model::Single { single::MOST } else { usize::MAX }
}
