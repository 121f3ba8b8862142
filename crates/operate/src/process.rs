//! Resources that this process uses, as every client library of Prometheus tells them.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use sockdrawer_catalog::openmetrics::float;
use std::fs;
use std::time::Duration;

/// Returns the CPU time of this process, helper processes left out.
pub(crate) fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default().as_secs_f64()
}

/// Reads a line of `/proc/self/status` that has a number of KiB, as bytes.
pub(crate) fn memory_bytes(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(float(kib * 1024))
}

/// Returns the number of open descriptors.
pub(crate) fn open_descriptors() -> Option<f64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2 the length is their number. Before, each is listed.
    match fs::metadata(FOLDER).ok()?.len() {
        0 => Some(float(u64::try_from(fs::read_dir(FOLDER).ok()?.count()).ok()?)),
        number => Some(float(number)),
    }
}

/// Returns the maximum of open descriptors.
pub(crate) fn max_descriptors() -> f64 {
    getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, float)
}
