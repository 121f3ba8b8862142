//! Lines of one form that a server writes on standard error while it runs. Lines are written by a thread that may be left behind: when its reader
//! hangs, they are dropped and counted, and neither a connection nor a signal waits for it. Of each kind of event of a pool a few lines per second
//! are written, and then how many more there were.

use crate::lock::lock;
use crate::{print, words};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that may wait to be written.
pub(crate) const MAX_LINES: usize = 1024;
/// Lines of one kind and pool in each [`SECOND`].
const MAX_OF_A_KIND: u32 = 10;
/// Records of one kind and pool, which are told because a setting asks for them.
const MAX_RECORDS: u32 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// Form in which events are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The text alone: of one pool, for the person that started it.
    Plain,
    /// The text alone, of events by which something is lost or not done.
    Errors,
    /// The time, unless the journal adds it, the pool and the text.
    Text { with_time: bool },
    /// An object for each line.
    Json,
}

impl Form {
    /// Returns the form of lines for people that read them later.
    pub(crate) fn text() -> Form {
        Form::Text { with_time: !is_journal() }
    }
}

/// Returns whether standard error is the journal of systemd, which knows when a line came: `JOURNAL_STREAM` is then the device and inode of it.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr().as_fd()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Entry that is told. Its fields are the keys of a line in JSON.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Grows by one with each entry, those that are not written included.
    pub(crate) number: u64,
    pub(crate) at: SystemTime,
    pub(crate) pool: Option<String>,
    /// The kind.
    pub(crate) event: String,
    pub(crate) data: Value,
    /// Text for people.
    pub(crate) text: String,
    /// A setting asks for each of its kind.
    pub(crate) is_record: bool,
}

impl Entry {
    /// Makes an entry about the program that is no event of a pool.
    fn of_program(event: &str, data: Value, text: impl Into<String>) -> Entry {
        let event = event.to_owned();
        Entry { number: 0, at: SystemTime::now(), pool: None, event, data, text: text.into(), is_record: false }
    }

    /// Returns the entry as an object, without the end of a line. A number is one of its process: a new build, which writes to the same place, has
    /// its own.
    pub(crate) fn json(&self) -> String {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let Entry { number, pool, event, data, text, .. } = self;
        let (pid, level) = (std::process::id(), words::level(event));
        json!({"pid": pid, "number": number, "at": at, "level": level, "pool": pool, "event": event, "data": data, "text": text})
            .to_string()
    }

    fn line(&self, form: Form) -> String {
        let mut line = match form {
            Form::Json => return self.json(),
            Form::Text { with_time: true } => format!("{} ", humantime::format_rfc3339_millis(self.at)),
            Form::Text { with_time: false } | Form::Plain | Form::Errors => String::new(),
        };
        if let level @ ("warning" | "error") = words::level(&self.event) {
            line.extend([level, ": "]);
        }
        if let (Some(pool), Form::Text { .. }) = (&self.pool, form) {
            line.extend([pool, ": "]);
        }
        // A text may be a peer's: it stays in its line.
        for sign in self.text.chars() {
            if sign.is_control() { line.extend(sign.escape_default()) } else { line.push(sign) }
        }
        line
    }

    /// Makes the entry about a number of entries that are not written.
    fn of_left_out(event: &str, pool: Option<String>, (count, of): (u64, Option<&str>), text: String) -> Entry {
        let data = json!({"count": count, "event": of});
        Entry { pool, ..Entry::of_program(event, data, text) }
    }
}

/// A log; its copies are the same one.
#[derive(Clone)]
pub(crate) struct Log(Arc<Shared>);

struct Shared {
    form: Form,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A pool and a kind.
type Key = (Option<String>, String);

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Lines that did not fit, since the last that did.
    dropped: u64,
    /// Lines that could not be written, since the last that was, and why.
    unwritten: Option<(u64, io::Error)>,
    /// Counts of what was written of each kind since its second began.
    kinds: BTreeMap<Key, Told>,
    /// All that were not written: because they did not fit or could not be written, and because there were too many of a kind.
    left_out: (u64, u64),
    /// A line was taken from the queue and is not written yet.
    writing: bool,
}

struct Told {
    since: Instant,
    lines: u32,
    /// Number of entries that were not written.
    more: u64,
}

impl Log {
    /// Starts a log that is written to `to`.
    pub(crate) fn start(to: impl Write + Send + 'static, form: Form) -> io::Result<Log> {
        let log = Log(Arc::new(Shared { form, queue: Mutex::default(), changed: Condvar::new() }));
        let shared = log.0.clone();
        let write = move || shared.write(to);
        thread::Builder::new().name("log".to_owned()).spawn(write).map(|_| log)
    }

    /// Writes one entry more at once, in the form of the log, for a program that ends: what waits to be written is not waited for.
    pub(crate) fn tell_now(&self, event: &str, data: Value, text: impl Into<String>) {
        print::tell_within(Duration::ZERO, Entry::of_program(event, data, text).line(self.0.form));
    }

    /// Returns whether events of this kind are written.
    pub(crate) fn writes(&self, event: &str) -> bool {
        self.0.form != Form::Errors || words::level(event) == "error"
    }

    /// Takes one entry more; never waits for the reader.
    pub(crate) fn tell(&self, entry: &Entry) {
        if !self.writes(&entry.event) {
            return;
        }
        let mut queue = self.0.lock();
        queue.tell_more(self.0.form, false);
        if queue.may_tell(entry) {
            queue.push(self.0.form, entry);
        }
        self.0.changed.notify_all();
    }

    /// Returns the number of lines that were not written: because they did not fit or could not be written, and because there were too many of a
    /// kind.
    pub(crate) fn left_out(&self) -> (u64, u64) {
        self.0.lock().left_out
    }

    /// Counts on from what the process before this one left out.
    pub(crate) fn go_on(&self, dropped: u64, suppressed: u64) {
        let mut queue = self.0.lock();
        queue.left_out.0 += dropped;
        queue.left_out.1 += suppressed;
    }

    /// Waits until all is written, at most so long.
    pub(crate) fn flush(&self, within: Duration) {
        let mut queue = self.0.lock();
        queue.tell_more(self.0.form, true);
        queue.note_dropped(self.0.form);
        self.0.changed.notify_all();
        let busy = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        drop(self.0.changed.wait_timeout_while(queue, within, busy));
    }
}

impl Queue {
    fn may_tell(&mut self, entry: &Entry) -> bool {
        let fresh = || Told { since: Instant::now(), lines: 0, more: 0 };
        let told = self.kinds.entry((entry.pool.clone(), entry.event.clone())).or_insert_with(fresh);
        if told.lines < if entry.is_record { MAX_RECORDS } else { MAX_OF_A_KIND } {
            told.lines += 1;
            return true;
        }
        told.more += 1;
        self.left_out.1 += 1;
        false
    }

    /// Ends each second that is over, or all: what was left out in it is told.
    fn tell_more(&mut self, form: Form, all: bool) {
        let is_over = |told: &Told| all || told.since.elapsed() >= SECOND;
        let over = self.kinds.iter().filter(|(_, told)| is_over(told));
        let over: Vec<Key> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            let Some(Told { more: more @ 1.., .. }) = self.kinds.remove(&key) else { continue };
            let (pool, kind) = key;
            let text = format!("{more} more events {kind} within a second are left out");
            self.push(form, &Entry::of_left_out("Suppressed", pool, (more, Some(&kind)), text));
        }
    }

    fn push(&mut self, form: Form, entry: &Entry) {
        // Room for the count of what was dropped, too; and records leave room for what matters more.
        if self.lines.len() + 1 >= if entry.is_record { MAX_LINES / 2 } else { MAX_LINES } {
            self.dropped += 1;
            self.left_out.0 += 1;
            return;
        }
        self.note_dropped(form);
        self.lines.push_back(entry.line(form));
    }

    fn note_dropped(&mut self, form: Form) {
        let dropped = std::mem::take(&mut self.dropped);
        let text = match dropped {
            0 => return,
            1 => "one line was dropped: standard error was not read".to_owned(),
            dropped => format!("{dropped} lines were dropped: standard error was not read"),
        };
        self.lines.push_back(Entry::of_left_out("LinesDropped", None, (dropped, None), text).line(form));
    }

    /// Notes what became of a line. Where there is room again after a failure, that is told.
    fn note_written(&mut self, form: Form, written: io::Result<()>) {
        self.writing = false;
        match (written, self.unwritten.take()) {
            (Err(error), before) => {
                self.left_out.0 += 1;
                self.unwritten = Some((before.map_or(0, |(count, _)| count) + 1, error));
            }
            (Ok(()), Some((count, error))) => {
                let lines = if count == 1 { "one line was" } else { &format!("{count} lines were") };
                let text = format!("{lines} lost: standard error could not be written: {error}");
                self.lines.push_front(Entry::of_left_out("LinesDropped", None, (count, None), text).line(form));
            }
            (Ok(()), None) => {}
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Returns the next line to write.
    fn next(&self) -> String {
        let mut queue = self.lock();
        loop {
            queue.tell_more(self.form, false);
            if queue.lines.is_empty() {
                queue.note_dropped(self.form);
            }
            if let Some(line) = queue.lines.pop_front() {
                queue.writing = true;
                return line;
            }
            let soonest =
                queue.kinds.values().filter(|told| told.more > 0).map(|told| SECOND.saturating_sub(told.since.elapsed())).min();
            queue = match soonest {
                Some(time) => self.changed.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn write(&self, mut to: impl Write) {
        // A part of a line was written last: the next one begins in a line of its own.
        let mut is_torn = false;
        loop {
            let line = self.next();
            let begin = if is_torn { "\n" } else { "" };
            // A line is written in one piece: lines of several threads and programs do not mix.
            let (length, written) = write_counted(&mut to, format!("{begin}{line}\n").as_bytes());
            is_torn = written.is_err() && (is_torn || length > 0);
            self.lock().note_written(self.form, written);
            self.changed.notify_all();
        }
    }
}

/// Writes all, and says how much of it was.
fn write_counted(to: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut length = 0;
    while length < bytes.len() {
        match to.write(&bytes[length..]) {
            Ok(0) => return (length, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (length, Err(error)),
        }
    }
    (length, to.flush())
}

#[cfg(test)]
mod tests;
