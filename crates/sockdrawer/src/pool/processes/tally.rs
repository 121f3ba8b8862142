//! The counts of all processes of a pool, in the numbers that they share.

use super::helpers::Helpers;
use crate::ipc::shared_counters::{MAX_LOOPS, MAX_PROCESSES, MAX_SIGNALS};
use crate::observe::Counts;
use crate::observe::counters::Counters;
use crate::sync::atomic::Ordering;

/// The counts of a child go to its helper's when it has ended, perhaps while both are read: then they are read again, at most so often.
const READS: usize = 64;

impl Helpers {
    /// Returns all that was counted, by whatever process.
    pub(super) fn counts(&self) -> Counts {
        let loops =
            (0..MAX_PROCESSES).flat_map(|process| (0..MAX_LOOPS).map(move |index| self.shared_counters.counters(process, index)));
        // Children are those of the forking helper, which is the first of its pool.
        let closed = || (0..MAX_LOOPS).map(|part| self.shared_counters.counters(0, part).closed().get()).sum::<u64>();
        for _ in 0..READS {
            let (before, mut counts) = (closed(), Counts::default());
            // Connections that end were counted as begun before that, by the helper, whose numbers are read after these.
            (0..self.shared_counters.children()).for_each(|slot| counts += self.shared_counters.child(slot).counts());
            counts += Counters::sum(loops.clone());
            if self.shared_counters.children() == 0 || closed() == before {
                return counts;
            }
        }
        // Without those that may be in both.
        Counters::sum(loops)
    }

    /// Returns the number of connections of a process.
    pub(super) fn held(&self, index: usize) -> usize {
        self.shared_counters.held(index).load(Ordering::SeqCst) as usize
    }

    /// Returns the number of connections that a process has counted as cut.
    pub(super) fn cut(&self, index: usize) -> usize {
        let mut counts = Counters::sum((0..MAX_LOOPS).map(|part| self.shared_counters.counters(index, part)));
        // Children are those of the forking helper, which is the first of its pool.
        let children = (0..self.shared_counters.children()).filter(|_| index == 0);
        children.for_each(|slot| counts += self.shared_counters.child(slot).counts());
        counts.cut as usize
    }

    /// Counts what a killed process has left as cut with it, since there were so many.
    pub(super) fn cut_rest(&self, index: usize, before: usize) -> usize {
        let children = if index == 0 { self.shared_counters.children() } else { 0 };
        let pages = (0..children).map(|slot| self.shared_counters.child(slot));
        // The permit of a child that has ended in order may still be with its helper. A program says nothing of its end.
        let in_order = pages.filter(|page| !page.cut() && page.has_ended_in_order()).count();
        self.count_cut(index, self.held(index).saturating_sub(in_order), before)
    }

    /// Counts as cut those of so many connections of a process that it has not counted itself, since it had counted so many.
    pub(super) fn count_cut(&self, index: usize, left: usize, before: usize) -> usize {
        let counted = self.cut(index) - before;
        let lost = Counts { cut: left.saturating_sub(counted) as u64, ..Counts::default() };
        self.shared_counters.counters(index, 0).add_all(&lost);
        left.max(counted)
    }

    pub(super) fn signalled(&self) -> Vec<(i32, u64)> {
        let numbers =
            (1..MAX_SIGNALS).map(|signal| (signal as i32, self.shared_counters.signalled(signal).load(Ordering::Relaxed)));
        numbers.filter(|(_, count)| *count > 0).collect()
    }

    /// Counts the connections of a dead process as closed, which had no time to do so.
    pub(super) fn close_lost(&self, index: usize) {
        let mut counts = Counters::sum((0..MAX_LOOPS).map(|part| self.shared_counters.counters(index, part)));
        let mut unburied = Counts::default();
        // Children belong to a forking helper, which is the first of its pool.
        for child in (0..self.shared_counters.children()).filter(|_| index == 0).map(|slot| self.shared_counters.child(slot)) {
            unburied += child.counts();
            child.clear();
        }
        counts += unburied;
        unburied.closed += (counts.accepted + counts.connected + counts.moved_in)
            .saturating_sub(counts.closed + counts.rejected + counts.moved_out);
        self.shared_counters.counters(index, 0).add_all(&unburied);
    }
}
