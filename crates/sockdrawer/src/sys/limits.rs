//! The limits that the system sets for this process.

use super::Result;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::num::NonZeroU64;

/// Returns maximum of descriptors of this process; `usize::MAX` without a limit.
pub(crate) fn descriptor_limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Grows the process's descriptor table in advance, for descriptors below this number. Otherwise the kernel doubles the table each time it
/// is full, and a process with threads then waits for all processors (RCU): 4 to 50 ms in which no thread can accept.
pub(crate) fn make_room_for_descriptors(numbers: usize) {
    let highest = numbers.min(descriptor_limit()).saturating_sub(1);
    let Ok(highest) = i32::try_from(highest) else { return };
    // If this fails, the table grows as it is used.
    if let Ok(any) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&any, highest);
    }
}

/// Returns the number of open descriptors; 0 if /proc is not mounted.
pub(crate) fn descriptors_open() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1))
}

/// Returns the first and the last port that the system gives to connecting sockets. None if /proc is not mounted.
pub(crate) fn local_ports() -> Option<(u16, u16)> {
    // The value of this thread's network namespace, which may differ from that of other threads.
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ports = text.split_whitespace().map(str::parse);
    Some((ports.next()?.ok()?, ports.next()?.ok()?))
}

/// Sets the timer slack of this thread to its minimum. By default the kernel may prolong each wait by 50 µs, to save wake-ups.
pub(crate) fn wait_exactly() {
    // If this fails, the slack stays as it was.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// Raises the soft limit of descriptors to the hard limit, and returns it.
pub(crate) fn raise_descriptor_limit() -> Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(descriptor_limit())
}
