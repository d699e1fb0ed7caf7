//! The logs of requests: a line for each outcome, in one of three formats, written by one thread for
//! all cores and all targets.
//!
//! A core gathers lines in a batch a target and hands the batch over when it is full or a tick old.
//! It never waits: when a target is slower than the requests and as many batches as allowed are on
//! their way, lines are dropped and counted. Buffers come back and are used again. Nothing in here
//! decides anything about a request, and it is not where the proxy says how it is itself.

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

pub(crate) use date::{Wall, http_date};
pub(crate) use json::FIELDS;
pub(crate) use line::{Load, Timers};
pub(crate) use names::Names;
pub(crate) use writer::Writer;

use crate::outcome::{End, Outcome};
use crate::plan::{LogFormat, LogPlan, LogTarget};
use line::{Entry, LINE_BYTES_MAX, Seconds};
use sink::Sink;
use writer::{Batch, Buffer, Counts, Message, Say, Target};

/// A batch is handed over when it has so many bytes; it can be longer by one line.
const BATCH_BYTES: usize = 32 * 1024;
/// How many batches a core may have on their way to a target.
const BATCHES_MAX: usize = 16;
/// How many buffers a core keeps for the next batches of a target.
const FREE_MAX: usize = 2;
/// Bytes of a batch's buffer: of what it holds, only the part that is used costs memory.
const BUFFER_BYTES: usize = BATCH_BYTES + LINE_BYTES_MAX;
/// Room for messages to the log thread that are no batches.
const REOPENS_MAX: usize = 4;

/// Facility local0, severity informational (RFC 5424 §6.2.1).
const SYSLOG_PRIORITY: &[u8; 5] = b"<134>";

/// What the cores share of the logs: the plan of each, what became of its lines, and the way to the
/// log thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    logs: Arc<[(LogPlan, Arc<Counts>)]>,
    messages: mpsc::Sender<Message>,
}

/// What became of the lines of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetCounts {
    /// The target, as the config has it.
    pub(crate) target: String,
    /// Lines that got out.
    pub(crate) written: u64,
    /// Lines that were dropped because as many batches as allowed were on their way.
    pub(crate) behind: u64,
    /// Lines that the target refused.
    pub(crate) failed: u64,
    /// Lines that were not tried because the target had just refused others.
    pub(crate) waiting: u64,
}

/// Opens all targets and starts the log thread for `cores` cores. To be called before privileges are
/// dropped.
///
/// # Errors
/// Every file that could not be opened, or there is no thread to be had.
pub(crate) fn start(logs: &[LogPlan], cores: usize) -> io::Result<(Sender, Writer)> {
    start_saying(logs, cores, Box::new(|text| eprintln!("weir: {text}")))
}

fn start_saying(logs: &[LogPlan], cores: usize, say: Say) -> io::Result<(Sender, Writer)> {
    let (messages, waiting) = mpsc::channel(BATCHES_MAX * cores * logs.len() + REOPENS_MAX);
    let (mut targets, mut shared, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for log in logs {
        let counts = Arc::<Counts>::default();
        match Target::open(log, Arc::clone(&counts)) {
            Ok(target) => targets.push(target),
            Err(error) => problems.push(error),
        }
        shared.push((log.clone(), counts));
    }
    if let Some(first) = problems.first() {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(io::Error::new(first.kind(), texts.join("\n")));
    }
    let writer = if targets.is_empty() {
        Writer::none()
    } else {
        Writer::start(targets, messages.clone(), waiting, say)?
    };
    Ok((Sender { logs: shared.into(), messages }, writer))
}

/// What became of the lines, for whoever only wants to know that: unlike a [`Sender`], it does not
/// keep the log thread waiting for more.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    logs: Arc<[(LogPlan, Arc<Counts>)]>,
}

impl Sender {
    /// A view of what becomes of the lines.
    pub(crate) fn tally(&self) -> Tally {
        Tally { logs: Arc::clone(&self.logs) }
    }
}

impl Tally {
    /// Whether it is about the same logs as `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.logs, &other.logs)
    }

    /// What became of the lines so far, by target.
    pub(crate) fn counts(&self) -> Vec<TargetCounts> {
        let counts = |(log, counts): &(LogPlan, Arc<Counts>)| TargetCounts {
            target: output::describe(&log.target),
            written: counts.written.load(Ordering::Relaxed),
            behind: counts.behind.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            waiting: counts.waiting.load(Ordering::Relaxed),
        };
        self.logs.iter().map(counts).collect()
    }
}

/// One core's end of the logs.
#[derive(Debug)]
pub(crate) struct CoreLog {
    inner: RefCell<Inner>,
    messages: mpsc::Sender<Message>,
    wants_fields: bool,
    tally: Tally,
}

#[derive(Debug)]
struct Inner {
    lanes: Vec<Lane>,
    seconds: Seconds,
    chance: fastrand::Rng,
}

/// One core's way to one target.
#[derive(Debug)]
struct Lane {
    target: usize,
    plan: LogPlan,
    /// What stands before and after the time at the start of a line.
    prefix: Prefix,
    batch: Buffer,
    /// How far the batch is filled.
    filled: usize,
    lines: u64,
    dropped: u64,
    free: Vec<Buffer>,
    /// Batches on their way.
    away: usize,
    back: (mpsc::Sender<Buffer>, mpsc::Receiver<Buffer>),
    counts: Arc<Counts>,
}

/// What stands at the start of a line, before the format's own.
#[derive(Debug)]
enum Prefix {
    None,
    /// `weir[123]: `
    Process(Box<[u8]>),
    /// `<134>1 `, the time, ` host weir 123 access - ` (RFC 5424 §6).
    Rfc5424(Box<[u8]>),
    /// `<134>`, the time, ` weir[123]: `, as syslog(3) sends it.
    Local(Box<[u8]>),
}

impl CoreLog {
    /// The end of core `core`, for all targets of `sender`.
    pub(crate) fn new(sender: Sender, core: usize) -> Self {
        let lane = |(target, (plan, counts)): (usize, &(LogPlan, Arc<Counts>))| Lane {
            target,
            plan: plan.clone(),
            prefix: Prefix::of(plan),
            batch: buffer(),
            filled: 0,
            lines: 0,
            dropped: 0,
            free: Vec::with_capacity(FREE_MAX),
            away: 0,
            back: mpsc::channel(BATCHES_MAX),
            counts: Arc::clone(counts),
        };
        let lanes: Vec<Lane> = sender.logs.iter().enumerate().map(lane).collect();
        let wants_fields = lanes.iter().any(|lane| lane.plan.format != LogFormat::Haproxy);
        let chance = fastrand::Rng::with_seed(fastrand::u64(..) ^ core as u64);
        let inner = RefCell::new(Inner { lanes, seconds: Seconds::new(), chance });
        let tally = sender.tally();
        Self { inner, messages: sender.messages, wants_fields, tally }
    }

    /// Whether host, referrer, user agent and request id have to be captured at all.
    #[inline]
    pub(crate) fn wants_fields(&self) -> bool {
        self.wants_fields
    }

    /// What becomes of the lines of all cores.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Adds a line for `outcome` to each log that wants it. `names` are those of the plan that the
    /// request ran under.
    #[inline]
    pub(crate) fn record(&self, outcome: &Outcome<'_>, names: &Names, wall: Wall, load: &Load) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.lanes.is_empty() {
            return;
        }
        let failed = is_failed(outcome);
        let entry = inner.seconds.entry(outcome, names, load, wall);
        for lane in &mut inner.lanes {
            if lane.wants(failed, &mut inner.chance) && lane.has_room(&self.messages) {
                lane.push(&entry);
            }
        }
    }

    /// Hands over what there is; to be called each tick. `false` when a target is too far behind.
    pub(crate) fn hand_over(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        let mut handed_over = true;
        for lane in &mut inner.lanes {
            handed_over &= lane.hand_over(&self.messages);
        }
        handed_over
    }

    /// Lines that this core dropped, for all targets.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.inner.borrow().lanes.iter().map(|lane| lane.dropped).sum()
    }
}

impl Drop for CoreLog {
    /// The connections that the end of a drain cuts off are logged after everything else.
    fn drop(&mut self) {
        // What a target is too far behind for is lost, and counted.
        self.hand_over();
    }
}

/// Whether it went wrong: what `only-errors` and `sample` always log.
fn is_failed(outcome: &Outcome<'_>) -> bool {
    outcome.status >= 500 || !matches!(outcome.end, End::Done | End::Answered)
}

impl Lane {
    #[inline]
    fn wants(&self, failed: bool, chance: &mut fastrand::Rng) -> bool {
        failed
            || (!self.plan.only_errors
                && (self.plan.sample >= 1.0 || chance.f64() < self.plan.sample))
    }

    /// Whether a line may be added; counts the one that may not.
    #[inline]
    fn has_room(&mut self, messages: &mpsc::Sender<Message>) -> bool {
        if self.filled < BATCH_BYTES || self.hand_over(messages) {
            return true;
        }
        self.drop_line();
        false
    }

    fn hand_over(&mut self, messages: &mpsc::Sender<Message>) -> bool {
        while let Ok(buffer) = self.back.1.try_recv() {
            self.away -= 1;
            if self.free.len() < FREE_MAX {
                self.free.push(buffer);
            }
        }
        if self.lines == 0 {
            return true;
        }
        if self.away == BATCHES_MAX {
            return false;
        }
        let Ok(place) = messages.try_reserve() else {
            return false;
        };
        let next = self.free.pop().unwrap_or_else(buffer);
        let bytes = std::mem::replace(&mut self.batch, next);
        let (filled, lines) = (std::mem::take(&mut self.filled), std::mem::take(&mut self.lines));
        let (target, back) = (self.target, self.back.0.clone());
        place.send(Message::Batch(Batch { target, bytes, filled, lines, back }));
        self.away += 1;
        true
    }

    #[inline]
    fn push(&mut self, entry: &Entry<'_>) {
        let out = &mut Sink::new(&mut self.batch, self.filled);
        self.prefix.push(out, entry);
        match self.plan.format {
            LogFormat::Json => json::push(out, entry),
            LogFormat::Combined => combined::push(out, entry),
            LogFormat::Haproxy => haproxy::push(out, entry),
        }
        if out.is_full() {
            // Only names in the config that are thousands of bytes long can do that.
            self.drop_line();
            return;
        }
        self.filled = out.filled();
        self.lines += 1;
    }

    #[cold]
    fn drop_line(&mut self) {
        self.dropped += 1;
        self.counts.behind.fetch_add(1, Ordering::Relaxed);
    }
}

fn buffer() -> Buffer {
    vec![0; BUFFER_BYTES].into()
}

impl Prefix {
    fn of(log: &LogPlan) -> Self {
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
    fn push(&self, out: &mut Sink<'_>, entry: &Entry<'_>) {
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

/// This machine's name as RFC 5424 §6.2.4 allows it; `-` when there is none.
fn host_name() -> String {
    let name = rt::machine::host_name();
    let name: String = name.chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}
