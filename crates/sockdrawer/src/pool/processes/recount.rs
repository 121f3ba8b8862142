//! Permits that a process took with it when it was killed between two instructions: noted as taken, but by no process.

use std::collections::BTreeMap;

/// Number of looks in a row that must find the same. A permit on its way is found by one of them at most.
const LOOKS: u32 = 10;

/// Looks at the numbers until they add up, or are wrong in the same way again and again.
#[derive(Default)]
pub(super) struct Recount {
    difference: u64,
    looks: u32,
}

/// The recounts of all listeners, by their slots among the shared counters. Those of addresses that are gone are among them: a permit that
/// is never taken back would be lost to any other address.
#[derive(Default)]
pub(super) struct Recounts(BTreeMap<usize, Recount>);

impl Recounts {
    /// Looks at this many listeners from now on: a process died.
    pub(super) fn begin(&mut self, slots: usize) {
        self.0 = (0..slots).map(|slot| (slot, Recount::default())).collect();
    }

    /// Looks at the listeners whose numbers did not add up yet; `is_over` tells whether they do now.
    pub(super) fn look(&mut self, mut is_over: impl FnMut(usize, &mut Recount) -> bool) {
        self.0.retain(|slot, recount| !is_over(*slot, recount));
    }
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Every permit is held.
    Whole,
    /// This number of permits is held by no process.
    Lost(u64),
    /// The result takes more looks.
    Unclear,
}

impl Recount {
    /// Looks at the numbers. `unaccounted`: permits that no process is known to hold; None: the numbers changed while they were read.
    pub(super) fn look(&mut self, unaccounted: Option<u64>) -> Finding {
        match unaccounted {
            None => Finding::Unclear,
            Some(0) => Finding::Whole,
            Some(difference) => {
                self.looks = if difference == self.difference { self.looks + 1 } else { 1 };
                self.difference = difference;
                if self.looks >= LOOKS { Finding::Lost(difference) } else { Finding::Unclear }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::shared_counters::SharedCounters;
    use crate::sync::atomic::Ordering::SeqCst;

    #[test]
    fn every_listener_is_looked_at_until_its_numbers_add_up() {
        let mut recounts = Recounts::default();
        let mut seen = Vec::new();
        recounts.begin(3);
        recounts.look(|slot, recount| {
            seen.push(slot);
            recount.look(Some(u64::from(slot == 1))) == Finding::Whole
        });
        recounts.look(|slot, _| {
            seen.push(slot);
            true
        });
        recounts.look(|_, _| unreachable!("all add up"));
        assert_eq!(seen, [0, 1, 2, 1]);
    }

    #[test]
    fn a_permit_that_nobody_holds_is_found_and_one_on_its_way_is_not() {
        let shared_counters = SharedCounters::private();
        shared_counters.taken().store(5, SeqCst);
        shared_counters.held(3).store(4, SeqCst);
        shared_counters.held(2).store(1, SeqCst);
        assert_eq!(Recount::default().look(shared_counters.unaccounted()), Finding::Whole);
        shared_counters.taken().fetch_add(1, SeqCst);
        let mut recount = Recount::default();
        for _ in 1..LOOKS {
            assert_eq!(recount.look(shared_counters.unaccounted()), Finding::Unclear);
        }
        shared_counters.taken().fetch_add(1, SeqCst);
        for _ in 1..LOOKS {
            assert_eq!(recount.look(shared_counters.unaccounted()), Finding::Unclear, "another one is on its way");
        }
        assert_eq!(recount.look(shared_counters.unaccounted()), Finding::Lost(2));
    }
}
