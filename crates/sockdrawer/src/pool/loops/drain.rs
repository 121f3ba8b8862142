//! Asking connections of loops to end, and ending them.

use super::Loops;
use super::apply::{self, ask};
use super::shutdown::Shutdown;
use crate::event_loop::EventLoop;
use crate::event_loop::connections::ending::CountedEnd;
use crate::event_loop::connections::ending::drain_one;
use crate::event_loop::connections::selecting::Selecting;
use crate::event_loop::deadlines;
use crate::event_loop::endings::{CUT_WITHIN, Endings};
use crate::event_loop::inbox::{Inbox, Message};
use crate::gather::{ReplyTo, gather};
use crate::operation::{Drain, Drained, Selector};
use crate::pool::control::Core;
use crate::pool::drain::{ANSWER_WITHIN, Moments, shuffle};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that are due within this time of another are asked with it, when there is a rate.
const PACE: Duration = Duration::from_millis(1);

/// A connection and the loop it is in.
type Target = (Arc<Inbox>, u64);

fn counted<'a>(event_loop: &'a mut EventLoop, endings: &'a Arc<Endings>) -> CountedEnd<'a> {
    CountedEnd::of(&mut event_loop.connections, endings)
}

pub(crate) fn drain(core: &Core<Loops>, selector: &Selector, how: Drain) -> Drained {
    let endings = Endings::within(how.deadline);
    let moments = Moments::at(how.rate.unwrap_or_default(), Instant::now());
    match (how.max_connections, how.rate) {
        (Some(most), _) => drain_some(core, selector, most, moments, &endings),
        (None, Some(_)) => drain_at_rate(core, selector, moments, &endings, Shutdown::Begun),
        (None, None) => {
            let selector = selector.clone();
            ask_for_end(core, &endings, move |event_loop, endings| counted(event_loop, endings).drain(&selector));
        }
    }
    outcome_of(core, &endings, *selector == Selector::All && how.max_connections.is_none())
}

pub(crate) fn purge(core: &Core<Loops>, selector: &Selector, within: Duration) -> Drained {
    let (endings, meant) = (Endings::within(within), selector.clone());
    ask_for_end(core, &endings, move |event_loop, endings| counted(event_loop, endings).purge(&meant, within));
    outcome_of(core, &endings, *selector == Selector::All)
}

/// Has each loop do something for these connections. It is over when all have, and their connections have ended.
fn ask_for_end(core: &Core<Loops>, endings: &Arc<Endings>, act: impl Fn(&mut EventLoop, &Arc<Endings>) + Clone + Send + 'static) {
    for inbox in apply::inboxes(core) {
        let (silent, endings, act) = (endings.loop_asked(), endings.clone(), act.clone());
        // A loop that is gone has no connections.
        let _ = inbox.put(Message::Command(Box::new(move |event_loop| {
            act(event_loop, &endings);
            drop(silent);
        })));
    }
}

/// Asks all that match, in random order at a rate. Those that have no turn before the time for last words are told then.
fn drain_at_rate(core: &Core<Loops>, selector: &Selector, mut moments: Moments, endings: &Arc<Endings>, unless: Shutdown) {
    let ends = endings.clone();
    let mut targets = targets(core, selector, endings.until, move |event_loop, tokens| counted(event_loop, &ends).count(tokens));
    // So that a drain does not empty one loop, or one client, first.
    shuffle(&mut targets);
    for (inbox, token) in &targets {
        let due = moments.next();
        if endings.are_over()
            || due >= endings.last_words
            || (due > Instant::now() + PACE && !core.own.shutdown.wait_until(due, unless))
        {
            break;
        }
        let token = *token;
        let _ = inbox.put(Message::Command(Box::new(move |event_loop| drain_one(&mut event_loop.connections, token))));
    }
    find_silent(core, endings);
}

/// Learns which loops do not answer.
fn find_silent(core: &Core<Loops>, endings: &Arc<Endings>) {
    ask_for_end(core, endings, |_, _| ());
}

/// Asks this many of those that match, also while others are asked by other drains. Those without a turn before the deadline stay.
fn drain_some(core: &Core<Loops>, selector: &Selector, most: usize, mut moments: Moments, endings: &Arc<Endings>) {
    let mut targets = targets(core, selector, endings.until, |_, tokens| tokens);
    shuffle(&mut targets);
    let (mut targets, mut asked) = (targets.into_iter(), 0);
    let mut due = moments.next();
    while asked < most {
        if due >= endings.until || (due > Instant::now() + PACE && !core.own.shutdown.wait_until(due, Shutdown::Begun)) {
            break;
        }
        let (soon, mut next) = (Instant::now() + PACE, Vec::new());
        while due <= soon && due < endings.until && asked + next.len() < most {
            let Some(target) = targets.next() else { break };
            next.push(target);
            due = moments.next();
        }
        if next.is_empty() && targets.len() == 0 {
            break;
        }
        // Connections that still connect, have ended, or were asked by another drain, are made up for by others.
        asked += drained_first(next, endings);
    }
    find_silent(core, endings);
}

/// Drains the pool to its end: also connections that were still on their way in when it began, until `is_over`. At the deadline
/// nothing more is accepted: what waits at the listening sockets is reset too.
pub(crate) fn drain_to_the_end(core: &Core<Loops>, how: Drain, is_over: impl Fn() -> bool) -> Drained {
    let endings = Endings::within(how.deadline);
    if let Some(rate) = how.rate {
        drain_at_rate(core, &Selector::All, Moments::at(rate, Instant::now()), &endings, Shutdown::Here);
    }
    // Connections that came in meanwhile, or come later, were let in to be answered: they are asked at once, by loops that begin later, too.
    let endings = core.own.shared.ending.get_or_init(|| endings);
    ask_for_end(core, endings, |event_loop, _| deadlines::join_shutdown(event_loop));
    if !core.own.shared.notifier.wait(endings.until, || endings.are_over() && is_over()) {
        // Connections that wait at sockets are counted when each loop has kept the deadline.
        ask_for_end(core, endings, |event_loop, _| deadlines::keep_deadlines(event_loop));
    }
    core.own.outcome(endings, || core.own.shared.limiter.taken_here())
}

/// Returns everything that matches, by the loop that has it, as far as loops answer in time.
fn targets(
    core: &Core<Loops>,
    selector: &Selector,
    until: Instant,
    take: impl Fn(&mut EventLoop, Vec<u64>) -> Vec<u64> + Send + Sync + 'static,
) -> Vec<Target> {
    let inboxes = apply::inboxes(core);
    let selector = selector.clone();
    let choose = move |event_loop: &mut EventLoop| {
        let tokens = Selecting::of(&mut event_loop.connections.streams).choose_to_end(&selector);
        take(event_loop, tokens)
    };
    ask(&inboxes, until.min(Instant::now() + ANSWER_WITHIN), choose)
        .flat_map(|(index, tokens)| tokens.into_iter().map(move |token| (index, token)))
        .map(|(index, token)| (inboxes[index].clone(), token))
        .collect()
}

impl Loops {
    /// Waits until these connections have ended. Loops cut at the deadline what is left by then; one that does not, for 50 ms, has what it has
    /// counted as cut, and so are permits `in_use` that no loop has told of.
    fn outcome(&self, endings: &Endings, in_use: impl Fn() -> usize) -> Drained {
        self.shared.notifier.wait(endings.until, || endings.are_over());
        // Where this thread is late, loops may be, too.
        let by = Instant::now() + CUT_WITHIN;
        self.shared.notifier.wait(by, || endings.are_over() && endings.unheard(&in_use) == 0);
        let drained = Drained::of(endings.tell(&in_use));
        if drained.cut > 0 {
            // It may go on when this has returned: only how long it takes depends on what the kernel has for these connections.
            self.shared.notifier.wait(by, || endings.are_closed());
        }
        drained
    }
}

/// Returns what came of these connections. Which of a loop that does not answer are meant is known only if `all` are: those count as cut, and of
/// others the loop is told of.
fn outcome_of(core: &Core<Loops>, endings: &Endings, all: bool) -> Drained {
    let limiter = &core.own.shared.limiter;
    let drained = core.own.outcome(endings, || if all && endings.silent() > 0 { limiter.taken_here() } else { 0 });
    Drained { silent: if all { 0 } else { endings.silent() }, ..drained }
}

/// Asks these to end; how many were there for it, and asked for the first time. Those of a loop that does not answer in time are taken
/// to be.
fn drained_first(targets: Vec<Target>, endings: &Arc<Endings>) -> usize {
    let mut groups: Vec<(Arc<Inbox>, Vec<u64>)> = Vec::new();
    for (inbox, token) in targets {
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &inbox)) {
            Some((_, tokens)) => tokens.push(token),
            None => groups.push((inbox, vec![token])),
        }
    }
    let mut unheard: Vec<usize> = groups.iter().map(|(_, tokens)| tokens.len()).collect();
    // Nothing waits for an answer after the deadline.
    let answers = gather(groups, endings.until, |(inbox, tokens), reply: ReplyTo<usize>| {
        let ends = endings.clone();
        let drain = move |event_loop: &mut EventLoop| {
            let is_first = |token: &u64| counted(event_loop, &ends).drain_if_first(*token);
            reply.answer(tokens.into_iter().filter(is_first).count());
        };
        let _ = inbox.put(Message::Command(Box::new(drain)));
    });
    let mut asked = 0;
    for (index, first) in answers {
        // A loop that is gone has no connections any more.
        unheard[index] = 0;
        asked += first.unwrap_or(0);
    }
    asked + unheard.into_iter().sum::<usize>()
}
