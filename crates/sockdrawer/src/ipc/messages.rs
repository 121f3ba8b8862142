//! Messages between two builds of a program. A field or message that was in a release keeps its name and meaning: the other build may be of it.

use crate::admission::AcceptState;
use crate::ipc::operations::{Answered, Asked};
use crate::ipc::packets::{Passed, Receiver};
pub(crate) use crate::ipc::plans::{BuildId, Planned, PoolPlanned, ReplaceReport, ReplaceRequest};
use crate::ipc::record::{Record, Restored};
use crate::ipc::state_level;
use crate::ipc::yours::Yours;
use crate::protocol::{State, Wiped};
use crate::sys::{Errno, Result};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// The formats that this build speaks: the lowest and the highest.
pub(crate) const FORMATS: (u32, u32) = (1, 1);

/// A message; the variants stand in the order of a conversation. The predecessor is the process that is replaced, the successor the one that replaces
/// it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Said {
    /// The successor meets the predecessor.
    Hello(Hello),
    /// The predecessor says what it has. Listening sockets come along, in the order of the pools and their listeners, and the socket of the
    /// meeting place behind them.
    Welcome(Welcome),
    /// The predecessor goes on as it was, for this reason.
    Refused(RefusedSuccessor),
    /// The successor has all that can fail.
    Prepared(Prepared),
    /// The predecessor accepts no more: the successor owns the listeners.
    Go(Go),
    /// Connections, frozen in the predecessor. Their sockets come along.
    Offer(Offer),
    /// The connections among them that the successor can go on with.
    Restored(Restored),
    /// The connections among them that are the successor's: the predecessor has closed its copies of their sockets.
    Yours(Yours),
    /// The part of a pool that is left in the predecessor.
    Left(Held),
    /// Nothing is left in the predecessor.
    Ended,
    /// The successor has done as it was told.
    Done,
    /// The successor stands: the predecessor may close its copies of the listening sockets.
    Settled,
    /// Any process of the user asks the predecessor to start a successor, and to say what comes of it.
    Replace(ReplaceRequest),
    /// The answer to that: what is about to happen.
    Planned(Planned),
    /// The last answer to that: what has happened.
    Replaced(ReplaceReport),
    /// A pool of the successor is shut down, and with it what the predecessor has of it.
    ShutDown(ShutDown),
    /// The successor asks for an operation on what the predecessor has of a pool.
    Asked(Asked),
    /// The predecessor says what came of the operation.
    Answered(Answered),
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Hello {
    pub(crate) lowest_format: u32,
    pub(crate) highest_format: u32,
    pub(crate) version: String,
    /// Maximum time until the successor is prepared, in milliseconds.
    pub(crate) within: u64,
    /// The process that it may replace, by its number, or `any`. None: it may replace none, or is of a build that did not say so.
    pub(crate) replaces: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Welcome {
    pub(crate) format: u32,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) pools: Vec<Pooled>,
}

/// A pool of the predecessor.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Pooled {
    pub(crate) name: String,
    pub(crate) listeners: Vec<Listened>,
}

/// An address, and how many sockets it has.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Listened {
    pub(crate) address: String,
    pub(crate) sockets: u32,
    /// The sockets are another program's, too.
    pub(crate) is_shared: bool,
    /// The name that a service manager gives the sockets.
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct RefusedSuccessor {
    pub(crate) reason: String,
    /// The process that a successor does not replace, by its number; None: the one that hears it.
    pub(crate) to: Option<String>,
}

impl RefusedSuccessor {
    pub(crate) fn because(reason: String) -> RefusedSuccessor {
        RefusedSuccessor { reason, to: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Prepared {
    pub(crate) pools: Vec<Reads>,
    /// The names of what it carries. None: it is of a build that did not say so.
    pub(crate) carried: Option<Vec<String>>,
}

/// A pool of the successor, the states that it reads, where it listens, and its limit.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Reads {
    pub(crate) name: String,
    #[serde(with = "state_level")]
    pub(crate) state: State,
    pub(crate) listeners: Vec<String>,
    pub(crate) limit: u64,
}

/// The commit.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Go {
    pub(crate) pools: Vec<Held>,
    /// State that services share among their connections, by the names that both builds know. It may be secret.
    pub(crate) carried: HashMap<String, Wiped>,
}

/// Connections and counts of a pool from the moment on when it stops to accept.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// Connections that count for the limit.
    pub(crate) connections: u64,
    /// The number of the next connection.
    pub(crate) next_id: u64,
    pub(crate) listeners: Vec<Occupied>,
    /// Counts since the start of the first process, by the names of the counters.
    pub(crate) counts: HashMap<String, u64>,
    /// Time at which the accept rate has all of its burst again, in nanoseconds of the clock that all processes of a machine share.
    pub(crate) pace: u64,
    /// Number of connects that have begun, of a pool that connects.
    pub(crate) begun: u64,
    /// Connections of each peer, where a policy counts them.
    pub(crate) peers: Vec<OfPeer>,
    /// The lengths of the prefixes by which addresses are one peer, of IPv4 and IPv6.
    pub(crate) prefixes: Vec<u32>,
    pub(crate) accepts: AcceptState,
    /// Processes before the predecessor that still have connections.
    pub(crate) behind: u32,
}

impl Held {
    /// Returns no more of it than can be: another process may be out of order.
    pub(crate) fn believed(mut self) -> Held {
        self.connections = self.connections.min(u32::MAX.into());
        self.behind = self.behind.min(u32::MAX - 1);
        for number in [&mut self.next_id, &mut self.pace, &mut self.begun].into_iter().chain(self.counts.values_mut()) {
            *number = (*number).min(u64::MAX / 4);
        }
        self.listeners.iter_mut().for_each(|one| one.connections = one.connections.min(self.connections));
        self
    }
}

/// A peer, by the first bits of its address as a number, and how many connections it has.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct OfPeer {
    /// The upper and lower half of the number.
    pub(crate) peer: Vec<u64>,
    pub(crate) connections: u64,
}

impl Held {
    /// Returns the connections of each peer, where they are counted by these prefixes.
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
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Occupied {
    pub(crate) address: String,
    pub(crate) connections: u64,
    /// The accept state of the address, where the pool is open.
    pub(crate) accepts: AcceptState,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Offer {
    pub(crate) pool: String,
    pub(crate) records: Vec<Record>,
    /// The connections are of a set that is the successor's at one moment, with those of other offers.
    pub(crate) together: bool,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ShutDown {
    pub(crate) pool: String,
    /// Maximum time that its connections may take to end, in milliseconds.
    pub(crate) within: u64,
}

impl Prepared {
    /// Returns the state that a pool of the successor reads.
    pub(crate) fn reads(&self, pool: &str) -> State {
        self.pools.iter().find(|reads| reads.name == pool).map_or_else(State::none, |reads| reads.state.clone())
    }

    /// Returns true where a pool of the successor listens there, and goes on to.
    pub(crate) fn listens_at(&self, address: &String) -> bool {
        self.pools.iter().any(|reads| reads.listeners.contains(address))
    }
}

/// Waits for the next message. None when the other end is gone; the end of one that was killed with unread messages is told by an error first,
/// behind which they are still there.
pub(crate) fn receive(receiver: &mut Receiver, socket: BorrowedFd<'_>) -> Result<Option<Passed<Said>>> {
    match receiver.receive(socket, true) {
        Err(Errno::CONNRESET) => receiver.receive(socket, true),
        received => received,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::packets::PacketSender;
    use crate::sys::passing::{packet_pair, send_packet};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn what_is_carried_is_not_printed() {
        let go = Go { pools: Vec::new(), carried: HashMap::from([("keys".to_owned(), vec![115; 32].into())]) };
        assert_eq!(format!("{:?}", Said::Go(go)), r#"Go(Go { pools: [], carried: {"keys": 32 bytes} })"#);
    }

    #[test]
    fn what_is_said_arrives_and_unknown_fields_are_skipped() {
        let (one, two) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let said = Said::Yours(Yours { ids: vec![1, 2, u64::MAX], ..Yours::default() });
        PacketSender::default().send(one.as_fd(), &said, &[two.as_fd()], true).expect("sent");
        let (heard, descriptors) = receive(&mut Receiver::default(), two.as_fd()).expect("no error").expect("a message");
        assert_eq!((heard, descriptors.map(|passed| passed.len())), (said, Some(1)));
        #[derive(serde::Serialize)]
        enum Later {
            Left { name: &'static str, later: [u64; 2] },
            Unknown(u64),
        }
        let later = Later::Left { name: "pool", later: [7; 2] };
        PacketSender::default().send(one.as_fd(), &later, &[], true).expect("sent");
        let held = Held { name: "pool".to_owned(), ..Held::default() };
        let (heard, _) = receive(&mut Receiver::default(), two.as_fd()).expect("no error").expect("a message");
        assert_eq!(heard, Said::Left(held));
        PacketSender::default().send(one.as_fd(), &Later::Unknown(7), &[], true).expect("sent");
        assert_eq!(receive(&mut Receiver::default(), two.as_fd()).map(|_| ()), Err(Errno::BADMSG));
        send_packet(one.as_fd(), &[&1_u64.to_le_bytes()[..], &[1, 0], b"\xff garbage"].concat(), &[], true).expect("sent");
        assert_eq!(receive(&mut Receiver::default(), two.as_fd()).map(|_| ()), Err(Errno::BADMSG));
        drop(one);
        assert!(matches!(receive(&mut Receiver::default(), two.as_fd()), Ok(None)));
    }
}
