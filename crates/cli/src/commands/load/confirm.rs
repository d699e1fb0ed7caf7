//! `--confirm`: changes what the verdict says is the limit, and looks whether the throughput answers
//! as it predicts. Short trials, the plan as it is and changed in turn.
//!
//! A test that could only come out one way here is not made, and says why.

use host::family::with_descendants;
use host::observe::GENERATOR;
use lab::confirm::{PAIRS, decided_at, judge, together};
use lab::cpu_throttle::CpuThrottle;
use lab::diagnosis::verdicts::{Answer, CounterTest, NONE, Perturbation, verdict};
use load::pace::Pace;
use load::plan::Plan;
use record::run::{Confirmation, Run};
use record::units::{SECOND_NS, format_count};
use rt::drain::{DrainWatch, Stage};

use crate::preflight;
use crate::watcher::Watcher;

/// Length of a trial.
const TRIAL_NS: u64 = 3 * SECOND_NS;
/// An open loop that got this share of what it asked for was not limited.
const OFFERED_MET: f64 = 0.98;

/// The outcome of the counter-test of a run's verdict, or why it cannot be made.
pub(super) fn confirm(
    plan: &Plan,
    run: &Run,
    subjects: &[i32],
    quiet: bool,
    stop: &DrainWatch,
) -> Result<Confirmation, String> {
    let code = run.diagnosis.as_ref().map_or(NONE, |diagnosis| diagnosis.verdict.as_str());
    if verdict(code).is_none() {
        return Err(nothing_to_test(code).to_owned());
    }
    let processors = processors(plan, run, rt::cores::available().len());
    let found = run.diagnosis.as_ref().ok_or("this load was not watched")?;
    let mut changes = Vec::new();
    for test in lab::confirm::tests(found)? {
        match change(plan, run, test, processors) {
            Ok(change) => changes.push((test, change)),
            // The second is more than enough where it can be made.
            Err(why) if changes.is_empty() => return Err(why),
            Err(_) => break,
        }
    }
    if !quiet {
        note!("weir: testing whether it is {code} takes {}", takes(changes.len()));
    }
    let mut tests = Vec::new();
    for (test, change) in changes {
        let pairs = pairs(plan, run, &change, subjects, stop)?;
        tests.push(judge(code, test, &pairs)?);
    }
    together(tests).ok_or_else(|| "there is nothing that weir could change to test it".to_owned())
}

/// What `--confirm` will take, before it is known what there is to test.
pub(super) fn announced() -> String {
    format!(
        "behind this load --confirm tests what it finds by short loads: {}; {} where two changes are \
         tried",
        takes(1),
        takes(2)
    )
}

/// "about 18 s (6 loads of 3 s)", for so many changes.
fn takes(changes: usize) -> String {
    let (loads, each_s) = ((changes * PAIRS * 2) as u64, TRIAL_NS / SECOND_NS);
    format!("about {} s ({loads} loads of {each_s} s)", loads * each_s)
}

/// Why there is no test of what is no verdict on a limit.
fn nothing_to_test(code: &str) -> &'static str {
    match code {
        NONE => "nothing limited this load, so there is no limit to test; drive more to find one",
        _ => "what limited this load is not known, so there is no limit to test",
    }
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
                let throttle = CpuThrottle::start(&with_descendants(subjects), used_cpus * factor)?;
                let rate = trial(plan, stop);
                throttle.stop()?;
                rate?
            }
        };
        pairs.push((base, changed));
    }
    Ok(pairs)
}

/// What to do differently in every second trial.
#[derive(Debug)]
enum Change {
    Plan(Box<Plan>),
    LessTime,
}

/// What to change for a test, where this process has `processors`; or why that would show nothing.
fn change(plan: &Plan, run: &Run, test: CounterTest, processors: f64) -> Result<Change, String> {
    let (perturbation, answer, _) = test;
    offers_enough(run, decided_at(perturbation, answer))?;
    let mut changed = plan.clone();
    match perturbation {
        Perturbation::SecondGenerator => {
            changed.threads *= 2;
            has_room(run, changed.threads, processors, decided_at(perturbation, answer))?;
            changed.connections = changed.connections.max(changed.threads as u64);
        }
        Perturbation::TwiceTheConnections => changed.connections *= 2,
        Perturbation::HalfTheConnections => {
            changed.connections = (changed.connections / 2).max(1);
            // Each thread needs a connection.
            let most = usize::try_from(changed.connections).unwrap_or(usize::MAX);
            changed.threads = changed.threads.min(most);
        }
        Perturbation::KeptConnections => {
            if changed.requests_per_connection.is_none() {
                return Err(
                    "the test would keep connections open between requests, and this load does \
                            so already (it has no -r)"
                        .to_owned(),
                );
            }
            changed.requests_per_connection = None;
        }
        Perturbation::Pause => {
            let Pace::Closed { think_ns } = &mut changed.pace else {
                return Err(
                    "the test would add a pause before each request, and a load at a fixed \
                            rate (-R) has none"
                        .to_owned(),
                );
            };
            if answer == Answer::Stays && plan.connections < 2 {
                return Err(
                    "the test would add a pause that other connections make up for, and there is \
                            only one"
                        .to_owned(),
                );
            }
            *think_ns += (run.latency.last_byte.service.mean_ns / 2.0) as u64;
        }
        Perturbation::LessProcessorTime => return Ok(Change::LessTime),
        Perturbation::Nothing => {
            return Err("there is nothing that weir could change to test this verdict".to_owned());
        }
    }
    if changed == *plan {
        let what = perturbation.words();
        return Err(format!(
            "the test would be {what}, but this load cannot be changed so: it would be the same"
        ));
    }
    preflight::check(&changed).map_err(|failure| failure.lines().join("; "))?;
    Ok(Change::Plan(Box::new(changed)))
}

/// Whether an open loop offers so much more than was answered that the throughput could pass `ratio`,
/// where the answers part. A closed loop asks for whatever is answered.
fn offers_enough(run: &Run, ratio: f64) -> Result<(), String> {
    let answered_per_s = run.goodput_per_s();
    let Some(offered_per_s) = run.rates.offered_per_s else {
        return Ok(());
    };
    if answered_per_s >= offered_per_s * OFFERED_MET {
        return Err(
            "a load at a fixed rate that gets what it asks for met no limit that a test could \
                    move; drive more (-R), or leave -R out"
                .to_owned(),
        );
    }
    if ratio > 1.0 && offered_per_s <= ratio * answered_per_s {
        return Err(format!(
            "{}/s were offered and {}/s answered: the throughput could not rise far enough to show \
             anything; drive more (-R), or leave -R out",
            format_count(offered_per_s),
            format_count(answered_per_s)
        ));
    }
    Ok(())
}

/// Whether a second generator has processors to run on: those of this process, and of the machine as many
/// as take to raise the throughput by `ratio`. In a process that has none left, it would prove nothing.
fn has_room(run: &Run, threads: usize, processors: f64, ratio: f64) -> Result<(), String> {
    if threads as f64 > processors {
        return Err(format!(
            "a second generator would make it {threads} threads, and this process may use \
             {processors} processors (all of them, --pin, or its quota): drive it from another \
             machine as well"
        ));
    }
    let own: f64 = run.cpu.per_core.iter().sum();
    let subject = run.cpu.subject_cpus.unwrap_or(0.0);
    let others = run.cpu.foreign_cpus.unwrap_or(0.0);
    let all = f64::from(run.host.cpus);
    if (own + subject) * ratio + others > all {
        return Err(format!(
            "a second generator has no processors left: the first used {own:.1}, the subject \
             {subject:.1} and others {others:.1} of {all}"
        ));
    }
    Ok(())
}

/// Processors that this process may use: by affinity `available`, by `--pin`, by the quota that the run saw.
fn processors(plan: &Plan, run: &Run, available: usize) -> f64 {
    let pinned = if plan.pin.is_empty() { available } else { available.min(plan.pin.len()) };
    let quota = run.observed.first().and_then(|own| {
        let at = own.role_at(GENERATOR)?;
        own.samples
            .iter()
            .rev()
            .find_map(|sample| sample.roles.get(at)?.cgroup.as_ref()?.quota_cpus)
    });
    quota.map_or(pinned as f64, |quota| quota.min(pinned as f64))
}

/// Good responses per second of a short run: after the same ramp, and with the same bounds.
fn trial(plan: &Plan, stop: &DrainWatch) -> Result<f64, String> {
    let mut short = plan.clone();
    short.end.duration_ns = plan.ramp_ns + TRIAL_NS;
    short.end.requests = None;
    short.objectives.clear();
    let measured = load::run::run(&short, stop, &mut Watcher::new(Vec::new(), None, None))
        .map_err(|error| error.to_string())?;
    if stop.stage() != Stage::Running {
        return Err("it was ended by hand".to_owned());
    }
    Ok(measured.goodput_per_s())
}

#[cfg(test)]
mod tests {
    use load::plan::PlanText;
    use record::observed::{CgroupUse, Observed, Role, RoleUse, Sample};
    use record::run::{Cpu, Rates};

    use super::*;

    fn plan(connections: u64, threads: usize, rate: Option<&str>) -> Plan {
        let text = PlanText {
            urls: vec!["http://127.0.0.1:1/".to_owned()],
            connections: Some(connections.to_string()),
            threads: Some(threads.to_string()),
            rate: rate.map(str::to_owned),
            ..PlanText::default()
        };
        Plan::parse(&text, 64).unwrap()
    }

    /// A closed loop without watching, on eight processors of which it used one, and the subject half of one.
    fn run() -> Run {
        let empty = serde_json::to_value(record::histogram::Latencies::new().summary()).unwrap();
        let pair = serde_json::json!({"service": empty, "response": empty});
        let value = serde_json::json!({
            "schema": record::run::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
            "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
            "validity": {"verdict": "valid", "reasons": []},
            "host": record::facts::HostFacts { cpus: 8, ..Default::default() },
            "totals": record::run::Totals::default(),
            "rates": Rates { responses_per_s: 1000.0, ..Rates::default() },
            "window": record::run::Window::default(),
            "latency": {"connect": pair, "first_byte": pair, "last_byte": pair},
            "generator": record::run::Generator::default(),
            "cpu": Cpu { per_core: vec![1.0], subject_cpus: Some(0.5), ..Cpu::default() },
        });
        serde_json::from_value(value).unwrap()
    }

    fn changed(plan: &Plan, run: &Run, code: &str, processors: f64) -> Result<Plan, String> {
        match change(plan, run, verdict(code).unwrap().counter_test, processors)? {
            Change::Plan(plan) => Ok(*plan),
            Change::LessTime => Err("less time".to_owned()),
        }
    }

    #[test]
    fn half_the_connections_are_fewer_or_none_are_tried() {
        let halved = changed(&plan(4, 4, None), &run(), "bufferbloat", 8.0).unwrap();
        assert_eq!((halved.connections, halved.threads), (2, 2));
        let halved = changed(&plan(64, 2, None), &run(), "fd_limit", 8.0).unwrap();
        assert_eq!((halved.connections, halved.threads), (32, 2));
        let one = changed(&plan(1, 1, None), &run(), "bufferbloat", 8.0).unwrap_err();
        assert!(one.contains("it would be the same"), "{one}");
    }

    #[test]
    fn how_long_it_takes_and_why_not_is_said_in_plain_words() {
        assert_eq!(takes(2), "about 36 s (12 loads of 3 s)");
        assert!(announced().contains("about 18 s (6 loads of 3 s); about 36 s"), "{}", announced());
        assert!(nothing_to_test("none").starts_with("nothing limited this load"));
        assert!(nothing_to_test("unknown").contains("is not known"));
    }

    #[test]
    fn a_second_generator_needs_processors() {
        let (one, two) = (plan(8, 1, None), plan(8, 2, None));
        assert_eq!(changed(&one, &run(), "client_bound", 2.0).unwrap().threads, 2);
        let why = changed(&two, &run(), "client_bound", 2.0).unwrap_err();
        assert!(why.contains("4 threads") && why.contains("2 processors"), "{why}");
        let why = changed(&one, &run(), "client_bound", 1.5).unwrap_err();
        assert!(why.contains("1.5 processors"), "{why}");
        // Both of two processors are taken: what is missing is not the generator's.
        let mut full = run();
        (full.host.cpus, full.cpu.subject_cpus) = (2, Some(0.9));
        let why = changed(&one, &full, "client_bound", 2.0).unwrap_err();
        assert!(why.contains("no processors left"), "{why}");
    }

    #[test]
    fn what_this_process_may_use_is_bound_by_pins_and_by_a_quota() {
        let mut seen = run();
        assert_eq!(processors(&plan(8, 1, None), &seen, 4), 4.0);
        let mut pinned = plan(8, 1, None);
        pinned.pin = vec![0, 1];
        assert_eq!(processors(&pinned, &seen, 4), 2.0);
        let cgroup = Some(CgroupUse { quota_cpus: Some(1.5), ..CgroupUse::default() });
        let roles = vec![RoleUse { cgroup, ..RoleUse::default() }];
        seen.observed = vec![Observed {
            roles: vec![Role { name: GENERATOR.to_owned(), ..Role::default() }],
            samples: vec![Sample { roles, ..Sample::default() }],
            ..Observed::default()
        }];
        assert_eq!(processors(&pinned, &seen, 4), 1.5);
    }

    #[test]
    fn what_is_the_case_already_cannot_be_tested() {
        let why = changed(&plan(8, 1, None), &run(), "port_exhaustion", 8.0).unwrap_err();
        assert!(why.contains("no -r"), "{why}");
        let mut each_once = plan(8, 1, None);
        each_once.requests_per_connection = Some(1);
        let kept = changed(&each_once, &run(), "port_exhaustion", 8.0).unwrap();
        assert_eq!(kept.requests_per_connection, None);
        for code in ["packet_loss", "cpu_steal", "run_invalid"] {
            assert!(changed(&plan(8, 1, None), &run(), code, 8.0).is_err(), "{code}");
        }
        let pause = verdict("single_thread_bound").unwrap().second_test.unwrap();
        assert!(change(&plan(1, 1, None), &run(), pause, 8.0).is_err());
    }

    #[test]
    fn an_open_loop_has_to_offer_more_than_the_answer_takes() {
        let open = |offered: f64, code: &str| {
            let mut run = run();
            run.rates.offered_per_s = Some(offered);
            changed(&plan(8, 1, Some("1")), &run, code, 8.0)
        };
        assert!(open(1000.0, "latency_bound").unwrap_err().contains("gets what it asks for"));
        // It would not rise by 30 %, whatever is true; nor show that it could have.
        assert!(open(1200.0, "latency_bound").unwrap_err().contains("could not rise"));
        assert!(open(1200.0, "softirq_imbalance").unwrap_err().contains("could not rise"));
        assert_eq!(open(2000.0, "latency_bound").unwrap().connections, 16);
        assert_eq!(open(1200.0, "bufferbloat").unwrap().connections, 4, "it may fall");
    }
}
