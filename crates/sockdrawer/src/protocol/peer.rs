//! The other end of a connection, and connects that did not reach one.

use crate::net::Address;
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A connection's number, unique in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ConnectionId(pub u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// End of a connection: the accepting or the connecting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Side {
    /// A listener accepted it.
    Accepted,
    /// A connector made it.
    Connected,
}

/// The other end of a connection.
#[derive(Clone)]
pub struct Peer {
    remote: Option<SocketAddr>,
    /// The kernel was not asked for the peer's address.
    unnamed: bool,
    side: Side,
    lag: Duration,
    connect_time: Duration,
    handshake_time: Duration,
    listener: Option<Arc<Address>>,
    /// Facts that layers know of it, the innermost first.
    facts: Option<Arc<Fact>>,
}

struct Fact {
    fact: Box<dyn Any + Send + Sync>,
    next: Option<Arc<Fact>>,
}

/// Prints no facts of layers.
impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Peer { remote, side, listener, .. } = self;
        f.debug_struct("Peer").field("remote", remote).field("side", side).field("listener", listener).finish_non_exhaustive()
    }
}

/// [`Peer::UNNAMED`] in one place: made for each connection, it would be dropped for each.
pub(crate) static UNNAMED: Peer = Peer::UNNAMED;

impl Peer {
    /// An accepted peer whose address the kernel was not asked for.
    pub(crate) const UNNAMED: Peer = Peer {
        remote: None,
        unnamed: true,
        side: Side::Accepted,
        lag: Duration::ZERO,
        connect_time: Duration::ZERO,
        handshake_time: Duration::ZERO,
        listener: None,
        facts: None,
    };

    /// Returns a peer at `remote`; None for a Unix socket.
    pub fn new(remote: Option<SocketAddr>, side: Side) -> Peer {
        Peer { remote, unnamed: false, side, ..Peer::UNNAMED }
    }

    /// Returns the peer's address, behind a proxy the one that its [header](crate::layer::proxy_header) says. None for a Unix socket, for a service
    /// that [does not need it](crate::Service::needs_peer_address), and if the service came into force at the moment of the accept and the peer was
    /// gone already.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Returns whether the connection was accepted or made by connecting.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the address of the pool at which the connection came in, with the real port where the pool asked for port 0. None on the connecting
    /// side, and for a service that [does not need](crate::Service::needs_peer_address) its peers' addresses.
    pub fn listener(&self) -> Option<&Address> {
        self.listener.as_deref()
    }

    /// Returns the time from the start of the connect until the connection was established; zero on the accepting side.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// Returns the time that the layers around the service took to establish the connection, such as the handshake of TLS; zero without a layer.
    /// A measurement from the start of the connect adds it to the connect time.
    pub fn handshake_time(&self) -> Duration {
        self.handshake_time
    }

    /// Returns the time from when the connect was due until it began, if [`Connecting::rate`](crate::connecting::Connecting::rate) is a schedule
    /// ([`Late::MakeUp`](crate::connecting::Late::MakeUp)); otherwise zero. A measurement of a schedule adds it to the connect time.
    pub fn lag(&self) -> Duration {
        self.lag
    }

    /// Returns this peer with another address, for layers that learn the real one.
    #[must_use]
    pub fn with_remote(&self, remote: SocketAddr) -> Peer {
        Peer { remote: Some(remote), unnamed: false, ..self.clone() }
    }

    /// Returns what a layer of this peer's connection knows of it, such as what was agreed on in a TLS handshake; None where no layer knows a `T`.
    ///
    /// A state that is restored, after [`Pool::adopt`](crate::Pool::adopt) or in another process, is given none: a protocol keeps what it needs.
    ///
    /// ```
    /// use sockdrawer::{Peer, Side};
    ///
    /// #[derive(Debug, PartialEq)]
    /// struct User(&'static str);
    /// let peer = Peer::new(None, Side::Accepted).with_fact(User("ada"));
    /// assert_eq!(peer.fact::<User>(), Some(&User("ada")));
    /// assert_eq!(peer.fact::<String>(), None);
    /// ```
    pub fn fact<T: Any>(&self) -> Option<&T> {
        let facts = std::iter::successors(self.facts.as_deref(), |fact| fact.next.as_deref());
        facts.into_iter().find_map(|fact| fact.fact.downcast_ref())
    }

    /// Returns this peer, with what a layer knows of it.
    #[must_use]
    pub fn with_fact(mut self, fact: impl Any + Send + Sync) -> Peer {
        self.facts = Some(Arc::new(Fact { fact: Box::new(fact), next: self.facts.take() }));
        self
    }

    pub(crate) fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// Returns this peer as one that came in at `listener`: for tests of a service that asks for it.
    #[must_use]
    pub fn with_listener(mut self, listener: Address) -> Peer {
        self.listener = Some(Arc::new(listener));
        self
    }

    pub(crate) fn came_in_at(mut self, listener: Option<Arc<Address>>) -> Peer {
        self.listener = listener;
        self
    }

    pub(crate) fn with_lag(mut self, lag: Duration) -> Peer {
        self.lag = lag;
        self
    }

    /// Returns this peer behind one more layer, which took this time.
    pub(crate) fn shaken(mut self, took: Duration) -> Peer {
        self.handshake_time += took;
        self
    }

    pub(crate) fn with_connect_time(mut self, connect_time: Duration) -> Peer {
        self.connect_time = connect_time;
        self
    }
}

/// A connect that did not become a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// The target's address; None for a Unix socket.
    pub target: Option<SocketAddr>,
    /// The errno; `ETIMEDOUT` also for the pool's own timeout, `ECONNREFUSED` also for a connection to itself.
    pub errno: i32,
    /// The time from the start of the connect to the failure.
    pub after: Duration,
    /// Time by which the connect began late: see [`Peer::lag`].
    pub lag: Duration,
}
