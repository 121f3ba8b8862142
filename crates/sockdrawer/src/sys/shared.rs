//! Memory that several processes share: words, each of them atomic.
#![allow(unsafe_code)]

use super::Result;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

// Under a model checker they are objects of it, for one process.
#[cfg(shuttle)]
use crate::sync::atomic::AtomicU64;
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU64;

/// Words in memory of this process alone, or in memory that other processes map too. Where they lie costs nothing to those
/// who use them. A clone is the same words.
pub(crate) struct Words<T: ?Sized = [AtomicU64]> {
    /// Beside its owner and not behind it, so that a word is found by one look: each connection is counted several times.
    words: NonNull<T>,
    memory: Arc<Memory>,
}

/// Words of which it is known that they are there.
pub(crate) type Part<const N: usize> = Words<[AtomicU64; N]>;

struct Memory {
    words: NonNull<[AtomicU64]>,
    mapped: bool,
}

// SAFETY: it owns its words, or a mapping that lives as long as it does, and gives out shared references to atomics only.
unsafe impl<T: ?Sized + Sync> Send for Words<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Words<T> {}
// SAFETY: as above; it gives out nothing.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Words {
    /// So many, all zero, for this process alone.
    pub(crate) fn private(count: usize) -> Words {
        let words: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        Words::of(NonNull::from(Box::leak(words)), false)
    }

    /// N of them from this one on.
    pub(crate) fn part<const N: usize>(&self, first: usize) -> Part<N> {
        let words = self[first..].first_chunk().expect("there are as many");
        Words { words: NonNull::from(words), memory: self.memory.clone() }
    }

    fn of(words: NonNull<[AtomicU64]>, mapped: bool) -> Words {
        Words { words, memory: Arc::new(Memory { words, mapped }) }
    }

    /// So many, all zero, and the descriptor by which others map them. Words that nobody writes take no memory.
    pub(crate) fn create(count: usize) -> Result<(Words, OwnedFd)> {
        if cfg!(shuttle) {
            return Err(super::Errno::OPNOTSUPP);
        }
        let file = memfd_create("sockdrawer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (count * size_of::<AtomicU64>()) as u64)?;
        // A process that looks at words that are cut off dies of that.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Words::map(file.as_fd(), count)?, file))
    }

    /// What another process created, with the same count. Processes forked from this one do not have it.
    pub(crate) fn map(file: BorrowedFd<'_>, count: usize) -> Result<Words> {
        let words = Words::map_from(file, 0, count)?;
        // SAFETY: mapped just now with this length; the advice concerns forked processes alone, which never look at it.
        unsafe { madvise(words.words.as_ptr().cast(), count * size_of::<AtomicU64>(), Advice::LinuxDontFork) }?;
        Ok(words)
    }

    /// So many of them from this one on, which begins a page.
    pub(crate) fn map_from(file: BorrowedFd<'_>, first: usize, count: usize) -> Result<Words> {
        if cfg!(shuttle) {
            return Err(super::Errno::OPNOTSUPP);
        }
        let (at, size) = ((first * size_of::<AtomicU64>()) as u64, count * size_of::<AtomicU64>());
        if fstat(file)?.st_size.cast_unsigned() < at + size as u64 {
            return Err(super::Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it is page-aligned, hence aligned for words.
        let at = unsafe { mmap(null_mut(), size, protection, MapFlags::SHARED, file, at) }?;
        let first = NonNull::new(at.cast()).expect("mmap(2) chooses no address 0");
        Ok(Words::of(NonNull::slice_from_raw_parts(first, count), true))
    }

    /// Words of one page. Asked once: a forked process that asks again needs the C library's page for it.
    pub(crate) fn in_page() -> usize {
        static WORDS: OnceLock<usize> = OnceLock::new();
        *WORDS.get_or_init(|| {
            // SAFETY: sysconf(3) takes a number.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            usize::try_from(bytes).unwrap_or(4096) / size_of::<AtomicU64>()
        })
    }
}

impl<T: ?Sized> Clone for Words<T> {
    fn clone(&self) -> Words<T> {
        Words { words: self.words, memory: self.memory.clone() }
    }
}

impl<T: ?Sized> Deref for Words<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: valid as long as there is the memory, and every bit pattern is; others write through atomics only.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            let size = self.words.len() * size_of::<AtomicU64>();
            // SAFETY: mapped in `map` with this size; no reference outlives self. It fails for wrong arguments only.
            let _ = unsafe { munmap(self.words.as_ptr().cast(), size) };
        } else {
            // SAFETY: leaked from a box in `private`.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
