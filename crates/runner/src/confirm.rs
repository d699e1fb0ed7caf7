//! `--confirm`: changes the limit that the verdict names, and checks whether the throughput reacts
//! as predicted. It alternates short trials of the original and the changed plan.
//!
//! A test that could only have one outcome here is not made, with the reason.

use diagnose::counter_test::{CounterTestError, PAIRS_PER_TEST, combine, decision_threshold, judge};
use diagnose::verdicts::{CounterTest, NONE, Perturbation, ThroughputChange, find_rule};
use host::observe::GENERATOR;
use host::process_tree::with_descendants;
use load::measurement::RunError;
use load::observer::NoopObserver;
use load::pace::Pace;
use load::plan::RunPlan;
use record::run::{Confirmation, Run};
use record::units::{SECOND_NS, format_count, format_plural};
use rt::drain::{DrainStage, DrainWatch};

use crate::preflight;
use crate::run_record::LoadJob;

/// Length of a load of `--confirm`.
pub const TRIAL_NS: u64 = 3 * SECOND_NS;
/// An open loop that got this fraction of its offered rate was not limited.
const OFFERED_MET_FRACTION: f64 = 0.98;

/// Reason why the verdict of a run is neither confirmed nor refuted.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// The verdict names no limit, with the reason.
    #[error("{0}")]
    NoLimit(&'static str),
    /// The run was not observed.
    #[error("no samples of this load (--no-watch)")]
    NoSamples,
    /// The test would prove nothing about this load, or not from this process, with the reason.
    #[error("{0}")]
    NotPossible(String),
    /// The limits of this machine refuse the changed load.
    #[error("{0}")]
    Refused(String),
    /// No test distinguishes the verdict, or its outcome is undecided.
    #[error(transparent)]
    CounterTest(#[from] CounterTestError),
    /// The CPU time of the subject cannot be limited, with the reason.
    #[error("{0}")]
    Throttle(String),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("stopped by the user")]
    Stopped,
}

fn not_possible(reason: impl Into<String>) -> ConfirmError {
    ConfirmError::NotPossible(reason.into())
}

/// Limits the CPU time of processes to a number of CPUs while it calls a function; passes its result on.
pub type Throttle =
    fn(&[i32], f64, &mut dyn FnMut() -> Result<f64, ConfirmError>) -> Result<f64, ConfirmError>;

/// Means of a counter-test beside the load generator.
#[derive(Clone, Copy)]
pub struct ConfirmContext {
    /// Limits the CPU time of the subject; `None` if the user did not allow it.
    pub throttle: Option<Throttle>,
    /// Length of a load of the test.
    pub trial_ns: u64,
    /// Reports what is tested, and why nothing is.
    pub notice: fn(&str),
    /// True if only problems are reported.
    pub quiet: bool,
}

/// Makes the counter-test of the diagnosis, and puts its outcome into the record. If the test is
/// impossible, the verdict stays neither confirmed nor refuted, with the reason.
pub fn confirm_diagnosis(job: &LoadJob<'_>, run: &mut Run, context: ConfirmContext, stop: &DrainWatch) {
    if let Err(why) = test_diagnosis(job, run, context, stop) {
        (context.notice)(&format!("--confirm ran no test: {why}"));
    }
}

/// Rates of a counter-test.
#[derive(Clone, Debug)]
pub struct TestedPairs {
    pub perturbation: Perturbation,
    /// Good responses per second without and with it, in turn.
    pub pairs: Vec<(f64, f64)>,
}

/// Makes the counter-test of the diagnosis, and puts its outcome into the record, or the reason why it is
/// impossible. Returns the rates of each change.
///
/// # Errors
/// There was no test, or it decided nothing.
pub fn test_diagnosis(
    job: &LoadJob<'_>,
    run: &mut Run,
    context: ConfirmContext,
    stop: &DrainWatch,
) -> Result<Vec<TestedPairs>, ConfirmError> {
    let subjects = job.subjects.clone().unwrap_or_default();
    match confirm(&job.plan, run, &subjects, context, stop) {
        Ok((outcome, tested)) => {
            run.diagnosis = run
                .diagnosis
                .take()
                .map(|diagnosis| diagnose::counter_test::apply_confirmation(diagnosis, outcome));
            Ok(tested)
        }
        Err(why) => {
            run.diagnosis.iter_mut().for_each(|diagnosis| diagnosis.untested_reason = Some(why.to_string()));
            Err(why)
        }
    }
}

/// Returns the outcome of the counter-test of a run's verdict, or why it cannot be made.
fn confirm(
    plan: &RunPlan,
    run: &Run,
    subjects: &[i32],
    context: ConfirmContext,
    stop: &DrainWatch,
) -> Result<(Confirmation, Vec<TestedPairs>), ConfirmError> {
    let code = run.diagnosis.as_ref().map_or(NONE, |diagnosis| diagnosis.verdict.as_str());
    if find_rule(code).is_none() {
        return Err(ConfirmError::NoLimit(nothing_to_test(code)));
    }
    let cpus = usable_cpus(plan, run, rt::cores::available_cpus().len());
    let diagnosis = run.diagnosis.as_ref().ok_or(ConfirmError::NoSamples)?;
    let (mut changes, mut refused) = (Vec::new(), None);
    for test in diagnose::counter_test::distinguishing_tests(diagnosis)? {
        let possible = match (test.0, context.throttle) {
            (Perturbation::LessCpuTime, None) => Err(not_possible(
                "the test would limit the CPU time of your service: allow it with --confirm",
            )),
            _ => change(plan, run, test, cpus),
        };
        match possible {
            Ok(change) => changes.push((test, change)),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    // Each change alone tests the verdict.
    if let (true, Some(why)) = (changes.is_empty(), refused) {
        return Err(why);
    }
    if !context.quiet {
        let cost = format_cost(changes.len(), context.trial_ns);
        (context.notice)(&format!("testing whether it is {code} takes {cost}"));
    }
    let (mut tests, mut tested) = (Vec::new(), Vec::new());
    for (test, change) in changes {
        let pairs = measure_pairs((plan, run), &change, (subjects, context), stop)?;
        tests.push(judge(code, test, &pairs)?);
        tested.push(TestedPairs { perturbation: test.0, pairs });
    }
    let outcome = combine(tests).ok_or_else(|| not_possible("weir has no change that tests it"))?;
    Ok((outcome, tested))
}

/// Announces the cost of `--confirm` before the thing to test is known.
pub fn announcement() -> String {
    format!(
        "after this load --confirm tests the diagnosis with short loads: {}; {} with two changes",
        format_cost(1, TRIAL_NS),
        format_cost(2, TRIAL_NS)
    )
}

/// Formats the cost of so many changes: "about 18 s (6 loads of 3 s)".
fn format_cost(changes: usize, trial_ns: u64) -> String {
    let (loads, each_s) = ((changes * PAIRS_PER_TEST * 2) as u64, trial_ns / SECOND_NS);
    format!("about {} s ({} of {each_s} s)", loads * each_s, format_plural(loads, "load"))
}

/// Explains why a verdict without a limit has no test.
fn nothing_to_test(code: &str) -> &'static str {
    match code {
        NONE => "nothing limited this load, so there is no limit to test; increase the load to find one",
        _ => "the limit of this load is unknown, so there is no limit to test",
    }
}

/// Measures the rates of the original and the changed plan, alternating.
fn measure_pairs(
    (plan, run): (&RunPlan, &Run),
    change: &PlanChange,
    (subjects, context): (&[i32], ConfirmContext),
    stop: &DrainWatch,
) -> Result<Vec<(f64, f64)>, ConfirmError> {
    let used_cpus = run.cpu.subject_cpus.unwrap_or(0.0);
    let measure = |plan: &RunPlan| measure_rate(plan, context.trial_ns, stop);
    let mut pairs = Vec::new();
    for _ in 0..PAIRS_PER_TEST {
        let base = measure(plan)?;
        let changed = match (change, context.throttle) {
            (PlanChange::ThrottleCpu, Some(throttle)) => {
                let quota_cpus = used_cpus * Perturbation::LessCpuTime.factor();
                throttle(&with_descendants(subjects), quota_cpus, &mut || measure(plan))?
            }
            (PlanChange::ThrottleCpu, None) => return Err(not_possible("the CPU time may not be limited")),
            (PlanChange::Plan(changed), _) => measure(changed)?,
        };
        pairs.push((base, changed));
    }
    Ok(pairs)
}

/// Change for every second trial.
#[derive(Debug)]
enum PlanChange {
    Plan(Box<RunPlan>),
    ThrottleCpu,
}

/// Returns the change for a test in a process that may use `cpus` CPUs, or the reason why the test
/// would prove nothing.
fn change(plan: &RunPlan, run: &Run, test: CounterTest, cpus: f64) -> Result<PlanChange, ConfirmError> {
    let (perturbation, expected, _) = test;
    check_offered_rate(run, decision_threshold(perturbation, expected))?;
    let mut changed = plan.clone();
    match perturbation {
        Perturbation::SecondGenerator => {
            changed.threads *= 2;
            check_cpu_headroom(run, changed.threads, cpus, decision_threshold(perturbation, expected))?;
            changed.connections = changed.connections.max(changed.threads as u64);
        }
        Perturbation::DoubleConnections => changed.connections *= 2,
        Perturbation::HalveConnections => {
            changed.connections = (changed.connections / 2).max(1);
            // Each thread needs a connection.
            let max_threads = usize::try_from(changed.connections).unwrap_or(usize::MAX);
            changed.threads = changed.threads.min(max_threads);
        }
        Perturbation::ToggleKeepAlive => {
            if changed.requests_per_connection.is_none() {
                return Err(not_possible(
                    "the test would keep connections open between requests, and this load does so already (it \
                     has no -r)",
                ));
            }
            changed.requests_per_connection = None;
        }
        Perturbation::ThinkTime => {
            let Pace::Closed { think_ns } = &mut changed.pace else {
                return Err(not_possible(
                    "the test would add a pause before each request, and a load at a fixed rate (-R) has none",
                ));
            };
            if expected == ThroughputChange::Stays && plan.connections < 2 {
                return Err(not_possible(
                    "the test would add a pause that other connections make up for, and there is only one",
                ));
            }
            *think_ns += (run.latency.last_byte.service.mean_ns / 2.0) as u64;
        }
        Perturbation::LessCpuTime => return Ok(PlanChange::ThrottleCpu),
        Perturbation::NotPossible => {
            return Err(not_possible("weir has no change that tests this verdict"));
        }
    }
    if changed == *plan {
        let change_text = perturbation.description();
        return Err(not_possible(format!(
            "the test would be {change_text}, which does not change this load"
        )));
    }
    preflight::check(&changed).map_err(|failure| ConfirmError::Refused(failure.lines().join("; ")))?;
    Ok(PlanChange::Plan(Box::new(changed)))
}

/// Checks whether an open loop offers enough for the throughput to pass `ratio`, where the outcomes
/// differ. A closed loop always does.
fn check_offered_rate(run: &Run, ratio: f64) -> Result<(), ConfirmError> {
    let answered_per_s = run.goodput_per_s();
    let Some(offered_per_s) = run.rates.offered_per_s else {
        return Ok(());
    };
    if answered_per_s >= offered_per_s * OFFERED_MET_FRACTION {
        return Err(not_possible(
            "a load at a fixed rate with all responses has no limit that a test could move; increase -R, or \
             remove it",
        ));
    }
    if ratio > 1.0 && offered_per_s <= ratio * answered_per_s {
        return Err(not_possible(format!(
            "{}/s were offered and {}/s got a response: the throughput cannot rise far enough for a \
             test; increase -R, or remove it",
            format_count(offered_per_s),
            format_count(answered_per_s)
        )));
    }
    Ok(())
}

/// Checks whether a second generator has CPUs to run on: those of this process, and as many of the
/// machine as raise the throughput by `ratio`. In a process without spare CPUs the test would prove
/// nothing.
fn check_cpu_headroom(run: &Run, threads: usize, cpus: f64, ratio: f64) -> Result<(), ConfirmError> {
    if threads as f64 > cpus {
        return Err(not_possible(format!(
            "a second generator would make it {threads} threads, and this process may use \
             {cpus} CPUs (all of them, --pin, or its quota): generate the load on another \
             machine as well"
        )));
    }
    let generator_cpus: f64 = run.cpu.per_core.iter().sum();
    let subject = run.cpu.subject_cpus.unwrap_or(0.0);
    let others = run.cpu.foreign_cpus.unwrap_or(0.0);
    let all = f64::from(run.host.cpus);
    if (generator_cpus + subject) * ratio + others > all {
        return Err(not_possible(format!(
            "no CPUs are left for a second generator: the first used {generator_cpus:.1}, the subject \
             {subject:.1} and others {others:.1} of {all}"
        )));
    }
    Ok(())
}

/// Returns the CPUs that this process may use: by affinity `available`, by `--pin`, and by the
/// observed quota.
fn usable_cpus(plan: &RunPlan, run: &Run, available: usize) -> f64 {
    let pinned = if plan.pin.is_empty() { available } else { available.min(plan.pin.len()) };
    let quota = run.observed.first().and_then(|observed| {
        let at = observed.role_index(GENERATOR)?;
        observed.samples.iter().rev().find_map(|sample| sample.roles.get(at)?.cgroup.as_ref()?.quota_cpus)
    });
    quota.map_or(pinned as f64, |quota| quota.min(pinned as f64))
}

/// Returns the good responses per second of a short run, after the same ramp and with the same
/// bounds.
fn measure_rate(plan: &RunPlan, trial_ns: u64, stop: &DrainWatch) -> Result<f64, ConfirmError> {
    let mut short = plan.clone();
    short.end.duration_ns = plan.ramp_ns + trial_ns;
    short.end.requests = None;
    short.objectives.clear();
    let measured = load::run::run(&short, stop, &mut NoopObserver)?;
    if stop.stage() != DrainStage::Running {
        return Err(ConfirmError::Stopped);
    }
    Ok(measured.goodput_per_s())
}

#[cfg(test)]
mod tests {
    use load::plan::LoadFlags;
    use record::observed::{CgroupUse, MachineObservation, MachineSample, Role, RoleUse};
    use record::run::{GeneratorCpu, Rates};

    use super::*;

    fn plan(connections: u64, threads: usize, rate: Option<&str>) -> RunPlan {
        let text = LoadFlags {
            urls: vec!["http://127.0.0.1:1/".to_owned()],
            connections: Some(connections.to_string()),
            threads: Some(threads.to_string()),
            rate: rate.map(str::to_owned),
            ..LoadFlags::default()
        };
        RunPlan::parse(&text, 64).unwrap()
    }

    /// A closed loop without a watcher, on eight CPUs of which it used one, and the subject half of
    /// one.
    fn run() -> Run {
        let empty = serde_json::to_value(record::histogram::LatencyHistogram::new().summary()).unwrap();
        let pair = serde_json::json!({"service": empty, "response": empty});
        let value = serde_json::json!({
            "schema": record::run::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
            "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
            "validity": {"verdict": "valid", "reasons": []},
            "host": record::facts::HostFacts { cpus: 8, ..Default::default() },
            "totals": record::run::RunTotals::default(),
            "rates": Rates { responses_per_s: 1000.0, ..Rates::default() },
            "window": record::run::MeasuredWindow::default(),
            "latency": {"connect": pair, "first_byte": pair, "last_byte": pair},
            "generator": record::run::GeneratorStats::default(),
            "cpu": GeneratorCpu { per_core: vec![1.0], subject_cpus: Some(0.5), ..GeneratorCpu::default() },
        });
        serde_json::from_value(value).unwrap()
    }

    fn changed(plan: &RunPlan, run: &Run, code: &str, cpus: f64) -> Result<RunPlan, String> {
        match change(plan, run, find_rule(code).unwrap().counter_test, cpus).map_err(|why| why.to_string())? {
            PlanChange::Plan(plan) => Ok(*plan),
            PlanChange::ThrottleCpu => Err("less time".to_owned()),
        }
    }

    #[test]
    fn half_the_connections_are_fewer_or_none_are_tried() {
        let halved = changed(&plan(4, 4, None), &run(), "bufferbloat", 8.0).unwrap();
        assert_eq!((halved.connections, halved.threads), (2, 2));
        let halved = changed(&plan(64, 2, None), &run(), "fd_limit", 8.0).unwrap();
        assert_eq!((halved.connections, halved.threads), (32, 2));
        let why = changed(&plan(1, 1, None), &run(), "bufferbloat", 8.0).unwrap_err();
        assert!(why.contains(Perturbation::HalveConnections.description()), "{why}");
    }

    #[test]
    fn cost_and_missing_tests_are_explained() {
        let cost = format_cost(2, TRIAL_NS);
        assert!(["36 s", "12 ", " 3 s"].iter().all(|figure| cost.contains(figure)), "{cost}");
        let text = announcement();
        assert!(text.contains("--confirm"), "{text}");
        assert!(text.contains(&format_cost(1, TRIAL_NS)) && text.contains(&cost), "{text}");
        assert_ne!(nothing_to_test("none"), nothing_to_test("unknown"));
    }

    #[test]
    fn a_second_generator_needs_cpus() {
        let (one_thread, two_threads) = (plan(8, 1, None), plan(8, 2, None));
        assert_eq!(changed(&one_thread, &run(), "client_bound", 2.0).unwrap().threads, 2);
        let why = changed(&two_threads, &run(), "client_bound", 2.0).unwrap_err();
        assert!(why.contains("4 threads") && why.contains("2 CPUs"), "{why}");
        let why = changed(&one_thread, &run(), "client_bound", 1.5).unwrap_err();
        assert!(why.contains("1.5 CPUs"), "{why}");
        // Both of two CPUs are taken: the generator is not what lacks them.
        let mut full = run();
        (full.host.cpus, full.cpu.subject_cpus) = (2, Some(0.9));
        let why = changed(&one_thread, &full, "client_bound", 2.0).unwrap_err();
        assert!(["1.0", "0.9", "of 2"].iter().all(|figure| why.contains(figure)), "{why}");
    }

    #[test]
    fn what_this_process_may_use_is_bound_by_pins_and_by_a_quota() {
        let mut observed_run = run();
        assert_eq!(usable_cpus(&plan(8, 1, None), &observed_run, 4), 4.0);
        let mut pinned = plan(8, 1, None);
        pinned.pin = vec![0, 1];
        assert_eq!(usable_cpus(&pinned, &observed_run, 4), 2.0);
        let cgroup = Some(CgroupUse { quota_cpus: Some(1.5), ..CgroupUse::default() });
        let roles = vec![RoleUse { cgroup, ..RoleUse::default() }];
        observed_run.observed = vec![MachineObservation {
            roles: vec![Role { name: GENERATOR.to_owned(), ..Role::default() }],
            samples: vec![MachineSample { roles, ..MachineSample::default() }],
            ..MachineObservation::default()
        }];
        assert_eq!(usable_cpus(&pinned, &observed_run, 4), 1.5);
    }

    #[test]
    fn what_is_the_case_already_cannot_be_tested() {
        let why = changed(&plan(8, 1, None), &run(), "port_exhaustion", 8.0).unwrap_err();
        assert!(why.contains("no -r"), "{why}");
        let mut each_once = plan(8, 1, None);
        each_once.requests_per_connection = Some(1);
        let kept_open = changed(&each_once, &run(), "port_exhaustion", 8.0).unwrap();
        assert_eq!(kept_open.requests_per_connection, None);
        for code in ["packet_loss", "cpu_steal", "cpu_contended", "run_invalid"] {
            assert!(changed(&plan(8, 1, None), &run(), code, 8.0).is_err(), "{code}");
        }
        let pause = find_rule("single_thread_bound").unwrap().second_test.unwrap();
        assert!(change(&plan(1, 1, None), &run(), pause, 8.0).is_err());
    }

    #[test]
    fn an_open_loop_must_offer_more_than_the_counter_test_needs() {
        let open = |offered: f64, code: &str| {
            let mut run = run();
            run.rates.offered_per_s = Some(offered);
            changed(&plan(8, 1, Some("1")), &run, code, 8.0)
        };
        let unlimited = open(1000.0, "latency_bound").unwrap_err();
        assert!(unlimited.contains("-R") && !unlimited.contains("k/s"), "{unlimited}");
        // The throughput would not rise by 30 % in any case, nor show that it could have.
        for code in ["latency_bound", "softirq_imbalance"] {
            let why = open(1200.0, code).unwrap_err();
            assert!(why.contains("1.20 k/s") && why.contains("1.00 k/s"), "{why}");
        }
        assert_eq!(open(2000.0, "latency_bound").unwrap().connections, 16);
        assert_eq!(open(1200.0, "bufferbloat").unwrap().connections, 4, "it may fall");
    }
}
