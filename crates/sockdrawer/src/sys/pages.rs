//! Memory directly from the kernel. Pages that were never touched take no memory; zeroed memory of an allocator may have been used before,
//! and is then cleared, which touches all of it.
#![allow(unsafe_code)]

use super::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// A range of bytes in a mapping of its own, zero at first.
pub(crate) struct Pages(NonNull<[u8]>);

// SAFETY: a `Pages` owns its mapping, as a box owns its bytes.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `length` bytes, at least one.
    pub(crate) fn new(length: usize) -> Result<Pages> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let first = NonNull::new(at.cast()).expect("mmap(2) chooses no address 0");
        Ok(Pages(NonNull::slice_from_raw_parts(first, length)))
    }
}

impl Pages {
    /// Returns the memory to the kernel; the bytes are zero again.
    pub(crate) fn give_back(&mut self) {
        if !self.is_empty() {
            // SAFETY: mapped in `new` with this length, private and anonymous: the next reads see zeroes, which are valid bytes. There are
            // no borrows. If it fails, the memory stays.
            let _ = unsafe { madvise(self.0.as_ptr().cast(), self.len(), Advice::LinuxDontNeed) };
        }
    }
}

impl Default for Pages {
    /// Returns pages without bytes and without a mapping.
    fn default() -> Pages {
        Pages(NonNull::slice_from_raw_parts(NonNull::dangling(), 0))
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, or empty, until the drop of `self`, and every bit pattern is a valid byte.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.is_empty() {
            // SAFETY: mapped in `new` with this length; there are no borrows. It fails only for a bad address.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), self.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_is_written_and_none_hold_nothing() {
        let mut pages = Pages::new(10_000).expect("memory");
        assert!(pages.iter().all(|byte| *byte == 0));
        pages[9_999] = 7;
        let moved = std::mem::take(&mut pages);
        assert_eq!((moved.len(), moved[9_999], pages.len()), (10_000, 7, 0));
        let mut moved = moved;
        moved.give_back();
        pages.give_back();
        assert_eq!((moved.len(), moved[9_999]), (10_000, 0), "they can be used again");
    }
}
