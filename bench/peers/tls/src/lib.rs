//! Parts that the servers share: what they do with a connection, their arguments, rustls's configuration and a listening socket.

use rustls::ServerConfig;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use socket2::{Domain, Protocol, Socket, Type};
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// Number of bytes in one write of a stream: a record of the largest size.
pub const BLOCK: usize = 16 * 1024;
/// Bytes that a server sends that only sends.
pub static BLOCK_SENT: [u8; BLOCK] = [0x5a; BLOCK];

/// Work of a server with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sends back messages of 64 bytes.
    Echo,
    /// Sends back a stream.
    Mirror,
    /// Takes a stream.
    Sink,
    /// Sends a stream once it has received a byte.
    Source,
}

impl Mode {
    /// Returns how many bytes are read at once, where a server has a buffer for each connection.
    pub fn buffer(self) -> usize {
        if self == Mode::Echo { 64 } else { BLOCK }
    }

    pub fn returns(self) -> bool {
        matches!(self, Mode::Echo | Mode::Mirror)
    }
}

/// The arguments of every server.
pub struct Arguments {
    pub mode: Mode,
    pub port: u16,
    pub chain: String,
    pub key: String,
    /// Argument that only one of the servers understands.
    pub more: Option<String>,
}

impl Arguments {
    pub fn parsed() -> Result<Arguments, String> {
        let mut words = std::env::args();
        let program = words.next().unwrap_or_default();
        let words: Vec<String> = words.collect();
        let usage = || format!("usage: {program} echo|mirror|sink|source PORT CHAIN KEY [MORE]");
        let [mode, port, chain, key, more @ ..] = &words[..] else { return Err(usage()) };
        let mode = match mode.as_str() {
            "echo" => Mode::Echo,
            "mirror" => Mode::Mirror,
            "sink" => Mode::Sink,
            "source" => Mode::Source,
            _ => return Err(usage()),
        };
        let (chain, key, more) = (chain.clone(), key.clone(), more.first().cloned());
        Ok(Arguments { mode, port: port.parse().map_err(|_| usage())?, chain, key, more })
    }

    /// Returns the configuration of rustls as it comes, with tickets.
    pub fn config(&self) -> Result<Arc<ServerConfig>, Box<dyn Error>> {
        let chain = CertificateDer::pem_file_iter(&self.chain)?.collect::<Result<_, _>>()?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(&self.key)?)?;
        config.ticketer = Ticketer::new()?;
        Ok(Arc::new(config))
    }

    pub fn listen(&self) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit it on Linux: no system call for each of them.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).into())?;
        socket.listen(4096)?;
        Ok(socket.into())
    }
}
