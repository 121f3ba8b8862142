//! A filter with what TLS has: a handshake, records that cannot be moved, lost or doubled unseen, a goodbye, and answers that are the filter's own.

use crate::common::{PATIENCE, Random, connect};
use sockdrawer::layer::{Filter, Filtering, HandshakeKind, Progress, Refused};
use sockdrawer::{Input, Output, Peer, Recipe};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const DATA: u8 = 0;
const GOODBYE: u8 = 1;
/// Asks the peer for an `UPDATED`, as a key update does.
const UPDATE: u8 = 2;
const UPDATED: u8 = 3;
const HEAD: usize = 3;
const MOST: usize = 16 * 1024;

/// The layer.
#[derive(Clone, Copy)]
pub(crate) struct Recording;

/// Number of layers down to the socket, which the filter knows.
pub(crate) struct Depth(pub(crate) usize);

/// The filter of either end.
pub(crate) struct Records {
    established: bool,
    resumed: bool,
    sent: u64,
    received: u64,
}

impl Filtering for Recording {
    type Filter = Records;
    fn filter(&self, _peer: &Peer) -> Records {
        Records { established: false, resumed: false, sent: 0, received: 0 }
    }
    fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(300)
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "records".to_owned(), options: vec![7] })
    }
}

/// Returns the key of a byte of a record.
fn key(record: u64, at: usize) -> u8 {
    (record as u8).wrapping_mul(31).wrapping_add(at as u8) ^ 0xA5
}

impl Records {
    fn append(&mut self, kind: u8, plain: &[u8], wire: &mut Output) {
        let check = plain.iter().fold(kind, |sum, byte| sum.wrapping_add(*byte));
        wire.push(&[kind]);
        wire.push(&(plain.len() as u16 + 1).to_be_bytes());
        let body = plain.iter().chain([&check]).enumerate();
        let body: Vec<u8> = body.map(|(at, byte)| byte ^ key(self.sent, at)).collect();
        wire.push(&body);
        self.sent += 1;
    }
}

impl Filter for Records {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if !self.established {
            let Some(hello) = wire.exactly(2) else { return Ok(Progress::NeedMore) };
            self.resumed = hello == b"RE";
            if hello != b"HI" && !self.resumed {
                return Err(Refused::because("a record of another kind"));
            }
            back.push(b"OK");
            self.established = true;
            return Ok(Progress::Established(None));
        }
        loop {
            let Some(&[kind, high, low]) = wire.bytes().first_chunk::<HEAD>() else { return Ok(Progress::NeedMore) };
            let length = usize::from(u16::from_be_bytes([high, low]));
            if kind > UPDATED || length == 0 || length > MOST + 1 {
                return Err(Refused::because("a record of another kind"));
            }
            let Some(record) = wire.exactly(HEAD + length) else { return Ok(Progress::NeedMore) };
            let from = plain.len();
            plain.extend(record[HEAD..].iter().enumerate().map(|(at, byte)| byte ^ key(self.received, at)));
            self.received += 1;
            let check = plain.pop().expect("a record has a byte at least");
            if check != plain[from..].iter().fold(kind, |sum, byte| sum.wrapping_add(*byte)) {
                return Err(Refused::because("a record of another kind"));
            }
            match kind {
                DATA => return Ok(Progress::Plain),
                GOODBYE => return Ok(Progress::PeerEnded),
                UPDATE => self.append(UPDATED, b"", back),
                _ => {}
            }
        }
    }
    fn handshake(&self) -> Option<HandshakeKind> {
        Some(if self.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full })
    }
    fn knows(&mut self, peer: Peer) -> Peer {
        let depth = peer.fact().map_or(1, |Depth(outer)| outer + 1);
        peer.with_fact(Depth(depth))
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        plain.chunks(MOST).for_each(|piece| self.append(DATA, piece, wire));
    }
    fn goodbye(&mut self, wire: &mut Output) {
        self.append(GOODBYE, b"", wire);
    }
    fn truncated(&mut self) -> Result<(), Refused> {
        Err(Refused::because("a record of another kind"))
    }
}

/// The other end, under as many layers; the first is the next to the socket.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    layers: Vec<Records>,
    /// Bytes that each layer has not decoded, then plain bytes.
    kept: Vec<Vec<u8>>,
    /// Number of layers, from the socket, that have had the peer's goodbye.
    ended: usize,
    random: Random,
    /// Numbers of wire bytes that were sent and received.
    pub(crate) counts: (u64, u64),
}

impl Client {
    pub(crate) fn connect(at: SocketAddr, depth: usize) -> Client {
        let stream = connect(at);
        stream.set_nodelay(true).expect("TCP");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let mut client = Client {
            stream,
            layers: Vec::new(),
            kept: vec![Vec::new()],
            ended: 0,
            random: Random(depth as u64 + 1),
            counts: (0, 0),
        };
        for _ in 0..depth {
            client.send(b"HI");
            assert_eq!(client.read(2).expect("an answer"), b"OK");
            client.layers.push(Records { established: true, resumed: false, sent: 0, received: 0 });
            // Bytes that follow the answer are the new layer's.
            client.kept.push(Vec::new());
        }
        client
    }

    /// Returns the wire bytes of what is written at layer `depth`.
    fn through(&mut self, depth: usize, mut out: Output) -> Vec<u8> {
        for layer in self.layers[..depth].iter_mut().rev() {
            let mut wire = Output::default();
            layer.encode(out.bytes(), &mut wire);
            out = wire;
        }
        out.bytes().to_vec()
    }

    /// Returns the wire bytes of plain ones.
    pub(crate) fn record(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Output::default();
        out.push(plain);
        self.through(self.layers.len(), out)
    }

    /// Sends wire bytes.
    pub(crate) fn write(&mut self, wire: &[u8]) {
        self.stream.write_all(wire).expect("it stands");
        self.counts.0 += wire.len() as u64;
    }

    pub(crate) fn send(&mut self, plain: &[u8]) {
        let wire = self.record(plain);
        self.write(&wire);
    }

    /// Sends in pieces of any size, each a segment of its own.
    pub(crate) fn send_split(&mut self, plain: &[u8]) {
        let mut wire = &self.record(plain)[..];
        while !wire.is_empty() {
            let most = if self.random.below(2) == 0 { 4 } else { 2000 };
            let (piece, rest) = wire.split_at((1 + self.random.below(most) as usize).min(wire.len()));
            self.write(piece);
            wire = rest;
        }
    }

    /// Returns the wire bytes that have the innermost filter of the peer answer.
    pub(crate) fn update(&mut self) -> Vec<u8> {
        let (mut out, innermost) = (Output::default(), self.layers.len() - 1);
        self.layers[innermost].append(UPDATE, b"", &mut out);
        self.through(innermost, out)
    }

    /// Says goodbye at every layer, and ends the stream.
    pub(crate) fn finish(&mut self) {
        for depth in (0..self.layers.len()).rev() {
            let mut out = Output::default();
            self.layers[depth].goodbye(&mut out);
            let wire = self.through(depth, out);
            self.write(&wire);
        }
        self.stream.shutdown(Shutdown::Write).expect("it stands");
    }

    /// Returns plain bytes, until there are `count`.
    pub(crate) fn read(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.kept.last().expect("plain bytes").len() < count {
            if !self.receive()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.kept.last_mut().expect("plain bytes").drain(..count).collect())
    }

    /// Returns all plain bytes up to the end of the wire, and whether all layers had said goodbye.
    pub(crate) fn read_all(&mut self) -> io::Result<(Vec<u8>, bool)> {
        while self.receive()? {}
        Ok((std::mem::take(self.kept.last_mut().expect("plain bytes")), self.ended == self.layers.len()))
    }

    /// Reads and decodes once; false at the end of the wire.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 5000];
        let count = self.stream.read(&mut bytes)?;
        self.kept[0].extend_from_slice(&bytes[..count]);
        self.counts.1 += count as u64;
        for (at, layer) in self.layers.iter_mut().enumerate() {
            let (mut wire, mut plain, mut back) = (std::mem::take(&mut self.kept[at]), Vec::new(), Output::default());
            let mut input = Input::new(&mut wire);
            loop {
                match layer.decode(&mut input, &mut plain, &mut back).map_err(|_| io::Error::from(ErrorKind::InvalidData))? {
                    Progress::NeedMore => break,
                    Progress::PeerEnded => self.ended += 1,
                    _ => {}
                }
            }
            let taken = input.taken();
            self.kept[at] = wire.split_off(taken);
            self.kept[at + 1].extend(plain);
        }
        Ok(count > 0)
    }
}
