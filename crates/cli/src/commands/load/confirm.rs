//! `--confirm`: changes what the verdict says is the limit, and looks whether the throughput answers
//! as it predicts. Short trials, the plan as it is and changed in turn.

use host::family::with_descendants;
use lab::confirm::{PAIRS, judge, together};
use lab::diagnosis::verdicts::{NONE, Perturbation, verdict};
use lab::lend::LessTime;
use load::pace::Pace;
use load::plan::Plan;
use record::run::{Confirmation, Run};
use record::units::SECOND_NS;
use rt::drain::{DrainWatch, Stage};

use crate::preflight;
use crate::watcher::Watcher;

/// Length of a trial.
const TRIAL_NS: u64 = 3 * SECOND_NS;

/// The outcome of the counter-test of a run's verdict, or why it cannot be made.
pub(super) fn confirm(
    plan: &Plan,
    run: &Run,
    subjects: &[i32],
    stop: &DrainWatch,
) -> Result<Confirmation, String> {
    let code = run.diagnosis.as_ref().map_or(NONE, |diagnosis| diagnosis.verdict.as_str());
    let row = verdict(code).ok_or_else(|| format!("'{code}' claims nothing to perturb"))?;
    if let Some(offered) = run.rates.offered_per_s
        && run.rates.responses_per_s >= offered * 0.98
    {
        return Err("an open loop that gets what it asks for cannot show a limit of throughput; \
                    drive more (-R) or a closed loop"
            .to_owned());
    }
    let mut tests = Vec::new();
    for test in row.counter_tests() {
        let change = match change(plan, run, test.0) {
            Ok(change) => change,
            // The second is more than enough where it can be made.
            Err(why) if tests.is_empty() => return Err(why),
            Err(_) => break,
        };
        let pairs = pairs(plan, run, &change, subjects, stop)?;
        tests.extend(judge(test, &pairs));
    }
    together(tests).ok_or_else(|| "the trials drove nothing".to_owned())
}

/// Rates as it is and changed, in turn.
fn pairs(
    plan: &Plan,
    run: &Run,
    change: &Change,
    subjects: &[i32],
    stop: &DrainWatch,
) -> Result<Vec<(f64, f64)>, String> {
    let used_cpus = run.cpu.subject_cpus.unwrap_or(0.0);
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let base = trial(plan, stop)?;
        let changed = match change {
            Change::Plan(changed) => trial(changed, stop)?,
            Change::LessTime => {
                let factor = Perturbation::LessProcessorTime.factor();
                let lent = LessTime::take(&with_descendants(subjects), used_cpus * factor)?;
                let rate = trial(plan, stop);
                lent.give_back()?;
                rate?
            }
        };
        pairs.push((base, changed));
    }
    Ok(pairs)
}

/// What to do differently in every second trial.
enum Change {
    Plan(Box<Plan>),
    LessTime,
}

fn change(plan: &Plan, run: &Run, perturbation: Perturbation) -> Result<Change, String> {
    let mut changed = plan.clone();
    match perturbation {
        Perturbation::SecondGenerator => {
            changed.threads *= 2;
            changed.connections = changed.connections.max(changed.threads as u64);
        }
        Perturbation::TwiceTheConnections => changed.connections *= 2,
        Perturbation::HalfTheConnections => {
            changed.connections = (changed.connections / 2).max(changed.threads as u64);
        }
        Perturbation::KeptConnections => {
            if changed.requests_per_connection.is_none() {
                return Err("the plan keeps its connections already (no -r)".to_owned());
            }
            changed.requests_per_connection = None;
        }
        Perturbation::Pause => {
            let Pace::Closed { think_ns } = &mut changed.pace else {
                return Err("an open loop has no pauses of its own".to_owned());
            };
            *think_ns += (run.latency.last_byte.service.mean_ns / 2.0) as u64;
        }
        Perturbation::LessProcessorTime => return Ok(Change::LessTime),
        Perturbation::Nothing => return Err("nothing can be changed for it from here".to_owned()),
    }
    preflight::check_descriptors(changed.connections)
        .map_err(|failure| failure.lines().join("; "))?;
    Ok(Change::Plan(Box::new(changed)))
}

/// Responses per second of a short run.
fn trial(plan: &Plan, stop: &DrainWatch) -> Result<f64, String> {
    let mut short = plan.clone();
    short.ramp_ns = 0;
    short.end.duration_ns = TRIAL_NS;
    short.end.requests = None;
    short.objectives.clear();
    let measured = load::run::run(&short, stop, &mut Watcher::new(Vec::new(), None, None))
        .map_err(|error| error.to_string())?;
    if stop.stage() != Stage::Running {
        return Err("it was ended by hand".to_owned());
    }
    Ok(measured.responses_per_s())
}
