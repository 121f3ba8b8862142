//! The report as a table.

use super::builds::NEW_AGAIN;
use super::report::{Change, Report};
use super::shell::{Promise, Ran};
use crate::table::aligned;
use crate::verdict::failures;
use crate::{Cause, Delivered, Deliveries, Failure, Judged, Losses, PATIENCE, Seen};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Heads of the columns, for 80 columns of text. Upgrades have a column more, and a name of their own for the second.
const HEAD: [&str; 11] =
    ["change", "exit", "took ms", "connects", "refused", "reset", "late", "other", "lost", "wrong", "gap ms"];
/// The place of the column behind what was lost: what may be, because a process was killed.
const MAY: usize = 9;
/// Maximum of changes shown; of more, the worst. The JSON has all.
const SHOWN: usize = 20;
/// Maximum of output lines of a command, and of senders with faults, that are shown.
const LINES: usize = 5;

/// The table of a report, ready to print. The verdict is not part of it.
pub struct Table<'a>(pub &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let shown = worst(report);
        // Connections whose end is allowed are not lost: the column has all that ended.
        let allowed = report.options.allow_idle_close;
        let mut lines = vec![HEAD.map(|name| if name == "lost" && allowed { "ended" } else { name }.to_owned()).to_vec()];
        lines.push(cells("before", None, &report.before));
        lines.extend(shown.iter().map(|change| cells(&change.number.to_string(), Some(&change.ran), &change.seen)));
        lines.push(cells("all", None, &report.total()));
        if report.is_of_upgrades() {
            let may = |change: &&Change| change.ran.promise.as_ref().map_or(String::new(), may_lose);
            let had = report.killed().map_or_else(String::new, |bill| bill.had.to_string());
            let column = ["may", ""].map(str::to_owned).into_iter().chain(shown.iter().map(may)).chain([had]);
            lines.iter_mut().zip(column).for_each(|(line, cell)| line.insert(MAY, cell));
            lines[0][1] = "step".to_owned();
        }
        f.write_str(&aligned(&lines, 0))?;
        if shown.len() < report.changes.len() {
            writeln!(f, "the {} worst of {} changes", shown.len(), report.changes.len())?;
        }
        writeln!(f)?;
        totals(f, report)
    }
}

/// Returns what the operator of a server can do about each kind of loss. Builds of this library lose nothing by these.
fn remedies(total: &Seen, is_of_upgrades: bool) -> impl Iterator<Item = &'static str> {
    let kinds = [
        (
            total.refused,
            "refused: nothing listened meanwhile; hand the listening socket over, or\nlisten with the new process before the old one stops",
        ),
        (
            total.reset,
            "reset: connects waited at a socket that was closed; keep the socket, and\nhave the new process accept from it",
        ),
        (total.lost_in_exchange - total.lost_unheard, "cut: give requests time to end before the old process does"),
        (
            total.lost_unheard + total.lost_between,
            "closed: clients have to connect again, and to ask again where that may\nbe done twice; a proxy that keeps their connections spares them that",
        ),
    ];
    kinds.into_iter().filter(move |(count, _)| *count > 0 && !is_of_upgrades).map(|(_, remedy)| remedy)
}

fn totals(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let (total, seconds) = (report.total(), report.elapsed.as_secs_f64());
    let (changes, rate) = (report.changes.len(), report.connects_per_second());
    if report.is_of_upgrades() {
        writeln!(f, "may: the connections of the killed process, and of those it had taken over")?;
        writeln!(f, "from; they may be seen to be lost in the change after it, too. +: and connects")?;
        writeln!(f, "may fail, for it alone listened")?;
    }
    writeln!(f, "{changes} changes in {seconds:.1} s, {rate:.0} connects/s. A connection counts where it ended,")?;
    writeln!(f, "from the start of a change to the start of the next. gap: the longest time in")?;
    writeln!(f, "which no connect led to an answer")?;
    if total.timed_out > 0 || report.failures.iter().any(|(failure, _)| failure.cause == Cause::Late) {
        writeln!(f, "late: no answer, or no end, {PATIENCE:?} long; it counts where these are over")?;
    }
    if total.failed_otherwise > 0 {
        writeln!(f, "other: ended before the answer, wrong bytes, or an error of another kind")?;
    }
    upgrades(f, report)?;
    let Seen { lost_in_exchange, lost_unheard, lost_between, lost_announced, kept_exchanges, .. } = total;
    let (standing, kept) = (report.standing, report.options.kept);
    write!(f, "kept connections: {kept_exchanges} round trips; {standing} of {kept} open at the end")?;
    if report.replaced > 0 {
        write!(f, ", {} in place of others", report.replaced)?;
    }
    writeln!(f)?;
    let cut = lost_in_exchange - lost_unheard;
    match report.options.allow_idle_close {
        true => {
            writeln!(f, "lost: {cut} cut in an exchange; ended as --allow idle-close allows: {lost_unheard} closed")?;
            write!(f, "before the answer, {lost_between} between exchanges, {lost_announced} as the last answer had announced")?;
        }
        false => {
            write!(f, "lost: {cut} cut in an exchange, {lost_unheard} closed before the answer, {lost_between} closed")?;
            write!(f, "\nbetween exchanges, {lost_announced} closed as the last answer had announced")?;
        }
    }
    if total.kept_not_back > 0 {
        write!(f, "; {} connects to replace lost ones failed", total.kept_not_back)?;
    }
    if report.options.broadcast.is_some() {
        messages(f, report)?;
    }
    for (nth, (code, connections)) in report.closed.iter().enumerate() {
        write!(f, "{}{connections} with {code}", if nth == 0 { "\nWebSockets closed by the server: " } else { ", " })?;
    }
    failures(f, &report.failures, Failure::to_string)?;
    if report.killed().is_some() && !report.failures.is_empty() {
        f.write_str("\nseen: connections of killed processes are among these")?;
    }
    if let Some(odd) = &report.odd {
        write!(f, "\n{odd}")?;
    }
    remedies(&total, report.is_of_upgrades()).try_for_each(|remedy| write!(f, "\nto do: {remedy}"))?;
    let failed = report.changes.iter().find(|change| !change.ran.ended.is_success());
    if failed.is_none() {
        errors(f, report)?;
    }
    if let Some(change) = failed {
        match &change.ran.promise {
            None => write!(f, "\nthe command of change {} ended with {}", change.number, change.ran.ended)?,
            Some(_) => write!(f, "\nchange {} failed:", change.number)?,
        }
        let lines: Vec<&str> = change.ran.said.lines().collect();
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            write!(f, "\n    {line}")?;
        }
    }
    Ok(())
}

/// Writes what upgrades without a kill did.
fn upgrades(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let (moved, stayed) = report.moved_and_stayed();
    let left_alone = report.left_alone();
    let kinds: Vec<String> = left_alone.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !kinds.is_empty() {
        writeln!(f, "upgrades without a kill: {}; in them", kinds.join(", "))?;
        let alone = report.changes.iter().filter(|change| change.ran.promise.as_ref().is_some_and(Promise::is_left_alone));
        let longest = alone.map(|change| change.ran.took).max().unwrap_or_default();
        writeln!(f, "{moved} connections moved, {stayed} stayed in the old process; the longest took {longest:.1?}")?;
    }
    if report.is_of_upgrades() && !left_alone.contains_key(NEW_AGAIN) {
        writeln!(f, "the new build did not take over from itself: with more changes it does")?;
    }
    report.left_behind().iter().try_for_each(|why| writeln!(f, "    {why}"))
}

/// Writes the errors that builds have told, such as panics: those of the first change that has some. An error that comes with or behind a kill of this trial tells of that.
fn errors(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let of = |at: usize| {
        let of_kill = report.changes[at.saturating_sub(1)..=at].iter().any(|change| change.ran.is_kill());
        let is_error = |line: &&str| line.contains("panicked") || !of_kill && line.starts_with("error");
        report.changes[at].ran.said.lines().filter(is_error).collect::<Vec<_>>()
    };
    let all = report.changes.iter().enumerate().map(|(at, change)| (change.number, of(at)));
    let first = all.into_iter().find(|(_, lines)| !lines.is_empty());
    let Some((number, lines)) = first.filter(|_| report.is_of_upgrades()) else { return Ok(()) };
    write!(f, "\nthe builds said, until the end of change {number}:")?;
    lines.iter().take(LINES).try_for_each(|line| write!(f, "\n    {line}"))
}

/// Writes the sums of all messages, and the senders with the most faults.
fn messages(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let delivered = &report.delivered;
    let (all, senders) = (Deliveries::total(delivered), delivered.len());
    write!(f, "\nmessages of {senders} senders: {all}")?;
    by_change(f, report, "lost", &report.lost_messages.by_change)?;
    by_change(f, report, "doubled", &report.lost_messages.doubled)?;
    let in_upgrades = |change: &&Change| {
        let lost = report.lost_messages.by_change.get(&change.number).is_some_and(|lost| *lost > 0);
        lost && change.ran.promise.as_ref().is_some_and(|promise| !promise.killed)
    };
    // A panic, wrong bytes, and a table that is dropped, are told as reasons, and are.
    let has_reason = report.panic().is_some() || report.total().wrong_bytes > 0 || !report.dropped().is_empty();
    if !has_reason && report.changes.iter().any(|change| in_upgrades(&change)) {
        f.write_str(&why_lost(report))?;
    }
    if report.is_of_upgrades() {
        f.write_str(
            "\nthese clients ask nothing: another trial, with --send and --expect, asks for what a connection has of its own",
        )?;
    }
    let mut bad: Vec<(usize, &Delivered)> = (1..).zip(delivered).filter(|(_, one)| !one.is_clean()).collect();
    bad.sort_by_key(|(_, one)| std::cmp::Reverse(one.lost + one.doubled + one.out_of_order));
    bad.iter().take(LINES).try_for_each(|(number, one)| write!(f, "\nsender {number}: {one}"))
}

/// Returns what a change of builds was, in parentheses.
fn step(report: &Report, number: u64) -> String {
    let change = report.changes.iter().find(|change| change.number == number);
    let promise = change.and_then(|change| change.ran.promise.as_ref()).filter(|promise| !promise.change.is_empty());
    promise.map_or_else(String::new, |promise| format!(" ({})", promise.change))
}

/// Writes numbers of messages by the change in which they were published, with what that was.
fn by_change(f: &mut fmt::Formatter<'_>, report: &Report, what: &str, messages: &BTreeMap<u64, u64>) -> fmt::Result {
    if messages.is_empty() {
        return Ok(());
    }
    let all = listed(messages.iter().map(|(number, count)| format!("{number}{}: {count}", step(report, *number))));
    write!(f, "\n{what} messages by the change in which they were published: {all}")
}

/// Returns the first of these, and says where there are more.
fn listed(all: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = all.take(SHOWN + 1).collect();
    if shown.len() > SHOWN {
        shown[SHOWN] = "...".to_owned();
    }
    shown.join(", ")
}

/// Says how lost messages are spread over the clients that are there at the end, and what may be wrong then; of others that is not known.
fn why_lost(report: &Report) -> String {
    let Losses { unheard, hearers, lacking, deaf, .. } = &report.lost_messages;
    if !deaf.is_empty() {
        let changes = listed(deaf.iter().map(|change| format!("{change}{}", step(report, *change))));
        return format!(
            "\nof the messages of changes {changes} half or more came to none of {hearers} clients: do members join again in restored()?"
        );
    }
    let few = 2 * lacking <= *hearers;
    let asks = [
        (*unheard > 0, "is all passed on that the old build has read?"),
        (*lacking > 0 && !few, "does Service::state say together()?"),
        (*lacking > 0 && few, "do members join again in restored()?"),
    ];
    let asks: String = asks.into_iter().filter(|(is_so, _)| *is_so).flat_map(|(_, ask)| [" ", ask]).collect();
    match asks.is_empty() {
        true => String::new(),
        false => format!("\nat the end {lacking} of {hearers} clients lack messages, and none has {unheard} of these:{asks}"),
    }
}

/// Returns all changes, or the worst, in the order in which they were made.
fn worst(report: &Report) -> Vec<&Change> {
    let badness = |change: &Change| {
        let (seen, messages) = (&change.seen, report.lost_messages.by_change.get(&change.number));
        let failed = !change.ran.ended.is_success();
        (failed, messages.copied().unwrap_or(0), seen.failed() + seen.lost() + seen.wrong_bytes, seen.longest_gap)
    };
    let mut shown: Vec<&Change> = report.changes.iter().collect();
    shown.sort_by_key(|change| std::cmp::Reverse(badness(change)));
    shown.truncate(SHOWN);
    shown.sort_by_key(|change| change.number);
    shown
}

fn may_lose(promise: &Promise) -> String {
    format!("{}{}", promise.connections, if promise.may_refuse { "+" } else { "" })
}

fn cells(name: &str, ran: Option<&Ran>, seen: &Seen) -> Vec<String> {
    let what = |ran: &Ran| match &ran.promise {
        Some(promise) if ran.ended.is_success() => promise.change.to_owned(),
        _ => ran.ended.to_string(),
    };
    let (exit, took) = ran.map_or_else(Default::default, |ran| (what(ran), milliseconds(ran.took)));
    vec![
        name.to_owned(),
        exit,
        took,
        seen.connects.to_string(),
        seen.refused.to_string(),
        seen.reset.to_string(),
        seen.timed_out.to_string(),
        seen.failed_otherwise.to_string(),
        seen.lost().to_string(),
        seen.wrong_bytes.to_string(),
        milliseconds(seen.longest_gap),
    ]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
