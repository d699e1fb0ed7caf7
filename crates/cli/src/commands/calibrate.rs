//! `weir calibrate`, and the short calibration of the embedded job.

use host::facts::HostFacts;
use load::calibrate::{
    CLIENT_UTILISATION, Calibration, JUDGING_TRIAL_S_MIN, JUDGING_TRIALS_MIN, Profile, SPREAD_MAX,
    Trial, clients_needed, open_trial_plan, summarise, trial_plan,
};
use load::plan::Plan;
use record::problem::Problem;
use record::units::{
    DurationUnit, SECOND_NS, count_of, format_count, parse_count, parse_duration_ns, parse_size,
};
use rt::drain::{Drain, DrainWatch, Held, Stage, hold_signals};

use crate::embedded::Origin;
use crate::exit::{Exit, Failure};
use crate::flags::{Typed, calibrate_text};
use crate::output::file::write_json;
use crate::output::print;
use crate::watcher::Watcher;
use crate::{preflight, store};

/// How trials are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trials {
    /// Of each kind.
    pub(super) each: usize,
    /// Length of one.
    pub(super) duration_ns: u64,
    /// The origin's process.
    pub(super) subject: i32,
}

/// What was asked for beyond the load itself.
pub(super) struct Asked {
    size: u64,
    each: usize,
    duration_ns: u64,
    target_per_s: Option<f64>,
}

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let cores = rt::cores::available().len();
    let (asked, plan) = check(typed, "http://127.0.0.1:1/".to_owned())?;
    preflight::outputs(typed, &["json"], &[])?;
    preflight::check(&plan)?;
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let origin = Origin::start(cores)?;
    let plan = Plan::parse(&calibrate_text(typed, origin.url(asked.size)), cores)?;
    let trials = Trials { each: asked.each, duration_ns: asked.duration_ns, subject: origin.pid() };
    let Both { closed, open } = calibrate(&plan, &trials, &host::facts::read(), &stop)?;
    let json = typed.text("json");
    if json.as_deref() != Some("-") {
        print(&words(&closed));
        print(&open_words(&open));
        if let Some(target) = asked.target_per_s {
            print(&target_words(target, &open));
        }
    }
    write_json(&closed, json.as_deref())?;
    let kept = store::keep(&closed).and_then(|_| store::keep(&open));
    match kept {
        Ok(path) if json.as_deref() != Some("-") => {
            let why = match closed.judges() {
                true => String::new(),
                false => format!(
                    "; judges no later run, which takes {JUDGING_TRIALS_MIN} trials of \
                     {JUDGING_TRIAL_S_MIN:.0} s"
                ),
            };
            print(&format!("kept         {}{why}\n", path.display()));
        }
        Ok(_) => {}
        Err(failure) => note!("weir: {}", failure.lines().join("; ")),
    }
    Ok(Exit::Done)
}

/// Reads all flags, for requests to `url`; every problem at once.
pub(super) fn check(typed: Typed<'_>, url: String) -> Result<(Asked, Plan), Vec<Problem>> {
    let plan = Plan::parse(&calibrate_text(typed, url), rt::cores::available().len());
    match (asked(typed), plan) {
        (Ok(asked), Ok(plan)) => Ok((asked, plan)),
        (asked, plan) => {
            let mut problems = asked.err().unwrap_or_default();
            problems.extend(plan.err().unwrap_or_default());
            Err(problems)
        }
    }
}

fn asked(typed: Typed<'_>) -> Result<Asked, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut read = |flag: &str, default: u64, parse: &dyn Fn(&str) -> Result<u64, String>| {
        let Some(text) = typed.text(flag) else {
            return default;
        };
        parse(&text).unwrap_or_else(|why| {
            problems.push(Problem::new(format!("--{flag}"), why));
            default
        })
    };
    let size = read("size", 100, &parse_size);
    let each = read("trials", 5, &|text| {
        let within = parse_count(text)?;
        if (1..=100).contains(&within) { Ok(within) } else { Err("1 to 100 trials".to_owned()) }
    });
    let duration_ns = read("trial-time", 2 * SECOND_NS, &|text| {
        let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
        let within = (SECOND_NS..=60 * SECOND_NS).contains(&ns);
        if within { Ok(ns) } else { Err("a trial takes 1s to 60s".to_owned()) }
    });
    let target = read("target", 0, &|text| match parse_count(text)? {
        0 => Err("a target of 0 needs no machine".to_owned()),
        target => Ok(target),
    });
    if !problems.is_empty() {
        return Err(problems);
    }
    let target_per_s = (target > 0).then_some(target as f64);
    Ok(Asked { size, each: each as usize, duration_ns, target_per_s })
}

/// A calibration in each mode.
pub(super) struct Both {
    /// A saturated closed loop: the most that the machine does.
    pub(super) closed: Calibration,
    /// An open loop at the utilisation that clients are planned for: what a request costs there.
    pub(super) open: Calibration,
}

/// Runs trials with one thread and with as many as the plan's machine has, and in an open loop at half
/// of what one thread reached, in turn.
pub(super) fn calibrate(
    plan: &Plan,
    trials: &Trials,
    facts: &HostFacts,
    stop: &DrainWatch,
) -> Result<Both, Failure> {
    let cpus = rt::cores::available().len().min(plan.connections as usize).max(1);
    let kinds: &[usize] = if cpus == 1 { &[1] } else { &[1, cpus] };
    let (mut closed, mut open, mut response_bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..trials.each {
        let mut reached_per_s = 0.0;
        for &threads in kinds {
            let (trial, bytes) =
                run_trial(trial_plan(plan, threads, trials.duration_ns), trials, stop)?;
            if threads == 1 {
                reached_per_s = trial.responses_per_s;
            }
            response_bytes = bytes;
            closed.push(trial);
        }
        let half = open_trial_plan(plan, reached_per_s, trials.duration_ns);
        open.push(run_trial(half, trials, stop)?.0);
    }
    let summarised = |done, open_loop| {
        let profile = Profile { open_loop, ..Profile::of(plan, response_bytes) };
        let made = (
            record::file::wall_clock(),
            facts.fingerprint.clone(),
            env!("CARGO_PKG_VERSION").to_owned(),
        );
        summarise(done, cpus as u32, profile, trials.duration_ns as f64 / 1e9, made)
    };
    Ok(Both { closed: summarised(closed, false), open: summarised(open, true) })
}

/// Runs one trial; what it did, and the bytes of a response.
fn run_trial(plan: Plan, trials: &Trials, stop: &DrainWatch) -> Result<(Trial, u64), Failure> {
    let mut watcher = Watcher::new(vec![trials.subject], None, None);
    let measured = load::run::run(&plan, stop, &mut watcher)
        .map_err(|error| Failure::cannot("calibration", error))?;
    if stop.stage() != Stage::Running {
        return Err(Failure::CannotRun("the calibration was ended by hand".to_owned()));
    }
    let bad = measured.counters.requests.saturating_sub(measured.counters.good());
    if bad > 0 || measured.counters.responses == 0 {
        let failed = count_of(bad, "request");
        let text = format!("calibration: {failed} had no good response from our own origin");
        return Err(Failure::CannotRun(text));
    }
    let window = watcher.window();
    let shares = window.iter().flat_map(|window| &window.own_threads);
    let trial = Trial {
        threads: plan.threads as u32,
        responses_per_s: measured.responses_per_s(),
        generator_cpus: shares.map(|thread| thread.busy_share).sum(),
    };
    Ok((trial, measured.counters.bytes_in / measured.counters.responses))
}

/// The rate that trials with `threads` threads reached, with the origin beside them.
pub(super) fn reached_per_s(calibration: &Calibration, threads: usize) -> f64 {
    let of = calibration.trials.iter().filter(|trial| trial.threads as usize == threads);
    let reached = of.map(|trial| trial.responses_per_s).reduce(f64::min);
    reached.unwrap_or(calibration.all_with_origin_per_s)
}

/// A calibration as people read it.
pub(super) fn words(calibration: &Calibration) -> String {
    let mut text = format!(
        "calibrated   {} ({} of each kind)\n\
         per core     {}/s{}\n\
         in all       {}/s on {}, if the server is elsewhere; {}/s with it beside{}\n",
        calibration.profile,
        count_of(
            calibration.trials.iter().filter(|trial| trial.threads == 1).count() as u64,
            "trial"
        ),
        format_count(calibration.per_core_per_s),
        spread(calibration.per_core_spread),
        format_count(calibration.all_per_s),
        count_of(calibration.cpus.into(), "processor"),
        format_count(calibration.all_with_origin_per_s),
        spread(calibration.all_spread),
    );
    if calibration.spread_max().is_some_and(|spread| spread > SPREAD_MAX) {
        text.push_str("             the spread is large: something else runs on this machine\n");
    }
    text
}

/// The cost of a request in an open loop, in words.
fn open_words(open: &Calibration) -> String {
    let rates = open.trials.iter().map(|trial| trial.responses_per_s);
    format!(
        "open loop    {}/s per core, at what a request costs at {}/s{}\n",
        format_count(open.per_core_per_s),
        format_count(rates.clone().sum::<f64>() / rates.count().max(1) as f64),
        spread(open.per_core_spread)
    )
}

/// Nothing of one trial, which has no spread.
fn spread(spread: Option<f64>) -> String {
    spread.map_or_else(String::new, |spread| format!(" (spread {:.0} %)", spread * 100.0))
}

fn target_words(target_per_s: f64, calibration: &Calibration) -> String {
    match clients_needed(target_per_s, calibration) {
        Some(clients) => format!(
            "target       {}/s needs {} like this one, each at {:.0} % of what it \
             can do in an open loop\n",
            format_count(target_per_s),
            count_of(clients, "machine"),
            CLIENT_UTILISATION * 100.0
        ),
        None => "target       cannot be worked out: the trials drove nothing\n".to_owned(),
    }
}
