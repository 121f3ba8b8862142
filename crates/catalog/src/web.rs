//! HTTP/1.1 for the operators of a program: requests with bounded heads and bodies, answered by code that may block, and answers that may be
//! streamed. It is made for a few dozens of clients, not for thousands of requests per second.
//!
//! ```
//! use sockdrawer::blocking::Connection;
//! use sockdrawer::testing::Driver;
//! use sockdrawer_catalog::web::{Answer, Request, Web};
//!
//! let pages = |request: &Request, _from: &mut Connection| match request.path.as_str() {
//!     "/healthz" => Answer::text(200, "well\n"),
//!     path => Answer::error(404, format_args!("nothing is at {path}")),
//! };
//! let mut connection = Driver::open(Web::new(pages));
//! connection.receive(b"GET /healthz HTTP/1.1\r\n\r\n");
//! ```

mod answer;
mod request;

pub use answer::Answer;
pub use request::Request;

use answer::WrittenAnswer;
use request::{MAX_HEAD, ParsedRequest};
use sockdrawer::blocking::Connection;
use sockdrawer::{After, Context, Delegate, Group, Handle, Input, Note, Peer, Protocol, Service, Settings, Step};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum time from the first byte of a request to its last, and from the accept to the first byte.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time from one request of a connection to the next.
const IDLE: Duration = Duration::from_secs(60);
/// A client that does not read for this long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Answers requests: any function of the request and the connection that it came from.
pub trait Pages: Send + Sync + 'static {
    /// Returns the answer to a request. It may block: each request is answered on a thread of the pool's
    /// [`Config::delegates`](sockdrawer::Config::delegates).
    fn answer(&self, request: &Request, from: &mut Connection) -> Answer;
}

impl<F: Fn(&Request, &mut Connection) -> Answer + Send + Sync + 'static> Pages for F {
    fn answer(&self, request: &Request, from: &mut Connection) -> Answer {
        self(request, from)
    }
}

/// The service.
#[derive(Clone)]
pub struct Web {
    pages: Arc<dyn Pages>,
    max_body: usize,
    closes: bool,
    max_silent: usize,
    silent: Silent,
}

/// Connections of a service whose next request has not come, the one that has waited longest first.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<(u64, BTreeMap<u64, Handle>)>>);

/// The place of one of them, which it has until its request has come.
struct Silence {
    all: Silent,
    number: u64,
}

impl Silent {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Handle>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and takes out the oldest where there are more than `max`.
    fn add(&self, handle: Handle, max: usize) -> (Silence, Option<Handle>) {
        let mut all = self.lock();
        let (next, waiting) = &mut *all;
        *next += 1;
        waiting.insert(*next, handle);
        let oldest = if waiting.len() > max { waiting.pop_first() } else { None };
        (Silence { all: self.clone(), number: *next }, oldest.map(|(_, handle)| handle))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.all.lock().1.remove(&self.number);
    }
}

impl std::fmt::Debug for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Silence({})", self.number)
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("max_body", &self.max_body).finish_non_exhaustive()
    }
}

impl Web {
    /// Creates a service of these pages, whose requests have no bodies.
    pub fn new(pages: impl Pages) -> Web {
        Web { pages: Arc::new(pages), max_body: 0, closes: false, max_silent: usize::MAX, silent: Silent::default() }
    }

    /// Sets the maximum of bytes in the body of a request. Default: 0.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Web {
        self.max_body = bytes;
        self
    }

    /// Has each connection end after its first answer: the next request goes to the process that accepts then, such as a new build.
    #[must_use]
    pub fn close_after_answer(mut self) -> Web {
        self.closes = true;
        self
    }

    /// Sets the maximum of connections that wait for a request, or for the rest of it. At one more, the one that has waited longest is ended, so
    /// that clients that say nothing cannot take the places of those that ask. Below the limit of the pool. Default: no maximum.
    #[must_use]
    pub fn max_silent(mut self, connections: usize) -> Web {
        self.max_silent = connections;
        self
    }

    /// Fits the settings of a pool's connections to this service: whole requests are kept until they are answered, and a client that does not
    /// read has no place for long.
    pub fn fit(&self, settings: &mut Settings) {
        settings.max_partial = MAX_HEAD + self.max_body + 1;
        settings.flush = WRITE_TIMEOUT;
    }
}

impl Service for Web {
    type Protocol = Conversation;

    fn open(&self, _peer: &Peer) -> Conversation {
        Conversation { web: self.clone(), state: WebState::Fresh, silence: None }
    }

    fn needs_peer_address(&self) -> bool {
        false
    }
}

/// Connection of [`Web`].
#[derive(Debug)]
pub struct Conversation {
    web: Web,
    state: WebState,
    /// Time until the next request must have come.
    silence: Option<Silence>,
}

#[derive(Debug)]
enum WebState {
    /// No request has begun, and none was answered.
    Fresh,
    /// Part of a request has come.
    Receiving {
        /// The client was given leave to send the body.
        left: bool,
    },
    /// A request is being answered.
    Answering,
    /// Requests were answered, and the next has not begun.
    Resting,
    /// Notes are chunks of the answer.
    Streaming,
}

/// Continuation of a connection after an answer.
enum Next {
    Request,
    Close,
    Join(Group),
    /// Another connection needs the place of this one, unless its request has come meanwhile.
    GiveWay,
}

impl Conversation {
    /// Answers what is wrong with a request, and ends the connection: what follows cannot be told apart from it.
    fn refuse(status: u16, why: &str, cx: &mut Context<'_>) -> Step {
        cx.send(&Answer::error(status, why).bytes(&Request::default()));
        Step::Close
    }

    /// Waits for a request, for this time.
    fn wait(&mut self, within: Duration, cx: &mut Context<'_>) {
        cx.set_timer(within);
        let (silence, oldest) = self.web.silent.add(cx.handle(), self.web.max_silent);
        self.silence = Some(silence);
        if let Some(oldest) = oldest {
            cx.notify(&oldest, Note::value((Vec::<u8>::new(), Next::GiveWay)));
        }
    }

    fn answer(&mut self, request: Request) -> Step {
        self.state = WebState::Answering;
        self.silence = None;
        let Web { pages, closes, .. } = self.web.clone();
        Step::Delegate(Delegate::new(move |connection| {
            connection.set_write_timeout(Some(WRITE_TIMEOUT));
            let closes = closes || request.closes || connection.draining();
            let answer = pages.answer(&request, connection);
            let next = if closes { Next::Close } else { Next::Request };
            let (unsent, next) = match answer.write(&request, closes, connection) {
                Ok(WrittenAnswer::Group(group)) => (Vec::new(), Next::Join(group)),
                Ok(WrittenAnswer::Unsent(bytes)) => (bytes, next),
                Ok(WrittenAnswer::Sent) => (Vec::new(), next),
                // The client is gone, or does not read.
                Err(_) => return After::End,
            };
            After::Return(Note::value((unsent, next)))
        }))
    }

    fn go_on(&mut self, next: &Next, cx: &mut Context<'_>) -> Step {
        match next {
            Next::GiveWay if self.silence.is_some() => return Step::Abort,
            Next::GiveWay => return Step::Continue,
            Next::Close => return Step::Close,
            Next::Join(_) if cx.draining() => {
                cx.send(LAST_CHUNK);
                return Step::Close;
            }
            _ if cx.draining() => return Step::Close,
            Next::Request => {
                self.state = WebState::Resting;
                self.wait(IDLE, cx);
            }
            Next::Join(group) => {
                self.state = WebState::Streaming;
                cx.clear_timer();
                cx.join(group);
            }
        }
        Step::Continue
    }
}

impl Protocol for Conversation {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.wait(REQUEST_WITHIN, cx);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let WebState::Streaming = self.state {
            input.take_all();
            return Step::Continue;
        }
        match request::parse(input, self.web.max_body) {
            ParsedRequest::Whole(request) => self.answer(request),
            ParsedRequest::Refused(status, why) => Conversation::refuse(status, &why, cx),
            ParsedRequest::Part { expects_leave } => {
                let left = matches!(self.state, WebState::Receiving { left: true });
                if let WebState::Resting = self.state {
                    cx.set_timer(REQUEST_WITHIN);
                }
                if expects_leave && !left {
                    cx.send(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.state = WebState::Receiving { left: left || expects_leave };
                Step::Continue
            }
        }
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        if let Some(bytes) = note.bytes() {
            cx.send(format!("{:x}\r\n", bytes.len()).as_bytes());
            cx.send(bytes);
            cx.send(b"\r\n");
            return Step::Continue;
        }
        match note.take::<(Vec<u8>, Next)>() {
            Ok((unsent, next)) => {
                cx.send(&unsent);
                self.go_on(&next, cx)
            }
            Err(_) => Step::Continue,
        }
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        match self.state {
            WebState::Resting => Step::Close,
            _ => Conversation::refuse(408, "the request did not come within 10 s: send it at once", cx),
        }
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        match self.state {
            WebState::Fresh | WebState::Resting => Step::Close,
            WebState::Streaming => {
                cx.send(LAST_CHUNK);
                Step::Close
            }
            WebState::Receiving { .. } | WebState::Answering => Step::Continue,
        }
    }
}

#[cfg(test)]
mod tests;
