//! The files of a run, and why they cannot be had.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The report, as `--json` prints it.
pub(crate) const RESULT: &str = "result.json";
/// A sample in each line.
pub(crate) const SERIES: &str = "series.ndjson";
/// Logs of histograms, an interval in each line.
pub(crate) const CONNECTS: &str = "connect.hlog";
pub(crate) const HANDSHAKES: &str = "handshake.hlog";
pub(crate) const OPERATIONS: &str = "operation.hlog";
/// The plan, in the form that `--plan` takes.
pub(crate) const PLAN: &str = "plan.toml";

/// Reason why a directory of a run cannot be written or read.
#[derive(Debug)]
pub enum DirectoryError {
    /// The directory has a run already.
    Taken(PathBuf),
    /// A file in it cannot be written.
    Unwritable(PathBuf, io::Error),
    /// A file in it cannot be read, or is not what it should be.
    Unreadable(PathBuf, String),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::Taken(path) => {
                write!(f, "{} has a run already: name another directory, or remove this one", path.display())
            }
            DirectoryError::Unwritable(path, error) => {
                write!(f, "cannot write {}: {error}; name a directory that you may write to, with room in it", path.display())
            }
            DirectoryError::Unreadable(path, reason) => {
                write!(f, "cannot read {}: {reason}; name the directory of a run, which load --out makes", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {}
