//! What a server says on standard error while it runs. Lines are written by a thread that may be left behind: when its reader hangs, they
//! are dropped and counted, and neither a connection nor a signal waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Lines that may wait to be written.
pub(crate) const MOST_LINES: usize = 1024;

/// A log; its copies are the same one.
#[derive(Clone)]
pub(crate) struct Log(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Lines that did not fit, since the last that did.
    dropped: u64,
    /// A line was taken from the queue and is not written yet.
    writing: bool,
}

impl Log {
    /// A log that is written to `to`.
    pub(crate) fn start(to: impl Write + Send + 'static) -> io::Result<Log> {
        let log = Log(Arc::default());
        let shared = log.0.clone();
        let write = move || shared.write(to);
        thread::Builder::new().name("log".to_owned()).spawn(write).map(|_| log)
    }

    /// One line more; never waits for the reader.
    pub(crate) fn tell(&self, line: impl fmt::Display) {
        let mut queue = self.0.lock();
        // Room for the count of what was dropped, too.
        if queue.lines.len() + 1 >= MOST_LINES {
            queue.dropped += 1;
            return;
        }
        queue.note_dropped();
        queue.lines.push_back(line.to_string());
        self.0.changed.notify_all();
    }

    /// Waits until all is written, at most so long.
    pub(crate) fn flush(&self, within: Duration) {
        let mut queue = self.0.lock();
        queue.note_dropped();
        self.0.changed.notify_all();
        let busy = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        drop(self.0.changed.wait_timeout_while(queue, within, busy));
    }
}

impl Queue {
    fn note_dropped(&mut self) {
        match std::mem::take(&mut self.dropped) {
            0 => {}
            1 => self.lines.push_back("one line was dropped: standard error was not read".to_owned()),
            dropped => self.lines.push_back(format!("{dropped} lines were dropped: standard error was not read")),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut to: impl Write) {
        loop {
            let idle = |queue: &mut Queue| queue.lines.is_empty() && queue.dropped == 0;
            let waited = self.changed.wait_while(self.lock(), idle);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            if queue.lines.is_empty() {
                queue.note_dropped();
            }
            let Some(line) = queue.lines.pop_front() else { continue };
            queue.writing = true;
            drop(queue);
            // What cannot be told there cannot be told anywhere.
            let _ = writeln!(to, "{line}").and_then(|()| to.flush());
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(20);

    /// Takes a piece for each word that it may.
    struct Slow {
        may: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // When the test is over, nothing is in the way.
            let _ = self.may.recv();
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_the_rest_comes_in_order() {
        let ((go, may), (written, got)) = (mpsc::channel(), mpsc::channel());
        let log = Log::start(Slow { may, written }).expect("a thread");
        let told = 3 * MOST_LINES;
        (0..told).for_each(|number| log.tell(number));
        log.flush(Duration::ZERO);
        drop(go);
        log.flush(LONG);
        log.tell("after");
        log.flush(LONG);
        drop(log);
        let all = String::from_utf8(got.try_iter().flatten().collect()).expect("text");
        let lines: Vec<&str> = all.lines().collect();
        let [numbers @ .., dropped, "after"] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(numbers.iter().enumerate().all(|(at, line)| *line == at.to_string()), "{numbers:?}");
        assert!(numbers.len() + 2 >= MOST_LINES, "{}", numbers.len());
        assert_eq!(*dropped, format!("{} lines were dropped: standard error was not read", told - numbers.len()));
    }
}
