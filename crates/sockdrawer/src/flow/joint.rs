//! What the processes of a pool share: numbers in one page. A pool of one process has the same numbers to itself.

use crate::observe::counters::Counters;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sys::Result;
use crate::sys::shared::Words;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Processes of one pool: a bit of a word for each.
pub(crate) const MOST_PROCESSES: usize = 64;

/// Numbers of signals are below.
pub(crate) const MOST_SIGNALS: usize = 65;

/// Loops of one process that count where the others can read it.
pub(crate) const MOST_LOOPS: usize = 64;

/// Processes that have one connection each and count where the others can read it.
pub(crate) const MOST_CHILDREN: usize = 16 * 1024;

const HELD: usize = 6;
const SIGNALS: usize = HELD + 2 * MOST_PROCESSES;
const COUNTERS: usize = SIGNALS + MOST_SIGNALS;
const CHILDREN: usize = COUNTERS + MOST_PROCESSES * MOST_LOOPS * Counters::WORDS;
const WORDS: usize = CHILDREN + 1 + MOST_CHILDREN * Counters::WORDS;

/// The numbers. Who adds a permit adds to `taken` first and to the process's own count second, and takes away in the opposite
/// order: a process that is killed in between leaves `taken` too high, never too low.
pub(crate) struct Joint(Arc<Words>);

impl Joint {
    /// Of a pool of one process.
    pub(crate) fn private() -> Joint {
        Joint::begin(Words::private(COUNTERS))
    }

    /// Of several, and the descriptor by which the others map it.
    pub(crate) fn create() -> Result<(Joint, OwnedFd)> {
        let (words, file) = Words::create(WORDS)?;
        Ok((Joint::begin(words), file))
    }

    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<Joint> {
        Words::map(file, WORDS).map(|words| Joint(Arc::new(words)))
    }

    fn begin(words: Words) -> Joint {
        let joint = Joint(Arc::new(words));
        joint.epoch().store(1, SeqCst);
        joint.ids().store(1, SeqCst);
        joint
    }

    /// Permits taken.
    pub(crate) fn taken(&self) -> &AtomicU64 {
        &self.0[0]
    }

    /// The most permits.
    pub(crate) fn limit(&self) -> &AtomicU64 {
        &self.0[1]
    }

    /// The switch: counts generations that came into force.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        &self.0[2]
    }

    /// The next connection's number.
    pub(crate) fn ids(&self) -> &AtomicU64 {
        &self.0[3]
    }

    /// A bit for each process with loops that wait for permits it could use.
    pub(crate) fn waiting(&self) -> &AtomicU64 {
        &self.0[4]
    }

    /// The process that was given a permit last.
    pub(crate) fn turn(&self) -> &AtomicU64 {
        &self.0[5]
    }

    /// Of `taken`, those of a process.
    pub(crate) fn held(&self, process: usize) -> &AtomicU64 {
        &self.0[HELD + process]
    }

    /// Of `taken`, those given to a process that it has not seen yet.
    pub(crate) fn given(&self, process: usize) -> &AtomicU64 {
        &self.0[HELD + MOST_PROCESSES + process]
    }

    /// Where a loop of a process counts. What it counted is there when the loop, or the process, is gone.
    pub(crate) fn counters(&self, process: usize, index: usize) -> Counters {
        Counters::at(self.0.clone(), COUNTERS + (process * MOST_LOOPS + index) * Counters::WORDS)
    }

    /// How many places of children were used.
    pub(crate) fn children(&self) -> usize {
        self.0.get(CHILDREN).map_or(0, |used| used.load(SeqCst) as usize)
    }

    pub(crate) fn set_children(&self, used: usize) {
        self.0[CHILDREN].store(used as u64, SeqCst);
    }

    /// Where a child counts.
    pub(crate) fn child(&self, slot: usize) -> Counters {
        Counters::at(self.0.clone(), CHILDREN + 1 + slot * Counters::WORDS)
    }

    /// Children that a signal ended.
    pub(crate) fn signalled(&self, signal: usize) -> &AtomicU64 {
        &self.0[SIGNALS + signal]
    }

    /// Permits that are taken and that no process is known to hold. Those on their way are among them. None: the numbers change
    /// too fast to tell.
    pub(crate) fn unaccounted(&self) -> Option<u64> {
        let read = || -> Vec<u64> {
            let held = (0..MOST_PROCESSES).flat_map(|process| [self.held(process), self.given(process)]);
            std::iter::once(self.taken()).chain(held).map(|word| word.load(SeqCst)).collect()
        };
        let numbers = read();
        if numbers != read() {
            return None;
        }
        numbers[0].checked_sub(numbers[1..].iter().sum())
    }

    /// A process is gone, and with it what it held.
    pub(crate) fn reclaim(&self, process: usize) {
        self.waiting().fetch_and(!(1 << process), SeqCst);
        let lost = self.held(process).swap(0, SeqCst) + self.given(process).swap(0, SeqCst);
        self.taken().fetch_sub(lost, SeqCst);
    }
}
