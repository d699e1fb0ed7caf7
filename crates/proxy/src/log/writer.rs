//! The log thread: takes batches of all cores for all targets, writes them, and keeps going when a
//! target does not. It decides nothing about requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as channel;
use std::time::Duration;

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use rt::tokio::sync::mpsc;

use super::output::{Output, describe};
use crate::plan::{LogPlan, LogTarget};

/// Memory for lines; it goes to and fro between a core and the log thread.
pub(super) type Buffer = Box<[u8]>;

/// Lines on their way, with the way back for the buffer.
#[derive(Debug)]
pub(super) struct Batch {
    /// Index of the target.
    pub(super) target: usize,
    pub(super) bytes: Buffer,
    /// How many of the bytes are lines.
    pub(super) filled: usize,
    pub(super) lines: u64,
    pub(super) back: mpsc::Sender<Buffer>,
}

/// What the log thread is told.
#[derive(Debug)]
pub(super) enum Message {
    Batch(Batch),
    /// Open the files and sockets again, and answer with the errors of those that could not be.
    Reopen(channel::Sender<Vec<io::Error>>),
}

/// What became of the lines of one target, in all cores.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) written: AtomicU64,
    /// Lost because as many batches as allowed were on their way.
    pub(super) behind: AtomicU64,
    /// Lost because the target refused them.
    pub(super) failed: AtomicU64,
    /// Lost because the target had refused others and was not tried again yet.
    pub(super) waiting: AtomicU64,
}

/// How long a target may hold up the opening of the logs.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Says something to whoever looks after the process.
pub(super) type Say = Box<dyn FnMut(&str) + Send>;

/// The log thread.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None`: there are no logs.
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    messages: mpsc::Sender<Message>,
    ended: channel::Receiver<()>,
}

impl Writer {
    pub(super) fn none() -> Self {
        Self { thread: None }
    }

    /// Starts the thread for targets that are open (or are to be tried again).
    pub(super) fn start(
        targets: Vec<Target>,
        messages: mpsc::Sender<Message>,
        waiting: mpsc::Receiver<Message>,
        say: Say,
    ) -> io::Result<Self> {
        let (end, ended) = channel::channel();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            run(targets, waiting, say);
            // Nobody may wait for the end any more.
            let _ = end.send(());
        })?;
        Ok(Self { thread: Some(Thread { messages, ended }) })
    }

    /// Opens files and sockets again, after they were renamed.
    ///
    /// # Errors
    /// Every one that could not be opened, which stays as it is; or the log thread did not answer in
    /// [`REOPEN_TIMEOUT`], because a target holds it up.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let late = || {
            let text = "the logs are not open again yet: a target takes no lines";
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let (reply, answer) = channel::channel();
        // When there is no room for it, others that say the same are on their way.
        thread.messages.try_send(Message::Reopen(reply)).map_err(|_| late())?;
        let errors = answer.recv_timeout(REOPEN_TIMEOUT).map_err(|_| late())?;
        let Some(first) = errors.first() else { return Ok(()) };
        let texts: Vec<String> =
            errors.iter().map(|error| format!("{error}; it was not opened again")).collect();
        Err(io::Error::new(first.kind(), texts.join("\n")))
    }

    /// Waits until all that was handed over is written, but not for longer than `patience`: a pipe
    /// that nobody reads would be waited for for ever. The senders must be gone. Whether all was.
    pub(crate) fn finish(self, patience: Duration) -> bool {
        let Some(Thread { messages, ended }) = self.thread else {
            return true;
        };
        drop(messages);
        // A panic of the thread has been printed already and closes the channel as well.
        !matches!(ended.recv_timeout(patience), Err(channel::RecvTimeoutError::Timeout))
    }
}

fn run(mut targets: Vec<Target>, mut waiting: mpsc::Receiver<Message>, say: Say) {
    let mut complaints = Complaints { say, next_ns: 0, kept: 0 };
    while let Some(message) = waiting.blocking_recv() {
        match message {
            Message::Batch(batch) => {
                if let Some(target) = targets.get_mut(batch.target) {
                    target.write(&batch, now_ns(), &mut complaints);
                }
                // The core may be gone; then so is the need for the buffer.
                let _ = batch.back.try_send(batch.bytes);
            }
            Message::Reopen(reply) => {
                let reopen = |target: &mut Target| target.reopen().err();
                // Nobody may wait for the answer any more.
                let _ = reply.send(targets.iter_mut().filter_map(reopen).collect());
            }
        }
    }
}

/// One target with its troubles.
#[derive(Debug)]
pub(super) struct Target {
    plan: LogTarget,
    /// `None`: it is to be opened when it is tried again.
    output: Option<Output>,
    /// Whether the last thing that got out was a part of a line.
    mid_line: bool,
    back_off: BackOff,
    counts: Arc<Counts>,
}

impl Target {
    /// Opens a target. A file that cannot be opened is an error; a syslog server that is not there
    /// may come.
    pub(super) fn open(log: &LogPlan, counts: Arc<Counts>) -> io::Result<Self> {
        let output = match (Output::open(&log.target), &log.target) {
            (Err(error), LogTarget::Stdout | LogTarget::File(_)) => return Err(error),
            (output, _) => output.ok(),
        };
        let plan = log.target.clone();
        Ok(Self { plan, output, mid_line: false, back_off: BackOff::default(), counts })
    }

    fn write(&mut self, batch: &Batch, now_ns: u64, complaints: &mut Complaints) {
        if !self.back_off.may_try(now_ns) {
            self.counts.waiting.fetch_add(batch.lines, Ordering::Relaxed);
            return;
        }
        let (written, result) = self.try_write(&batch.bytes[..batch.filled]);
        self.counts.written.fetch_add(written, Ordering::Relaxed);
        match result {
            Ok(()) => self.back_off.succeeded(),
            Err(error) => {
                let lost = batch.lines.saturating_sub(written);
                self.counts.failed.fetch_add(lost, Ordering::Relaxed);
                self.back_off.failed(now_ns);
                // A file that is full is the same file still; a socket's server may be another one.
                if !matches!(self.output, Some(Output::Lines(_))) {
                    self.output = None;
                }
                let target = describe(&self.plan);
                complaints.add(&format!("log {target}: {error}; lines are lost"), now_ns);
            }
        }
    }

    /// How many lines got out, and what ended it.
    fn try_write(&mut self, bytes: &[u8]) -> (u64, io::Result<()>) {
        let output = match &mut self.output {
            Some(output) => output,
            None => match Output::open(&self.plan) {
                Ok(output) => self.output.insert(output),
                Err(error) => return (0, Err(error)),
            },
        };
        if self.mid_line {
            // Half a line stands there; the next one does not continue it.
            let ended = output.write(b"\n");
            if ended.result.is_err() {
                return (0, ended.result);
            }
            self.mid_line = false;
        }
        let written = output.write(bytes);
        self.mid_line = written.mid_line;
        (written.lines, written.result)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if self.plan != LogTarget::Stdout {
            self.output = Some(Output::open(&self.plan)?);
            self.mid_line = false;
            self.back_off.succeeded();
        }
        Ok(())
    }
}

/// When a target that failed is tried again: after 100 ms, then twice as long each time, up to 10 s.
#[derive(Debug, Default)]
struct BackOff {
    until_ns: u64,
    wait_ns: u64,
}

const WAIT_FIRST_NS: u64 = 100 * MILLISECOND_NS;
const WAIT_MAX_NS: u64 = 10 * SECOND_NS;

impl BackOff {
    fn may_try(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    fn failed(&mut self, now_ns: u64) {
        self.wait_ns = (2 * self.wait_ns).clamp(WAIT_FIRST_NS, WAIT_MAX_NS);
        self.until_ns = now_ns + self.wait_ns;
    }

    fn succeeded(&mut self) {
        *self = Self::default();
    }
}

/// At most one line each ten seconds on stderr, about whichever target.
struct Complaints {
    say: Say,
    next_ns: u64,
    /// How many were not said since the last.
    kept: u64,
}

const COMPLAINT_EVERY_NS: u64 = 10 * SECOND_NS;

impl Complaints {
    fn add(&mut self, text: &str, now_ns: u64) {
        if now_ns < self.next_ns {
            self.kept += 1;
            return;
        }
        self.next_ns = now_ns + COMPLAINT_EVERY_NS;
        match std::mem::take(&mut self.kept) {
            0 => (self.say)(text),
            kept => (self.say)(&format!("{text} ({kept} more times since the last such line)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_tried_less_and_less_often_and_at_once_when_it_works() {
        let mut back_off = BackOff::default();
        assert!(back_off.may_try(0));
        let mut waits = Vec::new();
        for _ in 0..9 {
            back_off.failed(0);
            assert!(!back_off.may_try(back_off.wait_ns - 1) && back_off.may_try(back_off.wait_ns));
            waits.push(back_off.wait_ns / MILLISECOND_NS);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        back_off.succeeded();
        assert!(back_off.may_try(0));
    }

    #[test]
    fn complaints_are_rare_and_say_how_many_there_were() {
        let (said, heard) = channel::channel();
        let say = Box::new(move |text: &str| said.send(text.to_owned()).unwrap());
        let mut complaints = Complaints { say, next_ns: 0, kept: 0 };
        for at in 0..=20 {
            complaints.add("x", at * SECOND_NS);
        }
        let nine = "x (9 more times since the last such line)";
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["x", nine, nine]);
    }
}
