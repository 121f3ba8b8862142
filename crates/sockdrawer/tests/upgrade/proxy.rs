//! Stands between the two processes of an upgrade: passes each packet on with its descriptors, and notes what it was.

use ciborium::Value;
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

/// The messages of the format. Their places are their numbers here.
pub(crate) const NAMES: [&str; 18] = [
    "Hello", "Welcome", "Refused", "Prepared", "Go", "Offer", "Restored", "Yours", "Left", "Ended", "Done", "Settled", "Replace",
    "Planned", "Replaced", "ShutDown", "Asked", "Answered",
];
pub(crate) const WELCOME: usize = 1;
pub(crate) const PREPARED: usize = 3;
pub(crate) const GO: usize = 4;
pub(crate) const OFFER: usize = 5;
pub(crate) const YOURS: usize = 7;
pub(crate) const SETTLED: usize = 11;
/// The bytes before a message in its packet.
pub(crate) const HEAD: usize = 10;

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
    pub(crate) kind: usize,
    pub(crate) bytes: Bytes,
    /// Identifiers of the connections that are offered, or the successor's.
    pub(crate) ids: Vec<u64>,
}

/// Bytes of a whole packet.
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

/// Socket to which the successor is to come instead.
pub(crate) struct Proxy(pub(crate) OwnedFd);

impl Proxy {
    pub(crate) fn at(path: &Path) -> Proxy {
        let socket = packet_socket();
        bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a free path");
        listen(&socket, 1).expect("it listens");
        Proxy(socket)
    }

    /// Returns the end of the first that comes.
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

/// Receives a packet; `None` where that end is gone, and all that it said was heard.
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

/// Returns which message a packet has, and the ids in it.
pub(crate) fn read(from: Side, bytes: &[u8]) -> Packet {
    let said = ciborium::from_reader::<Value, _>(&bytes[HEAD..]).expect("a message");
    let (name, body) = said.as_map().map_or((&said, &Value::Null), |said| (&said[0].0, &said[0].1));
    let name = name.as_text().expect("a name");
    let kind = NAMES.iter().position(|known| *known == name).expect("a message of the format");
    let ids = match kind {
        YOURS => list(body, "ids").iter().filter_map(number).collect(),
        OFFER => list(body, "records").iter().filter_map(|record| number(field(record, "id")?)).collect(),
        _ => Vec::new(),
    };
    Packet { from, kind, ids, bytes: Bytes(bytes.to_vec()) }
}

fn number(value: &Value) -> Option<u64> {
    value.as_integer()?.try_into().ok()
}

fn field<'v>(of: &'v Value, name: &str) -> Option<&'v Value> {
    of.as_map()?.iter().find(|(known, _)| known.as_text() == Some(name)).map(|(_, value)| value)
}

fn list<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    field(of, name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
