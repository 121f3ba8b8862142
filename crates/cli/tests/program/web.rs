//! A small HTTP server of the tests' own, which counts what it did.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Treatment of a connection after an answer.
pub(crate) enum Then {
    /// The next request is awaited, or the client's end.
    Keep,
    /// The connection is ended; a request that comes meanwhile makes that a reset.
    Close,
    /// The connection is ended, and what comes meanwhile is ignored.
    Finish,
    /// The connection is reset.
    Reset,
}

/// Request, as the server sees it.
pub(crate) struct Asked<'a> {
    /// Head of the request.
    pub(crate) head: &'a str,
    /// The connection, counted from 0.
    pub(crate) connection: u64,
    /// The request on it, counted from 0.
    pub(crate) request: u64,
}

/// Web server: its address, and what it has counted.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    pub(crate) accepted: Arc<AtomicU64>,
    pub(crate) asked: Arc<AtomicU64>,
}

impl Web {
    /// Serves each connection in a thread, as `answer` says.
    pub(crate) fn serve(answer: impl Fn(&Asked<'_>) -> (Vec<u8>, Then) + Send + Sync + 'static) -> Web {
        Web::serve_at(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"), answer)
    }

    /// Serves each connection in a thread at this listener, as `answer` says.
    pub(crate) fn serve_at(listener: TcpListener, answer: impl Fn(&Asked<'_>) -> (Vec<u8>, Then) + Send + Sync + 'static) -> Web {
        let address = listener.local_addr().expect("a bound socket has an address");
        let (accepted, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (connections, requests, answer) = (accepted.clone(), asked.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = connections.fetch_add(1, Ordering::SeqCst);
                let (requests, answer) = (requests.clone(), answer.clone());
                thread::spawn(move || converse(stream, connection, &requests, &*answer));
            }
        });
        Web { address, accepted, asked }
    }

    /// Serves all with this answer; the connection is ended after it when the request says so.
    pub(crate) fn always(answer: &[u8]) -> Web {
        let answer = answer.to_vec();
        Web::serve(move |asked| (answer.clone(), if asked.wants_close() { Then::Close } else { Then::Keep }))
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Asked<'_> {
    pub(crate) fn wants_close(&self) -> bool {
        self.head.contains("\r\nConnection: close\r\n")
    }
}

fn converse(
    mut stream: TcpStream,
    connection: u64,
    requests: &AtomicU64,
    answer: &(dyn Fn(&Asked<'_>) -> (Vec<u8>, Then) + Send + Sync),
) {
    for request in 0.. {
        let Some(head) = head(&mut stream) else { return };
        requests.fetch_add(1, Ordering::SeqCst);
        let (bytes, then) = answer(&Asked { head: &head, connection, request });
        // A client that resets after the answer may be gone before it is all written.
        if stream.write_all(&bytes).is_err() {
            return;
        }
        match then {
            Then::Keep => {}
            Then::Close => return,
            Then::Finish => {
                stream.shutdown(Shutdown::Write).expect("it stands");
                // The client's end, or its reset: either is the end.
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
            Then::Reset => return set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket"),
        }
    }
}

/// Reads the next request; None at the client's end.
fn head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
