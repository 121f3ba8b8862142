//! A client that sends and does not read until the server is replaced: its echo waits there, because the kernel takes no more of it.

use crate::exchange::{Dialogue, Exchange, Judgement};
use crate::{Counter, Echo, Group, PATIENCE, Tally, Witness};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;

/// The buffers of the client in the kernel: what it sends at most is a little more than the server's buffers.
const BUFFER: usize = 16 * 1024;
/// The size of a block.
const BLOCK: u64 = 4096;
/// Time after which a server that takes nothing takes no more before the client reads.
const TAKES_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The client, with all that it sent.
pub(crate) struct Full {
    stream: TcpStream,
    dialogue: <Echo as Exchange>::Dialogue,
    counter: Arc<Counter>,
}

impl Full {
    /// Connects as the `number`th probe, and sends until the server takes no more.
    pub(crate) fn send(server: SocketAddrV4, number: u64, tally: &Arc<Tally>) -> io::Result<Full> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_send_buffer_size(&socket, BUFFER)?;
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        bind(&socket, &SocketAddr::new(Group::Probe.source(number), 0))?;
        connect(&socket, &server)?;
        let (counter, stream) = (tally.witness(Group::Probe), TcpStream::from(socket));
        counter.stood();
        let mut full = Full { stream, dialogue: Echo::new(number, BLOCK, BLOCK).dialogue(), counter };
        full.fill()?;
        full.stream.set_nonblocking(false)?;
        full.stream.set_read_timeout(Some(PATIENCE))?;
        Ok(full)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        loop {
            let mut block = Vec::new();
            self.dialogue.ask(&mut |bytes| block.extend_from_slice(bytes));
            let mut left = &block[..];
            while !left.is_empty() {
                match self.stream.write(left) {
                    Ok(sent) => left = &left[sent..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let writable = PollFd::new(&self.stream, PollFlags::OUT);
                        if retry_on_intr(|| poll(&mut [writable.clone()], Some(&TAKES_WITHIN)))? == 0 {
                            self.dialogue.not_sent(left.len() as u64);
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Reads all of its echo, and ends. Counts what is wrong or missing.
    pub(crate) fn read(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let (mut bytes, mut judged) = (vec![0; 64 * 1024], Judgement::More);
        loop {
            let came = retry_on_intr(|| rustix::io::read(&self.stream, &mut bytes[..]))?;
            if came == 0 {
                break;
            }
            judged = self.dialogue.judge(&bytes[..came]);
            if let Judgement::Wrong(count) = judged {
                self.counter.wrong(count);
                break;
            }
        }
        match judged {
            Judgement::More => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
