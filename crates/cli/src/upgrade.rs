//! `sockdrawer upgrade`: has a program that runs replace itself, and says what came of it.

use crate::arguments::UpgradeArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use sockdrawer::Error;
use sockdrawer::upgrade::Replace;
use sockdrawer_operate::replaced::{Plan, Report, words};

/// Asks, and says the plan before it is carried out and the result behind it.
pub(crate) fn run(arguments: UpgradeArguments) -> Result<Exit, Failure> {
    let mut output = Output::open(arguments.json)?;
    let mut ask = Replace::at(arguments.path).command(arguments.command);
    if let Some(within) = arguments.within {
        ask = ask.within(within);
    }
    if arguments.status || arguments.rehearse {
        let seen = if arguments.status { ask.look() } else { ask.rehearse() };
        let refused = |error: Error| if arguments.status { Failure::run(error) } else { Failure::preflight(error) };
        let seen = seen.map_err(refused)?;
        output.tell(Plan { of: &seen, is_status: arguments.status })?;
        output.report(&Report::of(Some(&seen), None))?;
        return Ok(Exit::Ok);
    }
    let mut plan = None;
    let replaced = ask.run(|takeover| {
        // What cannot be written now cannot be written at the end.
        let _ = output.tell(Plan { of: &takeover, is_status: false });
        plan = Some(takeover);
    });
    let replaced = replaced.map_err(Failure::run)?;
    output.tell(words(&replaced, plan.as_ref()))?;
    output.report(&Report::of(plan.as_ref(), Some(&replaced)))?;
    Ok(Exit::Ok)
}
