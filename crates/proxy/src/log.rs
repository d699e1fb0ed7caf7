//! Access logs: one line per outcome, in one of three formats or that of a text with values. `server_shell` writes the lines of all
//! cores to all targets.
//!
//! A core never waits: it drops and counts lines when a target is slower than the requests. Nothing
//! here affects the handling of requests. The proxy's own messages are not logged here.

mod combined;
mod escape;
#[cfg(test)]
pub(crate) mod fixtures;
mod haproxy;
mod json;
mod line;
mod names;
mod secret;
mod sink;
mod template;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use server_shell::date::milliseconds;
use server_shell::log::{LineBatches, TargetPlan};

pub use json::FIELDS;
pub(crate) use line::{LoadCounts, Timers};
pub(crate) use names::LogNames;
pub(crate) use secret::redact as redact_url;
pub(crate) use server_shell::date::{WallClock, http_date};
pub use server_shell::log::{LineCounters, LogTarget, LogWriter, TargetCounts};
#[cfg(any(test, fuzzing))]
pub(crate) use template::line_of_values;
pub(crate) use template::{CapturedValue, append_captured};

use crate::outcome::Outcome;
use crate::plan::{LogFormat, LogPlan};
use line::{LINE_BYTES_MAX, LogEntry, SecondCache};
use sink::LineBuffer;

/// Facility local0, severity informational (RFC 5424 §6.2.1).
const SYSLOG_PRIORITY: &[u8; 5] = b"<134>";

/// Logs of a plan, and the sender of their lines, for all cores. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogSender {
    plans: Arc<[LogPlan]>,
    lines: server_shell::log::LogSender,
}

/// Opens all targets and starts the log thread for `cores` cores. Must be called before privileges
/// are dropped.
///
/// # Errors
/// Returns the errors of all files that could not be opened, or the error of starting the thread.
pub fn start(logs: &[LogPlan], cores: usize) -> io::Result<(LogSender, LogWriter)> {
    let target = |log: &LogPlan| TargetPlan { target: log.target.clone(), rotation: log.rotation };
    let targets: Vec<TargetPlan> = logs.iter().map(target).collect();
    let (lines, writer) = server_shell::log::start(&targets, cores)?;
    Ok((LogSender { plans: logs.into(), lines }, writer))
}

impl LogSender {
    pub(crate) fn line_counters(&self) -> LineCounters {
        self.lines.line_counters()
    }
}

/// One core's side of the logs.
#[derive(Debug)]
pub(crate) struct CoreLog {
    state: RefCell<CoreLogState>,
    wants_fields: bool,
    /// Values that are captured when a head arrives.
    captured: Rc<[CapturedValue]>,
    line_counters: LineCounters,
}

#[derive(Debug)]
struct CoreLogState {
    targets: Vec<CoreTarget>,
    seconds: SecondCache,
    rng: fastrand::Rng,
}

/// One core's lines for one target.
#[derive(Debug)]
struct CoreTarget {
    plan: LogPlan,
    /// Text before and after the time at the start of a line.
    prefix: LinePrefix,
    batches: LineBatches,
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
        let core_target = |(target, plan): (usize, &LogPlan)| CoreTarget {
            plan: plan.clone(),
            prefix: LinePrefix::for_log(plan),
            batches: sender.lines.batches(target, LINE_BYTES_MAX),
        };
        let targets: Vec<CoreTarget> = sender.plans.iter().enumerate().map(core_target).collect();
        let wants_fields = targets.iter().any(|target| target.plan.format != LogFormat::Haproxy);
        let rng = fastrand::Rng::with_seed(fastrand::u64(..) ^ core as u64);
        let state = RefCell::new(CoreLogState { targets, seconds: SecondCache::default(), rng });
        let captured = captured_values(&sender.plans);
        Self { state, wants_fields, captured, line_counters: sender.line_counters() }
    }

    /// Returns whether host, referrer, user agent and request id must be captured at all.
    #[inline]
    pub(crate) fn wants_fields(&self) -> bool {
        self.wants_fields
    }

    /// Returns the values that are captured when a head arrives.
    pub(crate) fn captured(&self) -> &Rc<[CapturedValue]> {
        &self.captured
    }

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
        let failed = outcome.is_failed();
        let entry = state.seconds.entry(outcome, names, load, clock);
        for core_target in &mut state.targets {
            if core_target.wants(failed, &mut state.rng) && core_target.batches.has_room() {
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
            all_handed_over &= core_target.batches.hand_over();
        }
        all_handed_over
    }
}

/// Returns the values of all logs that are captured when a head arrives, each once.
fn captured_values(logs: &[LogPlan]) -> Rc<[CapturedValue]> {
    let mut captured: Vec<CapturedValue> = Vec::new();
    for log in logs {
        let LogFormat::Template(template) = &log.format else { continue };
        for value in template::captured_values(template) {
            if !captured.contains(&value) {
                captured.push(value);
            }
        }
    }
    captured.into()
}

impl CoreTarget {
    #[inline]
    fn wants(&self, failed: bool, rng: &mut fastrand::Rng) -> bool {
        failed || (!self.plan.only_errors && (self.plan.sample >= 1.0 || rng.f64() < self.plan.sample))
    }

    #[inline]
    fn push(&mut self, entry: &LogEntry<'_>) {
        let (buffer, position) = self.batches.buffer();
        let out = &mut LineBuffer::new(buffer, position);
        push_line(out, &self.prefix, &self.plan.format, entry);
        match out.is_full() {
            // Only names in the config that are thousands of bytes long can cause that.
            true => self.batches.drop_line(),
            false => {
                let end = out.len();
                self.batches.end_line(end);
            }
        }
    }
}

#[inline]
fn push_line(out: &mut LineBuffer<'_>, prefix: &LinePrefix, format: &LogFormat, entry: &LogEntry<'_>) {
    prefix.push(out, entry);
    match format {
        LogFormat::Json => json::push_line(out, entry),
        LogFormat::Combined => combined::push_line(out, entry),
        LogFormat::Haproxy => haproxy::push_line(out, entry),
        LogFormat::Template(template) => template::push_line(out, template, entry),
    }
}

impl LinePrefix {
    fn for_log(log: &LogPlan) -> Self {
        let mut text = Vec::new();
        let process = std::process::id();
        // Writing to a Vec cannot fail.
        let _ = match (&log.target, &log.format) {
            (LogTarget::SyslogUdp(_), _) => {
                write!(text, " {} weir {process} access - ", host_name())
            }
            (LogTarget::SyslogUnix(_), _) => write!(text, " weir[{process}]: "),
            (_, LogFormat::Haproxy) => write!(text, "weir[{process}]: "),
            _ => Ok(()),
        };
        let text = text.into_boxed_slice();
        match (&log.target, &log.format) {
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
                out.fixed(&milliseconds(entry.start_wall_ns));
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
