//! The drains, purges and shutdowns of which a loop counts connections, and what is due of each.

use crate::event_loop::endings::{Act, CUT_WITHIN, Endings, Ladder};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks of a loop for connections that came in since its pool began to end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The acts to come of a drain, purge or shutdown.
pub(super) struct Due {
    endings: Arc<Endings>,
    ladder: Ladder,
    /// The next look for connections that came in since the pool began to end: they are asked, too. None: the pool does not end by it.
    look: Option<Instant>,
}

impl Due {
    /// Returns when the next thing is to be done: an act, or a look (None). Looks end with the deadline, and come again when all acts are done: a
    /// connection that comes in even later is cut at once.
    fn next(&self) -> Option<(Instant, Option<Act>)> {
        let act = self.ladder.next();
        let is_first = |look: &Instant| act.is_none_or(|(at, _)| *look < at && *look < self.ladder.until);
        self.look.filter(is_first).map(|look| (look, None)).or(act.map(|(at, act)| (at, Some(act))))
    }
}

/// The drains, purges and shutdowns that count connections of this loop, until the time of each is over.
#[derive(Default)]
pub(in crate::event_loop) struct Deadlines(Vec<Due>);

impl Deadlines {
    pub(in crate::event_loop) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks from now on for connections that came in since the pool began to end; false where it does already.
    pub(in crate::event_loop) fn look(&mut self, endings: &Arc<Endings>, own_process: bool) -> bool {
        let kept = self.keep(endings, own_process);
        let is_first = kept.look.is_none();
        kept.look.get_or_insert_with(|| Instant::now() + LOOK_AGAIN);
        is_first
    }

    /// Keeps the deadline of these from now on. `own_process`: the connection has one.
    pub(super) fn keep(&mut self, endings: &Arc<Endings>, own_process: bool) -> &mut Due {
        let known = self.0.iter().position(|kept| Arc::ptr_eq(&kept.endings, endings));
        let at = known.unwrap_or_else(|| {
            let is_over = |endings: &Endings| endings.are_over() && endings.are_closed();
            self.0.retain(|kept| kept.look.is_some() || !is_over(&kept.endings));
            // To let go of what the kernel has for many processes takes all CPUs for a while: by then the parent has said what came of them.
            let close_after = if own_process { 2 * CUT_WITHIN } else { Duration::ZERO };
            self.0.push(Due { endings: endings.clone(), ladder: endings.ladder(close_after), look: None });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    pub(in crate::event_loop) fn next(&self) -> Option<Instant> {
        self.0.iter().filter_map(|kept| Some(kept.next()?.0)).min()
    }

    /// Takes an act that is due, or a look (None). What has neither left is forgotten.
    pub(in crate::event_loop) fn take_due(&mut self, now: Instant) -> Option<(Arc<Endings>, Option<Act>)> {
        let at = self.0.iter().position(|kept| kept.next().is_some_and(|(at, _)| at <= now))?;
        let kept = &mut self.0[at];
        let (_, act) = kept.next()?;
        if act.is_some() {
            kept.ladder.take(now);
        }
        if matches!(act, None | Some(Act::Close)) {
            kept.look = kept.look.map(|_| now + LOOK_AGAIN);
        }
        let endings = kept.endings.clone();
        if kept.next().is_none() {
            self.0.swap_remove(at);
        }
        Some((endings, act))
    }
}
