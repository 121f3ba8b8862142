//! Deadlines of drains, purges and shutdowns: a loop keeps those of its own connections, so that nothing that is slow elsewhere stands between
//! a deadline and its keeping.

use super::EventLoop;
use super::connections::ending::CountedEnd;
use super::endings::Act;
use std::sync::Arc;
use std::time::Instant;

/// Joins the shutdown where the pool ends: every connection of this loop is asked to end.
pub(crate) fn join_shutdown(event_loop: &mut EventLoop) {
    let Some(endings) = event_loop.shared().ending.get().cloned() else { return };
    let own_process = event_loop.connections.streams.page.is_some();
    if event_loop.connections.deadlines.look(&endings, own_process) {
        CountedEnd::of(&mut event_loop.connections, &endings).drain_all();
    }
}

/// Does what is due.
pub(crate) fn keep_deadlines(event_loop: &mut EventLoop) {
    join_shutdown(event_loop);
    let now = Instant::now();
    while let Some((endings, act)) = event_loop.connections.deadlines.take_due(now) {
        let ends_all = event_loop.shared().ending.get().is_some_and(|ending| Arc::ptr_eq(ending, &endings));
        if act == Some(Act::Cut) && ends_all {
            // A permit that goes back now is not given again: no loop may accept while another one ends its connections.
            event_loop.shared().limiter.set_limit(0);
            event_loop.cut_queues(&endings);
            CountedEnd::of(&mut event_loop.connections, &endings).drain_all();
        }
        let mut counted = CountedEnd::of(&mut event_loop.connections, &endings);
        match act {
            None => counted.drain_all(),
            Some(Act::LastWords) => counted.last_words(),
            Some(Act::Cut) => counted.cut(),
            Some(Act::Close) => counted.close_cut(),
        }
    }
}
