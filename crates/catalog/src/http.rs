//! `http`: `GET /test/fast` and `GET /test/slow`, any HTTP version or none, answered by 57 bytes, always equal, and the end of the connection. No
//! more of HTTP than a benchmark of short connections needs.
//!
//! `GET` and `HEAD` of `/` are answered by 200 and a line that says what is here, of other pages by 404. Anything else, and a head of more than
//! [`MAX_HEAD`] bytes, is refused as soon as it can be told: the connection is closed without an answer. Not reset: a reset could overtake nothing
//! here, but it would look like a failure of the machine.

pub mod answer;
mod client;
mod request;

pub use client::{Client, Close, Manner, Page, Session, VisitMeter, Visited, Visits};
pub use request::{After, Request};

use crate::{WrongOptions, recipe, time};
use sockdrawer::{
    CannotRestore, CannotSave, Closing, Context, Input, Job, JobResult, Peer, Protocol, Recipe, Saved, Saver, Service, State,
    Step,
};
use std::time::Duration;

/// Answer of the server, to fast and to slow.
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A request's head may be this long, its end included.
pub const MAX_HEAD: usize = 4096;

/// Time that a connection that is asked to end waits for its request: the round trip across a continent.
const ON_ITS_WAY: Duration = Duration::from_millis(200);
const HEAD_END: &[u8] = b"\r\n\r\n";
const START: &[u8] = b"GET /test/";
const VERSION: &[u8] = b" HTTP/";
/// Other requests that are answered begin so.
const OTHERS: [&[u8]; 2] = [b"GET /", b"HEAD /"];
const HERE: &str = "sockdrawer serve http: /test/fast answers at once, /test/slow a moment later\n";
const NOT_HERE: &str = "nothing is here: ask for /test/fast or /test/slow\n";

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// Time that `/test/slow` waits in a worker; where the model has none, where its connection runs.
    pub slow_duration: Duration,
    /// True where slow waits at all. Else it is answered at once, like fast, because it would hold up a loop's other connections.
    pub in_worker: bool,
}

impl Default for Http {
    fn default() -> Http {
        Http { slow_duration: Duration::from_millis(30), in_worker: true }
    }
}

impl Http {
    /// Name of its recipe.
    pub const NAME: &str = "http";

    /// Creates the service from the options of its recipe: the slow duration, or `none` for no workers.
    ///
    /// # Errors
    /// When they are others.
    pub fn from_options(options: &[u8]) -> Result<Http, WrongOptions> {
        let wrong = || WrongOptions::new(Http::NAME, options);
        match std::str::from_utf8(options).map_err(|_| wrong())? {
            "none" => Ok(Http { in_worker: false, ..Http::default() }),
            slow => Ok(Http { slow_duration: time::parse(slow).map_err(|_| wrong())?, in_worker: true }),
        }
    }

    fn connection(&self) -> Connection {
        Connection { slow: self.in_worker.then_some(self.slow_duration), looked_at: 0 }
    }
}

impl Service for Http {
    type Protocol = Connection;

    fn open(&self, _peer: &Peer) -> Connection {
        self.connection()
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Connection, CannotRestore> {
        Ok(self.connection())
    }

    fn state(&self) -> State {
        State::of(Http::NAME, 1)
    }

    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }

    fn needs_peer_address(&self) -> bool {
        false
    }

    fn recipe(&self) -> Option<Recipe> {
        recipe(Http::NAME, if self.in_worker { time::format(self.slow_duration) } else { "none".to_owned() })
    }
}

/// A connection of [`Http`].
#[derive(Debug)]
pub struct Connection {
    slow: Option<Duration>,
    /// Bytes of the head known not to hold its end, so that a head that drips in is not searched again for each byte.
    looked_at: u16,
}

/// Page that a head asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Fast,
    Slow,
}

/// The first line of a head, as far as it is there.
enum Line {
    /// A whole line: the page that it asks for, and its length without its end.
    Whole(Asks, usize),
    Partial,
    Wrong,
}

/// Reads `GET /test/fast` or `slow`, then an HTTP version or nothing, to the end of the line.
fn first_line(head: &[u8]) -> Line {
    let Some(rest) = head.strip_prefix(START) else { return begins(&[START], head) };
    let (request, rest) = match rest.split_first_chunk::<4>() {
        Some((b"fast", rest)) => (Asks::Fast, rest),
        Some((b"slow", rest)) => (Asks::Slow, rest),
        _ => return begins(&[b"fast", b"slow"], rest),
    };
    let rest = match rest.strip_prefix(VERSION) {
        Some(version) => {
            let is_of_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
            // Nearly all say this.
            let length = if version.starts_with(b"1.1\r") { 3 } else { version.iter().take_while(is_of_version).count() };
            if length == 0 && !version.is_empty() {
                return Line::Wrong;
            }
            &version[length..]
        }
        None if rest.starts_with(b" ") => return begins(&[VERSION], rest),
        None => rest,
    };
    match rest {
        [b'\r', b'\n', ..] => Line::Whole(request, head.len() - rest.len()),
        [] | [b'\r'] => Line::Partial,
        _ => Line::Wrong,
    }
}

/// Returns `Partial` where `text` may still become one of `words`, else `Wrong`.
fn begins(words: &[&[u8]], text: &[u8]) -> Line {
    if words.iter().any(|word| word.starts_with(text)) { Line::Partial } else { Line::Wrong }
}

/// Returns where a head ends whose first line is of this length. `from`: before that the end does not begin.
fn end_of(head: &[u8], line: usize, from: usize) -> Option<usize> {
    // A head of one line.
    if head[line..].starts_with(HEAD_END) {
        return Some(line + HEAD_END.len());
    }
    let from = from.max(line);
    find_end(&head[from..]).map(|at| from + at + HEAD_END.len())
}

/// Looks at each fourth byte: one of them is part of the end, wherever that lies. Two at a time, which takes a third of the steps less.
fn find_end(bytes: &[u8]) -> Option<usize> {
    let (eights, rest) = bytes.as_chunks::<8>();
    for (eight, of) in eights.iter().zip((0..).step_by(8)) {
        for at in [3, 7] {
            if eight[at] <= b'\r'
                && let Some(end) = end_around(bytes, of + at)
            {
                return Some(end);
            }
        }
    }
    let last = bytes.len() - rest.len() + 3;
    if last < bytes.len() { end_around(bytes, last) } else { None }
}

/// Returns the end that this byte is part of.
#[inline(always)]
fn end_around(bytes: &[u8], at: usize) -> Option<usize> {
    let half = at - usize::from(bytes[at] == b'\n');
    [half - 2, half].into_iter().find(|at| bytes[*at..].starts_with(HEAD_END))
}

/// Refuses the connection. Nothing is owed: what the peer sent besides needs no care.
fn refuse(input: &mut Input<'_>) -> Step {
    input.take_all();
    Step::Close
}

impl Connection {
    fn answer(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(ANSWER);
        Step::Close
    }

    /// Answers what asks for another page; the end of the head does not begin before `from`.
    #[cold]
    fn stranger(&mut self, from: usize, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let head = &input.bytes()[..input.bytes().len().min(MAX_HEAD)];
        let page = OTHERS.iter().find_map(|start| head.strip_prefix(*start));
        let end = page.and_then(|_| find_end(&head[from..])).map(|at| from + at + HEAD_END.len());
        match (page, end) {
            (Some(page), Some(end)) => {
                let is_root = page.starts_with(b" ") || page.starts_with(b"\r") || page.starts_with(b"?");
                let (status, text) = if is_root { ("200 OK", HERE) } else { ("404 Not Found", NOT_HERE) };
                let body = if head.starts_with(b"HEAD") { "" } else { text };
                let fields = format!("Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close", text.len());
                cx.send(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}").as_bytes());
                input.take(end);
                Step::Close
            }
            _ if head.len() < MAX_HEAD && (page.is_some() || OTHERS.iter().any(|start| start.starts_with(head))) => {
                self.looked_at = head.len() as u16;
                Step::Continue
            }
            _ => refuse(input),
        }
    }
}

impl Protocol for Connection {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let bytes = input.bytes();
        let head = &bytes[..bytes.len().min(MAX_HEAD)];
        // The end may have begun in the bytes that were looked at before.
        let from = usize::from(self.looked_at).saturating_sub(HEAD_END.len() - 1).min(head.len());
        let (request, end) = match first_line(head) {
            Line::Whole(request, line) => (request, end_of(head, line, from)),
            Line::Partial => (Asks::Fast, None),
            Line::Wrong => return self.stranger(from, input, cx),
        };
        if end.is_none() && head.len() < MAX_HEAD {
            self.looked_at = head.len() as u16;
            return Step::Continue;
        }
        match (request, end, self.slow) {
            (_, None, _) => refuse(input),
            (Asks::Slow, Some(end), Some(slow)) => {
                input.take(end);
                Step::Work(Job::new(move || std::thread::sleep(slow)))
            }
            (_, Some(end), _) => {
                input.take(end);
                self.answer(cx)
            }
        }
    }

    /// Waits for the request of a client that has just connected: it is on its way.
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        cx.set_timer(ON_ITS_WAY);
        Step::Continue
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// Sends the answer of a job. A full queue of workers is no answer: the client sees the end and counts a failure, as with any overloaded server.
    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        match result.take::<()>() {
            Ok(()) => self.answer(cx),
            Err(_) => Step::Close,
        }
    }

    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::testing::Driver;
    use sockdrawer::{Closed, JobError};

    fn open() -> Driver<Http> {
        Driver::open(Http { slow_duration: Duration::ZERO, in_worker: true })
    }

    fn is_answered(connection: &mut Driver<Http>) -> bool {
        connection.sent() == ANSWER && connection.closed() == Some(Closed::Orderly)
    }

    fn is_refused(connection: &mut Driver<Http>) -> bool {
        connection.sent().is_empty() && connection.closed() == Some(Closed::Orderly)
    }

    #[test]
    fn the_answer_is_57_bytes() {
        assert_eq!(ANSWER.len(), 57);
    }

    #[test]
    fn any_version_or_none_is_answered_wherever_it_is_split() {
        for head in
            ["GET /test/fast\r\n\r\n", "GET /test/fast HTTP/1.0\r\n\r\n", "GET /test/fast HTTP/3\r\nHost: a\r\nX: \r\r\n\r\n"]
        {
            for at in 0..head.len() {
                let mut connection = open();
                connection.receive(&head.as_bytes()[..at]);
                assert_eq!((connection.sent(), connection.closed()), (vec![], None), "{head:?} at {at}");
                connection.receive(&head.as_bytes()[at..]);
                assert!(is_answered(&mut connection), "{head:?} at {at}");
            }
            let mut connection = open();
            connection.receive_split(head.as_bytes());
            assert!(is_answered(&mut connection), "{head:?} byte by byte");
        }
    }

    #[test]
    fn slow_is_a_job_and_fast_is_not() {
        let mut connection = open();
        connection.receive(b"GET /test/slow HTTP/1.1\r\n\r\n");
        connection.finish();
        assert_eq!((connection.sent(), connection.closed()), (vec![], None));
        connection.run_job();
        assert!(is_answered(&mut connection));
        let mut connection = open();
        connection.receive(b"GET /test/slow HTTP/1.1\r\n\r\n");
        connection.fail_job(JobError::QueueFull);
        assert!(is_refused(&mut connection));
        let mut connection = Driver::open(Http { in_worker: false, ..Http::default() });
        connection.receive(b"GET /test/slow HTTP/1.1\r\n\r\n");
        assert!(is_answered(&mut connection));
    }

    #[test]
    fn anything_else_is_closed_as_soon_as_it_can_be_told() {
        for wrong in ["P", "GEX", "GET x", "HEAD x", "g", "\r\n"] {
            let mut connection = open();
            connection.receive(&wrong.as_bytes()[..wrong.len() - 1]);
            let before = connection.closed();
            connection.receive(&wrong.as_bytes()[wrong.len() - 1..]);
            assert!(is_refused(&mut connection), "{wrong:?}");
            assert!(wrong.len() == 1 || before.is_none() || wrong.ends_with("\n"), "{wrong:?} could not be told before");
            assert_eq!(connection.kept(), b"");
        }
        let mut connection = open();
        connection.receive_split(format!("GET /x\r\n{}", "a".repeat(MAX_HEAD)).as_bytes());
        assert!(is_refused(&mut connection));
    }

    #[test]
    fn a_stranger_is_told_what_is_here() {
        for (request, status, has_body) in [
            ("GET / HTTP/1.1\r\nHost: a", "200 OK", true),
            ("GET /?a HTTP/1.1", "200 OK", true),
            ("GET /", "200 OK", true),
            ("HEAD / HTTP/1.1", "200 OK", false),
            ("GET /favicon.ico HTTP/1.1", "404 Not Found", true),
            ("GET /test/fast?", "404 Not Found", true),
            ("GET /test/faste HTTP/1.1", "404 Not Found", true),
            ("GET /test/fast HTTP/", "404 Not Found", true),
            ("HEAD /test/fast HTTP/1.1", "404 Not Found", false),
        ] {
            let request = format!("{request}\r\n\r\n");
            for at in 0..request.len() {
                let mut connection = open();
                connection.receive(&request.as_bytes()[..at]);
                assert_eq!((connection.sent(), connection.closed()), (vec![], None), "{request:?} at {at}");
                connection.receive(&request.as_bytes()[at..]);
                let text = if status == "200 OK" { HERE } else { NOT_HERE };
                let fields = format!("Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close", text.len());
                let answer = format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{}", if has_body { text } else { "" });
                assert_eq!(String::from_utf8(connection.sent()).as_deref(), Ok(answer.as_str()), "{request:?} at {at}");
                assert_eq!(connection.closed(), Some(Closed::Orderly));
            }
        }
    }

    #[test]
    fn a_head_may_have_4096_bytes_and_no_more() {
        for (length, answered) in [(MAX_HEAD, true), (MAX_HEAD + 1, false)] {
            let line = "GET /test/fast HTTP/1.1\r\nA: ";
            let head = format!("{line}{}\r\n\r\n", "x".repeat(length - line.len() - 4));
            assert_eq!(head.len(), length);
            let mut whole = open();
            whole.receive(head.as_bytes());
            assert_eq!(whole.sent() == ANSWER, answered);
            let mut split = open();
            split.receive_split(head.as_bytes());
            assert_eq!((split.sent() == ANSWER, split.closed()), (answered, Some(Closed::Orderly)));
        }
    }

    #[test]
    fn what_follows_a_request_is_left_so_that_the_close_lingers() {
        let mut connection = open();
        connection.receive(b"GET /test/fast\r\n\r\nmore");
        assert!(is_answered(&mut connection));
        assert_eq!(connection.kept(), b"more");
    }

    #[test]
    fn half_a_request_that_ends_is_closed_and_one_that_drains_is_answered_first() {
        let mut connection = open();
        connection.receive(b"GET /test/fast\r\n");
        connection.finish();
        assert!(is_refused(&mut connection));
        let mut connection = open();
        connection.receive(b"GET /test/fast\r\n");
        connection.drain();
        assert_eq!(connection.closed(), None);
        connection.receive(b"\r\n");
        assert!(is_answered(&mut connection));
    }

    #[test]
    fn a_request_that_is_on_its_way_when_the_server_ends_is_answered() {
        let mut connection = open();
        connection.drain();
        connection.advance(ON_ITS_WAY / 2);
        assert_eq!(connection.closed(), None);
        connection.receive(b"GET /test/fast\r\n\r\n");
        assert!(is_answered(&mut connection));
        let mut connection = open();
        connection.drain();
        connection.advance(ON_ITS_WAY);
        assert!(is_refused(&mut connection));
    }

    #[test]
    fn it_can_be_adopted_and_built_elsewhere() {
        let mut connection = open();
        connection.receive(b"GET /test/slow\r\n");
        let mut connection = connection.save_and_restore(Http { in_worker: false, ..Http::default() }).expect("it can be saved");
        connection.receive(b"\r\n");
        assert_eq!(connection.sent(), ANSWER, "the new service's options count");
        for http in [Http::default(), Http { in_worker: false, ..Http::default() }] {
            let recipe = http.recipe().expect("it has one");
            assert_eq!(Http::from_options(&recipe.options), Ok(http));
        }
        assert!(Http::from_options(b"soon").is_err());
    }
}
