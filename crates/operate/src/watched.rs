//! Files of certificates and keys are watched by their directories, because most are replaced by a rename, of themselves or of a symbolic link
//! on the way to them.

use crate::document::Document;
use crate::listen::sets;
use crate::tls::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which files are looked at, whatever is told of them: a file system of another machine tells nothing.
const LOOKS_EVERY: Duration = Duration::from_secs(30);
/// Interval at which files are looked at where the system has no room for what tells of changes: Linux has 128 for each user.
const LOOKS_UNTOLD: Duration = Duration::from_secs(1);
/// Time without changes after which files are read: a certificate and its key are two files.
const QUIET: Duration = Duration::from_millis(100);
/// Maximum number of changes in a row: after these the files are read in any case.
const MAX_CHANGES: usize = 50;

/// Source that tells of changes in directories.
#[derive(Clone)]
pub(crate) struct Watched(Option<Arc<OwnedFd>>);

impl Default for Watched {
    fn default() -> Watched {
        Watched(init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Arc::new))
    }
}

impl Watched {
    /// Watches where the files of this configuration are.
    pub(crate) fn add(&self, document: &Document) {
        let Some(told) = &self.0 else { return };
        let changes =
            WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        for directory in directories(document) {
            // A directory that is not there, or cannot be watched, is looked at once in a while.
            let _ = add_watch(told, directory.as_path(), changes);
        }
    }

    /// Waits until files may have changed.
    pub(crate) fn wait(&self) {
        let Some(told) = &self.0 else { return std::thread::sleep(LOOKS_UNTOLD) };
        if !is_told(told, LOOKS_EVERY) {
            return;
        }
        let mut changes = 0;
        while changes < MAX_CHANGES && is_told(told, QUIET) {
            let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
            let mut reader = Reader::new(told, &mut buffer);
            while reader.next().is_ok() {}
            changes += 1;
        }
    }
}

/// Returns the directories of the files, and of those that links lead to.
fn directories(document: &Document) -> BTreeSet<PathBuf> {
    document.pools.values().flat_map(|pool| files(&sets(&pool.values))).flat_map(|file| directories_of(&file)).collect()
}

/// Returns the directories of one file: its own, that of what it leads to, and that of each link on the way.
fn directories_of(file: &Path) -> Vec<PathBuf> {
    let parent =
        |path: &Path| path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent }.to_owned());
    let links = file.ancestors().skip(1).filter(|above| above.is_symlink()).filter_map(parent);
    [parent(file), file.canonicalize().ok().as_deref().and_then(parent)].into_iter().flatten().chain(links).collect()
}

fn is_told(told: &OwnedFd, within: Duration) -> bool {
    let within =
        Timespec { tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(within.subsec_nanos()) };
    poll(&mut [PollFd::new(told, PollFlags::IN)], Some(&within)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_on_the_way_to_a_file_is_watched_where_it_is() {
        let folder = std::env::temp_dir().join(format!("sockdrawer-watched-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("releases/1")).expect("a folder");
        let folder = folder.canonicalize().expect("it is there");
        std::fs::write(folder.join("releases/1/chain.pem"), "").expect("a file");
        std::os::unix::fs::symlink("releases/1", folder.join("current")).expect("a link");
        let watched = directories_of(&folder.join("current/chain.pem"));
        let missing = directories_of(&folder.join("missing"));
        std::fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(watched, [folder.join("current"), folder.join("releases/1"), folder.clone()]);
        assert_eq!(missing, [folder]);
        assert_eq!(directories_of(Path::new("chain.pem")), [Path::new(".")]);
    }
}
