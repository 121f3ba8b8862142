//! Consumers of payloads.

use super::{Acks, Connection};
use sockdrawer::{Peer, Service};
use std::ops::ControlFlow;

/// A part of a message's payload, where it was read: nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The message's.
    pub id: u64,
    /// Bytes of its whole payload.
    pub size: u32,
    /// Number of the payload's bytes that came in earlier parts.
    pub begin: u32,
    /// Bytes of the part.
    pub bytes: &'a [u8],
}

impl Part<'_> {
    /// Returns true for the last part: the payload is whole with it.
    pub fn is_last(&self) -> bool {
        self.begin as usize + self.bytes.len() == self.size as usize
    }
}

/// Decides what is done with the payloads of one connection, as they come. See [`Acks::consuming`].
pub trait Consumer: Send + 'static {
    /// Most messages come in one part, an empty payload too; one that a read cuts comes in several, in order, and one that is larger
    /// than a read always. The ack follows the last part. `Break` closes the connection: what came before is acknowledged,
    /// this message is not.
    fn part(&mut self, part: Part<'_>) -> ControlFlow<()>;
}

/// Looks at no payload: what [`Acks`] does by itself, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Consumer for Ignore {
    #[inline(always)]
    fn part(&mut self, _part: Part<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The server with a [`Consumer`] for each connection: see [`Acks::consuming`].
#[derive(Clone, Copy, Debug)]
pub struct Consuming<F> {
    acks: Acks,
    consumer: F,
}

impl Acks {
    /// Returns this server with a consumer: each connection's payloads go to what `consumer` makes for it. It cannot be built in another process, and
    /// no connection moves to it from another generation: a consumer would miss what came before.
    ///
    /// ```
    /// use sockdrawer::testing::Driver;
    /// use sockdrawer_catalog::acks::{AckPattern, Acks, Consumer, Part};
    /// use std::ops::ControlFlow;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// /// Adds up the bytes of each message.
    /// struct Sum {
    ///     message: u64,
    ///     all: Arc<AtomicU64>,
    /// }
    /// impl Consumer for Sum {
    ///     fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
    ///         self.message += part.bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    ///         if part.is_last() {
    ///             self.all.fetch_add(std::mem::take(&mut self.message), Ordering::Relaxed);
    ///         }
    ///         ControlFlow::Continue(())
    ///     }
    /// }
    ///
    /// let all = Arc::new(AtomicU64::new(0));
    /// let sums = all.clone();
    /// let server = Acks { pattern: AckPattern::Read }.consuming(move |_peer| Sum { message: 0, all: sums.clone() });
    /// let mut connection = Driver::open(server);
    /// connection.receive(b"\0\0\0\0\0\0\0\0\x03\0\0\0\x01\x02");
    /// connection.receive(b"\x04");
    /// assert_eq!(all.load(Ordering::Relaxed), 7);
    /// assert_eq!(connection.sent().len(), 12);
    /// ```
    pub fn consuming<C: Consumer, F: Fn(&Peer) -> C + Send + Sync + 'static>(self, consumer: F) -> Consuming<F> {
        Consuming { acks: self, consumer }
    }
}

impl<C: Consumer, F: Fn(&Peer) -> C + Send + Sync + 'static> Service for Consuming<F> {
    type Protocol = Connection<C>;

    fn open(&self, peer: &Peer) -> Connection<C> {
        Connection::new(self.acks.pattern, (self.consumer)(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acks::AckPattern;
    use sockdrawer::Closed;
    use sockdrawer::testing;
    use std::sync::{Arc, Mutex};

    /// Ids and payloads of whole messages, each put together from its parts.
    type Messages = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

    struct Collect {
        payload: Vec<u8>,
        into: Messages,
    }

    impl Consumer for Collect {
        fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
            assert_eq!(part.begin as usize, self.payload.len(), "parts come in order");
            self.payload.extend_from_slice(part.bytes);
            if self.payload == b"no" {
                return ControlFlow::Break(());
            }
            if part.is_last() {
                assert_eq!(part.size as usize, self.payload.len());
                self.into.lock().expect("nobody panicked").push((part.id, std::mem::take(&mut self.payload)));
            }
            ControlFlow::Continue(())
        }
    }

    fn collecting() -> (testing::Driver<impl Service>, Messages) {
        let messages = Messages::default();
        let into = messages.clone();
        let server = Acks { pattern: AckPattern::Read }.consuming(move |_| Collect { payload: Vec::new(), into: into.clone() });
        (testing::Driver::open(server), messages)
    }

    fn message(id: u64, payload: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes()[..], &(payload.len() as u32).to_le_bytes(), payload].concat()
    }

    #[test]
    fn payloads_are_whole_wherever_the_stream_is_split() {
        let payloads = [&b"first"[..], b"", b"the third", b"", b"x"];
        let stream: Vec<u8> = (0..).zip(payloads).flat_map(|(id, payload)| message(id, payload)).collect();
        let expected: Vec<_> = (0..).zip(payloads.map(<[u8]>::to_vec)).collect();
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let (mut connection, messages) = collecting();
                connection.receive(&stream[..first]);
                connection.receive(&stream[first..second]);
                connection.receive(&stream[second..]);
                assert_eq!(*messages.lock().expect("nobody panicked"), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_refused_payload_closes_after_what_came_before() {
        for at in 0..=2 {
            let stream = [message(0, b"yes"), message(1, b"no"), message(2, b"never")].concat();
            let (mut connection, messages) = collecting();
            let until = 15 + 12 + at;
            connection.receive(&stream[..until]);
            connection.receive(&stream[until..]);
            assert_eq!(connection.closed(), Some(Closed::Orderly));
            assert_eq!(connection.sent(), [0; 12], "the first is acknowledged, and nothing else");
            assert_eq!(messages.lock().expect("nobody panicked").len(), 1);
        }
    }
}
