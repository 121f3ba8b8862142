//! The end of the program: its exit codes, and the one line that says why.

use sockdrawer::Error;
use std::fmt;
use std::process::ExitCode;

/// Exit codes. The command line's documentation fixes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: all went well.
    Ok,
    /// 1: the run failed: an operation failed, a connection was lost, a drain passed its deadline.
    Failed,
    /// 2: the command line, or what it asks for, makes no sense here.
    Usage,
    /// 3: nothing was run, because something that the run needs is not there.
    Preflight,
    /// 129: SIGHUP; what was reached until then was reported, if not to the terminal that has gone.
    HungUp,
    /// 130: SIGINT; what was reached until then was reported.
    Interrupted,
    /// 143: SIGTERM; what was reached until then was reported.
    Terminated,
    /// A code of a program's own commands.
    Own(u8),
}

impl Exit {
    /// Returns the number of the exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Preflight => 3,
            Exit::HungUp => 129,
            Exit::Interrupted => 130,
            Exit::Terminated => 143,
            Exit::Own(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Reason why the program ends without having done what was asked: one line that says what, why and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    line: String,
}

impl Failure {
    /// Makes the failure of a command line that is at fault.
    pub fn usage(line: impl fmt::Display) -> Failure {
        Failure::new(Exit::Usage, line)
    }

    /// Makes the failure of a command line that is at fault, where the help of this command, with the name of its program, says more.
    pub fn usage_of(command: &str, line: impl fmt::Display) -> Failure {
        Failure::usage(format_args!("{line} (try: {command} --help)"))
    }

    /// Makes the failure where nothing was run, because something that the run needs is not there.
    pub fn preflight(line: impl fmt::Display) -> Failure {
        Failure::new(Exit::Preflight, line)
    }

    /// Makes the failure of a run that is at fault.
    pub fn run(line: impl fmt::Display) -> Failure {
        Failure::new(Exit::Failed, line)
    }

    /// Makes the failure of a report that could not be written as JSON.
    pub fn not_json(error: serde_json::Error) -> Failure {
        Failure::run(format_args!("cannot write the report as JSON: {error}"))
    }

    /// Makes a failure of one line. Line breaks would make several lines of one; a value given on the command line may contain them.
    fn new(exit: Exit, line: impl fmt::Display) -> Failure {
        let line = line.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Failure { exit, line }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Stopped { .. } | Error::System { .. } | Error::Upgrade { .. } | Error::ServicePanicked { .. } => {
                Failure::run(error)
            }
            _ => Failure::usage(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::usage("unknown protocol `a\nb`:\n  there\tis none");
        assert_eq!(failure.to_string(), "unknown protocol `a b`: there is none");
        assert_eq!(failure.exit, Exit::Usage);
    }

    #[test]
    fn a_refused_configuration_is_a_usage_error_and_a_stopped_pool_is_not() {
        let refused = Error::Invalid { setting: "loops", reason: "at least one".to_owned() };
        assert_eq!(Failure::from(refused).exit, Exit::Usage);
        assert_eq!(Failure::from(Error::Stopped { reason: "too many restarts".to_owned() }).exit, Exit::Failed);
    }
}
