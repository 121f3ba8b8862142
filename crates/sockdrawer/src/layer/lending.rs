//! A layer's filter in a lease: the lessee reads and writes plain bytes, and the filter comes back with the connection.

use super::{Filter, Finish, Layered, Progress, Refused};
use crate::protocol::{Decoded, Input, Lend, Lent, Note, Output, Service};
use std::io;

/// A filter that is lent, and what lies within it.
struct Lending<F> {
    filter: F,
    /// The goodbyes of the peer and of this side were said.
    ended: bool,
    finished: bool,
    inner: Option<Inner>,
}

/// The filters of the layers within.
struct Inner {
    filter: Box<dyn Lend>,
    /// Their wire bytes, and how many of these they have taken.
    wire: Vec<u8>,
    taken: usize,
}

/// What a layer gets back with its connection.
struct Back<F> {
    filter: F,
    plain: Vec<u8>,
    ended: bool,
    finished: bool,
    /// For the inner protocol.
    note: Note,
}

impl<F: Filter, S: Service> Layered<F, S> {
    /// Lends the filter, and what `inner` layers lend.
    pub(super) fn lend_filter(&mut self, inner: Option<Lent>) -> Option<Lent> {
        let (filter, plain) = (self.filter.take()?, std::mem::take(&mut self.plain));
        Some(lent(filter, plain, self.peer_ended, self.finish != Finish::No, inner))
    }

    /// A note that brings the filter back from a lease is unpacked: the filter goes on here, as it is now.
    pub(super) fn regain(&mut self, note: Note) -> Note {
        let back = match note.take::<Back<F>>() {
            Ok(back) if self.filter.is_none() => back,
            Ok(other) => return Note::value(other),
            Err(note) => return note,
        };
        (self.filter, self.plain, self.searched, self.job) = (Some(back.filter), back.plain, 0, false);
        self.end_owed |= back.ended && !self.peer_ended;
        self.peer_ended = back.ended;
        if back.finished && self.finish == Finish::No {
            self.finish = Finish::Said;
        }
        back.note
    }
}

/// Lends a filter; `plain` are bytes that it decoded and `inner`, or else the protocol, has not taken.
fn lent<F: Filter>(filter: F, plain: Vec<u8>, ended: bool, finished: bool, inner: Option<Lent>) -> Lent {
    match inner {
        None => Lent { filter: Box::new(Lending { filter, ended, finished, inner: None }), plain, ended },
        Some(lent) => {
            let inner = Some(Inner { filter: lent.filter, wire: plain, taken: 0 });
            Lent { filter: Box::new(Lending { filter, ended, finished, inner }), plain: lent.plain, ended: lent.ended }
        }
    }
}

fn refused(why: Refused) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Inner {
    fn decode(&mut self, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        let mut wire = Input::new(&mut self.wire[self.taken..]);
        let decoded = self.filter.decode(&mut wire, plain, back);
        self.taken += wire.taken();
        if self.taken == self.wire.len() {
            (self.wire, self.taken) = (Vec::new(), 0);
        }
        decoded
    }
}

impl<F: Filter> Lend for Lending<F> {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        loop {
            if let Some(inner) = &mut self.inner {
                let mut inner_back = Output::default();
                let decoded = inner.decode(plain, &mut inner_back);
                if !inner_back.bytes.is_empty() {
                    self.filter.encode(&inner_back.bytes, back);
                }
                let decoded = decoded?;
                if decoded != Decoded::NeedMore {
                    return Ok(decoded);
                }
                if self.ended {
                    return inner.filter.wire_ended().map(|()| Decoded::Ended);
                }
            }
            let to = self.inner.as_mut().map_or(&mut *plain, |inner| &mut inner.wire);
            match self.filter.decode(wire, to, back).map_err(refused)? {
                Progress::NeedMore => return Ok(Decoded::NeedMore),
                Progress::Plain if self.inner.is_none() => return Ok(Decoded::Plain),
                Progress::Plain => {}
                Progress::PeerEnded => {
                    self.ended = true;
                    if self.inner.is_none() {
                        return Ok(Decoded::Ended);
                    }
                }
                // It was established before.
                Progress::Established(_) | Progress::Work(_) => {
                    return Err(refused(Refused::because("its filter began another handshake")));
                }
            }
        }
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        let Some(inner) = &mut self.inner else { return self.filter.encode(plain, wire) };
        let mut between = Output::default();
        inner.filter.encode(plain, &mut between);
        self.filter.encode(&between.bytes, wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        if let Some(inner) = &mut self.inner {
            let mut between = Output::default();
            inner.filter.goodbye(&mut between);
            if !between.bytes.is_empty() {
                self.filter.encode(&between.bytes, wire);
            }
        }
        if !std::mem::replace(&mut self.finished, true) {
            self.filter.goodbye(wire);
        }
    }

    fn wire_ended(&mut self) -> io::Result<()> {
        if !self.ended {
            self.filter.truncated().map_err(|why| io::Error::new(io::ErrorKind::UnexpectedEof, why))?;
            self.ended = true;
        }
        self.inner.as_mut().map_or(Ok(()), |inner| inner.filter.wire_ended())
    }

    fn give_back(self: Box<Self>, plain: Vec<u8>, note: Note) -> Note {
        let Lending { filter, ended, finished, inner } = *self;
        let (plain, note) = match inner {
            None => (plain, note),
            Some(mut inner) => {
                inner.wire.drain(..inner.taken);
                (inner.wire, inner.filter.give_back(plain, note))
            }
        };
        Note::value(Back { filter, plain, ended, finished, note })
    }
}
