//! A directory for each run: filled while it goes on, so that what was measured is there when the run, or the machine, ends in the
//! middle of it.

use super::files::{CONNECTS, DirectoryError, HANDSHAKES, OPERATIONS, PLAN, RESULT, SERIES};
use super::log::Log;
use super::page::{self, Gaps};
use super::recorded::Recorded;
use crate::found::Found;
use crate::report::Report;
use crate::series::{Interval, Sample};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Name of the page for people.
const PAGE: &str = "report.html";
/// Name of the file with the result of a search, as `find --json` prints it.
const SEARCH: &str = "search.json";
/// Name of the file with the result of a trial, as `trial --json` prints it.
const TRIAL: &str = "trial.json";

/// The directory of a run that goes on.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    series: File,
    connect: Log,
    /// Log of handshakes, under TLS.
    handshake: Option<Log>,
    operation: Log,
    /// A write failed. Nothing is written to these files after it, so that they have no gap: they end.
    broken: bool,
}

impl Directory {
    /// Makes the directory and the files that are written while the run goes on. `plan` is kept as it is. Under TLS
    /// there is a log of handshakes.
    ///
    /// # Errors
    /// When there is a run in it, or it cannot be written.
    pub fn create(path: &Path, plan: &str, under_tls: bool) -> Result<Directory, DirectoryError> {
        fs::create_dir_all(path).map_err(unwritable(path))?;
        let has = |name: &str| fs::metadata(path.join(name)).is_ok_and(|file| file.len() > 0);
        // A run that did not begin leaves empty files, and may be repeated.
        if has(RESULT) || has(SERIES) {
            return Err(DirectoryError::Taken(path.to_owned()));
        }
        let create = |name: &str| {
            let path = path.join(name);
            File::create(&path).map_err(unwritable(&path))
        };
        let series = create(SERIES)?;
        let log = |name: &str, what| Log::begin(create(name)?, what).map_err(unwritable(&path.join(name)));
        let connect = log(CONNECTS, "from the start of a connect until the connection stood")?;
        let handshake = under_tls
            .then(|| log(HANDSHAKES, "from the end of a connect until the handshake of TLS was complete"))
            .transpose()?;
        let operation = log(OPERATIONS, "from when an operation was due to its end")?;
        let directory = Directory { path: path.to_owned(), series, connect, handshake, operation, broken: false };
        directory.replace(PLAN, plan)?;
        Ok(directory)
    }

    /// Returns the path of the page, once it is finished.
    pub fn page(&self) -> PathBuf {
        self.path.join(PAGE)
    }

    /// Writes what was measured since the last time.
    ///
    /// # Errors
    /// When it cannot be written. The first time only: after that the files stay as they are, and the run may go on.
    pub fn add(&mut self, sample: &Sample, interval: &Interval<'_>) -> Result<(), DirectoryError> {
        if self.broken {
            return Ok(());
        }
        let written = self.append(sample, interval);
        self.broken = written.is_err();
        written.map_err(|error| DirectoryError::Unwritable(self.path.clone(), error))
    }

    /// Appends each line by one call: a run that is killed leaves whole ones.
    fn append(&mut self, sample: &Sample, interval: &Interval<'_>) -> io::Result<()> {
        let mut line = serde_json::to_string(sample)?;
        line.push('\n');
        self.series.write_all(line.as_bytes())?;
        self.connect.add(interval.connect, interval)?;
        self.handshake.as_mut().map_or(Ok(()), |log| log.add(interval.handshake, interval))?;
        self.operation.add(interval.operation, interval)
    }

    /// Writes the result, and the page that shows it.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn finish(&self, report: &Report) -> Result<(), DirectoryError> {
        let result = serde_json::to_string_pretty(report).map_err(|error| unwritable(&self.path)(error.into()))?;
        self.replace(RESULT, &(result + "\n"))?;
        show(&self.path).map(drop)
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        replace(&self.path.join(name), text)
    }
}

/// The directory of a search, or of a trial: what came of it, and a page.
#[derive(Debug)]
pub struct PageDirectory {
    path: PathBuf,
}

impl PageDirectory {
    /// Makes the directory.
    ///
    /// # Errors
    /// When there is a run, a search or a trial in it, or it cannot be written.
    pub fn create(path: &Path) -> Result<PageDirectory, DirectoryError> {
        fs::create_dir_all(path).map_err(unwritable(path))?;
        if [RESULT, SERIES, SEARCH, TRIAL].iter().any(|name| path.join(name).exists()) {
            return Err(DirectoryError::Taken(path.to_owned()));
        }
        // A page that cannot be written is told before the search, not behind it.
        let page = path.join(PAGE);
        File::create(&page).map_err(unwritable(&page))?;
        Ok(PageDirectory { path: path.to_owned() })
    }

    /// Writes what came of a search, and the page that shows it.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn search(&self, found: &Found) -> Result<(), DirectoryError> {
        self.finish(SEARCH, found, &page::search(found))
    }

    /// Writes the report of a trial, and the page that shows its gaps.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn trial(&self, report: &impl Serialize, gaps: &Gaps) -> Result<(), DirectoryError> {
        self.finish(TRIAL, report, &page::trial(gaps))
    }

    fn finish(&self, name: &str, what: &impl Serialize, page: &str) -> Result<(), DirectoryError> {
        let text = serde_json::to_string_pretty(what).map_err(|error| unwritable(&self.path)(error.into()))?;
        replace(&self.path.join(name), &(text + "\n"))?;
        replace(&self.path.join(PAGE), page)
    }

    /// Returns the path of the page, once it is finished.
    pub fn page(&self) -> PathBuf {
        self.path.join(PAGE)
    }
}

/// Makes the page of a run again from what its directory has, and returns that.
///
/// # Errors
/// When the directory has no run, or the page cannot be written.
pub fn show(path: &Path) -> Result<Recorded, DirectoryError> {
    let recorded = Recorded::read(path)?;
    replace(&path.join(PAGE), &page::page(&recorded))?;
    Ok(recorded)
}

/// Replaces a file by the whole text, or leaves what was there before: never half of it.
fn replace(path: &Path, text: &str) -> Result<(), DirectoryError> {
    let unfinished = path.with_extension("unfinished");
    let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The rest of the unfinished file does no harm, but says nothing.
        let _ = fs::remove_file(&unfinished);
    }
    written.map_err(unwritable(path))
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Unwritable(path, error)
}
