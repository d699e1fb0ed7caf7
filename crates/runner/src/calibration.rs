//! Calibration of this machine: alternating short loads of an embedded origin.

use host::facts::HostFacts;
use load::calibrate::{Calibration, CalibrationTrial, LoadProfile, open_trial_plan, summarise, trial_plan};
use load::measurement::RunError;
use load::plan::RunPlan;
use record::failure::FAILURE_KINDS;
use record::units::format_plural;
use rt::drain::{DrainStage, DrainWatch};

use crate::watcher::RunWatcher;

/// Reason why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// A trial could not be run.
    #[error("calibration: {0}")]
    Run(#[from] RunError),
    #[error("calibration stopped by the user")]
    Stopped,
    /// Requests of a trial had no good response.
    #[error("calibration: {bad} of {requests} requests had no good response")]
    BadTrial { bad: u64, requests: u64, errors: Vec<(String, u64)> },
}

/// Number and length of the calibration trials, and the process of the origin.
#[derive(Clone, Copy, Debug)]
pub struct TrialSettings {
    pub per_kind: usize,
    pub duration_ns: u64,
    pub origin_pid: i32,
}

/// The closed-loop and the open-loop calibration.
pub struct CalibrationPair {
    /// Saturated closed loop: the maximum rate of this machine.
    pub closed: Calibration,
    /// Open loop at the utilisation that clients are planned for: the cost of a request there.
    pub open: Calibration,
}

/// Runs trials with one thread, with as many threads as the machine of the plan has, and in an open
/// loop at half the rate of one thread. The kinds alternate. `progress` gets each trial, and the time left in s.
///
/// # Errors
/// A trial could not be run, was stopped, or failed.
pub fn calibrate(
    plan: &RunPlan,
    trials: &TrialSettings,
    facts: &HostFacts,
    stop: &DrainWatch,
    progress: &dyn Fn(String, f64),
) -> Result<CalibrationPair, CalibrationError> {
    let cpus = rt::cores::available_cpus().len().min(plan.connections as usize).max(1);
    // TCP in user space has one queue of its link, and one thread.
    let kinds: &[usize] = if cpus == 1 || plan.xdp.is_some() { &[1] } else { &[1, cpus] };
    let (mut closed, mut open, mut response_bytes) = (Vec::new(), Vec::new(), 0);
    let all = trials.per_kind * (kinds.len() + 1);
    let show_trial = |done: usize, kind: &str| {
        let left_s = (all - done) as f64 * trials.duration_ns as f64 / 1e9;
        progress(format!("trial {} of {all}: {kind}", done + 1), left_s);
    };
    for _ in 0..trials.per_kind {
        let mut reached_per_s = 0.0;
        for &threads in kinds {
            show_trial(closed.len() + open.len(), &format_plural(threads as u64, "thread"));
            let (trial, bytes) = run_trial(trial_plan(plan, threads, trials.duration_ns), trials, stop)?;
            if threads == 1 {
                reached_per_s = trial.responses_per_s;
            }
            response_bytes = bytes;
            closed.push(trial);
        }
        let open_plan = open_trial_plan(plan, reached_per_s, trials.duration_ns);
        show_trial(closed.len() + open.len(), "open loop");
        open.push(run_trial(open_plan, trials, stop)?.0);
    }
    let duration_ns = trials.duration_ns;
    let summarised = |trials, open_loop| {
        let profile = LoadProfile { open_loop, ..LoadProfile::from_plan(plan, response_bytes) };
        let identity =
            (record::file::wall_clock_now(), facts.fingerprint.clone(), env!("CARGO_PKG_VERSION").to_owned());
        summarise(trials, cpus as u32, profile, duration_ns as f64 / 1e9, identity)
    };
    Ok(CalibrationPair { closed: summarised(closed, false), open: summarised(open, true) })
}

/// Runs one trial. Returns its result and the size of a response in bytes.
fn run_trial(
    plan: RunPlan,
    trials: &TrialSettings,
    stop: &DrainWatch,
) -> Result<(CalibrationTrial, u64), CalibrationError> {
    let mut watcher = RunWatcher::new(vec![trials.origin_pid]);
    let measured = load::run::run(&plan, stop, &mut watcher)?;
    if stop.stage() != DrainStage::Running {
        return Err(CalibrationError::Stopped);
    }
    let counters = &measured.counters;
    let bad = counters.requests.saturating_sub(counters.good());
    if bad > 0 || counters.responses == 0 {
        let kinds = FAILURE_KINDS.iter().zip(counters.errors).filter(|(_, count)| *count > 0);
        let errors = kinds.map(|((_, code, _), count)| ((*code).to_owned(), count)).collect();
        return Err(CalibrationError::BadTrial { bad, requests: counters.requests, errors });
    }
    let window = watcher.end().window();
    let busy = window.iter().flat_map(|window| &window.own_threads);
    let trial = CalibrationTrial {
        threads: plan.threads as u32,
        responses_per_s: measured.responses_per_s(),
        generator_cpus: busy.map(|thread| thread.busy_fraction).sum(),
    };
    Ok((trial, measured.counters.bytes_in / measured.counters.responses))
}

/// Returns the rate that trials with `threads` threads reached beside the origin.
pub fn reached_per_s(calibration: &Calibration, threads: usize) -> f64 {
    let matching = calibration.trials.iter().filter(|trial| trial.threads as usize == threads);
    let reached = matching.map(|trial| trial.responses_per_s).reduce(f64::min);
    reached.unwrap_or(calibration.all_with_origin_per_s)
}
