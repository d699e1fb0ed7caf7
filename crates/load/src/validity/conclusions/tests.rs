//! Tests of the validity of conclusions: disturbed runs, and decoys that nothing changed.

use super::waiting::ForeignWaiting;
use super::*;
use record::histogram::LatencyHistogram;
use record::observed::{MachineSample, Role, RoleUse, SUBJECT, ThreadCpuUse};
use record::run::{Interval, UndelayedLatency};
use record::units::MILLISECOND_NS;
use record::validity::ValidityReason;

const MS: u64 = MILLISECOND_NS;

/// Run of an open loop whose p99 is 20 ms, in which something disturbed a machine of two CPUs.
fn disturbed(code: &str, verdict: ValidityLevel) -> Run {
    let empty = LatencyHistogram::new().summary();
    let pair = serde_json::json!({ "service": empty, "response": empty });
    let mut run: Run = serde_json::from_value(serde_json::json!({
        "schema": "weir.run/1", "weir": { "version": "0", "commit": "0" }, "command": [],
        "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
        "validity": { "verdict": "valid", "reasons": [] },
        "host": record::facts::HostFacts { cpus: 2, ..Default::default() },
        "totals": record::run::RunTotals::default(),
        "rates": record::run::Rates::default(),
        "window": record::run::MeasuredWindow::default(),
        "latency": { "connect": pair, "first_byte": pair, "last_byte": pair },
        "generator": record::run::GeneratorStats::default(),
        "cpu": record::run::GeneratorCpu::default()
    }))
    .unwrap();
    run.rates.offered_per_s = Some(1_000.0);
    run.rates.answered_fraction = Some(1.0);
    run.rates.responses_per_s = 1_000.0;
    run.window = record::run::MeasuredWindow { from_s: 0.0, to_s: 10.0, ..Default::default() };
    let response = &mut run.latency.last_byte.response;
    (response.count, response.p50_ns, response.p90_ns) = (10_000, 10 * MS, 15 * MS);
    (response.p99_ns, response.p999_ns, response.max_ns) = (20 * MS, 30 * MS, 40 * MS);
    run.cpu.foreign_cpus = Some(1.2);
    run.cpu.subject_cpus = Some(0.2);
    run.generator.threads = 1;
    let reason = ValidityReason { code: code.to_owned(), verdict, text: "disturbed".to_owned() };
    run.validity = Validity::from_reasons(vec![reason]);
    run
}

fn objective(text: &str, met: bool, value: f64) -> ObjectiveResult {
    ObjectiveResult { text: text.to_owned(), met, value, validity: None }
}

fn verdict_of(run: &Run, name: &str) -> ValidityLevel {
    run.validity.conclusions.iter().find(|conclusion| conclusion.conclusion == name).unwrap().verdict
}

#[test]
fn a_program_that_took_no_cpu_from_anybody_is_a_note() {
    let mut run = disturbed("cpu_contended", ValidityLevel::Suspect);
    judge_conclusions(&mut run, None);
    assert_eq!(run.validity.verdict, ValidityLevel::Valid);
    assert_eq!(run.validity.reasons[0].verdict, ValidityLevel::Valid, "a note");
    assert_eq!(run.validity.objections().count(), 0);
}

#[test]
fn a_lag_counts_by_what_it_can_have_changed() {
    let judged = |lag_ms: u64| {
        let mut run = disturbed("send_lag", ValidityLevel::Invalid);
        run.generator.lag_p99_ns = lag_ms * MS;
        judge_conclusions(&mut run, None);
        run
    };
    assert_eq!(verdict_of(&judged(0), "p99"), ValidityLevel::Valid);
    let run = judged(2);
    assert_eq!(verdict_of(&run, "p99"), ValidityLevel::Suspect, "three wake-ups of 2 ms, of 20 ms");
    assert_eq!(verdict_of(&run, "rate"), ValidityLevel::Valid, "all that was due was sent");
    assert_eq!(verdict_of(&judged(5), "p99"), ValidityLevel::Invalid);
    assert_eq!(judged(5).validity.verdict, ValidityLevel::Invalid, "without an objective: rate and p99");
}

#[test]
fn a_met_upper_bound_is_proven_and_a_missed_one_only_beyond_the_disturbance() {
    let judged = |objectives: Vec<ObjectiveResult>| {
        let mut run = disturbed("send_lag", ValidityLevel::Invalid);
        run.generator.lag_p99_ns = 5 * MS;
        run.objectives = objectives;
        judge_conclusions(&mut run, None);
        run
    };
    let met = judged(vec![objective("p99<25ms", true, 2e7)]);
    assert_eq!(met.validity.verdict, ValidityLevel::Valid);
    let missed = judged(vec![objective("p99<15ms", false, 2e7)]);
    assert_eq!(missed.objectives[0].validity, Some(ValidityLevel::Invalid), "between 5 and 20 ms");
    assert_eq!(missed.validity.verdict, ValidityLevel::Invalid);
    let far = judged(vec![objective("p99<1ms", false, 2e7)]);
    assert_eq!(far.objectives[0].validity, Some(ValidityLevel::Valid));
    // A bound from below is not proven by delays.
    let slow = judged(vec![objective("p99>10ms", true, 2e7)]);
    assert_eq!(slow.objectives[0].validity, Some(ValidityLevel::Invalid));
    let mut unsent = disturbed("generator_stalled", ValidityLevel::Invalid);
    unsent.rates.answered_fraction = Some(0.5);
    unsent.objectives = vec![objective("p99<25ms", true, 2e7)];
    judge_conclusions(&mut unsent, None);
    assert_eq!(unsent.objectives[0].validity, Some(ValidityLevel::Invalid), "not all that was due was sent");
}

#[test]
fn a_rate_of_a_closed_loop_is_lower_by_what_its_threads_waited() {
    let judged = |waited: f64| {
        let mut run = disturbed("run_queue_wait", ValidityLevel::Suspect);
        (run.rates.offered_per_s, run.cpu.foreign_cpus) = (None, None);
        run.generator.run_queue_wait_fraction = Some(waited);
        run.objectives = vec![objective("rate>1.2k", false, 1_000.0)];
        judge_conclusions(&mut run, None);
        (verdict_of(&run, "rate"), run.objectives[0].validity)
    };
    assert_eq!(judged(0.05), (ValidityLevel::Valid, Some(ValidityLevel::Valid)));
    assert_eq!(judged(0.30), (ValidityLevel::Suspect, Some(ValidityLevel::Suspect)));
}

#[test]
fn turns_of_other_programs_reach_a_percentile_beyond_their_fraction() {
    let judged = |waited: f64, value_ns: u64| {
        let mut run = disturbed("run_queue_wait", ValidityLevel::Suspect);
        (run.cpu.foreign_cpus, run.generator.run_queue_wait_fraction) = (None, Some(waited));
        let response = &mut run.latency.last_byte.response;
        (response.p50_ns, response.p99_ns) = (value_ns, value_ns);
        judge_conclusions(&mut run, None);
        (verdict_of(&run, "p50"), verdict_of(&run, "p99"))
    };
    // One request in 125 arrives while its thread waits: no p99 is made of them. One in 25 is: 3 of 20 ms.
    assert_eq!(judged(0.008, 20 * MS), (ValidityLevel::Valid, ValidityLevel::Valid));
    assert_eq!(judged(0.04, 20 * MS), (ValidityLevel::Valid, ValidityLevel::Suspect));
    assert_eq!(judged(0.04, 200 * MS), (ValidityLevel::Valid, ValidityLevel::Valid), "3 of 200 ms");
}

#[test]
fn turns_of_other_programs_count_by_the_shape_of_the_latencies() {
    let judged = |latencies: &mut dyn Iterator<Item = u64>| {
        let mut histogram = LatencyHistogram::new();
        latencies.for_each(|latency_ns| histogram.record(latency_ns));
        let mut run = disturbed("run_queue_wait", ValidityLevel::Suspect);
        (run.cpu.foreign_cpus, run.generator.run_queue_wait_fraction) = (None, Some(0.04));
        run.latency.last_byte.response = histogram.summary();
        judge_conclusions(&mut run, None);
        verdict_of(&run, "p99")
    };
    // Of 1 to 20 ms few of the slowest hundredth were delayed. One in fifty with 2 ms more than the rest may all be.
    let wide = &mut (0..10_000u64).map(|at| MS + at * 19 * MS / 10_000);
    assert_eq!(judged(wide), ValidityLevel::Valid);
    let delayed =
        &mut (0..10_000u64).map(|at| 5 * MS + if at % 50 == 0 { 2 * MS + at * 100 } else { at * 10 });
    assert_eq!(judged(delayed), ValidityLevel::Suspect);
}

#[test]
fn waiting_for_the_own_threads_is_nobodys_fault() {
    let mut run = disturbed("cpu_contended", ValidityLevel::Suspect);
    run.rates.offered_per_s = None;
    let thread = |busy, waiting| ThreadCpuUse { busy, waiting: Some(waiting), ..ThreadCpuUse::default() };
    let sample = |second: u32| MachineSample {
        time_s: f64::from(second),
        roles: vec![RoleUse { user_cpus: 1.8, threads: vec![thread(0.5, 0.5)], ..RoleUse::default() }],
        ..MachineSample::default()
    };
    let observed = MachineObservation {
        roles: vec![Role { name: SUBJECT.to_owned(), ..Role::default() }],
        samples: (1..=10).map(sample).collect(),
        ..MachineObservation::default()
    };
    let waiting = |foreign| {
        run.cpu.foreign_cpus = Some(foreign);
        ForeignWaiting::new(&run, Some(&observed)).fraction(true)
    };
    let mut waiting = waiting;
    assert!(waiting(0.02) < 0.01, "{}", waiting(0.02));
    assert!((waiting(1.8) - 0.25).abs() < 0.01, "{}", waiting(1.8));
}

#[test]
fn seconds_without_disturbance_give_the_range() {
    let mut run = disturbed("send_lag", ValidityLevel::Invalid);
    run.generator.lag_p99_ns = 15 * MS;
    run.intervals = (1..=10)
        .map(|second| Interval {
            time_s: f64::from(second),
            length_s: 1.0,
            responses: 1_000,
            measured: true,
            p50_ns: Some(10 * MS),
            p99_ns: Some(if second <= 2 { 90 * MS } else { 19 * MS + u64::from(second % 2 == 0) * MS }),
            lag_p99_ns: Some(if second <= 2 { 50 * MS } else { MS / 10 }),
            ..Interval::default()
        })
        .collect();
    judge_conclusions(&mut run, None);
    let p99 = run.validity.conclusions.iter().find(|conclusion| conclusion.conclusion == "p99").unwrap();
    assert_eq!(p99.undisturbed, Some((19e6, 20e6)));
    assert_eq!(p99.verdict, ValidityLevel::Valid);
}

#[test]
fn seconds_without_a_stall_prove_that_a_bound_was_missed() {
    let mut run = disturbed("generator_stalled", ValidityLevel::Invalid);
    run.intervals = (1..=8)
        .map(|second| Interval {
            time_s: f64::from(second),
            length_s: 1.0,
            measured: true,
            p50_ns: Some(10 * MS),
            p99_ns: Some(if second == 2 { 400 * MS } else { 19 * MS }),
            stalled_ns: if second == 2 { 400 * MS } else { 0 },
            ..Interval::default()
        })
        .collect();
    run.objectives = vec![objective("p50<1ms", false, 1e7), objective("p99<19.5ms", false, 2e7)];
    judge_conclusions(&mut run, None);
    let verdicts: Vec<_> = run.objectives.iter().map(|objective| objective.validity).collect();
    assert_eq!(verdicts, [Some(ValidityLevel::Valid), Some(ValidityLevel::Invalid)]);
}

#[test]
fn a_generator_at_its_limit_proves_upper_bounds_and_nothing_else() {
    let mut run = disturbed("client_bound", ValidityLevel::Invalid);
    run.rates.offered_per_s = None;
    judge_conclusions(&mut run, None);
    assert_eq!(run.validity.verdict, ValidityLevel::Invalid);
    let mut figures = run.validity.conclusions.iter().filter(|conclusion| conclusion.conclusion != "counts");
    assert!(figures.all(|conclusion| conclusion.verdict == ValidityLevel::Invalid));
    run.objectives = vec![objective("p99<25ms", true, 2e7)];
    judge_conclusions(&mut run, None);
    assert_eq!(run.validity.verdict, ValidityLevel::Valid);
}

#[test]
fn a_generator_that_stood_still_proves_what_it_sent_and_no_closed_loop() {
    let judged = |offered_per_s: Option<f64>| {
        let mut run = disturbed("generator_stalled", ValidityLevel::Invalid);
        run.rates.offered_per_s = offered_per_s;
        run.objectives = vec![objective("p99<25ms", true, 2e7)];
        judge_conclusions(&mut run, None);
        let met = run.validity.verdict;
        run.objectives.clear();
        run.validity = disturbed("generator_stalled", ValidityLevel::Invalid).validity;
        judge_conclusions(&mut run, None);
        (met, run.validity.verdict)
    };
    assert_eq!(judged(Some(1_000.0)), (ValidityLevel::Valid, ValidityLevel::Invalid));
    assert_eq!(judged(None), (ValidityLevel::Invalid, ValidityLevel::Invalid));
}

#[test]
fn faults_of_the_server_stay_what_they_are() {
    let mut run = disturbed("errors", ValidityLevel::Invalid);
    judge_conclusions(&mut run, None);
    assert_eq!(run.validity.verdict, ValidityLevel::Invalid);
    assert!(run.validity.conclusions.iter().all(|conclusion| conclusion.verdict == ValidityLevel::Valid));
}

#[test]
fn a_measured_part_of_the_generator_replaces_the_bound_by_its_lags() {
    let judged = |undelayed: Option<UndelayedLatency>, foreign: f64| {
        let mut run = disturbed("send_lag", ValidityLevel::Suspect);
        run.generator.lag_p99_ns = 5 * MS;
        run.cpu.foreign_cpus = Some(foreign);
        run.generator.run_queue_wait_fraction = Some(0.0);
        run.latency.last_byte.response.p99_ns = 20 * MS;
        run.generator.undelayed = undelayed;
        judge_conclusions(&mut run, None);
        let p99 = run.validity.conclusions.iter().find(|conclusion| conclusion.conclusion == "p99").unwrap();
        (p99.verdict, p99.undisturbed.unwrap().0)
    };
    let sample =
        |requests, p99_ns| Some(UndelayedLatency { requests, p99_ns, ..UndelayedLatency::default() });
    assert_eq!(judged(None, 0.0).0, ValidityLevel::Suspect, "up to three lags of 5 ms");
    assert_eq!(judged(sample(1_000, 19 * MS), 0.0), (ValidityLevel::Valid, 19.3e6));
    assert_eq!(
        judged(sample(1_000, 15 * MS), 0.0),
        (ValidityLevel::Suspect, 15.3e6),
        "its usual wake-ups stay"
    );
    assert_eq!(
        judged(sample(1_000, 21 * MS), 0.0),
        (ValidityLevel::Valid, 20e6),
        "another part of the connections"
    );
    // Nine of 999 are beyond their p99: chance.
    assert_eq!(judged(sample(999, 19 * MS), 0.0).0, ValidityLevel::Suspect);
}

fn all_verdicts(run: &Run) -> Vec<(&str, ValidityLevel)> {
    run.validity
        .conclusions
        .iter()
        .map(|conclusion| (conclusion.conclusion.as_str(), conclusion.verdict))
        .collect()
}

#[test]
fn a_run_that_nothing_disturbed_has_each_conclusion_valid() {
    let mut run = disturbed("unsteady", ValidityLevel::Suspect);
    run.totals.requests = 10_000;
    run.objectives = vec![objective("p99<15ms", false, 2e7), objective("rate>=1k", true, 1_000.0)];
    run.diagnosis = Some(record::run::Diagnosis { verdict: "user_cpu_bound".into(), ..Default::default() });
    judge_conclusions(&mut run, None);
    judge_verdict(&mut run);
    let names = ["counts", "rate", "p50", "p90", "p99", "p99.9", "verdict"];
    assert_eq!(all_verdicts(&run), names.map(|name| (name, ValidityLevel::Valid)));
    let values: Vec<_> = run.validity.conclusions.iter().map(|conclusion| conclusion.value).collect();
    assert_eq!(values[..3], [Some(10_000.0), Some(1_000.0), Some(1e7)]);
    assert_eq!(values[6], None);
    assert!(run.objectives.iter().all(|objective| objective.validity == Some(ValidityLevel::Valid)));
    assert_eq!(run.validity.verdict, ValidityLevel::Suspect, "the server's own fault stays");
}

#[test]
fn counts_are_right_unless_a_delay_failed_or_left_out_requests() {
    let judged = |offered, answered, timeouts: u64| {
        let mut run = disturbed("send_lag", ValidityLevel::Invalid);
        run.rates.offered_per_s = offered;
        run.rates.answered_fraction = Some(answered);
        run.totals.errors.insert("timeout".to_owned(), timeouts);
        // The slowest thousandth is longer by 9 of 30 ms.
        run.generator.lag_max_ns = 3 * MS;
        run.objectives = vec![objective("errors<1%", false, 0.02)];
        judge_conclusions(&mut run, None);
        (verdict_of(&run, "counts"), run.objectives[0].validity)
    };
    let (valid, suspect) = (ValidityLevel::Valid, ValidityLevel::Suspect);
    assert_eq!(judged(Some(1_000.0), 1.0, 0), (valid, Some(valid)));
    assert_eq!(judged(Some(1_000.0), 1.0, 9), (suspect, Some(ValidityLevel::Invalid)));
    assert_eq!(judged(Some(1_000.0), 0.5, 0).0, suspect);
    assert_eq!(judged(None, 1.0, 0).0, valid);
}

#[test]
fn a_diagnosis_is_as_valid_as_the_medians_that_it_reads() {
    let judged = |verdict: &str, lag_p50_ms: u64| {
        let mut run = disturbed("send_lag", ValidityLevel::Invalid);
        (run.generator.lag_p50_ns, run.generator.lag_p99_ns) = (lag_p50_ms * MS, 20 * MS);
        run.diagnosis = Some(record::run::Diagnosis { verdict: verdict.to_owned(), ..Default::default() });
        judge_conclusions(&mut run, None);
        judge_verdict(&mut run);
        run.validity.conclusion("verdict").map(|conclusion| conclusion.verdict)
    };
    assert_eq!(judged("user_cpu_bound", 0), Some(ValidityLevel::Valid), "only the p99 was disturbed");
    assert_eq!(judged("user_cpu_bound", 5), Some(ValidityLevel::Invalid));
    assert_eq!(judged("cpu_contended", 5), Some(ValidityLevel::Valid), "it says so itself");
    assert_eq!(judged("unknown", 5), None);
}

#[test]
fn faults_of_the_generator_touch_what_they_change() {
    use ValidityLevel::{Suspect, Valid};
    let judged = |code: &str| {
        let mut run = disturbed(code, Suspect);
        run.objectives = vec![objective("rate>2k", false, 1_000.0), objective("p99<25ms", true, 2e7)];
        judge_conclusions(&mut run, None);
        let of = |name: &str| verdict_of(&run, name);
        (of("counts"), of("rate"), of("p99"), run.objectives[0].validity, run.objectives[1].validity)
    };
    assert_eq!(judged("littles_law"), (Valid, Valid, Suspect, Some(Valid), Some(Suspect)));
    assert_eq!(judged("connections_failed"), (Valid, Suspect, Suspect, Some(Suspect), Some(Suspect)));
    // Few responses are no disturbance: objectives are what they are.
    assert_eq!(judged("too_short"), (Valid, Suspect, Suspect, Some(Valid), Some(Valid)));
    assert_eq!(judged("partial"), (Valid, Valid, Valid, Some(Valid), Some(Valid)));
}

#[test]
fn a_sum_is_as_valid_as_its_parts() {
    let part = |lag_ms: u64, foreign: f64| {
        let mut run = disturbed("send_lag", ValidityLevel::Invalid);
        (run.generator.lag_p99_ns, run.cpu.foreign_cpus) = (lag_ms * MS, Some(foreign));
        judge_conclusions(&mut run, None);
        run
    };
    let sum = |parts: &[&Run], met: bool| {
        let mut merged = part(0, 0.0);
        merged.validity =
            Validity::from_reasons(parts.iter().flat_map(|part| part.validity.reasons.clone()).collect());
        merged.objectives = vec![objective("p99<18ms", met, 2e7)];
        let validities: Vec<&Validity> = parts.iter().map(|part| &part.validity).collect();
        super::super::judge_merged(&mut merged, &validities);
        merged
    };
    let (quiet, late) = (part(0, 0.0), part(2, 0.0));
    let merged = sum(&[&quiet, &quiet], false);
    assert_eq!(merged.validity.verdict, ValidityLevel::Valid);
    assert_eq!(merged.objectives[0].validity, Some(ValidityLevel::Valid));
    let merged = sum(&[&quiet, &late], false);
    let p99 = merged.validity.conclusion("p99").unwrap();
    assert_eq!(p99.verdict, ValidityLevel::Suspect);
    let (low, high) = p99.undisturbed.unwrap();
    assert!(low > 1.4e7 && low < 1.5e7 && high == 2e7, "{low} {high}: three wake-ups of 1.85 ms");
    assert_ne!(merged.objectives[0].validity, Some(ValidityLevel::Valid), "15 to 20 ms against 18 ms");
    assert_eq!(sum(&[&quiet, &late], true).objectives[0].validity, Some(ValidityLevel::Valid));
    // A part from an older version has no conclusions.
    let mut old = part(2, 0.0);
    old.validity.conclusions.clear();
    let merged = sum(&[&quiet, &old], false);
    assert_eq!(merged.validity.conclusion("p99").unwrap().undisturbed, None);
    assert_ne!(merged.objectives[0].validity, Some(ValidityLevel::Valid));
}

#[test]
fn waiting_counts_where_the_slow_responses_are() {
    // Eight quiet seconds and two in which the subject waits a fifth of its time; 4 % on average.
    let judged = |slow_seconds: [u32; 2], is_burst: bool| {
        let mut run = disturbed("cpu_contended", ValidityLevel::Suspect);
        let is_slow = |second| slow_seconds.contains(&second);
        run.intervals = (1..=10)
            .map(|second| Interval {
                time_s: f64::from(second),
                length_s: 1.0,
                measured: true,
                p50_ns: Some(10 * MS),
                p99_ns: Some(if is_slow(second) { 21 * MS } else { 15 * MS }),
                ..Interval::default()
            })
            .collect();
        let sample = |second: u32| {
            let waiting = if !is_burst {
                0.04
            } else if [3, 4].contains(&second) {
                0.2
            } else {
                0.0
            };
            let thread = ThreadCpuUse { busy: 0.1, waiting: Some(waiting), ..ThreadCpuUse::default() };
            MachineSample {
                time_s: f64::from(second),
                // Other programs are there in each second, so that none of them is quiet.
                foreign_cpus: Some(1.2),
                roles: vec![RoleUse { threads: vec![thread], ..RoleUse::default() }],
                ..MachineSample::default()
            }
        };
        let observed = MachineObservation {
            roles: vec![Role { name: SUBJECT.to_owned(), ..Role::default() }],
            samples: (1..=10).map(sample).collect(),
            ..MachineObservation::default()
        };
        judge_conclusions(&mut run, Some(&observed));
        let low = |name: &str| run.validity.conclusion(name).unwrap().undisturbed.unwrap().0;
        (low("p99"), low("p50"))
    };
    let (coincident, p50) = judged([3, 4], true);
    let (apart, p50_apart) = judged([7, 8], true);
    assert!(coincident < apart - 1e6, "{coincident} {apart}");
    assert_eq!(p50, p50_apart, "the median is made by all seconds");
    let even = judged([3, 4], false).0;
    assert!((even - apart).abs() < 1e5, "{even} {apart}");
}

/// Observation of a subject whose one thread waits for a CPU, beside a program on half a CPU.
fn beside_half_a_cpu(waiting: f64, runs_per_s: f64) -> MachineObservation {
    let thread = ThreadCpuUse { busy: 0.1, waiting: Some(waiting), ..ThreadCpuUse::default() };
    let role = RoleUse {
        threads: vec![thread],
        user_cpus: 0.1,
        voluntary_switches_per_s: runs_per_s,
        ..RoleUse::default()
    };
    let sample = |second: u32| MachineSample {
        time_s: f64::from(second),
        foreign_cpus: Some(100.0),
        roles: vec![role.clone()],
        ..MachineSample::default()
    };
    MachineObservation {
        roles: vec![Role { name: SUBJECT.to_owned(), ..Role::default() }],
        samples: (1..=10).map(sample).collect(),
        ..MachineObservation::default()
    }
}

/// Run whose latencies are `latencies`, and those of its unloaded requests `unloaded`.
fn with_latencies(latencies: impl Iterator<Item = u64>, unloaded: impl Iterator<Item = u64>) -> Run {
    let (mut loaded, mut baseline) = (LatencyHistogram::new(), LatencyHistogram::new());
    latencies.for_each(|latency_ns| loaded.record(latency_ns));
    unloaded.for_each(|latency_ns| baseline.record(latency_ns));
    let mut run = disturbed("cpu_contended", ValidityLevel::Suspect);
    run.latency.last_byte.response = loaded.summary();
    run.baseline =
        Some(record::run::Baseline { good: 100, hdr: baseline.encode(), ..record::run::Baseline::default() });
    run
}

#[test]
fn waiting_stretches_the_queueing_and_not_the_pauses() {
    let pauses = || (0..10_000u64).map(|at| 2 * MS + at * 38 * MS / 10_000);
    let judged = |unloaded: &mut dyn Iterator<Item = u64>| {
        let mut run = with_latencies(pauses(), unloaded);
        judge_conclusions(&mut run, Some(&beside_half_a_cpu(0.15, 5_000.0)));
        verdict_of(&run, "p99")
    };
    // The server pauses for 2 to 40 ms with and without load; or a request alone takes 2 ms, and the rest is a queue.
    assert_eq!(judged(&mut pauses()), ValidityLevel::Valid);
    assert_eq!(judged(&mut (0..100).map(|_| 2 * MS)), ValidityLevel::Suspect);
}

#[test]
fn a_wait_before_a_run_for_many_requests_delays_all_of_them() {
    // A tenth of the requests take up to 3 ms longer than the others.
    let latencies = || (0..10_000u64).map(|at| 10 * MS + if at % 10 == 0 { at * 300 } else { at });
    let judged = |runs_per_s: f64| {
        let mut run = with_latencies(latencies(), (0..100).map(|_| 10 * MS));
        judge_conclusions(&mut run, Some(&beside_half_a_cpu(0.004, runs_per_s)));
        verdict_of(&run, "p99")
    };
    assert_eq!(judged(5_000.0), ValidityLevel::Valid, "0.6 % of the requests: not the slowest hundredth");
    assert_eq!(judged(20.0), ValidityLevel::Suspect, "10 % of the requests");
}

#[test]
fn a_program_with_longer_turns_has_the_larger_part_of_the_waiting() {
    // Half a CPU each: the threads of the run in turns of 50 µs, or without a switch between them.
    let waiting = |runs_per_s: f64| {
        let mut run = disturbed("cpu_contended", ValidityLevel::Suspect);
        run.cpu.foreign_cpus = Some(0.5);
        let mut observed = beside_half_a_cpu(0.1, runs_per_s);
        observed.samples.iter_mut().for_each(|sample| sample.roles[0].user_cpus = 0.5);
        ForeignWaiting::new(&run, Some(&observed)).fraction(true)
    };
    assert!((waiting(10_000.0) - 0.1).abs() < 0.002, "{}", waiting(10_000.0));
    assert!((waiting(0.0) - 0.05).abs() < 0.002, "{}", waiting(0.0));
}

#[test]
fn a_wait_delays_all_requests_in_flight_of_a_closed_loop() {
    // 15 ms, and every tenth request up to 4 ms more; 12 waits of 2 ms a second, and 800 runs.
    let latencies = || (0..5_000u64).map(|at| 15 * MS + if at % 10 == 0 { at * 800 } else { at * 10 });
    let judged = |offered: Option<f64>| {
        let mut run = with_latencies(latencies(), (0..100).map(|_| 15 * MS));
        (run.rates.offered_per_s, run.rates.responses_per_s) = (offered, 800.0);
        judge_conclusions(&mut run, Some(&beside_half_a_cpu(0.024, 3_000.0)));
        let p99 = run.validity.conclusion("p99").unwrap();
        (p99.verdict, p99.undisturbed.unwrap().0)
    };
    let (verdict, low_ns) = judged(None);
    assert_eq!(verdict, ValidityLevel::Suspect);
    assert!((14.5e6..16.0e6).contains(&low_ns), "{low_ns}: as alone");
    assert!(judged(Some(800.0)).1 > low_ns, "an open loop comes at its own times");
}
