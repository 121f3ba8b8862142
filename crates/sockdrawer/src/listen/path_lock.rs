//! Programs that make a Unix socket at the same path do so one after the other: between a look at the path, its removal where no process is
//! behind it, and the next socket there, none other comes.

use crate::sys::private_file;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time that a start waits for others that start at its path.
const LOCKED_WITHIN: Duration = Duration::from_secs(3);
/// Pause between two tries: a lock of a file cannot be waited for until a time.
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// The lock (flock) of a file beside the path, `PATH.lock`, that only this user may open: another user could keep a lock of anything that
/// this user lets be read. The file goes with the lock.
pub(crate) struct PathLock(Option<(PathBuf, File)>);

impl PathLock {
    /// Has nothing where there is no path, where its folder may not be written to, or where another program keeps its lock.
    pub(crate) fn of(path: Option<&Path>) -> PathLock {
        let Some(path) = path else { return PathLock(None) };
        let mut name = OsString::from(path);
        name.push(".lock");
        let path = PathBuf::from(name);
        let until = Instant::now() + LOCKED_WITHIN;
        loop {
            let Ok(file) = private_file(&path).map(File::from) else { return PathLock(None) };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return PathLock(Some((path, file))),
                // The lock's last holder has removed the file.
                Ok(()) => {}
                Err(_) if Instant::now() >= until => return PathLock(None),
                Err(_) => std::thread::sleep(LOCK_AGAIN),
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        if let Some((path, file)) = &self.0 {
            // Starts that wait find another file there, or none, and begin again.
            let _ = std::fs::remove_file(path);
            // The close alone does not unlock it: a process that was forked meanwhile has the descriptor too.
            let _ = file.unlock();
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn one_at_a_time_and_no_file_is_left() {
        let path = std::env::temp_dir().join(format!("sockdrawer-lock-{}", std::process::id()));
        let inside = AtomicBool::new(false);
        let enter = || {
            for _ in 0..100 {
                let lock = PathLock::of(Some(&path));
                assert!(lock.is_held());
                assert!(!inside.swap(true, Ordering::SeqCst), "another one has it");
                inside.store(false, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(enter)));
        assert!(!path.with_extension("lock").exists());
    }

    #[test]
    fn what_others_may_open_holds_nothing_up() {
        let folder = std::env::temp_dir().join(format!("sockdrawer-lock-folder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let by_another_user = File::open(&folder).expect("it may be read");
        by_another_user.lock().expect("it may be locked");
        assert!(PathLock::of(Some(&folder.join("socket"))).is_held());
        assert!(!PathLock::of(Some(Path::new("/nowhere/socket"))).is_held());
        std::fs::remove_dir(&folder).expect("nothing is left in it");
    }
}
