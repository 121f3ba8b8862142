//! Operations on connections that stayed in a predecessor, as two builds say them to each other. What a build does not know is not done there,
//! and counts as silent.

use crate::net::{Keepalive, SocketOptions};
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::operation::{Drain, Drained, Op, Outcome, Page, Selector};
use crate::protocol::{ConnectionId, Side};
use std::time::Duration;

/// Selectors that are nested deeper are not sent: what reads them stops at a depth of 100, of which a part may take two.
const MOST_NESTED: usize = 32;

/// What connections are doing, by the numbers that are sent: a number is never used again.
const STATES: [ConnectionState; 7] = [
    ConnectionState::Idle,
    ConnectionState::Connecting,
    ConnectionState::Delegated,
    ConnectionState::Working,
    ConnectionState::Sending,
    ConnectionState::Waiting,
    ConnectionState::Receiving,
];

/// What is done with connections that are not taken, of a pool or of one of its addresses.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Accepts {
    /// They are accepted and turned away; else they wait.
    #[prost(bool, tag = "1")]
    pub(crate) refuses: bool,
    /// By a reset; else in order,
    #[prost(bool, tag = "2")]
    pub(crate) resets: bool,
    /// after these bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) says: Vec<u8>,
}

/// An operation on what stayed of a pool. Times are in nanoseconds.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Asked {
    /// The answer has it, too.
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(string, tag = "2")]
    pub(crate) pool: String,
    #[prost(message, optional, tag = "3")]
    selector: Option<Selected>,
    #[prost(oneof = "Asks", tags = "4, 5, 6, 7, 8, 9, 10, 11, 12")]
    op: Option<Asks>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Asks {
    #[prost(message, tag = "4")]
    Count(()),
    #[prost(message, tag = "5")]
    List(Part),
    #[prost(message, tag = "6")]
    Kill(()),
    #[prost(string, tag = "7")]
    Tag(String),
    #[prost(bytes, tag = "8")]
    Notify(Vec<u8>),
    #[prost(message, tag = "9")]
    SetOptions(Options),
    #[prost(message, tag = "10")]
    Options(()),
    #[prost(message, tag = "11")]
    Drain(AsksToEnd),
    #[prost(uint64, tag = "12")]
    Purge(u64),
}

/// Of a list. Earlier builds asked for all of it by an empty message, and answer with all.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Part {
    #[prost(uint64, tag = "1")]
    from: u64,
    /// 0: no maximum.
    #[prost(uint64, tag = "2")]
    most: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct AsksToEnd {
    #[prost(uint64, tag = "1")]
    deadline: u64,
    #[prost(double, optional, tag = "2")]
    rate: Option<f64>,
    #[prost(uint64, optional, tag = "3")]
    max_connections: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Selected {
    #[prost(oneof = "Selects", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    by: Option<Selects>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Selects {
    #[prost(message, tag = "1")]
    All(()),
    #[prost(uint64, tag = "2")]
    Id(u64),
    #[prost(message, tag = "3")]
    Peers(Network),
    #[prost(uint64, tag = "4")]
    OlderThan(u64),
    #[prost(string, tag = "5")]
    Tag(String),
    #[prost(string, tag = "6")]
    Listener(String),
    #[prost(message, tag = "7")]
    Not(Box<Selected>),
    #[prost(message, tag = "8")]
    Every(Parts),
    #[prost(message, tag = "9")]
    Any(Parts),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Network {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(uint32, tag = "2")]
    prefix: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Parts {
    #[prost(message, repeated, tag = "1")]
    parts: Vec<Selected>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Options {
    #[prost(bool, tag = "1")]
    nodelay: bool,
    #[prost(message, optional, tag = "2")]
    keepalive: Option<Probes>,
    #[prost(uint64, optional, tag = "3")]
    user_timeout: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    receive_buffer: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    send_buffer: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Probes {
    #[prost(uint64, tag = "1")]
    idle: u64,
    #[prost(uint64, tag = "2")]
    interval: u64,
    #[prost(uint32, tag = "3")]
    probes: u32,
}

/// What came of an operation.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answered {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(uint64, tag = "2")]
    done: u64,
    #[prost(message, repeated, tag = "3")]
    list: Vec<Listed>,
    #[prost(message, optional, tag = "4")]
    options: Option<Options>,
    #[prost(uint64, tag = "5")]
    ended: u64,
    #[prost(uint64, tag = "6")]
    cut: u64,
    #[prost(uint64, tag = "8")]
    silent: u64,
    #[prost(uint64, optional, tag = "9")]
    next: Option<u64>,
}

/// A connection, but for its generation: a number of the predecessor's.
#[derive(Clone, PartialEq, prost::Message)]
struct Listed {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, optional, tag = "2")]
    peer: Option<String>,
    #[prost(string, optional, tag = "3")]
    listener: Option<String>,
    #[prost(bool, tag = "4")]
    connected: bool,
    #[prost(uint64, tag = "5")]
    age: u64,
    #[prost(uint64, tag = "6")]
    bytes_in: u64,
    #[prost(uint64, tag = "7")]
    bytes_out: u64,
    #[prost(uint32, tag = "8")]
    state: u32,
    #[prost(bool, tag = "9")]
    draining: bool,
    #[prost(string, optional, tag = "10")]
    tag: Option<String>,
}

impl Asked {
    /// None: it is not for another process.
    pub(crate) fn of(pool: &str, op: &Op, selector: &Selector) -> Option<Asked> {
        let op = match op {
            Op::Count => Asks::Count(()),
            Op::List(Page { from, most: usize::MAX }) => Asks::List(Part { from: *from, most: 0 }),
            Op::List(Page { from, most }) => Asks::List(Part { from: *from, most: *most as u64 }),
            Op::Kill => Asks::Kill(()),
            Op::Tag(text) => Asks::Tag(text.clone()),
            Op::Notify(bytes) => Asks::Notify(bytes.to_vec()),
            Op::SetOptions(options) => Asks::SetOptions(options.into()),
            Op::Options => Asks::Options(()),
            // A notice is for the end of a pool.
            Op::Drain(Drain { deadline, rate, max_connections, notice: _ }) => Asks::Drain(AsksToEnd {
                deadline: nanos(*deadline),
                rate: *rate,
                max_connections: max_connections.map(|most| most as u64),
            }),
            Op::Purge(within) => Asks::Purge(nanos(*within)),
            Op::Adopt => return None,
        };
        Some(Asked { number: 0, pool: pool.to_owned(), selector: Some(Selected::of(selector, MOST_NESTED)?), op: Some(op) })
    }

    pub(crate) fn numbered(self, number: u64) -> Asked {
        Asked { number, ..self }
    }

    /// None: this build does not know it.
    pub(crate) fn read(self) -> Option<(Op, Selector)> {
        let op = match self.op? {
            Asks::Count(()) => Op::Count,
            Asks::List(Part { from, most: 0 }) => Op::List(Page { from, most: usize::MAX }),
            Asks::List(Part { from, most }) => Op::List(Page { from, most: count(most) }),
            Asks::Kill(()) => Op::Kill,
            Asks::Tag(text) => Op::Tag(text),
            Asks::Notify(bytes) => Op::Notify(bytes.into()),
            Asks::SetOptions(options) => Op::SetOptions(options.into()),
            Asks::Options(()) => Op::Options,
            Asks::Drain(AsksToEnd { deadline, rate, max_connections }) => Op::Drain(Drain {
                rate,
                max_connections: max_connections.map(|most| most as usize),
                ..Drain::within(Duration::from_nanos(deadline))
            }),
            Asks::Purge(within) => Op::Purge(Duration::from_nanos(within)),
        };
        Some((op, self.selector?.read()?))
    }
}

impl Selected {
    /// Generations of two processes have nothing to do with each other: what stayed in the other is older than all of this one's.
    fn of(selector: &Selector, depth: usize) -> Option<Selected> {
        let depth = depth.checked_sub(1)?;
        let parts = |parts: &[Selector]| {
            let parts = parts.iter().map(|part| Selected::of(part, depth)).collect::<Option<_>>();
            parts.map(|parts| Parts { parts })
        };
        let by = match selector {
            Selector::All | Selector::Before(_) => Selects::All(()),
            Selector::Generation(_) => Selects::Any(Parts::default()),
            Selector::Id(id) => Selects::Id(id.0),
            Selector::Peers(address, prefix) => {
                Selects::Peers(Network { address: address.to_string(), prefix: u32::from(*prefix) })
            }
            Selector::OlderThan(age) => Selects::OlderThan(nanos(*age)),
            Selector::Tag(text) => Selects::Tag(text.clone()),
            Selector::Listener(address) => Selects::Listener(address.to_string()),
            Selector::Not(other) => Selects::Not(Box::new(Selected::of(other, depth)?)),
            Selector::Every(all) => Selects::Every(parts(all)?),
            Selector::Any(all) => Selects::Any(parts(all)?),
        };
        Some(Selected { by: Some(by) })
    }

    fn read(self) -> Option<Selector> {
        let parts = |Parts { parts }: Parts| parts.into_iter().map(Selected::read).collect::<Option<Vec<_>>>();
        Some(match self.by? {
            Selects::All(()) => Selector::All,
            Selects::Id(id) => Selector::Id(ConnectionId(id)),
            Selects::Peers(Network { address, prefix }) => Selector::Peers(address.parse().ok()?, prefix.try_into().ok()?),
            Selects::OlderThan(age) => Selector::OlderThan(Duration::from_nanos(age)),
            Selects::Tag(text) => Selector::Tag(text),
            Selects::Listener(address) => Selector::Listener(address.parse().ok()?),
            Selects::Not(other) => Selector::Not(Box::new(other.read()?)),
            Selects::Every(all) => Selector::Every(parts(all)?),
            Selects::Any(all) => Selector::Any(parts(all)?),
        })
    }
}

impl From<&SocketOptions> for Options {
    fn from(options: &SocketOptions) -> Options {
        let SocketOptions { nodelay, keepalive, user_timeout, receive_buffer, send_buffer } = *options;
        let probes = |Keepalive { idle, interval, probes }| Probes { idle: nanos(idle), interval: nanos(interval), probes };
        let (keepalive, user_timeout) = (keepalive.map(probes), user_timeout.map(nanos));
        Options { nodelay, keepalive, user_timeout, receive_buffer, send_buffer }
    }
}

impl From<Options> for SocketOptions {
    fn from(options: Options) -> SocketOptions {
        let Options { nodelay, keepalive, user_timeout, receive_buffer, send_buffer } = options;
        let time = Duration::from_nanos;
        let probes = |Probes { idle, interval, probes }| Keepalive { idle: time(idle), interval: time(interval), probes };
        let (keepalive, user_timeout) = (keepalive.map(probes), user_timeout.map(time));
        SocketOptions { nodelay, keepalive, user_timeout, receive_buffer, send_buffer }
    }
}

impl Answered {
    /// What is adopted is not sent: nothing is where it stayed.
    pub(crate) fn of(number: u64, outcome: Outcome) -> Answered {
        let Outcome { done, list, next, options, drained, silent, connections: _, adopted: _ } = outcome;
        Answered {
            number,
            done: done as u64,
            list: list.into_iter().map(Listed::from).collect(),
            options: options.as_ref().map(Options::from),
            ended: drained.ended as u64,
            cut: drained.cut as u64,
            silent: silent as u64,
            next,
        }
    }

    pub(crate) fn read(self) -> Outcome {
        let Answered { number: _, done, list, options, ended, cut, silent, next } = self;
        Outcome {
            done: count(done),
            list: list.into_iter().map(ConnectionStatus::from).collect(),
            options: options.map(SocketOptions::from),
            drained: Drained::of((count(ended), count(cut))),
            silent: count(silent),
            next,
            ..Outcome::default()
        }
    }
}

impl From<ConnectionStatus> for Listed {
    fn from(status: ConnectionStatus) -> Listed {
        let ConnectionStatus { id, generation: _, peer, listener, side, age, bytes_in, bytes_out, state, draining, tag } = status;
        Listed {
            id: id.0,
            peer: peer.map(|peer| peer.to_string()),
            listener: listener.map(|listener| listener.to_string()),
            connected: side == Side::Connected,
            age: nanos(age),
            bytes_in,
            bytes_out,
            state: STATES.iter().position(|known| *known == state).unwrap_or(0) as u32,
            draining,
            tag,
        }
    }
}

impl From<Listed> for ConnectionStatus {
    fn from(listed: Listed) -> ConnectionStatus {
        let Listed { id, peer, listener, connected, age, bytes_in, bytes_out, state, draining, tag } = listed;
        ConnectionStatus {
            id: ConnectionId(id),
            generation: 0,
            peer: peer.and_then(|peer| peer.parse().ok()),
            listener: listener.and_then(|listener| listener.parse().ok()),
            side: if connected { Side::Connected } else { Side::Accepted },
            age: Duration::from_nanos(age),
            bytes_in,
            bytes_out,
            state: STATES.get(state as usize).copied().unwrap_or(ConnectionState::Idle),
            draining,
            tag,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// No more than can be: numbers of another process are added up.
fn count(of: u64) -> usize {
    of.min(u32::MAX.into()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    fn options() -> SocketOptions {
        let keepalive = Keepalive { idle: Duration::from_secs(1), interval: Duration::from_nanos(2), probes: u32::MAX };
        SocketOptions {
            nodelay: false,
            keepalive: Some(keepalive),
            user_timeout: Some(Duration::from_millis(3)),
            receive_buffer: Some(4),
            send_buffer: Some(0),
        }
    }

    fn heard(op: &Op, selector: &Selector) -> Option<(Op, Selector)> {
        let asked = Asked { number: 7, ..Asked::of("pool", op, selector)? };
        let heard = Asked::decode(&*asked.encode_to_vec()).expect("it is read");
        assert_eq!((heard.number, &*heard.pool), (7, "pool"));
        heard.read()
    }

    #[test]
    fn every_operation_arrives_but_one() {
        let drain = Drain { rate: Some(0.5), max_connections: Some(0), ..Drain::within(Duration::from_nanos(5)) };
        let ops = [
            Op::Count,
            Op::List(Page { from: 7, most: 256 }),
            Op::List(Page { from: u64::MAX, most: usize::MAX }),
            Op::Kill,
            Op::Tag(String::new()),
            Op::Tag("name".to_owned()),
            Op::Notify([0, 255, 7][..].into()),
            Op::SetOptions(options()),
            Op::SetOptions(SocketOptions::default()),
            Op::Options,
            Op::Drain(drain),
            Op::Drain(Drain::within(Duration::ZERO)),
            Op::Purge(Duration::from_secs(6)),
        ];
        for op in ops {
            let (came, _) = heard(&op, &Selector::All).expect("it is known");
            assert_eq!(format!("{came:?}"), format!("{op:?}"));
        }
        assert!(Asked::of("pool", &Op::Adopt, &Selector::All).is_none());
        let forever = heard(&Op::Purge(Duration::MAX), &Selector::All);
        assert!(matches!(forever, Some((Op::Purge(within), _)) if within > Duration::from_secs(500 * 365 * 24 * 3600)));
    }

    #[test]
    fn every_selector_arrives_but_those_of_generations() {
        let (none, red) = (Selector::Any(Vec::new()), Selector::tag("red"));
        let same = [
            Selector::All,
            Selector::Id(ConnectionId(u64::MAX)),
            Selector::Peers("::1".parse().expect("an address"), 128),
            Selector::Peers("10.0.0.0".parse().expect("an address"), 0),
            Selector::OlderThan(Duration::from_millis(1500)),
            Selector::tag(""),
            Selector::Listener("127.0.0.1:9000".parse().expect("an address")),
            Selector::Listener("unix:/run/a socket".parse().expect("an address")),
            !red.clone(),
            Selector::Every(Vec::new()),
            none.clone(),
            (!red.clone()).and(Selector::All).or(red.clone()),
        ];
        let others = [
            (Selector::Before(3), Selector::All),
            (Selector::Generation(3), none.clone()),
            (red.clone().and(!Selector::Generation(3)), red.clone().and(!none)),
        ];
        for (said, wanted) in same.into_iter().map(|one| (one.clone(), one)).chain(others) {
            assert_eq!(heard(&Op::Count, &said).map(|(_, came)| came), Some(wanted), "{said:?}");
        }
        let nested = |depth| (1..depth).fold(red.clone(), |inner, _| Selector::Every(vec![inner]));
        assert!(heard(&Op::Count, &nested(MOST_NESTED)).is_some_and(|(_, came)| came == nested(MOST_NESTED)));
        assert!(heard(&Op::Count, &nested(MOST_NESTED + 1)).is_none());
    }

    #[test]
    fn an_outcome_arrives() {
        let status = ConnectionStatus {
            id: ConnectionId(9),
            generation: 0,
            peer: Some("[::1]:80".parse().expect("an address")),
            listener: Some("127.0.0.1:9000".parse().expect("an address")),
            side: Side::Accepted,
            age: Duration::from_millis(5),
            bytes_in: 6,
            bytes_out: u64::MAX,
            state: ConnectionState::Idle,
            draining: true,
            tag: Some("red".to_owned()),
        };
        let connected =
            |state| ConnectionStatus { state, peer: None, listener: None, side: Side::Connected, tag: None, ..status.clone() };
        let outcome = || Outcome {
            done: 1,
            list: STATES.map(connected).into_iter().chain([status.clone()]).collect(),
            options: Some(options()),
            drained: Drained::of((2, 3)),
            silent: 5,
            next: Some(6),
            ..Outcome::default()
        };
        let bytes = Answered::of(8, outcome()).encode_to_vec();
        let answered = Answered::decode(&*bytes).expect("it is read");
        assert_eq!((answered.number, format!("{:?}", answered.read())), (8, format!("{:?}", outcome())));
        assert_eq!(format!("{:?}", Answered::default().read()), format!("{:?}", Outcome::default()));
    }

    #[test]
    fn what_is_not_known_and_what_is_out_of_order_is_no_panic() {
        assert!(Asked::default().read().is_none());
        // Field 200: a later build's operation.
        let later = Asked { op: None, ..Asked::of("pool", &Op::Kill, &Selector::All).expect("it is sent") };
        let bytes = [later.encode_to_vec(), vec![0xc2, 0x0c, 0]].concat();
        assert!(Asked::decode(&*bytes).expect("it is skipped").read().is_none());
        let network = Network { address: "everywhere".to_owned(), prefix: 7 };
        for by in [None, Some(Selects::Peers(network)), Some(Selects::Listener(String::new()))] {
            let all = Parts { parts: vec![Selected { by: Some(Selects::All(())) }, Selected { by }] };
            let asked =
                Asked { selector: Some(Selected { by: Some(Selects::Any(all)) }), op: Some(Asks::Kill(())), ..Asked::default() };
            assert!(asked.read().is_none(), "in part, an operation is not done");
        }
        let most = Answered { done: u64::MAX, ended: u64::MAX, cut: u64::MAX, silent: u64::MAX, ..Answered::default() };
        let (mut sum, state) = (most.clone().read(), Listed { state: 999, ..Listed::default() });
        sum += most.read();
        assert_eq!(ConnectionStatus::from(state).state, ConnectionState::Idle);
        let deep = (0..1000).fold(Selected { by: None }, |inner, _| Selected { by: Some(Selects::Not(Box::new(inner))) });
        assert!(Selected::decode(&*deep.encode_to_vec()).is_err(), "what is nested deeply is not read");
    }
}
