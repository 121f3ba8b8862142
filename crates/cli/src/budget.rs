//! Budget of a run: what it needs beside what there is, told before the first connect; a run that cannot work is refused.

use crate::outcome::Failure;
use sockdrawer_catalog::time;
use sockdrawer_load::Plan;
use sockdrawer_load::budget::{Budget, Need};

/// A budget, and what it adds to the line that a run starts with.
pub(crate) struct BudgetLine {
    pub(crate) budget: Budget,
    pub(crate) words: String,
}

/// Keeps `plan` within what this machine has, unless it is forced.
///
/// # Errors
/// What it lacks, when it does not fit.
pub(crate) fn keep_within(plan: &mut Plan, force: bool) -> Result<BudgetLine, Need> {
    let budget = Budget::of(plan);
    if force {
        return Ok(BudgetLine { budget, words: String::new() });
    }
    if let Some(need) = budget.lacking() {
        return Err(need.clone());
    }
    let words = resting(plan, &budget);
    plan.connect_rate = budget.rate.or(plan.connect_rate);
    Ok(BudgetLine { budget, words })
}

/// Refuses a run that lacks something.
pub(crate) fn refused(plan: &Plan, need: &Need) -> Failure {
    let Need { end, what, how, .. } = need;
    let (needed, had) = (need.amount(need.needed), need.had.map_or_else(String::new, |had| need.amount(had)));
    let remedy = need.remedy.as_deref().unwrap_or("use fewer");
    let connections = plan.connections;
    let whose = if *end == "server" { "the server" } else { "this machine" };
    Failure::preflight(format_args!(
        "--connections {connections}: {whose} has {had} {what} for it and {needed} are needed ({how}): {remedy}, or --force it"
    ))
}

/// Returns the words about the ports of connections that this side ends.
fn resting(plan: &Plan, budget: &Budget) -> String {
    let Some(room) = budget.room.filter(|_| plan.workload.properties().ends_first) else { return String::new() };
    let (pairs, rest) = (room.pairs.count(), time::format(room.rest));
    let words = format!("; each connection keeps its ports for {rest} of TIME_WAIT, {pairs} can at a time");
    match budget.rate {
        Some(_) => {
            format!("{words}: so it goes no faster (--close server or rst, --source: faster, --force: until they run out)")
        }
        None => words,
    }
}
