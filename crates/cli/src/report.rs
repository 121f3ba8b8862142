//! `sockdrawer report`: the page of a run again, and its summary.

use crate::arguments::ReportArguments;
use crate::outcome::{Exit, Failure};
use crate::print::{self, Output};
use crate::words;
use sockdrawer_load::results::{Recorded, show};

/// Makes the page and tells what came of the run.
pub(crate) fn run(arguments: &ReportArguments) -> Result<Exit, Failure> {
    let recorded = show(&arguments.directory).map_err(Failure::usage)?;
    let page = arguments.directory.join("report.html");
    match &recorded.report {
        Some(report) => {
            Output::open(None)?.tell_folded(format_args!("{report}\n{}", words::verdict(report, Some(&page))))?;
        }
        None => {
            print::line(interrupted(&recorded))?;
            print::line(format_args!("page         {}", page.display()))?;
        }
    }
    Ok(Exit::Ok)
}

/// Returns what is known of a run that has no result.
fn interrupted(run: &Recorded) -> String {
    let Some(last) = run.samples.last() else {
        return "no result    the run has just begun, or was ended before its first sample".to_owned();
    };
    let (connections, operations) = (&last.connections, &last.operations);
    format!(
        "no result    the run goes on, or was ended before it had one; in its first {:.1} s:\n\
         operations   {} ok, {} failed\n\
         connections  {} attempted, {} established, {} failed, {} lost, {} standing",
        last.at,
        operations.ok,
        operations.failed,
        connections.attempted,
        connections.established,
        connections.failed,
        connections.lost,
        last.standing,
    )
}
