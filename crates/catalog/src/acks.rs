//! `acks`: a stream of messages, acknowledged after a pattern. Made to measure how many small messages a server can take in.
//!
//! A message is an 8-byte id, a 4-byte payload size and the payload. The size is big-endian for [`AckPattern::Reply`] and
//! little-endian for all others. An ack is the 8-byte id for `Reply`; for all others it is 12 bytes: the id of the last message
//! covered, and as a little-endian u32 how many it covers besides. Ids are the client's and come back as they are.
//!
//! Whatever the pattern: when the peer ends, the connection is drained, or the server closes it, everything that was received is
//! acknowledged first. A purge that comes within a message does not wait for the rest of it.
//!
//! [`Acks`] is the server, [`Acks::consuming`] the same with something done with payloads, [`two_reads`] the one that both are to be
//! compared with, and [`Client`] measures any of them.

mod client;
mod consume;
mod covering;
mod parse;
mod pattern;
mod two_reads;

pub use client::{Client, Options, Streaming};
pub use consume::{Consumer, Consuming, Ignore, Part};
pub use parse::MAX_PAYLOAD;
pub use pattern::{AckPattern, WrongPattern};
pub use two_reads::two_reads;

use crate::{WrongOptions, recipe};
use parse::{Parser, SizeOrder};
use sockdrawer::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step};
use std::time::Duration;

/// Maximum time that a message waits for its ack with `every`.
const EVERY_AT_LATEST: Duration = Duration::from_millis(5);
/// An ack's count has 32 bits. One read, at most a few hundred thousand messages, always fits below.
const COVERED_LIMIT: u32 = 1 << 31;

/// The server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// Pattern by which messages are acknowledged.
    pub pattern: AckPattern,
}

impl Acks {
    /// Name of its recipe.
    pub const NAME: &str = "acks";

    /// Creates the service from the options of its recipe: the pattern, as it is displayed.
    ///
    /// # Errors
    /// When they are no pattern.
    pub fn from_options(options: &[u8]) -> Result<Acks, WrongOptions> {
        let pattern = std::str::from_utf8(options).ok().and_then(|text| text.parse().ok());
        pattern.map(|pattern| Acks { pattern }).ok_or_else(|| WrongOptions::new(Acks::NAME, options))
    }
}

impl Service for Acks {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        Connection::new(self.pattern, Ignore)
    }

    /// Restores a connection. It cannot change between [`AckPattern::Reply`] and the others: its client writes sizes in another byte order.
    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Connection, CannotRestore> {
        let mut connection = self.open(peer);
        let order = connection.plan.size_order();
        if from.u64()? != order as u64 {
            return Err(CannotRestore::because("its client writes sizes in the other byte order"));
        }
        let mut number = || u32::try_from(from.u64()?).map_err(|_| CannotRestore::because("a saved number is too large"));
        (connection.unacked, connection.reads) = (number()?, number()?);
        (connection.parser.size, connection.parser.payload_left) = (number()?, number()?);
        (connection.armed, connection.ending) = (number()? != 0, number()? != 0);
        (connection.last, connection.parser.id) = (from.u64()?, from.u64()?);
        Ok(connection)
    }

    fn state(&self) -> State {
        State::of(Acks::NAME, 1)
    }

    fn needs_peer_address(&self) -> bool {
        false
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Acks::NAME, self.pattern.to_string())
    }
}

/// A pattern in 12 bytes, for each connection to carry: times in µs, up to 71 minutes.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Reply,
    Read,
    /// An ack when this number of messages waits.
    Every(u32),
    /// An ack when this number of reads was made, or this time has passed.
    Reads(u32, u32),
}

impl Plan {
    fn new(pattern: AckPattern) -> Plan {
        let micros = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        match pattern {
            AckPattern::Reply => Plan::Reply,
            AckPattern::Read => Plan::Read,
            AckPattern::Timer(after) => Plan::Reads(u32::MAX, micros(after)),
            AckPattern::Async { reads, after } => Plan::Reads(reads.max(1), micros(after)),
            AckPattern::Every(messages) => Plan::Every(messages.max(1)),
        }
    }

    fn size_order(self) -> SizeOrder {
        if let Plan::Reply = self { SizeOrder::Big } else { SizeOrder::Little }
    }

    /// Returns the maximum time that a message waits for its ack.
    fn at_latest(self) -> Duration {
        match self {
            Plan::Reply | Plan::Read => Duration::ZERO,
            Plan::Every(_) => EVERY_AT_LATEST,
            Plan::Reads(_, micros) => Duration::from_micros(micros.into()),
        }
    }
}

/// A connection of [`Acks`], or of [`Consuming`].
#[derive(Debug)]
pub struct Connection<C = Ignore> {
    plan: Plan,
    parser: Parser,
    consumer: C,
    /// The last message received whole.
    last: u64,
    /// Messages that wait for an ack, up to and with `last`.
    unacked: u32,
    /// Reads since the last ack.
    reads: u32,
    armed: bool,
    /// Asked to end within a message: ends with it.
    ending: bool,
}

impl<C: Consumer> Connection<C> {
    fn new(pattern: AckPattern, consumer: C) -> Connection<C> {
        let (plan, parser) = (Plan::new(pattern), Parser::default());
        Connection { plan, parser, consumer, last: 0, unacked: 0, reads: 0, armed: false, ending: false }
    }

    /// Acknowledges all that waits.
    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.unacked > 0 {
            cx.send(&ack(self.last, self.unacked));
        }
        (self.unacked, self.reads) = (0, 0);
    }

    /// Takes what there is of whole messages and payloads. Returns whether it went well and whether an ack left.
    fn take(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> (parse::ParsedAcks, bool) {
        // Copies, which the loop over messages can keep in registers.
        let (mut last, mut unacked, mut acked) = (self.last, self.unacked, false);
        let out = cx.out();
        let (order, consumer) = (self.plan.size_order(), &mut self.consumer);
        let parsed = match self.plan {
            Plan::Reply => self.parser.parse(bytes, order, consumer, |id| out.push(&id.to_le_bytes())),
            Plan::Every(messages) => self.parser.parse(bytes, order, consumer, |id| {
                (last, unacked) = (id, unacked + 1);
                if unacked >= messages {
                    out.push(&ack(id, unacked));
                    (unacked, acked) = (0, true);
                }
            }),
            Plan::Read | Plan::Reads(..) => self.parser.parse(bytes, order, consumer, |id| (last, unacked) = (id, unacked + 1)),
        };
        (self.last, self.unacked) = (last, unacked);
        (parsed, acked)
    }

    /// Does what the pattern wants after a read: sends an ack now, or sets a timer for it.
    fn after_read(&mut self, acked: bool, cx: &mut Context<'_>) {
        let mut acked = acked;
        self.reads = self.reads.saturating_add(1);
        let due = match self.plan {
            Plan::Read => true,
            Plan::Reads(reads, _) => self.reads >= reads,
            Plan::Reply | Plan::Every(_) => false,
        };
        if due || self.unacked >= COVERED_LIMIT {
            self.flush(cx);
            acked = true;
        }
        match (self.unacked, self.armed) {
            (0, true) => {
                cx.clear_timer();
                self.armed = false;
            }
            (0, false) => self.reads = 0,
            // Its time counts from the oldest that waits; after an ack, that came with this read.
            (_, armed) if acked || !armed => {
                cx.set_timer(self.plan.at_latest());
                self.armed = true;
            }
            _ => {}
        }
    }

    fn close(&mut self, cx: &mut Context<'_>) -> Step {
        self.flush(cx);
        Step::Close
    }
}

/// Returns the ack of `covered` messages, the last of which is `id`.
fn ack(id: u64, covered: u32) -> [u8; 12] {
    let mut ack = [0; 12];
    ack[..8].copy_from_slice(&id.to_le_bytes());
    ack[8..].copy_from_slice(&(covered - 1).to_le_bytes());
    ack
}

impl<C: Consumer> Protocol for Connection<C> {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        // The rest of the message in which it was asked to end; what follows is not received.
        let until = if self.ending { self.parser.payload_left as usize } else { usize::MAX };
        let bytes = input.bytes();
        let (parsed, acked) = self.take(&bytes[..bytes.len().min(until)], cx);
        input.take(parsed.taken);
        if parsed.refused {
            cx.report(format!(
                "a message of more than {MAX_PAYLOAD} bytes: its client speaks another pattern, or is no client of acks"
            ));
        }
        if parsed.refused || (self.ending && self.parser.payload_left == 0) {
            return self.close(cx);
        }
        self.after_read(acked, cx);
        Step::Continue
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.close(cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.armed = false;
        self.flush(cx);
        Step::Continue
    }

    /// Closes the connection. The payload of a message may still be under way, and it is received first, where there is time: what is purged is not
    /// called again.
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        if self.parser.payload_left == 0 {
            return self.close(cx);
        }
        self.flush(cx);
        self.ending = true;
        Step::Continue
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.plan.size_order() as u64);
        let parser = &self.parser;
        for number in [self.unacked, self.reads, parser.size, parser.payload_left, self.armed.into(), self.ending.into()] {
            to.u64(number.into());
        }
        to.u64(self.last);
        to.u64(self.parser.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
