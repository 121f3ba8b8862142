//! Paths in the folder of temporary files: of a server that is replaced, of a file that processes share.

use sockdrawer::{Config, Error, Pool, Upgrade};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A path that nothing else of any trial has; removed at the end.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(super) fn new() -> Place {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Place(std::env::temp_dir().join(format!("sockdrawer-trial-{process}-{number}")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Starts a server that takes over from the one that is there, if there is one.
    pub(crate) fn serve(&self, config: Config) -> Result<Pool, Error> {
        let upgrade = Upgrade::at(&self.0).replaces("any").stand_by(Duration::ZERO).begin()?;
        let server = upgrade.start("trial", config)?;
        upgrade.ready()?;
        Ok(server)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may not have come into being.
        let _ = std::fs::remove_file(&self.0);
    }
}
