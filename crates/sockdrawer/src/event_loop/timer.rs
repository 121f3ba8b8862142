//! Deadlines: a hierarchical wheel of intrusive lists. A connection has one node, so a million timers cost no memory of their
//! own; setting, moving and clearing one touches at most three slots.

#[cfg(test)]
mod growth;

use super::slots::Slots;
use std::time::{Duration, Instant};

/// Binary logarithm of a tick in ns. A tick is 2^14 ns, 16.4 µs: a deadline is met half of that late, which is little beside what a wake-up
/// takes, and 32 bits of them are 19 hours.
const TICK_SHIFT: u32 = 14;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 6 levels of 64 buckets span 2^36 ticks, more than a deadline can say.
const LEVELS: usize = 6;
/// Half the span of a tick number, less a little: beyond it "before" and "after" would swap. Farther deadlines fire here and
/// are set again by the caller, who knows the time.
pub(crate) const FARTHEST: Duration = Duration::from_nanos(((1_u64 << 31) - (1 << 16)) << TICK_SHIFT);
/// No slot; also the end of a list.
pub(crate) const NONE: u32 = u32::MAX;
/// A `previous` with this bit names a bucket of the wheel instead of a slot: the node is the first of its list.
const HEAD: u32 = 1 << 31;

/// A slot's part of the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The tick of the bucket it is in. May be earlier than `deadline`: a deadline that moves away costs nothing until it fires.
    hung: u32,
    /// Deadline that was asked for.
    deadline: u32,
    next: u32,
    previous: u32,
}

impl Node {
    pub(crate) const IDLE: Node = Node { hung: 0, deadline: 0, next: NONE, previous: NONE };

    pub(crate) fn is_set(&self) -> bool {
        self.previous != NONE
    }

    /// Makes the node of an empty slot, which links to the next empty one.
    pub(crate) fn linked(next: u32) -> Node {
        Node { next, ..Node::IDLE }
    }

    /// Takes the link, and puts an idle node in its place.
    pub(crate) fn take_link(&mut self) -> u32 {
        std::mem::replace(self, Node::IDLE).next
    }
}

/// The wheel of one loop.
pub(crate) struct Wheel {
    start: Instant,
    /// Every bucket before this tick was emptied.
    tick: u64,
    /// A bit for each bucket that is not empty.
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    armed: usize,
}

impl Wheel {
    pub(crate) fn new(start: Instant) -> Wheel {
        Wheel { start, tick: 0, occupied: [0; LEVELS], heads: [[NONE; SLOTS]; LEVELS], armed: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.armed == 0
    }

    fn ticks(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.start).as_nanos() >> TICK_SHIFT) as u64
    }

    /// Returns the moment at which a node that is set is due: at most a tick later than was asked.
    pub(super) fn due_at(&self, node: &Node) -> Instant {
        let ahead = node.deadline.wrapping_sub(self.tick as u32);
        let ticks = self.tick as i64 + i64::from(ahead as i32);
        self.start + Duration::from_nanos((ticks.max(0) as u64) << TICK_SHIFT)
    }

    /// Sets the slot's timer to `at`, at most [`FARTHEST`] from `now`.
    pub(crate) fn set(&mut self, slots: &mut Slots, slot: u32, at: Instant, now: Instant) {
        if self.is_empty() {
            self.tick = self.tick.max(self.ticks(now));
        }
        // Rounded up: never early.
        let deadline = (self.ticks(at) + 1).clamp(self.tick + 1, self.tick + ((1 << 31) - (1 << 16)));
        let node = &mut slots.at(slot).timer;
        node.deadline = deadline as u32;
        if node.is_set() {
            if !is_before(node.deadline, node.hung) {
                return;
            }
            self.unhang(slots, slot);
        }
        self.hang(slots, slot, deadline);
    }

    #[inline]
    pub(crate) fn clear(&mut self, slots: &mut Slots, slot: u32) {
        if slots.at(slot).timer.is_set() {
            self.unhang(slots, slot);
        }
    }

    fn hang(&mut self, slots: &mut Slots, slot: u32, due: u64) {
        let (level, bucket) = self.place(due);
        let first = std::mem::replace(&mut self.heads[level][bucket], slot);
        self.occupied[level] |= 1 << bucket;
        self.armed += 1;
        if first != NONE {
            slots.at(first).timer.previous = slot;
        }
        let node = &mut slots.at(slot).timer;
        node.hung = due as u32;
        node.next = first;
        node.previous = HEAD | (level * SLOTS + bucket) as u32;
    }

    fn unhang(&mut self, slots: &mut Slots, slot: u32) {
        let node = slots.at(slot).timer;
        if node.previous & HEAD != 0 {
            let (level, bucket) = ((node.previous & !HEAD) as usize / SLOTS, (node.previous & !HEAD) as usize % SLOTS);
            self.heads[level][bucket] = node.next;
            if node.next == NONE {
                self.occupied[level] &= !(1 << bucket);
            }
        } else {
            slots.at(node.previous).timer.next = node.next;
        }
        if node.next != NONE {
            slots.at(node.next).timer.previous = node.previous;
        }
        let node = &mut slots.at(slot).timer;
        node.next = NONE;
        node.previous = NONE;
        self.armed -= 1;
    }

    /// Returns the level and the bucket: the highest digit, in base 64, in which `due` differs from now says the level; the digit itself the bucket.
    fn place(&self, due: u64) -> (usize, usize) {
        let level = ((63 - ((due ^ self.tick) | 1).leading_zeros()) / BITS) as usize;
        let level = level.min(LEVELS - 1);
        (level, (due >> (BITS * level as u32)) as usize % SLOTS)
    }

    /// Returns the moment at which the loop must look again: never later than the nearest deadline, sometimes earlier.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let tick = self.next_tick();
        Some(self.start + Duration::from_nanos(tick << TICK_SHIFT))
    }

    /// Returns the first tick after now at which a bucket is due: a deadline at level 0, a list to spread out above.
    fn next_tick(&self) -> u64 {
        (0..LEVELS)
            .filter_map(|level| {
                let shift = BITS * level as u32;
                let now = (self.tick >> shift) as usize % SLOTS;
                // Slots are always ahead of now, and wrap around only on the highest level.
                let ahead = self.occupied[level].rotate_right((now as u32 + 1) % SLOTS as u32);
                (ahead != 0).then(|| ((self.tick >> shift) + 1 + u64::from(ahead.trailing_zeros())) << shift)
            })
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Collects slots whose deadline has come until `now` into `due`; their timers are off. With `most` of them the others are left, but for those of
    /// the same tick.
    pub(crate) fn advance(&mut self, slots: &mut Slots, now: Instant, due: &mut Vec<u32>, most: usize) {
        let target = self.ticks(now);
        while !self.is_empty() {
            let next = self.next_tick();
            if next > target {
                break;
            }
            if due.len() >= most {
                return;
            }
            self.tick = next;
            for level in (0..LEVELS).rev() {
                let shift = BITS * level as u32;
                if next & ((1 << shift) - 1) == 0 {
                    self.empty_bucket(slots, level, (next >> shift) as usize % SLOTS, due);
                }
            }
        }
        self.tick = self.tick.max(target);
    }

    fn empty_bucket(&mut self, slots: &mut Slots, level: usize, bucket: usize, due: &mut Vec<u32>) {
        while self.heads[level][bucket] != NONE {
            let slot = self.heads[level][bucket];
            self.unhang(slots, slot);
            let deadline = slots.at(slot).timer.deadline;
            let left = deadline.wrapping_sub(self.tick as u32);
            if left == 0 || left >= 1 << 31 {
                due.push(slot);
            } else {
                self.hang(slots, slot, self.tick + u64::from(left));
            }
        }
    }
}

fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) >= 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::limiter::Limiter;
    use crate::listen::permit::Permit;

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    fn slots(count: usize) -> Slots {
        let limiter = Limiter::new(count);
        let mut slots = Slots::with_capacity(count, limiter.clone());
        for _ in 0..count {
            let socket = std::fs::File::open("/dev/null").expect("/dev/null");
            slots.take(socket.into(), Permit::take(&limiter).expect("free"));
        }
        slots
    }

    #[test]
    fn timers_fire_never_early_and_at_the_next_look() {
        let start = Instant::now();
        let (mut wheel, mut slots) = (Wheel::new(start), slots(100));
        let mut deadlines: Vec<Option<u64>> = vec![None; 100];
        let (mut random, mut now, mut due) = (Random(7), 0_u64, Vec::new());
        let mut fired = 0;
        for _ in 0..20_000 {
            let slot = random.below(100) as usize;
            let after = 1 << random.below(36);
            match random.below(4) {
                0 => {
                    wheel.clear(&mut slots, slot as u32);
                    deadlines[slot] = None;
                }
                _ => {
                    let at = now + random.below(after) + 1;
                    wheel.set(&mut slots, slot as u32, start + Duration::from_nanos(at), start + Duration::from_nanos(now));
                    deadlines[slot] = Some(at);
                }
            }
            let step = 1 << random.below(34);
            now += random.below(step);
            let next = wheel.next().map(|at| (at - start).as_nanos() as u64);
            let nearest = deadlines.iter().flatten().min();
            assert_eq!(next.is_some(), nearest.is_some());
            if let (Some(next), Some(nearest)) = (next, nearest) {
                assert!(next <= nearest + (2 << TICK_SHIFT), "the loop would sleep past a deadline");
            }
            wheel.advance(&mut slots, start + Duration::from_nanos(now), &mut due, usize::MAX);
            for slot in due.drain(..) {
                let deadline = deadlines[slot as usize].take().expect("set");
                assert!(deadline <= now, "early");
                fired += 1;
            }
            for deadline in deadlines.iter().flatten() {
                assert!(deadline + (2 << TICK_SHIFT) > now, "a deadline was missed");
            }
        }
        assert!(fired > 1000);
    }

    #[test]
    fn a_deadline_that_moves_away_fires_once_at_its_new_time() {
        let start = Instant::now();
        let (mut wheel, mut slots) = (Wheel::new(start), slots(1));
        let second = Duration::from_secs(1);
        let mut due = Vec::new();
        for moved in 1..=10 {
            wheel.set(&mut slots, 0, start + second * moved, start);
        }
        wheel.advance(&mut slots, start + second * 9, &mut due, usize::MAX);
        assert!(due.is_empty());
        wheel.advance(&mut slots, start + second * 10 + Duration::from_millis(1), &mut due, usize::MAX);
        assert_eq!((due.len(), wheel.is_empty()), (1, true));
    }

    #[test]
    fn ticks_wrap_without_harm() {
        let start = Instant::now();
        let (mut wheel, mut slots) = (Wheel::new(start), slots(1));
        let (quarter, mut due) = (Duration::from_secs(900), Vec::new());
        for quarters in 0..400 {
            wheel.set(&mut slots, 0, start + quarter * (quarters + 20), start + quarter * quarters);
            wheel.advance(&mut slots, start + quarter * (quarters + 19), &mut due, usize::MAX);
            assert!(due.is_empty());
            wheel.advance(&mut slots, start + quarter * (quarters + 20) + Duration::from_millis(1), &mut due, usize::MAX);
            assert_eq!(due.drain(..).count(), 1);
        }
    }

    #[test]
    fn a_million_timers_are_set_and_fire() {
        let start = Instant::now();
        let limiter = Limiter::new(1_000_000);
        let mut slots = Slots::with_capacity(1_000_000, limiter.clone());
        let mut wheel = Wheel::new(start);
        for slot in 0..1_000_000_u32 {
            slots.make();
            wheel.set(&mut slots, slot, start + Duration::from_micros(u64::from(slot) * 37 % 60_000_000), start);
        }
        let mut due = Vec::with_capacity(1_000_000);
        wheel.advance(&mut slots, start + Duration::from_secs(61), &mut due, usize::MAX);
        due.sort_unstable();
        due.dedup();
        assert_eq!((due.len(), wheel.is_empty(), limiter.taken()), (1_000_000, true, 0));
    }
}
