//! The machine a result was measured on: without it a number means nothing.

use crate::cgroup::Limits;
use crate::proc::{cpus, field, memory, setting, text};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Part of the machine's CPUs from which on programs that are no part of the run change what is measured.
const BUSY: f64 = 0.1;

/// Returns the words for what other programs took of a machine, where it is much.
pub(crate) fn busy_with_others(others: f64, cpus: f64) -> Option<String> {
    (others > BUSY * cpus).then(|| format!("other programs used {others:.1} of this machine's {cpus:.0} CPUs meanwhile"))
}

/// Facts about the machine that readers of a result want to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// CPUs that are online, whichever of them this process may use.
    pub cpus: usize,
    /// The CPU's name, where the kernel tells it.
    pub cpu: Option<String>,
    /// The instruction set.
    pub architecture: Cow<'static, str>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// CPUs that a cgroup lets this process have; null where none sets a quota.
    #[serde(default)]
    pub cpu_quota: Option<f64>,
    /// Memory in bytes that a cgroup lets this process have; null where none sets a limit.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
}

impl Machine {
    /// Returns the facts about this machine.
    pub fn this() -> Machine {
        let allowed = Limits::own();
        Machine {
            cpus: cpus(),
            cpu: text("/proc/cpuinfo").as_deref().and_then(|text| field(text, "model name")).map(str::to_owned),
            architecture: std::env::consts::ARCH.into(),
            kernel: setting("kernel.osrelease"),
            memory_bytes: memory("MemTotal"),
            cpu_quota: allowed.cpu.map(|quota| quota.cpus),
            memory_limit_bytes: allowed.memory.map(|room| room.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_cpu_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cpus >= 1);
        assert!(machine.kernel.is_some_and(|kernel| !kernel.is_empty() && !kernel.contains('\n')));
    }
}
