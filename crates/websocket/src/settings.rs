//! Settings of a service, which all of its connections share.

use crate::handshake::Asked;
use std::time::Duration;

/// State that the connections of a service share.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) service: S,
    pub(crate) max_message: usize,
    pub(crate) max_behind: usize,
    /// Messages are given away part by part.
    pub(crate) parts: bool,
    /// Compression is agreed on with clients that offer it.
    pub(crate) deflates: bool,
    pub(crate) times: Times,
    /// Request of a client, on the connecting side.
    pub(crate) asked: Asked,
}

#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) handshake_within: Duration,
    pub(crate) ping_after: Duration,
    pub(crate) pong_within: Duration,
    pub(crate) close_within: Duration,
}
