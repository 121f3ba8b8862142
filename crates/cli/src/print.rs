//! All printing of the program. A reader that went away is not an error: `sockdrawer serve ping | head -1` keeps serving.

use crate::outcome::Failure;
use crate::values::Destination;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// One line on standard output, there at once: others wait for it.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe, for example a full disk.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    write_line(io::stdout().lock(), text).map_err(|error| {
        Failure::run(format_args!("cannot write to standard output: {error}; send it to a place that can take it"))
    })
}

/// Where a report is written at the end of a run; opened before it, so that no run is spent on a file that cannot be written.
#[derive(Debug)]
pub(crate) enum Sink {
    Stdout,
    File(PathBuf, File),
}

impl Sink {
    /// # Errors
    /// When the file cannot be created.
    pub(crate) fn open(destination: Destination) -> Result<Sink, Failure> {
        match destination {
            Destination::Stdout => Ok(Sink::Stdout),
            Destination::File(path) => match File::create(&path) {
                Ok(file) => Ok(Sink::File(path, file)),
                Err(error) => Err(Failure::usage(cannot_write(&path, &error))),
            },
        }
    }

    /// Writes the whole report, and a line break.
    ///
    /// # Errors
    /// When it cannot be written; a reader that went away is none.
    pub(crate) fn write(self, report: impl fmt::Display) -> Result<(), Failure> {
        match self {
            Sink::Stdout => line(report),
            Sink::File(path, file) => write_line(file, report).map_err(|error| Failure::run(cannot_write(&path, &error))),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; name a file in a folder that you may write to, or - for standard output", path.display())
}

/// One line on standard error. What cannot be told there cannot be told anywhere.
pub(crate) fn tell(text: impl fmt::Display) {
    let _ = write_line(io::stderr().lock(), text);
}

/// Where people read: standard output, or standard error while standard output carries a report for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    Stdout,
    Stderr,
}

impl People {
    /// Not where the report goes.
    pub(crate) fn beside(report: Option<&Destination>) -> People {
        if report == Some(&Destination::Stdout) { People::Stderr } else { People::Stdout }
    }

    /// # Errors
    /// When standard output cannot be written; a reader that went away is none.
    pub(crate) fn tell(self, text: impl fmt::Display) -> Result<(), Failure> {
        match self {
            People::Stdout => line(text),
            People::Stderr => {
                tell(text);
                Ok(())
            }
        }
    }
}

/// Rewrites the last line of a terminal on standard error; `text` is not ended by a line break.
pub(crate) fn rewrite(text: impl fmt::Display) {
    const START_OF_LINE_AND_ERASE: &str = "\r\x1b[K";
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{START_OF_LINE_AND_ERASE}{text}").and_then(|()| stderr.flush());
}

/// Written as one piece, so that lines of several threads and programs do not mix.
fn write_line(mut to: impl Write, text: impl fmt::Display) -> io::Result<()> {
    match to.write_all(format!("{text}\n").as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_reader_that_went_away_is_no_error() {
        assert!(write_line(Fails(ErrorKind::BrokenPipe), "x").is_ok());
        assert!(write_line(Fails(ErrorKind::StorageFull), "x").is_err());
        let mut written = Vec::new();
        write_line(&mut written, "listening").expect("memory takes it");
        assert_eq!(written, b"listening\n");
    }
}
