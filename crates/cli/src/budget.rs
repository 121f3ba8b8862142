//! What a run needs beside what there is, told before the first connect; a run that cannot work is refused.

use crate::outcome::Failure;
use sockdrawer_catalog::http::Close;
use sockdrawer_catalog::time;
use sockdrawer_load::budget::{Budget, Need};
use sockdrawer_load::{Plan, Wall};

/// A budget, and what it adds to the line that a run starts with.
pub(crate) struct Told {
    pub(crate) budget: Budget,
    pub(crate) words: String,
}

/// Keeps `plan` within what this machine has, unless it is forced.
///
/// # Errors
/// When it does not fit.
pub(crate) fn keep_within(plan: &mut Plan, force: bool) -> Result<Told, Failure> {
    let budget = Budget::of(plan);
    if force {
        return Ok(Told { budget, words: String::new() });
    }
    if let Some(need) = budget.lacking() {
        return Err(refused(plan, need));
    }
    let words = resting(plan, &budget);
    plan.connect_rate = budget.rate.or(plan.connect_rate);
    Ok(Told { budget, words })
}

/// The same for one try of a search: what does not fit is a wall, and told as one.
pub(crate) fn fit(plan: &mut Plan, force: bool) -> Result<(), Wall> {
    let budget = Budget::of(plan);
    if force {
        return Ok(());
    }
    if let Some(wall) = budget.wall() {
        return Err(wall);
    }
    plan.connect_rate = budget.rate.or(plan.connect_rate);
    Ok(())
}

fn refused(plan: &Plan, need: &Need) -> Failure {
    let Need { end, what, how, .. } = need;
    let (needed, had) = (need.amount(need.needed), need.had.map_or_else(String::new, |had| need.amount(had)));
    let remedy = need.remedy.as_deref().unwrap_or("use fewer");
    let connections = plan.connections;
    let whose = if *end == "server" { "the server" } else { "this machine" };
    Failure::preflight(format_args!(
        "--connections {connections}: {whose} has {had} {what} for it and {needed} are needed ({how}): {remedy}, or --force it"
    ))
}

/// What connections that this side ends make of ports.
fn resting(plan: &Plan, budget: &Budget) -> String {
    let ends_here = plan.http().and_then(|wanted| wanted.close) == Some(Close::Fin);
    let Some(room) = budget.room.filter(|_| ends_here) else { return String::new() };
    let (pairs, rest) = (room.pairs.count(), time::format(room.rest));
    let words = format!("; each connection keeps its ports for {rest} of TIME_WAIT, {pairs} can at a time");
    match budget.rate {
        Some(_) => {
            format!("{words}: so it goes no faster (--close server or rst, --source: faster, --force: until they run out)")
        }
        None => words,
    }
}
