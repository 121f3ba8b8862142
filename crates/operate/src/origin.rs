//! Origin of the configuration of a program.

use crate::document::{Document, Format, Known, MAX_BYTES};
use crate::setting::Values;
use rustix::fs::OFlags;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The name of a program that has none of its own.
pub(crate) const NAME: &str = "sockdrawer";

/// Origin of the configuration of a program, and what it may name.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The name of the program.
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    /// Values of the whole program on the command line: they hold whatever the file says.
    pub(crate) overriding: Values,
    pub(crate) known: Known,
    pub(crate) version: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    Document(Document),
}

impl Origin {
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// Loads the configuration as it is there now, or returns all that is wrong with it, a line each.
    pub(crate) fn load(&self) -> Result<Document, Vec<String>> {
        if let Some(why) = self.known.wrong() {
            return Err(vec![why]);
        }
        match &self.source {
            Source::File(path) => load(path, &self.known, &self.overriding),
            Source::Document(document) => {
                let mut document = document.clone();
                document.program.set.extend(self.overriding.set.clone());
                let mistakes: Vec<String> = self.known.against(&document).collect();
                if mistakes.is_empty() { Ok(document) } else { Err(mistakes) }
            }
        }
    }
}

fn load(path: &Path, known: &Known, overriding: &Values) -> Result<Document, Vec<String>> {
    let shown = path.display();
    let bytes = read(path).map_err(|why| vec![format!("cannot read {shown}: {why}")])?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        vec![format!("{shown}:{line}: not UTF-8: write it as text in UTF-8")]
    })?;
    let complete = |program: &mut Values| program.set.extend(overriding.set.clone());
    let mut document = Document::parse(&text, Format::of(path, &text), known, complete)
        .map_err(|mistakes| mistakes.iter().map(|mistake| mistake.in_file(&shown)).collect::<Vec<_>>())?;
    document.places.file = shown.to_string();
    Ok(document)
}

/// Maximum time for reading a file: a file system of another machine may be dead.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Reads a file on a thread that may be left behind. Not a byte more than is taken: the file may be longer.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let (sender, read) = mpsc::channel();
    let at = path.to_owned();
    let thread = std::thread::Builder::new().name("configuration".to_owned());
    let started = thread.spawn(move || drop(sender.send(read_now(&at))));
    started.map_err(|error| format!("there is no thread for it: {error}; allow more of them (ulimit -u)"))?;
    read.recv_timeout(READ_WITHIN).unwrap_or_else(|_| {
        Err(format!("nothing came within {} s; is its file system there? Name a file of this machine", READ_WITHIN.as_secs()))
    })
}

fn read_now(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("{error}; name a file that is there and may be read");
    // Standard input is the exception: it ends when the program that writes it does.
    let is_input = path == Path::new("/dev/stdin");
    // Opened so, a FIFO without a writer holds nothing up.
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(if is_input { 0 } else { OFlags::NONBLOCK.bits().cast_signed() });
    let file = options.open(path).map_err(cannot)?;
    let kind = file.metadata().map_err(cannot)?.file_type();
    if !kind.is_file() && !is_input {
        let kind = if kind.is_dir() { "a directory" } else { "a device, a socket or a FIFO" };
        return Err(format!("it is {kind}; name a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}
