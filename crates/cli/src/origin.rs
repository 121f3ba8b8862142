//! Origin of a result, as the command line knows it.

use crate::outcome::Failure;
use crate::plan;
use sockdrawer_load::results::Threshold;
use sockdrawer_load::{Plan, Report};

/// Writes the command line and the plan into a result.
pub(crate) fn write(report: &mut Report, plan: &Plan, thresholds: &[Threshold]) -> Result<(), Failure> {
    report.command = Some(command());
    let plan = toml::from_str(&plan::text(plan, thresholds));
    report.plan = Some(plan.map_err(|error| Failure::run(format_args!("cannot write the plan into the result: {error}")))?);
    Ok(())
}

/// Returns the command line as it was typed: a shell makes of it what it was.
pub(crate) fn command() -> String {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().replace('\0', "")).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
