//! `upgrade`: has a program that runs replace itself, and says what came of it.

use crate::arguments::{RequiredShare, UpgradeArguments};
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use sockdrawer::Error;
use sockdrawer::upgrade::Replace;
use sockdrawer_operate::replaced::{Plan, Report, Share, words};

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
        return held_against(&Share::of(&seen, None), arguments.required);
    }
    let mut plan = None;
    let replaced = ask.run(|takeover| {
        // A line that cannot be written now cannot be written at the end.
        let _ = output.tell(Plan { of: &takeover, is_status: false });
        plan = Some(takeover);
    });
    let replaced = replaced.map_err(Failure::run)?;
    output.tell(words(&replaced))?;
    output.report(&Report::of(plan.as_ref(), Some(&replaced)))?;
    plan.map_or(Ok(Exit::Ok), |plan| held_against(&Share::of(&plan, Some(&replaced)), arguments.required))
}

/// Fails where fewer connections moved, or would, than were asked for.
pub(crate) fn held_against(share: &Share, required: RequiredShare) -> Result<Exit, Failure> {
    match required.percent().and_then(|percent| share.falls_short_of(percent)) {
        Some(why) => Err(Failure::run(why)),
        None => Ok(Exit::Ok),
    }
}
