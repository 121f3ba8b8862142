//! A connection that is one operation: something is said, an answer and then the end of the stream are expected.

use crate::meter::{End, Meter, Phase, TIMED_OUT, ended, meter};
use sockdrawer::{Closed, Context, Input, Peer, Protocol, Step};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// What is said and what is expected.
pub trait Talk: Send + 'static {
    /// Says it.
    fn speak(&self, cx: &mut Context<'_>) -> Step;

    /// How many bytes the answer has.
    fn expects(&self) -> u64;

    /// Takes a part of the answer, from this byte on. False: something else came.
    fn hear<M: Meter>(&self, from: u64, input: &mut Input<'_>, cx: &mut Context<'_>) -> bool;

    /// Whether the end after the answer has a time of its own.
    const END_APART: bool;
}

/// One such connection.
#[derive(Debug)]
pub struct Visit<M, T> {
    talk: T,
    timeout: Duration,
    connect_time: Duration,
    sent: Option<Instant>,
    received: u64,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter, T: Talk> Visit<M, T> {
    pub(crate) fn new(talk: T, timeout: Duration, peer: &Peer) -> Visit<M, T> {
        Visit { talk, timeout, connect_time: peer.connect_time(), sent: None, received: 0, end: None, meter: PhantomData }
    }

    fn waiting_for(&self) -> Phase {
        if self.received == self.talk.expects() { Phase::End } else { Phase::Answer }
    }

    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.end = Some(end);
        if end == End::Lost { Step::Close } else { Step::Abort }
    }
}

impl<M: Meter, T: Talk> Protocol for Visit<M, T> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).connected(self.connect_time);
        self.sent = Some(cx.now());
        cx.set_timer(self.timeout);
        self.talk.speak(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let Some(sent) = self.sent.filter(|_| self.received == 0) {
            let now = cx.now();
            meter::<M>(cx).first_byte(now - sent);
        }
        let count = input.bytes().len() as u64;
        if !self.talk.hear::<M>(self.received, input, cx) {
            return self.fail(Phase::Verify, None, End::Failed, cx);
        }
        input.take_all();
        self.received += count;
        if T::END_APART && self.waiting_for() == Phase::End {
            cx.set_timer(self.timeout);
        }
        Step::Continue
    }

    fn finished(&mut self, cx: &mut Context<'_>) -> Step {
        let (Phase::End, Some(sent)) = (self.waiting_for(), self.sent) else {
            return self.fail(Phase::Answer, None, End::Lost, cx);
        };
        let (now, scheduled) = (cx.now(), sent.checked_sub(self.connect_time).unwrap_or(sent));
        meter::<M>(cx).operation(scheduled, sent, now);
        self.end = Some(End::Complete);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.fail(self.waiting_for(), TIMED_OUT, End::Failed, cx)
    }

    /// It ends by itself, with its answer.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        ended::<M>(cx, why, self.end, self.waiting_for());
    }
}
