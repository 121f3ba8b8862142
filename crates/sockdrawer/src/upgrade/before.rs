//! The process before this one, while it still has connections: it is told what becomes of this process, and asked to do to what stayed there
//! what is done to connections here.

use super::talk::{Room, Talk};
use crate::clock::deadline;
use crate::error::Error;
use crate::gather::{Answers, ReplyTo, gather};
use crate::ipc::messages::{Said, ShutDown};
use crate::ipc::operations::{Answered, Asked};
use crate::operation::{Drain, Op, Outcome, Selector};
use crate::pool::behind::{Answer, Behind};
use crate::protocol::ConnectionId;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use crate::sys::{Errno, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time that the process before this one may wait for its own loops or helpers, a drain or purge not counted.
const ANSWERS_WITHIN: Duration = Duration::from_secs(7);
/// Time by which that is longer for each process behind it, which is waited for there in turn.
const LONGER: Duration = Duration::from_secs(1);
/// Maximum time to wait for the number of connections meant. It is only the base of shares: without an answer there are none.
const COUNTS_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time that an operation waits for connections on their way. They are for a few milliseconds, for longer only if the other process is
/// stopped.
const CROSS_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time for which the end of a pool is said again where it is not taken.
const HEARS_WITHIN: Duration = Duration::from_millis(500);
/// Maximum number of notes that wait for connections on their way.
const MAX_NOTES: usize = 1024;

/// The process before this one.
#[derive(Default)]
pub(super) struct Before {
    line: Mutex<Option<Standing>>,
    settled: AtomicBool,
    /// Number of processes before this one that may have connections, that one included.
    pub(super) count: AtomicU32,
    /// Locked while addresses of that process are given up, and in a conversation with a successor, which was told that they are there.
    pub(super) giving_up: Mutex<()>,
    crossing: Mutex<Crossing>,
    /// The condition that no connection is on its way any more.
    crossed: Condvar,
}

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Before")
    }
}

/// The state of the conversation while it stands.
struct Standing {
    talk: Talk,
    /// The number of the next question.
    next: u64,
    waiting: HashMap<u64, ReplyTo<Outcome>>,
}

/// Connections on their way from there to here, and operations: one waits for the other, or an operation would reach a connection in both
/// processes or in none.
#[derive(Default)]
struct Crossing {
    /// Connections have been restored here, and do not have their places yet.
    under_way: bool,
    /// The slice that the other process was told of, and may let go of, where connections move slice by slice.
    let_go: Option<Slice>,
    /// Operations that wait for an answer.
    asking: usize,
}

/// Connections of a pool that are in neither process.
struct Slice {
    pool: String,
    these: Selector,
    /// Notes that came meanwhile: for what stayed, and for these.
    notes: Vec<(Op, Selector)>,
}

impl Before {
    pub(super) fn speak_by(&self, talk: Talk) {
        *lock(&self.line) = Some(Standing { talk, next: 0, waiting: HashMap::new() });
    }

    /// Ends the conversation: no answer is waited for any more.
    pub(super) fn fall_silent(&self) {
        *lock(&self.line) = None;
    }

    fn talk(&self) -> Option<Talk> {
        lock(&self.line).as_ref().map(|line| line.talk.clone())
    }

    /// Returns true where it takes nothing back any more, or there is none.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(SeqCst) || self.talk().is_none()
    }

    /// Tells it that this process stands. Only then may this process change what the other one would take back.
    pub(super) fn settle(&self) {
        if let (false, Some(talk)) = (self.settled.load(SeqCst), self.talk()) {
            // A process that is gone need not know.
            let _ = talk.say_surely(&Said::Settled);
        }
        self.settled.store(true, SeqCst);
    }

    /// Tells it so, if that can be said now. Returns whether it has been told, or is gone.
    pub(super) fn settle_now(&self) -> bool {
        if let (false, Some(talk)) = (self.settled.load(SeqCst), self.talk())
            && !matches!(talk.say_now(Said::Settled), Ok(()) | Err(Errno::PIPE))
        {
            return false;
        }
        self.settled.store(true, SeqCst);
        true
    }

    /// Begins the crossing: connections have been restored here.
    pub(super) fn begin_crossing(&self) {
        lock(&self.crossing).under_way = true;
    }

    /// Says so to the other process, which lets go of them then, unless an operation is under way. Returns whether it was said.
    pub(super) fn cross(&self, let_go: Option<(&str, &[u64])>, say: impl FnOnce() -> bool) -> bool {
        let mut crossing = lock(&self.crossing);
        let said = crossing.asking == 0 && say();
        if let Some((pool, ids)) = let_go.filter(|_| said) {
            let these = ids.iter().map(|id| Selector::Id(ConnectionId(*id))).collect();
            crossing.let_go = Some(Slice { pool: pool.to_owned(), these: Selector::Any(these), notes: Vec::new() });
        }
        said
    }

    /// Ends the crossing: the connections that this process was given have their places. `bring` brings them the notes that came meanwhile.
    pub(super) fn end_crossing(&self, bring: impl Fn(Op, &Selector)) {
        let mut crossing = lock(&self.crossing);
        crossing.under_way = false;
        if let Some(Slice { pool, these, notes }) = crossing.let_go.take() {
            for (note, selector) in notes {
                // Where there is no room for it, nothing is to be done about that any more.
                let _ = self.say_note(&pool, &note, &selector);
                bring(note, &selector.and(these.clone()));
            }
        }
        drop(crossing);
        self.crossed.notify_all();
    }

    fn say_note(&self, pool: &str, note: &Op, selector: &Selector) -> Result<()> {
        let Some(talk) = self.talk() else { return Ok(()) };
        let asked = Asked::of(pool, note, selector).ok_or(Errno::TOOBIG)?;
        talk.say_now(Said::Asked(asked))
    }

    /// Waits until no connection is on its way, and lets none come over until that is let go again.
    fn hold(&self) {
        let (mut crossing, until) = (lock(&self.crossing), Instant::now() + CROSS_WITHIN);
        while crossing.under_way
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            crossing = wait_timeout(&self.crossed, crossing, left);
        }
        crossing.asking += 1;
    }

    fn ask(self: &Arc<Before>, asked: Option<Asked>, within: Duration) -> Question {
        self.hold();
        let mut number = 0;
        let answer = gather([asked], deadline(Instant::now(), within), |asked, reply| {
            let mut line = lock(&self.line);
            let Some(Standing { talk, next, waiting }) = &mut *line else { return };
            *next += 1;
            number = *next;
            waiting.insert(number, reply);
            let talk = talk.clone();
            drop(line);
            let numbered = asked.map(|asked| asked.numbered(number)).ok_or(Errno::TOOBIG);
            if let Err(errno) = numbered.and_then(|asked| talk.say(Said::Asked(asked), &[]))
                && let Some(reply) = self.waits_no_more(number)
                && !is_gone(errno)
            {
                reply.answer(Outcome::silent());
            }
        });
        Question { before: self.clone(), holds: true, number, answer }
    }

    /// Returns the way back of the answer to a question.
    fn waits_no_more(&self, number: u64) -> Option<ReplyTo<Outcome>> {
        lock(&self.line).as_mut().and_then(|line| line.waiting.remove(&number))
    }

    /// Gives an answer to what waits for it.
    pub(super) fn answered(&self, answered: Answered) {
        if let Some(reply) = self.waits_no_more(answered.number) {
            reply.answer(answered.believed());
        }
    }
}

/// An operation whose answer is waited for.
struct Question {
    before: Arc<Before>,
    holds: bool,
    number: u64,
    answer: Answers<Outcome>,
}

impl Question {
    /// Lets connections come over.
    fn let_cross(&mut self) {
        if std::mem::take(&mut self.holds) {
            lock(&self.before.crossing).asking -= 1;
        }
    }

    fn answer(&mut self) -> Outcome {
        match self.answer.next() {
            Some((_, Some(outcome))) => outcome,
            // The other process is gone, and its connections with it, or has none.
            Some((_, None)) => Outcome::default(),
            None => Outcome::silent(),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        drop(self.before.waits_no_more(self.number));
        self.let_cross();
    }
}

/// Connections of one pool that stayed there.
pub(super) struct Stayed {
    pub(super) pool: String,
    pub(super) before: Arc<Before>,
    /// Number of its connections, and those of processes before it.
    pub(super) connections: AtomicU64,
}

impl Behind for Stayed {
    fn connections(&self) -> u64 {
        self.connections.load(SeqCst)
    }

    /// Shuts down what the other process has of the pool, which it does not take back.
    fn shut_down(&self, how: Drain) {
        self.before.settle();
        if let Some(talk) = self.before.talk() {
            let within = u64::try_from(how.deadline.as_millis()).unwrap_or(u64::MAX);
            let said = Said::ShutDown(ShutDown { pool: self.pool.clone(), within });
            // A process that takes nothing, or is gone, is waited for no longer.
            let _ = talk.say_until(&said, &[], Room::Kept, Some(talk.now() + HEARS_WITHIN));
        }
    }

    fn ask(&self, op: &Op, selector: &Selector) -> Option<Answer> {
        if self.connections() == 0 {
            return None;
        }
        let within = match op {
            Op::Drain(Drain { deadline: within, .. }) | Op::Purge(within) => within.saturating_add(LONGER),
            Op::Count => COUNTS_WITHIN,
            _ => ANSWERS_WITHIN,
        };
        let within = within.saturating_add(LONGER * self.before.count.load(SeqCst).max(1));
        let mut question = self.before.ask(Asked::of(&self.pool, op, selector), within);
        if matches!(op, Op::Drain(_) | Op::Purge(_)) {
            // Others go on moving meanwhile: these may take any time.
            question.let_cross();
        }
        Some(Box::new(move || question.answer()))
    }

    fn note(
        &self,
        note: &Op,
        selector: &Selector,
        here: &mut dyn FnMut(&Selector) -> std::result::Result<Outcome, Error>,
    ) -> std::result::Result<Outcome, Error> {
        let mut crossing = lock(&self.before.crossing);
        let slice = crossing.let_go.as_mut().filter(|slice| slice.pool == self.pool);
        let Some(Slice { these, notes, .. }) = slice else {
            // First here: what is frozen there comes over with its note.
            let mut outcome = here(selector)?;
            if self.connections() > 0 {
                let said = self.before.say_note(&self.pool, note, selector);
                outcome.silent += usize::from(said.is_err_and(|errno| !is_gone(errno)));
            }
            return Ok(outcome);
        };
        // These connections may have their places by now, or not yet.
        let mut outcome = here(&selector.clone().and(!these.clone()))?;
        if notes.len() < MAX_NOTES {
            notes.push((note.clone(), selector.clone()));
        } else {
            outcome.silent += 1;
        }
        Ok(outcome)
    }
}

fn is_gone(errno: Errno) -> bool {
    errno == Errno::PIPE
}
