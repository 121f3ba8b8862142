//! Readiness and nothing else: one buffer to read into for all connections of a thread, and what is left of a connection's
//! input or output beside it only while something is left.

use bench_peers::{PINGS, READ, Workload, Wrong, acknowledge, answer, arguments, listen, on_each_cpu, pongs};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use slab::Slab;
use std::io::{self, Read, Write};

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    stream: TcpStream,
    left: Option<Box<Left>>,
}

/// Bytes that could not be taken or sent yet.
#[derive(Default)]
struct Left {
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Next step of a connection after an event.
#[derive(PartialEq)]
enum Next {
    Read,
    Write,
    Close,
}

struct Server {
    workload: Workload,
    listener: TcpListener,
    connections: Slab<Connection>,
    buffer: Vec<u8>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (workload, port) = arguments()?;
    on_each_cpu(move || serve(workload, port))?;
    Ok(())
}

fn serve(workload: Workload, port: u16) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::from_std(listen(port)?);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let size = match workload {
        Workload::Ping => PINGS,
        Workload::Http | Workload::Acks => READ,
    };
    let mut server = Server { workload, listener, connections: Slab::new(), buffer: vec![0; size] };
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER { server.accept(poll.registry())? } else { server.ready(event, poll.registry())? }
        }
    }
}

impl Server {
    fn accept(&mut self, registry: &Registry) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut connection = Connection { stream, left: None };
            // A request is mostly there already, and its answer ends the connection: nobody needs to be told of it. What comes after
            // this read is an event of the registration.
            if matches!(self.workload, Workload::Http)
                && !matches!(connection.drive(self.workload, &mut self.buffer), Ok(Next::Read))
            {
                continue;
            }
            let entry = self.connections.vacant_entry();
            registry.register(&mut connection.stream, Token(entry.key()), Interest::READABLE)?;
            entry.insert(connection);
        }
    }

    fn ready(&mut self, event: &Event, registry: &Registry) -> io::Result<()> {
        let Token(key) = event.token();
        let connection = &mut self.connections[key];
        // A failure ends this connection alone.
        match connection.drive(self.workload, &mut self.buffer).unwrap_or(Next::Close) {
            Next::Close => drop(self.connections.remove(key)),
            Next::Write => registry.reregister(&mut connection.stream, event.token(), Interest::READABLE | Interest::WRITABLE)?,
            Next::Read if event.is_writable() => {
                registry.reregister(&mut connection.stream, event.token(), Interest::READABLE)?
            }
            Next::Read => {}
        }
        Ok(())
    }
}

impl Connection {
    /// Reads until nothing is left in the socket, which a short read says as well as a read that finds nothing.
    fn drive(&mut self, workload: Workload, buffer: &mut Vec<u8>) -> io::Result<Next> {
        loop {
            let left = self.left.take().map_or_else(Left::default, |left| *left);
            if !left.output.is_empty() && !self.send(&left.output, left.input.clone())? {
                return Ok(Next::Write);
            }
            let kept = left.input.len();
            if buffer.len() < kept + READ / 4 && !matches!(workload, Workload::Ping) {
                buffer.resize(kept + READ, 0);
            }
            buffer[..kept].copy_from_slice(&left.input);
            let read = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Ok(Next::Close),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.keep(left.input, Vec::new());
                    return Ok(Next::Read);
                }
                Err(error) => return Err(error),
            };
            let end = kept + read;
            let drained = end < buffer.len();
            match self.take(workload, &buffer[..end])? {
                Next::Read if !drained => {}
                next => return Ok(next),
            }
        }
    }

    /// Takes what is whole, answers it and keeps the rest.
    fn take(&mut self, workload: Workload, input: &[u8]) -> Result<Next, io::Error> {
        let wrong = |Wrong| io::Error::from(io::ErrorKind::InvalidData);
        let sent = match workload {
            Workload::Ping => {
                let pongs = pongs(input).map_err(wrong)?;
                self.send(pongs, input[pongs.len()..].to_vec())?
            }
            Workload::Http => match answer(input).map_err(wrong)? {
                // The socket is new: it has room for 57 bytes.
                Some(answer) => return self.stream.write_all(answer).map(|()| Next::Close),
                None => self.send(&[], input.to_vec())?,
            },
            Workload::Acks => {
                let (used, ack) = acknowledge(input).map_err(wrong)?;
                self.send(ack.as_ref().map_or(&[], |ack| &ack[..]), input[used..].to_vec())?
            }
        };
        Ok(if sent { Next::Read } else { Next::Write })
    }

    /// Sends at once, and keeps the input and what the kernel did not take; false if there is such a rest.
    fn send(&mut self, output: &[u8], input: Vec<u8>) -> io::Result<bool> {
        let sent = match output {
            [] => 0,
            _ => match self.stream.write(output) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                written => written?,
            },
        };
        self.keep(input, output[sent..].to_vec());
        Ok(sent == output.len())
    }

    fn keep(&mut self, input: Vec<u8>, output: Vec<u8>) {
        if !input.is_empty() || !output.is_empty() {
            self.left = Some(Box::new(Left { input, output }));
        }
    }
}
