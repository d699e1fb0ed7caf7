//! `weir load`.

pub(super) mod baseline;
mod confirm;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::path::Path;

use host::facts::HostFacts;
use load::calibrate::{Calibration, LoadProfile, find_nearest};
use load::pace::Pace;
use load::plan::{LoadFlags, RunPlan};
use load::report::{RecordContext, build_record};
use load::run::{RunError, RunMeasurement};
use load::validity::{Evidence, HostEvidence, judge};
use record::facts::{HostFacts as RecordedHost, HostLimits};
use record::interval_log::IntervalLog;
use record::observed::MachineObservation;
use record::problem::InputProblem;
use record::run::{CalibratedCapacity, Run, RunIdentity, WeirVersion};
use record::units::{SECOND_NS, format_duration_ns, format_rate};
use rt::drain::{Drain, DrainWatch, SignalHandlers, SignalSet, block_signals};

use super::calibrate::{self, TrialSettings};
use crate::embedded::Origin;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, embedded_placeholder_url, load_flags, subject_pids};
use crate::observation::{Observation, diagnose};
use crate::output::csv::csv;
use crate::output::file::{write_json, write_text};
use crate::output::live::LiveTable;
use crate::output::percentiles::format_percentiles;
use crate::output::summary::summary;
use crate::output::{is_coloured, print};
use crate::watcher::{self, RunWatcher};
use crate::{preflight, store};

/// Results that may go to stdout.
const STDOUT_FLAGS: &[&str] = &["json", "csv"];

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let text = load_flags(args)?;
    check_results(args)?;
    let named = check_subject_pids(&subject_pids(args)?)?;
    // A killed run may have left the subject with less than its quota of the CPUs.
    super::lab::remove_leftovers();
    let drain = Drain::default();
    let stop = drain.watch();
    if text.urls.is_empty() && text.unix.is_none() {
        return run_embedded(args, text, arguments, drain, &stop);
    }
    if args.is_set("tls") {
        let text =
            "only the embedded origin, which is loaded without a URL, has it: write https:// in the URL";
        return Err(vec![InputProblem::new("--tls", text)].into());
    }
    let plan = RunPlan::parse(&text, rt::cores::available_cpus().len())?;
    if let Some(path) = plan.tls.as_ref().and_then(|tls| tls.key_log.as_ref()) {
        warn!("weir: warning: the secrets of all TLS sessions are written to {}", path.display());
    }
    let scarce_ports = preflight::check(&plan)?;
    block_signals(SignalSet::Termination)?.spawn_handler(drain, Some(drain_notice(&plan)))?;
    let subjects = if named.is_empty() { find_subjects(&plan) } else { Ok(named) };
    run_job(&LoadJob { args, arguments, plan, subjects, scarce_ports, calibration: None }, &stop)
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
    preflight::check(&plan)?;
    block_signals(SignalSet::Termination)?.spawn_handler(drain, Some(drain_notice(&plan)))?;
    let origin = Origin::start(cores.div_ceil(2), args.is_set("tls"))?;
    text.urls = vec![origin.url(EMBEDDED_BODY_BYTES)];
    let mut plan = RunPlan::parse(&text, cores)?;
    let quiet = preflight::writes_to_stdout(args, STDOUT_FLAGS);
    let trials = TrialSettings { per_kind: 3, duration_ns: SECOND_NS, origin_pid: origin.pid() };
    // A quick calibration like this serves this run and no later one, so it is not kept.
    let calibrations = calibrate::calibrate(&plan, &trials, &host::facts::read(), stop)?;
    if let Pace::Closed { think_ns: 0 } = plan.pace {
        let rate_per_s =
            calibrate::reached_per_s(&calibrations.closed, plan.threads) * EMBEDDED_RATE_FRACTION;
        let rate_per_s = round_to_two_digits(rate_per_s);
        let arrivals = load::plan::Arrivals::Constant;
        plan.pace = Pace::Open { rate_per_s, arrivals };
        plan.max_pending = load::plan::PENDING_MAX.min((rate_per_s * plan.timeout_ns as f64 / 1e9) as u64);
    }
    if !quiet {
        print(&format_origin(args, origin.pid(), &calibrations.closed, &plan));
    }
    let subjects = Ok(vec![origin.pid()]);
    let calibration = Some(if plan.is_open_loop() { calibrations.open } else { calibrations.closed });
    run_job(&LoadJob { args, arguments, plan, subjects, scarce_ports: None, calibration }, stop)
}

/// Formats the embedded origin and its calibration: in one line, or in all lines with `-v`.
fn format_origin(
    args: CommandArgs<'_>,
    origin_pid: i32,
    calibration: &Calibration,
    plan: &RunPlan,
) -> String {
    let reached_per_s = calibrate::reached_per_s(calibration, plan.threads);
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

/// Reports at the first Ctrl-C what happens next: requests that hang may take a while.
fn drain_notice(plan: &RunPlan) -> SignalHandlers {
    let timeout = format_duration_ns(plan.drain_ns);
    SignalHandlers::with_on_drain(move || {
        warn!(
            "weir: stopping; waits up to {timeout} for requests in flight (a second Ctrl-C stops \
             at once)"
        );
    })
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

/// Processes under load on this machine, or the reason why they are unknown. If they are unknown,
/// their CPU time cannot be separated from that of other processes.
pub(super) type Subjects = Result<Vec<i32>, host::NotObservable>;

/// One load and its context.
pub(super) struct LoadJob<'a> {
    pub(super) args: CommandArgs<'a>,
    pub(super) arguments: &'a [String],
    pub(super) plan: RunPlan,
    pub(super) subjects: Subjects,
    pub(super) scarce_ports: Option<String>,
    /// Calibration that was just made for this run; `None` takes the nearest stored one.
    pub(super) calibration: Option<Calibration>,
}

fn run_job(job: &LoadJob<'_>, stop: &DrainWatch) -> Result<Exit, Failure> {
    let args = job.args;
    let quiet = preflight::writes_to_stdout(args, STDOUT_FLAGS);
    let terminal = std::io::stdout().is_terminal();
    let show_lines = !quiet && !args.is_set("quiet") && (terminal || args.is_set("live"));
    let named = subject_pids(args)?;
    // Observation starts before the baseline. The requests of the baseline reveal the origins of a
    // subject that later finds no port for connections to them.
    let mut observation = (!args.is_set("no-watch")).then(|| Observation::start(&job.plan, &named));
    let baseline = match args.is_set("no-watch") || args.is_set("no-baseline") {
        false if baseline::is_needed(&job.plan) => baseline::measure(&job.plan, stop),
        _ => None,
    };
    if baseline.is_some() {
        observation.iter_mut().for_each(Observation::restart);
    }
    let started_at = record::file::wall_clock_now();
    let log = match args.text("hdr") {
        Some(path) => Some(
            IntervalLog::create(Path::new(&path), &started_at)
                .map_err(|error| Failure::cannot(&path, error))?,
        ),
        None => None,
    };
    let mut watcher =
        RunWatcher::new(job.subjects.clone().unwrap_or_default(), show_lines.then(LiveTable::default), log)
            .with_observation(observation);
    if args.is_set("confirm") && !quiet {
        warn!("weir: {}", confirm::announcement());
    }
    let measured = load::run::run(&job.plan, stop, &mut watcher).map_err(cannot_run)?;
    let observed = watcher.take_observed(&started_at);
    let mut run = build_run(job, &measured, &watcher, observed.as_ref(), started_at);
    run.baseline = baseline;
    if let Some(observed) = observed {
        diagnose(&mut run, observed);
    }
    if args.is_set("confirm") {
        confirm_diagnosis(job, &mut run, quiet, stop);
    }
    if !quiet {
        print(&format!(
            "{}{}",
            if show_lines { "\n" } else { "" },
            summary(&run, args.is_set("verbose"), is_coloured())
        ));
        if args.is_set("percentiles") {
            print(&format_percentiles(&measured.latencies));
        }
    }
    write_json(&run, args.text("json").as_deref())?;
    write_text(&csv(&run), args.text("csv").as_deref())?;
    watcher.finish_log().map_err(|error| Failure::cannot("--hdr", error))?;
    Ok(Exit::from_run(&run))
}

/// Makes the counter-test of the diagnosis, and puts its outcome into the record. If the test is
/// impossible, the verdict stays neither confirmed nor refuted, with the reason.
fn confirm_diagnosis(job: &LoadJob<'_>, run: &mut Run, quiet: bool, stop: &DrainWatch) {
    let subjects = job.subjects.clone().unwrap_or_default();
    match confirm::confirm(&job.plan, run, &subjects, quiet, stop) {
        Ok(outcome) => {
            run.diagnosis = run
                .diagnosis
                .take()
                .map(|diagnosis| diagnose::counter_test::apply_confirmation(diagnosis, outcome));
        }
        Err(why) => {
            warn!("weir: --confirm ran no test: {why}");
            run.diagnosis.iter_mut().for_each(|diagnosis| diagnosis.untested_reason = Some(why.clone()));
        }
    }
}

fn cannot_run(error: RunError) -> Failure {
    Failure::CannotRun(error.to_string())
}

/// Rejects results that cannot be confirmed or kept, before the run instead of after it.
fn check_results(args: CommandArgs<'_>) -> Result<(), Failure> {
    if args.is_set("confirm") && args.is_set("no-watch") {
        let text = "--no-watch gives no diagnosis to confirm: remove one of them";
        return Err(vec![InputProblem::new("--confirm", text)].into());
    }
    preflight::outputs(args, STDOUT_FLAGS, &["hdr"])
}

/// Builds the record of a run, with its verdict.
pub(super) fn build_run(
    job: &LoadJob<'_>,
    measured: &RunMeasurement,
    watcher: &RunWatcher,
    observed: Option<&MachineObservation>,
    started_at: String,
) -> Run {
    let facts = host::facts::read();
    let window = watcher.window();
    let mut cpu = watcher::cpu_record(window.as_ref());
    let mut not_observable = watcher.not_observable();
    if let Err(unknown) = &job.subjects {
        not_observable.push(unknown.to_string());
        cpu.subject_cpus = None;
        cpu.foreign_cpus = None;
    } else if let Some(observed) = observed {
        watcher::apply_role_cpus(&mut cpu, observed, measured);
    }
    let run_queue_wait_fraction = watcher::max_run_queue_wait(window.as_ref());
    let stored = store::load(&facts.fingerprint);
    let calibrated = calibration_use(job.calibration.as_ref(), &stored, measured);
    let busiest = cpu.per_core.iter().copied().reduce(f64::max);
    let host = HostEvidence {
        // A thread that spins is always busy, which does not show its spare capacity.
        busiest_thread_fraction: busiest.filter(|_| !measured.plan.spin),
        run_queue_wait_fraction,
        cpus: facts.cpus_online,
        foreign_cpus: cpu.foreign_cpus,
        steal_fraction: cpu.steal_fraction,
        scarce_ports: job.scarce_ports.clone(),
        calibrated_fraction: calibrated.as_ref().map(|calibrated| calibrated.used_fraction),
    };
    let context = RecordContext {
        weir: WeirVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("WEIR_COMMIT").to_owned(),
        },
        command: job.arguments.to_vec(),
        started_at,
        identity: RunIdentity {
            id: random_id(),
            host: facts.hostname.clone(),
            pid: std::process::id(),
            start_unix_ns: watcher.start_unix_ns(),
        },
        host: host_record(facts, not_observable),
        validity: judge(&Evidence { measured, host }),
        cpu,
        run_queue_wait_fraction,
        calibrated,
    };
    build_record(measured, context)
}

/// Returns 128 random bits; the operating system seeds the hashers of the standard library.
fn random_id() -> String {
    let bits = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", bits(), bits())
}

fn calibration_use(
    fresh: Option<&Calibration>,
    stored: &[Calibration],
    measured: &RunMeasurement,
) -> Option<CalibratedCapacity> {
    let response_bytes = measured.counters.bytes_in / measured.counters.responses.max(1);
    let profile = LoadProfile::from_plan(&measured.plan, response_bytes);
    let calibration = fresh.or_else(|| find_nearest(stored, &profile))?;
    let responses_per_s = calibration.per_core_per_s * measured.plan.threads as f64;
    Some(CalibratedCapacity {
        responses_per_s,
        used_fraction: measured.responses_per_s() / responses_per_s.max(1e-9),
        profile: calibration.profile.to_string(),
    })
}

pub(super) fn host_record(facts: HostFacts, mut not_observable: Vec<String>) -> RecordedHost {
    not_observable.extend(facts.not_observable.iter().map(ToString::to_string));
    RecordedHost {
        kernel: facts.kernel,
        os: facts.os,
        name: Some(facts.hostname),
        cpus: facts.cpus_online.unwrap_or_else(|| rt::cores::available_cpus().len() as u32),
        cpu_model: facts.cpu_model,
        memory_bytes: facts.memory_bytes.unwrap_or(0),
        congestion_control: facts.congestion_control,
        virtualised: facts.virtualised,
        fingerprint: facts.fingerprint,
        limits: HostLimits {
            descriptors: facts.nofile_hard,
            port_range: facts.port_range,
            somaxconn: facts.somaxconn.map(u64::from),
        },
        not_observable,
    }
}

/// Returns the local processes that listen on the target address; none when the load goes
/// elsewhere.
pub(super) fn find_subjects(plan: &RunPlan) -> Subjects {
    if let Some(path) = &plan.unix {
        return host::sockets::find_unix_listeners(path);
    }
    let mut pids = Vec::new();
    for authority in plan.authorities() {
        if let Ok(rt::address::Address::Tcp(address)) = authority.resolve() {
            pids.extend(host::sockets::find_listeners(address)?);
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Returns the processes that the user named; each must exist.
fn check_subject_pids(pids: &[i32]) -> Result<Vec<i32>, Vec<InputProblem>> {
    let absent = pids.iter().filter(|pid| host::process::thread_ids(**pid).is_err());
    let problems: Vec<InputProblem> = absent
        .map(|pid| InputProblem::new("--subject", format!("no process {pid} on this machine")))
        .collect();
    if problems.is_empty() { Ok(pids.to_vec()) } else { Err(problems) }
}
