//! Steering of new connections among the listening sockets of an address, and away from a socket, by small programs of classic BPF, which
//! need no privilege.
#![allow(unsafe_code)]

use super::options::last_error;
use super::{Errno, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::c_int;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The offset at which such a program reads a random number of the kernel.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
/// The offset of the flags in a TCP header, and two of the flags.
const TCP_FLAGS: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Steers new handshakes to the members of the group with these indices, each with equal probability. Replaces an older program.
pub(super) fn steer(member: BorrowedFd<'_>, to: &[Range<usize>]) -> Result<()> {
    attach(member, libc::SO_ATTACH_REUSEPORT_CBPF, &mut choosing(to)?)
}

/// Ends steering: the kernel chooses by hash among all members again.
pub(super) fn unsteer(member: BorrowedFd<'_>) -> Result<()> {
    let none: c_int = 0;
    // SAFETY: setsockopt(2) reads one int from a valid pointer for a descriptor that is borrowed, hence open.
    let result = unsafe {
        libc::setsockopt(
            member.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            (&raw const none).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Drops the first segment of new handshakes at this socket; the peer sends it again after a second.
pub(super) fn turn_away(listener: BorrowedFd<'_>) -> Result<()> {
    let mut program = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, TCP_FLAGS),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    attach(listener, libc::SO_ATTACH_FILTER, &mut program)
}

/// Drops all segments to this socket, as if the network lost them: for tests.
#[cfg(test)]
pub(crate) fn deafen(socket: BorrowedFd<'_>) -> Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, &mut [step(libc::BPF_RET | libc::BPF_K, 0, 0, 0)])
}

/// Ends [`deafen`].
#[cfg(test)]
pub(crate) fn undeafen(socket: BorrowedFd<'_>) -> Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, &mut [step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX)])
}

/// Returns when every segment that the kernel was processing is done. The kernel processes a segment on some CPU without running a thread
/// there: once this thread has run on that CPU, the segment is done. If this thread may not run on every CPU, or threads process input, as
/// in a real-time kernel, `membarrier` waits for all readers of RCU, which takes up to a hundred times longer.
pub(super) fn await_input() -> Result<()> {
    visit_all_cpus().or_else(|_| await_readers())
}

fn await_readers() -> Result<()> {
    const GLOBAL: c_int = 1;
    // SAFETY: membarrier(2) takes three numbers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Maximum of CPUs to visit: with more, the visit takes longer than RCU.
const MAX_VISITS: usize = 64;

fn visit_all_cpus() -> Result<()> {
    if std::fs::read("/sys/kernel/realtime").is_ok_and(|told| told.starts_with(b"1")) {
        return Err(Errno::NOTSUP);
    }
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").map_err(|_| Errno::NOTSUP)?;
    let online = cpus(online.trim()).filter(|cpus| cpus.len() <= MAX_VISITS).ok_or(Errno::NOTSUP)?;
    let before = sched_getaffinity(None)?;
    let visited = online.into_iter().try_for_each(|cpu| {
        let mut only = CpuSet::new();
        only.set(cpu);
        // The call returns on that CPU.
        sched_setaffinity(None, &only)
    });
    sched_setaffinity(None, &before)?;
    visited
}

/// Parses a list of CPUs such as `0-3,6`.
fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<usize>().ok()?..=last.parse().ok().filter(|last| *last < CpuSet::MAX_CPU)?);
    }
    Some(found)
}

/// Returns a program that returns each index in `to` with equal probability.
fn choosing(to: &[Range<usize>]) -> Result<Vec<libc::sock_filter>> {
    let number = |number: usize| u32::try_from(number).map_err(|_| Errno::INVAL);
    let Some((last, others)) = to.split_last() else { return Err(Errno::INVAL) };
    let mut program = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, RANDOM),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, number(to.iter().map(ExactSizeIterator::len).sum())?),
    ];
    let add = |start| step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 0, 0, start);
    let found = || step(libc::BPF_RET | libc::BPF_A, 0, 0, 0);
    for range in others {
        program.push(step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, number(range.len())?));
        program.extend([add(number(range.start)?), found()]);
        program.push(step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 0, 0, number(range.len())?));
    }
    program.extend([add(number(last.start)?), found()]);
    Ok(program)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    // Codes have 16 bits; libc's constants are wider.
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn attach(socket: BorrowedFd<'_>, option: c_int, program: &mut [libc::sock_filter]) -> Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a sock_fprog, and through it `len` instructions, which all live until the call returns; the descriptor
    // is borrowed, hence open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpus("0"), Some(vec![0]));
        assert_eq!(cpus("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!((cpus(""), cpus("0-x"), cpus("0-99999999")), (None, None, None));
    }

    #[test]
    fn either_way_to_await_input_works_here_and_leaves_the_thread_where_it_may_be() {
        let before = sched_getaffinity(None).expect("always allowed");
        assert!(visit_all_cpus().is_ok() || await_readers().is_ok());
        assert_eq!(sched_getaffinity(None).expect("always allowed"), before);
    }
}
