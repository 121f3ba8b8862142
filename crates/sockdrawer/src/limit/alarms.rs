//! Alarms: told once when the pool's connections reach a number, and once when they have fallen to a lower one.

use crate::ipc::shared_counters::{ALARM_WORDS, SharedCounters};
use crate::observe::Alarm;
use crate::observe::Event;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::sync::Weak;

/// Alarms of one pool.
pub(crate) const MAX_ALARMS: usize = 16;

/// Words of the shared counters: how many alarms there are, a bit for each that is raised, and each one's two numbers.
const COUNT: usize = 0;
const RAISED: usize = 1;
const NUMBERS: usize = 2;

const _: () = assert!(NUMBERS + 2 * MAX_ALARMS == ALARM_WORDS);

/// The teller of events: the pool.
pub(crate) trait Teller: Send + Sync {
    fn tell_event(&self, event: &Event);
}

/// The part of this process in the alarms. A raised alarm is a bit among the shared counters, so each is told once, by one process.
#[derive(Default)]
pub(crate) struct Alarms {
    teller: Mutex<Option<Weak<dyn Teller>>>,
    busy: AtomicBool,
    /// Number of times that a thread wanted a look taken.
    looks: AtomicU64,
    /// Maximum of connections seen since the last look.
    peak: AtomicU64,
    /// Minimum of connections seen since the last look, as its complement: it begins at 0.
    trough: AtomicU64,
}

impl Alarms {
    pub(crate) fn tell_by(&self, teller: Weak<dyn Teller>) {
        *lock(&self.teller) = Some(teller);
    }

    /// Sets other alarms. An alarm that there was before stays raised.
    pub(crate) fn set(&self, shared_counters: &SharedCounters, alarms: &[Alarm]) {
        let before: Vec<Alarm> = known(shared_counters);
        let raised = shared_counters.alarm(RAISED).load(SeqCst);
        // While they change there are none.
        shared_counters.alarm(COUNT).store(0, SeqCst);
        let mut still = 0;
        for (index, alarm) in alarms.iter().take(MAX_ALARMS).enumerate() {
            shared_counters.alarm(NUMBERS + 2 * index).store(alarm.at as u64, SeqCst);
            shared_counters.alarm(NUMBERS + 2 * index + 1).store(alarm.clear_at as u64, SeqCst);
            let was_raised = before.iter().position(|other| other == alarm).is_some_and(|at| raised & (1 << at) != 0);
            still |= u64::from(was_raised) << index;
        }
        shared_counters.alarm(RAISED).store(still, SeqCst);
        shared_counters.alarm(COUNT).store(alarms.len().min(MAX_ALARMS) as u64, SeqCst);
        self.look(shared_counters, shared_counters.taken().load(SeqCst));
    }

    /// Looks at the alarms after the count passed a line. A thread that is looking already looks again: an observer that ends a connection does not
    /// wait here.
    pub(crate) fn look(&self, shared_counters: &SharedCounters, taken: u64) {
        self.peak.fetch_max(taken, SeqCst);
        self.trough.fetch_max(!taken, SeqCst);
        self.looks.fetch_add(1, SeqCst);
        while self.busy.compare_exchange(false, true, SeqCst, SeqCst).is_ok() {
            let seen = self.looks.load(SeqCst);
            self.cross(shared_counters);
            self.busy.store(false, SeqCst);
            if self.looks.load(SeqCst) == seen {
                return;
            }
        }
    }

    /// Tells what was crossed, and says at which counts to look again.
    fn cross(&self, shared_counters: &SharedCounters) {
        let (mut peak, mut trough) = (self.peak.swap(0, SeqCst), !self.trough.swap(0, SeqCst));
        loop {
            let alarms = known(shared_counters);
            for (index, alarm) in alarms.iter().enumerate() {
                self.cross_one(shared_counters, index, *alarm, peak, trough);
            }
            let raised = shared_counters.alarm(RAISED).load(SeqCst);
            let is_raised = |index: usize| raised & (1 << index) != 0;
            let up = alarms.iter().enumerate().filter(|(index, _)| !is_raised(*index)).map(|(_, alarm)| alarm.at as u64).min();
            let down =
                alarms.iter().enumerate().filter(|(index, _)| is_raised(*index)).map(|(_, alarm)| alarm.clear_at as u64 + 1);
            let (up, down) = (up.unwrap_or(u64::MAX), down.max().unwrap_or(0));
            shared_counters.raise_line().store(up, SeqCst);
            shared_counters.clear_line().store(down, SeqCst);
            // A thread that counts looks at the lines afterwards, and here the count is looked at after them: one of both sees it. The
            // same with other processes that set lines.
            let taken = shared_counters.taken().load(SeqCst);
            if shared_counters.alarm(RAISED).load(SeqCst) == raised && taken < up && taken >= down {
                return;
            }
            (peak, trough) = (taken, taken);
        }
    }

    fn cross_one(&self, shared_counters: &SharedCounters, index: usize, alarm: Alarm, peak: u64, trough: u64) {
        let (word, bit) = (shared_counters.alarm(RAISED), 1 << index);
        let (at, clear_at) = (alarm.at as u64, alarm.clear_at as u64);
        let was_raised = word.load(SeqCst) & bit != 0;
        if !was_raised && peak >= at && word.fetch_or(bit, SeqCst) & bit == 0 {
            self.tell(&Event::AlarmRaised { alarm, connections: peak as usize });
        }
        // Between two looks it may have gone up and down.
        let now = shared_counters.taken().load(SeqCst);
        let lowest = if was_raised { trough.min(now) } else { now };
        if lowest <= clear_at && word.fetch_and(!bit, SeqCst) & bit != 0 {
            self.tell(&Event::AlarmCleared { alarm, connections: lowest as usize });
        }
    }

    fn tell(&self, event: &Event) {
        let teller = lock(&self.teller).as_ref().and_then(Weak::upgrade);
        if let Some(teller) = teller {
            teller.tell_event(event);
        }
    }
}

fn known(shared_counters: &SharedCounters) -> Vec<Alarm> {
    let number = |word: usize| shared_counters.alarm(NUMBERS + word).load(SeqCst) as usize;
    let count = (shared_counters.alarm(COUNT).load(SeqCst) as usize).min(MAX_ALARMS);
    (0..count).map(|index| Alarm { at: number(2 * index), clear_at: number(2 * index + 1) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::limiter::Limiter;
    use crate::listen::permit::Permit;
    use std::sync::Arc;

    #[derive(Default)]
    struct Heard(Mutex<Vec<bool>>);

    impl Teller for Heard {
        fn tell_event(&self, event: &Event) {
            lock(&self.0).push(matches!(event, Event::AlarmRaised { .. }));
        }
    }

    fn limiter(alarms: &[Alarm]) -> (Arc<Limiter>, Arc<Heard>) {
        let (limiter, heard) = (Limiter::new(100), Arc::new(Heard::default()));
        let teller: Weak<dyn Teller> = Arc::downgrade(&(heard.clone() as Arc<dyn Teller>));
        limiter.alarms.tell_by(teller);
        limiter.set_alarms(alarms);
        (limiter, heard)
    }

    #[test]
    fn each_crossing_is_told_once_and_what_lies_between_is_not() {
        let (limiter, heard) = limiter(&[Alarm { at: 8, clear_at: 4 }]);
        let mut permits: Vec<Permit> = Vec::new();
        for round in 1..=3 {
            while permits.len() < 10 {
                permits.push(Permit::take(&limiter).expect("free"));
            }
            assert_eq!(*lock(&heard.0), [true, false].repeat(round)[..2 * round - 1]);
            for _ in 0..5 {
                permits.truncate(5);
                while permits.len() < 9 {
                    permits.push(Permit::take(&limiter).expect("free"));
                }
            }
            assert_eq!(lock(&heard.0).len(), 2 * round - 1, "it never fell to 4");
            permits.truncate(4);
            assert_eq!(*lock(&heard.0), [true, false].repeat(round));
            permits.truncate(round - 1);
        }
    }

    #[test]
    fn alarms_change_and_what_is_raised_stays_so() {
        let (limiter, heard) = limiter(&[Alarm { at: 2, clear_at: 0 }]);
        let permits: Vec<Permit> = (0..3).map(|_| Permit::take(&limiter).expect("free")).collect();
        limiter.set_alarms(&[Alarm { at: 3, clear_at: 1 }, Alarm { at: 2, clear_at: 0 }]);
        assert_eq!(*lock(&heard.0), [true, true], "the first one is new, the second is raised already");
        drop(permits);
        assert_eq!(*lock(&heard.0), [true, true, false, false]);
        limiter.set_alarms(&[]);
        drop((Permit::take(&limiter), Permit::take(&limiter), Permit::take(&limiter)));
        assert_eq!(lock(&heard.0).len(), 4);
    }

    /// An observer that ends a connection when it hears of an alarm.
    struct Ends(Mutex<Vec<Permit>>);

    impl Teller for Ends {
        fn tell_event(&self, _event: &Event) {
            let ended = lock(&self.0).pop();
            drop(ended);
        }
    }

    #[test]
    fn an_observer_of_an_alarm_may_end_a_connection_while_others_wait() {
        use crate::limit::limiter::Waiter;
        use crate::sys::Kernel;
        use crate::wake::Wake;
        let (tells, hears) = crate::sync::mpsc::channel();
        // Left behind where it hangs.
        std::thread::spawn(move || {
            let limiter = Limiter::new(2);
            let permits = (0..2).map(|_| Permit::take(&limiter).expect("free")).collect();
            let ends: Arc<dyn Teller> = Arc::new(Ends(Mutex::new(permits)));
            limiter.alarms.tell_by(Arc::downgrade(&ends));
            limiter.set_alarms(&[Alarm { at: 3, clear_at: 1 }]);
            let mut waiter = Waiter::new(limiter.clone(), Wake::new(Arc::new(Kernel)));
            waiter.wait();
            // Room for the loop that waits; the permit that it takes raises the alarm.
            limiter.set_limit(3);
            let permit = Permit::take(&limiter);
            tells.send((permit.is_some(), waiter.is_called(), limiter.taken())).expect("the test waits");
        });
        let heard = hears.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(heard, Ok((true, true, 2)), "two were in, one came, and one of the first went");
    }

    #[test]
    fn threads_tell_each_crossing_once() {
        let (limiter, heard) = limiter(&[Alarm { at: 4, clear_at: 0 }]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        drop((Permit::take(&limiter), Permit::take(&limiter)));
                    }
                });
            }
        });
        let heard = lock(&heard.0);
        assert!(heard.chunks(2).all(|pair| pair == [true, false]), "raised and cleared in turn, and none is raised at 0");
    }
}
