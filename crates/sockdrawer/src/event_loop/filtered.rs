//! A leased connection under layers: the lessee's plain bytes pass the filter that the layers lent.

use super::lease::{LeaseEnd, Leased};
use crate::protocol::{Decoded, Input, Lend, Lent, Note, Output, READS_NO_ANSWERS, TOO_LONG, decode_all};
use crate::sync::atomic::Ordering;
use crate::sys::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// Wire bytes that one read asks for.
const READ: usize = 16 * 1024;
/// Plain bytes that are encoded at once, about a record: so much may be taken of the lessee and still be unsent.
const PIECE: usize = 16 * 1024;
/// Maximum bytes of the filter's own output that wait: a peer that has it answer and does not read its answers is refused.
const MAX_BACK: usize = 64 * 1024;
/// Reads that brought nothing for the lessee, after which other work of its thread has its turn.
const MAX_READS: usize = 16;

/// The filter, and bytes on both sides of it. An idle connection holds none.
pub(super) struct Filtered {
    filter: Box<dyn Lend>,
    /// Wire bytes that are not decoded yet: a part of a record, unless `fresh`.
    wire: Vec<u8>,
    fresh: bool,
    /// Maximum of wire bytes that wait: a filter that has not decoded so many will not decode them.
    max_wire: usize,
    /// Decoded bytes; read by the lessee up to `read`.
    plain: Vec<u8>,
    read: usize,
    /// No more plain bytes come.
    ended: bool,
    /// Encoded bytes; sent up to `sent`.
    unsent: Vec<u8>,
    sent: usize,
    finished: bool,
    refused: bool,
    /// On refusing, the filter appended something for the peer.
    says_why: bool,
    /// Error that the next read returns.
    error: Option<io::Error>,
}

/// Bytes that are left of the filter when the connection goes back.
#[derive(Default)]
pub(super) struct Left {
    pub(super) wire: Vec<u8>,
    pub(super) unsent: Vec<u8>,
}

/// The socket of the connection, and whether its stream has ended.
pub(super) struct RawSocket<'a> {
    pub(super) leased: &'a Leased,
    pub(super) socket: BorrowedFd<'a>,
    pub(super) ended: &'a mut bool,
}

impl RawSocket<'_> {
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let count = self.leased.system.receive(self.socket, into)?;
        *self.ended = count == 0;
        if count > 0 {
            self.leased.owes.store(true, Ordering::Relaxed);
        }
        self.leased.received.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let sent = self.leased.system.send(self.socket, bytes, false);
        self.leased.owes.store(sent != Ok(bytes.len()), Ordering::Relaxed);
        let count = sent?;
        self.leased.sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Filtered {
    /// Makes the parts of a lease under layers; `wire` was received and not decoded.
    pub(super) fn new(lent: Lent, wire: Vec<u8>, max_wire: usize) -> Filtered {
        let Lent { filter, plain, ended } = lent;
        let (fresh, unsent, error) = (!wire.is_empty(), Vec::new(), None);
        Filtered {
            filter,
            wire,
            fresh,
            max_wire,
            plain,
            read: 0,
            ended,
            unsent,
            sent: 0,
            finished: false,
            refused: false,
            says_why: false,
            error,
        }
    }

    /// Returns true where a read may have something without asking the kernel.
    pub(super) fn has_kept(&self) -> bool {
        self.read < self.plain.len() || self.ended || self.fresh || self.error.is_some()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Decodes all that the kernel has. Returns true where a read returns at once. An error is kept for that read.
    pub(super) fn look(&mut self, wire: &mut RawSocket<'_>) -> bool {
        match self.fill(wire) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
            Err(error) => {
                self.error = Some(error);
                true
            }
            Ok(()) => true,
        }
    }

    pub(super) fn receive(&mut self, wire: &mut RawSocket<'_>, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.fill(wire)?;
        let count = into.len().min(self.plain.len() - self.read);
        into[..count].copy_from_slice(&self.plain[self.read..self.read + count]);
        self.read += count;
        if self.read == self.plain.len() {
            (self.plain, self.read) = (Vec::new(), 0);
        }
        Ok(count)
    }

    /// Reads and decodes until there are plain bytes, or their end.
    fn fill(&mut self, wire: &mut RawSocket<'_>) -> io::Result<()> {
        let mut reads = 0;
        while self.read == self.plain.len() && !self.ended {
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            self.check()?;
            if self.fresh {
                self.decode(wire);
            } else if *wire.ended {
                self.filter.wire_ended()?;
                self.ended = true;
            } else if reads == MAX_READS {
                return Err(io::ErrorKind::Interrupted.into());
            } else {
                self.read_wire(wire)?;
                reads += 1;
            }
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        if self.refused {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the layer refused what the peer sent before"))
        } else {
            Ok(())
        }
    }

    fn read_wire(&mut self, wire: &mut RawSocket<'_>) -> io::Result<()> {
        let from = self.wire.len();
        if from > self.max_wire {
            self.refuse(TOO_LONG);
            return Ok(());
        }
        self.wire.resize(from + READ, 0);
        let received = wire.receive(&mut self.wire[from..]);
        self.wire.truncate(from + received.unwrap_or(0));
        self.wire.shrink_to_fit();
        self.fresh = received? > 0;
        Ok(())
    }

    fn refuse(&mut self, why: &'static str) {
        self.refused = true;
        self.error = Some(io::Error::new(io::ErrorKind::InvalidData, why));
    }

    /// Decodes until there are plain bytes, their end, or no whole record. An error comes behind the plain bytes before it.
    fn decode(&mut self, wire: &mut RawSocket<'_>) {
        let (mut input, mut back) = (Input::new(&mut self.wire), Output::default());
        let (decoded, says_why) = decode_all(&mut *self.filter, &mut input, (&mut self.plain, READ), &mut back);
        let taken = input.taken();
        self.says_why |= says_why;
        self.wire.drain(..taken);
        self.fresh = matches!(decoded, Ok(Decoded::Plain));
        self.ended |= matches!(decoded, Ok(Decoded::Ended));
        if !back.bytes.is_empty() {
            self.unsent.extend_from_slice(&back.bytes);
            // Bytes that the kernel does not take now go before those that the lessee writes next; the write tells of an error.
            let _ = self.flush(wire);
            if self.unsent.len() - self.sent > MAX_BACK {
                self.refuse(READS_NO_ANSWERS);
            }
        }
        if let Err(error) = decoded {
            (self.refused, self.error) = (true, Some(error));
        }
    }

    /// Encodes a piece of `bytes` when all before it was sent. What the kernel does not take is kept.
    pub(super) fn send(&mut self, wire: &mut RawSocket<'_>, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        if self.finished {
            return Err(Errno::PIPE.into());
        }
        self.flush(wire)?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        if piece.is_empty() {
            return Ok(0);
        }
        self.encoded(|filter, out| filter.encode(piece, out));
        match self.flush(wire) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(piece.len()),
        }
    }

    fn encoded(&mut self, call: impl FnOnce(&mut dyn Lend, &mut Output)) {
        let mut out = Output { bytes: std::mem::take(&mut self.unsent), ..Output::default() };
        call(&mut *self.filter, &mut out);
        self.unsent = out.bytes;
    }

    /// Sends what is unsent.
    pub(super) fn flush(&mut self, wire: &mut RawSocket<'_>) -> io::Result<()> {
        while self.has_unsent() {
            match wire.send(&self.unsent[self.sent..]) {
                Err(Errno::INTR) => {}
                sent => self.sent += sent?,
            }
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        Ok(())
    }

    /// Says goodbye, once, and sends it.
    pub(super) fn finish(&mut self, wire: &mut RawSocket<'_>) -> io::Result<()> {
        self.say_goodbye();
        self.flush(wire)
    }

    fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.finished, true) && !self.refused {
            self.encoded(|filter, out| filter.goodbye(out));
        }
    }

    /// Returns the end of a connection whose layer refused what the peer sent: closed, if the peer is told why, else reset.
    pub(super) fn refusal(&self) -> Option<LeaseEnd> {
        self.refused.then_some(if self.says_why { LeaseEnd::Failed } else { LeaseEnd::Abort })
    }

    /// Ends the connection: the peer is told.
    pub(super) fn end(mut self) -> Left {
        self.say_goodbye();
        self.left().0
    }

    /// Gives the connection back to its protocol by this note.
    pub(super) fn give_back(mut self, note: Note) -> (Left, Note) {
        let plain = self.plain.split_off(self.read);
        let (left, filter) = self.left();
        (left, filter.give_back(plain, note))
    }

    fn left(mut self) -> (Left, Box<dyn Lend>) {
        self.unsent.drain(..self.sent);
        (Left { wire: self.wire, unsent: self.unsent }, self.filter)
    }
}
