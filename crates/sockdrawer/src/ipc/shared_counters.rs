//! Numbers that the processes of a pool share, in one page. A pool of one process has the same numbers to itself.

use crate::ipc::child_page::ChildPage;
use crate::observe::counters::Counters;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sys::Result;
use crate::sys::shared::{Part, Words};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Processes of one pool: a bit of a word for each.
pub(crate) const MAX_PROCESSES: usize = 64;

/// Numbers of signals are below.
pub(crate) const MAX_SIGNALS: usize = 65;

/// Loops of one process that count where the others can read it.
pub(crate) const MAX_LOOPS: usize = 64;

/// Processes that have one connection each and count where the others can read it.
pub(crate) const MAX_CHILDREN: usize = 16 * 1024;

/// Addresses of one pool that processes listen on at a time, those included that are gone and still have connections.
pub(crate) const MAX_LISTENERS: usize = 1024;

/// The words of the alarms: how many there are, a bit for each that is raised, and two numbers for each of 16.
pub(crate) const ALARM_WORDS: usize = 2 + 2 * 16;

/// The words of one limiter: seven numbers, and two for each process.
const HELD: usize = 7;
const LIMITER_WORDS: usize = HELD + 2 * MAX_PROCESSES;

/// The words of the pool's limiter are first, then come the pool's own: three numbers and the alarms.
const POOL_LIMITER: usize = 0;
const POOL: usize = LIMITER_WORDS;
const ALARMS: usize = POOL + 3;
const SIGNALS: usize = ALARMS + ALARM_WORDS;
const COUNTERS: usize = SIGNALS + MAX_SIGNALS;
const CHILDREN: usize = COUNTERS + MAX_PROCESSES * MAX_LOOPS * Counters::WORDS;
const LISTENERS: usize = CHILDREN + 1;
const BEATS: usize = LISTENERS + MAX_LISTENERS * LIMITER_WORDS;
const END: usize = BEATS + MAX_PROCESSES;

/// Returns the index of a child's page. Children come last, each with a page to itself: it has no other of them, so whatever it writes, it writes
/// about itself.
fn child_at(slot: usize) -> usize {
    END.next_multiple_of(Words::in_page()) + slot * Words::in_page()
}

/// The numbers. A process that takes a permit adds to `taken` first and to the process's own count second, and takes away in the opposite
/// order: a process that is killed in between leaves `taken` too high, never too low. A clone is another view of the same numbers.
#[derive(Clone)]
pub(crate) struct SharedCounters {
    words: Words,
    /// Index of the words of the limiter that this is a view for: the pool's, or a listener's.
    limiter: usize,
    /// The first of them.
    numbers: Part<HELD>,
}

impl SharedCounters {
    /// Makes the numbers of a pool of one process.
    pub(crate) fn private() -> SharedCounters {
        SharedCounters::begin(Words::private(COUNTERS))
    }

    /// Makes the numbers of a pool of several processes. Returns them, and the descriptor by which the others map them.
    pub(crate) fn create() -> Result<(SharedCounters, OwnedFd)> {
        let (words, file) = Words::create(child_at(MAX_CHILDREN))?;
        Ok((SharedCounters::begin(words), file))
    }

    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<SharedCounters> {
        Words::map(file, child_at(MAX_CHILDREN)).map(|words| SharedCounters::of(words, POOL_LIMITER))
    }

    fn begin(words: Words) -> SharedCounters {
        let shared_counters = SharedCounters::of(words, POOL_LIMITER);
        shared_counters.epoch().store(1, SeqCst);
        shared_counters.ids().store(1, SeqCst);
        shared_counters.raise_line().store(u64::MAX, SeqCst);
        shared_counters
    }

    fn of(words: Words, limiter: usize) -> SharedCounters {
        SharedCounters { numbers: words.part(limiter), words, limiter }
    }

    /// Returns the numbers of a listener's limiter: at this place among what processes share, or where no other process shares them.
    pub(crate) fn listener(&self, slot: usize) -> SharedCounters {
        if self.words.len() > LISTENERS {
            SharedCounters::of(self.words.clone(), LISTENERS + slot * LIMITER_WORDS)
        } else {
            let shared_counters = SharedCounters::of(Words::private(HELD), 0);
            shared_counters.clear_limiter();
            shared_counters
        }
    }

    /// Begins the numbers of a limiter again.
    pub(crate) fn clear_limiter(&self) {
        let end = (self.limiter + LIMITER_WORDS).min(self.words.len());
        self.words[self.limiter..end].iter().for_each(|word| word.store(0, SeqCst));
        self.raise_line().store(u64::MAX, SeqCst);
    }

    /// Returns the time at which the next connection may be accepted at the pool's rate.
    pub(crate) fn pace(&self) -> &AtomicU64 {
        &self.words[POOL + 2]
    }

    /// Returns a word of the alarms, whose module says what it means.
    pub(crate) fn alarm(&self, word: usize) -> &AtomicU64 {
        &self.words[ALARMS + word]
    }

    /// Returns [`SharedCounters::taken`], [`SharedCounters::limit`], [`SharedCounters::raise_line`] and [`SharedCounters::clear_line`] of this
    /// limiter, looked up together, as they are for each connection.
    #[inline]
    pub(crate) fn lines(&self) -> [&AtomicU64; 4] {
        let [taken, limit, _, _, raise, clear, _] = &*self.numbers;
        [taken, limit, raise, clear]
    }

    /// Returns the number of permits taken that raises an alarm.
    pub(crate) fn raise_line(&self) -> &AtomicU64 {
        &self.numbers[4]
    }

    /// Returns the number of permits taken below which an alarm is cleared.
    pub(crate) fn clear_line(&self) -> &AtomicU64 {
        &self.numbers[5]
    }

    /// Returns the number of permits taken.
    pub(crate) fn taken(&self) -> &AtomicU64 {
        &self.numbers[0]
    }

    /// Returns the maximum of permits.
    pub(crate) fn limit(&self) -> &AtomicU64 {
        &self.numbers[1]
    }

    /// Returns the switch: it counts generations that came into force.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        &self.words[POOL]
    }

    /// Returns the next connection's number.
    pub(crate) fn ids(&self) -> &AtomicU64 {
        &self.words[POOL + 1]
    }

    /// Returns a bit for each process with loops that wait for permits it could use.
    pub(crate) fn waiting(&self) -> &AtomicU64 {
        &self.numbers[2]
    }

    /// Returns the process that was called last.
    pub(crate) fn turn(&self) -> &AtomicU64 {
        &self.numbers[3]
    }

    /// Returns the part of `taken` that connections of a program have which this one replaces.
    pub(crate) fn elsewhere(&self) -> &AtomicU64 {
        &self.numbers[6]
    }

    /// Returns the part of `taken` that a process has.
    pub(crate) fn held(&self, process: usize) -> &AtomicU64 {
        &self.words[self.limiter + HELD + process]
    }

    /// Returns the mark that a process was called, because there is room, and has not looked yet.
    pub(crate) fn called(&self, process: usize) -> &AtomicU64 {
        &self.words[self.limiter + HELD + MAX_PROCESSES + process]
    }

    /// Returns the place where a loop of a process counts. Its counts are there when the loop, or the process, is gone.
    pub(crate) fn counters(&self, process: usize, index: usize) -> Counters {
        Counters::at(self.words.clone(), COUNTERS + (process * MAX_LOOPS + index) * Counters::WORDS)
    }

    /// Changes at least each second while a process is not stopped and one of its loops turns. Among several.
    pub(crate) fn beats(&self, process: usize) -> &AtomicU64 {
        &self.words[BEATS + process]
    }

    /// Returns the number of places of children that were used.
    pub(crate) fn children(&self) -> usize {
        self.words.get(CHILDREN).map_or(0, |used| (used.load(SeqCst) as usize).min(MAX_CHILDREN))
    }

    pub(crate) fn set_children(&self, used: usize) {
        self.words[CHILDREN].store(used as u64, SeqCst);
    }

    /// Returns the page where a child counts, as its parent sees it.
    pub(crate) fn child(&self, slot: usize) -> ChildPage {
        ChildPage::at(self.words.clone(), child_at(slot))
    }

    /// Maps a child's page as the child does, which maps nothing else.
    pub(crate) fn own_page(file: BorrowedFd<'_>, slot: usize) -> Result<ChildPage> {
        Words::map_from(file, child_at(slot), Words::in_page()).map(|words| ChildPage::at(words, 0))
    }

    /// Returns the number of children that a signal ended.
    pub(crate) fn signalled(&self, signal: usize) -> &AtomicU64 {
        &self.words[SIGNALS + signal]
    }

    /// Returns permits that are taken and that no process is known to hold. Those on their way are among them. None: the numbers change
    /// too fast to tell.
    pub(crate) fn unaccounted(&self) -> Option<u64> {
        let read = || -> Vec<u64> {
            let held = (0..MAX_PROCESSES).map(|process| self.held(process));
            [self.taken(), self.elsewhere()].into_iter().chain(held).map(|word| word.load(SeqCst)).collect()
        };
        let numbers = read();
        if numbers != read() {
            return None;
        }
        numbers[0].checked_sub(numbers[1..].iter().sum())
    }

    /// Takes back what a process held that is gone. That was never more than is taken, whatever a process that went wrong wrote here.
    pub(crate) fn reclaim(&self, process: usize) {
        self.waiting().fetch_and(!(1 << process), SeqCst);
        self.called(process).store(0, SeqCst);
        let lost = self.held(process).swap(0, SeqCst);
        if lost > 0 {
            let _ = self.taken().fetch_update(SeqCst, SeqCst, |taken| Some(taken.saturating_sub(lost)));
        }
    }
}
