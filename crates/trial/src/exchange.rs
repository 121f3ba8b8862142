//! The requests of a client and the answers that it expects, one at a time.

use super::random::{Random, mix};
use super::script::SHOWN;
use sockdrawer_catalog::escapes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the dialogue of each connection. Implementations are [`Echo`], [`Pairs`] and [`Scripted`](crate::Scripted); write another for a
/// protocol with other answers, such as those of a store whose clients write again and again and expect their own last value:
///
/// ```
/// use sockdrawer_trial::{Dialogue, Exchange, Judgement};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Clones share the count of connections, so that each has a key of its own.
/// #[derive(Clone, Default)]
/// struct Writes(Arc<AtomicU64>);
///
/// struct Writer {
///     key: u64,
///     value: u64,
///     expected: String,
///     came: Vec<u8>,
/// }
///
/// impl Exchange for Writes {
///     type Dialogue = Writer;
///     fn dialogue(&self) -> Writer {
///         Writer { key: self.0.fetch_add(1, Ordering::Relaxed), value: 0, expected: String::new(), came: Vec::new() }
///     }
/// }
/// impl Dialogue for Writer {
///     fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
///         let last = if self.value == 0 { "nothing".to_owned() } else { self.value.to_string() };
///         self.expected = format!("= {last}\nOK\n");
///         self.value += 1;
///         self.came.clear();
///         send(format!("GET k{0}\nSET k{0} {1}\n", self.key, self.value).as_bytes());
///     }
///     fn judge(&mut self, came: &[u8]) -> Judgement {
///         let before = self.came.len();
///         self.came.extend_from_slice(came);
///         let (whole, expected) = (self.expected.len(), self.expected.as_bytes());
///         match &self.came {
///             all if all.starts_with(expected) => Judgement::Whole(whole - before),
///             all if expected.starts_with(all) => Judgement::More,
///             _ => Judgement::Wrong(came.len()),
///         }
///     }
/// }
///
/// let writes = Writes::default();
/// let mut client = writes.clone().dialogue();
/// client.ask(&mut |bytes| assert_eq!(bytes, b"GET k0\nSET k0 1\n"));
/// assert_eq!((client.judge(b"= noth"), client.judge(b"ing\nOK\n")), (Judgement::More, Judgement::Whole(7)));
/// // upgrades([old, new], arguments).exchanges(writes.clone(), writes)
/// ```
pub trait Exchange: Send + Sync + 'static {
    /// The requests and expected answers of a connection.
    type Dialogue: Dialogue;

    /// Makes the dialogue of a new connection.
    fn dialogue(&self) -> Self::Dialogue;

    /// Returns true where a client of the churn shuts down its sending side right after its request. By default it does so after the answer.
    fn ends_at_once(&self) -> bool {
        false
    }

    /// Returns whether a request may come in two pieces, with a pause of up to 40 ms between: a server that keeps the first half for itself, and does not
    /// take it along in a change, is found out by that. By WebSocket it never does. Default: true.
    fn may_split(&self) -> bool {
        true
    }

    /// Returns true where the server sends the clients of the churn what other clients say, too: then bytes behind the answer are not wrong.
    /// Default: false.
    fn hears_others(&self) -> bool {
        false
    }
}

/// The requests and answers of a connection. An answer is complete before the next request is sent.
pub trait Dialogue: Send + 'static {
    /// Gives the next request to `send`, in one piece or more.
    fn ask(&mut self, send: &mut dyn FnMut(&[u8]));

    /// Judges received bytes of the answer, which comes in pieces: the numbers of a [`Judgement`] count those of this piece.
    fn judge(&mut self, came: &[u8]) -> Judgement;

    /// Notes that the server's stream ended before the answer was complete. Returns [`Judgement::Whole`] where that completes it. Default:
    /// [`Judgement::More`].
    fn ended(&mut self) -> Judgement {
        Judgement::More
    }

    /// Describes an answer that was wrong or late. `after` says after which request it came, as in "after `GET a\n`,", and `came` quotes the beginning of
    /// it, as in "`= 2\n`" or "nothing", both for people. Default: both of them in a sentence.
    fn describe(&self, after: &str, came: &str) -> String {
        format!("{after} another answer was expected, and {came} came")
    }
}

/// Comparison of received bytes with the expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// All bytes are right so far, and the answer is not complete.
    More,
    /// The answer is complete and right after this number of bytes. Further bytes were not asked for.
    Whole(usize),
    /// The answer is complete and right after this number of bytes, and announces that the server will end the connection.
    Last(usize),
    /// A part of the answer is complete and right after this number of bytes, and the client has to send the next part of its request.
    Next(usize),
    /// This number of bytes differs from the expected ones.
    Wrong(usize),
}

/// An exchange of random bytes, which the server must send back.
#[derive(Debug)]
pub struct Echo {
    seed: u64,
    least: u64,
    most: u64,
    at_once: bool,
    next: AtomicU64,
}

impl Echo {
    /// Blocks of `least` to `most` bytes. Equal seeds give equal bytes.
    ///
    /// # Panics
    /// When `least` is 0 or above `most`.
    pub fn new(seed: u64, least: u64, most: u64) -> Echo {
        assert!(0 < least && least <= most, "an echo has from 1 to some bytes");
        Echo { seed, least, most, at_once: false, next: AtomicU64::new(0) }
    }

    /// Lets clients of the churn shut down their sending side right after their block.
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

/// The dialogue of [`Echo`]. Each byte depends on its position, so that a lost, doubled or moved byte is found at once.
#[derive(Debug)]
pub struct Echoed {
    salt: u64,
    random: Random,
    least: u64,
    most: u64,
    /// The number of bytes sent so far.
    sent: u64,
    /// The number of bytes that came back and were right.
    verified: u64,
}

/// Returns byte `number` of the data: part of a word that depends on all bits of the number.
fn byte(salt: u64, number: u64) -> u8 {
    let word = mix(salt.wrapping_add(number / 8)).to_le_bytes();
    let [place, ..] = (number % 8).to_le_bytes();
    word[usize::from(place)]
}

impl Echoed {
    /// Takes back bytes of the last request that were not sent after all.
    pub(crate) fn not_sent(&mut self, bytes: u64) {
        self.sent -= bytes;
    }
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

    fn describe(&self, _after: &str, _came: &str) -> String {
        format!("of an echo {} of {} bytes came back right", self.verified, self.sent)
    }
}

/// An exchange whose requests and answers come from a function of the request's number, which counts from 0 on each connection.
pub struct Pairs<F>(Arc<F>);

impl<F> Clone for Pairs<F> {
    fn clone(&self) -> Pairs<F> {
        Pairs(self.0.clone())
    }
}

impl<F> Pairs<F>
where
    F: Fn(u64) -> (Vec<u8>, Vec<u8>) + Send + Sync + 'static,
{
    /// Creates exchanges. `pair` returns a request and the whole answer to it, which must have at least one byte.
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

/// The dialogue of [`Pairs`].
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

    fn describe(&self, after: &str, came: &str) -> String {
        let expected = escapes::format(&self.expected[..self.expected.len().min(SHOWN)]);
        format!("{after} `{expected}` was expected, and {came} came")
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
