//! Values and calls stored inline: a job goes to a worker, and its result comes back, without an allocation.
//!
//! Contract: a `Cell` owns exactly one value of the type that it was made with, until the value is moved out or dropped. The functions in
//! its `Table` are instantiated for that type and are the only code that looks at the bytes.
#![allow(unsafe_code)]

use std::any::{TypeId, type_name};
use std::mem::{MaybeUninit, align_of, size_of};

/// Maximum size of an inline value in bytes.
pub(crate) const INLINE_BYTES: usize = 96;

#[repr(align(16))]
struct Bytes(MaybeUninit<[u8; INLINE_BYTES]>);

struct InlineTable {
    type_id: fn() -> TypeId,
    type_name: fn() -> &'static str,
    /// Drops the value at the pointer.
    drop: unsafe fn(*mut u8),
    /// Calls the `FnOnce` at the pointer, which moves the closure out. None for plain values.
    call: Option<unsafe fn(*mut u8) -> InlineValue>,
}

struct Cell {
    bytes: Bytes,
    table: &'static InlineTable,
}

impl Cell {
    fn new<T>(value: T, table: &'static InlineTable) -> Cell {
        const {
            assert!(size_of::<T>() <= INLINE_BYTES, "larger than 96 bytes: use Job::boxed, or return a Box");
            assert!(align_of::<T>() <= 16, "aligned to more than 16 bytes: use Job::boxed, or return a Box");
        }
        let mut bytes = Bytes(MaybeUninit::uninit());
        // SAFETY: the assertions above prove that a `T` fits into `bytes` and is aligned there; `bytes` holds nothing yet.
        unsafe { bytes.0.as_mut_ptr().cast::<T>().write(value) };
        Cell { bytes, table }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.bytes.0.as_mut_ptr().cast()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let drop = self.table.drop;
        // SAFETY: a Cell that is dropped still owns its value; the two ways of moving it out forget the Cell.
        unsafe { drop(self.pointer()) }
    }
}

/// # Safety
/// `at` points to an owned, initialised `T` that is not used afterwards.
unsafe fn drop_at<T>(at: *mut u8) {
    // SAFETY: the contract of this function.
    unsafe { at.cast::<T>().drop_in_place() }
}

/// # Safety
/// `at` points to an owned, initialised `F` that is not used afterwards.
unsafe fn call_at<T: Send + 'static, F: FnOnce() -> T>(at: *mut u8) -> InlineValue {
    // SAFETY: the contract of this function.
    let function = unsafe { at.cast::<F>().read() };
    InlineValue::new(function())
}

/// A `Send` value of any type of up to [`INLINE_BYTES`], without a box.
pub(crate) struct InlineValue(Cell);

// SAFETY: the only constructor asks for `T: Send`, and the value is reached by `self` or `&mut self` alone.
unsafe impl Send for InlineValue {}

impl InlineValue {
    /// Stores `value`; a larger value does not compile.
    pub(crate) fn new<T: Send + 'static>(value: T) -> InlineValue {
        InlineValue(Cell::new(
            value,
            const { &InlineTable { type_id: TypeId::of::<T>, type_name: type_name::<T>, drop: drop_at::<T>, call: None } },
        ))
    }

    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.0.table.type_name)()
    }

    /// Takes the value; the error is the unchanged `InlineValue`, if the value is of another type.
    pub(crate) fn take<T: 'static>(self) -> Result<T, InlineValue> {
        if (self.0.table.type_id)() != TypeId::of::<T>() {
            return Err(self);
        }
        let mut cell = std::mem::ManuallyDrop::new(self);
        // SAFETY: the type was compared; ManuallyDrop keeps the Cell from dropping the value that is moved out here.
        Ok(unsafe { cell.0.pointer().cast::<T>().read() })
    }
}

/// A `FnOnce() -> T` of up to [`INLINE_BYTES`], without a box.
pub(crate) struct InlineCall(Cell);

// SAFETY: the only constructor asks for `F: Send`, and the closure is reached by value alone.
unsafe impl Send for InlineCall {}

impl InlineCall {
    /// Stores `function`; a larger closure does not compile.
    pub(crate) fn new<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(function: F) -> InlineCall {
        let table = const {
            &InlineTable { type_id: TypeId::of::<F>, type_name: type_name::<F>, drop: drop_at::<F>, call: Some(call_at::<T, F>) }
        };
        InlineCall(Cell::new(function, table))
    }

    /// Calls the closure. A panic of the closure passes through; its captures are dropped all the same.
    pub(crate) fn call(self) -> InlineValue {
        let mut cell = std::mem::ManuallyDrop::new(self);
        let call = cell.0.table.call.expect("made by InlineCall::new");
        // SAFETY: the Cell owns the closure, `call` moves it out, and ManuallyDrop keeps it from being dropped again.
        unsafe { call(cell.0.pointer()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_comes_back_and_only_as_its_own_type() {
        let value = InlineValue::new(7_u32);
        let Err(value) = value.take::<u64>() else { panic!("a u32 is no u64") };
        assert_eq!(value.type_name(), "u32");
        assert_eq!(value.take::<u32>().ok(), Some(7));
    }

    #[test]
    fn what_is_never_taken_or_called_is_dropped_once() {
        let counted = Arc::new(());
        drop(InlineValue::new(counted.clone()));
        let moved = counted.clone();
        drop(InlineCall::new(move || moved));
        assert_eq!(Arc::strong_count(&counted), 1);
        let moved = counted.clone();
        let kept = InlineCall::new(move || moved).call();
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(kept.take::<Arc<()>>());
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_panicking_call_drops_its_captures_once() {
        let counted = Arc::new(());
        let moved = counted.clone();
        let call = InlineCall::new(move || -> Arc<()> {
            let _keep = moved;
            std::panic::resume_unwind(Box::new(()))
        });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.call())).is_err());
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
