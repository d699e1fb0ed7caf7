//! `weir load`.

mod baseline;
mod confirm;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::path::Path;

use host::facts::HostFacts;
use load::calibrate::{Calibration, Profile, nearest};
use load::pace::Pace;
use load::plan::{Plan, PlanText};
use load::report::{Context, record};
use load::run::{Measured, RunError};
use load::validity::{Evidence, HostEvidence, judge};
use record::facts::{HostFacts as RecordedHost, HostLimits};
use record::interval_log::IntervalLog;
use record::observed::Observed;
use record::problem::Problem;
use record::run::{Calibrated, Identity, Run, Weir};
use record::units::{SECOND_NS, format_duration_ns};
use rt::drain::{Drain, DrainWatch, Held, Signals, hold_signals};

use super::calibrate::{self, Trials};
use crate::embedded::Origin;
use crate::exit::{Exit, Failure};
use crate::flags::{Typed, load_text, subject_pids};
use crate::observation::{Observation, diagnose};
use crate::output::csv::csv;
use crate::output::file::{write_json, write_text};
use crate::output::live::Live;
use crate::output::percentiles::percentiles;
use crate::output::summary::summary;
use crate::output::{colour, print};
use crate::watcher::{self, Watcher};
use crate::{preflight, store};

/// Results that may go to stdout.
const TEXTS: &[&str] = &["json", "csv"];

pub(super) fn run(typed: Typed<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let text = load_text(typed)?;
    check_results(typed)?;
    let named = named_subjects(&subject_pids(typed)?)?;
    // A run that was killed may have left the subject with less than its share of the processors.
    super::lab::sweep();
    let drain = Drain::default();
    let stop = drain.watch();
    if text.urls.is_empty() && text.unix.is_none() {
        return embedded(typed, text, arguments, drain, &stop);
    }
    let plan = Plan::parse(&text, rt::cores::available().len())?;
    let ports_tight = preflight::check(&plan)?;
    hold_signals(Held::Stop)?.follow(drain, Some(stopping(&plan)))?;
    let subjects = if named.is_empty() { subjects(&plan) } else { Ok(named) };
    drive(&Job { typed, arguments, plan, subjects, ports_tight, calibration: None }, &stop)
}

/// Nothing to load was named: measures this machine with an origin of its own.
fn embedded(
    typed: Typed<'_>,
    mut text: PlanText,
    arguments: &[String],
    drain: Drain,
    stop: &DrainWatch,
) -> Result<Exit, Failure> {
    let cores = rt::cores::available().len();
    // The flags are checked before anything is started; the real port comes with the origin.
    text.urls = vec!["http://127.0.0.1:1/".to_owned()];
    let plan = Plan::parse(&text, cores)?;
    preflight::check(&plan)?;
    hold_signals(Held::Stop)?.follow(drain, Some(stopping(&plan)))?;
    let origin = Origin::start(cores.div_ceil(2))?;
    text.urls = vec![origin.url(EMBEDDED_BODY_BYTES)];
    let mut plan = Plan::parse(&text, cores)?;
    let quiet = preflight::takes_stdout(typed, TEXTS);
    let say = |line: &str| {
        if !quiet {
            print(line);
        }
    };
    say(&format!(
        "origin       {} (embedded; another weir, process {})\n",
        text.urls[0],
        origin.pid()
    ));
    let trials = Trials { each: 3, duration_ns: SECOND_NS, subject: origin.pid() };
    // A quick look like this judges this run and no later one, so it is not kept.
    let both = calibrate::calibrate(&plan, &trials, &host::facts::read(), stop)?;
    say(&calibrate::words(&both.closed));
    if let Pace::Closed { think_ns: 0 } = plan.pace {
        let rate_per_s = calibrate::reached_per_s(&both.closed, plan.threads) * EMBEDDED_SHARE;
        let rate_per_s = round_to_two_digits(rate_per_s);
        say(&format!("driving it at a quarter of that, {rate_per_s:.0}/s, in an open loop\n\n"));
        let arrivals = load::plan::Arrivals::Constant;
        plan.pace = Pace::Open { rate_per_s, arrivals };
        plan.line_max =
            load::plan::LINE_MAX.min((rate_per_s * plan.timeout_ns as f64 / 1e9) as u64);
    }
    let subjects = Ok(vec![origin.pid()]);
    let calibration = Some(if plan.is_open_loop() { both.open } else { both.closed });
    drive(&Job { typed, arguments, plan, subjects, ports_tight: None, calibration }, stop)
}

/// Says at the first Ctrl-C what happens now: requests that hang may take a while.
fn stopping(plan: &Plan) -> Signals {
    let most = format_duration_ns(plan.drain_ns);
    Signals::drained(move || {
        note!(
            "weir: stopping; waits up to {most} for requests that are under way (a second Ctrl-C ends it \
             at once)"
        );
    })
}

/// Body of the embedded origin's answers.
const EMBEDDED_BODY_BYTES: u64 = 100;
/// Share of the calibrated rate that the embedded job drives: requests that come one by one cost the
/// kernel twice as much as those of a saturated loop, so half would be close to the limit again.
const EMBEDDED_SHARE: f64 = 0.25;

fn round_to_two_digits(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.max(10.0).log10().floor() - 1.0);
    (rate / unit).round() * unit
}

/// The processes under load on this machine, or why it cannot be told which they are: then the
/// processor time of others cannot be told from theirs.
pub(super) type Subjects = Result<Vec<i32>, host::NotObservable>;

/// One load with everything around it.
pub(super) struct Job<'a> {
    pub(super) typed: Typed<'a>,
    pub(super) arguments: &'a [String],
    pub(super) plan: Plan,
    pub(super) subjects: Subjects,
    pub(super) ports_tight: Option<String>,
    /// One that was just made for this run; otherwise the nearest that is stored.
    pub(super) calibration: Option<Calibration>,
}

fn drive(job: &Job<'_>, stop: &DrainWatch) -> Result<Exit, Failure> {
    let typed = job.typed;
    let quiet = preflight::takes_stdout(typed, TEXTS);
    let terminal = std::io::stdout().is_terminal();
    let lines = !quiet && !typed.is_set("quiet") && (terminal || typed.is_set("live"));
    let baseline = match typed.is_set("no-watch") || typed.is_set("no-baseline") {
        false if baseline::is_due(&job.plan) => baseline::measure(&job.plan, stop),
        _ => None,
    };
    let started_at = record::file::wall_clock();
    let log = match typed.text("hdr") {
        Some(path) => Some(
            IntervalLog::create(Path::new(&path), &started_at)
                .map_err(|error| Failure::cannot(&path, error))?,
        ),
        None => None,
    };
    let named = subject_pids(typed)?;
    let mut watcher =
        Watcher::new(job.subjects.clone().unwrap_or_default(), lines.then(Live::default), log)
            .observing((!typed.is_set("no-watch")).then(|| Observation::start(&job.plan, &named)));
    if typed.is_set("confirm") && !quiet {
        note!("weir: {}", confirm::announced());
    }
    let measured = load::run::run(&job.plan, stop, &mut watcher).map_err(cannot_run)?;
    let observed = watcher.observed(&started_at);
    let mut run = recorded(job, &measured, &watcher, observed.as_ref(), started_at);
    run.baseline = baseline;
    if let Some(observed) = observed {
        diagnose(&mut run, observed);
    }
    if typed.is_set("confirm") {
        confirm_diagnosis(job, &mut run, quiet, stop);
    }
    if !quiet {
        print(&format!("{}{}", if lines { "\n" } else { "" }, summary(&run, colour())));
        if typed.is_set("percentiles") {
            print(&percentiles(&measured.latencies));
        }
    }
    write_json(&run, typed.text("json").as_deref())?;
    write_text(&csv(&run), typed.text("csv").as_deref())?;
    watcher.finish_log().map_err(|error| Failure::cannot("--hdr", error))?;
    Ok(Exit::of_run(&run))
}

/// Makes the counter-test of the diagnosis, and puts its outcome into the record. Where it cannot be
/// made, the verdict stays as it is, neither confirmed nor refuted, with the reason.
fn confirm_diagnosis(job: &Job<'_>, run: &mut Run, quiet: bool, stop: &DrainWatch) {
    let subjects = job.subjects.clone().unwrap_or_default();
    match confirm::confirm(&job.plan, run, &subjects, quiet, stop) {
        Ok(outcome) => {
            run.diagnosis = run.diagnosis.take().map(|found| lab::confirm::settle(found, outcome));
        }
        Err(why) => {
            note!("weir: --confirm made no test: {why}");
            run.diagnosis.iter_mut().for_each(|found| found.untested = Some(why.clone()));
        }
    }
}

fn cannot_run(error: RunError) -> Failure {
    Failure::CannotRun(error.to_string())
}

/// What cannot be confirmed, or kept, is found out before the run and not after it.
fn check_results(typed: Typed<'_>) -> Result<(), Failure> {
    if typed.is_set("confirm") && typed.is_set("no-watch") {
        let text = "there is nothing to confirm with --no-watch";
        return Err(vec![Problem::new("--confirm", text)].into());
    }
    preflight::outputs(typed, TEXTS, &["hdr"])
}

/// The record of a run, with its verdict.
pub(super) fn recorded(
    job: &Job<'_>,
    measured: &Measured,
    watcher: &Watcher,
    observed: Option<&Observed>,
    started_at: String,
) -> Run {
    let facts = host::facts::read();
    let window = watcher.window();
    let mut cpu = watcher::cpu(window.as_ref());
    let mut not_observable = watcher.not_observable();
    if let Err(unknown) = &job.subjects {
        not_observable.push(unknown.to_string());
        cpu.subject_cpus = None;
        cpu.foreign_cpus = None;
    } else if let Some(observed) = observed {
        watcher::cpu_of_roles(&mut cpu, observed, measured);
    }
    let run_queue_wait_share = watcher::run_queue_wait_share(window.as_ref());
    let stored = store::load(&facts.fingerprint);
    let calibrated = held_against(job.calibration.as_ref(), &stored, measured);
    let busiest = cpu.per_core.iter().copied().reduce(f64::max);
    let host = HostEvidence {
        // A thread that spins is always busy; that says nothing of what it could still do.
        busiest_thread_share: busiest.filter(|_| !measured.plan.spin),
        run_queue_wait_share,
        cpus: facts.cpus_online,
        foreign_cpus: cpu.foreign_cpus,
        steal_share: cpu.steal_share,
        ports_tight: job.ports_tight.clone(),
        calibrated_share: calibrated.as_ref().map(|calibrated| calibrated.used_share),
    };
    let context = Context {
        weir: Weir {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("WEIR_COMMIT").to_owned(),
        },
        command: job.arguments.to_vec(),
        started_at,
        identity: Identity {
            id: random_id(),
            host: facts.hostname.clone(),
            pid: std::process::id(),
            start_unix_ns: watcher.start_unix_ns(),
        },
        host: recorded_host(facts, not_observable),
        validity: judge(&Evidence { measured, host }),
        cpu,
        run_queue_wait_share,
        calibrated,
    };
    record(measured, context)
}

/// 128 random bits; the standard library seeds its hashers from the operating system.
fn random_id() -> String {
    let bits = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", bits(), bits())
}

fn held_against(
    own: Option<&Calibration>,
    stored: &[Calibration],
    measured: &Measured,
) -> Option<Calibrated> {
    let response_bytes = measured.counters.bytes_in / measured.counters.responses.max(1);
    let profile = Profile::of(&measured.plan, response_bytes);
    let calibration = own.or_else(|| nearest(stored, &profile))?;
    let responses_per_s = calibration.per_core_per_s * measured.plan.threads as f64;
    Some(Calibrated {
        responses_per_s,
        used_share: measured.responses_per_s() / responses_per_s.max(1e-9),
        profile: calibration.profile.to_string(),
    })
}

pub(super) fn recorded_host(facts: HostFacts, mut not_observable: Vec<String>) -> RecordedHost {
    not_observable.extend(facts.not_observable.iter().map(ToString::to_string));
    RecordedHost {
        kernel: facts.kernel,
        os: facts.os,
        name: Some(facts.hostname),
        cpus: facts.cpus_online.unwrap_or_else(|| rt::cores::available().len() as u32),
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

/// The processes on this machine that listen where the load goes; none when it goes elsewhere.
pub(super) fn subjects(plan: &Plan) -> Subjects {
    if let Some(path) = &plan.unix {
        return host::sockets::listeners_of_unix(path);
    }
    let mut pids = Vec::new();
    for authority in plan.authorities() {
        if let Ok(rt::address::Address::Tcp(address)) = authority.resolve() {
            pids.extend(host::sockets::listeners_of(address)?);
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The processes that were named; each has to be there.
fn named_subjects(pids: &[i32]) -> Result<Vec<i32>, Vec<Problem>> {
    let absent = pids.iter().filter(|pid| host::process::thread_ids(**pid).is_err());
    let problems: Vec<Problem> = absent
        .map(|pid| Problem::new("--subject", format!("there is no process {pid} on this machine")))
        .collect();
    if problems.is_empty() { Ok(pids.to_vec()) } else { Err(problems) }
}
