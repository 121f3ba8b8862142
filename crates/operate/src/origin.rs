//! Where the configuration of a program comes from.

use crate::document::{Document, Format, Known, MAX_BYTES};
use crate::protocol::Protocol;
use crate::setting::Values;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where the configuration of a program comes from, and what it may name.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) source: Source,
    /// What the command line says of the whole program, whatever the file says.
    pub(crate) overriding: Values,
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) version: String,
}

#[derive(Debug)]
pub(crate) enum Source {
    File(PathBuf),
    Document(Document),
}

impl Origin {
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// The configuration as it is there now, or all that is wrong with it, a line each.
    pub(crate) fn load(&self) -> Result<Document, Vec<String>> {
        match &self.source {
            Source::File(path) => load(path, &self.protocols, &self.overriding),
            Source::Document(document) => Ok(document.clone()),
        }
    }
}

fn load(path: &Path, protocols: &[Protocol], overriding: &Values) -> Result<Document, Vec<String>> {
    let shown = path.display();
    let cannot = |error: io::Error| vec![format!("cannot read {shown}: {error}; name a file that is there and may be read")];
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    // Not a byte more than is taken: the file may be a device.
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    let mut document = Document::parse(&text, Format::of(path, &text), Known { protocols })
        .map_err(|mistakes| mistakes.iter().map(|mistake| mistake.in_file(&shown)).collect::<Vec<_>>())?;
    document.program.0.extend(overriding.0.clone());
    Ok(document)
}
