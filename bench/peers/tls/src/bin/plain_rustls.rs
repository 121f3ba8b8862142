//! rustls and readiness, nothing else: one thread, and one buffer for the plain bytes of all connections.

use bench_tls::{Arguments, BLOCK, BLOCK_SENT, Mode};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use rustls::{ServerConfig, ServerConnection};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    stream: TcpStream,
    tls: ServerConnection,
    sends: bool,
    ends: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let config = arguments.config()?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::from_std(arguments.listen()?);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (mut connections, mut buffer) = (Slab::new(), vec![0; BLOCK]);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Token(key) = event.token();
            if event.token() == LISTENER {
                accept(&listener, poll.registry(), &config, &mut connections)?;
            } else if !connections.get_mut(key).is_some_and(|found: &mut Connection| found.is_open(arguments.mode, &mut buffer)) {
                // A failure ends this connection alone.
                connections.try_remove(key);
            }
        }
    }
}

type Made = Result<(), Box<dyn std::error::Error>>;

fn accept(listener: &TcpListener, registry: &Registry, config: &Arc<ServerConfig>, connections: &mut Slab<Connection>) -> Made {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let entry = connections.vacant_entry();
        registry.register(&mut stream, Token(entry.key()), Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Connection { stream, tls: ServerConnection::new(config.clone())?, sends: false, ends: false });
    }
}

impl Connection {
    fn is_open(&mut self, mode: Mode, buffer: &mut [u8]) -> bool {
        match self.drive(mode, buffer) {
            Ok(()) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Reads and writes until the socket would block, or the connection is over.
    fn drive(&mut self, mode: Mode, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.stream)?;
            }
            if self.ends {
                return Ok(());
            }
            if self.sends {
                self.tls.writer().write_all(&BLOCK_SENT)?;
                continue;
            }
            if self.tls.read_tls(&mut self.stream)? == 0 {
                return Ok(());
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
            self.take(mode, buffer)?;
        }
    }

    fn take(&mut self, mode: Mode, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(0) => {
                    self.tls.send_close_notify();
                    self.ends = true;
                    return Ok(());
                }
                Ok(read) if mode.returns() => self.tls.writer().write_all(&buffer[..read])?,
                Ok(_) => self.sends |= mode == Mode::Source,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
