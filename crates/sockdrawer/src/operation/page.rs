//! Long lists come in parts, so that no loop is kept from its connections for long.

use super::{Outcome, Selector};
use crate::observe::ConnectionStatus;
use serde::{Deserialize, Serialize};

/// Connections that a loop looks at for one part. It asks the kernel for the peer of each.
const MOST: usize = 256;

/// A part of a list: each loop or process looks at those of its connections that have the lowest numbers from `from` on. The number of a
/// connection is what it keeps for its life, in whatever loop or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) from: u64,
    pub(crate) most: usize,
}

impl Page {
    pub(crate) fn first(selector: &Selector) -> Page {
        match selector {
            Selector::Id(id) => Page { from: id.0, most: 1 },
            _ => Page { from: 0, most: MOST },
        }
    }

    /// Returns the part that follows; None: this was the last.
    pub(crate) fn after(self, answer: &Outcome, selector: &Selector) -> Option<Page> {
        let from = answer.next.filter(|_| !matches!(selector, Selector::Id(_)))?;
        // Loops and processes that do not answer are waited for once more, not for each part.
        Some(Page { from, most: if answer.silent > 0 { usize::MAX } else { self.most } })
    }

    /// Returns the connections among these answers that are of this part: no loop or process has looked at connections from `next` on, and earlier
    /// builds answer with all that they have.
    pub(crate) fn of(self, answer: Outcome) -> Vec<ConnectionStatus> {
        let is_here = |id: u64| id >= self.from && answer.next.is_none_or(|next| id < next);
        let mut list: Vec<_> = answer.list.into_iter().filter(|one| is_here(one.id.0)).collect();
        list.sort_unstable_by_key(|one| one.id);
        list
    }

    /// Leaves those of all that are to be looked at; the number of the first that is not.
    pub(crate) fn cut<T>(self, all: &mut Vec<(u64, T)>) -> Option<u64> {
        all.retain(|(id, _)| *id >= self.from);
        if all.len() <= self.most {
            return None;
        }
        let next = all.select_nth_unstable_by_key(self.most, |(id, _)| *id).1.0;
        all.truncate(self.most);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_at_numbers() {
        let mut all: Vec<(u64, char)> = vec![(9, 'c'), (3, 'a'), (7, 'b'), (1, '-'), (20, 'd')];
        let next = Page { from: 2, most: 2 }.cut(&mut all);
        all.sort_unstable();
        assert_eq!((next, all), (Some(9), vec![(3, 'a'), (7, 'b')]));
        let mut rest = vec![(9, 'c'), (20, 'd'), (7, 'b')];
        assert_eq!((Page { from: 9, most: 2 }.cut(&mut rest), rest.len()), (None, 2));
    }
}
