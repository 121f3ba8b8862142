//! Implements axum's listener, for `axum::serve(pool.listener(), app)`.

use super::{Connection, Info, Listener};
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use std::io;
use std::net::SocketAddr;

impl axum::serve::Listener for Listener {
    type Io = Connection;
    /// The peer's address; None for a Unix socket.
    type Addr = Option<SocketAddr>;

    async fn accept(&mut self) -> (Connection, Option<SocketAddr>) {
        let Some(connection) = Listener::accept(self).await else { return std::future::pending().await };
        let peer = connection.info().peer().remote();
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        Listener::local_addr(self)
    }
}

/// Handlers that take `ConnectInfo<Info>` see drains and notes, also after an upgrade of the protocol: serve
/// `app.into_make_service_with_connect_info::<Info>()`.
impl Connected<IncomingStream<'_, Listener>> for Info {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Info {
        stream.io().info().clone()
    }
}
