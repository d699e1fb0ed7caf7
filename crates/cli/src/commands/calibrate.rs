//! `weir calibrate`, and the short calibration of the embedded job.

use host::facts::HostFacts;
use load::calibrate::{
    CLIENT_UTILISATION, Calibration, CalibrationTrial, LoadProfile, REFERENCE_TRIAL_S_MIN,
    REFERENCE_TRIALS_MIN, SPREAD_MAX, clients_needed, open_trial_plan, summarise, trial_plan,
};
use load::plan::RunPlan;
use load::recorder::Counters;
use record::failure::FAILURE_KINDS;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{
    DurationUnit, SECOND_NS, format_plural, format_rate, parse_count, parse_duration_ns, parse_size,
};
use report::text::summary::largest_counts;
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};
use runner::embedded::Origin;
use runner::store;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, calibrate_flags};
use crate::output::file::write_json;
use crate::output::print;
use crate::preflight;
use crate::progress_bar::ProgressBar;
use crate::watcher::RunWatcher;

/// Number and length of the calibration trials, and the process of the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialSettings {
    /// Number of trials of each kind.
    pub(super) per_kind: usize,
    /// Length of one trial.
    pub(super) duration_ns: u64,
    /// Process id of the origin.
    pub(super) origin_pid: i32,
}

/// Options of `weir calibrate` beyond the load itself.
pub(super) struct CalibrateOptions {
    body_bytes: u64,
    trials_per_kind: usize,
    duration_ns: u64,
    target_per_s: Option<f64>,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let cores = rt::cores::available_cpus().len();
    let uses_tls = args.is_set("tls");
    let scheme = if uses_tls { "https" } else { "http" };
    let (options, plan) = parse_flags(args, format!("{scheme}://127.0.0.1:1/"))?;
    preflight::outputs(args, &["json"], &[])?;
    preflight::check(&plan)?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let origin = Origin::start(cores, uses_tls)?;
    let plan = RunPlan::parse(&calibrate_flags(args, origin.url(options.body_bytes)), cores)?;
    let trials = TrialSettings {
        per_kind: options.trials_per_kind,
        duration_ns: options.duration_ns,
        origin_pid: origin.pid(),
    };
    let CalibrationPair { closed, open } = {
        let bar = ProgressBar::start();
        calibrate(&plan, &trials, &host::facts::read(), &stop, &bar)?
    };
    let json = args.text("json");
    if json.as_deref() != Some("-") {
        print(&format_calibration(&closed));
        print(&format_open_loop(&open));
        if let Some(target) = options.target_per_s {
            print(&format_target(target, &open));
        }
    }
    write_json(&closed, json.as_deref())?;
    let stored = store::save(&closed).and_then(|_| store::save(&open));
    match stored {
        Ok(path) if json.as_deref() != Some("-") => {
            let note = match closed.is_reference() {
                true => String::new(),
                false => format!(
                    "; judges no later run, which takes {REFERENCE_TRIALS_MIN} trials of \
                     {REFERENCE_TRIAL_S_MIN:.0} s"
                ),
            };
            print(&format!("kept         {}{note}\n", path.display()));
        }
        Ok(_) => {}
        Err(failure) => warn!("weir: {}", failure.lines().join("; ")),
    }
    Ok(Exit::Done)
}

/// Reads all flags; reports every problem at once. The requests go to `url`.
pub(super) fn parse_flags(
    args: CommandArgs<'_>,
    url: String,
) -> Result<(CalibrateOptions, RunPlan), Vec<InputProblem>> {
    let plan = RunPlan::parse(&calibrate_flags(args, url), rt::cores::available_cpus().len());
    match (parse_options(args), plan) {
        (Ok(options), Ok(plan)) => Ok((options, plan)),
        (options, plan) => {
            let mut problems = options.err().unwrap_or_default();
            problems.extend(plan.err().unwrap_or_default());
            Err(problems)
        }
    }
}

fn parse_options(args: CommandArgs<'_>) -> Result<CalibrateOptions, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut read = |flag: &str, default: u64, parse: &dyn Fn(&str) -> Result<u64, InvalidValue>| {
        let Some(text) = args.text(flag) else {
            return default;
        };
        parse(&text).unwrap_or_else(|why| {
            problems.push(InputProblem::new(format!("--{flag}"), why));
            default
        })
    };
    let size = read("size", 100, &parse_size);
    let trials_per_kind = read("trials", 5, &|text| {
        let trials = parse_count(text)?;
        if (1..=100).contains(&trials) { Ok(trials) } else { Err(invalid_value!("1 to 100 trials")) }
    });
    let duration_ns = read("trial-time", 2 * SECOND_NS, &|text| {
        let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
        let within = (SECOND_NS..=60 * SECOND_NS).contains(&ns);
        if within { Ok(ns) } else { Err(invalid_value!("a trial takes 1s to 60s")) }
    });
    let target = read("target", 0, &|text| match parse_count(text)? {
        0 => Err(invalid_value!("must be above 0")),
        target => Ok(target),
    });
    if !problems.is_empty() {
        return Err(problems);
    }
    let target_per_s = (target > 0).then_some(target as f64);
    Ok(CalibrateOptions {
        body_bytes: size,
        trials_per_kind: trials_per_kind as usize,
        duration_ns,
        target_per_s,
    })
}

/// The closed-loop and the open-loop calibration.
pub(super) struct CalibrationPair {
    /// Saturated closed loop: the maximum rate of this machine.
    pub(super) closed: Calibration,
    /// Open loop at the utilisation that clients are planned for: the cost of a request there.
    pub(super) open: Calibration,
}

/// Runs trials with one thread, with as many threads as the machine of the plan has, and in an open
/// loop at half the rate of one thread. The kinds alternate. `bar` shows the trials.
pub(super) fn calibrate(
    plan: &RunPlan,
    trials: &TrialSettings,
    facts: &HostFacts,
    stop: &DrainWatch,
    bar: &ProgressBar,
) -> Result<CalibrationPair, Failure> {
    let cpus = rt::cores::available_cpus().len().min(plan.connections as usize).max(1);
    let kinds: &[usize] = if cpus == 1 { &[1] } else { &[1, cpus] };
    let (mut closed, mut open, mut response_bytes) = (Vec::new(), Vec::new(), 0);
    let all = trials.per_kind * (kinds.len() + 1);
    let show_trial = |done: usize, kind: &str| {
        let left_s = (all - done) as f64 * trials.duration_ns as f64 / 1e9;
        bar.set(format!("trial {} of {all}: {kind}", done + 1), (left_s, left_s));
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
) -> Result<(CalibrationTrial, u64), Failure> {
    let mut watcher = RunWatcher::new(vec![trials.origin_pid], None, None);
    let measured =
        load::run::run(&plan, stop, &mut watcher).map_err(|error| Failure::cannot("calibration", error))?;
    if stop.stage() != DrainStage::Running {
        return Err(Failure::CannotRun("calibration stopped by the user".to_owned()));
    }
    let counters = &measured.counters;
    let bad = counters.requests.saturating_sub(counters.good());
    if bad > 0 || counters.responses == 0 {
        return Err(Failure::CannotRun(describe_bad_trial(bad, counters)));
    }
    let window = watcher.window();
    let busy = window.iter().flat_map(|window| &window.own_threads);
    let trial = CalibrationTrial {
        threads: plan.threads as u32,
        responses_per_s: measured.responses_per_s(),
        generator_cpus: busy.map(|thread| thread.busy_fraction).sum(),
    };
    Ok((trial, measured.counters.bytes_in / measured.counters.responses))
}

/// Describes a trial in which `bad` requests had no good response. The origin and the load are weir's
/// own, so the usual cause is another process that kept both from their CPUs.
fn describe_bad_trial(bad: u64, counters: &Counters) -> String {
    let kinds = FAILURE_KINDS.iter().zip(counters.errors).filter(|(_, count)| *count > 0);
    let errors = largest_counts(kinds.map(|((_, code, _), count)| ((*code).to_owned(), count)));
    format!(
        "calibration: {} of {} had no good response from the embedded origin (errors: {errors}); \
         repeat it when no other process uses the CPUs",
        format_plural(bad, "request"),
        counters.requests,
    )
}

/// Returns the rate that trials with `threads` threads reached beside the origin.
pub(super) fn reached_per_s(calibration: &Calibration, threads: usize) -> f64 {
    let matching = calibration.trials.iter().filter(|trial| trial.threads as usize == threads);
    let reached = matching.map(|trial| trial.responses_per_s).reduce(f64::min);
    reached.unwrap_or(calibration.all_with_origin_per_s)
}

/// Formats a calibration as text.
pub(super) fn format_calibration(calibration: &Calibration) -> String {
    let mut text = format!(
        "calibrated   {} ({} of each kind)\n\
         per core     {}{}\n\
         total        {} on {}, with a remote server; {} with a local one{}\n",
        calibration.profile,
        format_plural(calibration.trials.iter().filter(|trial| trial.threads == 1).count() as u64, "trial"),
        format_rate(calibration.per_core_per_s),
        format_spread(calibration.per_core_spread),
        format_rate(calibration.all_per_s),
        format_plural(calibration.cpus.into(), "CPU"),
        format_rate(calibration.all_with_origin_per_s),
        format_spread(calibration.all_spread),
    );
    if calibration.max_spread().is_some_and(|spread| spread > SPREAD_MAX) {
        text.push_str("             large spread: other processes use this machine\n");
    }
    text
}

/// Formats the cost of a request in an open loop.
fn format_open_loop(open: &Calibration) -> String {
    let rates = open.trials.iter().map(|trial| trial.responses_per_s);
    format!(
        "open loop    {} per core, from the cost per request at {}{}\n",
        format_rate(open.per_core_per_s),
        format_rate(rates.clone().sum::<f64>() / rates.count().max(1) as f64),
        format_spread(open.per_core_spread)
    )
}

/// Formats the spread of the trials; empty for a single trial, which has no spread.
fn format_spread(spread: Option<f64>) -> String {
    spread.map_or_else(String::new, |spread| format!(" (spread {:.0} %)", spread * 100.0))
}

fn format_target(target_per_s: f64, calibration: &Calibration) -> String {
    match clients_needed(target_per_s, calibration) {
        Some(clients) => format!(
            "target       {} needs {} like this one, each at {:.0} % of its \
             open-loop capacity\n",
            format_rate(target_per_s),
            format_plural(clients, "machine"),
            CLIENT_UTILISATION * 100.0
        ),
        None => "target       unknown: the trials had no responses\n".to_owned(),
    }
}
