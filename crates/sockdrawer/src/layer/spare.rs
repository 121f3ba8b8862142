//! Spare buffers. They belong to the thread, not to the connection: an idle connection holds no buffer, and a busy connection
//! allocates none.

use std::cell::RefCell;

/// The number of spare buffers per thread, and the largest capacity in bytes that is kept.
const SPARE_BUFFERS: usize = 4;
const SPARE_BYTES: usize = 512 * 1024;

thread_local!(static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) });

pub(crate) fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| spare.pop().unwrap_or_default())
}

pub(crate) fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > SPARE_BYTES {
        return;
    }
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < SPARE_BUFFERS {
            spare.push(buffer);
        }
    });
}
