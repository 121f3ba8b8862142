//! A layer's filter without its protocol. In a lease the lessee reads and writes plain bytes, and the filter comes back with the connection; of a
//! relay it stays where it is, and the other side's bytes pass it.

use super::Stage;
use super::{Filter, Finish, Layered, Progress, Refused};
use crate::protocol::{Decoded, Input, Lend, Lent, Note, Output, Pass, Passage, Protocol, Service};
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
    /// Wire bytes of these layers.
    wire: Vec<u8>,
}

/// State that a layer gets back with its connection.
struct Back<F> {
    filter: F,
    plain: Vec<u8>,
    ended: bool,
    finished: bool,
    /// The note for the inner protocol.
    note: Note,
}

impl<F: Filter, S: Service> Layered<F, S> {
    /// Lends the filter, and what `inner` layers lend.
    pub(super) fn lend_filter(&mut self, inner: Option<Lent>) -> Option<Lent> {
        let (filter, plain) = (self.filter.take()?, std::mem::take(&mut self.plain));
        Some(lent(filter, plain, self.peer_ended, self.finish != Finish::No, inner))
    }

    /// Unpacks a note that brings the filter back from a lease: the filter goes on here, as it is now.
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
            let inner = Some(Inner { filter: lent.filter, wire: plain });
            Lent { filter: Box::new(Lending { filter, ended, finished, inner }), plain: lent.plain, ended: lent.ended }
        }
    }
}

fn refused(why: Refused) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A filter and those within it, in a lease or where they are.
struct Levels<'a, F> {
    filter: &'a mut F,
    /// The goodbyes of the peer and of this side were said.
    ended: &'a mut bool,
    finished: bool,
    /// The filters within, and the plain bytes of this one that they have not taken.
    within: Option<(&'a mut dyn Pass, &'a mut Vec<u8>)>,
}

impl<F: Filter> Levels<'_, F> {
    /// Offers what the filters within have not taken.
    fn decode_within(&mut self, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        let Some((within, wire)) = &mut self.within else { return Ok(Decoded::NeedMore) };
        let (mut input, mut said) = (Input::new(wire), Output::default());
        let decoded = within.decode(&mut input, plain, &mut said);
        let taken = input.taken();
        wire.drain(..taken);
        if !said.bytes.is_empty() {
            self.filter.encode(&said.bytes, back);
        }
        decoded
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        if let Some((within, left)) = &mut self.within
            && left.is_empty()
            && self.filter.passes()
        {
            return within.decode(wire, plain, back);
        }
        loop {
            let decoded = self.decode_within(plain, back)?;
            if decoded != Decoded::NeedMore {
                // The goodbye within is the end: none of this one is awaited.
                *self.ended |= decoded == Decoded::Ended;
                return Ok(decoded);
            }
            if *self.ended {
                return self.within.as_mut().map_or(Ok(()), |(within, _)| within.wire_ended()).map(|()| Decoded::Ended);
            }
            let is_last = self.within.is_none();
            let to = self.within.as_mut().map_or(&mut *plain, |(_, wire)| &mut **wire);
            match self.filter.decode(wire, to, back).map_err(refused)? {
                Progress::NeedMore => return Ok(Decoded::NeedMore),
                Progress::Plain if is_last => return Ok(Decoded::Plain),
                Progress::Plain => {}
                Progress::PeerEnded => *self.ended = true,
                // The filter was established before.
                Progress::Established(_) | Progress::Work(_) => {
                    return Err(refused(Refused::because("its filter began another handshake")));
                }
            }
        }
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        let Some((within, _)) = &mut self.within else { return self.filter.encode(plain, wire) };
        if self.filter.passes() {
            return within.encode(plain, wire);
        }
        let mut between = Output::default();
        within.encode(plain, &mut between);
        self.filter.encode(&between.bytes, wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        if let Some((within, _)) = &mut self.within {
            let mut between = Output::default();
            within.goodbye(&mut between);
            if !between.bytes.is_empty() {
                self.filter.encode(&between.bytes, wire);
            }
        }
        if !self.finished {
            self.filter.goodbye(wire);
        }
    }

    fn wire_ended(&mut self) -> io::Result<()> {
        if !*self.ended {
            self.filter.truncated().map_err(|why| io::Error::new(io::ErrorKind::UnexpectedEof, why))?;
            *self.ended = true;
        }
        self.within.as_mut().map_or(Ok(()), |(within, _)| within.wire_ended())
    }
}

impl<F: Filter> Lending<F> {
    fn levels(&mut self) -> Levels<'_, F> {
        let within = self.inner.as_mut().map(|Inner { filter, wire }| (&mut **filter as &mut dyn Pass, wire));
        Levels { filter: &mut self.filter, ended: &mut self.ended, finished: self.finished, within }
    }
}

impl<F: Filter> Pass for Lending<F> {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        self.levels().decode(wire, plain, back)
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        self.levels().encode(plain, wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        self.levels().goodbye(wire);
        self.finished = true;
    }

    fn wire_ended(&mut self) -> io::Result<()> {
        self.levels().wire_ended()
    }
}

/// Passage of a relay's bytes: the filter is where it is, and no protocol is called.
impl<F: Filter, S: Service> Layered<F, S> {
    /// Returns whether wire bytes are plain bytes from now on, as far as this layer goes.
    pub(super) fn passes(&self) -> bool {
        self.plain.is_empty() && !self.peer_ended && self.filter.as_ref().is_some_and(Filter::passes)
    }

    fn levels(&mut self) -> io::Result<Levels<'_, F>> {
        let under_way = || refused(Refused::because("its handshake is under way"));
        let Stage::Open(protocol) = &mut self.stage else { return Err(under_way()) };
        let within = protocol.passage().map(|Passage(within)| (within, &mut self.plain));
        let filter = self.filter.as_mut().ok_or_else(under_way)?;
        Ok(Levels { filter, ended: &mut self.peer_ended, finished: self.finish != Finish::No, within })
    }
}

impl<F: Filter, S: Service> Pass for Layered<F, S> {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded> {
        (self.searched, self.end_owed) = (0, false);
        let mut levels = self.levels()?;
        if levels.within.is_some() {
            return levels.decode(wire, plain, back);
        }
        // Bytes that its protocol has not taken go first.
        let before = plain.len();
        plain.append(&mut self.plain);
        if plain.len() > before { Ok(Decoded::Plain) } else { self.levels()?.decode(wire, plain, back) }
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        if let Ok(mut levels) = self.levels() {
            levels.encode(plain, wire);
        }
    }

    fn goodbye(&mut self, wire: &mut Output) {
        if let Ok(mut levels) = self.levels() {
            levels.goodbye(wire);
            if self.finish == Finish::No {
                self.finish = Finish::Said;
            }
        }
    }

    fn wire_ended(&mut self) -> io::Result<()> {
        self.levels()?.wire_ended()
    }
}

impl<F: Filter> Lend for Lending<F> {
    fn give_back(self: Box<Self>, plain: Vec<u8>, note: Note) -> Note {
        let Lending { filter, ended, finished, inner } = *self;
        let (plain, note) = match inner {
            None => (plain, note),
            Some(inner) => (inner.wire, inner.filter.give_back(plain, note)),
        };
        Note::value(Back { filter, plain, ended, finished, note })
    }
}
