//! Asking loops: what is done to connections, and what is told of them, on the loops' own threads.

use super::Loops;
use super::drain;
use crate::event_loop::EventLoop;
use crate::event_loop::connections::operations;
use crate::event_loop::inbox::{Inbox, Message};
use crate::gather::{ReplyTo, gather};
use crate::operation::{Op, Outcome, Page, Selector};
use crate::pool::control::{Control, Core};
use crate::pool::drain::ANSWER_WITHIN;
use crate::sync::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop that does not answer within this time is left out of the answer.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(5);

/// Does this to the connections that are meant, and waits for the loops' answers; a note is left in their inboxes.
pub(crate) fn apply(core: &Core<Loops>, op: Op, selector: &Selector) -> Outcome {
    if let (Op::List(page), Some(_)) = (&op, &core.own.shared.placement) {
        return list(core, selector, *page);
    }
    let (inboxes, asked) = (inboxes(core), Arc::new((op, selector.clone())));
    let question = asked.clone();
    let apply = move |event_loop: &mut EventLoop| operations::apply(&mut event_loop.connections, &question.0, &question.1);
    match &asked.0 {
        Op::Notify(_) => {
            let post = |inbox: &&Arc<Inbox>| {
                let apply = apply.clone();
                inbox.put_bounded(Box::new(move |event_loop| _ = apply(event_loop)))
            };
            let taken = inboxes.iter().filter(post).count();
            Outcome { silent: inboxes.len() - taken, ..Outcome::default() }
        }
        Op::Drain(how) => drain::drain(core, selector, *how).into(),
        Op::Purge(within) => drain::purge(core, selector, *within).into(),
        op => {
            let answers = ask(&inboxes, Instant::now() + ASK_WITHIN, apply).map(|(_, answer)| answer);
            let mut answer = Outcome::gathered(inboxes.len(), answers, selector);
            if matches!(op, Op::Adopt) && answer.silent > 0 {
                answer.adopted.unasked = core.own.shared.limiter.taken_here().saturating_sub(answer.connections);
            }
            answer
        }
    }
}

/// Lists connections. Where each connection has a thread, those are asked whose connections are of this part. One that user code keeps from
/// answering is listed all the same.
fn list(core: &Core<Loops>, selector: &Selector, page: Page) -> Outcome {
    let placements = || core.own.shared.placement.iter();
    let (mut threads, mut inboxes) = (Vec::new(), inboxes_of_loops(core));
    for (id, inbox) in placements().flat_map(|placement| placement.numbered()) {
        match id {
            Some(id) => threads.push((id, inbox)),
            // Connections on their way to a thread are in its inbox before the question.
            None => inboxes.push(inbox),
        }
    }
    let next = page.cut(&mut threads);
    inboxes.extend(threads.into_iter().map(|(_, inbox)| inbox));
    let mut silent: Vec<_> = inboxes.iter().map(Some).collect();
    let meant = selector.clone();
    let list = move |event_loop: &mut EventLoop| operations::apply(&mut event_loop.connections, &Op::List(page), &meant);
    let answers = ask(&inboxes, Instant::now() + ANSWER_WITHIN, list).map(|(index, answer)| {
        silent[index] = None;
        answer
    });
    let mut answer = Outcome::gathered(inboxes.len(), answers, &Selector::All);
    answer += Outcome { next, ..Outcome::default() };
    let silent: Vec<_> = silent.into_iter().flatten().collect();
    answer.list.extend(placements().flat_map(|placement| placement.seen(&silent, selector)));
    answer
}

/// Returns the inboxes of all that may have connections: loops, parked ones too, and where else connections were placed.
pub(crate) fn inboxes(core: &Core<Loops>) -> Vec<Arc<Inbox>> {
    let mut inboxes = inboxes_of_loops(core);
    inboxes.extend(core.own.shared.placement.iter().flat_map(|placement| placement.inboxes()));
    inboxes
}

pub(super) fn inboxes_of_loops(core: &Core<Loops>) -> Vec<Arc<Inbox>> {
    inboxes_of(&lock(&core.control))
}

pub(super) fn inboxes_of(control: &Control<Loops>) -> Vec<Arc<Inbox>> {
    control.running().map(|running| running.inbox.clone()).collect()
}

/// Asks loops something. Returns their answers as they come, and waits for them until then: a loop that does not answer in time, or is gone, is left out.
pub(super) fn ask<T: Send + 'static>(
    inboxes: &[Arc<Inbox>],
    until: Instant,
    question: impl Fn(&mut EventLoop) -> T + Send + Sync + 'static,
) -> impl Iterator<Item = (usize, T)> {
    let question = Arc::new(question);
    let answers = gather(inboxes, until, |inbox, reply: ReplyTo<T>| {
        let question = question.clone();
        let _ = inbox.put(Message::Command(Box::new(move |event_loop| reply.answer(question(event_loop)))));
    });
    answers.filter_map(|(index, answer)| Some((index, answer?)))
}

/// Waits until every loop has read the messages it had.
pub(crate) fn settle(inboxes: &[Arc<Inbox>]) {
    ask(inboxes, Instant::now() + ASK_WITHIN, |_| ()).for_each(drop);
}
