//! The text of a configuration, for people: every setting with its value, and code by its name.

use super::Config;
use std::fmt;

/// A stand-in for code that the program wrote.
struct Code(&'static str);

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.admission.limits();
        let code: &dyn fmt::Debug = &Code("of the program");
        f.debug_struct("Config")
            .field("behaviour", &self.behaviour)
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .field("settings", &self.settings)
            .field("loops", &self.loops)
            .field("processes", &self.processes)
            .field("workers", &self.workers)
            .field("stack", &self.stack)
            .field("worker_queue", &self.worker_queue)
            .field("delegates", &self.delegates)
            .field("capacity", &self.capacity)
            .field("spin", &self.spin)
            .field("limit", &self.limit)
            .field("admission", limits.as_ref().map_or(code, |limits| limits))
            .field("alarms", &self.alarms)
            .field("max_generations", &self.max_generations)
            .field("inbox", &self.inbox)
            .field("restarts", &self.restarts)
            .field("stuck_after", &self.stuck_after)
            .finish_non_exhaustive()
    }
}
