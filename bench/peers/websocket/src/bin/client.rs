//! The load, for all servers alike, which checks every byte of every message that comes. `echo`: each connection has one message of 64 bytes
//! under way. `room`: the first connection sends batches of messages, each once all connections have all of the one before.
//!
//! usage: `client echo|room PORT plain|tls AUTHORITY CONNECTIONS COUNT BATCH`. It says READY when all connections have had an answer, waits for a
//! line, exchanges COUNT messages, says in a line of JSON how many came and in how many seconds, and keeps its connections until its input ends.
//! An answer that is wrong or missing ends it with 1.

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::error::Error;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MESSAGE: usize = 64;
const READ: usize = 64 * 1024;
/// The time without anything that comes after which the server is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The key of RFC 6455, 1.3, and the answer to it.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// Returns the message of a connection with this number: no two are equal.
fn message(connection: usize, number: u64) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    let mut state = ((connection as u64) << 40 | number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Appends a frame of a client: masked, by a key that no byte of it tells.
fn put(kind: u8, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind, 0x80 | payload.len() as u8]);
    out.extend_from_slice(&key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

fn key(connection: usize, number: u64) -> [u8; 4] {
    let state = (number << 20 ^ connection as u64).wrapping_mul(0xd134_2543_de82_ef95) >> 32;
    (state as u32).to_le_bytes()
}

enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Tls(stream) => &stream.sock,
        }
    }

    fn both(&mut self) -> (&mut dyn Read, bool) {
        match self {
            Socket::Plain(socket) => (socket, false),
            Socket::Tls(stream) => (stream, true),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Tls(stream) => stream,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)?;
        self.writer().flush()
    }
}

/// A WebSocket.
struct Link {
    socket: Socket,
    /// A part of a frame.
    rest: Vec<u8>,
    /// Messages that have come.
    seen: u64,
    out: Vec<u8>,
}

impl Link {
    fn open(port: u16, tls: Option<&Arc<ClientConfig>>) -> Result<Link> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut socket = match tls {
            None => Socket::Plain(socket),
            Some(config) => {
                let tls = ClientConnection::new(config.clone(), ServerName::try_from("localhost")?)?;
                Socket::Tls(Box::new(StreamOwned::new(tls, socket)))
            }
        };
        socket.send(REQUEST)?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            socket.both().0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        if !head.starts_with("HTTP/1.1 101 ") || !head.contains(ACCEPT) {
            return Err(format!("the server opens no WebSocket: {head}").into());
        }
        Ok(Link { socket, rest: Vec::new(), seen: 0, out: Vec::new() })
    }

    /// Sends a frame and waits for another.
    fn exchange(&mut self, kind: u8, payload: &[u8], answer: u8) -> Result<()> {
        let mut out = Vec::new();
        put(kind, payload, [1, 2, 3, 4], &mut out);
        self.socket.send(&out)?;
        let mut expected = vec![answer, payload.len() as u8];
        expected.extend_from_slice(payload);
        let mut came = vec![0; expected.len()];
        self.socket.both().0.read_exact(&mut came)?;
        if came == expected { Ok(()) } else { Err("another answer than the message".into()) }
    }

    /// Reads all that is there; `each` is called with the number of each message of this connection, and with the message.
    fn receive(&mut self, buffer: &mut [u8], mut each: impl FnMut(u64, &[u8], &mut Vec<u8>) -> Result<()>) -> Result<()> {
        loop {
            let (reader, is_tls) = self.socket.both();
            let length = match reader.read(buffer) {
                Ok(0) => return Err("the server ended a connection".into()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if self.rest.is_empty() {
                let used = frames(&buffer[..length], &mut self.seen, &mut self.out, &mut each)?;
                self.rest.extend_from_slice(&buffer[used..length]);
            } else {
                self.rest.extend_from_slice(&buffer[..length]);
                let used = frames(&self.rest, &mut self.seen, &mut self.out, &mut each)?;
                self.rest.drain(..used);
            }
            if !self.out.is_empty() {
                self.socket.send(&self.out)?;
                self.out.clear();
            }
            // There was no more of plain bytes; more would be a new event.
            if !is_tls && length < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// Takes whole frames and says how many bytes they had.
fn frames(
    bytes: &[u8],
    seen: &mut u64,
    out: &mut Vec<u8>,
    each: &mut impl FnMut(u64, &[u8], &mut Vec<u8>) -> Result<()>,
) -> Result<usize> {
    let mut left = bytes;
    while let [kind, length, rest @ ..] = left {
        if *length > 125 {
            return Err("a frame is longer than any that is expected, or masked".into());
        }
        let Some((payload, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        match *kind {
            BINARY => {
                each(*seen, payload, out)?;
                *seen += 1;
            }
            PING => put(PONG, payload, [5, 6, 7, 8], out),
            PONG => {}
            CLOSE => return Err("the server closed a WebSocket".into()),
            _ => return Err("a frame of another kind than expected".into()),
        }
        left = rest;
    }
    Ok(bytes.len() - left.len())
}

struct Load {
    links: Vec<Link>,
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
}

impl Load {
    fn opened(port: u16, tls: Option<&Arc<ClientConfig>>, connections: usize, is_room: bool) -> Result<Load> {
        let poll = Poll::new()?;
        let mut links = Vec::with_capacity(connections);
        for number in 0..connections {
            let mut link = Link::open(port, tls)?;
            // The answer to a ping says that the server's protocol of this connection runs, and has joined the room.
            match is_room {
                true => link.exchange(PING, b"there?", PONG)?,
                false => link.exchange(BINARY, &message(number, u64::MAX), BINARY)?,
            }
            let socket = link.socket.tcp();
            socket.set_nonblocking(true)?;
            poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(number), Interest::READABLE)?;
            links.push(link);
        }
        Ok(Load { links, poll, events: Events::with_capacity(1024), buffer: vec![0; READ] })
    }

    fn wait(&mut self, time: Duration) -> Result<()> {
        self.poll.poll(&mut self.events, Some(time))?;
        if self.events.is_empty() && time == PATIENCE {
            return Err(format!("nothing came for {PATIENCE:?}").into());
        }
        Ok(())
    }

    fn echoes(&mut self, count: u64) -> Result<u64> {
        let (mut issued, mut done) = (0, 0);
        for (number, link) in self.links.iter_mut().enumerate().take(usize::try_from(count)?) {
            let mut out = Vec::new();
            put(BINARY, &message(number, 0), key(number, 0), &mut out);
            link.socket.send(&out)?;
            issued += 1;
        }
        while done < count {
            self.wait(PATIENCE)?;
            for event in &self.events {
                let connection = event.token().0;
                self.links[connection].receive(&mut self.buffer, |number, payload, out| {
                    if payload != message(connection, number) {
                        return Err("another message than was sent".into());
                    }
                    done += 1;
                    if issued < count {
                        put(BINARY, &message(connection, number + 1), key(connection, number + 1), out);
                        issued += 1;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(done)
    }

    /// Messages to all, and how many were delivered.
    fn fan_out(&mut self, count: u64, batch: u64) -> Result<u64> {
        let messages: Vec<_> = (0..count).map(|number| message(0, number)).collect();
        let (mut sent, mut delivered, mut unsent) = (0, 0, Vec::new());
        while delivered < count * self.links.len() as u64 {
            if delivered == sent * self.links.len() as u64 {
                for number in sent..count.min(sent + batch) {
                    put(BINARY, &messages[usize::try_from(number)?], key(0, number), &mut unsent);
                    sent += 1;
                }
            }
            while !unsent.is_empty() {
                match self.links[0].socket.writer().write(&unsent) {
                    Ok(length) => drop(unsent.drain(..length)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
            self.wait(if unsent.is_empty() { PATIENCE } else { Duration::from_millis(1) })?;
            for event in &self.events {
                self.links[event.token().0].receive(&mut self.buffer, |number, payload, _| {
                    delivered += 1;
                    match messages.get(usize::try_from(number)?) {
                        Some(expected) if expected == payload => Ok(()),
                        _ => Err("another message than the next that was sent".into()),
                    }
                })?;
            }
        }
        Ok(delivered)
    }
}

fn tls_config(authority: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, port, layer, authority, connections, count, batch] = &words[..] else {
        return Err("usage: client echo|room PORT plain|tls AUTHORITY CONNECTIONS COUNT BATCH".into());
    };
    let tls = if layer == "tls" { Some(tls_config(authority)?) } else { None };
    let (is_room, count) = (what == "room", count.parse()?);
    let mut load = Load::opened(port.parse()?, tls.as_ref(), connections.parse()?, is_room)?;
    println!("READY {connections}");
    let mut input = io::stdin().lock();
    if input.read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    let started = Instant::now();
    let done = if is_room { load.fan_out(count, batch.parse()?)? } else { load.echoes(count)? };
    println!("{{\"done\": {done}, \"seconds\": {:.4}}}", started.elapsed().as_secs_f64());
    io::copy(&mut input, &mut io::sink())?;
    Ok(())
}
