//! Client that is sure of each byte it gets.

use crate::common::{PATIENCE, connect_from, read, read_all, reset};
use crate::reference::Served;
use crate::seeds;
use crate::service::{ANSWER, answer, pattern, request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names of clients, for handles to them.
static KEYS: AtomicU64 = AtomicU64::new(1);

/// Number of the address from which the clients of a lane connect.
const CLIENTS: u8 = 250;

/// The first bytes of a request.
const HALF: usize = 4;

pub(crate) struct Client {
    stream: TcpStream,
    /// Key by which the service keeps its handle.
    pub(crate) key: u64,
}

/// Outcome for a client that waited.
pub(crate) enum Outcome {
    Answered(Vec<u8>),
    /// Orderly end after these bytes.
    Ended(Vec<u8>),
}

impl Client {
    /// Connects from a port that no other client of the lane has: a port that connect(2) chooses may be that of a connection to another place,
    /// and the pool's list would name both alike.
    pub(crate) fn connect(lane: u8, at: SocketAddr) -> Client {
        Client { stream: connect_from(seeds::address(lane, CLIENTS), at), key: KEYS.fetch_add(1, Relaxed) }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    pub(crate) fn request(&mut self, letter: u8, number: u64) {
        self.stream.write_all(&request(letter, number)).expect("it stands");
    }

    pub(crate) fn hello(&mut self) {
        self.request(b'h', self.key);
    }

    /// Sends the first bytes of what [`Client::add`] sends.
    pub(crate) fn half(&mut self) {
        self.stream.write_all(&request(b'a', 1)[..HALF]).expect("it stands");
    }

    /// Sends the request to add a number, or what is left of it.
    pub(crate) fn add(&mut self, number: u64, half: bool) {
        let sent = if half { HALF } else { 0 };
        self.stream.write_all(&request(b'a', number)[sent..]).expect("it stands");
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        read(&mut self.stream, ANSWER).expect("an answer")
    }

    pub(crate) fn read_flood(&mut self, count: usize) {
        let bytes = read(&mut self.stream, count).expect("what was written");
        assert!(bytes.into_iter().eq((0..count).map(pattern)), "every byte of a flood");
    }

    /// Returns the bytes that come until the orderly end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = self.stream.read_to_end(&mut bytes);
        end.unwrap_or_else(|error| panic!("an orderly end, and not {error}, comes after {bytes:?}"));
        bytes
    }

    #[track_caller]
    pub(crate) fn assert_reset(mut self) {
        let end = read_all(&mut self.stream).expect_err("a reset");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    }

    /// Ends in order; what it was sent and did not read is of no interest.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.stream.shutdown(Shutdown::Write).expect("it stands");
        self.rest();
        // It leaves no TIME_WAIT behind, of which there are only so many.
        reset(self.stream);
    }

    /// Checks a client whose connection is asked to end: what it began is answered first.
    pub(crate) fn drained(mut self, served: &Served) {
        if served.half {
            self.add(1, true);
        }
        self.read_flood(served.owed);
        if served.half {
            assert_eq!(self.answer(), answer(b'a', served.origin, served.sum + 1));
        }
        assert_eq!(self.rest(), answer(b'd', served.origin, served.sum + u64::from(served.half)));
    }

    /// Returns true where the client is served still; anything but an answer or an end is wrong.
    pub(crate) fn lives(&mut self, served: &Served) -> bool {
        let sent = self.stream.write_all(&request(b'a', 1)[if served.half { HALF } else { 0 }..]).is_ok();
        let Some(flood) = read(&mut self.stream, served.owed).filter(|_| sent) else { return false };
        assert!(flood.into_iter().eq((0..served.owed).map(pattern)), "every byte of a flood");
        let Some(bytes) = read(&mut self.stream, ANSWER) else { return false };
        assert_eq!(bytes, answer(b'a', served.origin, served.sum + 1));
        true
    }

    /// Returns the outcome for a client that has something to read.
    pub(crate) fn outcome(&mut self) -> Outcome {
        let mut bytes = vec![0; ANSWER];
        let mut count = 0;
        while count < ANSWER {
            match self.stream.read(&mut bytes[count..]).expect("an answer, or an orderly end") {
                0 => return Outcome::Ended(bytes[..count].to_vec()),
                more => count += more,
            }
        }
        Outcome::Answered(bytes)
    }

    /// Returns the first client that has something to read.
    pub(crate) fn ready(clients: &[Client]) -> usize {
        let mut asked: Vec<_> = clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)).collect();
        let patience = Timespec::try_from(PATIENCE).expect("not for ever");
        let found = poll(&mut asked, Some(&patience)).expect("poll works");
        assert!(found > 0, "one of {} that wait should be served or turned away by now", clients.len());
        asked.iter().position(|one| !one.revents().is_empty()).expect("one is")
    }
}
