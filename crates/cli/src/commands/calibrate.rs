//! `weir calibrate`, and the short calibration of the embedded job.

use host::facts::HostFacts;
use load::calibrate::{
    CLIENT_UTILISATION, Calibration, REFERENCE_TRIAL_S_MIN, REFERENCE_TRIALS_MIN, SPREAD_MAX, clients_needed,
};
use load::plan::RunPlan;
use record::invalid_value;
use record::problem::InputProblem;
use record::units::{
    DurationUnit, SECOND_NS, format_plural, format_rate, parse_count, parse_duration_ns, parse_size,
};
use report::text::summary::largest_counts;
use rt::drain::{Drain, DrainWatch, SignalSet, block_signals};
use runner::calibration::{CalibrationError, CalibrationPair, TrialSettings, calibrate};
use runner::embedded::{Origin, with_virtual_link};
use runner::store;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader, calibrate_flags};
use crate::output::file::write_json;
use crate::output::print;
use crate::preflight;
use crate::progress_bar::ProgressBar;

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
    runner::preflight::check(&plan)?;
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let facts = host::facts::read();
    let measure = |origin: &Origin| {
        let plan = RunPlan::parse(&calibrate_flags(args, origin.url(options.body_bytes)), cores)?;
        let trials = TrialSettings {
            per_kind: options.trials_per_kind,
            duration_ns: options.duration_ns,
            origin_pid: origin.pid(),
        };
        calibrate_with_bar(&plan, &trials, &facts, &stop)
    };
    let CalibrationPair { closed, open } = match args.is_set("xdp") {
        true => with_virtual_link(uses_tls, measure)??,
        false => measure(&Origin::start(cores, uses_tls)?)?,
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
    let mut flags = FlagReader::new(args);
    let size = flags.parse("size", parse_size).unwrap_or(100);
    let trials_per_kind = flags.parse("trials", |text| {
        let trials = parse_count(text)?;
        if (1..=100).contains(&trials) { Ok(trials) } else { Err(invalid_value!("1 to 100 trials")) }
    });
    let duration_ns = flags.parse("trial-time", |text| {
        let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
        let within = (SECOND_NS..=60 * SECOND_NS).contains(&ns);
        if within { Ok(ns) } else { Err(invalid_value!("a trial takes 1s to 60s")) }
    });
    let target = flags.parse("target", |text| match parse_count(text)? {
        0 => Err(invalid_value!("must be above 0")),
        target => Ok(target),
    });
    flags.finish(CalibrateOptions {
        body_bytes: size,
        trials_per_kind: trials_per_kind.unwrap_or(5) as usize,
        duration_ns: duration_ns.unwrap_or(2 * SECOND_NS),
        target_per_s: target.map(|target| target as f64),
    })
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
