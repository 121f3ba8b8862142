//! The server of `http`: any head is answered, refused or waited for as the format says, from the byte on that decides it.

use super::Script;
use sockdrawer::Closed;
use sockdrawer::testing::Driver;
use sockdrawer_catalog::http::Http;
use std::time::Duration;

const ANSWER: &[u8; 57] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const SERVER: Http = Http { slow_duration: Duration::ZERO, in_worker: true };
/// Maximum number of equal bytes that a step brings, so that long heads need no long inputs.
const FILL: usize = 31 * 32;

/// Verdict of the format on the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// More bytes may make it right.
    Open,
    Answered {
        slow: bool,
        /// Place where the head ends.
        end: usize,
    },
    /// The request is for another page.
    Other {
        status: &'static str,
        end: usize,
    },
    Refused,
}

fn verdict(bytes: &[u8]) -> Verdict {
    let head = &bytes[..bytes.len().min(4096)];
    let find = |what: &[u8]| head.windows(what.len()).position(|window| window == what);
    let (line, whole) = find(b"\r\n").map_or((head, false), |end| (&head[..end], true));
    let end = find(b"\r\n\r\n").map(|at| at + 4);
    let slow = line.starts_with(b"GET /test/slow");
    match end {
        _ if !is_line(line, whole) => match (other(line).filter(|status| !whole || *status != "open"), end) {
            (None, _) => Verdict::Refused,
            (Some(status), Some(end)) => Verdict::Other { status, end },
            (Some(_), None) if head.len() == 4096 => Verdict::Refused,
            (Some(_), None) => Verdict::Open,
        },
        Some(end) => Verdict::Answered { slow, end },
        None if head.len() == 4096 => Verdict::Refused,
        None => Verdict::Open,
    }
}

/// Returns the status of an answer to this line, where it asks for another page, or may still.
fn other(line: &[u8]) -> Option<&'static str> {
    let page = line.strip_prefix(b"GET /").or(line.strip_prefix(b"HEAD /"));
    match page.map(<[u8]>::first) {
        Some(None | Some(b' ' | b'?' | b'\r')) => Some("200 OK"),
        Some(_) => Some("404 Not Found"),
        None => (b"GET /".starts_with(line) || b"HEAD /".starts_with(line)).then_some("open"),
    }
}

/// Returns true where `line` is the line of a request, or the beginning of one.
fn is_line(line: &[u8], whole: bool) -> bool {
    // The end of the line may have begun.
    let line = line.strip_suffix(b"\r").filter(|_| !whole).map_or((line, whole), |line| (line, true));
    [&b"GET /test/fast"[..], b"GET /test/slow"].iter().any(|request| match line {
        (line, true) if line == *request => true,
        (line, false) if [request, &b" HTTP/"[..]].concat().starts_with(line) => true,
        (line, whole) => line
            .strip_prefix(*request)
            .and_then(|rest| rest.strip_prefix(b" HTTP/"))
            .is_some_and(|version| (!version.is_empty() || !whole) && version.iter().all(|byte| b"0123456789.".contains(byte))),
    })
}

/// Checks what the connection did with `bytes`, the last of which came in the last read.
fn judge(connection: &mut Driver<Http>, bytes: &[u8]) -> Verdict {
    let verdict = verdict(bytes);
    match verdict {
        Verdict::Open => {
            assert_eq!((connection.closed(), connection.has_job()), (None, false), "more bytes may make it right");
            assert_eq!(connection.kept(), bytes);
        }
        Verdict::Refused => {
            assert_eq!((connection.closed(), connection.has_job()), (Some(Closed::Orderly), false), "nothing can make it right");
            assert_eq!((connection.sent(), connection.kept()), (vec![], &b""[..]));
        }
        Verdict::Other { status, end } => {
            assert_eq!((connection.closed(), connection.has_job()), (Some(Closed::Orderly), false));
            assert!(connection.sent().starts_with(format!("HTTP/1.1 {status}\r\n").as_bytes()));
            assert_eq!(connection.kept(), &bytes[end..], "what follows is left, so that the close lingers");
        }
        Verdict::Answered { slow, end } => {
            assert_eq!((connection.closed().is_some(), connection.has_job()), (!slow, slow));
            if slow {
                assert_eq!(connection.sent(), b"");
                connection.run_job();
            }
            assert_eq!((connection.closed(), connection.sent()), (Some(Closed::Orderly), ANSWER.to_vec()));
            assert_eq!(connection.kept(), &bytes[end..], "what follows is left, so that the close lingers");
        }
    }
    verdict
}

/// A connection and all that it has received.
struct Visit {
    connection: Driver<Http>,
    received: Vec<u8>,
}

impl Visit {
    /// Returns whether it goes on.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        self.received.extend_from_slice(bytes);
        self.connection.receive(bytes);
        judge(&mut self.connection, &self.received) == Verdict::Open
    }
}

/// Checks an input as a whole, in the splits that it chooses, and moved between them.
pub(crate) fn check(input: &[u8]) {
    let Some(mut script) = Script::new(input) else { return };
    let mut visit = Visit { connection: Driver::open(SERVER), received: Vec::new() };
    let mut goes_on = true;
    for (what, count) in script.steps() {
        goes_on = match what {
            0 => visit.receive(script.take(count)),
            1 => visit.receive(script.take(16 * count)),
            2 => script.take(count).chunks(1).all(|byte| visit.receive(byte)),
            3 => visit.receive(&[b'x'; FILL][..32 * count]),
            4 => visit.receive(&[b'1'; FILL][..32 * count]),
            5 => {
                let moved = visit.connection.save_and_restore(SERVER);
                visit.connection = moved.expect("nothing of it holds it back");
                true
            }
            // Asks the connection to end: bytes that come soon may still become a request.
            6 => {
                visit.connection.drain();
                visit.connection.closed().is_none()
            }
            _ => visit.receive(&b"\r\n\r\n"[..count % 5]),
        };
        if !goes_on {
            break;
        }
    }
    if goes_on && visit.receive(script.stream) {
        visit.connection.finish();
        assert_eq!((visit.connection.closed(), visit.connection.sent()), (Some(Closed::Orderly), vec![]), "it ended too early");
    }
    judge(&mut whole(&visit.received), &visit.received);
}

fn whole(bytes: &[u8]) -> Driver<Http> {
    let mut connection = Driver::open(SERVER);
    connection.receive(bytes);
    connection
}
