//! Memory that several processes share: 64-bit atomic words.
#![allow(unsafe_code)]

use super::Result;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

// Under a model checker the words are its own atomics, for one process.
#[cfg(shuttle)]
use crate::sync::atomic::AtomicU64;
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU64;

/// Words in private memory of this process, or in memory that other processes map too; the use of both costs alike. A clone refers to the
/// same words.
pub(crate) struct Words<T: ?Sized = [AtomicU64]> {
    /// A pointer beside the owner, not behind it, so that a word is reached by one dereference: each connection is counted several times.
    words: NonNull<T>,
    memory: Arc<Memory>,
}

/// Words whose number is known at compile time.
pub(crate) type Part<const N: usize> = Words<[AtomicU64; N]>;

struct Memory {
    words: NonNull<[AtomicU64]>,
    mapped: bool,
}

// SAFETY: a `Words` shares ownership of its memory, which lives as long as it does, and gives out only shared references to atomics.
unsafe impl<T: ?Sized + Sync> Send for Words<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Words<T> {}
// SAFETY: as above; a `Memory` gives out no references.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Words {
    /// Makes `count` words, all zero, in private memory of this process.
    pub(crate) fn private(count: usize) -> Words {
        let words: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        Words::of(NonNull::from(Box::leak(words)), false)
    }

    /// Returns N of these words, from `first` on.
    pub(crate) fn part<const N: usize>(&self, first: usize) -> Part<N> {
        let words = self[first..].first_chunk().expect("there are as many");
        Words { words: NonNull::from(words), memory: self.memory.clone() }
    }

    fn of(words: NonNull<[AtomicU64]>, mapped: bool) -> Words {
        Words { words, memory: Arc::new(Memory { words, mapped }) }
    }

    /// Makes `count` words, all zero, in shared memory. Returns them and the descriptor by which other processes map them. Words never written take
    /// no memory.
    pub(crate) fn create(count: usize) -> Result<(Words, OwnedFd)> {
        if cfg!(shuttle) {
            return Err(super::Errno::OPNOTSUPP);
        }
        let file = memfd_create("sockdrawer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (count * size_of::<AtomicU64>()) as u64)?;
        // A process that reads words beyond the end of the file dies of SIGBUS: the size is sealed.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Words::map(file.as_fd(), count)?, file))
    }

    /// Maps words that another process created, with an equal `count`. Processes forked from this one do not have the mapping.
    pub(crate) fn map(file: BorrowedFd<'_>, count: usize) -> Result<Words> {
        let words = Words::map_from(file, 0, count)?;
        // SAFETY: mapped just now with this length; the advice concerns only forked processes, which never use the mapping.
        unsafe { madvise(words.words.as_ptr().cast(), count * size_of::<AtomicU64>(), Advice::LinuxDontFork) }?;
        Ok(words)
    }

    /// Maps `count` words of the file, from `first` on, which is at the start of a page.
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

    /// Returns the number of words in a page. Cached: another call of sysconf(3) in a forked process would touch a page of the C library.
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
        // SAFETY: the words are valid as long as the memory, as is every bit pattern; other processes write through atomics only.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            let size = self.words.len() * size_of::<AtomicU64>();
            // SAFETY: mapped in `map_from` with this size; no reference outlives self. It fails only for wrong arguments.
            let _ = unsafe { munmap(self.words.as_ptr().cast(), size) };
        } else {
            // SAFETY: leaked from a box in `private`.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
