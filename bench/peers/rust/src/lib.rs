//! Parts that the peers in Rust share: the three protocols as pure functions, the arguments, and a listening socket.

pub mod tasks;

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// Number of bytes that one read of a stream of messages asks for, equal for all servers that let one choose.
pub const READ: usize = 256 * 1024;
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const HEAD: usize = 4096;
const PAYLOAD: usize = 1_000_000;
const PONGS: [u8; 64] = *b"PongPongPongPongPongPongPongPongPongPongPongPongPongPongPongPong";
/// A buffer for pings: what is read at once can be answered from `PONGS`.
pub const PINGS: usize = PONGS.len();

/// A peer that does not keep to the protocol: its connection is closed.
#[derive(Debug)]
pub struct Wrong;

#[derive(Clone, Copy)]
pub enum Workload {
    Ping,
    Http,
    Acks,
}

/// Reads `WORKLOAD PORT`, the arguments of every peer.
pub fn arguments() -> Result<(Workload, u16), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = || format!("usage: {} ping|http|acks PORT", arguments[0]);
    let [_, workload, port] = &arguments[..] else { return Err(usage()) };
    let workload = match workload.as_str() {
        "ping" => Workload::Ping,
        "http" => Workload::Http,
        "acks" => Workload::Acks,
        _ => return Err(usage()),
    };
    Ok((workload, port.parse().map_err(|_| usage())?))
}

/// Makes a socket that shares its port with those of the other threads.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it on Linux: no system call for each of them.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// Runs `serve` on a thread for each CPU that this process may use, the last one on this thread.
pub fn on_each_cpu(serve: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> io::Result<()> {
    let serve = Arc::new(serve);
    for _ in 1..std::thread::available_parallelism()?.get() {
        let serve = Arc::clone(&serve);
        std::thread::spawn(move || serve().expect("a thread serves"));
    }
    serve()
}

/// Returns the answer to all whole pings; each takes four bytes of the input, which has at most `PINGS` bytes.
pub fn pongs(input: &[u8]) -> Result<&'static [u8], Wrong> {
    let pings = input.chunks_exact(4);
    let whole = pings.len() * 4;
    if pings.into_iter().all(|ping| ping == b"Ping") { Ok(&PONGS[..whole]) } else { Err(Wrong) }
}

/// Returns the answer to a request, once it is there.
pub fn answer(input: &[u8]) -> Result<Option<&'static [u8]>, Wrong> {
    if !input.ends_with(b"\r\n\r\n") {
        return if input.len() < HEAD { Ok(None) } else { Err(Wrong) };
    }
    match input.strip_prefix(b"GET /test/fast") {
        Some([b' ' | b'\r', ..]) => Ok(Some(ANSWER)),
        _ => Err(Wrong),
    }
}

/// Returns how many bytes the whole messages take, and the acknowledgement of all of them.
// Not inlined, so that all peers have the same machine code for it: half of what a stream costs is here.
#[inline(never)]
pub fn acknowledge(input: &[u8]) -> Result<(usize, Option<[u8; 12]>), Wrong> {
    let (mut rest, mut count, mut last) = (input, 0u32, input);
    while let Some(size) = payload(rest) {
        if size > PAYLOAD {
            return Err(Wrong);
        }
        let begin = count;
        // As long as sizes are the same, where the next message begins does not wait for what this one says.
        while rest.len() >= 12 + size && payload(rest) == Some(size) {
            (last, rest) = rest.split_at(12 + size);
            count += 1;
        }
        if count == begin {
            break;
        }
    }
    let used = input.len() - rest.len();
    let Some(skipped) = count.checked_sub(1) else { return Ok((used, None)) };
    let mut ack = [0; 12];
    ack[..8].copy_from_slice(&last[..8]);
    ack[8..].copy_from_slice(&skipped.to_le_bytes());
    Ok((used, Some(ack)))
}

/// Returns the length of the payload of the first message.
fn payload(input: &[u8]) -> Option<usize> {
    let head = input.first_chunk::<12>()?;
    Some(u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize)
}
