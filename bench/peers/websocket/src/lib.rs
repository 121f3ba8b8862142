//! Parts that the servers share: their arguments, and the acceptor of those of tokio. The listening socket and rustls's configuration are those of
//! the bench of TLS.

use bench_tls::Mode;
use rustls::ServerConfig;
use std::error::Error;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;

/// Messages that a channel of a room keeps for a receiver that is behind: more than a burst has, so that nothing is lost.
pub const ROOM: usize = 4096;
/// The read buffer that tungstenite's documentation recommends for many connections with little load each.
pub const TUNED_READ_BUFFER: usize = 4096;
/// Bytes of the buffer of written frames, where a peer has none of its own.
pub const TUNED_WRITE_BUFFER: usize = 4096;

/// The arguments of every server.
pub struct Arguments {
    /// Each message goes to all; otherwise back.
    pub is_room: bool,
    /// The settings are those that are recommended for this work; otherwise the library's own.
    pub is_tuned: bool,
    pub chain: String,
    pub key: String,
    pub port: u16,
    is_tls: bool,
}

impl Arguments {
    pub fn parsed() -> Result<Arguments, String> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let usage = || "usage: echo|room PORT plain|tls CHAIN KEY [tuned]".to_owned();
        let [what, port, layer, chain, key, more @ ..] = &words[..] else { return Err(usage()) };
        let choice = |word: &String, no: &str, yes: &str| match word.as_str() {
            word if word == no => Ok(false),
            word if word == yes => Ok(true),
            _ => Err(usage()),
        };
        Ok(Arguments {
            is_room: choice(what, "echo", "room")?,
            is_tls: choice(layer, "plain", "tls")?,
            is_tuned: more.first().is_some_and(|word| word == "tuned"),
            chain: chain.clone(),
            key: key.clone(),
            port: port.parse().map_err(|_| usage())?,
        })
    }

    fn shared(&self) -> bench_tls::Arguments {
        let (chain, key) = (self.chain.clone(), self.key.clone());
        bench_tls::Arguments { mode: Mode::Echo, port: self.port, chain, key, more: None }
    }

    pub fn tls(&self) -> Result<Option<Arc<ServerConfig>>, Box<dyn Error>> {
        if self.is_tls { self.shared().config().map(Some) } else { Ok(None) }
    }

    pub fn listen(&self) -> std::io::Result<std::net::TcpListener> {
        self.shared().listen()
    }
}

/// A connection, plain or of TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A server of tokio: its tasks are the futures of this.
pub trait Serves: Clone + Send + 'static {
    fn serve<S: Stream>(self, stream: S) -> impl Future<Output = ()> + Send;
}

/// Accepts on one thread, with a task for each connection; of TLS if that was asked for.
pub fn run(arguments: &Arguments, server: impl Serves) -> Result<(), Box<dyn Error>> {
    let acceptor = arguments.tls()?.map(TlsAcceptor::from);
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::from_std(arguments.listen()?)?;
        loop {
            let (socket, _) = listener.accept().await?;
            let server = server.clone();
            // A failure ends its own connection, and no other. Two tasks of different types, so that a plain one is not as large as one of TLS.
            match acceptor.clone() {
                None => drop(tokio::spawn(server.serve(socket))),
                Some(acceptor) => drop(tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        server.serve(stream).await;
                    }
                })),
            }
        }
    })
}
