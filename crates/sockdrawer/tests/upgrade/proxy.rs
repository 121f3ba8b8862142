//! Stands between the two processes of an upgrade: passes each packet on with its descriptors, and notes what it was.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg, shutdown,
    socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Which messages they are, by their numbers in the format.
pub(crate) const GO: u8 = 5;
pub(crate) const OFFER: u8 = 6;
pub(crate) const YOURS: u8 = 8;
pub(crate) const PREPARED: u8 = 4;
pub(crate) const WELCOME: u8 = 2;
pub(crate) const SETTLED: u8 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The old build.
    Predecessor,
    /// The new one.
    Successor,
}

/// A packet that was passed on.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every program of tests reads all of it")]
pub(crate) struct Packet {
    pub(crate) from: Side,
    pub(crate) kind: u8,
    pub(crate) bytes: Bytes,
    /// Of the connections that are offered, or the successor's.
    pub(crate) ids: Vec<u64>,
}

/// All bytes of a packet.
#[derive(Clone)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The two processes.
#[derive(Clone, Copy)]
pub(crate) struct Pids {
    pub(crate) predecessor: u32,
    pub(crate) successor: u32,
}

/// Where the successor is to come instead.
pub(crate) struct Proxy(pub(crate) OwnedFd);

impl Proxy {
    pub(crate) fn at(path: &Path) -> Proxy {
        let socket = packet_socket();
        bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a free path");
        listen(&socket, 1).expect("it listens");
        Proxy(socket)
    }

    /// The end of the first that comes.
    pub(crate) fn accept(&self) -> OwnedFd {
        accept_with(&self.0, SocketFlags::CLOEXEC).expect("a successor")
    }

    /// Passes packets on until both ends are gone. `act` is called before and after each. Returns all of them.
    pub(crate) fn pass_on(self, path: &Path, to: &Path, mut act: impl FnMut(usize, bool, &Pids)) -> Vec<Packet> {
        let successor = self.accept();
        // A second attempt finds nothing here.
        std::fs::remove_file(path).expect("its own path");
        drop(self);
        let predecessor = packet_socket();
        connect(&predecessor, &SocketAddrUnix::new(to).expect("a path")).expect("a predecessor");
        let pid = |end: &OwnedFd| sockopt::socket_peercred(end).expect("a peer").pid.as_raw_pid().cast_unsigned();
        let pids = Pids { predecessor: pid(&predecessor), successor: pid(&successor) };
        let (ends, mut open, mut passed) = ([predecessor, successor], [true, true], Vec::new());
        while open.contains(&true) {
            for (from, to) in readable(&ends, open).into_iter().map(|from| (from, 1 - from)) {
                let Some((bytes, descriptors)) = receive(&ends[from]) else {
                    open[from] = false;
                    // The other hears the end; what it still says is heard here.
                    let _ = shutdown(&ends[to], Shutdown::Write);
                    continue;
                };
                passed.push(read([Side::Predecessor, Side::Successor][from], &bytes));
                act(passed.len(), false, &pids);
                send(&ends[to], &bytes, &descriptors);
                drop(descriptors);
                act(passed.len(), true, &pids);
            }
        }
        passed
    }
}

pub(crate) fn packet_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn readable(ends: &[OwnedFd; 2], open: [bool; 2]) -> Vec<usize> {
    let which: Vec<usize> = (0..2).filter(|end| open[*end]).collect();
    let mut waits: Vec<PollFd<'_>> = which.iter().map(|end| PollFd::new(&ends[*end], PollFlags::IN)).collect();
    poll(&mut waits, None).expect("poll");
    which.into_iter().zip(waits).filter(|(_, end)| !end.revents().is_empty()).map(|(end, _)| end).collect()
}

/// None: that end is gone, and all that it said was heard.
pub(crate) fn receive(from: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 64 * 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            // It was killed with unread packets; what it said stands behind this.
            Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::INTR) => {}
            received => break received.expect("a packet"),
        }
    };
    if received.bytes == 0 {
        return None;
    }
    bytes.truncate(received.bytes);
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(passed) => Some(passed),
        _ => None,
    };
    Some((bytes, control.drain().filter_map(rights).flatten().collect()))
}

pub(crate) fn send(to: &OwnedFd, bytes: &[u8], descriptors: &[OwnedFd]) {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for all of them");
    }
    // A process that is gone hears no more.
    let _ = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// Which message begins in a packet, and the ids in it. The head of a packet has 10 bytes.
pub(crate) fn read(from: Side, bytes: &[u8]) -> Packet {
    let (kind, body) = fields(&bytes[10..]).next().expect("a message");
    let ids = match kind {
        YOURS => fields(body).filter(|(field, _)| *field == 1).flat_map(|(_, list)| numbers(list)).collect(),
        OFFER => fields(body).filter(|(field, _)| *field == 2).filter_map(|(_, record)| id(record)).collect(),
        _ => Vec::new(),
    };
    Packet { from, kind, ids, bytes: Bytes(bytes.to_vec()) }
}

/// A record begins with its id.
fn id(record: &[u8]) -> Option<u64> {
    record.split_first().filter(|(field, _)| **field == 1 << 3).map(|(_, rest)| number(rest).0)
}

/// The fields of a message that are no mere numbers, up to the first that is one.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (field, rest) = bytes.split_first().filter(|(field, _)| **field & 7 == 2)?;
        let (length, rest) = number(rest);
        let inner;
        (inner, bytes) = rest.split_at_checked(length as usize)?;
        Some((field >> 3, inner))
    })
}

fn numbers(mut bytes: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let one;
        (one, bytes) = number(bytes);
        all.push(one);
    }
    all
}

/// A number of 7 bits to each byte, and what is behind it.
pub(crate) fn number(bytes: &[u8]) -> (u64, &[u8]) {
    let length = bytes.iter().position(|byte| *byte < 0x80).map_or(bytes.len(), |last| last + 1);
    let value = bytes[..length].iter().rev().fold(0, |value, byte| (value << 7) | u64::from(byte & 0x7f));
    (value, &bytes[length..])
}
