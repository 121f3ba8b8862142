//! All printing of a program. A reader that went away is not an error: `sockdrawer serve ping | head -1` keeps serving.

use crate::outcome::Failure;
use crate::terminal;
use crate::values::Destination;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
pub use sockdrawer_operate::print::tell_within;
use sockdrawer_operate::print::write_line;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes one line on standard output, there at once: others wait for it.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe, for example a full disk.
pub fn line(text: impl fmt::Display) -> Result<(), Failure> {
    sockdrawer_operate::print::line(text).map_err(|error| {
        Failure::run(format_args!("cannot write to standard output: {error}; send it to a place that can take it"))
    })
}

/// The place where a report is written at the end of a run; opened before it, so that no run is spent on a file that cannot be written. What
/// the file held before stays until then: a run that fails leaves the last report as it was.
#[derive(Debug)]
enum Sink {
    Stdout,
    File(Target),
}

/// A file that is open for a report.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    file: File,
    /// True where the file was not there before, and nothing is written yet.
    empty: bool,
}

impl Sink {
    /// # Errors
    /// When the file cannot be written or created.
    fn open(destination: Destination) -> Result<Sink, Failure> {
        match destination {
            Destination::Stdout => Ok(Sink::Stdout),
            Destination::File(path) => {
                let target = Target::open(&path).map_err(|error| Failure::usage(cannot_write(&path, &error)))?;
                Ok(Sink::File(target))
            }
        }
    }

    /// Writes the whole report, and a line break.
    ///
    /// # Errors
    /// When it cannot be written; a reader that went away is none.
    fn write(&mut self, report: impl fmt::Display) -> Result<(), Failure> {
        match self {
            Sink::Stdout => line(report),
            Sink::File(target) => target.write(report).map_err(|error| Failure::run(cannot_write(&target.path, &error))),
        }
    }
}

impl Target {
    /// Opens a file in place, not replaced by another file at the end: the path may be a link, a pipe or a device, and others may have
    /// rights on it.
    fn open(path: &Path) -> io::Result<Target> {
        let open = |new| OpenOptions::new().write(true).create_new(new).open(path);
        let (file, empty) = match open(false) {
            Err(error) if error.kind() == ErrorKind::NotFound => (open(true)?, true),
            opened => (opened?, false),
        };
        Ok(Target { path: path.to_owned(), file, empty })
    }

    fn write(&mut self, report: impl fmt::Display) -> io::Result<()> {
        self.empty = false;
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        write_line(&self.file, report)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.empty {
            // An empty file says nothing; where it cannot be removed, it stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; name a file in a folder that you may write to, or - for standard output", path.display())
}

/// Writes one line on standard error. What cannot be told there cannot be told anywhere.
pub fn tell(text: impl fmt::Display) {
    let _ = write_line(io::stderr().lock(), text);
}

/// The output of a command: words for people, and at the end a report for programs where one was asked for.
#[derive(Debug)]
pub struct Output {
    report: Option<Sink>,
}

impl Output {
    /// Opens the place of the report.
    ///
    /// # Errors
    /// When the file of the report cannot be written or created.
    pub fn open(report: Option<Destination>) -> Result<Output, Failure> {
        Ok(Output { report: report.map(Sink::open).transpose()? })
    }

    /// Prints on standard output, or on standard error while standard output carries the report.
    ///
    /// # Errors
    /// When standard output cannot be written; a reader that went away is none.
    pub fn tell(&self, text: impl fmt::Display) -> Result<(), Failure> {
        match self.report {
            Some(Sink::Stdout) => {
                tell(text);
                Ok(())
            }
            _ => line(text),
        }
    }

    /// Tells it in lines that fit a terminal. Elsewhere a line is whole, for programs that look for words in it.
    ///
    /// # Errors
    /// When standard output cannot be written; a reader that went away is none.
    pub fn tell_folded(&self, text: impl fmt::Display) -> Result<(), Failure> {
        let columns = match self.report {
            Some(Sink::Stdout) => terminal::size_of(&io::stderr()),
            _ => terminal::size_of(&io::stdout()),
        };
        match columns {
            Some((columns, _)) => self.tell(folded(&text.to_string(), columns.min(WIDEST))),
            None => self.tell(text),
        }
    }

    /// Writes the report, where one was asked for.
    ///
    /// # Errors
    /// When it cannot be written; a reader that went away is none.
    pub fn report(&mut self, report: &impl Serialize) -> Result<(), Failure> {
        let Some(sink) = &mut self.report else { return Ok(()) };
        sink.write(serde_json::to_string(report).map_err(Failure::not_json)?)
    }

    /// Writes a report that is no JSON, where one was asked for.
    ///
    /// # Errors
    /// When it cannot be written; a reader that went away is none.
    pub fn write(&mut self, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.report.as_mut().map_or(Ok(()), |sink| sink.write(text()))
    }
}

/// Wider lines are hard to read.
const WIDEST: usize = 100;
/// The column at which the text of a line begins that has a name before it.
const TEXT: usize = 13;

/// Folds lines that are too long: they go on below, where their text began.
fn folded(text: &str, columns: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let indent = if line.as_bytes().get(TEXT - 1) == Some(&b' ') { TEXT } else { 2 };
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            if column > indent && column + word.trim_end().chars().count() > columns {
                folded.truncate(folded.trim_end().len());
                folded += &format!("\n{}", " ".repeat(indent));
                column = indent;
            }
            folded += word;
            column += word.chars().count();
        }
        folded.truncate(folded.trim_end_matches(' ').len());
        folded.push('\n');
    }
    folded.truncate(folded.trim_end().len());
    folded
}

/// Returns whether standard error takes something now: a terminal does not after Ctrl-S, and a write would wait for Ctrl-Q.
fn takes() -> bool {
    let stderr = rustix::stdio::stderr();
    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec::default())) == Ok(1)
}

/// Rewrites the last line of a terminal on standard error, where that takes something, as far as it fits; `text` is not ended by a line break.
pub fn rewrite(text: impl fmt::Display) {
    if !takes() {
        return;
    }
    const START_OF_LINE_AND_ERASE: &str = "\r\x1b[K";
    let columns = terminal::size().map_or(usize::MAX, |(columns, _)| columns - 1);
    let text: String = text.to_string().chars().take(columns).collect();
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{START_OF_LINE_AND_ERASE}{text}").and_then(|()| stderr.flush());
}

/// Draws these lines on the terminal on standard error, in place of the last `above` ones. The cursor rests below them, where whatever
/// is written next may begin, and is hidden only while the lines come, all in one write: a program that is killed leaves a terminal that
/// is as it was. False: the terminal takes nothing now, as after Ctrl-S.
pub fn draw(above: usize, lines: &[&str]) -> bool {
    let mut text = "\x1b[?25l\r".to_owned();
    if above > 0 {
        text += &format!("\x1b[{above}A");
    }
    lines.iter().for_each(|line| text += &format!("{line}\x1b[K\n"));
    text += "\x1b[J\x1b[?25h";
    takes() && io::stderr().lock().write_all(text.as_bytes()).is_ok()
}

/// Empties the screen of the terminal on standard error, where that takes something: line by line, because some terminals keep what is
/// erased at once among what has scrolled away.
pub fn clear(rows: usize) {
    let text = format!("\x1b[H{}\x1b[H", vec!["\x1b[K"; rows].join("\n"));
    if takes() {
        // Without it, what was drawn stays above what comes next.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_report_stays_until_the_new_one_is_written() {
        let path = std::env::temp_dir().join(format!("sockdrawer-sink-{}", std::process::id()));
        let read = || fs::read_to_string(&path).ok();
        let open = || Sink::open(Destination::File(path.clone())).expect("the folder can be written");
        drop(open());
        assert_eq!(read(), None, "a run that failed leaves no file behind");
        open().write("a report that is long").expect("it can be written");
        drop(open());
        assert_eq!(read().as_deref(), Some("a report that is long\n"));
        open().write("short").expect("it can be written");
        assert_eq!(read().as_deref(), Some("short\n"));
        fs::remove_file(&path).expect("it is there");
        let elsewhere = Destination::File(path.join("nowhere"));
        assert_eq!(Sink::open(elsewhere).expect_err("no such folder").exit, crate::outcome::Exit::Usage);
        Sink::open(Destination::File("/dev/null".into())).and_then(|mut sink| sink.write("x")).expect("a device takes it");
    }

    #[test]
    fn long_lines_go_on_below_their_text() {
        let words = "word ".repeat(20);
        let text = folded(&format!("error        {words}\n  row    of a table\n\n{words}"), 80);
        let lines: Vec<&str> = text.lines().collect();
        let first = format!("error        {}", "word ".repeat(13));
        assert_eq!(lines[..2], [first.trim_end(), &format!("             {}", "word ".repeat(7).trim_end())]);
        assert_eq!(lines[2..4], ["  row    of a table", ""]);
        assert_eq!((lines.len(), lines[5]), (6, "  word word word word"));
        assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
        let path = "x".repeat(100);
        assert_eq!(folded(&format!("page {path}"), 80), format!("page\n  {path}"), "what has no space stays whole");
    }
}
