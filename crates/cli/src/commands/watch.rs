//! `weir watch`: live metrics of this machine and of chosen processes. Shows them full screen, prints
//! them as text per interval, or prints one sample (`--once`). `--json` saves the record.
//!
//! `host::observe` takes the samples, and `diagnose::alerts` finds the alerts.

mod live;
mod plan;

use std::io::IsTerminal;
use std::time::Duration;

use diagnose::alerts::{LIVE_WINDOWS, ScreenWindows, screen};
use host::observe::Monitor;
use record::observed::{MachineObservation, UnobservableMetric};
use record::watch::{SCHEMA, WatchRecord};
use report::text::watch::text::format_observed;
use rt::clock::{now_ns, thread_cpu_ns};
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};
use runner::watch::plan::WatchPlan;
use runner::watch::targets::resolve_targets;

pub(super) use self::plan::parse_plan;

use super::weir_version;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::{is_coloured, print};
use crate::preflight;
use crate::streams::is_stdout_broken;

/// Interval at which the end and the stop signal are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Grace time after the end of an interval, so that its sample is complete when it is fetched.
const SAMPLE_GRACE_NS: u64 = 30_000_000;

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let plan = parse_plan(args)?;
    preflight::outputs(args, &["json"], &[])?;
    // A killed run may have left the target with less than its quota of the CPUs.
    super::lab::remove_leftovers();
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let resolved = resolve_targets(&plan)?;
    let started_at = record::file::wall_clock_now();
    let monitor = Monitor::start(resolved.spec, now_ns);
    let start_ns = now_ns();
    let end_ns = plan.duration_ns.map_or(u64::MAX, |duration_ns| start_ns.saturating_add(duration_ns));
    let (unobservable, own_before_ns) = (&resolved.unobservable[..], thread_cpu_ns());
    let view = WatchView { monitor: &monitor, unobservable, start_ns, own_before_ns, plan: &plan };
    let full_screen = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if plan.once || plan.json_only() {
        wait(end_ns, &stop);
    } else if full_screen && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        live::run(&view, end_ns, &stop)?;
    } else {
        print_intervals(&view, end_ns, &stop);
    }
    let own_cpus = view.own_cpus();
    let mut observed = MachineObservation { started_at, ..monitor.finish(start_ns) };
    observed.cost_cpus += own_cpus;
    observed.not_observable.extend(resolved.unobservable);
    if plan.once && !plan.json_only() {
        let all = ScreenWindows { display_s: f64::INFINITY, rule_s: f64::INFINITY };
        print(&format_observed(&observed, &screen(&observed, all), is_coloured()));
    }
    write_record(observed, plan.json.as_deref(), arguments)?;
    Ok(Exit::Done)
}

/// Returns everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    parse_plan(args).map(|_| ())
}

/// Waits until `end_ns`, or until a signal starts the drain.
fn wait(end_ns: u64, stop: &DrainWatch) {
    while stop.stage() == DrainStage::Running {
        let remaining = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
        if remaining.is_zero() {
            return;
        }
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
}

/// State of a live view: the collector, its schedule and its own cost.
#[derive(Clone, Copy)]
struct WatchView<'a> {
    monitor: &'a Monitor,
    /// Metrics of the targets that cannot be observed.
    unobservable: &'a [UnobservableMetric],
    start_ns: u64,
    /// CPU time of this thread at the start.
    own_before_ns: u64,
    plan: &'a WatchPlan,
}

impl WatchView<'_> {
    /// Returns the number of samples that are complete by now.
    fn due_samples(&self) -> u64 {
        now_ns().saturating_sub(self.start_ns + SAMPLE_GRACE_NS) / self.plan.interval_ns
    }

    /// Returns the CPU use of this thread, which fetches and draws: the collectors' own is separate.
    fn own_cpus(&self) -> f64 {
        let used_ns = thread_cpu_ns().saturating_sub(self.own_before_ns);
        used_ns as f64 / now_ns().saturating_sub(self.start_ns).max(1) as f64
    }

    /// Returns the observation if it has a newer sample than `last_shown`. On a busy machine a sample
    /// may be late: then the result is `None` until it has arrived.
    fn newer_observation(&self, last_shown: &mut LastShown) -> Option<MachineObservation> {
        let due = self.due_samples();
        if due <= last_shown.due {
            return None;
        }
        let observed = self.latest_observation();
        let end_s = observed.samples.last()?.time_s;
        if end_s <= last_shown.end_s {
            return None;
        }
        *last_shown = LastShown { due, end_s };
        Some(observed)
    }

    fn latest_observation(&self) -> MachineObservation {
        let mut observed = self.monitor.latest().unwrap_or_default();
        observed.cost_cpus += self.own_cpus();
        observed.not_observable.extend_from_slice(self.unobservable);
        observed
    }
}

/// Sample that was shown last.
#[derive(Clone, Copy, Debug, Default)]
struct LastShown {
    /// Number of samples that were due when it was shown.
    due: u64,
    end_s: f64,
}

/// Prints each interval as text. Waits up to one interval after the end for the last sample.
fn print_intervals(view: &WatchView<'_>, end_ns: u64, stop: &DrainWatch) {
    let mut last_shown = LastShown::default();
    let interval_count =
        view.plan.duration_ns.map_or(u64::MAX, |duration_ns| duration_ns / view.plan.interval_ns);
    let last_ns = end_ns.saturating_add(view.plan.interval_ns);
    while stop.stage() == DrainStage::Running && last_shown.due < interval_count && now_ns() < last_ns {
        if let Some(observed) = view.newer_observation(&mut last_shown) {
            print(&format!(
                "{}\n",
                format_observed(&observed, &screen(&observed, LIVE_WINDOWS), is_coloured())
            ));
            if is_stdout_broken() && view.plan.json.is_none() {
                return;
            }
        }
        wait(last_ns.min(now_ns() + POLL_INTERVAL.as_nanos() as u64), stop);
    }
}

/// Writes the record to the destination of `--json`.
pub(super) fn write_record(
    observed: MachineObservation,
    json: Option<&str>,
    arguments: &[String],
) -> Result<(), Failure> {
    let Some(json) = json else { return Ok(()) };
    let watch = WatchRecord {
        schema: SCHEMA.to_owned(),
        weir: weir_version(),
        command: arguments.to_vec(),
        observed,
    };
    write_json(&watch, Some(json))
}
