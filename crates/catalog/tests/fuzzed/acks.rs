//! The server of `acks`: whatever comes, each whole message is acknowledged once, in order, and nothing else is.

use super::Script;
use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer::{Closed, Side};
use sockdrawer_catalog::acks::{AckPattern, Acks, Consumer, Part};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time of the patterns below: none lets a message wait longer.
const AFTER: Duration = Duration::from_millis(5);
pub(super) const PATTERNS: [AckPattern; 5] = [
    AckPattern::Reply,
    AckPattern::Timer(AFTER),
    AckPattern::Read,
    AckPattern::Async { reads: 3, after: AFTER },
    AckPattern::Every(EVERY),
];
const EVERY: u32 = 3;
/// Bounds that a few acks reach, so that connections are held back by a peer that does not read.
const WATER: Bounds = Bounds { max_partial: 12, high_water: 40, low_water: 20, inbox: 1 };
/// Zeros for the rest of a payload: up to as many bytes in a step, so that large payloads need no large inputs.
static ZEROS: [u8; 31 * 4096] = [0; 31 * 4096];
/// Maximum of zeros in all steps together: one payload of the largest size, and then some.
const ZEROS_LIMIT: usize = 1_100_000;

/// The format of design and documentation, byte by byte, as simple as can be.
#[derive(Default)]
pub(super) struct Reference {
    big_endian: bool,
    header: Vec<u8>,
    payload_left: u32,
    /// The messages that are whole.
    pub(super) ids: Vec<u64>,
    /// Bytes of payloads, one after the other.
    payloads: Vec<u8>,
    /// Asked to end: with the message that is under way.
    ending: bool,
    ended: bool,
}

impl Reference {
    pub(super) fn new(pattern: AckPattern) -> Reference {
        Reference { big_endian: pattern == AckPattern::Reply, ..Reference::default() }
    }

    pub(super) fn receive(&mut self, mut bytes: &[u8]) {
        while !self.ended && !bytes.is_empty() {
            if self.payload_left > 0 {
                let count = bytes.len().min(self.payload_left as usize);
                self.payloads.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                self.payload_left -= count as u32;
            } else {
                self.header.push(bytes[0]);
                bytes = &bytes[1..];
                if self.header.len() < 12 {
                    continue;
                }
                let size = self.header[8..12].try_into().expect("four bytes");
                self.payload_left = if self.big_endian { u32::from_be_bytes(size) } else { u32::from_le_bytes(size) };
                if self.payload_left > 1_000_000 {
                    self.ended = true;
                    return;
                }
            }
            if self.payload_left == 0 {
                self.ids.push(u64::from_le_bytes(self.header[..8].try_into().expect("eight bytes")));
                self.header.clear();
                self.ended |= self.ending;
            }
        }
    }

    /// Asks the connection to end, at a point where no part of a header waits.
    fn drain(&mut self) {
        self.ending = true;
        self.ended |= self.payload_left == 0;
    }
}

/// A connection beside what it should do.
struct Pair {
    pattern: AckPattern,
    /// Connection; None while it is moved.
    connection: Option<Driver<Acks>>,
    reference: Reference,
    sent: Vec<u8>,
    blocked: bool,
    draining: bool,
    moved: bool,
    zeros: usize,
}

impl Pair {
    fn new(pattern: AckPattern) -> Pair {
        let connection = Driver::open_with(Acks { pattern }, peer(Side::Accepted, Duration::ZERO), WATER);
        let reference = Reference::new(pattern);
        let (connection, sent) = (Some(connection), Vec::new());
        Pair { pattern, connection, reference, sent, blocked: false, draining: false, moved: false, zeros: 0 }
    }

    fn connection(&mut self) -> &mut Driver<Acks> {
        self.connection.as_mut().expect("it is not being moved")
    }

    fn is_open(&mut self) -> bool {
        self.connection().closed().is_none()
    }

    fn step(&mut self, script: &mut Script<'_>, what: u8, count: usize) {
        match what {
            0 => self.receive(script.take(count)),
            1 => self.receive(script.take(32 * count)),
            2 => script.take(count).chunks(1).for_each(|byte| self.receive(byte)),
            3 => {
                // The header that may follow a payload too.
                let count = (4096 * count).min(self.reference.payload_left as usize + 12).min(ZEROS_LIMIT - self.zeros);
                self.zeros += count;
                self.receive(&ZEROS[..count]);
            }
            4 => self.advance(Duration::from_millis(count as u64 / 4)),
            5 => self.move_to(PATTERNS[count % PATTERNS.len()]),
            6 => match count % 4 {
                0 => self.block(true),
                2 => self.block(false),
                _ => self.connection().read_backlog(count),
            },
            _ => {
                self.draining = true;
                self.connection().drain();
            }
        }
        self.settle();
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.reference.receive(bytes);
        self.connection().receive(bytes);
        self.settle();
    }

    fn advance(&mut self, by: Duration) {
        self.connection().advance(by);
        self.settle();
        if by >= AFTER && !self.blocked {
            self.check("in time");
        }
    }

    fn block(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.connection().block_output(blocked);
    }

    /// Moves the connection to a service with another pattern, which must be possible unless its clients write sizes in the other order.
    fn move_to(&mut self, to: AckPattern) {
        let (possible, same) = (self.is_open(), (to == AckPattern::Reply) == self.reference.big_endian);
        match self.connection.take().expect("it is not being moved").save_and_restore(Acks { pattern: to }) {
            Ok(moved) => {
                assert!(possible && same, "{} became {to}", self.pattern);
                self.connection = Some(moved);
                (self.pattern, self.moved) = (to, true);
            }
            Err(stayed) => {
                assert!(!possible || !same, "{} did not become {to}", self.pattern);
                self.connection = Some(*stayed.connection);
            }
        }
    }

    /// Tells the reference that the connection was asked to end, once it was, and looks whether both ended.
    fn settle(&mut self) {
        let (draining, told) = (self.draining, self.reference.ending);
        let kept = self.connection().kept().len();
        if draining && !told && kept == 0 {
            self.reference.drain();
        }
        let ended = self.reference.ended;
        let closed = self.connection().closed();
        if ended && !self.blocked {
            assert_eq!(closed, Some(Closed::Orderly), "{}", self.pattern);
        } else if !ended {
            assert_eq!(closed, None, "{}", self.pattern);
            assert!(self.blocked || kept == self.reference.header.len() % 12, "{} leaves {kept} bytes", self.pattern);
        }
        let sent = self.connection().sent();
        self.sent.extend(sent);
    }

    /// Checks that all that is whole is acknowledged, and nothing else.
    fn check(&self, when: &str) {
        let (pattern, ids) = (self.pattern, &self.reference.ids);
        if self.reference.big_endian {
            let (sent, rest) = self.sent.as_chunks::<8>();
            assert!(
                rest.is_empty() && sent.iter().eq(ids.iter().map(|id| id.to_le_bytes()).collect::<Vec<_>>().iter()),
                "{when}"
            );
            return;
        }
        let (acks, rest) = self.sent.as_chunks::<12>();
        assert!(rest.is_empty());
        let covered = acks.iter().fold(0, |covered, ack| {
            let [id @ .., a, b, c, d] = *ack;
            let skipped = u32::from_le_bytes([a, b, c, d]);
            assert!(
                !matches!(pattern, AckPattern::Every(every) if !self.moved && skipped >= every),
                "{pattern} covers {skipped}"
            );
            let last = covered + skipped as usize;
            assert_eq!(ids.get(last), Some(&u64::from_le_bytes(id)), "{when}: {pattern}, after {covered} messages");
            last + 1
        });
        assert_eq!(covered, ids.len(), "{pattern} acknowledges all that is whole {when}");
    }
}

/// Payloads that a consumer was given: ids of whole messages and all bytes.
#[derive(Default)]
struct Given {
    ids: Vec<u64>,
    payloads: Vec<u8>,
    /// Id and size of the message under way, and the number of its bytes that came.
    part: Option<(u64, u32, usize)>,
}

#[derive(Clone, Default)]
struct Collect(Arc<Mutex<Given>>);

impl Consumer for Collect {
    fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, size, begin) = given.part.take().unwrap_or((part.id, part.size, 0));
        assert_eq!((part.id, part.size, part.begin as usize), (id, size, begin), "parts come in order");
        given.payloads.extend_from_slice(part.bytes);
        match part.is_last() {
            true => given.ids.push(id),
            false => given.part = Some((id, size, begin + part.bytes.len())),
        }
        ControlFlow::Continue(())
    }
}

/// Payloads reach a consumer whole and once, however the stream is split.
fn check_consumer(mut script: Script<'_>) {
    let (pattern, collect) = (PATTERNS[usize::from(script.choices) % PATTERNS.len()], Collect::default());
    let consumer = collect.clone();
    let mut connection = Driver::open(Acks { pattern }.consuming(move |_| consumer.clone()));
    let mut reference = Reference::new(pattern);
    let mut receive = |bytes: &[u8]| {
        reference.receive(bytes);
        connection.receive(bytes);
    };
    script.steps().for_each(|(_, count)| receive(script.take(count)));
    receive(script.stream);
    let given = collect.0.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((&given.ids, &given.payloads), (&reference.ids, &reference.payloads), "{pattern}");
}

/// Checks an input for the pattern that it chooses, and to the end of the connection that it chooses.
pub(crate) fn check(input: &[u8]) {
    let Some(mut script) = Script::new(input) else { return };
    let mut pair = Pair::new(PATTERNS[usize::from(script.choices) % PATTERNS.len()]);
    for (what, count) in script.steps() {
        if !pair.is_open() {
            break;
        }
        pair.step(&mut script, what, count);
    }
    if pair.is_open() {
        pair.receive(script.stream);
    }
    pair.block(false);
    pair.settle();
    if script.choices < 128 {
        pair.advance(AFTER);
    } else {
        pair.connection().finish();
        let sent = pair.connection().sent();
        pair.sent.extend(sent);
        assert_eq!(pair.connection().closed(), Some(Closed::Orderly));
    }
    pair.check("at the end");
    check_consumer(Script::new(input).expect("it was one before"));
}
