//! `sockdrawer compare`: two runs, or several of each, beside each other.

use crate::arguments::CompareArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::thresholds;
use sockdrawer_load::results::{Comparison, Side};

/// Compares, and says what it found.
pub(crate) fn run(arguments: CompareArguments) -> Result<Exit, Failure> {
    let before = Side::read(&arguments.before).map_err(Failure::usage)?;
    let after = Side::read(&arguments.after).map_err(Failure::usage)?;
    let comparison = Comparison::of(&before, &after, &arguments.threshold).map_err(Failure::usage)?;
    let mut output = Output::open(arguments.json)?;
    output.tell(&comparison)?;
    output.report(&comparison)?;
    Ok(thresholds::verdict(&comparison.thresholds).unwrap_or(Exit::Ok))
}
