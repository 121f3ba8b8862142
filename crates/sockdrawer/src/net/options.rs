//! Options of a connection's socket.

use std::time::Duration;

/// Options of a TCP connection. An accepted socket inherits them from its listener, which costs no system call; after a change,
/// connections that waited in the accept queue already are set one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Send small segments at once (`TCP_NODELAY`). Default: on.
    pub nodelay: bool,
    /// Probes of silent peers (`SO_KEEPALIVE` and its three numbers). Default: none, no probes.
    pub keepalive: Option<Keepalive>,
    /// Maximum time that sent bytes may stay unacknowledged before the connection fails (`TCP_USER_TIMEOUT`). Default: none, as long as the kernel
    /// retransmits.
    pub user_timeout: Option<Duration>,
    /// Size of the kernel's receive buffer in bytes (`SO_RCVBUF`; the kernel doubles it). Default: none, the kernel tunes it.
    pub receive_buffer: Option<u32>,
    /// Size of the kernel's send buffer in bytes (`SO_SNDBUF`; the kernel doubles it). Default: none, the kernel tunes it.
    pub send_buffer: Option<u32>,
}

/// Times at which a silent peer is probed. The kernel counts whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Keepalive {
    /// The time without input before the first probe (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// The time between probes (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// The number of probes without an answer after which the connection fails (`TCP_KEEPCNT`).
    pub probes: u32,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions { nodelay: true, keepalive: None, user_timeout: None, receive_buffer: None, send_buffer: None }
    }
}
