//! WHO RUNS THE FLOW: one file for each model.

pub(crate) mod loops;

use crate::config::{Config, Model};
use crate::error::Error;

/// Refuses what a model cannot do, by name, with what does it.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let model = config.model;
    let refuse = |what, remedy| Err(Error::NotInModel { model, what, remedy });
    if !matches!(model, Model::Loops | Model::Prefork) {
        return refuse("serve in this build", "use loops");
    }
    if !model.has_loops() && config.loops != 1 {
        return refuse("have several loops", "set loops to 1, or use the model loops");
    }
    if !model.has_loops() && config.workers != 0 {
        return refuse("have workers", "set workers to 0: a job runs where its connection runs; or use the model loops");
    }
    Ok(())
}
