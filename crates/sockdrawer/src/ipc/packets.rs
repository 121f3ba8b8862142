//! Messages between processes: of any length, with descriptors, as packets of a socket pair.

use crate::ipc::codec::{decode, encode};
use crate::protocol::Wiped;
use crate::sys::passing::{MAX_BYTES, MAX_DESCRIPTORS, receive_packet, send_packet};
use crate::sys::{Errno, Pages, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The longest message: a list of as many connections as a process may have is shorter.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024 * 1024;
/// Maximum number of descriptors of a message: the sockets of a thousand addresses.
const MAX_PASSED: usize = 16 * 1024;

/// The first bytes of each packet: the number of its message in this direction, whether this is the last of it, and how many
/// descriptors come along.
const HEAD_BYTES: usize = 10;

/// Sends messages of any length as packets.
#[derive(Default)]
pub(crate) struct PacketSender {
    sent: u64,
}

impl PacketSender {
    /// Sends a message. With `wait` it waits until the socket has room.
    ///
    /// # Errors
    /// `E2BIG` when it is longer than any that is received; `EAGAIN` when there is no room, with `wait` after the timeout of this end: the receiver
    /// forgets the part that was sent.
    pub(crate) fn send<T: Serialize>(
        &mut self,
        socket: BorrowedFd<'_>,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
        wait: bool,
    ) -> Result<()> {
        let bytes = encode(message)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(Errno::TOOBIG);
        }
        self.sent += 1;
        let mut parts = bytes.chunks(MAX_BYTES - HEAD_BYTES).peekable();
        let mut descriptors = descriptors.chunks(MAX_DESCRIPTORS);
        let mut part = parts.next().unwrap_or_default();
        loop {
            let passed = descriptors.next().unwrap_or_default();
            let more = parts.peek().is_some() || descriptors.len() > 0;
            let mut packet = Wiped::from(Vec::with_capacity(HEAD_BYTES + part.len()));
            packet.push(&self.sent.to_le_bytes());
            packet.push(&[u8::from(!more), passed.len() as u8]);
            packet.push(part);
            send_packet(socket, &packet, passed, wait)?;
            if !more {
                return Ok(());
            }
            part = parts.next().unwrap_or_default();
        }
    }
}

/// A message, and the descriptors that came along.
pub(crate) type Passed<T> = (T, Option<Vec<OwnedFd>>);

/// Puts messages together again.
#[derive(Default)]
pub(crate) struct Receiver {
    /// The part that has come of the message on its way.
    message: Packet,
}

#[derive(Default)]
struct Packet {
    number: u64,
    bytes: Wiped,
    descriptors: Vec<OwnedFd>,
    /// Some of its descriptors did not arrive.
    lost: bool,
}

impl Receiver {
    /// Returns the next whole message, with its descriptors: None where one of them found no room in this process. None for both when the other end
    /// is gone. Without `wait`: `EAGAIN` where nothing has come.
    ///
    /// # Errors
    /// When what came is no message of ours, or a longer one than any of ours.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, socket: BorrowedFd<'_>, wait: bool) -> Result<Option<Passed<T>>> {
        // The packet is not kept: a process that forks has few pages.
        let mut packet = Pages::new(MAX_BYTES)?;
        loop {
            let mut passed = Vec::new();
            let Some(length) = receive_packet(socket, &mut packet, &mut passed, wait)? else { return Ok(None) };
            let (number, rest) = packet[..length].split_first_chunk().ok_or(Errno::BADMSG)?;
            let ([last @ (0 | 1), descriptors], part) = rest.split_first_chunk().ok_or(Errno::BADMSG)? else {
                return Err(Errno::BADMSG);
            };
            let number = u64::from_le_bytes(*number);
            // A sender's messages come one after another: one before this was given up in the middle.
            if self.message.number != number {
                self.message = Packet { number, ..Packet::default() };
            }
            let message = &mut self.message;
            message.bytes.push(part);
            message.lost |= usize::from(*descriptors) != passed.len();
            message.descriptors.append(&mut passed);
            if message.bytes.len() > MAX_MESSAGE || message.descriptors.len() > MAX_PASSED {
                return Err(Errno::MSGSIZE);
            }
            if *last == 1 {
                let Packet { bytes, descriptors, lost, .. } = std::mem::take(message);
                return Ok(Some((decode(&bytes)?, (!lost).then_some(descriptors))));
            }
        }
    }

    /// Bytes of a message that has not come whole.
    #[cfg(test)]
    pub(crate) fn partial(&self) -> usize {
        self.message.bytes.len()
    }
}
