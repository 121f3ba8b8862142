//! The search for the most that holds: up by doubling until something fails, then between what held and what did not, and once more
//! what held, because one run may be lucky. What fails is tried again before it counts, because one run may be unlucky.

use crate::numbers::float;

/// Within so much of what holds, what does not is not looked for any closer.
const CLOSE: f64 = 0.05;

/// Where a search is. It makes no runs: it says what to try, and is told what came of it.
///
/// ```
/// # use sockdrawer_load::Search;
/// let mut search = Search::new(100, 1_000_000);
/// while let Some(amount) = search.next() {
///     search.tell(amount <= 1_000);
/// }
/// assert!(search.found().is_some_and(|found| (950..=1_000).contains(&found)));
/// ```
#[derive(Clone, Debug)]
pub struct Search {
    first: u64,
    most: u64,
    /// What held, in rising order.
    held: Vec<u64>,
    /// The least that failed.
    failed: Option<u64>,
    /// What failed once, and is tried again.
    doubtful: Option<u64>,
    confirmed: bool,
    asked: Option<u64>,
}

impl Search {
    /// Begins with `first`, and never asks for more than `most`; both at least 1.
    pub fn new(first: u64, most: u64) -> Search {
        let most = most.max(1);
        Search {
            first: first.clamp(1, most),
            most,
            held: Vec::new(),
            failed: None,
            doubtful: None,
            confirmed: false,
            asked: None,
        }
    }

    /// What to try next; None: the search is over.
    #[expect(clippy::should_implement_trait, reason = "what comes next depends on what is told in between")]
    pub fn next(&mut self) -> Option<u64> {
        self.asked = match (self.held.last().copied(), self.failed) {
            _ if self.confirmed => None,
            _ if self.doubtful.is_some() => self.doubtful,
            (None, None) => Some(self.first),
            (None, Some(1)) => None,
            (None, Some(failed)) => Some(failed / 2),
            (Some(held), None) if held == self.most => Some(held),
            (Some(held), None) => Some(held.saturating_mul(2).min(self.most)),
            (Some(held), Some(failed)) if is_close(held, failed) => Some(held),
            (Some(held), Some(failed)) => Some(held + (failed - held) / 2),
        };
        self.asked
    }

    /// What was asked for last cannot hold, and is not tried again.
    pub fn refuse(&mut self) {
        self.doubtful = self.asked;
        self.tell(false);
    }

    /// Whether what was asked for last held.
    pub fn tell(&mut self, held: bool) {
        let Some(asked) = self.asked.take() else { return };
        let failed_before = self.doubtful.take() == Some(asked);
        if !held && !failed_before {
            self.doubtful = Some(asked);
            return;
        }
        match (held, self.held.last() == Some(&asked)) {
            (true, true) => self.confirmed = true,
            (true, false) => self.held.push(asked),
            (false, again) => {
                if again {
                    self.held.pop();
                }
                self.failed = Some(asked);
            }
        }
    }

    /// The most that held, twice; None before the end, and where nothing did.
    pub fn found(&self) -> Option<u64> {
        self.held.last().copied().filter(|_| self.confirmed)
    }

    /// The least that did not hold.
    pub fn failed(&self) -> Option<u64> {
        self.failed
    }

    /// Whether what is asked for now has failed once.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.is_some()
    }

    /// About how many tries are left, that which is asked for now included: those to the most, or to where it is close; fewer if one fails.
    pub fn left(&self) -> u64 {
        let halvings = |gap: f64| gap.log2().ceil().max(0.0);
        let held = self.held.last().copied();
        let steps = match (held, self.failed) {
            _ if self.confirmed => return 0,
            (_, None) => halvings(float(self.most) / float(held.unwrap_or(self.first))) + if held.is_none() { 1.0 } else { 0.0 },
            (None, Some(failed)) => halvings(float(failed)),
            (Some(held), Some(failed)) if is_close(held, failed) => 0.0,
            (Some(held), Some(failed)) => halvings(float(failed - held) / (CLOSE * float(held)).max(1.0)),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "logarithms of counts are small")]
        let steps = steps as u64;
        steps + 1 + u64::from(self.doubtful.is_some())
    }

    /// Whether what is asked for now has held before.
    pub fn is_confirming(&self) -> bool {
        self.asked.is_some() && self.asked == self.held.last().copied()
    }
}

fn is_close(held: u64, failed: u64) -> bool {
    failed - held <= 1 || float(failed - held) <= CLOSE * float(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a search asks for when each answer is that of `holds`.
    fn asked(mut search: Search, mut holds: impl FnMut(u64) -> bool) -> (Vec<u64>, Option<u64>) {
        let mut asked = Vec::new();
        while let Some(amount) = search.next() {
            asked.push(amount);
            assert!(asked.len() < 100, "{asked:?}");
            search.tell(holds(amount));
        }
        (asked, search.found())
    }

    #[test]
    fn it_doubles_then_halves_the_gap_and_tries_again_what_held() {
        let (asked, found) = asked(Search::new(100, 10_000), |amount| amount <= 750);
        assert_eq!((asked, found), (vec![100, 200, 400, 800, 800, 600, 700, 750, 775, 775, 750], Some(750)));
    }

    #[test]
    fn the_most_is_never_passed_and_is_tried_twice_too() {
        assert_eq!(asked(Search::new(100, 300), |_| true), (vec![100, 200, 300, 300], Some(300)));
        assert_eq!(asked(Search::new(500, 300), |_| true), (vec![300, 300], Some(300)));
    }

    #[test]
    fn what_fails_at_first_is_looked_for_below() {
        assert_eq!(
            asked(Search::new(100, 300), |amount| amount <= 3),
            (vec![100, 100, 50, 50, 25, 25, 12, 12, 6, 6, 3, 4, 4, 3], Some(3))
        );
        assert_eq!(asked(Search::new(4, 9), |_| false), (vec![4, 4, 2, 2, 1, 1], None));
    }

    #[test]
    fn what_failed_once_by_chance_is_tried_again_and_what_cannot_hold_is_not() {
        let mut chance = 0;
        let (asked_for, found) = asked(Search::new(100, 400), |amount| {
            chance += u32::from(amount == 200);
            amount != 200 || chance > 1
        });
        assert_eq!((asked_for, found), (vec![100, 200, 200, 400, 400], Some(400)));
        let mut search = Search::new(100, 400);
        for _ in 0..2 {
            search.next();
            search.tell(true);
        }
        assert_eq!((search.next(), search.left()), (Some(400), 2), "400, and 400 again");
        search.refuse();
        assert_eq!((search.next(), search.failed(), search.left()), (Some(300), Some(400), 6), "five halvings to 210, and again");
    }

    #[test]
    fn what_held_once_by_luck_is_not_found() {
        let mut luck = 1;
        let (asked, found) = asked(Search::new(64, 100_000), |amount| {
            let lucky = amount == 128 && std::mem::take(&mut luck) == 1;
            amount <= 100 || lucky
        });
        assert_eq!(&asked[..3], [64, 128, 256]);
        assert!(found.is_some_and(|found| found <= 100), "{found:?} of {asked:?}");
    }
}
