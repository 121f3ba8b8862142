//! Why a service could not be run to its end in order.

use sockdrawer::Error;
use std::fmt;

/// Why a service could not be run to its end in order: one line that says what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
#[non_exhaustive]
pub struct Failure {
    /// The line.
    pub line: String,
    /// The configuration is at fault, and nothing was run; else the run is.
    pub configuration: bool,
}

impl Failure {
    pub(crate) fn configuration(line: impl fmt::Display) -> Failure {
        Failure { line: line.to_string(), configuration: true }
    }

    pub(crate) fn run(line: impl fmt::Display) -> Failure {
        Failure { line: line.to_string(), configuration: false }
    }

    /// The exit code of the program: 2 if the configuration is at fault, else 1.
    pub fn exit_code(&self) -> u8 {
        if self.configuration { 2 } else { 1 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Stopped { .. } | Error::System { .. } | Error::Upgrade { .. } | Error::ServicePanicked { .. } => {
                Failure::run(error)
            }
            _ => Failure::configuration(error),
        }
    }
}
