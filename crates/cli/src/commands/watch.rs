//! `weir watch`: targets → collectors → a screen, blocks of text, or one look; and a record of it.

mod busiest;
mod live;
mod plan;
mod targets;

use std::io::IsTerminal;
use std::time::Duration;

use host::observe::Watching;
use lab::marks::{LIVE, Spans, screen};
use record::observed::{Missing, Observed};
use record::run::Weir;
use record::watch::{SCHEMA, Watch};
use rt::clock::{now_ns, thread_cpu_ns};
use rt::drain::{Drain, DrainWatch, Held, Stage, hold_signals};

use self::plan::Plan;
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::file::write_json;
use crate::output::watch::text::text;
use crate::output::{colour, print};
use crate::preflight;
use crate::streams::nobody_reads;

/// How often the end is looked for while nothing is shown.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long taking a sample may last before it is asked for.
const SAMPLE_TAKES_NS: u64 = 30_000_000;

pub(super) fn run(typed: Typed<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let plan = Plan::parse(typed)?;
    preflight::outputs(typed, &["json"], &[])?;
    // A run that was killed may have left what is watched with less than its share of the processors.
    super::lab::sweep();
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let found = targets::find(&plan)?;
    let started_at = record::file::wall_clock();
    let watching = Watching::start(found.spec, now_ns);
    let start_ns = now_ns();
    let end_ns = plan.duration_ns.map_or(u64::MAX, |length| start_ns.saturating_add(length));
    let (missing, own_before_ns) = (&found.missing[..], thread_cpu_ns());
    let looks = Looks { watching: &watching, missing, start_ns, own_before_ns, plan: &plan };
    let full_screen = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if plan.once || plan.json_only() {
        wait(end_ns, &stop);
    } else if full_screen && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        live::run(&looks, end_ns, &stop)?;
    } else {
        blocks(&looks, end_ns, &stop);
    }
    let own_cpus = looks.own_cpus();
    let mut observed = Observed { started_at, ..watching.finish(start_ns) };
    observed.cost_cpus += own_cpus;
    observed.not_observable.extend(found.missing);
    if plan.once && !plan.json_only() {
        let all = Spans { shown_s: f64::INFINITY, judged_s: f64::INFINITY };
        print(&text(&observed, &screen(&observed, all), colour()));
    }
    write(observed, plan.json.as_deref(), arguments)?;
    Ok(Exit::Done)
}

/// Everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(typed: Typed<'_>) -> Result<(), Vec<record::problem::Problem>> {
    Plan::parse(typed).map(|_| ())
}

/// Waits for the end, or for a signal.
fn wait(end_ns: u64, stop: &DrainWatch) {
    while stop.stage() == Stage::Running {
        let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(PATIENCE));
    }
}

/// What a live view asks, and when something new is there.
#[derive(Clone, Copy)]
struct Looks<'a> {
    watching: &'a Watching,
    missing: &'a [Missing],
    start_ns: u64,
    /// Processor time of this thread at the start.
    own_before_ns: u64,
    plan: &'a Plan,
}

impl Looks<'_> {
    /// Samples that should be there by now.
    fn due(&self) -> u64 {
        now_ns().saturating_sub(self.start_ns + SAMPLE_TAKES_NS) / self.plan.every_ns
    }

    /// What asking and drawing cost beside the collectors, as a share of one core.
    fn own_cpus(&self) -> f64 {
        let used_ns = thread_cpu_ns().saturating_sub(self.own_before_ns);
        used_ns as f64 / now_ns().saturating_sub(self.start_ns).max(1) as f64
    }

    /// What is seen, once a sample is there that was not when `seen` was written. One may come late,
    /// when the machine is busy.
    fn newer(&self, seen: &mut Seen) -> Option<Observed> {
        let due = self.due();
        if due <= seen.due {
            return None;
        }
        let observed = self.latest();
        let end_s = observed.samples.last()?.time_s;
        if end_s <= seen.end_s {
            return None;
        }
        *seen = Seen { due, end_s };
        Some(observed)
    }

    fn latest(&self) -> Observed {
        let mut observed = self.watching.latest().unwrap_or_default();
        observed.cost_cpus += self.own_cpus();
        observed.not_observable.extend_from_slice(self.missing);
        observed
    }
}

/// The last sample that was shown.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// How many were due by then.
    due: u64,
    /// Its end.
    end_s: f64,
}

/// Prints each interval as text; waits for the last one for as long as another at the most.
fn blocks(looks: &Looks<'_>, end_ns: u64, stop: &DrainWatch) {
    let mut seen = Seen::default();
    let wanted = looks.plan.duration_ns.map_or(u64::MAX, |length| length / looks.plan.every_ns);
    let last_ns = end_ns.saturating_add(looks.plan.every_ns);
    while stop.stage() == Stage::Running && seen.due < wanted && now_ns() < last_ns {
        if let Some(observed) = looks.newer(&mut seen) {
            print(&format!("{}\n", text(&observed, &screen(&observed, LIVE), colour())));
            if nobody_reads() && looks.plan.json.is_none() {
                return;
            }
        }
        wait(last_ns.min(now_ns() + PATIENCE.as_nanos() as u64), stop);
    }
}

/// Writes the record where `--json` says.
fn write(observed: Observed, json: Option<&str>, arguments: &[String]) -> Result<(), Failure> {
    let Some(json) = json else { return Ok(()) };
    let watch = Watch {
        schema: SCHEMA.to_owned(),
        weir: Weir {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("WEIR_COMMIT").to_owned(),
        },
        command: arguments.to_vec(),
        observed,
    };
    write_json(&watch, Some(json))
}
