//! What two builds of a program say to each other: fields with numbers, of which unknown ones are skipped, so that each can read what the
//! other writes. A number is never used again for another field.

use crate::ipc::operations::{Accepts, Answered, Asked};
use crate::ipc::packets::{Receiver, Sender};
pub(crate) use crate::ipc::plans::{Build, Planned, PoolPlanned, Replace, Replaced};
pub(crate) use crate::ipc::state_level::{StateLevel, levels, state};
pub(crate) use crate::ipc::yours::{Noted, Yours};
use crate::protocol::{Side, State, Wiped};
use crate::sys::{Errno, Result};
use prost::Message as _;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use zeroize::Zeroize;

/// The formats that this build speaks: the lowest and the highest.
pub(crate) const FORMATS: (u32, u32) = (1, 1);

/// One message.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Packet {
    #[prost(oneof = "Said", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub(crate) said: Option<Said>,
}

/// What is said, in the order of a conversation. The predecessor is the process that is replaced, the successor the one that replaces it.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Said {
    /// The successor meets the predecessor.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// The predecessor says what it has. Listening sockets come along, in the order of the pools and their listeners, and the socket of the
    /// meeting place behind them.
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    /// The predecessor goes on as it was, for this reason.
    #[prost(message, tag = "3")]
    Refused(Refused),
    /// The successor has all that can fail.
    #[prost(message, tag = "4")]
    Prepared(Prepared),
    /// The predecessor accepts no more: the successor owns the listeners.
    #[prost(message, tag = "5")]
    Go(Go),
    /// Connections, frozen in the predecessor. Their sockets come along.
    #[prost(message, tag = "6")]
    Offer(Offer),
    /// Which of them the successor can go on with.
    #[prost(message, tag = "7")]
    Restored(Restored),
    /// Which of them are the successor's: the predecessor has closed its copies of their sockets.
    #[prost(message, tag = "8")]
    Yours(Yours),
    /// What is left of a pool in the predecessor.
    #[prost(message, tag = "9")]
    Left(Held),
    /// Nothing is left.
    #[prost(message, tag = "10")]
    Ended(Ended),
    /// The successor has done as it was told.
    #[prost(message, tag = "11")]
    Done(Done),
    /// The successor stands: the predecessor may close its copies of the listening sockets.
    #[prost(message, tag = "12")]
    Settled(Settled),
    /// Any process of the user: the predecessor is to start a successor, and to say what comes of it.
    #[prost(message, tag = "13")]
    Replace(Replace),
    /// ... what is about to happen,
    #[prost(message, tag = "14")]
    Planned(Planned),
    /// ... and what has happened.
    #[prost(message, tag = "15")]
    Replaced(Replaced),
    /// A pool of the successor is shut down, and with it what the predecessor has of it.
    #[prost(message, tag = "16")]
    ShutDown(ShutDown),
    /// The successor asks for an operation on what the predecessor has of a pool,
    #[prost(message, tag = "17")]
    Asked(Asked),
    /// ... and hears what came of it.
    #[prost(message, tag = "18")]
    Answered(Answered),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) lowest_format: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) highest_format: u32,
    #[prost(string, tag = "3")]
    pub(crate) version: String,
    /// How long it may take until it is prepared, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub(crate) within: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(crate) format: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
    #[prost(string, tag = "3")]
    pub(crate) version: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) pools: Vec<Pooled>,
    /// Processes before the predecessor that still have connections.
    #[prost(uint32, tag = "5")]
    pub(crate) behind: u32,
}

/// A pool of the predecessor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pooled {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) listeners: Vec<Listened>,
}

/// An address, and how many sockets it has.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Listened {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(uint32, tag = "2")]
    pub(crate) sockets: u32,
    /// They are another program's, too.
    #[prost(bool, tag = "3")]
    pub(crate) is_shared: bool,
    /// What a service manager calls them.
    #[prost(string, optional, tag = "4")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Refused {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Prepared {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pools: Vec<Reads>,
}

/// A pool of the successor, the states that it reads, where it listens, and its limit.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Reads {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) state: Vec<StateLevel>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) listeners: Vec<String>,
    #[prost(uint64, tag = "4")]
    pub(crate) limit: u64,
}

/// The commit. What is carried may be secret: it is wiped when this is dropped, and not printed.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct Go {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pools: Vec<Held>,
    /// What services share among their connections, by the names that both builds know.
    #[prost(map = "string, bytes", tag = "2")]
    pub(crate) carried: HashMap<String, Vec<u8>>,
}

impl Drop for Go {
    fn drop(&mut self) {
        self.carried.values_mut().for_each(Zeroize::zeroize);
    }
}

impl std::fmt::Debug for Go {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let carried: Vec<_> = self.carried.iter().map(|(name, bytes)| (name, bytes.len())).collect();
        f.debug_struct("Go").field("pools", &self.pools).field("carried", &carried).finish()
    }
}

/// What a pool has from the moment on when it stops to accept, and what it has counted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Held {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Connections that count for the limit.
    #[prost(uint64, tag = "2")]
    pub(crate) connections: u64,
    /// The number of the next connection.
    #[prost(uint64, tag = "3")]
    pub(crate) next_id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) listeners: Vec<Occupied>,
    /// What was counted since the start of the first process, by the names of the counters.
    #[prost(map = "string, uint64", tag = "5")]
    pub(crate) counts: HashMap<String, u64>,
    /// When the accept rate has all of its burst again, in nanoseconds of the clock that all processes of a machine share.
    #[prost(uint64, tag = "6")]
    pub(crate) pace: u64,
    /// Of a pool that connects: how many connects have begun.
    #[prost(uint64, tag = "7")]
    pub(crate) begun: u64,
    /// Where a policy counts them: how many connections each peer has.
    #[prost(message, repeated, tag = "8")]
    pub(crate) peers: Vec<OfPeer>,
    /// The lengths of the prefixes by which addresses are one peer, of IPv4 and IPv6.
    #[prost(uint32, repeated, tag = "9")]
    pub(crate) prefixes: Vec<u32>,
    /// None: it takes connections that come.
    #[prost(message, optional, tag = "10")]
    pub(crate) accepts: Option<Accepts>,
}

impl Held {
    /// No more of it than can be: another process may be out of order.
    pub(crate) fn believed(mut self) -> Held {
        self.connections = self.connections.min(u32::MAX.into());
        for number in [&mut self.next_id, &mut self.pace, &mut self.begun].into_iter().chain(self.counts.values_mut()) {
            *number = (*number).min(u64::MAX / 4);
        }
        self.listeners.iter_mut().for_each(|one| one.connections = one.connections.min(self.connections));
        self
    }
}

/// A peer, by the first bits of its address as a number, and how many connections it has.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OfPeer {
    /// The upper and lower half of the number.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) peer: Vec<u64>,
    #[prost(uint64, tag = "2")]
    pub(crate) connections: u64,
}

impl Held {
    /// The connections of each peer, where they are counted by these prefixes.
    pub(crate) fn peers(&self, v4: u8, v6: u8) -> HashMap<u128, usize> {
        let one = |of: &OfPeer| match of.peer[..] {
            [high, low] => Some((u128::from(high) << 64 | u128::from(low), of.connections.min(self.connections) as usize)),
            _ => None,
        };
        let known = self.prefixes == [u32::from(v4), u32::from(v6)];
        if known { self.peers.iter().filter_map(one).collect() } else { HashMap::new() }
    }
}

/// An address, and how many connections that came in there count for its limit.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Occupied {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(uint64, tag = "2")]
    pub(crate) connections: u64,
    /// None: it takes connections that come, if the pool does.
    #[prost(message, optional, tag = "3")]
    pub(crate) accepts: Option<Accepts>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Offer {
    #[prost(string, tag = "1")]
    pub(crate) pool: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) records: Vec<Record>,
    /// They are of a set that is the successor's at one moment, with those of other offers.
    #[prost(bool, tag = "3")]
    pub(crate) together: bool,
}

/// A connection, but for its socket. Its state may be secret: it is wiped when the record is dropped, and not printed.
#[derive(Clone, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
#[prost(skip_debug)]
pub(crate) struct Record {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// The number by which the kernel knows its socket (`SO_COOKIE`): held against the descriptor at its place.
    #[prost(uint64, tag = "2")]
    pub(crate) cookie: u64,
    /// Seconds since it opened.
    #[prost(uint32, tag = "3")]
    pub(crate) age: u32,
    #[prost(uint64, tag = "4")]
    pub(crate) bytes_in: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) bytes_out: u64,
    /// The state that its protocol saved, and the versions that it was declared to be of.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) state: Vec<u8>,
    #[prost(uint32, repeated, tag = "7")]
    pub(crate) versions: Vec<u32>,
    /// Input that the protocol did not take.
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) kept: Vec<u8>,
    /// Output that the kernel did not take.
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) unsent: Vec<u8>,
    /// What is left of the protocol's timer, in nanoseconds.
    #[prost(uint64, optional, tag = "10")]
    pub(crate) timer: Option<u64>,
    #[prost(string, optional, tag = "11")]
    pub(crate) tag: Option<String>,
    /// The address at which it came in.
    #[prost(string, optional, tag = "12")]
    pub(crate) listener: Option<String>,
    #[prost(message, required, tag = "13")]
    pub(crate) marks: Marks,
    /// The unsent bytes at which its protocol is to be woken.
    #[prost(uint32, optional, tag = "14")]
    pub(crate) wake_below: Option<u32>,
    /// The peer's address, where a layer learned another than the kernel knows.
    #[prost(string, optional, tag = "15")]
    pub(crate) peer: Option<String>,
    /// What its state is called: its protocol's name, and those of its layers.
    #[prost(string, repeated, tag = "16")]
    pub(crate) names: Vec<String>,
    /// Nanoseconds since its peer and its protocol last took something, where the idle timeout runs.
    #[prost(uint64, optional, tag = "17")]
    pub(crate) idle: Option<u64>,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Record { id, versions, marks, .. } = self;
        f.debug_struct("Record").field("id", id).field("versions", versions).field("marks", marks).finish_non_exhaustive()
    }
}

/// What a connection is in the middle of.
#[derive(Clone, Copy, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
pub(crate) struct Marks {
    /// This side connected.
    #[prost(bool, tag = "1")]
    pub(crate) connected: bool,
    /// Its protocol paused its input.
    #[prost(bool, tag = "2")]
    pub(crate) waiting: bool,
    /// The peer's end was read.
    #[prost(bool, tag = "3")]
    pub(crate) peer_ended: bool,
    /// ... and the protocol was told.
    #[prost(bool, tag = "4")]
    pub(crate) told_ended: bool,
    /// This side's end was told, or is to be told once all is sent.
    #[prost(bool, tag = "5")]
    pub(crate) finishing: bool,
    /// Unsent output passed the high-water mark and did not fall below the low one.
    #[prost(bool, tag = "6")]
    pub(crate) full: bool,
    /// Its notes found no room in the inbox of another loop.
    #[prost(bool, tag = "7")]
    pub(crate) held: bool,
}

#[derive(Clone, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
pub(crate) struct Restored {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) ids: Vec<u64>,
    /// Why others stay; each reason once.
    #[prost(string, repeated, tag = "2")]
    pub(crate) reasons: Vec<String>,
}

impl Marks {
    pub(crate) fn side(&self) -> Side {
        if self.connected { Side::Connected } else { Side::Accepted }
    }
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Ended {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Done {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Settled {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ShutDown {
    #[prost(string, tag = "1")]
    pub(crate) pool: String,
    /// How long its connections may take to end, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub(crate) within: u64,
}

impl Prepared {
    /// The state that a pool of the successor reads.
    pub(crate) fn reads(&self, pool: &str) -> State {
        self.pools.iter().find(|reads| reads.name == pool).map_or_else(State::none, |reads| state(&reads.state))
    }

    /// Whether a pool of the successor listens there, and goes on to.
    pub(crate) fn listens_at(&self, address: &String) -> bool {
        self.pools.iter().any(|reads| reads.listeners.contains(address))
    }
}

/// One end of a conversation: to speak.
pub(crate) fn send(
    sender: &mut Sender,
    socket: BorrowedFd<'_>,
    said: Said,
    descriptors: &[BorrowedFd<'_>],
    wait: bool,
) -> Result<()> {
    let bytes = Wiped::from(Packet { said: Some(said) }.encode_to_vec());
    sender.send(socket, &bytes, descriptors, wait)
}

/// ... and to listen. None when the other end is gone; the end of one that was killed with unread messages is told by an error first,
/// behind which they are still there.
pub(crate) fn receive(receiver: &mut Receiver, socket: BorrowedFd<'_>) -> Result<Option<(Said, Option<Vec<OwnedFd>>)>> {
    let received = match receiver.receive(socket, true) {
        Err(Errno::CONNRESET) => receiver.receive(socket, true),
        received => received,
    };
    let Some(received) = received? else { return Ok(None) };
    // The decoder copies bytes twice where the first copy can share no memory with the message, and wipes neither.
    let packet = Packet::decode(prost::bytes::Bytes::from_owner(received.bytes)).map_err(|_| Errno::BADMSG)?;
    let said = packet.said.ok_or(Errno::BADMSG)?;
    Ok(Some((said, received.descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::passing::packet_pair;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn what_is_carried_is_not_printed() {
        let go = Go { pools: Vec::new(), carried: HashMap::from([("keys".to_owned(), vec![115; 32])]) };
        assert_eq!(format!("{:?}", Said::Go(go)), r#"Go(Go { pools: [], carried: [("keys", 32)] })"#);
    }

    #[test]
    fn what_is_said_arrives_and_unknown_fields_are_skipped() {
        let (one, two) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let said = Said::Yours(Yours { ids: vec![1, 2, u64::MAX], ..Yours::default() });
        send(&mut Sender::default(), one.as_fd(), said.clone(), &[two.as_fd()], true).expect("sent");
        let (heard, descriptors) = receive(&mut Receiver::default(), two.as_fd()).expect("no error").expect("a message");
        assert_eq!((heard, descriptors.map(|passed| passed.len())), (said, Some(1)));
        // Field 200, of a later format: 200 * 8 in bytes of 7 bits, and a number.
        let mut bytes = Packet { said: Some(Said::Ended(Ended {})) }.encode_to_vec();
        bytes.extend([0xc0, 0x0c, 7]);
        Sender::default().send(one.as_fd(), &bytes, &[], true).expect("sent");
        assert!(matches!(receive(&mut Receiver::default(), two.as_fd()), Ok(Some((Said::Ended(_), _)))));
        Sender::default().send(one.as_fd(), b"\xff garbage", &[], true).expect("sent");
        assert_eq!(receive(&mut Receiver::default(), two.as_fd()).map(|_| ()), Err(Errno::BADMSG));
        drop(one);
        assert!(matches!(receive(&mut Receiver::default(), two.as_fd()), Ok(None)));
    }
}
