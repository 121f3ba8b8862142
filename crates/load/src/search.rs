//! The search for the maximum that holds: up by doubling until something fails, then between what held and what did not. One run may be
//! lucky and one unlucky: a number that fails is tried again before it counts, and at the end the best number and the one above it are
//! tried until chance is no explanation.

use crate::numbers::float;
use std::collections::BTreeMap;

/// Part of a number that holds: a number that does not hold and is closer to it is not looked for.
const CLOSE: f64 = 0.05;
/// Tries of the best number, and of the one above it. Where each would hold with one chance, whatever that is, four that hold beside four that fail
/// come in one search of two hundred.
const CONFIRMED: u32 = 4;
/// Number of tries of one number after which the majority decides.
const MAX_TRIES: u32 = 7;

/// Number of tries of a number, and of those that held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Tries that held.
    pub held: u32,
    /// Number of tries.
    pub made: u32,
    /// The number cannot hold, and needs no try.
    impossible: bool,
}

impl Tries {
    /// Returns whether it holds; None: that takes another try.
    fn holds(self) -> Option<bool> {
        let failed = self.made - self.held;
        match self.held.cmp(&failed) {
            _ if self.impossible => Some(false),
            std::cmp::Ordering::Greater => Some(true),
            std::cmp::Ordering::Less if failed >= 2 => Some(false),
            _ => (self.made >= MAX_TRIES).then_some(false),
        }
    }
}

/// State of a search. It makes no runs: it says what to try, and is told what came of it.
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
    tries: BTreeMap<u64, Tries>,
    /// Nothing worked in the last try: one alone says whether anything does.
    from_bottom: bool,
    asked: Option<u64>,
}

impl Search {
    /// Begins with `first`, and never asks for more than `most`; both at least 1.
    pub fn new(first: u64, most: u64) -> Search {
        let most = most.max(1);
        Search { first: first.clamp(1, most), most, tries: BTreeMap::new(), from_bottom: false, asked: None }
    }

    /// Returns what to try next; None: the search is over.
    #[expect(clippy::should_implement_trait, reason = "what comes next depends on what is told in between")]
    pub fn next(&mut self) -> Option<u64> {
        self.asked = self.following();
        self.asked
    }

    fn following(&self) -> Option<u64> {
        if let Some((doubtful, _)) = self.tries.iter().find(|(_, tries)| tries.holds().is_none()) {
            return Some(*doubtful);
        }
        let unconfirmed = |amount: u64| {
            let tries = self.tries(amount);
            (!tries.impossible && tries.made < CONFIRMED).then_some(amount)
        };
        match (self.best(), self.failed()) {
            (None, None) => Some(self.first),
            (None, Some(1)) => None,
            (None, Some(failed)) => Some(if self.from_bottom { 1 } else { failed / 2 }),
            (Some(held), None) if held == self.most => unconfirmed(held),
            (Some(held), None) => Some(held.saturating_mul(2).min(self.most)),
            (Some(held), Some(failed)) if is_close(held, failed) => unconfirmed(held).or_else(|| unconfirmed(failed)),
            (Some(held), Some(failed)) => Some(held + (failed - held) / 2),
        }
    }

    /// Takes it that what was asked for last cannot hold: it is not tried.
    pub fn refuse(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        self.tries.entry(asked).or_default().impossible = true;
    }

    /// Takes whether what was asked for last held.
    pub fn tell(&mut self, held: bool) {
        let Some(asked) = self.asked.take() else { return };
        let tries = self.tries.entry(asked).or_default();
        tries.made += 1;
        tries.held += u32::from(held);
        self.from_bottom = false;
    }

    /// Takes it that of what was asked for last nothing worked at all. A search that has seen nothing work goes on with 1.
    pub fn nothing_worked(&mut self) {
        let Some(asked) = self.asked else { return };
        self.tell(false);
        if self.best().is_none() {
            self.tries.entry(asked).or_default().impossible = true;
            self.from_bottom = true;
        }
    }

    /// Returns the greatest number that held, below all that did not.
    fn best(&self) -> Option<u64> {
        let below = self.failed().unwrap_or(u64::MAX);
        let held = self.tries.range(..below).filter(|(_, tries)| tries.holds() == Some(true));
        held.map(|(amount, _)| *amount).next_back()
    }

    /// Returns the least number that did not hold.
    pub fn failed(&self) -> Option<u64> {
        self.tries.iter().find(|(_, tries)| tries.holds() == Some(false)).map(|(amount, _)| *amount)
    }

    /// Returns the maximum that holds; None before the end, and where nothing does.
    pub fn found(&self) -> Option<u64> {
        self.best().filter(|_| self.following().is_none())
    }

    /// Returns whether chance does not explain the result: no try of what was found failed, and none of what is above held.
    pub fn stands(&self) -> bool {
        let found = self.found();
        found.is_some_and(|found| {
            let tries = self.tries(found);
            tries.held == tries.made && self.tries.range(found + 1..).all(|(_, tries)| tries.held == 0)
        })
    }

    /// Returns how often a number was tried.
    pub fn tries(&self, amount: u64) -> Tries {
        self.tries.get(&amount).copied().unwrap_or_default()
    }

    /// Returns whether what is asked for now has failed, and may yet hold.
    pub fn is_doubtful(&self) -> bool {
        self.asked.or_else(|| self.following()).is_some_and(|asked| {
            let tries = self.tries(asked);
            tries.made > 0 && tries.holds().is_none()
        })
    }

    /// Returns about how many tries are left, that which is asked for now included: those to the most, or to where it is close, and those
    /// that confirm the result; fewer if one fails.
    pub fn left(&self) -> u64 {
        if self.following().is_none() {
            return 0;
        }
        let halvings = |gap: f64| gap.log2().ceil().max(0.0);
        let (held, failed) = (self.best(), self.failed());
        let steps = match (held, failed) {
            (_, None) => halvings(float(self.most) / float(held.unwrap_or(self.first))) + if held.is_none() { 1.0 } else { 0.0 },
            (None, Some(failed)) => halvings(float(failed)),
            (Some(held), Some(failed)) if is_close(held, failed) => 0.0,
            (Some(held), Some(failed)) => halvings(float(failed - held) / (CLOSE * float(held)).max(1.0)),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "logarithms of counts are small")]
        let steps = steps as u64;
        let left = |amount: Option<u64>, made: u32| {
            let tries = amount.map_or(Tries { made, ..Tries::default() }, |amount| self.tries(amount));
            if tries.impossible { 0 } else { u64::from(CONFIRMED.saturating_sub(tries.made)) }
        };
        let confirming = match (held, failed) {
            (Some(held), _) if steps == 0 => left(Some(held), 0),
            _ => u64::from(CONFIRMED - 1),
        };
        let above = if failed.is_some() && held.is_some() { left(failed, 0) } else { 0 };
        steps + confirming + above + u64::from(self.is_doubtful())
    }

    /// Returns whether what is asked for now has held before.
    pub fn is_confirming(&self) -> bool {
        self.asked.is_some_and(|asked| self.tries(asked).held > 0)
    }
}

fn is_close(held: u64, failed: u64) -> bool {
    failed - held <= 1 || float(failed - held) <= CLOSE * float(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a search asks for when each answer is that of `holds`.
    fn asked(search: &mut Search, mut holds: impl FnMut(u64) -> bool) -> Vec<u64> {
        let mut asked = Vec::new();
        while let Some(amount) = search.next() {
            asked.push(amount);
            assert!(asked.len() < 200, "{asked:?}");
            search.tell(holds(amount));
        }
        asked
    }

    #[test]
    fn it_doubles_then_halves_the_gap_and_confirms_both_sides_of_it() {
        let mut search = Search::new(100, 10_000);
        let asked = asked(&mut search, |amount| amount <= 750);
        assert_eq!(asked, [100, 200, 400, 800, 800, 600, 700, 750, 775, 775, 750, 750, 750, 775, 775]);
        assert_eq!((search.found(), search.failed(), search.stands()), (Some(750), Some(775), true));
        assert_eq!((search.tries(750).held, search.tries(775).held, search.tries(775).made), (4, 0, 4));
    }

    #[test]
    fn the_most_is_never_passed_and_is_confirmed_too() {
        for (first, expected) in [(100, &[100, 200, 300, 300, 300, 300][..]), (500, &[300, 300, 300, 300])] {
            let mut search = Search::new(first, 300);
            assert_eq!(asked(&mut search, |_| true), expected);
            assert_eq!((search.found(), search.failed(), search.stands()), (Some(300), None, true));
        }
    }

    #[test]
    fn what_fails_at_first_is_looked_for_below() {
        let mut search = Search::new(100, 300);
        let tried = asked(&mut search, |amount| amount <= 3);
        assert_eq!(tried, [100, 100, 50, 50, 25, 25, 12, 12, 6, 6, 3, 4, 4, 3, 3, 3, 4, 4]);
        assert_eq!(search.found(), Some(3));
        let mut search = Search::new(4, 9);
        assert_eq!((asked(&mut search, |_| false), search.found()), (vec![4, 4, 2, 2, 1, 1], None));
    }

    #[test]
    fn where_nothing_works_one_alone_says_whether_anything_does() {
        let mut search = Search::new(1_000, 9_000);
        assert_eq!(search.next(), Some(1_000));
        search.nothing_worked();
        assert_eq!(search.next(), Some(1));
        search.tell(true);
        assert_eq!(search.next(), Some(500), "between what works and what does not");
    }

    #[test]
    fn what_failed_once_by_chance_is_tried_again_and_what_cannot_hold_is_not() {
        let mut chance = 0;
        let mut search = Search::new(100, 400);
        let tried = asked(&mut search, |amount| {
            chance += u32::from(amount == 200);
            amount != 200 || chance > 1
        });
        assert_eq!((tried, search.found()), (vec![100, 200, 200, 200, 400, 400, 400, 400], Some(400)));
        assert!(search.stands(), "200 is not what was found");
        let mut search = Search::new(100, 400);
        for _ in 0..2 {
            search.next();
            search.tell(true);
        }
        assert_eq!((search.next(), search.left()), (Some(400), 4), "400, and three times again");
        search.refuse();
        assert_eq!((search.next(), search.failed()), (Some(300), Some(400)));
    }

    #[test]
    fn a_result_of_luck_does_not_stand() {
        // From 8,000 to 18,000 the chance to hold falls from all to nothing.
        let mut seed = 7_u64;
        let mut chance = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as f64 / f64::from(1 << 31)
        };
        let mut standing = Vec::new();
        for _ in 0..1_000 {
            let mut search = Search::new(1_000, 1_000_000);
            asked(&mut search, |amount| chance() < (18_000.0 - amount as f64) / 10_000.0);
            standing.extend(search.found().filter(|_| search.stands()));
        }
        assert!(standing.len() < 50, "{} of 1,000 claim to stand", standing.len());
        // A sharp limit stands each time.
        let mut search = Search::new(1_000, 1_000_000);
        asked(&mut search, |amount| amount < 12_345);
        assert!(search.stands() && search.found().is_some_and(|found| (11_700..12_345).contains(&found)));
    }

    #[test]
    fn what_held_once_by_luck_is_not_found() {
        let mut luck = 1;
        let mut search = Search::new(64, 100_000);
        let asked = asked(&mut search, |amount| {
            let lucky = amount == 128 && std::mem::take(&mut luck) == 1;
            amount <= 100 || lucky
        });
        assert_eq!(&asked[..3], [64, 128, 256]);
        assert!(search.found().is_some_and(|found| found <= 100), "{asked:?}");
        assert!(!search.stands(), "128 held once");
    }
}
