//! Access logs: batches of lines from all cores, and one thread that writes them to all targets.
//!
//! A core collects lines in one batch per target ([`LineBatches`]). It hands the batch over when it is
//! full or a tick old. It never waits: when a target is slower than the requests and the maximum
//! number of batches is in flight, it drops and counts lines. Buffers come back and are reused. Nothing
//! here affects the handling of requests. The formats of the lines are the server's.

mod output;
mod rotation;
mod writer;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rt::tokio::sync::mpsc;

pub use rotation::Rotation;
pub use writer::LogWriter;
use writer::{Buffer, LineBatch, LineCounts, PrintMessage, TargetWriter, WriterMessage};

/// Size in bytes at which a batch is handed over; it can be longer by one line.
const BATCH_BYTES: usize = 32 * 1024;
/// Maximum number of batches in flight from a core to a target.
const BATCHES_MAX: usize = 16;
/// Number of buffers that a core keeps for the next batches of a target.
const FREE_BUFFERS_MAX: usize = 2;
/// Channel capacity for messages to the log thread that are not batches.
const REOPENS_MAX: usize = 4;

/// Time that a process gives a target for its last lines ([`LogWriter::finish`]).
pub const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    /// A file, appended to; [`LogWriter::reopen`] opens it again.
    File(PathBuf),
    /// A syslog server over UDP (RFC 5424, RFC 5426).
    SyslogUdp(SocketAddr),
    /// A syslog socket, like `/dev/log`.
    SyslogUnix(PathBuf),
}

impl LogTarget {
    /// Returns the target of a flag: a file, or standard output for `-`; `None` without a log.
    #[must_use]
    pub fn from_flag(text: &str) -> Option<Self> {
        match text {
            "" => None,
            "-" => Some(Self::Stdout),
            path => Some(Self::File(path.into())),
        }
    }
}

impl From<LogTarget> for TargetPlan {
    fn from(target: LogTarget) -> Self {
        Self { target, rotation: None }
    }
}

impl fmt::Display for LogTarget {
    /// Formats the target as in the proxy's config.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::SyslogUdp(server) => write!(f, "syslog:{server}"),
            Self::SyslogUnix(path) => write!(f, "syslog:{}", path.display()),
        }
    }
}

/// A target with the limits of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    pub target: LogTarget,
    /// Rotation of a file; `None`: it grows until an operator renames it.
    pub rotation: Option<Rotation>,
}

/// Targets with the line counters of each.
type CountedTargets = Arc<[(LogTarget, Arc<LineCounts>)]>;

/// State of the logs shared by all cores: the line counters of each target, and the channel to the log
/// thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogSender {
    targets: CountedTargets,
    messages: mpsc::Sender<WriterMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCounts {
    pub target: String,
    pub written: u64,
    /// Lines that were dropped because the maximum number of batches was in flight.
    pub overflowed: u64,
    pub failed: u64,
    /// Lines that were not tried because the target had just refused others.
    pub backoff: u64,
    /// Files that were renamed because of their size.
    pub rotated: u64,
    /// Attempts to rename a file that failed.
    pub rotations_failed: u64,
}

/// Opens all targets and starts the log thread for `cores` cores. Must be called before privileges
/// are dropped.
///
/// # Errors
/// Returns the errors of all files that could not be opened, or the error of starting the thread.
pub fn start(targets: &[TargetPlan], cores: usize) -> io::Result<(LogSender, LogWriter)> {
    start_with_printer(targets, cores, Box::new(|text| eprintln!("weir: {text}")))
}

fn start_with_printer(
    targets: &[TargetPlan],
    cores: usize,
    mut printer: PrintMessage,
) -> io::Result<(LogSender, LogWriter)> {
    let (messages, receiver) = mpsc::channel(BATCHES_MAX * cores * targets.len() + REOPENS_MAX);
    let (mut writers, mut shared, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for plan in targets {
        let counts = Arc::<LineCounts>::default();
        match TargetWriter::open(plan, Arc::clone(&counts), &mut printer) {
            Ok(writer) => writers.push(writer),
            Err(error) => problems.push(error),
        }
        shared.push((plan.target.clone(), counts));
    }
    if let Some(first_problem) = problems.first() {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(io::Error::new(first_problem.kind(), texts.join("\n")));
    }
    let writer = if writers.is_empty() {
        LogWriter::disabled()
    } else {
        LogWriter::start(writers, messages.clone(), receiver, printer)?
    };
    Ok((LogSender { targets: shared.into(), messages }, writer))
}

impl LogSender {
    pub fn line_counters(&self) -> LineCounters {
        LineCounters(Arc::clone(&self.targets))
    }

    /// Creates the batches of one core for the target with this index. No line may be longer than
    /// `line_bytes_max`.
    pub fn batches(&self, target: usize, line_bytes_max: usize) -> LineBatches {
        let buffer_bytes = BATCH_BYTES + line_bytes_max;
        LineBatches {
            target,
            messages: self.messages.clone(),
            batch: new_buffer(buffer_bytes),
            buffer_bytes,
            filled: 0,
            lines: 0,
            free_buffers: Vec::with_capacity(FREE_BUFFERS_MAX),
            in_flight: 0,
            return_channel: mpsc::channel(BATCHES_MAX),
            counts: Arc::clone(&self.targets[target].1),
        }
    }
}

/// Read access to the line counters. Unlike a [`LogSender`], it does not keep the log thread waiting
/// for more messages.
#[derive(Clone, Debug)]
pub struct LineCounters(CountedTargets);

impl LineCounters {
    /// Returns whether it counts the same logs as `other`.
    pub fn has_same_logs(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the line counters so far, by target.
    pub fn counts(&self) -> Vec<TargetCounts> {
        let counts = |(target, counts): &(LogTarget, Arc<LineCounts>)| TargetCounts {
            target: target.to_string(),
            written: counts.written.load(Ordering::Relaxed),
            overflowed: counts.overflowed.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            backoff: counts.backoff.load(Ordering::Relaxed),
            rotated: counts.rotated.load(Ordering::Relaxed),
            rotations_failed: counts.rotations_failed.load(Ordering::Relaxed),
        };
        self.0.iter().map(counts).collect()
    }
}

/// Lines of one core on their way to one target.
#[derive(Debug)]
pub struct LineBatches {
    target: usize,
    messages: mpsc::Sender<WriterMessage>,
    batch: Buffer,
    /// Size of a batch's buffer in bytes. Only the used part costs memory.
    buffer_bytes: usize,
    filled: usize,
    lines: u64,
    free_buffers: Vec<Buffer>,
    in_flight: usize,
    return_channel: (mpsc::Sender<Buffer>, mpsc::Receiver<Buffer>),
    counts: Arc<LineCounts>,
}

impl LineBatches {
    /// Returns whether there is room for a line; counts a dropped line if not.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.filled < BATCH_BYTES || self.hand_over() {
            return true;
        }
        self.drop_line();
        false
    }

    /// Returns the buffer of the batch, and the position at which the next line starts. To be called
    /// if there is room.
    #[inline]
    pub fn buffer(&mut self) -> (&mut [u8], usize) {
        (&mut self.batch, self.filled)
    }

    /// Adds the line that was written to the buffer, up to `end`.
    #[inline]
    pub fn end_line(&mut self, end: usize) {
        self.filled = end;
        self.lines += 1;
    }

    /// Counts a line that does not fit.
    #[cold]
    pub fn drop_line(&mut self) {
        self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a line that consists of `parts`. Returns `false` if the line was dropped.
    pub fn push_line(&mut self, parts: &[&[u8]]) -> bool {
        if !self.has_room() {
            return false;
        }
        let mut end = self.filled;
        for part in parts {
            let Some(target) = self.batch.get_mut(end..end + part.len()) else {
                self.drop_line();
                return false;
            };
            target.copy_from_slice(part);
            end += part.len();
        }
        self.end_line(end);
        true
    }

    /// Hands the batch over; must be called each tick. Returns `false` if the target is too far
    /// behind.
    pub fn hand_over(&mut self) -> bool {
        while let Ok(buffer) = self.return_channel.1.try_recv() {
            self.in_flight -= 1;
            if self.free_buffers.len() < FREE_BUFFERS_MAX {
                self.free_buffers.push(buffer);
            }
        }
        if self.lines == 0 {
            return true;
        }
        if self.in_flight == BATCHES_MAX {
            return false;
        }
        let Ok(permit) = self.messages.try_reserve() else {
            return false;
        };
        let next_buffer = self.free_buffers.pop().unwrap_or_else(|| new_buffer(self.buffer_bytes));
        let bytes = std::mem::replace(&mut self.batch, next_buffer);
        let (filled, lines) = (std::mem::take(&mut self.filled), std::mem::take(&mut self.lines));
        let (target, return_sender) = (self.target, self.return_channel.0.clone());
        permit.send(WriterMessage::Batch(LineBatch { target, bytes, filled, lines, return_sender }));
        self.in_flight += 1;
        true
    }
}

impl Drop for LineBatches {
    /// Hands over the last batch: the end of a drain cuts connections off, and they are logged after
    /// everything else.
    fn drop(&mut self) {
        // If the target is too far behind, these lines are lost.
        self.hand_over();
    }
}

fn new_buffer(bytes: usize) -> Buffer {
    vec![0; bytes].into()
}

#[cfg(test)]
mod tests;
