//! The targets of a pool that connects, and how many connections it holds.

use crate::net::{Address, AddressError};
use std::net::IpAddr;
use std::time::Duration;

/// The targets of a pool that connects, how many connections it holds, and at what rate it makes them.
///
/// A connect pool *holds* connections: it makes as many as [`keep`](Connecting::keep) says, and replaces each that ends.
///
/// ```
/// use sockdrawer::connecting::Connecting;
/// use std::time::Duration;
///
/// let connecting = Connecting::to(["127.0.0.1:9000", "127.0.0.1:9001"]).keep(32).rate(100.0).timeout(Duration::from_secs(1));
/// # let _ = connecting;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Connecting {
    /// Addresses to connect to, taken in turn. Required. In the place of a text that is no address stands an empty Unix path: no pool
    /// connects there, and the error of [`Pool::start`](crate::Pool::start) says what is wrong with the text.
    pub targets: Vec<Address>,
    /// Number of connections that the pool holds at once, those that are being made included. Required, and at least 1 when the pool starts.
    /// A higher number in a running pool makes more connections; a lower one ends none, and makes none until fewer are left; 0 makes none.
    pub keep: Option<usize>,
    /// Local addresses; the pool goes on to the next when each target had its turn, so that every source reaches every target. Default: none,
    /// the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The first and the last local port of these connections, within the range of the system (sysctl `net.ipv4.ip_local_port_range`):
    /// the kernel ignores ports outside it. Needs Linux 6.3; on older kernels connects fail with `ENOPROTOOPT`. The port of a target is
    /// never used: if no server listens there, such a connect would connect to itself. Default: none, the whole range of the system.
    pub local_ports: Option<(u16, u16)>,
    /// Total number of connects. Default: none, each connection that ends is replaced by a new connect.
    pub total: Option<u64>,
    /// Connects per second. Default: none, as fast as possible.
    pub rate: Option<f64>,
    /// Choice whether connects that could not begin when the rate had them due are made up for. Default: [`Late::Forget`].
    pub late: Late,
    /// The timeout of a connect. Default: 5 s.
    pub timeout: Duration,
    /// Mistake in the first target that is no address.
    wrong: Option<AddressError>,
}

impl Connecting {
    /// Connects to these targets; say how many connections with [`Connecting::keep`]. A text that is no address is reported when the pool
    /// starts, is planned for or changes: see [`Error::Address`](crate::Error::Address).
    pub fn to(targets: impl IntoIterator<Item: TryInto<Address, Error: Into<AddressError>>>) -> Connecting {
        let mut wrong = None;
        let target = |target| {
            let (address, error) = Address::or_nowhere(target);
            wrong = wrong.take().or(error);
            address
        };
        Connecting {
            targets: targets.into_iter().map(target).collect(),
            keep: None,
            sources: Vec::new(),
            local_ports: None,
            total: None,
            rate: None,
            late: Late::Forget,
            timeout: Duration::from_secs(5),
            wrong,
        }
    }

    /// Makes no connection but those that [`PoolHandle::connect`](crate::PoolHandle::connect) and protocols ask for, of which
    /// [`keep`](Connecting::keep) is then the maximum. Default: as many as there are descriptors.
    pub fn on_request() -> Connecting {
        Connecting::to(std::iter::empty::<Address>()).total(0)
    }

    /// Returns whether connections are made on request alone.
    pub(crate) fn is_on_request(&self) -> bool {
        self.total == Some(0)
    }

    /// Sets the number of connections that the pool holds at once.
    #[must_use]
    pub fn keep(mut self, connections: usize) -> Connecting {
        self.keep = Some(connections);
        self
    }

    /// Sets the local addresses.
    #[must_use]
    pub fn sources(mut self, sources: impl IntoIterator<Item = IpAddr>) -> Connecting {
        self.sources = sources.into_iter().collect();
        self
    }

    /// Sets the first and the last local port.
    #[must_use]
    pub fn local_ports(mut self, first: u16, last: u16) -> Connecting {
        self.local_ports = Some((first, last));
        self
    }

    /// Sets the total number of connects: what ends after the last of them is not replaced.
    #[must_use]
    pub fn total(mut self, connects: u64) -> Connecting {
        self.total = Some(connects);
        self
    }

    /// Sets the connects per second.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Connecting {
        self.rate = Some(per_second);
        self
    }

    /// Sets whether late connects are made up for.
    #[must_use]
    pub fn late(mut self, late: Late) -> Connecting {
        self.late = late;
        self
    }

    /// Sets the timeout of a connect.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Connecting {
        self.timeout = timeout;
        self
    }

    /// Returns the mistake in the first target that is no address.
    pub(crate) fn address_error(&self) -> Option<AddressError> {
        let any = self.targets.iter().any(Address::is_nowhere);
        any.then(|| self.wrong.clone().unwrap_or_else(AddressError::nowhere))
    }

    /// Returns true where both make the same connects, whatever number they keep.
    pub(crate) fn has_same_connects(&self, other: &Connecting) -> bool {
        let Connecting { keep, .. } = *self;
        Connecting { keep, ..other.clone() } == *self
    }
}

/// Treatment of a connect that was due and could not begin, because the pool was at its limit or the loop was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Late {
    /// A connect that is late by more than 100 ms is not made up for, so that no burst follows a pause: for a rate that is a limit.
    #[default]
    Forget,
    /// Every late connect is made up for as soon as the limit allows: for a schedule. [`Peer::lag`](crate::Peer::lag) tells how late it was.
    MakeUp,
}
