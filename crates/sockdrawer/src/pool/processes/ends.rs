//! The ends that a pool asks of a forking helper's children, by signals: SIGTERM asks a child to end, SIGKILL ends it.

use crate::behaviour::Kind;
use crate::clock::deadline;
use crate::event_loop::endings::{Act, CUT_WITHIN, Endings, Ladder};
use crate::model::fork::{Children, KillReason};
use crate::operation::{Drain, Drained, Outcome};
use crate::pool::drain::{Moments, shuffle};
use crate::pool::request::Reply;
use crate::sys::fork::SIGTERM;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// A child that was killed is gone in this time, or the kernel holds it for longer than anybody waits.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// A program whose peer is gone has this time to end by SIGTERM.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// All ends that are asked for and not over.
#[derive(Default)]
pub(super) struct Ends {
    open: HashMap<u64, AskedEnds>,
    /// Children that were asked to end, or have their turn for that.
    draining: HashSet<u32>,
    /// Children that were told as cut, and when they are killed: to let go of what the kernel has for many of them takes all CPUs for a
    /// while, in which the answer would not arrive.
    cut: VecDeque<(Instant, u32)>,
    /// Programs whose peers are gone, and when they are killed.
    gone: VecDeque<(Instant, u32)>,
    /// The pool's last question.
    last: Option<u64>,
}

/// A question to children that is not over.
struct AskedEnds {
    kind: AskedFor,
    /// Children that are not gone.
    left: HashSet<u32>,
    /// Children that are still to be asked, and when.
    turns: VecDeque<(Instant, u32)>,
    /// The acts to come. A child with a protocol keeps the deadline itself. Programs are told by SIGTERM, which ends most of them, and cut by SIGKILL.
    ladder: Ladder,
    /// The queue of a listener is still accepted from.
    listener: bool,
    drained: Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedFor {
    /// Children are asked to end what they are doing, and then end.
    Drain,
    /// Children are asked to end now, in order.
    Purge,
    Kill,
    /// Children are asked nothing: a listener is to end.
    Nothing,
}

impl AskedEnds {
    fn new(kind: AskedFor, within: Duration) -> AskedEnds {
        let mut ladder = Endings::within(within).ladder(CUT_WITHIN / 2);
        match kind {
            AskedFor::Drain => {}
            // A program has no way to end in order but by itself: it is told at once.
            AskedFor::Purge => ladder.last_words = Instant::now(),
            AskedFor::Kill => (ladder.close, ladder.next) = (deadline(ladder.until, KILLED_WITHIN), Some(Act::Close)),
            AskedFor::Nothing => ladder.next = None,
        }
        AskedEnds { kind, left: HashSet::new(), turns: VecDeque::new(), ladder, listener: false, drained: Drained::default() }
    }

    /// Gives the children their turns, so that none is asked too late.
    fn has_turns(&mut self, mut pids: Vec<u32>, how: Drain) -> Vec<u32> {
        shuffle(&mut pids);
        pids.truncate(how.max_connections.unwrap_or(usize::MAX));
        let mut moments = Moments::at(how.rate.unwrap_or_default(), Instant::now());
        for pid in &pids {
            let at = moments.next();
            if how.max_connections.is_none() {
                self.turns.push_back((at.min(self.ladder.last_words), *pid));
            } else if at < self.ladder.until {
                self.turns.push_back((at, *pid));
            }
        }
        self.left.extend(self.turns.iter().map(|(_, pid)| *pid));
        self.turns.iter().map(|(_, pid)| *pid).collect()
    }

    fn heard(&mut self, pid: u32, cut: bool) {
        if self.left.remove(&pid) {
            self.count(1, cut);
        }
    }

    fn count(&mut self, children: usize, cut: bool) {
        let (ended, cut) = if cut { (0, children) } else { (children, 0) };
        self.drained = [self.drained, Drained::of((ended, cut))].into_iter().sum();
    }

    /// Cuts all children, but for those that have ended in order and may still have to exit. Returns those that were cut.
    fn cut_all(&mut self, children: &Children) -> Vec<u32> {
        let (cut, ended): (Vec<u32>, Vec<u32>) = self.left.drain().partition(|pid| children.cut(*pid));
        self.count(cut.len(), true);
        self.count(ended.len(), false);
        cut
    }

    fn reply(mut self) -> Reply {
        // Children that are left were killed, and are not gone yet.
        self.count(self.left.len(), true);
        match self.kind {
            AskedFor::Drain | AskedFor::Purge => Reply::Outcome(Box::new(self.drained.into())),
            AskedFor::Kill => Reply::Outcome(Box::new(Outcome { done: self.drained.asked, ..Outcome::default() })),
            AskedFor::Nothing => Reply::Done,
        }
    }
}

impl Ends {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn is_draining(&self, pid: u32) -> bool {
        self.draining.contains(&pid)
    }

    pub(super) fn drain(&mut self, number: u64, mut meant: Vec<u32>, how: Drain) {
        let mut asked = AskedEnds::new(AskedFor::Drain, how.deadline);
        if how.max_connections.is_some() {
            meant.retain(|pid| !self.draining.contains(pid));
        }
        let turns = asked.has_turns(meant, how);
        if how.max_connections.is_some() {
            // Chosen now: another drain chooses others.
            self.draining.extend(turns);
        }
        self.open.insert(number, asked);
    }

    pub(super) fn purge(&mut self, number: u64, meant: Vec<u32>, within: Duration) {
        let mut asked = AskedEnds::new(AskedFor::Purge, within);
        asked.has_turns(meant, Drain::within(within));
        self.open.insert(number, asked);
    }

    pub(super) fn kill(&mut self, number: u64, meant: Vec<u32>, children: &Children) {
        let mut asked = AskedEnds::new(AskedFor::Kill, Duration::ZERO);
        meant.iter().for_each(|pid| children.kill(*pid, KillReason::Killed));
        asked.left.extend(meant);
        self.open.insert(number, asked);
    }

    /// Begins the pool's last question: it is over when all of `children` have ended and no queue is left.
    pub(super) fn end(&mut self, number: u64, meant: Vec<u32>, how: Drain) {
        self.drain(number, meant, Drain { max_connections: None, ..how });
        self.open.entry(number).and_modify(|asked| asked.listener = true);
        self.last = Some(number);
    }

    pub(super) fn wait_for_listener(&mut self, number: u64) {
        self.open.insert(number, AskedEnds { listener: true, ..AskedEnds::new(AskedFor::Nothing, Duration::ZERO) });
    }

    pub(super) fn retired(&mut self, number: u64) {
        self.open.entry(number).and_modify(|asked| asked.listener = false);
    }

    pub(super) fn was_last(&self, number: u64) -> bool {
        self.last == Some(number)
    }

    /// Asks those that came in while the pool was ending already. They have no more time than the others.
    pub(super) fn drain_more(&mut self, children: &Children) {
        let Some(asked) = self.last.and_then(|last| self.open.get_mut(&last)) else { return };
        let now = Instant::now();
        for pid in children.choose(|pid, _| !asked.left.contains(&pid)) {
            asked.left.insert(pid);
            asked.turns.push_front((now, pid));
        }
    }

    /// Returns true where nothing may be accepted any more.
    pub(super) fn is_time_over(&self) -> bool {
        self.last.and_then(|last| self.open.get(&last)).is_some_and(|asked| asked.ladder.has_done(Act::Cut))
    }

    /// Counts connections that were never accepted as cut.
    pub(super) fn add_cut(&mut self, connections: usize) {
        if let Some(asked) = self.last.and_then(|last| self.open.get_mut(&last)) {
            asked.count(connections, true);
        }
    }

    /// Notes that a child has ended, in order or not.
    pub(super) fn ended(&mut self, pid: u32, cut: bool) {
        self.draining.remove(&pid);
        self.gone.retain(|(_, gone)| *gone != pid);
        self.open.values_mut().for_each(|asked| asked.heard(pid, cut));
    }

    /// Returns the time when there is something to do next.
    pub(super) fn due(&self) -> Option<Instant> {
        let of = |asked: &AskedEnds| [asked.turns.front().map(|(at, _)| *at), asked.ladder.next().map(|(at, _)| at)];
        self.open
            .values()
            .flat_map(of)
            .flatten()
            .chain([&self.cut, &self.gone].into_iter().filter_map(|queue| Some(queue.front()?.0)))
            .min()
    }

    /// Does what is due.
    pub(super) fn go_on(&mut self, children: &Children) {
        let now = Instant::now();
        for (queue, reason) in [(&mut self.cut, KillReason::Cut), (&mut self.gone, KillReason::Gone)] {
            let due = queue.iter().take_while(|(at, _)| *at <= now).count();
            queue.drain(..due).for_each(|(_, pid)| children.kill(pid, reason));
        }
        let is_program = |pid: u32| children.with(pid, |child| child.kind()) == Some(Kind::Program);
        for asked in self.open.values_mut() {
            while asked.turns.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, pid)) = asked.turns.pop_front().filter(|(_, pid)| asked.left.contains(pid)) else { continue };
                self.draining.insert(pid);
                let is_told = asked.ladder.has_done(Act::LastWords);
                match is_program(pid) {
                    // The child came after the end of all.
                    _ if asked.ladder.has_done(Act::Cut) => children.kill(pid, KillReason::Cut),
                    true if is_told => children.signal_program(pid, SIGTERM, KillReason::Cut),
                    true => {}
                    false => children.ask_to_end(pid, asked.ladder.until, asked.kind == AskedFor::Purge),
                }
            }
            while let Some(act) = asked.ladder.take(now) {
                if act == Act::Close && asked.kind != AskedFor::Kill {
                    let at = now + CUT_WITHIN;
                    self.cut.extend(asked.cut_all(children).into_iter().map(|pid| (at, pid)));
                }
                for pid in asked.left.iter().filter(|pid| is_program(**pid)) {
                    match act {
                        Act::LastWords => children.signal_program(*pid, SIGTERM, KillReason::Cut),
                        Act::Cut => children.kill(*pid, KillReason::Cut),
                        Act::Close => {}
                    }
                }
            }
        }
    }

    /// Ends a program whose peer is gone.
    pub(super) fn peer_gone(&mut self, pid: u32, children: &Children) {
        children.signal_program(pid, SIGTERM, KillReason::Gone);
        self.gone.push_back((Instant::now() + GONE_WITHIN, pid));
    }

    /// Questions that need wait for nothing any more. The last one waits until no permit is `taken`, and is answered after all others: the pool hears
    /// nothing that comes later.
    pub(super) fn answered(&mut self, taken: usize) -> Vec<(u64, Reply)> {
        let last = self.last;
        let over = |number: &u64, asked: &mut AskedEnds| {
            let is_over = asked.kind != AskedFor::Nothing && asked.ladder.has_done(Act::Close);
            let waits = asked.listener || (Some(*number) == last && taken > 0);
            is_over || (asked.left.is_empty() && !waits)
        };
        let mut answered: Vec<_> = self.open.extract_if(over).map(|(number, asked)| (number, asked.reply())).collect();
        answered.sort_by_key(|(number, _)| Some(*number) == last);
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(reply: Reply) -> Drained {
        let Reply::Outcome(answer) = reply else { panic!("{reply:?}") };
        answer.drained
    }

    #[test]
    fn a_child_has_ended_when_it_is_gone() {
        let mut ends = Ends::default();
        ends.drain(1, vec![7, 8, 9], Drain::within(Duration::from_secs(60)));
        assert!(ends.answered(0).is_empty());
        ends.ended(7, false);
        ends.ended(8, true);
        ends.ended(6, true);
        assert!(ends.answered(0).is_empty(), "one is left");
        ends.ended(9, false);
        let (number, reply) = ends.answered(0).pop().expect("it is over");
        assert_eq!((number, drained(reply)), (1, Drained::of((2, 1))));
        assert!(ends.is_empty());
    }

    #[test]
    fn the_last_question_waits_for_queues_and_permits() {
        let mut ends = Ends::default();
        ends.end(1, vec![7], Drain::within(Duration::from_secs(60)));
        ends.ended(7, false);
        assert!(ends.answered(0).is_empty(), "connections wait at a listener");
        ends.retired(1);
        assert!(ends.answered(1).is_empty(), "one has a permit");
        ends.add_cut(2);
        (2..10).for_each(|number| ends.drain(number, Vec::new(), Drain::within(Duration::ZERO)));
        let (number, reply) = ends.answered(0).pop().expect("it is over");
        assert_eq!((number, drained(reply)), (1, Drained::of((1, 2))), "after all others");
    }

    #[test]
    fn two_drains_of_some_ask_different_children() {
        let mut ends = Ends::default();
        let how = Drain::within(Duration::from_secs(60)).max_connections(2);
        ends.drain(1, vec![1, 2, 3], how);
        ends.drain(2, vec![1, 2, 3], how);
        let [one, two] = [1, 2].map(|number| ends.open[&number].left.clone());
        assert_eq!((one.len(), two.len(), one.is_disjoint(&two)), (2, 1, true));
    }
}
