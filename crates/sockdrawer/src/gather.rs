//! Asking several at once and waiting for their answers: loops, processes, the process before this one.

use crate::clock::deadline;
use crate::sync::mpsc;
use std::time::{Duration, Instant};

/// The way back of one answer. Dropped without one it says that none comes: what was asked is gone.
pub(crate) struct ReplyTo<T> {
    index: usize,
    to: Option<mpsc::Sender<(usize, Option<T>)>>,
}

impl<T> ReplyTo<T> {
    /// Gives the answer. The caller may have stopped waiting for it.
    pub(crate) fn answer(mut self, answer: T) {
        self.send(Some(answer));
    }

    fn send(&mut self, answer: Option<T>) {
        if let Some(to) = self.to.take() {
            let _ = to.send((self.index, answer));
        }
    }
}

impl<T> Drop for ReplyTo<T> {
    fn drop(&mut self) {
        self.send(None);
    }
}

/// Answers as they come, each with the index of what gave it; None is that of what is gone. What is late gives none.
pub(crate) struct Answers<T> {
    until: Option<Instant>,
    waits_for: usize,
    received: mpsc::Receiver<(usize, Option<T>)>,
}

impl<T> Answers<T> {
    /// Sets the time to wait, from now on, when all have been asked.
    pub(crate) fn within(self, time: Duration) -> Answers<T> {
        Answers { until: Some(deadline(Instant::now(), time)), ..self }
    }

    /// Waits for all answers that are still to come, which are dropped. False where one is late.
    pub(crate) fn rest(&mut self) -> bool {
        self.by_ref().for_each(drop);
        self.waits_for == 0
    }

    /// Waits for them until then.
    pub(crate) fn rest_by(&mut self, until: Instant) -> bool {
        self.until = Some(until);
        self.rest()
    }

    /// Waits for the next answer, however long it takes. None: it is gone, or all have answered.
    pub(crate) fn surely(&mut self) -> Option<T> {
        self.until = None;
        self.next()?.1
    }
}

impl<T> Iterator for Answers<T> {
    type Item = (usize, Option<T>);

    fn next(&mut self) -> Option<(usize, Option<T>)> {
        if self.waits_for == 0 {
            return None;
        }
        let heard = match self.until {
            Some(until) => self.received.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
            None => self.received.recv().ok(),
        }?;
        self.waits_for -= 1;
        Some(heard)
    }
}

/// Asks each of these, and returns their answers as they come until then; without a time, until all have answered or are gone.
pub(crate) fn gather<M, T>(
    asked: impl IntoIterator<Item = M>,
    until: impl Into<Option<Instant>>,
    mut ask: impl FnMut(M, ReplyTo<T>),
) -> Answers<T> {
    let (to, received) = mpsc::channel();
    let mut waits_for = 0;
    for one in asked {
        let reply = ReplyTo { index: waits_for, to: Some(to.clone()) };
        waits_for += 1;
        ask(one, reply);
    }
    Answers { until: until.into(), waits_for, received }
}

/// Asks one. None: it is gone, or late.
pub(crate) fn ask<T>(until: impl Into<Option<Instant>>, ask: impl FnOnce(ReplyTo<T>)) -> Option<T> {
    gather([ask], until, |ask, reply| ask(reply)).next()?.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_any_order_and_what_is_gone_or_late_is_told_apart() {
        let mut kept = Vec::new();
        let mut answers = gather(0..4, Instant::now() + Duration::from_secs(20), |index, reply| match index {
            0 => kept.push(reply),
            1 => drop(reply),
            other => reply.answer(other * 10),
        });
        assert_eq!(answers.by_ref().take(3).collect::<Vec<_>>(), [(1, None), (2, Some(20)), (3, Some(30))]);
        assert!(!answers.rest_by(Instant::now()), "the first is late");
        kept.pop().expect("the first").answer(7);
        assert_eq!(answers.surely(), Some(7));
        assert!(answers.rest_by(Instant::now()) && answers.next().is_none());
    }

    #[test]
    fn one_that_is_gone_is_waited_for_no_longer() {
        assert_eq!(ask(None, |reply| reply.answer(1)), Some(1));
        assert_eq!(ask::<u8>(None, drop), None);
        assert_eq!(gather(0..0, None, |_: u8, _: ReplyTo<u8>| ()).next(), None);
    }
}
