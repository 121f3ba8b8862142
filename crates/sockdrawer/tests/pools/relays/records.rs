//! A layer with a handshake, records, answers of its own and a goodbye, and the other end of its connections.
// Each test program uses a part of it.
#![allow(dead_code)]

use crate::common::{read, read_all};
use sockdrawer::layer::{Filter, Filtering, Progress, Refused};
use sockdrawer::{CannotRestore, CannotSave, Input, Output, Peer, Saved, Saver, Side, State};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub(crate) const HELLO: &[u8] = b"HELLO";
const KEY: u8 = 0x5a;
/// Lengths of records that carry nothing plain: an end, and a question that the filter answers with one.
const GOODBYE: u16 = 0;
pub(crate) const ASK: u16 = u16::MAX;

/// Sides that have records.
pub(crate) const SIDES: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

/// Connections of these sides send and receive records.
#[derive(Clone, Copy)]
pub(crate) struct Records {
    pub(crate) accepted: bool,
    pub(crate) made: bool,
    pub(crate) timeout: Duration,
}

pub(crate) enum Record {
    Shaking,
    Open,
    /// Its goodbye panics.
    Mined,
    Clear {
        established: bool,
    },
}

impl Filtering for Records {
    type Filter = Record;
    fn filter(&self, peer: &Peer) -> Record {
        let has = if peer.side() == Side::Accepted { self.accepted } else { self.made };
        if has { Record::Shaking } else { Record::Clear { established: false } }
    }
    fn restore(&self, from: &mut Saved<'_>) -> Result<Record, CannotRestore> {
        Ok(if from.u64()? == 0 { Record::Open } else { Record::Clear { established: true } })
    }
    fn state(&self) -> State {
        State::of("records", 1)
    }
    fn handshake_timeout(&self) -> Duration {
        self.timeout
    }
    fn longest_record(&self) -> usize {
        2 + usize::from(ASK)
    }
}

pub(crate) fn record(plain: &[u8]) -> Vec<u8> {
    let length = u16::try_from(plain.len()).expect("a record's length");
    length.to_be_bytes().into_iter().chain(plain.iter().map(|byte| byte ^ KEY)).collect()
}

impl Filter for Record {
    fn start(&mut self, wire: &mut Output) {
        if matches!(self, Record::Shaking) {
            wire.push(HELLO);
        }
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        match self {
            Record::Clear { established: false } => {
                *self = Record::Clear { established: true };
                Ok(Progress::Established(None))
            }
            Record::Clear { .. } if wire.is_empty() => Ok(Progress::NeedMore),
            Record::Clear { .. } => {
                plain.extend_from_slice(wire.take_all());
                Ok(Progress::Plain)
            }
            Record::Shaking => match wire.exactly(HELLO.len()) {
                None => Ok(Progress::NeedMore),
                Some(hello) if hello == HELLO => {
                    *self = Record::Open;
                    Ok(Progress::Established(None))
                }
                Some(_) => {
                    back.push(b"NO");
                    Err(Refused::because("it says no hello"))
                }
            },
            Record::Open | Record::Mined => {
                while wire.bytes().starts_with(&ASK.to_be_bytes()) {
                    wire.take(2);
                    back.push(&record(&[0]));
                }
                let Some(length) = wire.bytes().first_chunk().map(|two| u16::from_be_bytes(*two)) else {
                    return Ok(Progress::NeedMore);
                };
                let Some(record) = wire.exactly(2 + usize::from(length)) else { return Ok(Progress::NeedMore) };
                match &record[2..] {
                    [] => return Ok(Progress::PeerEnded),
                    b"panic" => panic!("a filter that panics"),
                    b"mined" => *self = Record::Mined,
                    b"forged" => {
                        back.push(b"NO");
                        return Err(Refused::because("a record that was forged"));
                    }
                    bytes => plain.extend(bytes.iter().map(|byte| byte ^ KEY)),
                }
                Ok(Progress::Plain)
            }
        }
    }

    fn passes(&self) -> bool {
        matches!(self, Record::Clear { established: true })
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        match self {
            Record::Clear { .. } => wire.push(plain),
            _ => plain.chunks(1000).for_each(|piece| wire.push(&record(piece))),
        }
    }

    fn goodbye(&mut self, wire: &mut Output) {
        match self {
            Record::Open => wire.push(&GOODBYE.to_be_bytes()),
            Record::Mined => panic!("a goodbye that panics"),
            Record::Shaking | Record::Clear { .. } => {}
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match self {
            Record::Shaking => return Err(CannotSave::because("its handshake is under way")),
            Record::Open | Record::Mined => to.u64(0),
            Record::Clear { .. } => to.u64(1),
        }
        Ok(())
    }

    fn truncated(&mut self) -> Result<(), Refused> {
        if matches!(self, Record::Open) { Err(Refused::because("it ended without a goodbye")) } else { Ok(()) }
    }
}

/// The other end of a connection: a client of the proxy, or a backend.
pub(crate) struct End {
    pub(crate) stream: TcpStream,
    pub(crate) records: bool,
}

impl End {
    pub(crate) fn copy(&self) -> End {
        End { stream: self.stream.try_clone().expect("a socket"), records: self.records }
    }

    /// Returns the bytes as this end sends them.
    pub(crate) fn wire(&self, plain: &[u8]) -> Vec<u8> {
        if self.records { plain.chunks(777).flat_map(record).collect() } else { plain.to_vec() }
    }

    pub(crate) fn say(&mut self, plain: &[u8]) {
        let wire = self.wire(plain);
        self.stream.write_all(&wire).expect("it stands");
    }

    pub(crate) fn hear(&mut self, count: usize) -> Option<Vec<u8>> {
        if !self.records {
            return read(&mut self.stream, count);
        }
        let mut plain = Vec::new();
        while plain.len() < count {
            plain.extend(self.next()?);
        }
        Some(plain)
    }

    /// Returns the plain bytes of the next record; `None` stands for a goodbye.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).expect("a record");
        let mut bytes = vec![0; u16::from_be_bytes(length).into()];
        self.stream.read_exact(&mut bytes).expect("a record");
        bytes.iter_mut().for_each(|byte| *byte ^= KEY);
        (length != [0, 0]).then_some(bytes)
    }

    /// Returns all bytes until the end, which has to be one in order.
    pub(crate) fn hear_all(&mut self) -> Vec<u8> {
        if !self.records {
            return read_all(&mut self.stream).expect("an orderly end");
        }
        let mut plain = Vec::new();
        while let Some(more) = self.next() {
            plain.extend(more);
        }
        assert!(read_all(&mut self.stream).expect("an orderly end").is_empty());
        plain
    }

    pub(crate) fn say_end(&mut self) {
        if self.records {
            self.stream.write_all(&GOODBYE.to_be_bytes()).expect("it stands");
        }
        self.stream.shutdown(Shutdown::Write).expect("it stands");
    }

    pub(crate) fn shake(&mut self) {
        if self.records {
            self.stream.write_all(HELLO).expect("it stands");
            assert_eq!(read(&mut self.stream, HELLO.len()).as_deref(), Some(HELLO));
        }
    }
}
