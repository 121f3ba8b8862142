//! The report of a trial, as numbers for people and for programs.

use super::kind::Kind;
use super::quiet::Undisturbed;
use crate::Group;
use crate::Until;
use crate::verdict::Verdict;
use crate::{Failure, Seen};
use serde_json::{Value, json};
use sockdrawer::Model;
use std::time::Duration;

/// The report of a trial by kinds of change.
#[derive(Clone, Debug)]
pub struct Report {
    /// The model of the server.
    pub model: Model,
    /// Kinds of change that this model does not have and that were not tried, each with the model's refusal.
    pub absent: Vec<(Kind, String)>,
    /// The seed of random choices.
    pub seed: u64,
    /// Planned end of the trial.
    pub until: Until,
    /// The trial was interrupted before that.
    pub interrupted: bool,
    /// The time from the first change to the last, without the slices in which nothing was changed.
    pub elapsed: Duration,
    /// The connects of the churn in slices between the changes, while nothing was changed.
    pub undisturbed: Undisturbed,
    /// Changes applied; those of a sabotage are not counted.
    pub changes: u64,
    /// The report of each kind of change.
    pub rows: Vec<Row>,
    /// The times that reconfigurations took.
    pub reload: Latency,
    /// Round trips of kept connections.
    pub echoes: u64,
    /// Requests answered.
    pub answers: u64,
    /// Requests under way when their connections were asked to end.
    pub at_drains: u64,
    /// The failures, most frequent first.
    pub failures: Vec<(Failure, u64)>,
    /// Changes that were refused or not seen from outside, the first of each kind.
    pub unseen: Vec<(Kind, String)>,
    /// The counts of both ends.
    pub books: Books,
}

/// The report of a kind of change. A connection counts under the change in which it ended: from its start to the start of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kind of change.
    pub kind: Kind,
    /// Number of times that the change was applied and seen.
    pub times: u64,
    /// The times that applying took, without the test whether the change is in force.
    pub apply: Latency,
    /// The counts of the clients under such changes.
    pub seen: Seen,
    /// Connections that were asked to end.
    pub asked: u64,
}

/// Percentiles of times, in microseconds, exact; 0 where there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
}

/// Counts of both ends, after all connections ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Books {
    /// Connections that the server accepted.
    pub accepted: u64,
    /// Connections that the server still has, which it should not.
    pub still_open: usize,
    /// Connections in the accept queues.
    pub queued: u64,
    /// Established connections, as each set of clients counted them.
    pub established: [(Group, u64); Group::ALL.len()],
    /// Connections that the kernel completed for listeners; None if other programs share its counter.
    pub passive_opens: Option<u64>,
}

impl Latency {
    /// Computes the percentiles of times, by the nearest rank.
    pub(crate) fn of(times: &[Duration]) -> Latency {
        let mut times: Vec<u128> = times.iter().map(Duration::as_micros).collect();
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
            times.get(rank).map_or(0, |time| u64::try_from(*time).unwrap_or(u64::MAX))
        };
        Latency { p50_us: at(50), p99_us: at(99) }
    }
}

impl Books {
    /// Returns the number of established connections, as the clients counted them.
    pub fn all_established(&self) -> u64 {
        self.established.iter().map(|(_, count)| count).sum()
    }

    /// Returns true where the counts of both ends agree, and no connection is left.
    pub fn balanced(&self) -> bool {
        self.accepted == self.all_established() && self.still_open == 0
    }

    /// Returns true where other programs connected: where they can, it is no loss if the server accepted more than the clients made.
    pub fn have_strangers(&self) -> bool {
        self.passive_opens.is_none() && self.still_open == 0 && self.accepted > self.all_established()
    }

    /// Returns true where the counts of the kernel and the server agree. The kernel's may be higher by what it [counts twice](Self::counted_twice):
    /// one connection of 100,000, and one more.
    pub fn agrees_with_kernel(&self) -> bool {
        self.passive_opens.is_none_or(|opened| opened >= self.made()) && self.counted_twice() <= 1 + self.made() / 100_000
    }

    /// Returns the number of connections that the kernel counted beyond those that it made. Where the end of a handshake and the first data of a
    /// client are handled at once on two CPUs, each makes a socket and counts it, and one of the two sockets is dropped: `inet_ehash_nolisten`.
    pub fn counted_twice(&self) -> u64 {
        self.passive_opens.unwrap_or(0).saturating_sub(self.made())
    }

    /// Returns the number of connections of the server, and of those that wait for it.
    fn made(&self) -> u64 {
        self.accepted + self.queued
    }
}

impl Report {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> Seen {
        self.rows.iter().map(|row| row.seen).fold(Seen::default(), |total, seen| total.plus(&seen))
    }

    /// Returns the number of connections asked to end.
    pub fn asked(&self) -> u64 {
        self.rows.iter().map(|row| row.asked).sum()
    }

    /// Returns the churn connections per second while changes were made.
    #[expect(clippy::cast_precision_loss, reason = "counts of a trial are far below 2^53")]
    pub fn connects_per_second(&self) -> f64 {
        let connects = self.total().connects.saturating_sub(self.undisturbed.connects);
        connects as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the rate of connects with changes divided by that without; None if the latter was not measured.
    pub fn rate_kept(&self) -> Option<f64> {
        self.undisturbed.connects_per_second().map(|without| self.connects_per_second() / without)
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Value {
        let total = self.total();
        let verdict = Verdict::of(self);
        json!({
            "schema": 1,
            "model": self.model.name(),
            "not_in_model": self.absent.iter().map(|(kind, why)| json!({"kind": kind.name(), "why": why})).collect::<Vec<_>>(),
            "changes": self.changes,
            "seconds": self.elapsed.as_secs_f64(),
            "connects": total.connects,
            "connects_per_second": self.connects_per_second().round(),
            "connects_per_second_undisturbed": self.undisturbed.connects_per_second().map(f64::round),
            "connect_rate_kept": self.rate_kept(),
            "failed_connects": total.failed(),
            "lost_connections": total.lost(),
            "not_back": total.kept_not_back,
            "wrong_bytes": total.wrong_bytes,
            "kept_round_trips": self.echoes,
            "requests": {"answered": self.answers, "under_way_at_drains": self.at_drains},
            "second_set": {"asked": self.asked(), "ended_well": total.ended_well, "ended_badly": total.ended_badly},
            "reload_p50_us": self.reload.p50_us,
            "reload_p99_us": self.reload.p99_us,
            "seed": self.seed,
            "verdict": verdict.word(),
            "reasons": verdict.reasons(),
            "interrupted": self.interrupted,
            "kinds": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(failure_json).collect::<Vec<_>>(),
            "unseen": self.unseen.iter().map(|(kind, why)| json!({"kind": kind.name(), "why": why})).collect::<Vec<_>>(),
            "books": self.books.json(),
        })
    }
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "kind": self.kind.name(),
            "how": self.kind.way().name(),
            "times": self.times,
            "p50_us": self.apply.p50_us,
            "p99_us": self.apply.p99_us,
            "connects": self.seen.connects,
            "failed_connects": self.seen.failed(),
            "lost_connections": self.seen.lost(),
            "wrong_bytes": self.seen.wrong_bytes,
            "asked": self.asked,
            "ended_well": self.seen.ended_well,
            "ended_badly": self.seen.ended_badly,
        })
    }
}

impl Books {
    fn json(&self) -> Value {
        let established = self.established.iter().map(|(group, count)| (group.name().replace(' ', "_"), json!(count)));
        json!({
            "accepted": self.accepted,
            "established": established.collect::<serde_json::Map<_, _>>(),
            "still_open": self.still_open,
            "queued": self.queued,
            "passive_opens": self.passive_opens,
        })
    }
}

/// Returns a failure as text, with the change that was in force.
pub(crate) fn during(failure: &Failure) -> String {
    format!("{failure}, during {}", Kind::ALL[failure.change].name())
}

fn failure_json((failure, count): &(Failure, u64)) -> Value {
    json!({
        "clients": failure.group.name(),
        "phase": failure.phase.name(),
        "cause": failure.cause.to_string(),
        "errno": failure.cause.errno(),
        "kind": Kind::ALL[failure.change].name(),
        "count": count,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the report of a good trial, to be spoiled.
    pub(crate) fn good() -> Report {
        let seen = Seen { connects: 5_000, ..Seen::default() };
        let apply = Latency { p50_us: 40, p99_us: 90 };
        let rows = Kind::ALL.map(|kind| match kind {
            Kind::Sabotage => Row { kind, times: 0, apply: Latency::default(), seen: Seen::default(), asked: 0 },
            _ => Row { kind, times: 25, apply, seen, asked: 0 },
        });
        Report {
            model: Model::Loops,
            absent: Vec::new(),
            seed: 7,
            until: Until::Passed(Duration::from_secs(10)),
            interrupted: false,
            elapsed: Duration::from_secs(10),
            undisturbed: Undisturbed::default(),
            changes: 525,
            rows: rows.to_vec(),
            reload: apply,
            echoes: 10_000,
            answers: 4_000,
            at_drains: 60,
            failures: Vec::new(),
            unseen: Vec::new(),
            books: Books {
                accepted: 105_500,
                still_open: 0,
                queued: 0,
                established: Group::ALL.map(|group| (group, if group == Group::Churn { 105_500 } else { 0 })),
                passive_opens: None,
            },
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(Latency::of(&times), Latency { p50_us: 100, p99_us: 198 });
        assert_eq!(Latency::of(&times[..1]), Latency { p50_us: 200, p99_us: 200 });
        assert_eq!(Latency::of(&[]), Latency::default());
    }

    #[test]
    fn the_json_has_the_names_that_others_build_on() {
        let json = good().json();
        assert_eq!(json["changes"], 525);
        assert_eq!(json["connects"], 120_000);
        assert_eq!(json["connects_per_second"], 12_000.0);
        assert_eq!(json["failed_connects"], 0);
        assert_eq!(json["lost_connections"], 0);
        assert_eq!(json["wrong_bytes"], 0);
        assert_eq!(json["reload_p50_us"], 40);
        assert_eq!(json["reload_p99_us"], 90);
        assert_eq!(json["seed"], 7);
        assert_eq!(json["verdict"], "good");
        assert_eq!(json["kinds"][0]["kind"], "protocol");
        assert_eq!(json["kinds"][0]["how"], "new generation");
        assert_eq!(json["books"]["established"]["second_set"], 0);
        assert_eq!(json["books"]["passive_opens"], Value::Null);
    }
}
