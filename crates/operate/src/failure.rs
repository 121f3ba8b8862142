//! Failures: the reasons why a service could not be run to its end in order.

use sockdrawer::Error;
use std::fmt;

/// Reason why a service could not be run to its end in order: one line that says what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
#[non_exhaustive]
pub struct Failure {
    /// The line.
    pub line: String,
    /// Part that is at fault.
    pub fault: Fault,
    /// The log, whose lines are objects, has it: a line on standard error would not be one.
    pub is_told: bool,
}

/// Part that is at fault where a service could not be run to its end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A setting: nothing was run.
    Setting,
    /// Something that the settings ask for and that cannot be had here, such as an address that is in use: nothing was run.
    Configuration,
    /// The run.
    Run,
}

impl Failure {
    pub(crate) fn setting(line: impl fmt::Display) -> Failure {
        Failure { line: line.to_string(), fault: Fault::Setting, is_told: false }
    }

    pub(crate) fn run(line: impl fmt::Display) -> Failure {
        Failure { line: line.to_string(), fault: Fault::Run, is_told: false }
    }

    /// Returns the exit code of the program: 2 if the configuration is at fault, else 1.
    pub fn exit_code(&self) -> u8 {
        if self.fault == Fault::Run { 1 } else { 2 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Stopped { .. } | Error::System { .. } | Error::Upgrade { .. } | Error::ServicePanicked { .. } => {
                Failure::run(error)
            }
            _ => Failure { line: error.to_string(), fault: Fault::Configuration, is_told: false },
        }
    }
}
