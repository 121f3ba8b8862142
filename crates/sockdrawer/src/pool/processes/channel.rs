//! A pool's connection to one of its helpers.

use super::wire::{FromHelper, HelperRequest};
use crate::gather::ReplyTo;
use crate::ipc::packets::{PacketSender, Receiver};
use crate::observe::Event;
use crate::pool::request::{Refusal, Reply};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, fork, passing, process};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

/// A helper that does not answer within this time is left out of the answer. One of whose loops hangs answers without that loop
/// before.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(7);

/// A helper that takes no packet of a request within this time reads nothing: the request is refused, for others wait for this one.
const TAKES_WITHIN: Duration = Duration::from_secs(1);

/// A helper that sees the end of the conversation has nothing more to do. One that is still there then is stopped, hangs, or is
/// no helper at all: it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The way of requests to a helper.
#[derive(Default)]
struct Requests {
    sender: PacketSender,
    /// The helper had no room for the last request in time: the next ones do not wait for it.
    full: bool,
}

/// The pool's end of the connection to one helper.
pub(crate) struct Channel {
    socket: OwnedFd,
    requests: Mutex<Requests>,
    next: AtomicU64,
    /// The way back of the answer of each number.
    pending: Mutex<HashMap<u64, ReplyTo<Reply>>>,
    /// The helper is gone: no answer will come.
    closed: AtomicBool,
    /// The helper was reaped.
    ended: AtomicBool,
    /// The helper ends because it was not wanted any more.
    dismissed: AtomicBool,
    pub(super) pid: u32,
    /// A descriptor of the process. None: there was none to be had, and until the process is reaped its number is its own.
    process: Option<OwnedFd>,
}

/// News of a helper, from the thread that reads what it says.
pub(super) enum FromChannel {
    Event(Event),
    Ended(Ended),
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended(Option<ExitStatus>);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => match status.signal() {
                Some(signal) => write!(f, "killed by signal {signal}"),
                None => write!(f, "it exited with {}", status.code().unwrap_or_default()),
            },
            None => f.write_str("it is gone"),
        }
    }
}

impl Channel {
    /// Starts a helper and reads what it says, on a thread of its own.
    pub(super) fn start(what: &str, tell: impl Fn(FromChannel) + Send + 'static) -> std::io::Result<Arc<Channel>> {
        let (socket, end) = passing::packet_pair(TAKES_WITHIN)?;
        let child = process::start_helper(what, end)?;
        let channel = Arc::new(Channel {
            socket,
            requests: Mutex::default(),
            next: AtomicU64::new(1),
            pending: Mutex::new(HashMap::new()),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            pid: child.id(),
            process: passing::itself(&child),
        });
        let reader = channel.clone();
        let started = std::thread::Builder::new().name("sockdrawer-link".to_owned()).spawn(move || reader.read(child, tell));
        // Without a reader the helper sees its end of the pair closed, and ends; init reaps it with this process.
        started.inspect_err(|_| channel.close()).map(|_| channel)
    }

    fn read(&self, mut child: Child, tell: impl Fn(FromChannel)) {
        let mut receiver = Receiver::default();
        while let Ok(Some((message, descriptors))) = receiver.receive::<FromHelper>(self.socket.as_fd(), true) {
            match message {
                FromHelper::Reply(number, mut reply) => {
                    if let Reply::Offered { sockets, .. } = &mut reply {
                        *sockets = descriptors.unwrap_or_default();
                    }
                    let asked = lock(&self.pending).remove(&number);
                    if let Some(asked) = asked {
                        asked.answer(reply);
                    }
                }
                FromHelper::Event(event) => tell(FromChannel::Event(event)),
            }
        }
        // Gone, or not to be understood: then it must go.
        self.close();
        let mut pending = lock(&self.pending);
        self.closed.store(true, Ordering::SeqCst);
        pending.clear();
        drop(pending);
        let how = Ended(process::wait_or_kill(&mut child, self.process.as_ref(), ENDS_WITHIN).ok());
        self.ended.store(true, Ordering::SeqCst);
        tell(FromChannel::Ended(how));
    }

    /// Closes the conversation: the helper sees its end, and ends with its connections.
    pub(super) fn close(&self) {
        passing::hang_up(self.socket.as_fd());
    }

    /// Ends a helper that is not wanted any more: its end is no death, even if it is wanted again by then.
    pub(super) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::SeqCst);
        self.close();
    }

    pub(super) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Kills the process at once. False: it is gone.
    pub(super) fn kill(&self) -> bool {
        let by_number = || !self.has_ended() && fork::signal(self.pid, fork::SIGKILL);
        self.process.as_ref().map_or_else(by_number, process::kill)
    }

    /// Tells the helper to do something; the answer comes by `reply`, unless the helper is gone.
    pub(super) fn tell(&self, request: HelperRequest, descriptors: &[BorrowedFd<'_>], reply: ReplyTo<Reply>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut pending = lock(&self.pending);
            // Under the lock: the reader closes first and forgets the callers that wait second.
            if self.is_closed() {
                return;
            }
            pending.insert(number, reply);
        }
        let sent = {
            let mut requests = lock(&self.requests);
            let waits = !requests.full;
            let sent = requests.sender.send(self.socket.as_fd(), &(number, request), descriptors, waits);
            requests.full = sent == Err(Errno::AGAIN);
            sent
        };
        if let Err(errno) = sent
            && let Some(reply) = lock(&self.pending).remove(&number)
            // A helper that is gone refuses nothing. One that does not read its messages, or could not be written to, did not agree.
            && !matches!(errno, Errno::PIPE | Errno::CONNRESET)
        {
            reply.answer(Reply::Refused(Refusal::Other(std::io::Error::from(errno).to_string())));
        }
    }
}
