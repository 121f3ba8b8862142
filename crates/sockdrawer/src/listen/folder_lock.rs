//! Programs that make Unix sockets in the same folder do so one after the other: between a look at a path, its removal where no process is
//! behind it, and the next socket there, none other comes.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a start waits for others that start in the folder of its path.
const LOCKED_WITHIN: Duration = Duration::from_secs(3);
/// Between two tries: a lock of a file cannot be waited for until a time.
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// The lock (flock) of the folder in which a Unix socket gets its path. It leaves no file behind, and ends with its process.
pub(crate) struct FolderLock(Option<File>);

impl FolderLock {
    /// Has nothing where there is no path, where the folder may not be read, or where another program keeps its lock.
    pub(crate) fn of(path: Option<&Path>) -> FolderLock {
        let Some(path) = path else { return FolderLock(None) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(folder) = File::open(folder) else { return FolderLock(None) };
        let until = Instant::now() + LOCKED_WITHIN;
        while folder.try_lock().is_err() {
            if Instant::now() >= until {
                return FolderLock(None);
            }
            std::thread::sleep(LOCK_AGAIN);
        }
        FolderLock(Some(folder))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Not by the close alone: a process that was forked meanwhile has the descriptor too.
        self.0.iter().for_each(|folder| _ = folder.unlock());
    }
}
