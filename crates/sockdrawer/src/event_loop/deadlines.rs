//! Deadlines of drains, purges and shutdowns: a loop keeps those of its own connections, so that nothing that is slow elsewhere stands between
//! a deadline and its keeping.

use super::EventLoop;
use super::endings::{CUT_WITHIN, Endings};
use crate::clock::deadline;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks of a loop for connections that came in since its pool began to end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Next act of a drain, purge or shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// The pool ends: connections that came in meanwhile are asked, too.
    Look,
    /// Protocols that wait for something are told.
    LastWords,
    /// Time is up.
    Cut,
    /// Sockets of cut connections are closed.
    Close,
}

pub(super) struct Due {
    endings: Arc<Endings>,
    next: Act,
    /// The next look; None: the pool does not end by it.
    look: Option<Instant>,
}

impl Due {
    /// Returns the next act and when it is due. `own_process`: the connection has one.
    fn next(&self, own_process: bool) -> (Option<Instant>, Act) {
        let until = self.endings.until;
        let at = match self.next {
            Act::Look => self.look,
            Act::LastWords => Some(self.endings.last_words),
            Act::Cut => Some(until),
            // To let go of what the kernel has for many processes takes all CPUs for a while: by then the parent has said what came of them.
            Act::Close if own_process => Some(deadline(until, 2 * CUT_WITHIN)),
            Act::Close => Some(until),
        };
        match self.look {
            Some(look) if look < until && Some(look) < at => (Some(look), Act::Look),
            _ => (at, self.next),
        }
    }
}

/// The drains, purges and shutdowns that count connections of this loop, until the time of each is over.
#[derive(Default)]
pub(super) struct Deadlines(Vec<Due>);

impl Deadlines {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks from now on for connections that came in since the pool began to end; false where it does already.
    fn look(&mut self, endings: &Arc<Endings>) -> bool {
        let kept = self.keep(endings);
        let is_first = kept.look.is_none();
        kept.look.get_or_insert_with(|| Instant::now() + LOOK_AGAIN);
        is_first
    }

    /// Keeps the deadline of these from now on.
    pub(super) fn keep(&mut self, endings: &Arc<Endings>) -> &mut Due {
        let known = self.0.iter().position(|kept| Arc::ptr_eq(&kept.endings, endings));
        let at = known.unwrap_or_else(|| {
            let is_over = |endings: &Endings| endings.are_over() && endings.are_closed();
            self.0.retain(|kept| kept.look.is_some() || !is_over(&kept.endings));
            self.0.push(Due { endings: endings.clone(), next: Act::LastWords, look: None });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    pub(super) fn next(&self, own_process: bool) -> Option<Instant> {
        self.0.iter().filter_map(|kept| kept.next(own_process).0).min()
    }

    /// Takes an act that is due. It is not due again, but for looks.
    fn take_due(&mut self, now: Instant, own_process: bool) -> Option<(Arc<Endings>, Act)> {
        let at = self.0.iter().position(|kept| kept.next(own_process).0.is_some_and(|at| at <= now))?;
        let (_, act) = self.0[at].next(own_process);
        let kept = &mut self.0[at];
        match act {
            Act::Look => kept.look = Some(now + LOOK_AGAIN),
            Act::LastWords => kept.next = Act::Cut,
            Act::Cut => kept.next = Act::Close,
            // A connection that comes in even later is cut at once.
            Act::Close if kept.look.is_some() => (kept.next, kept.look) = (Act::Look, Some(now + LOOK_AGAIN)),
            Act::Close => return Some((self.0.swap_remove(at).endings, act)),
        }
        Some((kept.endings.clone(), act))
    }
}

/// Joins the shutdown where the pool ends: every connection of this loop is asked to end.
pub(crate) fn join_shutdown(event_loop: &mut EventLoop) {
    let Some(endings) = event_loop.shared().ending.get().cloned() else { return };
    if event_loop.connections.deadlines.look(&endings) {
        event_loop.connections.drain_all_counted(&endings);
    }
}

/// Does what is due.
pub(crate) fn keep_deadlines(event_loop: &mut EventLoop) {
    join_shutdown(event_loop);
    let own_process = event_loop.connections.page.is_some();
    let now = Instant::now();
    while let Some((endings, act)) = event_loop.connections.deadlines.take_due(now, own_process) {
        match act {
            Act::Look => event_loop.connections.drain_all_counted(&endings),
            Act::LastWords => event_loop.connections.last_words(&endings),
            Act::Cut => {
                if event_loop.shared().ending.get().is_some_and(|ending| Arc::ptr_eq(ending, &endings)) {
                    // A permit that goes back now is not given again: no loop may accept while another one ends its connections.
                    event_loop.shared().limiter.set_limit(0);
                    event_loop.cut_queues(&endings);
                    event_loop.connections.drain_all_counted(&endings);
                }
                event_loop.connections.cut_counted(&endings);
            }
            Act::Close => event_loop.connections.close_cut(),
        }
    }
}
