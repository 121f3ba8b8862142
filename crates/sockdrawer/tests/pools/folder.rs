//! Folders for the paths of Unix sockets.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of a test's own, gone with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Two tests of this process may choose one name.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sockdrawer-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Folder(path)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Returns the names in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
