//! Memory that forked children do not get. Memory that parent and child both have is copied page by page as soon as either writes to it, so
//! a page that the parent writes for each child would cost a page fault and a copy per child.
#![allow(unsafe_code)]

use super::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// A value in pages of its own, which are not mapped in processes forked from this one: a child that accesses it dies of SIGSEGV.
pub(crate) struct Unforked<T>(NonNull<T>);

// SAFETY: an `Unforked` owns its value, as a box does.
unsafe impl<T: Send> Send for Unforked<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Unforked<T> {}

impl<T> Unforked<T> {
    pub(crate) fn new(value: T) -> Result<Unforked<T>> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096, "a mapping has bytes and begins with a page") };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(null_mut(), size_of::<T>(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        // SAFETY: the advice concerns only children. If it fails, they have a copy that is never used.
        let _ = unsafe { madvise(at, size_of::<T>(), Advice::LinuxDontFork) };
        let place = NonNull::new(at.cast::<T>()).expect("mmap(2) chooses no address 0");
        // SAFETY: mapped just now, long enough, and aligned to a page.
        unsafe { place.write(value) };
        Ok(Unforked(place))
    }
}

impl<T> Deref for Unforked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: initialised in `new`, and mapped until the drop of `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Unforked<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `self` is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Unforked<T> {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, and not used afterwards.
        unsafe { self.0.drop_in_place() };
        // SAFETY: mapped in `new` with this length. It fails only for a bad address.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_kept_changed_and_dropped_once() {
        let counted = Arc::new(());
        let mut kept = Unforked::new([Some(counted.clone()), None]).expect("memory");
        kept[1] = Some(counted.clone());
        assert_eq!((kept.iter().flatten().count(), Arc::strong_count(&counted)), (2, 3));
        drop(kept);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
