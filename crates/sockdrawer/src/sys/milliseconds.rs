//! Waiting by `epoll_wait`, for systems without `epoll_pwait2`: kernels before 5.11, system call filters that do not know the call (ENOSYS,
//! or EPERM from older filters), valgrind 3.19.
#![allow(unsafe_code)]

use super::{Errno, Result};
use rustix::event::epoll::Event;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

// Both types are the kernel's epoll_event.
const _: () = assert!(size_of::<Event>() == size_of::<libc::epoll_event>());
const _: () = assert!(align_of::<Event>() == align_of::<libc::epoll_event>());

/// Waits by `epoll_wait`, up to a millisecond longer than asked: a wait that ended too early would be repeated at once.
pub(super) fn wait(epoll: BorrowedFd<'_>, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<()> {
    events.clear();
    let room = events.spare_capacity_mut();
    let most = i32::try_from(room.len()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes at most `most` events, each of this size, and the spare capacity has room for them.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), room.as_mut_ptr().cast(), most, whole(timeout)) };
    let Ok(count) = usize::try_from(count) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    };
    // SAFETY: the kernel has written `count` events.
    unsafe { events.set_len(count) };
    Ok(())
}

/// Returns the timeout in whole milliseconds, rounded up; -1 waits for ever. A wait longer than 24 days ends early once in that time.
fn whole(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |time| i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Interest, Kernel, System};
    use std::os::fd::AsFd;
    use std::time::Instant;

    #[test]
    fn an_event_comes_with_its_token() {
        let (epoll, event) = (Kernel.epoll().unwrap(), Kernel.event().unwrap());
        Kernel.watch(epoll.as_fd(), event.as_fd(), u64::MAX - 7, Interest::READ).unwrap();
        Kernel.notify(event.as_fd()).unwrap();
        let mut events = Vec::with_capacity(4);
        wait(epoll.as_fd(), &mut events, None).unwrap();
        let tokens: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        assert_eq!(tokens, [u64::MAX - 7]);
    }

    #[test]
    fn it_ends_when_the_time_is_over_and_not_before() {
        let epoll = Kernel.epoll().unwrap();
        let (start, time) = (Instant::now(), Duration::from_micros(2_300));
        let mut events = Vec::with_capacity(4);
        wait(epoll.as_fd(), &mut events, Some(time)).unwrap();
        assert!(events.is_empty());
        assert!(start.elapsed() >= time);
    }

    #[test]
    fn times_are_rounded_up_to_milliseconds() {
        let whole = |nanos| whole(Some(Duration::from_nanos(nanos)));
        assert_eq!((whole(0), whole(1), whole(1_000_000), whole(1_000_001)), (0, 1, 1, 2));
        assert_eq!(super::whole(Some(Duration::MAX)), i32::MAX);
        assert_eq!(super::whole(None), -1);
    }

    #[test]
    fn what_is_not_an_epoll_is_told() {
        let event = Kernel.event().unwrap();
        assert_eq!(wait(event.as_fd(), &mut Vec::with_capacity(4), None), Err(Errno::INVAL));
    }
}
