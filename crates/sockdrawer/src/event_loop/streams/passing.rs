//! Relays whose bytes pass the filters of layers, such as TLS: what one side's filters decode, the other side's encode.

use super::Streams;
use super::relaying::{Pair, Relayed};
use crate::behaviour::Panicked;
use crate::event_loop::slot::Flags;
use crate::layer::spare;
use crate::protocol::{Closed, Decoded, Input, Output, Pass, READS_NO_ANSWERS, TOO_LONG, decode_all};
use crate::sys::Errno;
use std::io;
use std::os::fd::AsFd;

/// Unsent bytes of a side up to which its filters answer what it sends: KeyUpdate after KeyUpdate, from a peer that does not read.
const MAX_UNSENT: usize = 512 * 1024;

/// The result of wire bytes. Bytes for the other side are in the scratch.
struct Passed {
    decoded: io::Result<Decoded>,
    /// Bytes for the peer itself.
    back: Output,
    /// On refusing, the peer's filters appended something for it.
    says_why: bool,
}

impl Pair<'_> {
    /// Looks whether bytes of the two pass filters. Returns whether the pair is there.
    pub(in crate::event_loop) fn find_filters(&mut self) -> bool {
        let has = [self.from, self.to].map(|side| self.with_filters(side, |_, _| ()));
        let has = has.into_iter().collect::<Result<Vec<_>, _>>();
        let filtered = has.map(|has| has.iter().any(Option::is_some));
        for side in [self.from, self.to].into_iter().filter(|_| matches!(filtered, Ok(true))) {
            if let Some(relay) = self.streams.slots.extra_of(side).and_then(|extra| extra.relay.as_mut()) {
                relay.filtered = true;
            }
        }
        self.is_there(filtered, self.from)
    }

    /// Calls with the filters of a side, if it has any, and the scratch.
    fn with_filters<T>(&mut self, side: u32, call: impl FnOnce(&mut dyn Pass, &mut Output) -> T) -> Result<Option<T>, Panicked> {
        let Streams { slots, generations, scratch, .. } = &mut *self.streams;
        let record = slots.at(side);
        let (mut call, mut result) = (Some(call), None);
        let table = &mut generations.at(record.table).table;
        table.pass(record.state, &mut |filters| result = call.take().map(|call| call(filters, scratch)))?;
        Ok(result)
    }

    /// Returns true where the call of filters did not panic. A panic ends this side, and the pair, if it is one still.
    fn is_there<T>(&mut self, called: Result<T, Panicked>, side: u32) -> bool {
        let Err(Panicked(message)) = called else { return true };
        self.streams.scratch.clear();
        self.streams.crash(side, message);
        false
    }

    /// Reads once, and sends the other side the result.
    pub(super) fn pass_once(&mut self, most: usize) -> Relayed {
        let Streams { slots, io, kept, read, generations, .. } = &mut *self.streams;
        let (record, kept) = (slots.at(self.from), kept.bytes(self.from));
        let from = kept.len();
        // A filter that has left more bytes than this takes none.
        if from > generations.at(record.table).max_partial {
            return self.refuse(TOO_LONG, false);
        }
        let pages = &mut read.pages;
        pages[..from].copy_from_slice(kept);
        let to = pages.len().min(from + most);
        let socket = record.socket.as_ref().expect("a connection that is relayed has its socket");
        let count = match io.system.receive(socket.as_fd(), &mut pages[from..to]) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Relayed::All,
            Err(errno) => return self.failed(self.from, errno),
        };
        record.bytes_in += count as u64;
        io.counters.bytes_in().add(count as u64);
        if count == 0 {
            record.flags.set(Flags::PEER_ENDED);
            return self.ended();
        }
        self.streams.kept.forget(&mut self.streams.slots, self.from);
        let mut read = std::mem::take(&mut self.streams.read.pages);
        let passed = self.pass(&mut read[..from + count]);
        self.streams.read.pages = read;
        match self.passed(passed) {
            Relayed::All if from + count == to => {
                self.streams.slots.read_next(self.from, 2 * most);
                Relayed::More
            }
            Relayed::Stuck => {
                self.streams.slots.read_next(self.from, most / 4);
                if self.streams.slots.at(self.from).flags.any(Flags::PEER_ENDED) { self.ended() } else { Relayed::Stuck }
            }
            relayed => relayed,
        }
    }

    /// Bytes that the protocol of this connection left, or its layers hold, go to the other side.
    pub(super) fn pass_kept(&mut self) -> Relayed {
        let mut kept = self.streams.kept.bytes(self.from).to_vec();
        self.streams.kept.forget(&mut self.streams.slots, self.from);
        let passed = self.pass(&mut kept);
        self.passed(passed)
    }

    /// Has wire bytes pass the filters of both sides. What those of the first do not take yet is kept.
    fn pass(&mut self, wire: &mut [u8]) -> Result<Passed, Panicked> {
        let (mut plain, mut back) = (spare::take(), Output::default());
        let decoded = self.with_filters(self.from, |filters, _| {
            let mut input = Input::new(wire);
            (decode_all(filters, &mut input, (&mut plain, usize::MAX), &mut back), input.taken())
        })?;
        let ((decoded, says_why), bytes) = match decoded {
            Some((decoded, taken)) => {
                self.streams.kept.keep(&mut self.streams.slots, self.from, &wire[taken..]);
                (decoded, &plain[..])
            }
            None => ((Ok(Decoded::Plain), false), &*wire),
        };
        if !bytes.is_empty() && self.with_filters(self.to, |filters, out| filters.encode(bytes, out))?.is_none() {
            self.streams.scratch.bytes.extend_from_slice(bytes);
        }
        spare::give(plain);
        Ok(Passed { decoded, back, says_why })
    }

    fn passed(&mut self, passed: Result<Passed, Panicked>) -> Relayed {
        let passed = passed.map_err(|panicked| self.is_there::<()>(Err(panicked), self.from));
        let Ok(Passed { decoded, back, says_why }) = passed else { return Relayed::Over };
        if !self.streams.send(self.to, false) {
            return Relayed::Over;
        }
        let answers = !back.bytes.is_empty();
        if answers && !self.streams.slots.at(self.from).flags.any(Flags::ENDING_OUTPUT) {
            self.streams.scratch.bytes.extend_from_slice(&back.bytes);
            if !self.streams.send(self.from, false) {
                return Relayed::Over;
            }
        }
        match decoded {
            Err(refused) => self.refuse(&refused.to_string(), says_why),
            Ok(_) if answers && self.streams.unsent.bytes(self.from).len() > MAX_UNSENT => self.refuse(READS_NO_ANSWERS, false),
            Ok(Decoded::Ended) => {
                // Bytes after the peer's goodbye are ignored.
                self.streams.kept.forget(&mut self.streams.slots, self.from);
                self.streams.slots.at(self.from).flags.set(Flags::PEER_ENDED);
                Relayed::Stuck
            }
            // Its own peer may not read its answers: epoll is to be asked about either.
            Ok(_) if [self.from, self.to].iter().any(|side| self.streams.slots.at(*side).flags.any(Flags::UNSENT)) => {
                Relayed::Stuck
            }
            Ok(_) => Relayed::All,
        }
    }

    /// Resets the other side: the filters refused what the peer sent. The peer is told, where they say why.
    #[cold]
    fn refuse(&mut self, why: &str, says_why: bool) -> Relayed {
        let token = self.streams.slots.token(self.from);
        self.streams.io.tell_report(&mut self.streams.slots, token, why.into());
        if says_why {
            self.streams.close_otherwise(self.from, Closed::Aborted, false);
        } else {
            self.streams.end(self.from, Closed::Aborted, true);
        }
        Relayed::Over
    }

    /// Ends the output of the first side: looks whether all of it came, and says goodbye to the other. Returns whether the pair is there.
    pub(super) fn says_end(&mut self) -> bool {
        match self.with_filters(self.from, |filters, _| filters.wire_ended()) {
            Ok(Some(Err(refused))) => {
                self.streams.slots.make_extra(self.to).is_cut_short = true;
                self.refuse(&refused.to_string(), false) != Relayed::Over
            }
            called => self.is_there(called, self.from) && self.says_goodbye(),
        }
    }

    /// Has the filters of the other side tell its peer that no more comes. Returns whether the pair is there.
    pub(super) fn says_goodbye(&mut self) -> bool {
        let said = self.with_filters(self.to, |filters, out| filters.goodbye(out));
        self.is_there(said, self.to) && self.streams.send(self.to, true)
    }
}
