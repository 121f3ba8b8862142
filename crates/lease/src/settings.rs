//! Settings of a pool, all of which can be changed while it runs.

use crate::policy::Policy;
use std::time::Duration;

/// Settings of a pool. All can be changed while it runs, by [`Pool::set`](crate::Pool::set): callers that wait stay in line, no lease is
/// taken away, and what is above a lowered limit is closed as soon as it is free.
///
/// ```
/// use sockdrawer_lease::Settings;
///
/// let settings = Settings { max: 32, min_free: 2, ..Settings::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum of connections of the pool: leased, free, being connected and being closed. Default: 10.
    pub max: usize,
    /// Maximum of connections to a target. Default: no limit but [`max`](Settings::max).
    pub max_per_target: usize,
    /// Maximum of callers that wait for a lease; a caller that comes then gets [`Error::Full`](crate::Error::Full). A lower value sends none of
    /// them away. With 0 only free connections are leased. Default: 1,000.
    pub max_waiters: usize,
    /// Maximum of connects under way to a target. More would storm a server that has just started. Default: 2.
    pub max_connecting: usize,
    /// Time for a connect, and as much for a check, a reset or a close. It is the pool's own: a caller that gives up earlier ends no
    /// connect, which others can use. Those that are under way keep the time they began with. Default: 5 s.
    pub connect_timeout: Duration,
    /// Maximum pause after the first connect to a target that failed; doubled by each that follows. The pause is drawn at random from
    /// zero to this ("full jitter"), so that many programs do not come back at once. Default: 100 ms.
    pub backoff: Duration,
    /// Maximum to which [`backoff`](Settings::backoff) is doubled: a target that is back is found so much later at most. Default: 2 s.
    pub backoff_max: Duration,
    /// Time after the first of a row of failed connects, with no success between, from which a target without connections is down:
    /// callers that wait, and those that ask from then on, get [`Error::Down`](crate::Error::Down) at once. Default: 5 s.
    pub down_after: Duration,
    /// Age at which a connection is closed, as soon as it is not leased. One that is used from 95 % of it on is replaced: another is
    /// connected, if there is room, and it is closed once it is free beside a younger one. Default: 30 minutes.
    pub lifetime: Option<Duration>,
    /// Maximum by which the lifetime of each connection is shortened at random, in percent, so that not all end at once: at least 10, where
    /// they began together. Default: 20.
    pub lifetime_jitter: u8,
    /// Leases after which a connection is closed. From 20 on, it is replaced at 95 % of them, as at the end of its lifetime. Default: no
    /// limit.
    pub max_uses: Option<u64>,
    /// Minimum of free connections to each target (elsewhere "idle"), as far as limits allow. It holds from the first lease, a
    /// socket that comes from another build, or [`Pool::add_target`](crate::Pool::add_target) until [`Pool::remove_target`](crate::Pool::remove_target). Raised from 0, it holds
    /// for targets without a connection from their next lease. Default: 0.
    pub min_free: usize,
    /// Maximum of free connections to a target; the one that was connected first is closed. Default: no limit.
    pub max_free: usize,
    /// Time after which a free connection above the minimum is closed. Default: 10 minutes.
    pub free_timeout: Option<Duration>,
    /// Time after which a free connection is checked before it is leased. None: never, zero: always. A check costs each lease of such a
    /// connection a round trip. Default: 1 s.
    pub check_after: Option<Duration>,
    /// Order in which free connections are leased.
    pub order: Order,
    /// Order in which waiters are served, and the rule by which some are sent away. Default: first in, first out.
    pub policy: Policy,
    /// Time after which a lease is told as [`Event::Held`](crate::Event::Held), with the place in the code that asked for it. It holds for
    /// leases that are taken while it is set. Default: None, never.
    pub held_after: Option<Duration>,
}

/// Order in which free connections are leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The connection used last is leased first: few stay warm, the others reach [`Settings::free_timeout`]. The default.
    #[default]
    LastUsedFirst,
    /// The connection that is free for longest is leased first: all are used equally, none grows cold.
    LongestFreeFirst,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max: 10,
            max_per_target: usize::MAX,
            max_waiters: 1000,
            max_connecting: 2,
            connect_timeout: Duration::from_secs(5),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(2),
            down_after: Duration::from_secs(5),
            lifetime: Some(Duration::from_secs(30 * 60)),
            lifetime_jitter: 20,
            max_uses: None,
            min_free: 0,
            max_free: usize::MAX,
            free_timeout: Some(Duration::from_secs(10 * 60)),
            check_after: Some(Duration::from_secs(1)),
            order: Order::default(),
            policy: Policy::default(),
            held_after: None,
        }
    }
}
