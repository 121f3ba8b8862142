//! Check in debug builds: no key seals two records of one number, in this process or across a move. A number that seals twice betrays the key, and no
//! other test sees it, because each of both peers reads a record that is right.

use ring::digest::{Context, SHA256};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;
#[cfg(not(test))]
use std::sync::Mutex;

/// Names a file to which each process that has it in its environment appends what sealed: 16 bytes of the key's hash, 8 of the number, so
/// that a test finds what sealed in two processes.
const FILE: &str = "SOCKDRAWER_SEALED";

/// A key by its hash, so that no key stays in memory, and the number of a record.
type Sealed = [u8; 24];

#[cfg(not(test))]
static ALL: Mutex<Option<HashSet<Sealed>>> = Mutex::new(None);
// Unit tests seal with keys that are given: each has a set of its own.
#[cfg(test)]
thread_local!(static ALL: std::cell::RefCell<HashSet<Sealed>> = Default::default());

#[cfg(not(test))]
fn is_new(sealed: Sealed) -> bool {
    let mut all = ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.get_or_insert_default().insert(sealed)
}

#[cfg(test)]
fn is_new(sealed: Sealed) -> bool {
    ALL.with_borrow_mut(|all| all.insert(sealed))
}

/// Has a unit test begin anew with the keys of an earlier part.
#[cfg(test)]
pub(crate) fn forget() {
    ALL.take();
}

/// Notes that this key seals the record of this number.
///
/// # Panics
/// When it has sealed one of that number before.
pub(super) fn seals(key: &[u8], iv: &[u8], number: u64) {
    let mut sealed: Sealed = [0; 24];
    let mut hash = Context::new(&SHA256);
    hash.update(key);
    hash.update(iv);
    sealed[..16].copy_from_slice(&hash.finish().as_ref()[..16]);
    sealed[16..].copy_from_slice(&number.to_le_bytes());
    assert!(is_new(sealed), "a TLS key seals record {number} twice");
    static APPENDED: LazyLock<Option<File>> = LazyLock::new(|| {
        let open = |path| OpenOptions::new().append(true).create(true).open(path).expect("the file of what sealed is made");
        std::env::var_os(FILE).map(open)
    });
    if let Some(mut file) = APPENDED.as_ref() {
        // A single write, which the kernel puts at the end: other processes append too.
        file.write_all(&sealed).expect("the file of what sealed takes it");
    }
}
