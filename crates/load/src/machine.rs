//! The machine a result was measured on: without it a number means nothing.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs;

/// What a reader of a result wants to know of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The CPU's name, where the kernel tells it.
    pub cpu: Option<String>,
    /// The instruction set.
    pub architecture: Cow<'static, str>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        let read = |path| fs::read_to_string(path).ok();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: read("/proc/cpuinfo").as_deref().and_then(|text| field(text, "model name")).map(str::to_owned),
            architecture: std::env::consts::ARCH.into(),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            memory_bytes: read("/proc/meminfo").as_deref().and_then(|text| field(text, "MemTotal")).and_then(kibibytes),
        }
    }
}

/// The value behind `name:` in one of the kernel's tables.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 3: fast\nMemTotal:        2048 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU @ 3: fast"));
        assert_eq!(field(text, "MemTotal").and_then(kibibytes), Some(2_097_152));
        assert_eq!(field(text, "MemFree"), None);
    }

    #[test]
    fn this_machine_has_a_cpu_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cpus >= 1);
        assert!(machine.kernel.is_some_and(|kernel| !kernel.is_empty() && !kernel.contains('\n')));
    }
}
