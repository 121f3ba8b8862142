//! The findings against a server, and what was too little for a verdict.

use super::kind::Kind;
use super::report::{Report, Row, during};
use crate::Group;
use crate::Until;
use crate::verdict::Judged;

/// Minimum of connections that end under a kind of change: with fewer it proves nothing.
const LEAST_CONNECTS_PER_KIND: u64 = 20;
/// Minimum rate of connects for a server to be under load.
const LEAST_CONNECTS_PER_SECOND: f64 = 5_000.0;

impl Judged for Report {
    fn changes(&self) -> u64 {
        self.changes
    }

    fn connects(&self) -> u64 {
        self.total().connects
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the columns that are not 0, and the counts that do not add up.
    fn spoiled(&self) -> Vec<String> {
        let total = self.total();
        let mut bad = Vec::new();
        let mut column = |count: u64, name: &str, groups: &[Group]| {
            if count > 0 {
                bad.push(format!("{count} {name}{}", example(self, groups)));
            }
        };
        column(total.failed(), "failed connects", &[Group::Churn]);
        column(total.lost(), "lost connections", &[Group::Kept, Group::Requests]);
        column(total.kept_not_back, "connections not back", &[Group::Kept, Group::Requests]);
        column(total.wrong_bytes, "wrong bytes", &[]);
        column(total.ended_badly, "of the second set ended badly", &[Group::Second]);
        if let Some((kind, why)) = self.unseen.first() {
            let all: Vec<&str> = self.unseen.iter().map(|(kind, _)| kind.name()).collect();
            bad.push(format!("changes not seen: {} ({}: {why})", all.join(", "), kind.name()));
        }
        let books = &self.books;
        if !books.balanced() && !books.have_strangers() {
            let (accepted, established, open) = (books.accepted, books.all_established(), books.still_open);
            bad.push(format!("accounts: the server accepted {accepted}, the clients established {established}, {open} are open"));
        }
        if !books.agrees_with_kernel() {
            let opened = books.passive_opens.unwrap_or(0);
            bad.push(format!("kernel: it completed {opened}, the server accepted {} and {} wait", books.accepted, books.queued));
        }
        bad
    }

    /// Returns what was too little for a verdict.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let books = &self.books;
        if books.have_strangers() {
            let (accepted, established) = (books.accepted, books.all_established());
            missing.push(format!("others connected: the server accepted {accepted}, the clients established {established}"));
        }
        if self.total().not_begun > 0 {
            missing.push(format!("{} connects were not begun: the clients lack ports or descriptors", self.total().not_begun));
        }
        if self.interrupted {
            missing.push("interrupted".to_owned());
        }
        // A number of changes determines how many kinds are tried; a time must be long enough for all kinds.
        let all_kinds = matches!(self.until, Until::Passed(_));
        let is_thin = |row: &&Row| match row.times {
            0 => all_kinds,
            _ => row.seen.connects < LEAST_CONNECTS_PER_KIND,
        };
        let absent = |kind: Kind| self.absent.iter().any(|(other, _)| *other == kind);
        let proper = self.rows.iter().filter(|row| row.kind != Kind::Sabotage && !absent(row.kind));
        let thin: Vec<&str> = proper.filter(is_thin).map(|row| row.kind.name()).collect();
        if !thin.is_empty() {
            missing.push(format!("fewer than {LEAST_CONNECTS_PER_KIND} connects during: {}", thin.join(", ")));
        }
        let drains = self.rows.iter().any(|row| row.kind == Kind::Drain && row.times > 0);
        if drains && self.at_drains == 0 {
            missing.push("no request was under way at a drain".to_owned());
        }
        let rate = self.connects_per_second();
        if rate < LEAST_CONNECTS_PER_SECOND {
            missing.push(format!(
                "{rate:.0} connects/s, {LEAST_CONNECTS_PER_SECOND:.0} are needed: try again on a machine that is less busy"
            ));
        }
        missing
    }
}

/// Returns the most frequent failure of these sets.
fn example(report: &Report, groups: &[Group]) -> String {
    let first = report.failures.iter().find(|(failure, _)| groups.contains(&failure.group));
    first.map_or_else(String::new, |(failure, count)| format!(" (most: {}, {count} times)", during(failure)))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::good;
    use super::*;
    use crate::verdict::Verdict;
    use crate::{Cause, Failure, Phase};
    use std::time::Duration;

    fn line(report: &Report) -> String {
        Verdict::of(report).line(report).to_string()
    }

    fn spoil(change: impl FnOnce(&mut Report)) -> Report {
        let mut report = good();
        change(&mut report);
        report
    }

    #[test]
    fn nothing_lost_is_good() {
        let expected = "verdict: good, 525 changes, 120000 connects, 0 failed, 0 lost, 0 wrong bytes (seed 7)";
        assert_eq!(line(&good()), expected);
    }

    #[test]
    fn each_column_makes_it_bad_and_is_named() {
        let spoiled = [
            (spoil(|report| report.rows[3].seen.reset = 2), "verdict: bad: 2 failed connects (seed 7)"),
            (spoil(|report| report.rows[3].seen.lost_between = 1), "verdict: bad: 1 lost connections (seed 7)"),
            (spoil(|report| report.rows[3].seen.wrong_bytes = 9), "verdict: bad: 9 wrong bytes (seed 7)"),
            (spoil(|report| report.rows[3].seen.ended_badly = 4), "verdict: bad: 4 of the second set ended badly (seed 7)"),
            (
                spoil(|report| report.unseen.push((Kind::Loops, "no".to_owned()))),
                "verdict: bad: changes not seen: loops (loops: no) (seed 7)",
            ),
            (
                spoil(|report| report.books.accepted -= 1),
                "verdict: bad: accounts: the server accepted 105499, the clients established 105500, 0 are open (seed 7)",
            ),
            (
                spoil(|report| (report.books.accepted, report.books.passive_opens) = (105_501, Some(105_501))),
                "verdict: bad: accounts: the server accepted 105501, the clients established 105500, 0 are open (seed 7)",
            ),
            (
                spoil(|report| report.books.still_open = 1),
                "verdict: bad: accounts: the server accepted 105500, the clients established 105500, 1 are open (seed 7)",
            ),
            (
                spoil(|report| report.books.passive_opens = Some(105_503)),
                "verdict: bad: kernel: it completed 105503, the server accepted 105500 and 0 wait (seed 7)",
            ),
            (
                spoil(|report| report.books.passive_opens = Some(105_499)),
                "verdict: bad: kernel: it completed 105499, the server accepted 105500 and 0 wait (seed 7)",
            ),
        ];
        for (report, expected) in spoiled {
            assert_eq!(line(&report), expected);
            assert_eq!(Verdict::of(&report).word(), "bad");
        }
    }

    #[test]
    fn a_failure_says_what_it_mostly_was() {
        let report = spoil(|report| {
            report.rows[3].seen.reset = 2;
            let failure = Failure {
                group: Group::Churn,
                phase: Phase::Exchange,
                cause: Cause::Errno(104),
                change: Kind::LiveOptions.index(),
            };
            report.failures.push((failure, 2));
        });
        assert!(
            line(&report).contains("churn exchange: Connection reset by peer (os error 104), during live options, 2 times"),
            "{}",
            line(&report)
        );
    }

    #[test]
    fn a_kernel_that_counts_the_same_is_good() {
        let report = spoil(|report| report.books.passive_opens = Some(105_500));
        assert_eq!(Verdict::of(&report), Verdict::Good);
    }

    #[test]
    fn too_little_is_inconclusive_and_says_of_what() {
        let thin = spoil(|report| report.rows[5].seen.connects = 19);
        assert_eq!(line(&thin), "verdict: inconclusive: fewer than 20 connects during: loops (seed 7)");
        let never = spoil(|report| report.rows[5].times = 0);
        assert_eq!(line(&never), line(&thin));
        let visited = spoil(|report| report.books.accepted += 18_546);
        let others = "others connected: the server accepted 124046, the clients established 105500";
        assert_eq!(line(&visited), format!("verdict: inconclusive: {others} (seed 7)"));
        let slow = spoil(|report| report.elapsed = Duration::from_secs(25));
        assert_eq!(
            line(&slow),
            "verdict: inconclusive: 4800 connects/s, 5000 are needed: try again on a machine that is less busy (seed 7)"
        );
        let idle = spoil(|report| report.at_drains = 0);
        assert_eq!(line(&idle), "verdict: inconclusive: no request was under way at a drain (seed 7)");
        let interrupted = spoil(|report| report.interrupted = true);
        assert_eq!(line(&interrupted), "verdict: inconclusive: interrupted (seed 7)");
    }

    #[test]
    fn a_number_of_changes_need_not_have_every_kind() {
        let few = spoil(|report| {
            report.until = Until::Changes(3);
            report.rows[5].times = 0;
            report.rows[5].seen.connects = 0;
        });
        assert_eq!(Verdict::of(&few), Verdict::Good);
    }

    #[test]
    fn a_kind_that_the_model_does_not_have_is_not_missed() {
        let absent = spoil(|report| {
            report.absent.push((Kind::Loops, "why".to_owned()));
            report.rows[Kind::Loops.index()].times = 0;
        });
        assert_eq!(Verdict::of(&absent), Verdict::Good);
    }

    #[test]
    fn a_loss_is_bad_however_little_was_tried() {
        let report = spoil(|report| {
            report.interrupted = true;
            report.rows[0].seen.lost_between = 1;
        });
        assert_eq!(Verdict::of(&report).word(), "bad");
    }
}
