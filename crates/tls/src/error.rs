//! Mistakes in certificates, keys and options, before any connection.

use std::path::PathBuf;

/// Reason why a TLS configuration cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system, and what to do.
        why: String,
    },
    /// A file or text has not what it should have.
    #[error("{source_name}: {why}")]
    Pem {
        /// The file, or what the text is.
        source_name: String,
        /// Description of what is wrong.
        why: String,
    },
    /// Certificate and key do not go together, or rustls cannot use them.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// Makes the error about a file that was to be read.
    pub fn unreadable(path: impl Into<PathBuf>, error: &std::io::Error) -> Error {
        Error::File { path: path.into(), why: format!("{error}: name a file that is there and may be read") }
    }
}
