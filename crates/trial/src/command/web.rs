//! GET requests, whose answers must be equal each time.

use crate::{Dialogue, Exchange, Judgement};
use sockdrawer::Address;
use sockdrawer_catalog::http::answer::{self, Progress, Reader};
use sockdrawer_catalog::http::{After, Request};
use std::sync::{Arc, OnceLock};

/// Maximum length of a body that is compared, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The parts of an answer that must be equal each time: status and body, not dates and other header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    /// Returns the number of bytes that differ; a different status counts as one.
    fn differs(&self, other: &Answer) -> usize {
        let (one, two) = (&self.body, &other.body);
        let wrong = one.iter().zip(two).filter(|(one, two)| one != two).count() + one.len().abs_diff(two.len());
        wrong + usize::from(self.status != other.status)
    }
}

/// The first answer, which the others are compared with.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    first: OnceLock<Answer>,
}

impl Expected {
    /// Returns the number of wrong bytes of an answer, and what is wrong with it.
    fn wrong(&self, answer: Answer) -> (usize, Option<String>) {
        let first = self.first.get_or_init(|| answer.clone());
        let tell = |answer: &Answer| format!("status {} and {} bytes", answer.status, answer.body.len());
        match (first.differs(&answer), tell(first), tell(&answer)) {
            (0, ..) => (0, None),
            (wrong, first, answer) if first == answer => {
                (wrong, Some(format!("two bodies differ, each of {answer}: the page changed, or each client has its own")))
            }
            (wrong, first, answer) => (wrong, Some(format!("an answer had {answer}, the first one {first}"))),
        }
    }

    /// Returns the status of the first answer, where it is an error.
    pub(crate) fn error(&self) -> Option<u16> {
        self.first.get().map(|first| first.status).filter(|status| !(200..400).contains(status))
    }
}

/// The requests of a set of clients.
pub(crate) struct Web {
    request: Arc<[u8]>,
    expected: Arc<Expected>,
}

impl Web {
    /// Creates requests for `path`, which name `host`, or else the address; with `once`, each asks the server to end the connection after its answer.
    pub(crate) fn new(target: &Address, (path, host): (&str, Option<&str>), once: bool, expected: Arc<Expected>) -> Web {
        let to = match target {
            Address::Tcp(address) => Some(*address),
            _ => None,
        };
        let fields = host.iter().map(|host| format!("Host: {host}")).collect();
        let after = if once { After::Close } else { After::KeepAlive };
        let request = Request { fields, ..Request::default() }.bytes(path, to, after);
        Web { request: request.into(), expected }
    }
}

impl Exchange for Web {
    type Dialogue = Visitor;

    /// Returns false: a server that ends connections at rest may take one with half a head for such a connection.
    fn may_split(&self) -> bool {
        false
    }

    fn dialogue(&self) -> Visitor {
        Visitor {
            request: self.request.clone(),
            expected: self.expected.clone(),
            reader: Reader::default(),
            kept: Vec::new(),
            body: Vec::new(),
            odd: None,
        }
    }
}

/// Connection of [`Web`].
pub(crate) struct Visitor {
    request: Arc<[u8]>,
    expected: Arc<Expected>,
    reader: Reader,
    /// The bytes of the answer under way that are not complete yet.
    kept: Vec<u8>,
    body: Vec<u8>,
    /// The description of an answer that is wrong.
    odd: Option<String>,
}

impl Visitor {
    /// Returns the number of wrong bytes in the answer, which has ended.
    fn wrong(&mut self, answer: answer::Answer) -> usize {
        let (wrong, odd) = self.expected.wrong(Answer { status: answer.status, body: std::mem::take(&mut self.body) });
        self.odd = odd;
        wrong
    }

    fn unreadable(&mut self, why: impl std::fmt::Display, came: usize) -> Judgement {
        self.odd = Some(format!("no answer that can be read: {why}"));
        Judgement::Wrong(came)
    }
}

impl Dialogue for Visitor {
    fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.kept.clear();
        self.body.clear();
        send(&self.request);
    }

    fn judge(&mut self, came: &[u8]) -> Judgement {
        let before = self.kept.len();
        self.kept.extend_from_slice(came);
        let body = &mut self.body;
        match self.reader.read(&self.kept, &mut |bytes| body.extend_from_slice(bytes)) {
            Ok(_) if self.body.len() > MAX_BODY => self.unreadable("its body is longer than 1 MiB", came.len()),
            Ok((used, Progress::Part)) => {
                self.kept.drain(..used);
                Judgement::More
            }
            Ok((used, Progress::Whole(answer))) => match self.wrong(answer) {
                0 if answer.last => Judgement::Last(used - before),
                0 => Judgement::Whole(used - before),
                wrong => Judgement::Wrong(wrong),
            },
            Err(why) => self.unreadable(why, came.len()),
        }
    }

    fn ended(&mut self) -> Judgement {
        match self.reader.ended().map(|answer| self.wrong(answer)) {
            None => Judgement::More,
            Some(0) => Judgement::Whole(0),
            Some(wrong) => Judgement::Wrong(wrong),
        }
    }

    fn describe(&self, after: &str, came: &str) -> String {
        self.odd.clone().unwrap_or_else(|| format!("{after} an answer was expected, and {came} came"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor() -> Visitor {
        Web::new(&"127.0.0.1:80".parse().expect("an address"), ("/", None), false, Arc::default()).dialogue()
    }

    #[test]
    fn a_body_that_is_too_long_is_no_answer_that_can_be_compared() {
        let mut visitor = visitor();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BODY + 1);
        assert_eq!(visitor.judge(head.as_bytes()), Judgement::More);
        assert_eq!(visitor.judge(&vec![0; MAX_BODY]), Judgement::More);
        assert_eq!(visitor.judge(b"x"), Judgement::Wrong(1));
        assert_eq!(visitor.odd.as_deref(), Some("no answer that can be read: its body is longer than 1 MiB"));
    }

    #[test]
    fn an_answer_may_come_in_pieces_and_end_with_its_connection() {
        let mut visitor = visitor();
        assert_eq!(visitor.judge(b"HTTP/1.1 200 OK\r\nContent-Le"), Judgement::More);
        assert_eq!(visitor.judge(b"ngth: 3\r\n\r\na"), Judgement::More);
        assert_eq!(visitor.judge(b"bcPong"), Judgement::Whole(2));
        visitor.ask(&mut |_| ());
        assert_eq!(visitor.judge(b"HTTP/1.1 200 OK\r\n\r\nab"), Judgement::More);
        assert_eq!(visitor.judge(b"c"), Judgement::More);
        assert_eq!(visitor.ended(), Judgement::Whole(0), "the same answer as before");
        visitor.ask(&mut |_| ());
        assert_eq!(visitor.judge(b"Pong\r\n\r\n"), Judgement::Wrong(8));
    }

    #[test]
    fn answers_are_compared_with_the_first_one() {
        let expected = Arc::new(Expected::default());
        let target = "127.0.0.1:80".parse().expect("an address");
        let judged = |answer: &str| {
            let mut visitor = Web::new(&target, ("/", None), false, expected.clone()).dialogue();
            (visitor.judge(format!("HTTP/1.1 {answer}").as_bytes()), visitor.odd)
        };
        let first = "200 OK\r\nDate: 1\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(judged(first), (Judgement::Whole(9 + first.len()), None));
        assert!(matches!(judged("200 OK\r\nDate: 2345\r\nContent-Length: 2\r\n\r\nab").0, Judgement::Whole(_)));
        assert!(matches!(judged("200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab").0, Judgement::Last(_)));
        let (judgement, odd) = judged("200 OK\r\nContent-Length: 2\r\n\r\nax");
        let differ = "two bodies differ, each of status 200 and 2 bytes: the page changed, or each client has its own";
        assert_eq!((judgement, odd.as_deref()), (Judgement::Wrong(1), Some(differ)));
        let (judgement, odd) = judged("502 Bad Gateway\r\nContent-Length: 4\r\n\r\nabcd");
        let gateway = "an answer had status 502 and 4 bytes, the first one status 200 and 2 bytes";
        assert_eq!((judgement, odd.as_deref()), (Judgement::Wrong(3), Some(gateway)));
    }
}
