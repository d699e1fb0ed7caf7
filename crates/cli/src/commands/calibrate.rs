//! `weir calibrate`, and the short calibration of the embedded job.

use host::facts::HostFacts;
use load::calibrate::{
    CLIENT_UTILISATION, Calibration, REFERENCE_TRIAL_S_MIN, REFERENCE_TRIALS_MIN, SPREAD_MAX, clients_needed,
};
use load::plan::RunPlan;
use record::problem::InputProblem;
use record::units::{format_plural, format_rate};
use report::text::summary::largest_counts;
use rt::drain::{Drain, DrainWatch, SignalSet, block_signals};
use runner::calibration::{CalibrationError, CalibrationPair, TrialSettings, calibrate};
use runner::embedded::{Origin, with_virtual_link};
use runner::store;

use crate::exit::{Exit, Failure};
use crate::flags::{CalibrateFlags, CommandArgs, CommandFlags, FlagReader};
use crate::output::file::write_json;
use crate::output::print;
use crate::preflight;
use crate::progress_bar::ProgressBar;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let cores = rt::cores::available_cpus().len();
    let (flags, plan) = parse_flags(args, |uses_tls| {
        let scheme = if uses_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:1/")
    })?;
    preflight::destinations(&[&flags.json], &[])?;
    runner::preflight::check(&plan)?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let facts = host::facts::read();
    let measure = |origin: &Origin| {
        let plan = RunPlan::parse(&flags.load_flags(origin.url(flags.body_bytes)), cores)?;
        let trials = TrialSettings {
            per_kind: flags.trials_per_kind as usize,
            duration_ns: flags.trial_ns,
            origin_pid: origin.pid(),
        };
        calibrate_with_bar(&plan, &trials, &facts, &stop)
    };
    let CalibrationPair { closed, open } = match flags.xdp {
        true => with_virtual_link(flags.tls, measure)??,
        false => measure(&Origin::start(cores, flags.tls)?)?,
    };
    if !flags.json.is_stdout() {
        print(&format_calibration(&closed));
        print(&format_open_loop(&open));
        if let Some(target) = flags.target_per_s {
            print(&format_target(target as f64, &open));
        }
    }
    write_json(&closed, flags.json.path())?;
    let stored = store::save(&closed).and_then(|_| store::save(&open));
    match stored {
        Ok(path) if !flags.json.is_stdout() => {
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

/// Reads all flags; reports every problem at once. The requests go to the URL, which depends on `--tls`.
pub(super) fn parse_flags(
    args: CommandArgs<'_>,
    url: impl FnOnce(bool) -> String,
) -> Result<(CalibrateFlags, RunPlan), Vec<InputProblem>> {
    let mut reader = FlagReader::new(args);
    let flags = CalibrateFlags::read(&mut reader);
    let plan = RunPlan::parse(&flags.load_flags(url(flags.tls)), rt::cores::available_cpus().len());
    match plan {
        Ok(plan) => reader.finish((flags, plan)),
        Err(problems) => {
            reader.problems.extend(problems);
            Err(reader.problems)
        }
    }
}

/// Calibrates, and shows the trials in a progress bar.
pub(super) fn calibrate_with_bar(
    plan: &RunPlan,
    trials: &TrialSettings,
    facts: &HostFacts,
    stop: &DrainWatch,
) -> Result<CalibrationPair, Failure> {
    let bar = ProgressBar::start();
    let progress = |trial: String, left_s: f64| bar.set(trial, (left_s, left_s));
    calibrate(plan, trials, facts, stop, &progress).map_err(|error| {
        Failure::CannotRun(match error {
            CalibrationError::BadTrial { bad, requests, errors } => describe_bad_trial(bad, requests, errors),
            other => other.to_string(),
        })
    })
}

/// Describes a trial in which `bad` requests had no good response. The origin and the load are weir's
/// own, so the usual cause is another process that kept both from their CPUs.
fn describe_bad_trial(bad: u64, requests: u64, errors: Vec<(String, u64)>) -> String {
    let errors = largest_counts(errors.into_iter());
    format!(
        "calibration: {} of {requests} had no good response from the embedded origin (errors: {errors}); \
         repeat it when no other process uses the CPUs",
        format_plural(bad, "request"),
    )
}

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
