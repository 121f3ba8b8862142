//! A run as it is on disk.

use super::files::{CONNECTS, DirectoryError, HANDSHAKES, OPERATIONS, PLAN, RESULT, SERIES};
use super::log;
use crate::latency::Latency;
use crate::report::Report;
use crate::series::Sample;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// Content of a run's directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Result of the run; None: it was ended before it had one.
    pub report: Option<Report>,
    /// Samples of the run, as far as they were written.
    pub samples: Vec<Sample>,
    /// All times of the whole run, by what took them, as far as they were written.
    pub times: Vec<(&'static str, Latency)>,
    /// Plan of the run.
    pub plan: Option<String>,
}

impl Recorded {
    /// Reads a directory.
    ///
    /// # Errors
    /// When it has neither a result nor samples, or they are not what this version writes.
    pub fn read(path: &Path) -> Result<Recorded, DirectoryError> {
        let report = optional(&path.join(RESULT), |path| fs::read_to_string(path))?;
        let report = report.map(|text| result(&text).map_err(unreadable(path.join(RESULT)))).transpose()?;
        let samples = optional(&path.join(SERIES), samples)?;
        if report.is_none() && samples.is_none() {
            return Err(DirectoryError::Unreadable(path.to_owned(), format!("there is neither {RESULT} nor {SERIES}")));
        }
        let plan = optional(&path.join(PLAN), |path| fs::read_to_string(path))?;
        let mut times = Vec::new();
        for (name, file) in [("operation", OPERATIONS), ("connect", CONNECTS), ("TLS handshake", HANDSHAKES)] {
            times.extend(optional(&path.join(file), log::sum)?.map(|sum| (name, sum)));
        }
        Ok(Recorded { report, samples: samples.unwrap_or_default(), times, plan })
    }
}

/// Reads a result of the form that this version knows.
fn result(text: &str) -> Result<Report, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match &value["schema"] {
        Value::String(schema) if schema == Report::SCHEMA => serde_json::from_value(value).map_err(|error| error.to_string()),
        Value::Null => Err("it has no schema".to_owned()),
        schema => Err(format!("its schema is {schema}, this version reads \"{}\"", Report::SCHEMA)),
    }
}

/// Reads the samples of a file. Its last line may be cut off where a run, or its disk, ended.
fn samples(path: &Path) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut lines = BufReader::new(File::open(path)?).split(b'\n').peekable();
    while let Some(line) = lines.next() {
        match serde_json::from_slice(&line?) {
            Ok(sample) => samples.push(sample),
            Err(_) if lines.peek().is_none() => {}
            Err(error) => {
                return Err(io::Error::new(ErrorKind::InvalidData, format!("line {}: {error}", samples.len() + 1)));
            }
        }
    }
    Ok(samples)
}

fn optional<T>(path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> Result<Option<T>, DirectoryError> {
    match read(path) {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path.to_owned())(error)),
    }
}

fn unreadable<E: ToString>(path: PathBuf) -> impl FnOnce(E) -> DirectoryError {
    move |error| DirectoryError::Unreadable(path, error.to_string())
}
