//! What a process that forks keeps to itself. Memory that a child has too is copied page by page as soon as either of them writes
//! to it, so what the parent writes for each child costs it a fault and a copy for each child. Of this memory children have nothing.
#![allow(unsafe_code)]

use super::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// A value in pages of its own, which are not there in processes forked from this one: a child that looks at it dies of that.
pub(crate) struct Unforked<T>(NonNull<T>);

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send> Send for Unforked<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Unforked<T> {}

impl<T> Unforked<T> {
    pub(crate) fn new(value: T) -> Result<Unforked<T>> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096, "a mapping has bytes and begins with a page") };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap_anonymous(null_mut(), size_of::<T>(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        // SAFETY: the advice concerns children alone. Where it is not taken, they have a copy that nobody uses.
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
        // SAFETY: initialised in `new`, and there until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Unforked<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; nobody else knows of it.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Unforked<T> {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, and used by nobody afterwards.
        unsafe { self.0.drop_in_place() };
        // SAFETY: mapped in `new` with this length. It fails for a bad address only.
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
