//! The state of a WebSocket that is not its protocol's.

use crate::deflate::Window;
use crate::frame::{self, Opcode};
use crate::partial::Partial;
use crate::settings::Times;
use crate::{Close, close};
use sockdrawer::{Context, Side};
use std::time::{Duration, Instant};

/// The state of a connection that is not its protocol's. Small, because it is kept for each idle one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) side: Side,
    /// Looks in a row at which nothing had come since the one before.
    pub(crate) silent: u8,
    pub(crate) is_pinged: bool,
    pub(crate) is_paused: bool,
    pub(crate) has_job: bool,
    pub(crate) close_sent: bool,
    /// There was room for output since the last look.
    pub(crate) had_room: bool,
    /// The input that is left waits for the timer, which is due at once.
    pub(crate) rests: bool,
    /// Compression was agreed on.
    pub(crate) deflates: Option<Window>,
    /// The next time at which the connection itself has something to do: a ping, the end of a wait.
    pub(crate) due: Option<Instant>,
    extra: Option<Box<Extra>>,
}

/// State that few connections have.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Extra {
    /// The protocol's timer.
    pub(crate) timer: Option<Instant>,
    /// A message of which a part has come.
    pub(crate) partial: Option<Partial>,
    /// The peer's close frame, or none, once the end is certain.
    pub(crate) closed: Option<Close>,
    /// Until the connection was told that it goes on here: the times left to what is due, and to the timer.
    pub(crate) left: Option<[Option<Duration>; 2]>,
    /// Bytes of output that were unsent at the last look.
    unsent: usize,
}

impl Link {
    pub(crate) fn new(side: Side) -> Link {
        Link {
            side,
            silent: 0,
            is_pinged: false,
            is_paused: false,
            has_job: false,
            close_sent: false,
            had_room: false,
            rests: false,
            deflates: None,
            due: None,
            extra: None,
        }
    }

    /// Returns whether no message may be given to the protocol now.
    pub(crate) fn is_held(&self) -> bool {
        self.is_paused || self.has_job
    }

    /// Has the input that is left wait for the next turn of the loop, in which other connections have theirs.
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        self.rests = true;
        cx.pause();
        self.follow(cx);
    }

    /// Ends the rest, of a connection that moved meanwhile, too: its input stays paused where the protocol said so.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        self.rests = false;
        if !self.is_paused {
            cx.resume();
        }
    }

    /// Returns whether the peer has taken some of the output that was unsent at the last look, where so much is unsent at this one.
    pub(crate) fn is_taking(&mut self, unsent: usize) -> bool {
        let before = self.take(|extra| Some(std::mem::take(&mut extra.unsent))).unwrap_or(0);
        if unsent > 0 {
            self.extra_mut().unsent = unsent;
        }
        std::mem::take(&mut self.had_room) || unsent < before
    }

    pub(crate) fn extra(&self) -> Option<&Extra> {
        self.extra.as_deref()
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Takes something rare out, unless there is nothing.
    pub(crate) fn take<T>(&mut self, take: impl FnOnce(&mut Extra) -> Option<T>) -> Option<T> {
        let extra = self.extra.as_mut()?;
        let taken = take(extra);
        if **extra == Extra::default() {
            self.extra = None;
        }
        taken
    }

    pub(crate) fn timer(&self) -> Option<Instant> {
        self.extra().and_then(|extra| extra.timer)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.extra().is_some_and(|extra| extra.closed.is_some())
    }

    /// Sets the connection's one timer to the nearer of the two, or has it fire at once after a rest.
    pub(crate) fn follow(&self, cx: &mut Context<'_>) {
        let rest = self.rests.then(|| cx.now());
        match rest.into_iter().chain(self.due).chain(self.timer()).min() {
            Some(at) => cx.set_timer_at(at),
            None => cx.clear_timer(),
        }
    }

    /// Sets the next time at which something is to be done.
    pub(crate) fn wait(&mut self, time: Duration, cx: &mut Context<'_>) {
        self.due = cx.now().checked_add(time);
        self.follow(cx);
    }

    /// Sends a close frame, once, and waits for the peer's.
    pub(crate) fn close(&mut self, code: u16, reason: &str, times: &Times, cx: &mut Context<'_>) {
        if std::mem::replace(&mut self.close_sent, true) {
            return;
        }
        frame::write(Opcode::Close, &close::payload(code, reason), self.side, cx.out());
        self.wait(times.close_within, cx);
    }
}
