//! The client of `acks`: whatever the server sends, each ack is taken for what it says or the connection fails, and what is written
//! is a stream of messages without a gap.

use super::Script;
use super::acks::{PATTERNS, Reference};
use sockdrawer::Closed;
use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer_catalog::Budget;
use sockdrawer_catalog::acks::{AckPattern, Client, Options};
use sockdrawer_catalog::meter::{End, Meter, Phase};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(20);
/// Bounds that a few messages reach, so that the server's not reading holds the client back.
const WATER: Bounds = Bounds { max_partial: 12, high_water: 100, low_water: 50, inbox: 4 };

#[derive(Default)]
struct Book {
    acknowledged: u64,
    written: u64,
    unacknowledged: u64,
    acks: u64,
    failed: Vec<Phase>,
    ends: Vec<End>,
}

impl Meter for Book {
    fn connected(&mut self, _took: Duration) {}
    fn operation(&mut self, _scheduled: Instant, _sent: Instant, _now: Instant) {
        self.acknowledged += 1;
    }
    fn written(&mut self, messages: u64, _bytes: u64) {
        self.written += messages;
    }
    fn acks(&mut self, acks: u64) {
        self.acks += acks;
    }
    fn unacknowledged(&mut self, messages: u64) {
        self.unacknowledged += messages;
    }
    fn failed(&mut self, phase: Phase, _errno: Option<i32>) {
        self.failed.push(phase);
    }
    fn closed(&mut self, end: End) {
        self.ends.push(end);
    }
}

/// Acks that a client may take for right, one by one.
#[derive(Default)]
struct Acknowledged {
    kept: Vec<u8>,
    messages: u64,
    acks: u64,
    wrong: bool,
}

impl Acknowledged {
    /// Receives `bytes` in one read, when `written` messages were written.
    fn receive(&mut self, pattern: AckPattern, bytes: &[u8], written: u64) {
        let width = if pattern == AckPattern::Reply { 8 } else { 12 };
        self.kept.extend_from_slice(bytes);
        while self.kept.len() >= width && !self.wrong {
            let id = u64::from_le_bytes(self.kept[..8].try_into().expect("eight bytes"));
            let skipped = self.kept[8..width].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            // The formula of the format, where a wrong id cannot overflow.
            if id >= written || u128::from(self.messages) + u128::from(skipped) != u128::from(id) {
                self.wrong = true;
            } else {
                (self.messages, self.acks) = (id + 1, self.acks + 1);
                self.kept.drain(..width);
            }
        }
        self.wrong |= self.messages == written && !self.kept.is_empty();
    }
}

struct Pair {
    options: Options,
    connection: Driver<Client<fn() -> Book>>,
    acknowledged: Acknowledged,
    /// Reads what the client writes.
    server: Reference,
    finished: bool,
    draining: bool,
    blocked: bool,
}

impl Pair {
    fn new(choices: u8) -> Pair {
        let pattern = PATTERNS[usize::from(choices) % PATTERNS.len()];
        let interval = if choices & 32 == 0 { Duration::ZERO } else { Duration::from_millis(1) };
        let budget = if choices & 64 == 0 { Budget::Unlimited } else { Budget::Each(40) };
        let (batch, window) = if choices & 128 == 0 { (1, 8) } else { (3, 10) };
        let options = Options { pattern, size: 5, batch, window, interval, timeout: TIMEOUT, budget, seed: 0 };
        let client = Client::new(options.clone(), Book::default as fn() -> Book);
        let connection = Driver::open_with(client, peer(sockdrawer::Side::Connected, Duration::ZERO), WATER);
        let server = Reference::new(pattern);
        let (acknowledged, finished, draining) = (Acknowledged::default(), false, false);
        let mut pair = Pair { options, connection, acknowledged, server, finished, draining, blocked: false };
        pair.settle();
        pair
    }

    fn book(&mut self) -> &mut Book {
        self.connection.local().expect("the client's meter is a Book")
    }

    /// Returns true where more may come.
    fn goes_on(&self) -> bool {
        self.connection.closed().is_none() && !self.finished
    }

    fn step(&mut self, script: &mut Script<'_>, what: u8, count: usize) {
        match what {
            0 => self.receive(script.take(count)),
            // Sends what a server would send for `count` messages, in one ack or in several, whole or split.
            1 => self.acknowledge(&[count], usize::MAX),
            2 => self.acknowledge(&[1, count, 2], 7),
            3 => self.acknowledge(&[count / 2, 1], usize::MAX),
            4 => self.connection.advance(Duration::from_millis(count as u64 / 2)),
            5 => {
                self.blocked = count % 2 == 1;
                self.connection.block_output(self.blocked);
            }
            6 => drop(self.connection.deliver_notes()),
            _ if count < 4 => {
                self.draining = true;
                self.connection.drain();
            }
            _ if count < 8 => {
                self.finished = true;
                self.connection.finish();
            }
            _ => self.connection.read_backlog(count),
        }
        self.settle();
    }

    /// Sends acks for these counts of messages, as far as they were written and are not acknowledged; `read` bytes in a read.
    fn acknowledge(&mut self, counts: &[usize], read: usize) {
        let (mut next, written) = (self.acknowledged.messages, self.book().written);
        let mut acks = Vec::new();
        for count in counts {
            let end = written.min(next + *count as u64);
            if self.options.pattern == AckPattern::Reply {
                (next..end).for_each(|id| acks.extend(id.to_le_bytes()));
            } else if end > next {
                acks.extend((end - 1).to_le_bytes());
                acks.extend((end - next - 1).to_le_bytes()[..4].iter());
            }
            next = end;
        }
        acks.chunks(read).for_each(|bytes| self.receive(bytes));
    }

    fn receive(&mut self, bytes: &[u8]) {
        if !self.goes_on() || bytes.is_empty() {
            return;
        }
        let written = self.book().written;
        self.acknowledged.receive(self.options.pattern, bytes, written);
        self.connection.receive(bytes);
        self.settle();
    }

    fn settle(&mut self) {
        let sent = self.connection.sent();
        self.server.receive(&sent);
        let closed = self.connection.closed();
        let (messages, acks, wrong) = (self.acknowledged.messages, self.acknowledged.acks, self.acknowledged.wrong);
        let (window, blocked) = (self.options.window, self.blocked);
        let whole = self.server.ids.len() as u64;
        assert!(self.server.ids.iter().copied().eq(0..whole), "ids count from 0: {:?}", self.server.ids);
        let book = self.book();
        assert_eq!((book.acknowledged, book.acks), (messages, acks), "what acks say");
        assert!(book.written - messages <= window, "{} written, {messages} acknowledged", book.written);
        assert!(whole <= book.written && (blocked || closed.is_some() || whole == book.written));
        if wrong {
            assert_eq!((closed, &book.failed[..]), (Some(Closed::Aborted), &[Phase::Verify][..]));
        } else {
            assert!(!book.failed.contains(&Phase::Verify), "all was right");
        }
        if closed.is_some() {
            assert_eq!((book.ends.len(), book.unacknowledged), (1, book.written - messages), "what was written is accounted for");
        }
    }
}

/// Checks an input to the end of the connection, which comes in time whatever the server does.
pub(crate) fn check(input: &[u8]) {
    let Some(mut script) = Script::new(input) else { return };
    let mut pair = Pair::new(script.choices);
    for (what, count) in script.steps() {
        if !pair.goes_on() {
            break;
        }
        pair.step(&mut script, what, count);
    }
    pair.receive(script.stream);
    pair.blocked = false;
    pair.connection.block_output(false);
    pair.settle();
    if pair.connection.closed().is_none() {
        pair.connection.drain();
        pair.connection.advance(TIMEOUT);
        pair.settle();
        assert!(pair.connection.closed().is_some(), "a server that says nothing ends it after the time-out");
    }
    let (messages, book) = (pair.acknowledged.messages, pair.book());
    let is_clean = book.failed.is_empty() && messages == book.written;
    assert!(book.ends == [End::Failed] || book.ends == [End::Lost] || is_clean, "{:?} {:?}", book.ends, book.failed);
}
