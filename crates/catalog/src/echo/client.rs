//! The client that measures: a block out, and that block back.

use super::WINDOW;
use crate::numbers::Numbers;
use crate::pace::{Answer, Ask};
use sockdrawer::{ConnectionId, Context, Input};

/// Blocks of one stream of numbered bytes: each, sent and received whole, is one operation of a [`Client`](crate::Client). Every byte is compared.
/// The program's default is 4 bytes back to back with a timeout of 1 s.
#[derive(Clone, Debug)]
pub struct Block {
    size: u32,
    seed: u64,
    /// Offsets in the stream: sent so far, received so far, and where this block ends.
    sent: u64,
    received: u64,
    end: u64,
}

impl Block {
    /// Creates blocks of `size` bytes, at least 1, that differ for each `seed` and connection.
    pub fn new(size: u32, seed: u64) -> Block {
        Block { size: size.max(1), seed, sent: 0, received: 0, end: 0 }
    }

    fn numbers(&self, id: ConnectionId) -> Numbers {
        Numbers::new(self.seed, id)
    }

    fn send_on(&mut self, cx: &mut Context<'_>) {
        let count = (self.end - self.sent).min(WINDOW - (self.sent - self.received));
        self.numbers(cx.id()).send(self.sent, count, cx.out());
        self.sent += count;
    }
}

impl Ask for Block {
    fn ask(&mut self, cx: &mut Context<'_>) {
        self.end += u64::from(self.size);
        self.send_on(cx);
    }

    fn answered(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Answer {
        let count = input.bytes().len() as u64;
        let wrong =
            self.numbers(cx.id()).wrong(self.received, input.bytes()).max(count.saturating_sub(self.sent - self.received));
        input.take_all();
        if wrong > 0 {
            return Answer::Wrong;
        }
        self.received += count;
        self.send_on(cx);
        if self.received == self.end { Answer::Complete } else { Answer::Partial }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, book, connect};
    use crate::meter::{End, Phase, TIMED_OUT};
    use crate::pace::{Budget, Client, Pace};
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;
    use std::time::Duration;

    fn open(size: u32, operations: u64) -> Driver<Client<Block, fn() -> Book>> {
        let pace = Pace {
            interval: Duration::ZERO.into(),
            timeout: Duration::from_secs(1),
            budget: Budget::Each(operations),
            lifetime: None,
            seed: 0,
        };
        connect(Client::new(Block::new(size, 42), pace, Book::default as fn() -> Book))
    }

    #[test]
    fn blocks_of_any_size_come_back_by_a_real_server() {
        for size in [1, 7, 16, 1_000, 100_000] {
            let mut client = open(size, 3);
            let mut server = Driver::open(super::super::Echo);
            while client.closed().is_none() {
                let sent = client.sent();
                assert!(!sent.is_empty() && sent.len() as u64 <= WINDOW);
                server.receive(&sent);
                let echoed = server.sent();
                let (first, second) = echoed.split_at(echoed.len() / 2);
                client.receive(first);
                client.receive(second);
            }
            let book = book(&mut client);
            assert_eq!(book.operations.len(), 3);
            assert_eq!((&book.failures[..], &book.ends[..]), (&[][..], &[End::Complete][..]));
        }
    }

    #[test]
    fn one_wrong_byte_or_one_too_many_is_found() {
        let changed: fn(&mut Vec<u8>) = |echo| echo[9] ^= 1;
        let longer: fn(&mut Vec<u8>) = |echo| echo.push(0);
        let shifted: fn(&mut Vec<u8>) = |echo| echo.rotate_left(1);
        for spoil in [changed, longer, shifted] {
            let mut client = open(16, 9);
            let mut echo = client.sent();
            spoil(&mut echo);
            client.receive(&echo);
            assert_eq!(client.closed(), Some(Closed::Aborted));
            let book = book(&mut client);
            assert!(book.operations.is_empty());
            assert_eq!((&book.failures[..], &book.ends[..]), (&[(Phase::Verify, None)][..], &[End::Failed][..]));
        }
    }

    #[test]
    fn half_an_echo_times_out() {
        let mut client = open(16, 9);
        let echo = client.sent();
        client.receive(&echo[..8]);
        client.advance(Duration::from_secs(1));
        assert_eq!(book(&mut client).failures, [(Phase::Answer, TIMED_OUT)]);
    }
}
