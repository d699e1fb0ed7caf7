//! Access logs: one line per outcome, in one of three formats. One thread writes the lines of all
//! cores to all targets.
//!
//! A core collects lines in one batch per target. It hands the batch over when it is full or a tick
//! old. It never waits: when a target is slower than the requests and the maximum number of batches
//! is in flight, it drops and counts lines. Buffers come back and are reused. Nothing here affects
//! the handling of requests. The proxy's own messages are not logged here.

mod combined;
mod date;
mod escape;
#[cfg(test)]
pub(crate) mod fixtures;
mod haproxy;
mod json;
mod line;
mod names;
mod output;
mod secret;
mod sink;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt::tokio::sync::mpsc;

pub(crate) use date::{WallClock, http_date};
pub(crate) use json::FIELDS;
pub(crate) use line::{LoadCounts, Timers};
pub(crate) use names::LogNames;
pub(crate) use writer::LogWriter;

use crate::outcome::{EndReason, Outcome};
use crate::plan::{LogFormat, LogPlan, LogTarget};
use line::{LINE_BYTES_MAX, LogEntry, SecondCache};
use sink::LineBuffer;
use writer::{Buffer, LineBatch, LineCounts, PrintMessage, TargetWriter, WriterMessage};

/// Size in bytes at which a batch is handed over; it can be longer by one line.
const BATCH_BYTES: usize = 32 * 1024;
/// Maximum number of batches in flight from a core to a target.
const BATCHES_MAX: usize = 16;
/// Number of buffers that a core keeps for the next batches of a target.
const FREE_BUFFERS_MAX: usize = 2;
/// Size of a batch's buffer in bytes. Only the used part costs memory.
const BUFFER_BYTES: usize = BATCH_BYTES + LINE_BYTES_MAX;
/// Channel capacity for messages to the log thread that are not batches.
const REOPENS_MAX: usize = 4;

/// Facility local0, severity informational (RFC 5424 §6.2.1).
const SYSLOG_PRIORITY: &[u8; 5] = b"<134>";

/// State of the logs shared by all cores: the plan and the line counters of each log, and the
/// channel to the log thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogSender {
    logs: Arc<[(LogPlan, Arc<LineCounts>)]>,
    messages: mpsc::Sender<WriterMessage>,
}

/// Line counters of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetCounts {
    /// The target, as in the config.
    pub(crate) target: String,
    /// Lines that were written.
    pub(crate) written: u64,
    /// Lines that were dropped because the maximum number of batches was in flight.
    pub(crate) overflowed: u64,
    /// Lines that the target refused.
    pub(crate) failed: u64,
    /// Lines that were not tried because the target had just refused others.
    pub(crate) backoff: u64,
}

/// Opens all targets and starts the log thread for `cores` cores. Must be called before privileges
/// are dropped.
///
/// # Errors
/// Returns the errors of all files that could not be opened, or the error of starting the thread.
pub(crate) fn start(logs: &[LogPlan], cores: usize) -> io::Result<(LogSender, LogWriter)> {
    start_with_printer(logs, cores, Box::new(|text| eprintln!("weir: {text}")))
}

fn start_with_printer(
    logs: &[LogPlan],
    cores: usize,
    printer: PrintMessage,
) -> io::Result<(LogSender, LogWriter)> {
    let (messages, receiver) = mpsc::channel(BATCHES_MAX * cores * logs.len() + REOPENS_MAX);
    let (mut targets, mut shared, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for log in logs {
        let counts = Arc::<LineCounts>::default();
        match TargetWriter::open(log, Arc::clone(&counts)) {
            Ok(target) => targets.push(target),
            Err(error) => problems.push(error),
        }
        shared.push((log.clone(), counts));
    }
    if let Some(first_problem) = problems.first() {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(io::Error::new(first_problem.kind(), texts.join("\n")));
    }
    let writer = if targets.is_empty() {
        LogWriter::disabled()
    } else {
        LogWriter::start(targets, messages.clone(), receiver, printer)?
    };
    Ok((LogSender { logs: shared.into(), messages }, writer))
}

/// Read access to the line counters. Unlike a [`Sender`], it does not keep the log thread waiting
/// for more messages.
#[derive(Clone, Debug)]
pub(crate) struct LineCounters {
    logs: Arc<[(LogPlan, Arc<LineCounts>)]>,
}

impl LogSender {
    /// Returns a handle to the line counters.
    pub(crate) fn line_counters(&self) -> LineCounters {
        LineCounters { logs: Arc::clone(&self.logs) }
    }
}

impl LineCounters {
    /// Returns whether it counts the same logs as `other`.
    pub(crate) fn has_same_logs(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.logs, &other.logs)
    }

    /// Returns the line counters so far, by target.
    pub(crate) fn counts(&self) -> Vec<TargetCounts> {
        let counts = |(log, counts): &(LogPlan, Arc<LineCounts>)| TargetCounts {
            target: output::describe(&log.target),
            written: counts.written.load(Ordering::Relaxed),
            overflowed: counts.overflowed.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            backoff: counts.backoff.load(Ordering::Relaxed),
        };
        self.logs.iter().map(counts).collect()
    }
}

/// One core's side of the logs.
#[derive(Debug)]
pub(crate) struct CoreLog {
    state: RefCell<CoreLogState>,
    messages: mpsc::Sender<WriterMessage>,
    wants_fields: bool,
    line_counters: LineCounters,
}

#[derive(Debug)]
struct CoreLogState {
    targets: Vec<CoreTarget>,
    seconds: SecondCache,
    rng: fastrand::Rng,
}

/// One core's channel to one target.
#[derive(Debug)]
struct CoreTarget {
    target: usize,
    plan: LogPlan,
    /// Text before and after the time at the start of a line.
    prefix: LinePrefix,
    batch: Buffer,
    /// Number of bytes used in the batch.
    filled: usize,
    lines: u64,
    dropped: u64,
    free_buffers: Vec<Buffer>,
    /// Number of batches in flight.
    in_flight: usize,
    return_channel: (mpsc::Sender<Buffer>, mpsc::Receiver<Buffer>),
    counts: Arc<LineCounts>,
}

/// Prefix of a line, before the format's own text.
#[derive(Debug)]
enum LinePrefix {
    None,
    /// `weir[123]: `
    Process(Box<[u8]>),
    /// `<134>1 `, the time, ` host weir 123 access - ` (RFC 5424 §6).
    Rfc5424(Box<[u8]>),
    /// `<134>`, the time, ` weir[123]: `, as syslog(3) sends it.
    Local(Box<[u8]>),
}

impl CoreLog {
    /// Creates the side of core `core`, for all targets of `sender`.
    pub(crate) fn new(sender: LogSender, core: usize) -> Self {
        let core_target = |(target, (plan, counts)): (usize, &(LogPlan, Arc<LineCounts>))| CoreTarget {
            target,
            plan: plan.clone(),
            prefix: LinePrefix::for_log(plan),
            batch: new_buffer(),
            filled: 0,
            lines: 0,
            dropped: 0,
            free_buffers: Vec::with_capacity(FREE_BUFFERS_MAX),
            in_flight: 0,
            return_channel: mpsc::channel(BATCHES_MAX),
            counts: Arc::clone(counts),
        };
        let core_targets: Vec<CoreTarget> = sender.logs.iter().enumerate().map(core_target).collect();
        let wants_fields =
            core_targets.iter().any(|core_target| core_target.plan.format != LogFormat::Haproxy);
        let rng = fastrand::Rng::with_seed(fastrand::u64(..) ^ core as u64);
        let state = RefCell::new(CoreLogState { targets: core_targets, seconds: SecondCache::new(), rng });
        let line_counters = sender.line_counters();
        Self { state, messages: sender.messages, wants_fields, line_counters }
    }

    /// Returns whether host, referrer, user agent and request id must be captured at all.
    #[inline]
    pub(crate) fn wants_fields(&self) -> bool {
        self.wants_fields
    }

    /// Returns the line counters of all cores.
    pub(crate) fn line_counters(&self) -> &LineCounters {
        &self.line_counters
    }

    /// Adds a line for `outcome` to each log that accepts it. `names` are those of the plan under
    /// which the request ran.
    #[inline]
    pub(crate) fn record(
        &self,
        outcome: &Outcome<'_>,
        names: &LogNames,
        clock: WallClock,
        load: &LoadCounts,
    ) {
        let state = &mut *self.state.borrow_mut();
        if state.targets.is_empty() {
            return;
        }
        let failed = is_failure(outcome);
        let entry = state.seconds.entry(outcome, names, load, clock);
        for core_target in &mut state.targets {
            if core_target.wants(failed, &mut state.rng) && core_target.has_room(&self.messages) {
                core_target.push(&entry);
            }
        }
    }

    /// Hands over the batches; must be called each tick. Returns `false` if a target is too far
    /// behind.
    pub(crate) fn hand_over(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        let mut all_handed_over = true;
        for core_target in &mut state.targets {
            all_handed_over &= core_target.hand_over(&self.messages);
        }
        all_handed_over
    }

    /// Returns the number of lines that this core dropped, for all targets.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.state.borrow().targets.iter().map(|core_target| core_target.dropped).sum()
    }
}

impl Drop for CoreLog {
    /// Hands over the last batches: the end of a drain cuts connections off, and they are logged
    /// after everything else.
    fn drop(&mut self) {
        // If a target is too far behind, these lines are lost, and counted.
        self.hand_over();
    }
}

/// Returns whether the request failed. `only-errors` and `sample` always log such requests.
fn is_failure(outcome: &Outcome<'_>) -> bool {
    outcome.status >= 500 || !matches!(outcome.end, EndReason::Done | EndReason::LocalResponse)
}

impl CoreTarget {
    #[inline]
    fn wants(&self, failed: bool, rng: &mut fastrand::Rng) -> bool {
        failed || (!self.plan.only_errors && (self.plan.sample >= 1.0 || rng.f64() < self.plan.sample))
    }

    /// Returns whether there is room for a line; counts a dropped line if not.
    #[inline]
    fn has_room(&mut self, messages: &mpsc::Sender<WriterMessage>) -> bool {
        if self.filled < BATCH_BYTES || self.hand_over(messages) {
            return true;
        }
        self.drop_line();
        false
    }

    fn hand_over(&mut self, messages: &mpsc::Sender<WriterMessage>) -> bool {
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
        let Ok(permit) = messages.try_reserve() else {
            return false;
        };
        let next_buffer = self.free_buffers.pop().unwrap_or_else(new_buffer);
        let bytes = std::mem::replace(&mut self.batch, next_buffer);
        let (filled, lines) = (std::mem::take(&mut self.filled), std::mem::take(&mut self.lines));
        let (target, return_sender) = (self.target, self.return_channel.0.clone());
        permit.send(WriterMessage::Batch(LineBatch { target, bytes, filled, lines, return_sender }));
        self.in_flight += 1;
        true
    }

    #[inline]
    fn push(&mut self, entry: &LogEntry<'_>) {
        let out = &mut LineBuffer::new(&mut self.batch, self.filled);
        self.prefix.push(out, entry);
        match self.plan.format {
            LogFormat::Json => json::push_line(out, entry),
            LogFormat::Combined => combined::push_line(out, entry),
            LogFormat::Haproxy => haproxy::push_line(out, entry),
        }
        if out.is_full() {
            // Only names in the config that are thousands of bytes long can cause that.
            self.drop_line();
            return;
        }
        self.filled = out.len();
        self.lines += 1;
    }

    #[cold]
    fn drop_line(&mut self) {
        self.dropped += 1;
        self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
    }
}

fn new_buffer() -> Buffer {
    vec![0; BUFFER_BYTES].into()
}

impl LinePrefix {
    fn for_log(log: &LogPlan) -> Self {
        let mut text = Vec::new();
        let process = std::process::id();
        // Writing to a Vec cannot fail.
        let _ = match (&log.target, log.format) {
            (LogTarget::SyslogUdp(_), _) => {
                write!(text, " {} weir {process} access - ", host_name())
            }
            (LogTarget::SyslogUnix(_), _) => write!(text, " weir[{process}]: "),
            (_, LogFormat::Haproxy) => write!(text, "weir[{process}]: "),
            _ => Ok(()),
        };
        let text = text.into_boxed_slice();
        match (&log.target, log.format) {
            (LogTarget::SyslogUdp(_), _) => Self::Rfc5424(text),
            (LogTarget::SyslogUnix(_), _) => Self::Local(text),
            (_, LogFormat::Haproxy) => Self::Process(text),
            _ => Self::None,
        }
    }

    #[inline]
    fn push(&self, out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
        match self {
            Self::None => {}
            Self::Process(text) => out.slice(text),
            Self::Rfc5424(text) => {
                out.fixed(SYSLOG_PRIORITY);
                out.fixed(b"1 ");
                out.fixed(entry.start.iso());
                out.fixed(&date::milliseconds(entry.start_wall_ns));
                out.byte(b'Z');
                out.slice(text);
            }
            Self::Local(text) => {
                out.fixed(SYSLOG_PRIORITY);
                out.fixed(entry.start.syslog());
                out.slice(text);
            }
        }
    }
}

/// Returns this machine's name in the form of RFC 5424 §6.2.4; `-` if there is none.
fn host_name() -> String {
    let name = rt::machine::host_name();
    let name: String = name.chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}
