//! `sockdrawer compare`: two runs, or several of each, beside each other.

use crate::arguments::CompareArguments;
use crate::load::json;
use crate::outcome::{Exit, Failure};
use crate::print::{People, Sink};
use crate::thresholds;
use sockdrawer_load::results::{Comparison, Side};

/// Compares, and says what it found.
pub(crate) fn run(arguments: CompareArguments) -> Result<Exit, Failure> {
    let people = People::beside(arguments.json.as_ref());
    let before = Side::read(&arguments.before).map_err(Failure::usage)?;
    let after = Side::read(&arguments.after).map_err(Failure::usage)?;
    let comparison = Comparison::of(&before, &after, &arguments.threshold).map_err(Failure::usage)?;
    let sink = arguments.json.map(Sink::open).transpose()?;
    people.tell(&comparison)?;
    if let Some(sink) = sink {
        sink.write(json(&comparison)?)?;
    }
    Ok(thresholds::verdict(&comparison.thresholds).unwrap_or(Exit::Ok))
}
