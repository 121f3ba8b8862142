//! The order of changes: random, and reproduced by its seed.

use super::kind::Kind;
use crate::Random;

/// A change to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    /// The random number from which the parameters of the change are chosen.
    pub(crate) value: u64,
}

/// Rounds without end. Each has every kind of the model once, in a random order, so that all kinds get their share of a short trial; the
/// second address is added before it is removed, and a round ends without it.
pub(crate) struct Schedule {
    random: Random,
    /// The kinds of change of a round.
    kinds: Vec<Kind>,
    /// The rest of the round, the next change last.
    round: Vec<Kind>,
}

impl Schedule {
    /// Creates a schedule of all kinds except the absent ones.
    pub(crate) fn new(seed: u64, absent: &[(Kind, String)]) -> Schedule {
        let kinds = Kind::proper().iter().copied().filter(|kind| absent.iter().all(|(other, _)| other != kind)).collect();
        Schedule { random: Random::new(seed), kinds, round: Vec::new() }
    }

    fn refill(&mut self) {
        self.round.extend(&self.kinds);
        self.random.shuffle(&mut self.round);
        let place = |round: &[Kind], kind| round.iter().position(|other| *other == kind);
        let (add, remove) = (place(&self.round, Kind::AddAddress), place(&self.round, Kind::RemoveAddress));
        let (Some(add), Some(remove)) = (add, remove) else { return };
        if add < remove {
            self.round.swap(add, remove);
        }
    }
}

impl Iterator for Schedule {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        if self.round.is_empty() {
            self.refill();
        }
        let kind = self.round.pop().expect("a round was just filled");
        Some(Planned { kind, value: self.random.next() })
    }
}

/// Returns a choice other than `current`: a change that changes nothing proves nothing.
///
/// # Panics
/// When there is no other choice.
pub(crate) fn another<T: PartialEq + Copy>(choices: &[T], current: T, value: u64) -> T {
    let others: Vec<T> = choices.iter().copied().filter(|choice| *choice != current).collect();
    let index = usize::try_from(value % others.len() as u64).expect("less than the number of choices");
    others[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_changes_and_another_one_does_not() {
        let first: Vec<Planned> = Schedule::new(42, &[]).take(500).collect();
        let again: Vec<Planned> = Schedule::new(42, &[]).take(500).collect();
        let other: Vec<Planned> = Schedule::new(43, &[]).take(500).collect();
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn a_round_has_every_kind_and_adds_before_it_removes() {
        let kinds = Kind::proper().len();
        let all: Vec<Kind> = Schedule::new(1, &[]).take(kinds * 200).map(|planned| planned.kind).collect();
        for round in all.chunks(kinds) {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, Kind::proper());
            let place = |kind| round.iter().position(|other| *other == kind);
            assert!(place(Kind::AddAddress) < place(Kind::RemoveAddress));
        }
        assert_ne!(all[..kinds], all[kinds..2 * kinds], "rounds differ");
    }

    #[test]
    fn an_absent_kind_never_comes() {
        let absent = [(Kind::Loops, String::new()), (Kind::RemoveAddress, String::new())];
        let all: Vec<Kind> = Schedule::new(1, &absent).take(100).map(|planned| planned.kind).collect();
        assert!(!all.contains(&Kind::Loops) && !all.contains(&Kind::RemoveAddress) && all.contains(&Kind::Workers));
    }

    #[test]
    fn another_is_never_the_same() {
        for value in 0..100 {
            assert_ne!(another(&[1, 2, 3], 2, value), 2);
        }
        assert!((0..100).any(|value| another(&[1, 2, 3], 2, value) == 1));
    }
}
