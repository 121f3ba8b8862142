//! Panics of user code are caught, counted and sent as events. Without this module each panic would also print its message, or a backtrace,
//! to stderr, and a crashing protocol under load would flood the log.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panic hook from printing for this thread. For other threads the hook that was set before is called.
pub(crate) fn quiet_thread() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with(Cell::get) {
                before(info);
            }
        }));
    });
    QUIET.with(|quiet| quiet.set(true));
}

/// The message of a caught panic. The payload, which may be a value of the user's, is dropped.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    discard(payload);
    message
}

/// Drops a value of the user's, whose Drop may panic, on a thread that must live on. Returns true if it panicked.
pub(crate) fn discard<T>(value: T) -> bool {
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(value)));
    // The payload of such a panic could panic again when it is dropped: it is leaked.
    dropped.map_err(std::mem::forget).is_err()
}
