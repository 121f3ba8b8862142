//! The model `prefork`: N helper processes, each of which runs `loops` on its share of the listening sockets. They are started,
//! spoken to and replaced by the control plane, `pool/processes/`.

use crate::config::{Config, Model};
use crate::error::Error;
use crate::ipc::shared_counters::{MAX_LOOPS, MAX_PROCESSES};

/// Helpers that a configuration asks for; the model `fork` has one, that forks.
pub(crate) fn processes(config: &Config) -> usize {
    if config.model == Model::Fork { 1 } else { config.processes }
}

/// Checks what concerns processes.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if config.processes == 0 {
        return invalid("processes", "0 processes serve no connection: use at least 1, or suspend the pool");
    }
    if config.processes > MAX_PROCESSES {
        return invalid("processes", "more than 64 processes: one for each CPU is enough, or a few more for their descriptors");
    }
    if config.loops > MAX_LOOPS {
        return invalid("loops", "more than 64 loops in one process: use more processes");
    }
    Ok(())
}
