//! Printing for programs whose readers may go away or stop to read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::{Errno, retry_on_intr};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Maximum time for which the end of a program waits for the last lines to be written.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line on standard output, there at once: other programs wait for it. A reader that went away is no error.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe or terminal, for example a full disk.
pub fn line(text: impl fmt::Display) -> io::Result<()> {
    let stdout = rustix::stdio::stdout();
    let is_device = || rustix::fs::fstat(stdout).is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_char_device());
    match write_line(io::stdout().lock(), text) {
        // A terminal that was closed takes nothing for ever; a file says so of a broken disk.
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_device() => Ok(()),
        written => written,
    }
}

/// Writes a line on standard error, unless that does not take it in this time: then it is left out. A pipe that takes something takes
/// [`PIPE_BUF`](https://man7.org/linux/man-pages/man7/pipe.7.html) bytes without waiting.
pub fn tell_within(within: Duration, text: impl fmt::Display) {
    const PIPE_BUF: usize = 4096;
    // Its lock may be held by a thread that waits to write.
    let stderr = rustix::stdio::stderr();
    let within = Timespec::try_from(within).ok();
    for piece in format!("{text}\n").as_bytes().chunks(PIPE_BUF) {
        let takes = retry_on_intr(|| poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], within.as_ref()));
        if takes != Ok(1) || rustix::io::write(stderr, piece) != Ok(piece.len()) {
            return;
        }
    }
}

/// Writes a line as one piece, so that lines of several threads and programs do not mix. A reader that went away is no error.
///
/// # Errors
/// Any other error of `to`.
pub fn write_line(mut to: impl Write, text: impl fmt::Display) -> io::Result<()> {
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
