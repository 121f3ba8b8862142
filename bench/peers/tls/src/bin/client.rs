//! The load, for all servers alike: rustls, sockets that block, TLS 1.3 with AES-256-GCM and X25519 only. It checks what comes, says in a line
//! of JSON how much it did, and ends with 1 where something was wrong. The answer to a message is the message or, of a server of HTTP, what
//! ends with `~`.
//!
//! usage: `client echo|mirror|sink|source|full|resumed|idle PORT AUTHORITY CONNECTIONS COUNT [http]`; COUNT: of messages, bytes or connections.

use bench_tls::{BLOCK, BLOCK_SENT};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

type Stream = StreamOwned<ClientConnection, TcpStream>;
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MESSAGE: [u8; 64] = [0x41; 64];
const REQUEST: &[u8; 64] = b"GET / HTTP/1.1\r\nHost: localhost\r\nPadding: 012345678901234567\r\n\r\n";
/// Connections of a handshake each that are under way at once.
const THREADS: usize = 4;

#[derive(Clone)]
struct Load {
    config: Arc<ClientConfig>,
    port: u16,
    http: bool,
}

impl Load {
    fn new(port: u16, authority: &str, http: bool) -> Result<Load> {
        let provider = CryptoProvider {
            cipher_suites: vec![ring::cipher_suite::TLS13_AES_256_GCM_SHA384],
            kx_groups: vec![ring::kx_group::X25519],
            ..ring::default_provider()
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let builder =
            ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Load { config: Arc::new(config), port, http })
    }

    /// Establishes a connection.
    fn connect(&self) -> Result<Stream> {
        let socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_nodelay(true)?;
        let tls = ClientConnection::new(self.config.clone(), ServerName::try_from("localhost")?)?;
        let mut stream = StreamOwned::new(tls, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    fn ask(&self, stream: &mut Stream) -> io::Result<()> {
        stream.write_all(if self.http { REQUEST } else { &MESSAGE })
    }

    fn answered(&self, stream: &mut Stream) -> Result<()> {
        let mut buffer = [0; 512];
        if self.http {
            let mut found = stream.read(&mut buffer)?;
            while found > 0 && buffer[found - 1] != b'~' {
                found = stream.read(&mut buffer)?;
            }
            return if found == 0 { Err("the server ended the connection".into()) } else { Ok(()) };
        }
        stream.read_exact(&mut buffer[..64])?;
        if buffer[..64] == MESSAGE { Ok(()) } else { Err("another answer than the message".into()) }
    }

    /// Makes a handshake, a message and its answer, and a goodbye from either side.
    fn short(&self, wanted: Option<HandshakeKind>) -> Result<()> {
        let mut stream = self.connect()?;
        if wanted.is_some() && stream.conn.handshake_kind() != wanted {
            return Err(format!("the handshake was {:?}", stream.conn.handshake_kind()).into());
        }
        self.ask(&mut stream)?;
        self.answered(&mut stream)?;
        end(stream)
    }

    fn handshakes(&self, count: usize, kind: HandshakeKind) -> Result<usize> {
        let each = count / THREADS;
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let mut load = self.clone();
                thread::spawn(move || -> Result<()> {
                    // Tickets of its own: a ticket is for one connection.
                    let mut config = (*load.config).clone();
                    if kind == HandshakeKind::Resumed {
                        config.resumption = Resumption::in_memory_sessions(8);
                    }
                    load.config = Arc::new(config);
                    if kind == HandshakeKind::Resumed {
                        load.short(None)?;
                    }
                    (0..each).try_for_each(|_| load.short(Some(kind)))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
        Ok(each * THREADS)
    }

    /// Exchanges messages for echoes. Each connection has one message under way; they are served in turn.
    fn echoes(&self, connections: usize, count: usize) -> Result<usize> {
        let mut streams = (0..connections).map(|_| self.connect()).collect::<Result<Vec<_>>>()?;
        streams.iter_mut().try_for_each(|stream| self.ask(stream))?;
        let rounds = count.div_ceil(connections);
        for round in 1..=rounds {
            for stream in &mut streams {
                self.answered(stream)?;
                if round < rounds {
                    self.ask(stream)?;
                }
            }
        }
        streams.into_iter().try_for_each(end)?;
        Ok(rounds * connections)
    }

    fn idle(&self, connections: usize) -> Result<usize> {
        let held = (0..connections).map(|_| {
            let mut stream = self.connect()?;
            self.ask(&mut stream)?;
            self.answered(&mut stream)?;
            // The state of TLS is not needed any more: it takes tens of KiB.
            Ok(stream.sock)
        });
        let held = held.collect::<Result<Vec<_>>>()?;
        println!("READY {}", held.len());
        io::stdin().read_to_end(&mut Vec::new())?;
        Ok(held.len())
    }

    fn sends(&self, bytes: usize) -> Result<usize> {
        let mut stream = self.connect()?;
        let blocks = bytes.div_ceil(BLOCK);
        (0..blocks).try_for_each(|_| stream.write_all(&BLOCK_SENT))?;
        end(stream)?;
        Ok(blocks * BLOCK)
    }

    fn receives(&self, bytes: usize) -> Result<usize> {
        let mut stream = self.connect()?;
        stream.write_all(&MESSAGE)?;
        takes(&mut stream, bytes.div_ceil(BLOCK))
    }

    /// Sends blocks and takes them back. Four blocks are under way.
    fn mirrors(&self, bytes: usize) -> Result<usize> {
        let mut stream = self.connect()?;
        let blocks = bytes.div_ceil(BLOCK);
        (0..4).try_for_each(|_| stream.write_all(&BLOCK_SENT))?;
        for block in 0..blocks {
            takes(&mut stream, 1)?;
            if block + 4 < blocks {
                stream.write_all(&BLOCK_SENT)?;
            }
        }
        end(stream)?;
        Ok(blocks * BLOCK)
    }
}

fn takes(stream: &mut Stream, blocks: usize) -> Result<usize> {
    let mut buffer = vec![0; BLOCK];
    for _ in 0..blocks {
        stream.read_exact(&mut buffer)?;
        if buffer != BLOCK_SENT {
            return Err("another byte than was sent".into());
        }
    }
    Ok(blocks * BLOCK)
}

/// Says goodbye, and waits for the server's end.
fn end(mut stream: Stream) -> Result<()> {
    stream.conn.send_close_notify();
    stream.flush()?;
    match stream.read(&mut [0; 64]) {
        Ok(0) => Ok(()),
        Ok(_) => Err("bytes after the answer".into()),
        // A server may end without a goodbye of its own.
        Err(error) if [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset].contains(&error.kind()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, port, authority, connections, count, more @ ..] = &words[..] else {
        return Err("usage: client WORK PORT AUTHORITY CONNECTIONS COUNT [http]".into());
    };
    let load = Load::new(port.parse()?, authority, !more.is_empty())?;
    let (connections, count) = (connections.parse()?, count.parse()?);
    let done = match what.as_str() {
        "echo" => load.echoes(connections, count)?,
        "mirror" => load.mirrors(count)?,
        "sink" => load.sends(count)?,
        "source" => load.receives(count)?,
        "full" => load.handshakes(count, HandshakeKind::Full)?,
        "resumed" => load.handshakes(count, HandshakeKind::Resumed)?,
        "idle" => load.idle(connections)?,
        other => return Err(format!("{other} is no work").into()),
    };
    println!("{{\"done\": {done}}}");
    Ok(())
}
