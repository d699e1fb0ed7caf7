//! `weir load`.

mod outputs;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use experiment::cpu_throttle::{CpuThrottle, ThrottleError};
use load::calibrate::Calibration;
use load::control::{RateControl, STEP_UP};
use load::observer::RunObserver;
use load::pace::{Arrivals, Pace};
use load::plan::{LoadFlags, RunPlan};
use record::interval_log::IntervalLog;
use record::problem::InputProblem;
use record::units::{SECOND_NS, format_duration_ns, format_rate};
use rt::drain::{Drain, DrainWatch, SignalHandlers, SignalSet, block_signals};
use runner::calibration::{TrialSettings, reached_per_s};
use runner::confirm::{self, ConfirmContext, ConfirmError};
use runner::embedded::Origin;
use runner::load_run::{PrepareSettings, PreparedLoad, RecordedLoad};
use runner::preflight as limits;
use runner::run_record::LoadJob;
use runner::subjects::{check_subject_pids, find_subjects};

pub(super) use outputs::metrics_export;

use self::outputs::{full_screen, metrics_address, peer_format, prints_summary, write_results};
use super::pages::Baseline;
use super::{calibrate, command_identity};
use crate::exit::{Exit, Failure, OnInvalid};
use crate::flags::{CommandArgs, embedded_placeholder_url, load_flags, subject_pids};
use crate::load_control::LoadController;
use crate::output::live::LiveTable;
use crate::output::print;
use crate::preflight;
use crate::streams::notice;
use load::plan::describe::{announce_load, describe_plan};

/// Results that may go to stdout.
const STDOUT_FLAGS: &[&str] = &["json", "csv", "markdown", "junit"];

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let text = load_flags(args);
    check_results(args)?;
    let named = check_subject_pids(&subject_pids(args)?)?;
    // A killed run may have left the subject with less than its quota of the CPUs.
    super::lab::remove_leftovers();
    let drain = Drain::default();
    let stop = drain.watch();
    if text.urls.is_empty() && text.unix.is_none() && text.requests_of_files.is_empty() {
        for flag in ["control", "xdp"] {
            if args.is_given(flag) {
                return Err(vec![InputProblem::new(format!("--{flag}"), "needs a URL")].into());
            }
        }
        return run_embedded(args, text, arguments, drain, &stop);
    }
    if args.is_set("tls") {
        let text =
            "only the embedded origin, which is loaded without a URL, has it: write https:// in the URL";
        return Err(vec![InputProblem::new("--tls", text)].into());
    }
    let mut plan = RunPlan::parse(&text, rt::cores::available_cpus().len())?;
    if let Some(path) = plan.tls.as_ref().and_then(|tls| tls.key_log.as_ref()) {
        warn!("weir: warning: the secrets of all TLS sessions are written to {}", path.display());
    }
    if let Some(text) = plan.replay.as_ref().and_then(|replay| replay.input().describe_skipped()) {
        warn!("weir: warning: {text}");
    }
    if args.is_set("check") {
        return print_check(describe_plan(&plan), &plan);
    }
    plan.choose_addresses().map_err(Failure::cannot_run)?;
    plan.receive_timestamps = !args.is_set("no-watch");
    let scarce_ports = limits::check(&plan)?;
    let control = Arc::default();
    block_signals(SignalSet::TerminationAndUser)?
        .spawn_handler(drain.clone(), Some(signal_handlers(&plan, &control)))?;
    let controller = args.is_set("control").then(|| LoadController::start(drain, Arc::clone(&control)));
    let subjects = if named.is_empty() { find_subjects(&plan) } else { Ok(named) };
    let identity = command_identity(arguments);
    let job = LoadJob { identity: &identity, plan, subjects, scarce_ports, calibration: None, control };
    run_job(args, &job, controller, &stop)
}

/// Prints the description of a plan, and what its TCP in user space would take from the kernel.
pub(super) fn print_check(description: String, plan: &RunPlan) -> Result<Exit, Failure> {
    let survey = load::user_tcp::survey(plan).map_err(Failure::cannot_run)?;
    let user_tcp = survey.as_ref().map(|survey| survey.describe(Some(plan.connections as usize)));
    print(&(description + &user_tcp.unwrap_or_default()));
    Ok(match survey {
        Some(survey) if !survey.problems.is_empty() => Exit::CannotRun,
        _ => Exit::Done,
    })
}

/// Measures this machine with an embedded origin, because the user named nothing to load.
fn run_embedded(
    args: CommandArgs<'_>,
    mut text: LoadFlags,
    arguments: &[String],
    drain: Drain,
    stop: &DrainWatch,
) -> Result<Exit, Failure> {
    let cores = rt::cores::available_cpus().len();
    // The flags are checked before anything starts; the origin supplies the real port.
    text.urls = vec![embedded_placeholder_url(args).to_owned()];
    // Its certificate is self-signed.
    text.tls.insecure |= args.is_set("tls") && text.tls.cacert.is_none();
    let plan = RunPlan::parse(&text, cores)?;
    limits::check(&plan)?;
    if args.is_set("check") {
        print(&describe_plan(&plan));
        return Ok(Exit::Done);
    }
    let control = Arc::default();
    block_signals(SignalSet::TerminationAndUser)?
        .spawn_handler(drain, Some(signal_handlers(&plan, &control)))?;
    let origin = Origin::start(cores.div_ceil(2), args.is_set("tls"))?;
    text.urls = vec![origin.url(EMBEDDED_BODY_BYTES)];
    let mut plan = RunPlan::parse(&text, cores)?;
    plan.has_embedded_origin = true;
    let quiet = !prints_summary(args)?;
    let trials = TrialSettings { per_kind: 3, duration_ns: SECOND_NS, origin_pid: origin.pid() };
    // A quick calibration like this serves this run and no later one, so it is not kept.
    let calibrations = calibrate::calibrate_with_bar(&plan, &trials, &host::facts::read(), stop)?;
    if let Pace::Closed { think_ns: 0 } = plan.pace {
        let rate_per_s = reached_per_s(&calibrations.closed, plan.threads) * EMBEDDED_RATE_FRACTION;
        let rate_per_s = round_to_two_digits(rate_per_s);
        let arrivals = Arrivals::Constant;
        plan.pace = Pace::Open { rate_per_s, arrivals };
        plan.max_pending = load::plan::PENDING_MAX.min((rate_per_s * plan.timeout_ns as f64 / 1e9) as u64);
    }
    if !quiet {
        print(&format_origin(args, origin.pid(), &calibrations.closed, &plan));
    }
    let subjects = Ok(vec![origin.pid()]);
    let calibration = Some(if plan.is_open_loop() { calibrations.open } else { calibrations.closed });
    let identity = command_identity(arguments);
    let job = LoadJob { identity: &identity, plan, subjects, scarce_ports: None, calibration, control };
    run_job(args, &job, None, stop)
}

/// Formats the embedded origin and its calibration: in one line, or in all lines with `-v`.
fn format_origin(
    args: CommandArgs<'_>,
    origin_pid: i32,
    calibration: &Calibration,
    plan: &RunPlan,
) -> String {
    let reached_per_s = reached_per_s(calibration, plan.threads);
    let load = match plan.pace {
        Pace::Open { rate_per_s, .. } => {
            format!(", load {:.0} % of that", rate_per_s / reached_per_s * 100.0)
        }
        Pace::Closed { .. } => String::new(),
    };
    let line = format!(
        "origin       embedded (process {origin_pid}), calibrated {}{load}\n",
        format_rate(reached_per_s)
    );
    match args.is_set("verbose") {
        true => line + &calibrate::format_calibration(calibration) + "\n",
        false => line,
    }
}

/// Returns the handlers of signals. The first Ctrl-C reports what happens next: requests that hang may
/// take a while. SIGUSR1 and SIGUSR2 change the rate.
fn signal_handlers(plan: &RunPlan, control: &Arc<RateControl>) -> SignalHandlers {
    let timeout = format_duration_ns(plan.drain_ns);
    let is_adjustable = plan.is_open_loop() && plan.replay.is_none();
    let change = |by: f64| -> Box<dyn FnMut() + Send> {
        let control = Arc::clone(control);
        Box::new(move || {
            if !is_adjustable {
                return warn!("weir: only the rate of an open loop can be changed (--rate or --stages)");
            }
            control.scale(by, rt::clock::now_ns());
            warn!("weir: {:.0} % of the planned rate", control.factor() * 100.0);
        })
    };
    SignalHandlers {
        on_reopen: change(STEP_UP),
        on_user2: change(1.0 / STEP_UP),
        ..SignalHandlers::with_on_drain(move || {
            warn!(
                "weir: stopping; waits up to {timeout} for requests in flight (a second Ctrl-C stops \
                 at once)"
            );
        })
    }
}

/// Size of the response body of the embedded origin.
const EMBEDDED_BODY_BYTES: u64 = 100;
/// Fraction of the calibrated rate that the embedded job drives. Requests that arrive one by one
/// cost the kernel twice as much as those of a saturated loop, so half would be close to the limit
/// again.
const EMBEDDED_RATE_FRACTION: f64 = 0.25;

fn round_to_two_digits(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.max(10.0).log10().floor() - 1.0);
    (rate / unit).round() * unit
}

fn run_job(
    args: CommandArgs<'_>,
    job: &LoadJob<'_>,
    mut controller: Option<LoadController>,
    stop: &DrainWatch,
) -> Result<Exit, Failure> {
    let quiet = !prints_summary(args)?;
    let terminal = std::io::stdout().is_terminal();
    let show_screen = args.is_set("tui");
    let show_lines = !quiet && !show_screen && !args.is_set("quiet") && (terminal || args.is_set("live"));
    if !args.is_set("quiet") && !show_screen && std::io::stderr().is_terminal() {
        warn!("weir: {}", announce_load(&job.plan));
    }
    let observe = !args.is_set("no-watch");
    let compared = Baseline::from_flags(args)?;
    let with_baseline = observe && !args.is_set("no-baseline");
    let settings = PrepareSettings { observe, with_baseline, named: &subject_pids(args)? };
    let prepared = PreparedLoad::prepare(job, settings, stop);
    let log = match args.text("hdr") {
        Some(path) => Some(
            IntervalLog::create(Path::new(&path), prepared.started_at())
                .map_err(|error| Failure::cannot(&path, error))?,
        ),
        None => None,
    };
    let mut metrics = metrics_export(args)?;
    let mut screen = if show_screen { Some(full_screen(job)?) } else { None };
    let mut lines = show_lines.then(LiveTable::default);
    if args.is_set("confirm") && !quiet {
        warn!("weir: {}", confirm::announcement());
    }
    let mut observers: Vec<&mut dyn RunObserver> = Vec::new();
    observers.extend(controller.iter_mut().map(|observer| observer as &mut dyn RunObserver));
    observers.extend(screen.iter_mut().map(|observer| observer as &mut dyn RunObserver));
    observers.extend(lines.iter_mut().map(|observer| observer as &mut dyn RunObserver));
    observers.extend(metrics.iter_mut().map(|observer| observer as &mut dyn RunObserver));
    let ended = prepared.run(observers, log, stop);
    // Ends the full screen.
    drop(screen);
    let RecordedLoad { mut run, latencies, mut watch } = ended.map_err(Failure::cannot_run)?.record();
    if args.is_set("confirm") {
        let context =
            ConfirmContext { throttle: Some(with_less_cpu_time), trial_ns: confirm::TRIAL_NS, notice, quiet };
        confirm::confirm_diagnosis(job, &mut run, context, stop);
    }
    run.answer = Some(diagnose::answer(&run));
    let exit = write_results(args, &mut run, &latencies, show_lines, compared.as_ref())?;
    watch.finish_log().map_err(|error| Failure::cannot("--hdr", error))?;
    if let Some(metrics) = metrics {
        metrics.finish(stop)?;
    }
    Ok(exit)
}

/// Limits the CPU time of a subject while `measure` runs.
pub(super) fn with_less_cpu_time(
    pids: &[i32],
    quota_cpus: f64,
    measure: &mut dyn FnMut() -> Result<f64, ConfirmError>,
) -> Result<f64, ConfirmError> {
    let failed = |error: ThrottleError| ConfirmError::Throttle(error.to_string());
    let throttle = CpuThrottle::start(pids, quota_cpus).map_err(failed)?;
    let rate = measure();
    throttle.stop().map_err(failed)?;
    rate
}

/// Rejects results that cannot be confirmed or kept, before the run instead of after it.
fn check_results(args: CommandArgs<'_>) -> Result<(), Failure> {
    if args.is_set("confirm") && args.is_set("no-watch") {
        let text = "--no-watch gives no diagnosis to confirm: remove one of them";
        return Err(vec![InputProblem::new("--confirm", text)].into());
    }
    if args.is_set("confirm") && (args.is_given("stages") || args.is_given("replay")) {
        let text = "needs a load that stays the same: remove --stages or --replay";
        return Err(vec![InputProblem::new("--confirm", text)].into());
    }
    if peer_format(args)?.is_some() && preflight::writes_to_stdout(args, STDOUT_FLAGS) {
        let text = "prints to stdout, as another flag does: name a file there";
        return Err(vec![InputProblem::new("--format", text)].into());
    }
    if args.is_set("control") && (args.is_set("tui") || preflight::writes_to_stdout(args, STDOUT_FLAGS)) {
        let text = "writes its events to stdout, as another flag does: remove one of them";
        return Err(vec![InputProblem::new("--control", text)].into());
    }
    if args.is_set("tui") && !std::io::stdout().is_terminal() {
        return Err(vec![InputProblem::new("--tui", "stdout is not a terminal")].into());
    }
    metrics_address(args)?;
    Baseline::from_flags(args)?;
    OnInvalid::parse(args.text("on-invalid").as_deref())?;
    preflight::outputs(args, STDOUT_FLAGS, &["hdr", "openmetrics", "html"])
}
