//! Panics of user code are caught, counted and sent as events. Where an observer receives those, the panic hook does not print them to stderr,
//! too: a crashing protocol under load would flood the log.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CAUGHT_HERE: Cell<bool> = const { Cell::new(false) };
    /// Place of the last panic of this thread.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// True where a pool of this process has had an observer.
static OBSERVED: AtomicBool = AtomicBool::new(false);

/// Panics of this thread are caught: their place is kept for [`message`], and the hook that was set before is not called once some pool has an
/// observer. For other threads it is.
pub(crate) fn caught_on_this_thread() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let caught = CAUGHT_HERE.get();
            if caught {
                PLACE.set(info.location().map(ToString::to_string));
            }
            if !(caught && OBSERVED.load(Ordering::Relaxed)) {
                before(info);
            }
        }));
    });
    CAUGHT_HERE.set(true);
}

/// Notes that an observer receives the panics of a pool from now on.
pub(crate) fn observed() {
    OBSERVED.store(true, Ordering::Relaxed);
}

/// Returns the message of a panic that was caught on this thread, and its place. The payload, which may be a value of the user's, is dropped.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message");
    let message = match PLACE.take() {
        Some(place) => format!("{text}, at {place}"),
        None => text.to_owned(),
    };
    discard(payload);
    message
}

/// Drops a value of the user's, whose Drop may panic, on a thread that must live on. Returns true if it panicked.
pub(crate) fn discard<T>(value: T) -> bool {
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(value)));
    // The payload of such a panic could panic again when it is dropped: it is leaked.
    dropped.map_err(std::mem::forget).is_err()
}
