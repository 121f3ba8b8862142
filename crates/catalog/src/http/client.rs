//! The client: asks any HTTP/1 server for pages, one on each connection or one after the other, and reads the answers to their
//! ends.

use super::answer::{Answer, Progress, Reader};
use super::request::WrittenRequest;
use super::{ANSWER, After, Request};
use crate::meter::{End, Meter, Phase, TIMED_OUT, ending, meter};
use crate::numbers::scatter;
use crate::pace::{Budget, Interval};
use rustix::io::Errno;
use sockdrawer::{Closed, Context, Input, Local, Note, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pages to ask for, and how.
#[derive(Clone, Debug)]
pub struct Visits {
    /// Pages, at least 1, of which each request takes one.
    pub pages: Vec<Page>,
    /// Parts that all requests have besides their paths.
    pub request: Request,
    /// Number of requests of a connection, and the side that ends it.
    pub manner: Manner,
    /// Timeout from a request to the end of its answer, and to the end of the stream where that is awaited; 30 s is the program's default.
    pub timeout: Duration,
    /// Seed of the choice among the pages, and of the random points of intervals: equal seeds ask for as many of each.
    pub seed: u64,
}

/// Something to ask for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Page {
    /// Path as it stands in the request, beginning with a slash.
    pub path: String,
    /// Frequency, in proportion to the weights of the others.
    pub weight: u32,
    /// True where the answer must be exactly [`ANSWER`]. Else any answer is right whose status is 2xx or 3xx.
    pub exact: bool,
}

/// Number of requests of a connection, and the side that ends it.
#[derive(Clone, Debug)]
pub enum Manner {
    /// One.
    Once(Close),
    /// Requests one after the other, as many as the budget allows; the server may end the connection after any answer. A connection that finds the
    /// budget spent stays at rest until it is asked to end, so that none is made in its place.
    KeepAlive {
        /// Number of requests that may be sent.
        budget: Budget,
        /// Time from one request of a connection to the next, on schedule whatever the server does; zero is back to back. Each connection begins at a
        /// random point of its first interval.
        interval: Interval,
    },
}

/// Side that ends a connection of one request. The side that does it first keeps the pair of ports in TIME_WAIT for a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Close {
    /// The server, which is asked to; its end is awaited, and belongs to the operation.
    #[default]
    Server,
    /// This side, by an orderly end after the whole answer. A server that ends its connections itself may be faster.
    Fin,
    /// This side, by a reset after the whole answer: neither side keeps anything.
    Rst,
}

/// A request that was answered well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Number of the page.
    pub page: usize,
    /// Moment at which the request was due. Back to back: when the connect was due, and for a request on a connection that stood already, when it was
    /// sent.
    pub scheduled: Instant,
    /// Moment at which the connect began, or the request was sent.
    pub began: Instant,
    /// Time that connecting took, for the first request of a connection.
    pub connect: Option<Duration>,
    /// Moment at which the request was sent.
    pub sent: Instant,
    /// Moment at which the first byte of the answer came.
    pub first_byte: Instant,
    /// Moment at which the answer was whole; with [`Close::Server`], at which the stream had ended.
    pub ended: Instant,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Bytes of the answer's body.
    pub body: u64,
    /// The status of the answer.
    pub status: u16,
    /// The body is as long as that of the first answer for this page.
    pub as_first: bool,
}

/// Reports of the client besides those of every client.
pub trait VisitMeter: Meter {
    /// Notes that a connect, whatever became of it, was due at `due` and began `lag` later.
    fn begun(&mut self, due: Instant, lag: Duration);

    /// Notes that a request was answered well. Comes in the place of [`Meter::operation`] and [`Meter::first_byte`].
    fn visited(&mut self, visited: &Visited);

    /// Notes that a request for this page was not answered well. The reason was told by [`Meter::failed`], unless this side ended the connection.
    fn missed(&mut self, page: usize);

    /// Notes that a server ended a connection that might have stayed; `announced` by its last answer, or else between two answers. The request that
    /// was on its way then is no failure: another connection asks again.
    fn renewed(&mut self, announced: bool);
}

/// The client's service.
pub struct Client<F> {
    course: Arc<Course>,
    meter: F,
}

/// State that the connections of a client share.
#[derive(Debug)]
struct Course {
    visits: Visits,
    /// Sum of the weights of all pages.
    weight: u64,
    /// The requests for the pages.
    written: Vec<WrittenRequest>,
    /// Requests so far, where there is something to choose.
    asked: AtomicU64,
    /// Length of the first body for each page, plus one; 0 while there is none.
    lengths: Vec<AtomicU64>,
}

impl<F> Client<F> {
    /// Asks for `visits`; `meter` makes the meter of a loop.
    ///
    /// # Panics
    /// When there are no pages, or all weights are 0.
    pub fn new(visits: Visits, meter: F) -> Client<F> {
        let weight = visits.pages.iter().map(|page| u64::from(page.weight)).sum();
        assert!(weight > 0, "there is a page with a weight");
        let lengths = visits.pages.iter().map(|_| AtomicU64::new(0)).collect();
        let after = match visits.manner {
            Manner::Once(Close::Server) => After::Close,
            Manner::Once(Close::Fin | Close::Rst) | Manner::KeepAlive { .. } => After::KeepAlive,
        };
        let written = visits.pages.iter().map(|page| visits.request.for_path(&page.path, after)).collect();
        Client { course: Arc::new(Course { visits, weight, written, asked: AtomicU64::new(0), lengths }), meter }
    }
}

impl Course {
    /// Returns the page of the next request: by its number, so that it does not matter which connection asks.
    fn choose(&self) -> usize {
        if self.visits.pages.len() == 1 {
            return 0;
        }
        // The number alone is shared, so no order with other memory is needed; the lengths below are numbers too.
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut at = scatter(self.visits.seed ^ scatter(number)) % self.weight;
        for (page, weight) in self.visits.pages.iter().map(|page| u64::from(page.weight)).enumerate() {
            if at < weight {
                return page;
            }
            at -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Returns true where a body of this page is as long as the first one. The first one sets the length.
    fn is_as_long(&self, page: usize, body: u64) -> bool {
        let length = body.saturating_add(1);
        match self.lengths[page].compare_exchange(0, length, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(first) => first == length,
        }
    }
}

impl<M: VisitMeter, F: Fn() -> M + Send + Sync + 'static> Service for Client<F> {
    type Protocol = Session<M>;

    fn open(&self, peer: &Peer) -> Session<M> {
        Session {
            course: self.course.clone(),
            remote: peer.remote(),
            reader: if self.course.visits.request.is_head() { Reader::of_head() } else { Reader::default() },
            state: VisitState::New { lag: peer.lag(), connect: peer.connect_time(), handshake: peer.handshake_time() },
            answers: 0,
            next: None,
            stopping: false,
            end: None,
            meter: PhantomData,
        }
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        crate::meter::connect_failed::<M>(failure, local);
        if let Some(meter) = local.downcast_mut::<M>() {
            let now = Instant::now();
            meter.begun(now.checked_sub(failure.after + failure.lag).unwrap_or(now), failure.lag);
        }
    }
}

/// Connection of a [`Client`].
#[derive(Debug)]
pub struct Session<M> {
    course: Arc<Course>,
    remote: Option<SocketAddr>,
    reader: Reader,
    state: VisitState,
    answers: u64,
    /// Moment at which the next request is due; None: there is none, or it follows back to back.
    next: Option<Instant>,
    stopping: bool,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

#[derive(Clone, Copy, Debug)]
enum VisitState {
    New {
        lag: Duration,
        connect: Duration,
        handshake: Duration,
    },
    Asked(Asked),
    /// The answer was whole; the server's end is awaited. None: that is no part of an operation.
    Ending(Option<Visited>),
    /// No request is under way, and none is left where no next one is due.
    Resting,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    visited: Visited,
    heard: bool,
    /// The bytes that came so far are those of [`ANSWER`].
    exact: bool,
}

impl<M: VisitMeter> Session<M> {
    fn manner(&self) -> &Manner {
        &self.course.visits.manner
    }

    fn waiting_for(&self) -> Phase {
        match self.state {
            VisitState::New { .. } | VisitState::Asked(_) => Phase::Answer,
            VisitState::Ending(Some(_)) => Phase::End,
            VisitState::Resting if self.answers == 0 => Phase::Unused,
            VisitState::Ending(None) | VisitState::Resting => Phase::Closed,
        }
    }

    /// Returns the page of the operation under way.
    fn page(&self) -> Option<usize> {
        match self.state {
            VisitState::Asked(Asked { visited, .. }) | VisitState::Ending(Some(visited)) => Some(visited.page),
            VisitState::New { .. } | VisitState::Ending(None) | VisitState::Resting => None,
        }
    }

    /// Sends the next request, which was due then. `connected`: when its connect began, and how long that took.
    fn ask(&mut self, scheduled: Instant, connected: Option<(Instant, Duration)>, cx: &mut Context<'_>) -> Step {
        let (page, sent) = (self.course.choose(), cx.now());
        let (began, connect) = connected.map_or((sent, None), |(began, connect)| (began, Some(connect)));
        let visited = Visited {
            page,
            scheduled,
            began,
            connect,
            sent,
            first_byte: sent,
            ended: sent,
            bytes: 0,
            body: 0,
            status: 0,
            as_first: true,
        };
        self.state = VisitState::Asked(Asked { visited, heard: false, exact: true });
        cx.set_timer(self.course.visits.timeout);
        self.course.written[page].send(self.remote, |bytes| cx.send(bytes));
        Step::Continue
    }

    /// Rests until `due`. A kept connection asks when it is due, if it may.
    fn rest(&mut self, due: Instant, connected: Option<(Instant, Duration)>, cx: &mut Context<'_>) -> Step {
        let Manner::KeepAlive { budget, interval } = &self.course.visits.manner else { return self.ask(due, connected, cx) };
        if self.stopping {
            return self.end(End::Stopped);
        }
        (self.state, self.next) = (VisitState::Resting, Some(due));
        match interval.get() {
            None => cx.clear_timer(),
            Some(_) if due > cx.now() => cx.set_timer_at(due),
            Some(_) if budget.take(self.answers, 1) == 1 => {
                self.next = Some(interval.after(due, cx.now()));
                return self.ask(due, connected, cx);
            }
            Some(_) => {
                self.next = None;
                cx.clear_timer();
            }
        }
        Step::Continue
    }

    /// Takes an answer that is whole.
    fn answered(&mut self, asked: Asked, answer: Answer, cx: &mut Context<'_>) -> Step {
        let Answer { status, body, last } = answer;
        if status == 408 && last {
            // A server says it to a connection at rest, before the request had come: RFC 9110, 15.5.9.
            self.state = VisitState::Asked(Asked { heard: false, ..asked });
            if self.is_renewed(cx) {
                return self.end(End::Complete);
            }
        }
        self.answers += 1;
        let page = &self.course.visits.pages[asked.visited.page];
        let failure = match status {
            200..400 if page.exact && !asked.exact => Some((Phase::Verify, None)),
            200..400 => None,
            status => Some((Phase::Status, Some(i32::from(status)))),
        };
        let as_first = failure.is_some() || self.course.is_as_long(asked.visited.page, body);
        let visited = Visited { ended: cx.now(), body, status, as_first, ..asked.visited };
        if let Some((phase, errno)) = failure {
            meter::<M>(cx).failed(phase, errno);
            meter::<M>(cx).missed(visited.page);
        }
        let good = failure.is_none().then_some(visited);
        if status == 101 {
            // Another protocol follows, in which nothing is said here.
            self.state = VisitState::Ending(None);
            return self.end(End::Complete);
        }
        match self.manner() {
            Manner::Once(Close::Server) => {
                self.state = VisitState::Ending(good);
                return Step::Continue;
            }
            _ => good.iter().for_each(|visited| meter::<M>(cx).visited(visited)),
        }
        self.state = VisitState::Ending(None);
        match self.manner() {
            Manner::Once(Close::Rst) => {
                self.end = Some(End::Complete);
                Step::Abort
            }
            Manner::Once(_) => self.end(End::Complete),
            Manner::KeepAlive { .. } if last => {
                meter::<M>(cx).renewed(true);
                Step::Continue
            }
            Manner::KeepAlive { interval, .. } => {
                let due = interval.after(visited.scheduled, cx.now());
                self.rest(due, None, cx)
            }
        }
    }

    /// Returns true where the server ended the connection before a byte of the answer: no failure where connections are kept, as RFC 9112, 9.3.1, has
    /// clients ask again then.
    fn is_renewed(&mut self, cx: &mut Context<'_>) -> bool {
        let (VisitState::Asked(Asked { heard: false, visited, .. }), Manner::KeepAlive { budget, .. }) =
            (self.state, self.manner())
        else {
            return false;
        };
        if self.answers == 0 {
            return false;
        }
        budget.give_back();
        self.next = Some(visited.scheduled);
        self.state = VisitState::Ending(None);
        meter::<M>(cx).renewed(false);
        true
    }

    /// Returns true where the end of the stream, which has come, lies in no answer that is awaited, and counts it as what it is.
    fn ends_between_answers(&mut self, cx: &mut Context<'_>) -> bool {
        match self.state {
            VisitState::New { .. } => return false,
            VisitState::Asked(_) => return self.is_renewed(cx),
            VisitState::Resting if self.answers == 0 => return false,
            VisitState::Resting if self.next.is_some() => meter::<M>(cx).renewed(false),
            VisitState::Resting | VisitState::Ending(None) => {}
            VisitState::Ending(Some(visited)) => {
                let visited = Visited { ended: cx.now(), ..visited };
                meter::<M>(cx).visited(&visited);
            }
        }
        self.state = VisitState::Ending(None);
        true
    }

    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.page().into_iter().for_each(|page| meter::<M>(cx).missed(page));
        self.end(end)
    }

    fn end(&mut self, end: End) -> Step {
        self.end = Some(end);
        if end == End::Failed { Step::Abort } else { Step::Close }
    }
}

impl<M: VisitMeter> Protocol for Session<M> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let VisitState::New { lag, connect, handshake } = self.state else { return Step::Continue };
        meter::<M>(cx).connected(connect);
        let now = cx.now();
        let began = now.checked_sub(connect + handshake).unwrap_or(now);
        let due = began.checked_sub(lag).unwrap_or(began);
        meter::<M>(cx).begun(due, lag);
        match &self.course.visits.manner {
            Manner::KeepAlive { interval, .. } if interval.get() != Some(Duration::ZERO) => {
                self.rest(interval.first(self.course.visits.seed, cx), None, cx)
            }
            _ => self.rest(due, Some((began, connect)), cx),
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let VisitState::Asked(mut asked) = self.state else {
            input.take_all();
            return match self.state {
                // The answer was longer than it said.
                VisitState::Ending(Some(_)) => self.fail(Phase::Verify, None, End::Failed, cx),
                // No answer can be told from what was not asked for: RFC 9112, 9.2 has the connection ended.
                VisitState::Resting if self.answers == 0 => self.fail(Phase::Format, None, End::Failed, cx),
                VisitState::Resting => {
                    self.ends_between_answers(cx);
                    self.end(End::Complete)
                }
                _ => Step::Continue,
            };
        };
        if !asked.heard {
            asked.heard = true;
            asked.visited.first_byte = cx.now();
        }
        let read = self.reader.read(input.bytes(), &mut |_| ());
        if let Ok((used, _)) = read {
            let came = input.take(used);
            let expected = usize::try_from(asked.visited.bytes).ok().and_then(|before| ANSWER.get(before..));
            asked.exact = asked.exact && expected.is_some_and(|expected| expected.starts_with(came));
            asked.visited.bytes += used as u64;
        }
        self.state = VisitState::Asked(asked);
        match read {
            Ok((_, Progress::Part)) => Step::Continue,
            Ok((_, Progress::Whole(answer))) if input.is_empty() || answer.status == 101 => {
                input.take_all();
                self.answered(asked, answer, cx)
            }
            // More than the answer is an answer to nothing.
            Ok((_, Progress::Whole(_))) => self.fail(Phase::Verify, None, End::Failed, cx),
            Err(_) => self.fail(Phase::Format, None, End::Failed, cx),
        }
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        if let VisitState::Asked(asked) = self.state
            && let Some(answer) = self.reader.ended()
        {
            drop(self.answered(asked, answer, cx));
        }
        if self.ends_between_answers(cx) {
            return self.end(End::Complete);
        }
        match self.state {
            VisitState::Asked(Asked { heard: true, .. }) => self.fail(Phase::Cut, None, End::Lost, cx),
            _ => self.fail(self.waiting_for(), None, End::Lost, cx),
        }
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        match self.state {
            VisitState::Resting => {
                let Some(due) = self.next else { return self.end(End::Complete) };
                let step = self.rest(due, None, cx);
                // A late answer delays the next request because of the server; a late timer was this side's.
                if let VisitState::Asked(asked) = self.state {
                    meter::<M>(cx).lag(asked.visited.sent - due);
                }
                step
            }
            VisitState::Ending(None) => self.end(End::Complete),
            _ => self.fail(self.waiting_for(), TIMED_OUT, End::Failed, cx),
        }
    }

    /// Looks at the interval again: it has changed.
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        match (&self.course.visits.manner, self.state) {
            (Manner::KeepAlive { interval, .. }, VisitState::Resting) if self.next.is_some() => {
                self.rest(interval.soon(self.course.visits.seed, cx), None, cx)
            }
            _ => Step::Continue,
        }
    }

    /// Lets the answer to a request that was sent come first.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        match self.state {
            VisitState::Ending(None) | VisitState::Resting => self.end(End::Stopped),
            _ => Step::Continue,
        }
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        // TLS ended without close_notify: what is whole is whole (RFC 9112, 9.8).
        if why == Closed::Aborted && self.end.is_none() && self.ends_between_answers(cx) {
            self.end = Some(End::Complete);
        }
        // Written to a connection whose end was on its way: the kernel says so by EPIPE once the reset has come too.
        let gone = Closed::Error(Errno::PIPE.raw_os_error());
        if why == gone && self.end.is_none() && self.is_renewed(cx) {
            self.end = Some(End::Complete);
        }
        if let (Some(next), Manner::KeepAlive { interval, .. }, false) = (self.next, self.manner(), self.stopping) {
            interval.leave(next);
        }
        // The answer was counted: how the server ends then is its own affair.
        if let (VisitState::Ending(None), Closed::Error(_), None) = (self.state, why, self.end) {
            self.end = Some(End::Complete);
        }
        let Some((end, failure)) = ending(why, self.end, self.waiting_for()) else { return };
        if let Some((phase, errno)) = failure {
            meter::<M>(cx).failed(phase, errno);
        }
        if self.end.is_none() {
            self.page().into_iter().for_each(|page| meter::<M>(cx).missed(page));
        }
        meter::<M>(cx).closed(end);
    }
}

#[cfg(test)]
mod tests;
