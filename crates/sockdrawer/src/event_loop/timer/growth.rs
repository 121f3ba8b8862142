//! Cost of a timer while few or many others are armed. `bench/growth` asks for up to a million of them.

use super::{NONE, Wheel};
use crate::event_loop::slots::Slots;
use crate::limit::limiter::Limiter;
use std::time::{Duration, Instant};

/// Time within which deadlines lie, as those of connections do that ask once a minute.
const SPAN: Duration = Duration::from_secs(60);
/// Minimum time between two looks of a busy loop at its timers.
const TURN: Duration = Duration::from_millis(1);

/// A wheel whose time is the test's.
struct Scene {
    wheel: Wheel,
    slots: Slots,
    start: Instant,
    /// Slots in no order, as events come.
    order: Vec<u32>,
}

impl Scene {
    fn new(count: u32) -> Scene {
        let start = Instant::now();
        let mut slots = Slots::with_capacity(count as usize, Limiter::new(count as usize));
        // Nodes live in slots; taken or not makes no difference to the wheel.
        (0..count).for_each(|_| _ = slots.make());
        // A walk through all of them: the step has no divisor in common with a power of ten.
        let order = (0..u64::from(count)).map(|n| (n * 7_368_787 % u64::from(count)) as u32).collect();
        Scene { wheel: Wheel::new(start), slots, start, order }
    }

    /// Returns a deadline, spread over the span in another order than the slots are.
    fn deadline(&self, slot: u32) -> Instant {
        self.start + SPAN.mul_f64(f64::from(slot.wrapping_mul(2_654_435_769)) / f64::from(u32::MAX)) + TURN
    }

    /// Nanoseconds for each of them.
    fn timed(&mut self, mut each: impl FnMut(&mut Scene, u32)) -> f64 {
        let order = std::mem::take(&mut self.order);
        let began = Instant::now();
        for slot in &order {
            each(self, *slot);
        }
        let took = began.elapsed();
        self.order = order;
        took.as_nanos() as f64 / self.order.len() as f64
    }

    fn set(&mut self) -> f64 {
        self.timed(|scene, slot| {
            let at = scene.deadline(slot);
            scene.wheel.set(&mut scene.slots, slot, at, scene.start);
        })
    }

    /// Moves timers to a later time, which is all that happens to a timer of a busy connection.
    fn moved(&mut self) -> f64 {
        self.timed(|scene, slot| {
            let at = scene.deadline(slot) + TURN;
            scene.wheel.set(&mut scene.slots, slot, at, scene.start);
        })
    }

    fn clear(&mut self) -> f64 {
        self.timed(|scene, slot| scene.wheel.clear(&mut scene.slots, slot))
    }

    /// Fires all timers, in as many turns as it takes until the span is over.
    fn fire(&mut self) -> f64 {
        let (began, mut now, mut fired) = (Instant::now(), self.start, 0);
        let mut due = Vec::new();
        while let Some(next) = self.wheel.next() {
            now = next.max(now + TURN);
            self.wheel.advance(&mut self.slots, now, &mut due, usize::MAX);
            fired += due.len();
            due.clear();
        }
        let took = began.elapsed();
        assert_eq!(fired, self.order.len(), "each fires once");
        assert!(now <= self.start + SPAN + 4 * TURN, "none fires late");
        took.as_nanos() as f64 / fired as f64
    }
}

/// Nanoseconds of a timer that is set, moved, cleared, fired.
fn costs(count: u32) -> [f64; 4] {
    let mut scene = Scene::new(count);
    // The first time touches the memory.
    scene.set();
    scene.clear();
    assert!(scene.wheel.is_empty() && scene.order.iter().all(|slot| scene.slots.at(*slot).timer.next == NONE));
    let set = scene.set();
    let clear = scene.clear();
    scene.set();
    [set, scene.moved(), clear, scene.fire()]
}

/// Writes costs into the file that `SOCKDRAWER_TIMERS` names. Without one there are few timers, and only what they do is looked at.
#[test]
fn what_a_timer_costs_among_many() {
    let file = std::env::var_os("SOCKDRAWER_TIMERS");
    let (counts, rounds): (&[u32], u32) = if file.is_some() { (&[1_000, 10_000, 100_000, 1_000_000], 9) } else { (&[1_000], 1) };
    let lines = counts.iter().map(|&count| {
        // A disturbance of a round adds to its time.
        let least = (0..rounds)
            .map(|_| costs(count))
            .fold([f64::MAX; 4], |least, costs| std::array::from_fn(|place| least[place].min(costs[place])));
        let [set, moved, clear, fire] = least;
        format!("timers {count} set_ns {set:.1} move_ns {moved:.1} clear_ns {clear:.1} fire_ns {fire:.1}\n")
    });
    let lines: String = lines.collect();
    if let Some(file) = file {
        std::fs::write(file, lines).expect("the file can be written");
    }
}
