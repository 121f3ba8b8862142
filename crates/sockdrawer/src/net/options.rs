//! Options of a connection's socket.

use std::time::Duration;

/// Options of a TCP connection. Listeners carry them, so that an accepted connection costs no system call for them; after a
/// change, connections that already waited in the kernel get them one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Send small segments at once (`TCP_NODELAY`). On by default.
    pub nodelay: bool,
    /// Probe silent peers (`SO_KEEPALIVE` and its three numbers).
    pub keepalive: Option<Keepalive>,
    /// How long sent bytes may stay unacknowledged before the connection fails (`TCP_USER_TIMEOUT`).
    pub user_timeout: Option<Duration>,
    /// Size of the kernel's receive buffer in bytes (`SO_RCVBUF`; the kernel doubles it). None: the kernel tunes it.
    pub receive_buffer: Option<u32>,
    /// Size of the kernel's send buffer in bytes (`SO_SNDBUF`; the kernel doubles it). None: the kernel tunes it.
    pub send_buffer: Option<u32>,
}

/// When a silent peer is probed. Whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Probes without answer before the connection fails.
    pub probes: u32,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions { nodelay: true, keepalive: None, user_timeout: None, receive_buffer: None, send_buffer: None }
    }
}
