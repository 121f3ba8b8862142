//! The report of a trial by a command, and the findings against the server.

use super::Options;
use super::shell::{Promise, Ran};
use crate::verdict::{Bill, Judged, Verdict};
use crate::{Cause, Delivered, Deliveries, Failure, Group, Losses, Phase, Seen};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Maximum of ways to fail that a verdict names; each change has its own in the JSON.
const WAYS: usize = 3;

/// A run of the command, or an upgrade, with the counts of the clients from its start to the start of the next. A connection counts where
/// it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of the run, from 1 on.
    pub number: u64,
    /// Time at which it began, since the first.
    pub at: Duration,
    /// The command.
    pub ran: Ran,
    /// The counts of the clients.
    pub seen: Seen,
}

/// The report of a trial by a command.
#[derive(Clone, Debug)]
pub struct Report {
    /// The options of the trial.
    pub options: Options,
    /// The trial was stopped before its end.
    pub interrupted: bool,
    /// The time from the first change to the end.
    pub elapsed: Duration,
    /// The counts of the clients before the first change.
    pub before: Seen,
    /// The runs of the command.
    pub changes: Vec<Change>,
    /// The failures, most frequent first.
    pub failures: Vec<(Failure, u64)>,
    /// Kept connections that were open at the end.
    pub standing: usize,
    /// Kept connections that took the place of others in the trial.
    pub replaced: u64,
    /// The first unexpected answer, described.
    pub odd: Option<String>,
    /// WebSockets that the server closed, by its code.
    pub closed: BTreeMap<u16, u64>,
    /// The messages of each sender, where kept connections hear each other.
    pub delivered: Vec<Delivered>,
    /// Messages that were lost, where kept connections hear each other.
    pub lost_messages: Losses,
}

impl Change {
    /// Returns true where nothing was lost and the command ended with 0.
    pub fn is_clean(&self) -> bool {
        self.seen.is_clean() && self.ran.ended.is_success()
    }
}

impl Report {
    /// Returns the counts of the whole trial, the time before the first change included.
    pub fn total(&self) -> Seen {
        self.changes.iter().fold(self.before, |total, change| total.plus(&change.seen))
    }

    /// Returns the churn connections per second since the first change.
    #[expect(clippy::cast_precision_loss, reason = "counts of a trial are far below 2^53")]
    pub fn connects_per_second(&self) -> f64 {
        let connects: u64 = self.changes.iter().map(|change| change.seen.connects).sum();
        connects as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Commands that did not end with 0, except those that were stopped with the trial.
    pub fn failed_commands(&self) -> usize {
        self.changes.iter().filter(|change| change.ran.ended.has_failed()).count()
    }

    /// Returns the reasons of a verdict that is not good, one per line; none: it is good.
    pub fn reasons(&self) -> Vec<String> {
        Verdict::of(self).reasons().to_vec()
    }

    /// Checks that nothing was lost but what killed processes had.
    ///
    /// # Panics
    /// With the table of the trial, unless its verdict is good.
    #[track_caller]
    pub fn assert_nothing_lost(&self) {
        assert!(Verdict::of(self) == Verdict::Good, "{self}");
    }

    /// Holds losses against killed processes. The connections of a process may be seen to be lost until the end of the next change; if it alone
    /// listened, any connect may fail. A timeout is none of these: what belonged to a killed process ends at once.
    pub(crate) fn bill(&self) -> Bill {
        let idle = self.options.allow_idle_close;
        let mut bill = Bill { failed: self.before.failed(), lost: self.before.lost_unless_allowed(idle), ..Bill::default() };
        let mut late = Promise::default();
        for change in &self.changes {
            let own = change.ran.promise.clone().unwrap_or_default();
            let all_lost = change.seen.lost_unless_allowed(idle);
            let (failed_late, lost_late) = (change.seen.timed_out, self.late_kept(change.number).min(all_lost));
            let (mut failed, mut lost) = (change.seen.failed() - failed_late, all_lost - lost_late);
            let mut pay = |of: u64| {
                let of_lost = lost.min(of);
                let of_failed = failed.min(of - of_lost);
                (lost, failed) = (lost - of_lost, failed - of_failed);
                of_lost + of_failed
            };
            let (before, now) = (pay(late.connections), pay(own.connections));
            if own.may_refuse || late.may_refuse {
                // Clients that lost their connection may have come back to a queue that went with its listener.
                let queued = lost.min(change.seen.lost_in_exchange - change.seen.lost_unheard);
                bill.unheard += std::mem::take(&mut failed) + queued;
                lost -= queued;
            }
            bill.paid += before + now;
            bill.had += own.connections;
            (bill.failed, bill.lost) = (bill.failed + failed + failed_late, bill.lost + lost + lost_late);
            late = Promise { connections: own.connections - now, ..own };
        }
        bill
    }

    /// Returns how many kept connections were given up in a change because an answer was late.
    fn late_kept(&self, change: u64) -> u64 {
        let is_late = |failure: &Failure| {
            failure.group == Group::Kept
                && failure.phase != Phase::Connect
                && failure.cause == Cause::Late
                && failure.change as u64 == change
        };
        self.count_failures(is_late)
    }

    fn count_failures(&self, is_meant: impl Fn(&Failure) -> bool) -> u64 {
        self.failures.iter().filter(|(failure, _)| is_meant(failure)).map(|(_, count)| count).sum()
    }

    /// Returns how many upgrades without a kill there were of each kind.
    pub(crate) fn left_alone(&self) -> BTreeMap<&str, u64> {
        let mut kinds = BTreeMap::new();
        for promise in self.promises().filter(|promise| promise.is_left_alone()) {
            *kinds.entry(promise.change).or_default() += 1;
        }
        kinds
    }

    /// Returns how many connections moved in upgrades without a kill, and how many stayed behind.
    pub(crate) fn moved_and_stayed(&self) -> (u64, u64) {
        self.promises().fold((0, 0), |(moved, stayed), one| (moved + one.moved, stayed + one.stayed))
    }

    /// Returns the reasons why connections stayed behind, and what did not go along, each once; of those that differ in numbers alone, as those of states of several lengths do, the first.
    pub(crate) fn left_behind(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let all = self.promises().flat_map(|promise| promise.left_behind.iter().chain(&promise.dropped)).map(String::as_str);
        all.filter(|why| seen.insert(without_numbers(why))).collect()
    }

    fn promises(&self) -> impl Iterator<Item = &Promise> {
        self.changes.iter().filter_map(|change| change.ran.promise.as_ref())
    }

    /// Returns what connections share and an upgrade lost. That the old build does not know what the new one carries is no fault, unless all is required.
    pub(super) fn dropped(&self) -> BTreeSet<&str> {
        let counts = |promise: &&Promise| self.options.require_all || promise.change != "to old";
        self.promises().filter(counts).flat_map(|promise| &promise.dropped).map(String::as_str).collect()
    }

    /// Returns how many changes failed, and in which ways, the first of each; None: none.
    fn failure(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let failed = self.changes.iter().map(|change| &change.ran.ended).filter(|ended| ended.has_failed());
        let ways = failed.map(|ended| match ended {
            super::Ended::Failed(why) => (without_numbers(why), why.clone()),
            other => (other.to_string(), other.to_string()),
        });
        let ways = ways.filter(|(kind, _)| seen.insert(kind.clone())).map(|(_, way)| way);
        let ways: Vec<String> = ways.take(WAYS).collect();
        let (failed, all) = (self.failed_commands(), self.changes.len());
        let changes = if self.is_of_upgrades() { "upgrades" } else { "commands" };
        let ended = if super::give_up(&self.changes) { ", and with the last few in a row the trial ended" } else { "" };
        (failed > 0).then(|| format!("{failed} of {all} {changes} failed (the first: {}){ended}", ways.join("; another: ")))
    }

    /// Returns the first panic in the output of builds, with its text, which is in the next line, and until which change it was.
    pub(super) fn panic(&self) -> Option<String> {
        let upgrades = self.changes.iter().filter(|_| self.is_of_upgrades());
        upgrades.into_iter().find_map(|Change { number, ran, .. }| {
            let mut lines = ran.said.lines().skip_while(|line| !line.contains("panicked"));
            let line = lines.next()?;
            let text = lines.next().filter(|_| line.ends_with(':'));
            let text = text.map_or_else(String::new, |text| format!(" {text}"));
            Some(format!("a build said, until the end of change {number}: {line}{text}"))
        })
    }

    /// Returns whether builds replaced each other, in the place of a command.
    pub(crate) fn is_of_upgrades(&self) -> bool {
        self.changes.iter().any(|change| change.ran.promise.is_some())
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Value {
        let Options { target, workload, command, every, connections, kept, allow_idle_close, seed, .. } = &self.options;
        let total = self.total();
        let verdict = Verdict::of(self);
        let mut report = json!({
            "schema": 1,
            "target": target.to_string(),
            "workload": workload.name(),
            "command": command,
            "every_seconds": every.as_secs_f64(),
            "clients": {"connections": connections, "kept": kept},
            "allow_idle_close": allow_idle_close,
            "changes": self.changes.len(),
            "failed_commands": self.failed_commands(),
            "seconds": self.elapsed.as_secs_f64(),
            "connects_per_second": self.connects_per_second().round(),
            "kept_standing": self.standing,
            "kept_replaced": self.replaced,
            "seed": seed,
            "verdict": verdict.word(),
            "reasons": verdict.reasons(),
            "interrupted": self.interrupted,
            "before": seen_json(&self.before, self.options.allow_idle_close),
            "per_change": self.changes.iter().map(|change| change_json(change, self.options.allow_idle_close)).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(failure_json).collect::<Vec<_>>(),
            "odd_answer": self.odd,
        });
        if self.options.websocket.is_some() {
            let closed = |(code, connections): (&u16, &u64)| json!({"code": code, "connections": connections});
            report["closed"] = self.closed.iter().map(closed).collect();
        }
        if self.options.broadcast.is_some() {
            report["messages"] = messages_json(&self.delivered);
            let of = |what: &'static str| move |(change, count): (&u64, &u64)| json!({"change": change, what: count});
            report["messages"]["lost_by_change"] = self.lost_messages.by_change.iter().map(of("lost")).collect();
            report["messages"]["doubled_by_change"] = self.lost_messages.doubled.iter().map(of("doubled")).collect();
        }
        merge(&mut report, seen_json(&total, self.options.allow_idle_close));
        report
    }
}

/// Adds the members of an object to another.
fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

fn seen_json(seen: &Seen, idle_close: bool) -> Value {
    json!({
        "connects": seen.connects,
        "failed_connects": seen.failed(),
        "refused": seen.refused,
        "reset": seen.reset,
        "timed_out": seen.timed_out,
        "failed_otherwise": seen.failed_otherwise,
        "not_begun": seen.not_begun,
        "lost_connections": seen.lost_unless_allowed(idle_close),
        "lost_in_exchange": seen.lost_in_exchange,
        "lost_unheard": seen.lost_unheard,
        "lost_between": seen.lost_between,
        "lost_announced": seen.lost_announced,
        "kept_not_back": seen.kept_not_back,
        "wrong_bytes": seen.wrong_bytes,
        "kept_round_trips": seen.kept_exchanges,
        "longest_without_connect_us": u64::try_from(seen.longest_gap.as_micros()).unwrap_or(u64::MAX),
    })
}

fn messages_json(delivered: &[Delivered]) -> Value {
    let counts = |one: &Delivered| {
        json!({
            "published": one.published,
            "heard": one.heard,
            "lost": one.lost,
            "lost_beside_kills": one.beside_kills,
            "doubled": one.doubled,
            "out_of_order": one.out_of_order,
        })
    };
    let mut all = counts(&Deliveries::total(delivered));
    all["senders"] = delivered.iter().map(counts).collect();
    all
}

fn change_json(change: &Change, idle_close: bool) -> Value {
    let ran = &change.ran;
    let mut one = json!({
        "number": change.number,
        "at_seconds": change.at.as_secs_f64(),
        "ended": ran.ended.to_string(),
        "exit_status": ran.ended.status(),
        "command_seconds": ran.took.as_secs_f64(),
        "output": ran.said,
    });
    if let Some(Promise { change, connections, may_refuse, moved, stayed, left_behind, dropped, .. }) = &ran.promise {
        one["change"] = (*change).into();
        one["moved"] = (*moved).into();
        one["stayed"] = (*stayed).into();
        one["left_behind"] = [&left_behind[..], &dropped[..]].concat().into();
        one["may_lose"] = json!({"connections": connections, "connects_may_fail": may_refuse});
    }
    merge(&mut one, seen_json(&change.seen, idle_close));
    one
}

/// Returns a text without its numbers: one that is equal to another but for numbers is of one kind with it.
fn without_numbers(text: &str) -> String {
    text.replace(|sign: char| sign.is_ascii_digit(), "")
}

fn failure_json((failure, count): &(Failure, u64)) -> Value {
    json!({
        "clients": failure.group.name(),
        "phase": failure.phase.name(),
        "cause": failure.cause.to_string(),
        "count": count,
    })
}

/// The table and the verdict, as the command prints them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", super::Table(self), Verdict::of(self).line(self))
    }
}

impl Judged for Report {
    fn changes(&self) -> u64 {
        self.changes.len() as u64
    }

    fn connects(&self) -> u64 {
        self.total().connects
    }

    fn allowed(&self) -> u64 {
        if self.options.allow_idle_close { self.total().closed_at_rest() } else { 0 }
    }

    fn crossed(&self) -> u64 {
        if self.options.allow_idle_close { self.total().lost_unheard } else { 0 }
    }

    fn seed(&self) -> u64 {
        self.options.seed
    }

    fn stayed(&self) -> u64 {
        self.moved_and_stayed().1
    }

    fn delivered(&self) -> Option<Delivered> {
        self.options.broadcast.is_some().then(|| Deliveries::total(&self.delivered))
    }

    fn killed(&self) -> Option<Bill> {
        self.changes.iter().any(|change| change.ran.is_kill()).then(|| self.bill())
    }

    fn spoiled(&self) -> Vec<String> {
        let total = self.total();
        // A change that failed comes first: the losses after it are mostly its own. Panics and connections that stay come before that: upgrades fail by them.
        let is_panic = |why: &&str| why.contains("panicked");
        let mut bad: Vec<String> = self.left_behind().into_iter().filter(is_panic).map(str::to_owned).collect();
        let (_, stayed) = self.moved_and_stayed();
        if stayed > 0 && (self.options.require_all || self.failed_commands() > 0) {
            let is_told = |why: &&str| self.dropped().contains(why) || is_panic(why);
            let why: Vec<&str> = self.left_behind().into_iter().filter(|why| !is_told(why)).collect();
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
            bad.push(format!("{stayed} connections stayed behind in upgrades without a kill{why}"));
        }
        bad.extend(self.failure());
        let bill = self.bill();
        // The parts are those of all, killed processes included.
        let beside = |paid: u64| if paid == 0 { String::new() } else { format!(" beside {paid} with killed processes; in all") };
        if bill.failed > 0 {
            let is_wrong = |failure: &Failure| failure.group == Group::Churn && failure.cause == Cause::Wrong;
            let wrong = self.count_failures(is_wrong).min(total.failed_otherwise);
            let parts = parts(&[
                (total.refused, "refused"),
                (total.reset, "reset"),
                (total.timed_out, "late"),
                (wrong, "with a wrong answer"),
                (total.failed_otherwise - wrong, "otherwise"),
            ]);
            bad.push(format!("{} failed connects{} ({parts})", bill.failed, beside(total.failed() - bill.failed)));
        }
        let cut = total.lost_in_exchange - total.lost_unheard;
        let lost = total.lost_unless_allowed(self.options.allow_idle_close);
        if bill.lost > 0 {
            let mut ways = vec![(cut, "cut in an exchange")];
            if !self.options.allow_idle_close {
                ways.push((total.lost_unheard, "closed before the answer"));
                ways.push((total.lost_between, "closed between exchanges"));
                ways.push((total.lost_announced, "closed as announced"));
            }
            let hint = if cut == 0 && !self.is_of_upgrades() { "; --allow idle-close allows that" } else { "" };
            bad.push(format!("{} lost connections{} ({}{hint})", bill.lost, beside(lost - bill.lost), parts(&ways)));
        }
        if total.wrong_bytes > 0 {
            bad.push(format!("{} wrong bytes", total.wrong_bytes));
        }
        bad.extend(Deliveries::total(&self.delivered).faults());
        bad.extend(self.dropped().into_iter().map(str::to_owned));
        if let Some(said) = self.panic().filter(|_| !bad.is_empty()) {
            bad.push(said);
        }
        bad
    }

    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let total = self.total();
        if self.interrupted {
            missing.push("interrupted".to_owned());
        }
        if self.changes.is_empty() {
            missing.push("the command was not run".to_owned());
        }
        if let Some(change) = self.changes.iter().find(|change| change.seen.connects == 0) {
            missing.push(format!("no connect ended during change {}", change.number));
        }
        if total.not_begun > 0 {
            let why = "the clients have too few ports or descriptors of their own: use fewer --connections";
            missing.push(format!("{} connects not begun ({why})", total.not_begun));
        }
        if self.options.kept > 0 && total.kept_exchanges == 0 {
            missing.push("no exchange on a kept connection".to_owned());
        }
        missing
    }
}

fn parts(parts: &[(u64, &str)]) -> String {
    let some: Vec<String> = parts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    some.join(", ")
}
