//! What a client says and what it expects: one request and its answer at a time.

use super::random::{Random, mix};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes what each connection says. [`Echo`] and [`Pairs`] are two; a protocol with answers of its own form is another.
pub trait Exchange: Send + Sync + 'static {
    /// What one connection says and expects.
    type Dialogue: Dialogue;

    /// A new connection's.
    fn dialogue(&self) -> Self::Dialogue;

    /// Whether a client that comes and goes says that no more comes as soon as it has asked. Else it does so after the answer.
    fn ends_at_once(&self) -> bool {
        false
    }
}

/// One connection's requests and answers. An answer is complete before the next request is sent.
pub trait Dialogue: Send + 'static {
    /// Hands the next request to `send`, in one piece or more.
    fn ask(&mut self, send: &mut dyn FnMut(&[u8]));

    /// Bytes of the answer came.
    fn judge(&mut self, came: &[u8]) -> Judgement;

    /// The server will send no more, and the answer was not complete. Whether it is now.
    fn ended(&mut self) -> bool {
        false
    }
}

/// What bytes are in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Right so far; all were taken.
    More,
    /// The answer is complete, and right, after so many of them. What follows was not asked for.
    Whole(usize),
    /// The same, and the server said that it will end the connection.
    Last(usize),
    /// So many of them are not those expected.
    Wrong(usize),
}

/// Random bytes that must come back.
#[derive(Debug)]
pub struct Echo {
    seed: u64,
    least: u64,
    most: u64,
    at_once: bool,
    next: AtomicU64,
}

impl Echo {
    /// Blocks of `least` to `most` bytes. The same seed gives the same bytes.
    ///
    /// # Panics
    /// When `least` is 0 or above `most`.
    pub fn new(seed: u64, least: u64, most: u64) -> Echo {
        assert!(0 < least && least <= most, "an echo has from 1 to some bytes");
        Echo { seed, least, most, at_once: false, next: AtomicU64::new(0) }
    }

    /// A client that comes and goes says that no more comes as soon as it has sent its block.
    #[must_use]
    pub fn ending_at_once(self) -> Echo {
        Echo { at_once: true, ..self }
    }
}

impl Exchange for Echo {
    type Dialogue = Echoed;

    fn dialogue(&self) -> Echoed {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let salt = mix(self.seed ^ mix(number));
        Echoed { salt, random: Random::new(!salt), least: self.least, most: self.most, sent: 0, verified: 0 }
    }

    fn ends_at_once(&self) -> bool {
        self.at_once
    }
}

/// One connection of [`Echo`]. Its bytes are numbered: one that is lost, doubled or moved shows at once.
#[derive(Debug)]
pub struct Echoed {
    salt: u64,
    random: Random,
    least: u64,
    most: u64,
    /// Bytes sent so far: the number of the next one.
    sent: u64,
    /// Bytes that came back and were right.
    verified: u64,
}

/// Byte `number` of the data: part of a word that depends on all of its number.
fn byte(salt: u64, number: u64) -> u8 {
    let word = mix(salt.wrapping_add(number / 8)).to_le_bytes();
    let [place, ..] = (number % 8).to_le_bytes();
    word[usize::from(place)]
}

impl Dialogue for Echoed {
    fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
        let mut left = self.least + self.random.below(self.most - self.least + 1);
        let mut block = [0; 64];
        while left > 0 {
            let part = left.min(block.len() as u64);
            let used = usize::try_from(part).expect("at most the block's length");
            for (slot, number) in block[..used].iter_mut().zip(self.sent..) {
                *slot = byte(self.salt, number);
            }
            send(&block[..used]);
            self.sent += part;
            left -= part;
        }
    }

    fn judge(&mut self, came: &[u8]) -> Judgement {
        let left = self.sent - self.verified;
        let due = usize::try_from(left).unwrap_or(usize::MAX).min(came.len());
        let equal = came[..due].iter().zip(self.verified..).filter(|(came, number)| **came == byte(self.salt, *number)).count();
        if equal < due {
            return Judgement::Wrong(due - equal);
        }
        self.verified += due as u64;
        if self.verified == self.sent { Judgement::Whole(due) } else { Judgement::More }
    }
}

/// Requests and their answers from a function of the request's number, which counts from 0 on each connection.
pub struct Pairs<F>(Arc<F>);

impl<F> Pairs<F>
where
    F: Fn(u64) -> (Vec<u8>, Vec<u8>) + Send + Sync + 'static,
{
    /// `pair` gives a request and the whole answer to it. An empty answer would be none: give at least a byte.
    pub fn new(pair: F) -> Pairs<F> {
        Pairs(Arc::new(pair))
    }
}

impl<F> Exchange for Pairs<F>
where
    F: Fn(u64) -> (Vec<u8>, Vec<u8>) + Send + Sync + 'static,
{
    type Dialogue = Paired<F>;

    fn dialogue(&self) -> Paired<F> {
        Paired { pair: self.0.clone(), number: 0, expected: Vec::new(), came: 0 }
    }
}

/// One connection of [`Pairs`].
pub struct Paired<F> {
    pair: Arc<F>,
    number: u64,
    expected: Vec<u8>,
    came: usize,
}

impl<F> Dialogue for Paired<F>
where
    F: Fn(u64) -> (Vec<u8>, Vec<u8>) + Send + Sync + 'static,
{
    fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
        let (request, expected) = (self.pair)(self.number);
        self.number += 1;
        (self.expected, self.came) = (expected, 0);
        send(&request);
    }

    fn judge(&mut self, came: &[u8]) -> Judgement {
        let left = &self.expected[self.came..];
        let due = left.len().min(came.len());
        let equal = came.iter().zip(left).filter(|(came, expected)| came == expected).count();
        if equal < due {
            return Judgement::Wrong(due - equal);
        }
        self.came += due;
        if self.came == self.expected.len() { Judgement::Whole(due) } else { Judgement::More }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(dialogue: &mut impl Dialogue) -> Vec<u8> {
        let mut request = Vec::new();
        dialogue.ask(&mut |bytes| request.extend_from_slice(bytes));
        request
    }

    #[test]
    fn an_echo_knows_every_byte() {
        let echo = Echo::new(7, 100, 200);
        let (mut one, mut other) = (echo.dialogue(), echo.dialogue());
        let (first, second) = (asked(&mut one), asked(&mut one));
        assert!((100..=200).contains(&first.len()));
        assert_ne!(first[..100], asked(&mut other)[..100], "connections differ");
        let all = [first, second].concat();
        assert_eq!(one.judge(&all[..10]), Judgement::More);
        // A byte is left out: what follows is wrong, but for what is equal by chance.
        assert!(matches!(one.judge(&all[11..60]), Judgement::Wrong(wrong) if wrong > 40));
        assert_eq!(one.judge(&[&all[10..], b"more"].concat()), Judgement::Whole(all.len() - 10));
    }

    #[test]
    fn pairs_are_asked_in_order_and_compared() {
        let mut dialogue =
            Pairs::new(|number| (format!("{number}?").into_bytes(), format!("{number}!\n").into_bytes())).dialogue();
        assert_eq!(asked(&mut dialogue), b"0?");
        assert_eq!(dialogue.judge(b"0!"), Judgement::More);
        assert_eq!(dialogue.judge(b"\nx"), Judgement::Whole(1));
        assert_eq!(asked(&mut dialogue), b"1?");
        assert_eq!(dialogue.judge(b"2!"), Judgement::Wrong(1));
    }
}
