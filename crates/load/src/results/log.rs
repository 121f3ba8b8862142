//! The log of intervals of HdrHistogram, which its tools in many languages read: a histogram in each line.

use crate::latency::Latency;
use crate::series::Interval;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::time::SystemTime;

/// A log that grows.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    /// The log says when the first interval began.
    is_dated: bool,
}

impl Log {
    /// Begins a log of times that are `what`.
    pub(crate) fn begin(mut file: File, what: &str) -> io::Result<Log> {
        let head = format!("#[Histogram log format version 1.3]\n#Nanoseconds {what}; Interval_Max in milliseconds\n");
        file.write_all(head.as_bytes())?;
        Ok(Log { file, is_dated: false })
    }

    /// Adds a line, which is written by one call.
    pub(crate) fn add(&mut self, latency: &Latency, interval: &Interval<'_>) -> io::Result<()> {
        let (from, length) = (interval.from.as_secs_f64(), interval.length.as_secs_f64());
        let mut text = String::new();
        if !self.is_dated {
            let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let start = start.saturating_sub(interval.from + interval.length).as_secs_f64();
            text = format!(
                "#[StartTime: {start:.3} (seconds since epoch)]\n#[BaseTime: {start:.3} (seconds since epoch)]\n\
                 \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
            );
        }
        let max = latency.percentiles().max.unwrap_or(0.0) / 1000.0;
        text += &format!("{from:.3},{length:.3},{max:.3},{}\n", latency.encode());
        self.file.write_all(text.as_bytes())?;
        self.is_dated = true;
        Ok(())
    }
}

/// Returns all times of a log together. Its last line may be cut off where a run, or its disk, ended.
pub(super) fn sum(path: &Path) -> io::Result<Latency> {
    let mut sum = Latency::new();
    let mut lines = BufReader::new(File::open(path)?).lines().peekable();
    while let Some(line) = lines.next() {
        let line = line?;
        if line.starts_with(['#', '"']) {
            continue;
        }
        match Latency::decode(line.rsplit(',').next().unwrap_or_default()) {
            Ok(interval) => sum.add(&interval),
            Err(_) if lines.peek().is_none() => {}
            Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use std::time::Duration;

    #[test]
    fn the_tools_of_others_read_the_log() {
        let path = std::env::temp_dir().join(format!("sockdrawer-hlog-{}", std::process::id()));
        let mut log = Log::begin(File::create(&path).expect("a file"), "of a test").expect("there is room");
        let mut latencies = [Latency::new(), Latency::new()];
        latencies[1].record(Duration::from_millis(3));
        for (second, latency) in (0..).zip(&latencies) {
            let (from, length) = (Duration::from_secs(second), Duration::from_secs(1));
            log.add(latency, &Interval { from, length, connect: latency, handshake: latency, operation: latency })
                .expect("there is room");
        }
        let text = std::fs::read(&path).expect("it was written");
        assert_eq!(sum(&path).expect("it is whole"), latencies[1]);
        // In the middle of its histogram: at its end there may be no more than a checksum.
        let last = text[..text.len() - 1].iter().rposition(|byte| *byte == b',').expect("a line of the format");
        std::fs::write(&path, &text[..usize::midpoint(last, text.len())]).expect("there is room");
        assert_eq!(sum(&path).expect("its last line may be cut off"), latencies[0]);
        std::fs::remove_file(&path).expect("it is there");
        let (mut starts, mut read) = (Vec::new(), Vec::new());
        for entry in IntervalLogIterator::new(&text) {
            match entry.expect("a line of the format") {
                LogEntry::StartTime(at) | LogEntry::BaseTime(at) => starts.push(at),
                LogEntry::Interval(interval) => {
                    assert_eq!(interval.duration(), Duration::from_secs(1));
                    read.push((
                        interval.start_timestamp().as_secs(),
                        interval.max().round(),
                        interval.encoded_histogram().to_owned(),
                    ));
                }
            }
        }
        let expected = [(0, 0.0, latencies[0].encode()), (1, 3.0, latencies[1].encode())];
        assert_eq!(read, expected);
        assert!(starts.len() == 2 && starts[0] == starts[1] && starts[0] > Duration::from_secs(1_600_000_000), "{starts:?}");
    }
}
