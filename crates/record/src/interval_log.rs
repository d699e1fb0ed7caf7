//! HdrHistogram interval logs (`.hlog`): one tagged line per second and phase, readable by other
//! HdrHistogram tools. A log is written during the run, under a temporary name until it is
//! complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::file::{create_temporary, link_target, open_special};
use crate::histogram::LatencyHistogram;

/// Log that is being written.
#[derive(Debug)]
pub struct IntervalLog {
    file: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
}

impl IntervalLog {
    /// Starts a log that gets the name `path` when it is finished.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, started_at: &str) -> io::Result<Self> {
        // Same rules as for other files ([`crate::file::write_atomically`]).
        let target = link_target(path)?;
        let (path, (temporary, file)) = match open_special(path, &target)? {
            Some(file) => {
                // Its intervals are as small as the buffer of a pipe, and its reader may be slow.
                rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
                (path.to_owned(), (path.to_owned(), file))
            }
            None => {
                let temporary = create_temporary(&target)?;
                (target, temporary)
            }
        };
        let mut file = BufWriter::new(file);
        writeln!(file, "#[weir, latencies in ns, started {started_at}]")?;
        writeln!(file, "#[Histogram log format version 1.3]")?;
        writeln!(file, "#[StartTime: 0.000 (seconds since the start of the run)]")?;
        writeln!(
            file,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\""
        )?;
        Ok(Self { file, path, temporary })
    }

    /// Appends one interval of one tag; the maximum is in milliseconds, as the format requires.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn append(
        &mut self,
        tag: &str,
        start_s: f64,
        length_s: f64,
        latencies: &LatencyHistogram,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(latencies.inner(), &mut bytes)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let max_ms = latencies.max_ns() as f64 / 1e6;
        writeln!(self.file, "Tag={tag},{start_s:.3},{length_s:.3},{max_ms:.3},{}", STANDARD.encode(bytes))
    }

    /// Renames the log to its final name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.temporary == self.path {
            return Ok(());
        }
        fs::rename(&self.temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn another_reader_of_the_format_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.hlog");
        let mut log = IntervalLog::create(&path, "2026-01-01T00:00:00Z").unwrap();
        let mut latencies = LatencyHistogram::new();
        latencies.record(5_000_000);
        log.append("last_byte.response", 1.0, 1.0, &latencies).unwrap();
        assert!(!path.exists());
        log.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        let intervals: Vec<_> = IntervalLogIterator::new(&bytes)
            .map(Result::unwrap)
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 1);
        assert_eq!(intervals[0].tag().unwrap().as_str(), "last_byte.response");
        assert!((intervals[0].max() - 5.0).abs() < 0.01);
        assert_eq!(LatencyHistogram::decode(intervals[0].encoded_histogram()).unwrap(), latencies);
    }
}
