//! The status of a pool of loops, and what its tests do to it.

use super::Loops;
use super::apply::{self, ASK_WITHIN, ask};
use crate::config::Part;
use crate::event_loop::EventLoop;
use crate::event_loop::inbox::{Command, Message};
use crate::observe::{Counts, GenerationStatus, LoopStatus, Status};
use crate::pool::control::{Control, Core};
use crate::pool::members::Visit;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::lock;
use crate::sys::panics;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Returns all counts, of ended loops too. Others count meanwhile: what ended was counted as begun before that, so it is read first.
pub(super) fn counts(core: &Core<Loops>, control: &Control<Loops>) -> Counts {
    let read = || {
        let mut counts = control.own.past;
        counts += control.predecessors;
        control.running().for_each(|one| one.running.counters.add_to(&mut counts));
        core.own.shared.placement.iter().for_each(|placement| placement.add_to(&mut counts));
        counts
    };
    let closed = read().closed;
    fence(Ordering::SeqCst);
    Counts { closed, ..read() }
}

pub(crate) fn status(core: &Core<Loops>) -> Status {
    let mut control = lock(&core.control);
    let newest = control.generation;
    let live = control.own.live_generations(newest);
    let counts = counts(core, &control);
    let loops = control.members.iter().map(|member| {
        let running = member.running.as_ref().map(|running| &running.running);
        LoopStatus {
            connections: running.map_or(0, |running| running.turns.connections.load(Ordering::Relaxed)),
            accepted: running.map_or(0, |running| running.counters.accepted().get()),
            active: member.active,
            stuck: member.stuck,
        }
    });
    let loops = loops.collect();
    let generations = live
        .iter()
        .map(|generation| GenerationStatus { id: generation.id, connections: generation.live.load(Ordering::Acquire) });
    let shared = &core.own.shared;
    let status = Status {
        generations: generations.collect(),
        loops,
        threads: shared.placement.as_ref().map_or(0, |placement| placement.threads()),
        workers: shared.workers.running(),
        jobs_waiting: shared.workers.waiting(),
        delegates: shared.delegates.running(),
        delegates_waiting: shared.delegates.waiting(),
        counts,
        ..core.common_status(&control)
    };
    drop(control);
    // A generation among them may be the last of its service, whose Drop may call the pool.
    drop(live);
    status
}

pub(super) fn visit_locals(core: &Core<Loops>, visit: Visit) {
    let visit = move |event_loop: &mut EventLoop| {
        event_loop.visit_locals(&mut |local| {
            // A visitor's panic is no reason to end a loop: it has no result.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| visit(local))) {
                panics::discard(payload);
            }
        });
    };
    ask(&apply::inboxes(core), Instant::now() + ASK_WITHIN, visit).for_each(drop);
}

/// Ends a part, for tests. The loops of connections that run elsewhere come behind the pool's own.
pub(crate) fn crash(core: &Core<Loops>, part: Part, index: usize) -> bool {
    let placed: Vec<_> = core.own.shared.placement.iter().flat_map(|placement| placement.inboxes()).collect();
    let inbox = match part {
        Part::Loop => {
            let control = lock(&core.control);
            match control.members.get(index) {
                Some(member) => member.running.as_ref().map(|running| running.inbox.clone()),
                None => placed.get(index - control.members.len()).cloned(),
            }
        }
        Part::Thread => placed.get(index % placed.len().max(1)).cloned(),
        Part::Worker => return core.own.shared.workers.crash_one(),
        Part::Process => None,
    };
    let crash: Command = Box::new(|_| panic!("a test crashed this loop"));
    inbox.is_some_and(|inbox| inbox.put(Message::Command(crash)).is_ok())
}
