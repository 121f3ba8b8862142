//! A proxy that splits and merges segments at random.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time that bytes are held back for more to be sent with them.
const HELD: Duration = Duration::from_millis(1);

/// Random numbers that are equal in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Takes this number of connections, and makes one onwards for each.
pub(crate) struct Proxy {
    at: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(onwards: SocketAddr, connections: usize, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let accepting = thread::spawn(move || {
            let mut ways = Vec::new();
            for connection in 0..connections as u64 {
                let (here, _) = listener.accept().expect("a client");
                let there = TcpStream::connect(onwards).expect("the server listens");
                for (number, from, to) in [(1, &here, &there), (2, &there, &here)] {
                    let (from, to) = (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"));
                    let random = Random((seed << 32 | connection << 2 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    ways.push(thread::spawn(move || carry(from, to, random)));
                }
            }
            ways.into_iter().for_each(|way| way.join().expect("both ends end in order"));
        });
        Proxy { at, accepting }
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Waits until both ends of every connection have ended.
    pub(crate) fn join(self) {
        self.accepting.join().expect("it did not panic");
    }
}

/// Carries the bytes of one direction, to its end. Short stretches go in pieces of a few bytes, others as a whole or with what follows.
fn carry(mut from: TcpStream, mut to: TcpStream, mut random: Random) {
    from.set_read_timeout(Some(HELD)).expect("not zero");
    to.set_nodelay(true).expect("a TCP socket");
    let mut bytes = vec![0; 256 * 1024];
    let mut ended = false;
    while !ended {
        let wanted = [1 + random.below(40), 1 + random.below(3_000), bytes.len()][random.below(3)];
        let mut held = 0;
        while held < wanted && !ended {
            match from.read(&mut bytes[held..wanted]) {
                Ok(count) => (held, ended) = (held + count, count == 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock && held == 0 => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut rest = &bytes[..held];
        while !rest.is_empty() {
            let longest = if held < 200 { 1 + random.below(30) } else { 1 + random.below(held) };
            let (piece, after) = rest.split_at(longest.min(rest.len()));
            to.write_all(piece).expect("the other end reads");
            rest = after;
        }
    }
    to.shutdown(Shutdown::Write).expect("it stands");
}
