//! What the system lets this process have.

use super::Result;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::num::NonZeroU64;

/// Descriptors this process may have open; `usize::MAX` without a limit.
pub(crate) fn descriptor_limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Makes room in the process's table for descriptors below this number. The kernel doubles the table as numbers are reached, and each time
/// a process with threads waits for all of its processors (RCU): 4 to 50 ms in which no thread can accept.
pub(crate) fn make_room_for_descriptors(numbers: usize) {
    let highest = numbers.min(descriptor_limit()).saturating_sub(1);
    let Ok(highest) = i32::try_from(highest) else { return };
    // Where it is refused, the table grows as it is used.
    if let Ok(any) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&any, highest);
    }
}

/// Descriptors open now; 0 where /proc is not mounted.
pub(crate) fn descriptors_open() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1))
}

/// From and to: the ports that the system gives to connecting sockets. None where /proc is not mounted.
pub(crate) fn local_ports() -> Option<(u16, u16)> {
    // As this thread's network has it, whatever the rest of the process sees.
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ports = text.split_whitespace().map(str::parse);
    Some((ports.next()?.ok()?, ports.next()?.ok()?))
}

/// This thread's waits end when they are to. By default the kernel may let each be 50 µs longer, to save wake-ups.
pub(crate) fn wait_exactly() {
    // Where it is refused, waits are as long as they were.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// Raises the soft limit to the hard one; what it is now.
pub(crate) fn raise_descriptor_limit() -> Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(descriptor_limit())
}
