//! The way to an agent: two threads that write and read frames, so that nothing waits for an agent that takes or says nothing, and so that
//! each is asked for a sign of life whatever the run waits for.

use super::frames::{self, Request, Told};
use crate::moment;
use sockdrawer::{Handle, Note};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time from one sign of life to the next that is asked for.
const BEAT: Duration = Duration::from_millis(500);
/// An agent whose input has ended ends by itself in this time, or is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Time in which the last words of a program on standard error are read: another that it started may keep that open.
const SAYS_WITHIN: Duration = Duration::from_millis(200);
/// Lines of standard error that are kept.
const LINES: usize = 32;

/// A conversation with an agent.
pub(super) struct Link {
    /// Way of requests; None once its input has ended.
    to: Option<Sender<Request>>,
    /// Messages of the agent, and when each arrived by the clock of this process.
    pub(super) from: Receiver<(Duration, Told)>,
    end: LinkEnd,
}

enum LinkEnd {
    /// The process, and its last lines of standard error where they are not for this program's own.
    Process(Child, Option<Receiver<String>>),
    /// A connection that an agent made, and how it is told to end.
    Joined(Handle),
}

impl Link {
    /// Starts a program whose standard input and output are the conversation. What it says on standard error is kept, or shared with this
    /// program.
    pub(super) fn start(mut command: Command, keeps_errors: bool) -> io::Result<Link> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if keeps_errors {
            command.stderr(Stdio::piped());
        }
        // Signals of keys at the terminal are for the program that reports.
        command.process_group(0);
        let mut process = command.spawn()?;
        let errors = process.stderr.take().map(keep_lines).transpose()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let pipes = input.zip(output).ok_or_else(|| io::Error::other("a program was started without pipes"));
        let (to, from) = pipes.and_then(|(input, output)| threads(input, output))?;
        Ok(Link { to: Some(to), from, end: LinkEnd::Process(process, errors) })
    }

    /// Creates a link by a connection that an agent made and proved itself on; what it says comes `from` there.
    pub(super) fn joined(handle: Handle, from: Receiver<(Duration, Told)>) -> io::Result<Link> {
        let (to, asked) = channel();
        let notes = Notes(handle.clone());
        thread::Builder::new().name("to agent".to_owned()).spawn(move || write(notes, &asked))?;
        Ok(Link { to: Some(to), from, end: LinkEnd::Joined(handle) })
    }

    /// Sends a request. Returns false where the agent cannot hear it any more.
    pub(super) fn ask(&self, request: Request) -> bool {
        self.to.as_ref().is_some_and(|to| to.send(request).is_ok())
    }

    /// Closes the way of requests: an agent ends by that.
    pub(super) fn close(&mut self) {
        self.to = None;
        if let LinkEnd::Joined(handle) = &self.end {
            // Fails where it has ended.
            let _ = handle.notify(Note::value(Ending::Close));
        }
    }

    /// Ends it at once, or soon where its output has ended by itself; returns how it ended.
    pub(super) fn cut(&mut self, has_ended: bool) -> LinkEnded {
        self.to = None;
        let (process, errors) = match &mut self.end {
            LinkEnd::Joined(handle) => {
                let _ = handle.notify(Note::value(Ending::Abort));
                return LinkEnded::default();
            }
            LinkEnd::Process(process, errors) => (process, errors),
        };
        let until = Instant::now() + ENDS_WITHIN;
        while has_ended && Instant::now() < until && matches!(process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(2));
        }
        // Both fail where there is no such process any more.
        let _ = process.kill();
        let status = process.wait().ok().filter(|_| has_ended);
        let line = errors.take().and_then(|errors| errors.recv_timeout(SAYS_WITHIN).ok());
        LinkEnded { code: status.and_then(|status| status.code()), signal: status.and_then(|status| status.signal()), line }
    }
}

/// End of a program that was the way to an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkEnded {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    /// Last line of standard error.
    pub(super) line: Option<String>,
}

impl fmt::Display for LinkEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkEnded { line: Some(line), .. } => f.write_str(line),
            LinkEnded { signal: Some(signal), .. } => write!(f, "it was ended by signal {signal}"),
            // The exit code of ssh where the program that it started was killed, or the way to it ended.
            LinkEnded { code: Some(255), .. } => f.write_str("it was killed, or the way to it was cut"),
            LinkEnded { code: Some(code), .. } => write!(f, "it ended with exit code {code}"),
            _ => f.write_str("its connection ended"),
        }
    }
}

impl Drop for Link {
    /// Closes the way of requests. An agent that hears of the end closes its connections and ends.
    fn drop(&mut self) {
        if self.to.is_some() {
            self.close();
            let until = Instant::now() + ENDS_WITHIN;
            while self.from.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        }
        self.cut(false);
    }
}

/// Manner in which a connection that an agent made is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The agent sees the end of its input.
    Close,
    Abort,
}

/// Writes to a connection by notes.
struct Notes(Handle);

impl Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.notify_within(bytes, BEAT).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Ends = (Sender<Request>, Receiver<(Duration, Told)>);

fn threads(to: impl Write + Send + 'static, from: impl Read + Send + 'static) -> io::Result<Ends> {
    let ((requests, asked), (told, heard)) = (channel(), channel());
    thread::Builder::new().name("to agent".to_owned()).spawn(move || write(to, &asked))?;
    thread::Builder::new().name("from agent".to_owned()).spawn(move || read(BufReader::new(from), &told))?;
    Ok((requests, heard))
}

/// Writes requests until the agent is gone, or nothing is asked any more: then its input ends.
fn write(mut to: impl Write, requests: &Receiver<Request>) {
    let mut due = Instant::now() + BEAT;
    loop {
        let request = match requests.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) => {
                due = Instant::now() + BEAT;
                Request::Beat(moment::now())
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if frames::write(&mut to, &request).is_err() {
            return;
        }
    }
}

/// Reads messages until the agent ends, or says what is no message of ours.
fn read(mut from: impl BufRead, told: &Sender<(Duration, Told)>) {
    if !matches!(frames::greeted(&mut from), Ok(true)) {
        return;
    }
    while let Ok(Some(message)) = frames::read(&mut from) {
        if told.send((moment::now(), message)).is_err() {
            return;
        }
    }
}

fn keep_lines(from: impl Read + Send + 'static) -> io::Result<Receiver<String>> {
    let (to, lines) = channel();
    let keep = move || {
        let mut kept = Vec::new();
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            kept.push(String::from_utf8_lossy(&line).trim().to_owned());
            if kept.len() > LINES {
                kept.remove(0);
            }
        }
        // Nothing is lost where nothing asks any more.
        let _ = kept.into_iter().rev().find(|line| !line.is_empty()).map(|line| to.send(line));
    };
    thread::Builder::new().name("errors of agent".to_owned()).spawn(keep)?;
    Ok(lines)
}
