//! Schedule of a connect pool, shared by its loops: targets and sources in turn, how many are left, and when each is due.

use super::lock;
use super::ports::Ports;
use crate::clock::deadline;
use crate::config::{Connecting, Late};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects that are late by more are not made up for, unless each is.
const MAX_LAG: Duration = Duration::from_millis(100);

/// Connects that are asked for, and how far they have come.
pub(crate) struct Dialer {
    pub(super) connecting: Connecting,
    pub(super) ports: Ports,
    /// Shared with the dialers before and after: a change neither begins one more nor leaves one out.
    progress: Arc<DialProgress>,
}

struct DialProgress {
    begun: AtomicU64,
    turn: AtomicUsize,
    schedule: Mutex<Schedule>,
}

/// Schedule of connects. Only the loop that has taken a connect wakes up for it.
struct Schedule {
    /// Time between two connects; None: a connect is due at any time.
    gap: Option<Duration>,
    late: Late,
    /// Moment of the first connect that no loop has taken.
    next: Instant,
    /// Moment since which nothing is due.
    paused: Option<Instant>,
}

impl Dialer {
    /// Makes a dialer. A dialer that follows another is not in force before [`Dialer::follow`].
    pub(crate) fn new(connecting: Connecting, before: Option<&Dialer>) -> Arc<Dialer> {
        let progress = before.map(|before| before.progress.clone());
        let progress = progress.unwrap_or_else(|| Arc::new(DialProgress::new(&connecting, Instant::now())));
        let ports = Ports::new(connecting.local_ports);
        Arc::new(Dialer { connecting, ports, progress })
    }

    /// Comes into force after `before`, which may be itself. Where nothing could begin, because all were begun or the pool was `full`,
    /// the time until now is no time in which connects were due; but for those that are made up for when there is room.
    pub(crate) fn follow(&self, before: &Dialer, full: bool, now: Instant) {
        let mut schedule = lock(&self.progress.schedule);
        let now = schedule.paused.unwrap_or(now);
        schedule.set_gap(gap(&self.connecting), now);
        if before.is_over() || (full && schedule.late == Late::Forget) {
            schedule.next = schedule.next.max(now);
        }
        schedule.late = self.connecting.late;
    }

    /// Suspends the schedule or lets it go on: time does not pass for it while it is suspended.
    pub(crate) fn set_paused(&self, paused: bool, now: Instant) {
        let mut schedule = lock(&self.progress.schedule);
        match (schedule.paused, paused) {
            (None, true) => schedule.paused = Some(now),
            (Some(since), false) => {
                schedule.next = deadline(schedule.next, now.saturating_duration_since(since));
                schedule.paused = None;
            }
            _ => {}
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.connecting.total.is_some_and(|total| self.progress.begun.load(Ordering::Relaxed) >= total)
    }

    /// Takes the right to one more connect. Returns its number; None: all were begun.
    pub(super) fn begin(&self) -> Option<usize> {
        let total = self.connecting.total.unwrap_or(u64::MAX);
        let one_more = |begun: u64| (begun < total).then_some(begun + 1);
        let begun = self.progress.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        begun.is_ok().then(|| self.progress.turn.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of connects that have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.progress.begun.load(Ordering::Relaxed)
    }

    /// Adds the connects that have begun in a process before this one.
    pub(crate) fn begin_behind(&self, begun: u64) {
        self.progress.begun.fetch_add(begun, Ordering::Relaxed);
    }

    /// Takes the next connect. Returns the moment when it is due.
    pub(super) fn take(&self, now: Instant) -> Instant {
        lock(&self.progress.schedule).take(now)
    }

    /// Gives back a connect that was taken and did not begin.
    pub(super) fn give_back(&self) {
        lock(&self.progress.schedule).give_back();
    }

    /// Returns the delay of a connect that was due then, where that is a schedule and not a limit.
    pub(super) fn lag(&self, due: Instant, now: Instant) -> Duration {
        match self.connecting.late {
            Late::Forget => Duration::ZERO,
            Late::MakeUp => now.saturating_duration_since(due),
        }
    }
}

impl DialProgress {
    fn new(connecting: &Connecting, now: Instant) -> DialProgress {
        let schedule = Schedule { gap: gap(connecting), late: connecting.late, next: now, paused: None };
        DialProgress { begun: AtomicU64::new(0), turn: AtomicUsize::new(0), schedule: Mutex::new(schedule) }
    }
}

fn gap(connecting: &Connecting) -> Option<Duration> {
    connecting.rate.map(|rate| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
}

impl Schedule {
    fn take(&mut self, now: Instant) -> Instant {
        let Some(gap) = self.gap else { return now };
        let due = match self.late {
            Late::Forget => self.next.max(now - MAX_LAG),
            Late::MakeUp => self.next,
        };
        self.next = deadline(due, gap);
        due
    }

    fn give_back(&mut self) {
        // A moment that an `Instant` cannot hold was never due.
        if let Some(due) = self.gap.and_then(|gap| self.next.checked_sub(gap)) {
            self.next = due;
        }
    }

    /// Sets the gap: as many are due now as before, and the next when the part of its gap that is left has passed at the new rate.
    fn set_gap(&mut self, gap: Option<Duration>, now: Instant) {
        let before = std::mem::replace(&mut self.gap, gap);
        self.next = match (before, gap) {
            (Some(before), Some(gap)) if before != gap => {
                let stretch = gap.as_secs_f64() / before.as_secs_f64();
                let stretched =
                    |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() * stretch).unwrap_or(Duration::MAX);
                match self.next.checked_duration_since(now) {
                    Some(ahead) => deadline(now, stretched(ahead)),
                    None => now.checked_sub(stretched(now - self.next)).unwrap_or(now),
                }
            }
            (None, Some(_)) => now,
            _ => self.next,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Address;

    const MS: Duration = Duration::from_millis(1);

    fn connecting(rate: f64, late: Late) -> Connecting {
        let mut connecting = Connecting::to([] as [Address; 0]);
        (connecting.rate, connecting.late) = (Some(rate), late);
        connecting
    }

    fn next(dialer: &Dialer) -> Instant {
        lock(&dialer.progress.schedule).next
    }

    /// Returns when each connect is due, of a thousand a second, taken at these times after the first was due.
    fn taken(late: Late, at: &[u32]) -> Vec<u32> {
        let dialer = Dialer::new(connecting(1000.0, late), None);
        let start = next(&dialer);
        at.iter().map(|at| (dialer.take(start + *at * MS) - start).as_millis() as u32).collect()
    }

    #[test]
    fn each_connect_is_due_when_the_rate_says() {
        for late in [Late::MakeUp, Late::Forget] {
            assert_eq!(taken(late, &[0, 0, 1, 1, 5, 5]), [0, 1, 2, 3, 4, 5], "{late:?}");
        }
    }

    #[test]
    fn after_a_long_pause_a_schedule_is_made_up_for_and_a_limit_is_not() {
        assert_eq!(taken(Late::MakeUp, &[0, 900, 900, 900]), [0, 1, 2, 3]);
        let from = 900 - MAX_LAG.as_millis() as u32;
        assert_eq!(taken(Late::Forget, &[0, 900, 900, 900]), [0, from, from + 1, from + 2]);
    }

    #[test]
    fn without_a_rate_all_are_due() {
        let (dialer, now) = (Dialer::new(Connecting::to([] as [Address; 0]), None), Instant::now());
        assert_eq!([dialer.take(now), dialer.take(now)], [now, now]);
        dialer.give_back();
        // The first rate begins now.
        let paced = Dialer::new(connecting(10.0, Late::MakeUp), Some(&dialer));
        paced.follow(&dialer, false, now + 500 * MS);
        assert_eq!([paced.take(now), paced.take(now)], [now + 500 * MS, now + 600 * MS]);
    }

    #[test]
    fn what_was_taken_and_given_back_is_due_at_its_time() {
        let dialer = Dialer::new(connecting(10.0, Late::MakeUp), None);
        let now = next(&dialer);
        let first = [dialer.take(now), dialer.take(now)];
        dialer.give_back();
        dialer.give_back();
        assert_eq!([dialer.take(now), dialer.take(now)], first);
    }

    /// Checks that however often the rate changes, as many become due as it says for each stretch of time.
    #[test]
    fn changes_of_the_rate_bring_no_connect_and_lose_none() {
        for late in [Late::MakeUp, Late::Forget] {
            let mut dialer = Dialer::new(connecting(1000.0, late), None);
            let start = next(&dialer);
            let (mut count, mut held, mut expected) = (0, 0, 1.0);
            for turn in 0..2_000_u32 {
                let (rate, now) = ([1000.0, 3000.0, 10.0, 1000.0][turn as usize % 4], start + turn * MS);
                // Connects that a loop has taken before the change are given back after it.
                while held > 0 {
                    dialer.give_back();
                    held -= 1;
                }
                while dialer.take(now) <= now {
                    count += 1;
                }
                held += 1;
                let next = Dialer::new(connecting(rate, late), Some(&dialer));
                next.follow(&dialer, false, now);
                dialer = next;
                expected += rate / 1000.0;
            }
            assert!((f64::from(count) - expected).abs() < 5.0, "{late:?}: {count} of {expected}");
        }
    }

    #[test]
    fn a_dialer_that_was_over_or_held_up_goes_on_without_a_burst() {
        for (late, total, full) in [(Late::MakeUp, Some(0), false), (Late::Forget, Some(0), false), (Late::Forget, None, true)] {
            let of_total = |total| {
                let mut connecting = connecting(1000.0, late);
                connecting.total = total;
                connecting
            };
            let dialer = Dialer::new(of_total(total), None);
            let now = next(&dialer) + 5_000 * MS;
            let more = Dialer::new(of_total(None), Some(&dialer));
            more.follow(&dialer, full, now);
            assert_eq!([more.take(now), more.take(now)], [now, now + MS], "{late:?} {full}");
        }
        // Connects that wait for room are made up for when there is some.
        let dialer = Dialer::new(connecting(1000.0, Late::MakeUp), None);
        let start = next(&dialer);
        dialer.follow(&dialer, true, start + 5_000 * MS);
        assert_eq!(dialer.take(start + 5_000 * MS), start);
    }

    #[test]
    fn while_it_is_suspended_no_time_passes() {
        let dialer = Dialer::new(connecting(1000.0, Late::MakeUp), None);
        let start = next(&dialer);
        assert_eq!(dialer.take(start), start);
        dialer.set_paused(true, start + 10 * MS);
        dialer.set_paused(true, start + 50 * MS);
        let double = Dialer::new(connecting(2000.0, Late::MakeUp), Some(&dialer));
        double.follow(&dialer, true, start + 60 * MS);
        double.set_paused(false, start + 90 * MS);
        let late: Vec<_> = (0..20).map(|_| double.take(start + 90 * MS)).filter(|due| *due <= start + 90 * MS).collect();
        assert_eq!(late.len(), 10, "those of the first 10 ms, and no more");
    }

    #[test]
    fn no_rate_is_too_small_or_too_large() {
        for rate in [1e-300, f64::MIN_POSITIVE, 1e12, f64::MAX] {
            let dialer = Dialer::new(connecting(rate, Late::MakeUp), None);
            let now = Instant::now();
            (0..3).for_each(|_| _ = dialer.take(now));
            dialer.give_back();
            for other in [1.0, rate] {
                let next = Dialer::new(connecting(other, Late::MakeUp), Some(&dialer));
                next.follow(&dialer, false, now);
            }
        }
    }
}
