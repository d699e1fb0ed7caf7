//! The log thread. It takes batches of all cores for all targets, writes them, and continues when a
//! target fails. It does not affect the handling of requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as channel;
use std::time::Duration;

use record::units::format_plural;
use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use rt::tokio::sync::mpsc;

use super::output::LogOutput;
use super::rotation::{Rotation, RotationResult};
use super::{LogTarget, TargetPlan};

/// Memory for lines; it is passed back and forth between a core and the log thread.
pub(super) type Buffer = Box<[u8]>;

/// Lines in flight, with the channel that returns the buffer.
#[derive(Debug)]
pub(super) struct LineBatch {
    pub(super) target: usize,
    pub(super) bytes: Buffer,
    pub(super) filled: usize,
    pub(super) lines: u64,
    pub(super) return_sender: mpsc::Sender<Buffer>,
}

/// Message to the log thread.
#[derive(Debug)]
pub(super) enum WriterMessage {
    Batch(LineBatch),
    /// Reopens files and sockets, and returns the errors of those that could not be opened.
    Reopen(channel::Sender<Vec<io::Error>>),
}

/// Line counters of one target, for all cores.
#[derive(Debug, Default)]
pub(super) struct LineCounts {
    pub(super) written: AtomicU64,
    /// Lost because the maximum number of batches was in flight.
    pub(super) overflowed: AtomicU64,
    /// Lost because the target refused them.
    pub(super) failed: AtomicU64,
    /// Lost because the target had refused others and was not tried again yet.
    pub(super) backoff: AtomicU64,
    /// Files that were renamed because of their size.
    pub(super) rotated: AtomicU64,
    pub(super) rotations_failed: AtomicU64,
}

/// Maximum time for which a target may delay the reopening of the logs.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Callback that prints a message for the operator of the process.
pub(super) type PrintMessage = Box<dyn FnMut(&str) + Send>;

#[derive(Debug)]
pub struct LogWriter {
    thread: Option<WriterThread>,
}

#[derive(Debug)]
struct WriterThread {
    messages: mpsc::Sender<WriterMessage>,
    ended: channel::Receiver<()>,
}

impl LogWriter {
    pub(super) fn disabled() -> Self {
        Self { thread: None }
    }

    /// Starts the thread for targets that are open or to be retried.
    pub(super) fn start(
        targets: Vec<TargetWriter>,
        messages: mpsc::Sender<WriterMessage>,
        receiver: mpsc::Receiver<WriterMessage>,
        printer: PrintMessage,
    ) -> io::Result<Self> {
        let (end_sender, ended) = channel::channel();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            run_writer(targets, receiver, printer);
            // The receiver may be gone.
            let _ = end_sender.send(());
        })?;
        Ok(Self { thread: Some(WriterThread { messages, ended }) })
    }

    /// Reopens files and sockets, after they were renamed.
    ///
    /// # Errors
    /// Returns the errors of all targets that could not be opened, which stay as they are. Also
    /// fails if the log thread did not respond within 5 s, because a target delays
    /// it.
    pub fn reopen(&self) -> io::Result<()> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let timeout_error = || {
            let text = "timeout while reopening the logs: a target accepts no lines";
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let (reply, receiver) = channel::channel();
        // If the channel is full, other messages of this kind are in flight.
        thread.messages.try_send(WriterMessage::Reopen(reply)).map_err(|_| timeout_error())?;
        let errors = receiver.recv_timeout(REOPEN_TIMEOUT).map_err(|_| timeout_error())?;
        let Some(first_error) = errors.first() else { return Ok(()) };
        let texts: Vec<String> = errors.iter().map(|error| format!("{error}; not reopened")).collect();
        Err(io::Error::new(first_error.kind(), texts.join("\n")))
    }

    /// Waits until everything that was handed over is written, but not for longer than `timeout`,
    /// because a pipe without a reader would block forever. All senders must have been dropped.
    /// Returns whether everything was written.
    pub fn finish(self, timeout: Duration) -> bool {
        let Some(WriterThread { messages, ended }) = self.thread else {
            return true;
        };
        drop(messages);
        // A panic of the thread has already been printed; it closes the channel as well.
        !matches!(ended.recv_timeout(timeout), Err(channel::RecvTimeoutError::Timeout))
    }
}

fn run_writer(
    mut targets: Vec<TargetWriter>,
    mut receiver: mpsc::Receiver<WriterMessage>,
    printer: PrintMessage,
) {
    let mut reporter = ErrorReporter { print: printer, next_ns: 0, suppressed: 0 };
    while let Some(message) = receiver.blocking_recv() {
        match message {
            WriterMessage::Batch(batch) => {
                if let Some(target) = targets.get_mut(batch.target) {
                    target.write(&batch, now_ns(), &mut reporter);
                }
                // The core may be gone, and then it needs no buffer.
                let _ = batch.return_sender.try_send(batch.bytes);
            }
            WriterMessage::Reopen(reply) => {
                let reopen = |target: &mut TargetWriter| target.reopen().err();
                // The receiver may be gone.
                let _ = reply.send(targets.iter_mut().filter_map(reopen).collect());
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct TargetWriter {
    target: LogTarget,
    rotation: Option<Rotation>,
    /// Backoff after a file that could not be renamed; it grows meanwhile.
    rotation_back_off: RetryBackoff,
    /// `None` if it must be opened at the next try.
    output: Option<LogOutput>,
    /// True if the last write ended within a line.
    is_mid_line: bool,
    back_off: RetryBackoff,
    counts: Arc<LineCounts>,
}

impl TargetWriter {
    /// Opens a target. A file that cannot be opened is an error. A missing syslog server and a FIFO without a
    /// reader are not, because they may come up later.
    pub(super) fn open(
        plan: &TargetPlan,
        counts: Arc<LineCounts>,
        printer: &mut PrintMessage,
    ) -> io::Result<Self> {
        let target = &plan.target;
        let output = match (LogOutput::open(target), target) {
            (Err(error), LogTarget::File(_)) if error.kind() == io::ErrorKind::BrokenPipe => {
                printer(&format!("{error}; lines are lost until then"));
                None
            }
            (Err(error), LogTarget::Stdout | LogTarget::File(_)) => return Err(error),
            (output, _) => output.ok(),
        };
        Ok(Self {
            target: target.clone(),
            rotation: plan.rotation,
            rotation_back_off: RetryBackoff::default(),
            output,
            is_mid_line: false,
            back_off: RetryBackoff::default(),
            counts,
        })
    }

    fn write(&mut self, batch: &LineBatch, now_ns: u64, reporter: &mut ErrorReporter) {
        if !self.back_off.is_due(now_ns) {
            self.counts.backoff.fetch_add(batch.lines, Ordering::Relaxed);
            return;
        }
        let (written, result) = self.try_write(&batch.bytes[..batch.filled]);
        self.counts.written.fetch_add(written, Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.back_off.succeeded();
                self.rotate_if_due(now_ns, reporter);
            }
            Err(error) => {
                let lines_lost = batch.lines.saturating_sub(written);
                self.counts.failed.fetch_add(lines_lost, Ordering::Relaxed);
                self.back_off.failed(now_ns);
                // A full file stays the same file, and a FIFO may get a reader again; a socket's server may
                // have been replaced.
                if !matches!(self.output, Some(LogOutput::Stream(_) | LogOutput::Fifo(_))) {
                    self.output = None;
                }
                // An error of opening names the target already.
                let name = format!("log {}: ", self.target);
                let text = error.to_string();
                let text = text.strip_prefix(&name).unwrap_or(&text);
                reporter.report(&format!("{name}{text}; lines are lost"), now_ns);
            }
        }
    }

    /// Renames a file that has reached its size, and opens the next one. A file that cannot be renamed grows on.
    fn rotate_if_due(&mut self, now_ns: u64, reporter: &mut ErrorReporter) {
        let (Some(rotation), Some(LogOutput::Stream(file))) = (&self.rotation, &self.output) else { return };
        let LogTarget::File(path) = &self.target else { return };
        if !rotation.is_due(file) || !self.rotation_back_off.is_due(now_ns) {
            return;
        }
        match rotation.rotate(file, path) {
            Ok(RotationResult::Busy) => {}
            Ok(RotationResult::Moved { by_us }) => {
                self.counts.rotated.fetch_add(by_us.into(), Ordering::Relaxed);
                self.rotation_back_off.succeeded();
                // A failure is that of the next write, which tries again.
                self.output = LogOutput::open(&self.target).ok();
            }
            Err(error) => {
                self.counts.rotations_failed.fetch_add(1, Ordering::Relaxed);
                self.rotation_back_off.failed(now_ns);
                reporter.report(&format!("log {}: not rotated, it grows: {error}", self.target), now_ns);
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> (u64, io::Result<()>) {
        let output = match &mut self.output {
            Some(output) => output,
            None => match LogOutput::open(&self.target) {
                Ok(output) => self.output.insert(output),
                Err(error) => return (0, Err(error)),
            },
        };
        if self.is_mid_line {
            // Ends the incomplete line, so that the next one does not continue it.
            let line_end = output.write(b"\n");
            if line_end.result.is_err() {
                return (0, line_end.result);
            }
            self.is_mid_line = false;
        }
        let written = output.write(bytes);
        self.is_mid_line = written.is_mid_line;
        (written.lines, written.result)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if self.target != LogTarget::Stdout {
            self.output = Some(LogOutput::open(&self.target)?);
            self.is_mid_line = false;
            self.back_off.succeeded();
        }
        Ok(())
    }
}

/// Backoff after a failure: the target is retried after 100 ms, then twice as long each time, up to
/// 10 s.
#[derive(Debug, Default)]
struct RetryBackoff {
    retry_at_ns: u64,
    wait_ns: u64,
}

const BACKOFF_MIN_NS: u64 = 100 * MILLISECOND_NS;
const BACKOFF_MAX_NS: u64 = 10 * SECOND_NS;

impl RetryBackoff {
    fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.retry_at_ns
    }

    fn failed(&mut self, now_ns: u64) {
        self.wait_ns = (2 * self.wait_ns).clamp(BACKOFF_MIN_NS, BACKOFF_MAX_NS);
        self.retry_at_ns = now_ns + self.wait_ns;
    }

    fn succeeded(&mut self) {
        *self = Self::default();
    }
}

/// Rate-limited error messages: at most one line every ten seconds on stderr, for all targets
/// together.
struct ErrorReporter {
    print: PrintMessage,
    next_ns: u64,
    /// Number of messages suppressed since the last one.
    suppressed: u64,
}

const REPORT_INTERVAL_NS: u64 = 10 * SECOND_NS;

impl ErrorReporter {
    fn report(&mut self, text: &str, now_ns: u64) {
        if now_ns < self.next_ns {
            self.suppressed += 1;
            return;
        }
        self.next_ns = now_ns + REPORT_INTERVAL_NS;
        match std::mem::take(&mut self.suppressed) {
            0 => (self.print)(text),
            suppressed => {
                (self.print)(&format!("{text} (repeated {})", format_plural(suppressed, "more time")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_tried_less_and_less_often_and_at_once_when_it_works() {
        let mut back_off = RetryBackoff::default();
        assert!(back_off.is_due(0));
        let mut waits = Vec::new();
        for _ in 0..9 {
            back_off.failed(0);
            assert!(!back_off.is_due(back_off.wait_ns - 1) && back_off.is_due(back_off.wait_ns));
            waits.push(back_off.wait_ns / MILLISECOND_NS);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        back_off.succeeded();
        assert!(back_off.is_due(0));
    }

    #[test]
    fn reports_are_rare_and_count_the_suppressed_ones() {
        let (message_sender, message_receiver) = channel::channel();
        let printer = Box::new(move |text: &str| message_sender.send(text.to_owned()).unwrap());
        let mut reporter = ErrorReporter { print: printer, next_ns: 0, suppressed: 0 };
        for second in 0..=20 {
            reporter.report("x", second * SECOND_NS);
        }
        let report_of_nine = "x (repeated 9 more times)";
        assert_eq!(message_receiver.try_iter().collect::<Vec<_>>(), ["x", report_of_nine, report_of_nine]);
    }
}
