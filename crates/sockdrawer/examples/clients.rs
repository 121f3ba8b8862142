//! A pool of clients: 32 connections to a server are kept, and each thread of the program asks by one that is free.
//!
//! `cargo run --example clients -- 127.0.0.1:6379` sends each line of standard input to a server that answers a line with a line, as Redis
//! answers `PING` and `INCR visits`.

use sockdrawer::connecting::Connecting;
use sockdrawer::{Closed, Config, Context, Error, Handle, Input, Note, Peer, Pool, Protocol, Service, Step};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A server that does not answer for so long is not waited for: the connection is reset, and the pool makes another.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A line on its way to a connection, and where the answer goes. Dropped unanswered, it tells the thread that waits.
struct Request {
    line: String,
    answer: Sender<Vec<u8>>,
}

/// The connections that have no request under way, the one that is free for longest first.
#[derive(Clone, Default)]
pub(crate) struct Clients(Arc<(Mutex<VecDeque<Handle>>, Condvar)>);

impl Clients {
    /// So many connections to these servers.
    pub(crate) fn start(servers: &[&str], keep: usize) -> Result<(Pool, Clients), Error> {
        let clients = Clients::default();
        let pool = Pool::start(Config::connect(clients.clone(), Connecting::to(servers.iter().copied()).keep(keep)))?;
        Ok((pool, clients))
    }

    /// Sends a line, and waits for the answer.
    ///
    /// # Errors
    /// `TimedOut` when no connection is free within this time; `ConnectionReset` when the connection ended before the answer, where the server
    /// may have done what was asked.
    pub(crate) fn ask(&self, line: &str, within: Duration) -> io::Result<Vec<u8>> {
        let (_, freed) = &*self.0;
        let waited = freed.wait_timeout_while(self.idle(), within, |idle| idle.is_empty());
        let handle = waited.unwrap_or_else(PoisonError::into_inner).0.pop_front().ok_or(io::ErrorKind::TimedOut)?;
        let (answer, answers) = mpsc::channel();
        let request = Request { line: line.to_owned(), answer };
        handle.notify_within(Note::value(request), within).map_err(|_| io::ErrorKind::TimedOut)?;
        answers.recv().map_err(|_| io::ErrorKind::ConnectionReset.into())
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Handle>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_free(&self, handle: Handle) {
        self.idle().push_back(handle);
        self.0.1.notify_one();
    }
}

impl Service for Clients {
    type Protocol = Client;
    fn open(&self, _peer: &Peer) -> Client {
        Client { clients: self.clone(), asked: None }
    }
}

/// One connection, and the request that it has under way.
pub(crate) struct Client {
    clients: Clients,
    asked: Option<Sender<Vec<u8>>>,
}

impl Protocol for Client {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.clients.is_free(cx.handle());
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        let Ok(request) = note.take::<Request>() else { return Step::Continue };
        write!(cx.out(), "{}\r\n", request.line);
        self.asked = Some(request.answer);
        cx.set_timer(ANSWER_WITHIN);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            // An answer to no question: what follows cannot be trusted either.
            let Some(answer) = self.asked.take() else { return Step::Abort };
            cx.clear_timer();
            // The thread that asked may be gone.
            let _ = answer.send(line.to_owned());
            self.clients.is_free(cx.handle());
        }
        Step::Continue
    }
    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Abort
    }
    fn closed(&mut self, _why: Closed, cx: &mut Context<'_>) {
        self.clients.idle().retain(|handle| handle.id() != cx.id());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let (_pool, clients) = Clients::start(&servers, 32)?;
    for line in io::stdin().lines() {
        match clients.ask(&line?, Duration::from_secs(5)) {
            Ok(answer) => println!("{}", String::from_utf8_lossy(&answer)),
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}
