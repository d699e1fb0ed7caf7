//! Validity of each conclusion of a run: can it be wrong because of the generator or of other programs?
//!
//! The rules say that something disturbed a run; here each figure gets the range in which it would be without that.
//! Two facts narrow it. Delays only add to the response latency, which counts from the due time, so an upper bound that
//! was met is proven whatever delayed the generator, if everything due was sent. And a program takes CPU time from
//! another one only while that one waits for a CPU, so not its size counts but the waiting of generator and subject.

use record::histogram::LatencyHistogram;
use record::observed::{GENERATOR, MachineObservation, MachineSample, RoleUse, SUBJECT};
use record::run::{Interval, ObjectiveResult, Run, UndelayedLatency};
use record::units::MILLISECOND_NS;
use record::validity::{
    CONCLUSIONS, CPU_CONTENDED, ConclusionValidity, FOREIGN_CPU_FRACTION_MAX, Validity, ValidityLevel,
};

use super::TOO_SHORT;
use crate::plan::{Objective, ObjectiveMetric};

/// Reasons whose effect on a figure can be estimated.
const ESTIMATED: &[&str] = &["cpu_steal", CPU_CONTENDED, "generator_stalled", "run_queue_wait", "send_lag"];
/// Reasons about a generator that is the limit itself: by how much is not known.
const UNBOUNDED: &[&str] = &["client_bound", "near_calibrated_limit"];
/// Code of the rule for a generator that did not run.
const STALLED: &str = "generator_stalled";
/// Relative difference up to which a figure counts as not disturbed, and from which it misleads.
const SHIFT_VALID: f64 = 0.10;
const SHIFT_INVALID: f64 = 0.50;
/// Minimum seconds without disturbance whose figures are used, and their minimum fraction of all.
const QUIET_SECONDS_MIN: usize = 3;
const QUIET_FRACTION_MIN: f64 = 0.25;
/// Lag of a generator that nothing disturbs: the slack of its timers and its own work.
const NORMAL_LAG_P50_NS: u64 = 60_000;
const NORMAL_LAG_P99_NS: u64 = 150_000;
/// Lag of a second above which it counts as disturbed.
const QUIET_LAG_NS: u64 = MILLISECOND_NS;
/// Time in stalls above which a second counts as disturbed, as a fraction.
const QUIET_STALLED_FRACTION: f64 = 0.01;
/// Longest turn of another program before a thread that woke up gets its CPU: a tick of a kernel with 250 Hz, which is
/// also above the slice of EEVDF (Documentation/scheduler/sched-eevdf.rst; `base_slice_ns` is at most 3 ms).
const FOREIGN_TURN_NS: f64 = 4e6;
/// Minimum number of unloaded requests whose latencies show the part without queueing, and the highest quantile of them.
const UNLOADED_REQUESTS_MIN: u64 = 20;
const UNLOADED_QUANTILE_MAX: f64 = 0.9;
/// Use of a thread from which its queue is not estimated any more.
const USED_MAX: f64 = 0.95;
/// Quantile from which the slowest responses make a percentile.
const SLOW_QUANTILE_MIN: f64 = 0.99;
/// Fraction of the requests due that have to be answered, so that everything due was sent.
const ANSWERED_FRACTION_MIN: f64 = 0.98;

/// Range of a figure without what disturbed it.
type Range = (f64, f64);

/// Reasons about the generator whose effect has no estimate, with the conclusions that they leave as they are.
const FAULTS: &[(&str, &[&str])] = &[
    ("connections_failed", &["counts"]),
    ("littles_law", &["counts", "rate"]),
    ("xdp_frames_lost", &["counts", "rate"]),
];
/// Verdicts of the diagnosis that name the generator or what disturbed it.
const NAMES_DISTURBANCE: &[&str] = &["client_bound", "cpu_contended", "cpu_steal"];
/// Verdict of a diagnosis that concludes nothing.
const NO_DIAGNOSIS: &str = "unknown";

/// Returns whether a reason is a disturbance of the generator or of its machine.
pub(super) fn is_disturbance(code: &str) -> bool {
    ESTIMATED.contains(&code) || UNBOUNDED.contains(&code)
}

/// Judges counts, rate, percentiles and objectives of a run, and then the run: it is as valid as what was asked for. A
/// disturbance that changed no such conclusion becomes a note.
pub fn judge_conclusions(run: &mut Run, observed: Option<&MachineObservation>) {
    let disturbances = run.validity.reasons.iter().filter(|reason| is_disturbance(&reason.code));
    let worst = disturbances.map(|reason| reason.verdict).max();
    let conclusions = match worst {
        Some(worst) => Disturbance::new(run, observed).conclusions(run, worst),
        None => figures(run).map(|(name, value)| conclusion(name, value)).collect(),
    };
    let sending = Sending::new(run);
    conclude(run, conclusions, sending, worst.unwrap_or(ValidityLevel::Valid));
}

/// Stores the validity of each conclusion, of the objectives by them, and of the run by these. `worst` is the validity
/// of a conclusion that nothing proves.
pub(super) fn conclude(
    run: &mut Run,
    mut conclusions: Vec<ConclusionValidity>,
    sending: Sending,
    worst: ValidityLevel,
) {
    for objective in &mut run.objectives {
        let parsed = Objective::parse_list(&objective.text).0;
        objective.validity = parsed.first().map(|parsed| {
            let faults = faults(&run.validity, conclusion_of(parsed.metric()));
            sending.judge_objective(parsed, objective.met, &conclusions, worst).max(faults)
        });
    }
    for one in &mut conclusions {
        one.verdict = one.verdict.max(faults(&run.validity, &one.conclusion));
    }
    let asked = asked(&run.objectives, &conclusions).unwrap_or(worst);
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    for reason in reasons.iter_mut().filter(|reason| is_disturbance(&reason.code)) {
        reason.verdict = reason.verdict.min(asked);
    }
    // A window without a second has few responses: their counts are right, and the figures may be chance.
    let short = reasons.iter().find(|reason| reason.code == TOO_SHORT).map(|reason| reason.verdict);
    let is_figure = |one: &&mut ConclusionValidity| one.conclusion != "counts";
    for one in conclusions.iter_mut().filter(is_figure) {
        one.verdict = one.verdict.max(short.unwrap_or(ValidityLevel::Valid));
    }
    run.validity = Validity::from_reasons(reasons);
    // Only the objectives that are not proven may be worse than each reason alone.
    run.validity.verdict = run.validity.verdict.max(asked);
    run.validity.conclusions = conclusions;
}

/// Returns the worst validity of what was asked for: of the objectives, or of rate and p99 without one.
fn asked(objectives: &[ObjectiveResult], conclusions: &[ConclusionValidity]) -> Option<ValidityLevel> {
    let of_objectives = objectives.iter().filter_map(|objective| objective.validity).max();
    of_objectives.or_else(|| {
        let default = conclusions.iter().filter(|one| ["rate", "p99"].contains(&one.conclusion.as_str()));
        default.map(|one| one.verdict).max()
    })
}

/// Returns the worst validity by the faults of the generator that touch a conclusion.
fn faults(validity: &Validity, conclusion: &str) -> ValidityLevel {
    let touches = |code: &str| {
        FAULTS.iter().any(|(fault, untouched)| *fault == code && !untouched.contains(&conclusion))
    };
    let verdicts = validity.reasons.iter().filter(|reason| touches(&reason.code)).map(|one| one.verdict);
    verdicts.max().unwrap_or(ValidityLevel::Valid)
}

/// Returns the conclusion that an objective is about.
fn conclusion_of(metric: ObjectiveMetric) -> &'static str {
    match metric {
        ObjectiveMetric::Rate => "rate",
        ObjectiveMetric::Errors => "counts",
        _ => "p99",
    }
}

/// Adds the validity of the diagnosis, which reads rates and medians, to the other conclusions.
pub fn judge_verdict(run: &mut Run) {
    run.validity.conclusions.retain(|one| one.conclusion != "verdict");
    let judged = !run.validity.conclusions.is_empty();
    let Some(diagnosis) = run.diagnosis.as_ref().filter(|one| judged && one.verdict != NO_DIAGNOSIS) else {
        return;
    };
    let read = ["rate", "p50"].iter().filter_map(|name| run.validity.conclusion(name));
    let verdict = match NAMES_DISTURBANCE.contains(&diagnosis.verdict.as_str()) {
        true => ValidityLevel::Valid,
        false => read.map(|one| one.verdict).max().unwrap_or(ValidityLevel::Valid),
    };
    run.validity.conclusions.push(ConclusionValidity { verdict, ..conclusion("verdict", None) });
}

/// Returns the names of the conclusions with their values, except for the verdict.
pub(super) fn figures(run: &Run) -> impl Iterator<Item = (&'static str, Option<f64>)> + use<> {
    let latency = &run.latency.last_byte.response;
    let (p50_ns, p90_ns, p99_ns, p999_ns) = (latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns);
    let (requests, rate) = (run.totals.requests as f64, run.rates.responses_per_s);
    CONCLUSIONS.iter().filter_map(move |(name, _)| {
        let value = match *name {
            "counts" => requests,
            "rate" => rate,
            "p50" => p50_ns as f64,
            "p90" => p90_ns as f64,
            "p99" => p99_ns as f64,
            "p99.9" => p999_ns as f64,
            _ => return None,
        };
        Some((*name, Some(value)))
    })
}

/// Returns a conclusion that nothing disturbed.
pub(super) fn conclusion(name: &str, value: Option<f64>) -> ConclusionValidity {
    ConclusionValidity {
        conclusion: name.to_owned(),
        value,
        undisturbed: None,
        verdict: ValidityLevel::Valid,
    }
}

/// Facts about the requests that a generator had to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    is_open_loop: bool,
    /// Everything due was sent and answered; a closed loop sends when it can.
    sent_all: bool,
}

impl Sending {
    pub(super) fn new(run: &Run) -> Self {
        let answered = run.rates.answered_fraction().unwrap_or(1.0);
        let is_open_loop = run.rates.offered_per_s.is_some();
        Self {
            is_open_loop,
            // A closed loop that stood still sent less than it should have, which no latency shows.
            sent_all: match is_open_loop {
                true => answered >= ANSWERED_FRACTION_MIN && run.totals.dropped == 0,
                false => !run.validity.has_reason(STALLED),
            },
        }
    }

    /// Returns the validity of the outcome of an objective.
    fn judge_objective(
        self,
        objective: &Objective,
        met: bool,
        conclusions: &[ConclusionValidity],
        worst: ValidityLevel,
    ) -> ValidityLevel {
        let range = |name: &str| {
            let one = conclusions.iter().find(|one| one.conclusion == name)?;
            one.undisturbed
        };
        let proven_missed = match objective.metric() {
            ObjectiveMetric::Rate if self.is_open_loop && self.sent_all => true,
            ObjectiveMetric::Rate => range("rate").is_some_and(|range| range.1 < objective.limit()),
            // A percentile that is not in the record is at least the next lower one.
            ObjectiveMetric::Percentile(percent) => {
                let at_most = [(99.9, "p99.9"), (99.0, "p99"), (90.0, "p90"), (50.0, "p50")];
                let below = at_most.into_iter().find(|(known, _)| *known <= percent + 1e-9);
                below.and_then(|(_, name)| range(name)).is_some_and(|range| range.0 > objective.limit())
            }
            ObjectiveMetric::Mean => range("p50").is_some_and(|range| range.0 > objective.limit()),
            ObjectiveMetric::Max => range("p99.9").is_some_and(|range| range.0 > objective.limit()),
            // A delay fails no request, unless it is as long as its time-out.
            ObjectiveMetric::Errors => conclusions
                .iter()
                .all(|one| one.conclusion != "counts" || one.verdict == ValidityLevel::Valid),
        };
        // Delays only add to latencies, and only take from a rate.
        let proven_met = self.sent_all && objective.is_hardened_by_delays();
        if (met && proven_met) || (!met && proven_missed) { ValidityLevel::Valid } else { worst }
    }
}

/// Estimate of what disturbed a run.
struct Disturbance {
    is_limit: bool,
    /// True if the generator stood still for long: only seconds without a stall tell something.
    has_stalled: bool,
    sending: Sending,
    /// Waiting for a CPU because of other programs.
    waiting: ForeignWaiting,
    /// The same in the seconds that have the slowest responses, if it is more there.
    waiting_when_slow: ForeignWaiting,
    /// Latencies without the generator's own part, if they were measured.
    undelayed: Option<UndelayedLatency>,
    /// Number of wake-ups on the way of a request that other programs can delay.
    wakeups: f64,
    /// Part of a latency that waiting for a CPU stretches.
    stretch: Stretch,
    /// Figures of the seconds without disturbance: rates, p50 and p99.
    quiet: Option<[Range; 3]>,
}

impl Disturbance {
    fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let waiting = ForeignWaiting::new(run, observed);
        let has_local_subject = run.cpu.subject_cpus.is_some_and(|cpus| cpus > 0.0);
        Self {
            is_limit: run.validity.reasons.iter().any(|reason| UNBOUNDED.contains(&reason.code.as_str())),
            has_stalled: run
                .validity
                .reasons
                .iter()
                .any(|reason| reason.code == STALLED && reason.verdict == ValidityLevel::Invalid),
            sending: Sending::new(run),
            waiting,
            waiting_when_slow: ForeignWaiting::when_slow(run, observed)
                .map_or(waiting, |slow| slow.max(waiting)),
            undelayed: run.generator.undelayed,
            wakeups: if has_local_subject { 3.0 } else { 2.0 },
            stretch: Stretch::new(run, observed),
            quiet: quiet_figures(run, observed),
        }
    }

    fn conclusions(&self, run: &Run, worst: ValidityLevel) -> Vec<ConclusionValidity> {
        let latency = &run.latency.last_byte.response;
        let lags = &run.generator;
        // A record without its histogram, or with a foreign one, has the bound by the figure alone.
        let distribution = LatencyHistogram::decode(&latency.hdr).ok().filter(|read| !read.is_empty());
        let stall_ns = run.generator.stalls.longest_ns;
        let lag_p99_ns = lags.lag_p99_ns.saturating_sub(NORMAL_LAG_P99_NS);
        let percentiles = [
            ("p50", 0.5, latency.p50_ns, lags.lag_p50_ns.saturating_sub(NORMAL_LAG_P50_NS), 1),
            ("p90", 0.9, latency.p90_ns, lag_p99_ns, 0),
            ("p99", 0.99, latency.p99_ns, lag_p99_ns, 2),
            ("p99.9", 0.999, latency.p999_ns, lags.lag_max_ns.max(stall_ns), 0),
        ];
        let mut all = vec![self.judge_rate(run.rates.responses_per_s, worst)];
        for (name, quantile, value_ns, lag_ns, at) in percentiles {
            let undelayed_ns = self.undelayed.and_then(|sample| sample.at(quantile));
            let quiet = self.quiet.filter(|_| at > 0).map(|quiet| quiet[at]);
            let value = value_ns as f64;
            let own = undelayed_ns.map(|ns| (value - ns as f64).max(0.0));
            // The generator's own part is measured, or bounded by its lags.
            let waiting = if quantile >= SLOW_QUANTILE_MIN { self.waiting_when_slow } else { self.waiting };
            let delayed = waiting.delayed_fraction(own.is_some());
            let stretched = waiting.fraction(own.is_some()) * self.stretch.part_ns(quantile, value);
            let own = own.unwrap_or(self.wakeups * lag_ns as f64);
            let before_turns = value_before_turns(distribution.as_ref(), value, delayed, quantile);
            let delay = own + stretched;
            let estimated = ((before_turns - delay).max(0.0), value);
            let range = match quiet {
                Some(quiet)
                    if undelayed_ns.is_none() || shift_of(quiet, value) < shift_of(estimated, value) =>
                {
                    quiet
                }
                _ => estimated,
            };
            all.push(self.judge(name, value, range, worst));
        }
        all.insert(0, self.judge_counts(run, &all));
        all
    }

    /// Judges the counts: what was counted is right, but a delay as long as a time-out fails a request, and a generator
    /// that stood still leaves requests unsent.
    fn judge_counts(&self, run: &Run, figures: &[ConclusionValidity]) -> ConclusionValidity {
        let timed_out = run.totals.errors.get("timeout").is_some_and(|count| *count > 0);
        let unsent = self.sending.is_open_loop && !self.sending.sent_all;
        let delayed = figures.iter().filter(|one| ["rate", "p99.9"].contains(&one.conclusion.as_str()));
        let worst = delayed.map(|one| one.verdict).max().filter(|_| timed_out || unsent);
        let counts = conclusion("counts", Some(run.totals.requests as f64));
        ConclusionValidity { verdict: worst.unwrap_or(counts.verdict), ..counts }
    }

    fn judge_rate(&self, value: f64, worst: ValidityLevel) -> ConclusionValidity {
        if self.sending.is_open_loop && self.sending.sent_all {
            return conclusion("rate", Some(value));
        }
        let highest = value / (1.0 - self.waiting.fraction(false).min(0.9));
        let range = self.quiet.map_or((value, highest), |quiet| (quiet[0].0, quiet[0].1.max(value)));
        self.judge("rate", value, range, worst)
    }

    fn judge(&self, name: &str, value: f64, range: Range, worst: ValidityLevel) -> ConclusionValidity {
        let verdict = match shift_of(range, value) {
            _ if self.is_limit || self.has_stalled => worst,
            shift if shift <= SHIFT_VALID => ValidityLevel::Valid,
            shift if shift < SHIFT_INVALID => ValidityLevel::Suspect.min(worst),
            _ => worst,
        };
        let is_known = !self.is_limit && (!self.has_stalled || self.quiet.is_some());
        let undisturbed = is_known.then_some(range);
        ConclusionValidity { undisturbed, verdict, ..conclusion(name, Some(value)) }
    }
}

/// Returns the largest relative difference between a figure and its range.
fn shift_of(range: Range, value: f64) -> f64 {
    [range.0, range.1].map(|end| (end - value).abs() / value.max(1e-9)).into_iter().fold(0.0, f64::max)
}

/// Returns a percentile without the turns of other programs, which delayed a fraction of the requests by times that are
/// uniform up to a turn; without them these requests are not slower than others. Without a distribution all of them may
/// be the slowest: then a fraction below the requests beyond the quantile does not reach it.
fn value_before_turns(
    distribution: Option<&LatencyHistogram>,
    value_ns: f64,
    delayed: f64,
    quantile: f64,
) -> f64 {
    let beyond = 1.0 - quantile;
    match distribution {
        Some(distribution) => distribution.quantile_before_delays(quantile, delayed, FOREIGN_TURN_NS),
        None if delayed <= beyond => value_ns,
        None => value_ns - FOREIGN_TURN_NS * (1.0 - beyond / delayed),
    }
}

/// Part of a latency that is longer by the fraction of the time that threads wait for a CPU: the queueing, in which a
/// request waits for the work for others, and its own CPU time. The rest is a pause, which no other program prolongs.
struct Stretch {
    /// Latencies of one request at a time, which have no queueing.
    unloaded: Option<LatencyHistogram>,
    /// CPU time of a request in generator and subject, as long as the busiest thread lets it wait for others.
    cpu_ns: f64,
}

impl Stretch {
    fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let baseline = run.baseline.as_ref().filter(|one| one.good >= UNLOADED_REQUESTS_MIN);
        let window_s = (run.window.to_s - run.window.from_s).max(1e-9);
        let cpus = (run.cpu.user_s + run.cpu.system_s) / window_s + run.cpu.subject_cpus.unwrap_or(0.0);
        let samples = observed.into_iter().flat_map(|observed| in_window(run, observed));
        let threads = samples.flat_map(|one| &one.roles).filter_map(|role| role.threads.first());
        let used = threads.map(|thread| thread.busy + thread.waiting.unwrap_or(0.0));
        let used = used.chain(run.cpu.per_core.iter().copied()).fold(0.0, f64::max).min(USED_MAX);
        Self {
            unloaded: baseline.and_then(|one| LatencyHistogram::decode(&one.hdr).ok()),
            cpu_ns: cpus * 1e9 / run.rates.responses_per_s.max(1e-9) / (1.0 - used),
        }
    }

    /// Returns the part of a percentile, which is all of it if nothing is known about requests without queueing.
    fn part_ns(&self, quantile: f64, value_ns: f64) -> f64 {
        let Some(unloaded) = self.unloaded.as_ref().filter(|known| !known.is_empty()) else {
            return value_ns;
        };
        // The slowest of few unloaded requests may be chance.
        let queueing_ns = value_ns - unloaded.value_at_quantile(quantile.min(UNLOADED_QUANTILE_MAX)) as f64;
        // The times in the queue of a thread are exponential at most (M/M/1).
        let cpu_ns = -(1.0 - quantile).ln() * self.cpu_ns;
        queueing_ns.max(cpu_ns).clamp(0.0, value_ns)
    }
}

/// Fractions of the time that work waited for a CPU that other programs had.
#[derive(Clone, Copy, Debug, Default)]
struct ForeignWaiting {
    generator: f64,
    subject: f64,
    /// Time that the hypervisor gave to other machines.
    steal: f64,
    /// Fraction of the requests whose own wake-ups waited, in the generator.
    late_generator: f64,
    /// The same in the subject and the servers behind it.
    late_subject: f64,
}

impl ForeignWaiting {
    fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let own = run.generator.run_queue_wait_fraction.unwrap_or(0.0);
        let Some(observed) = observed else {
            let late_generator = late_fraction(own, f64::INFINITY, run.rates.responses_per_s);
            return Self { generator: own, late_generator, ..Self::default() };
        };
        Self::of_samples(run, observed, &in_window(run, observed).collect::<Vec<_>>(), run.cpu.foreign_cpus)
    }

    /// Returns the waiting in the seconds whose p99 is at least that of the run: the slowest responses are theirs. `None`
    /// if they are not known, or if these are all seconds.
    fn when_slow(run: &Run, observed: Option<&MachineObservation>) -> Option<Self> {
        let observed = observed?;
        let p99_ns = run.latency.last_byte.response.p99_ns;
        let measured = || run.intervals.iter().filter(|one| one.measured);
        let slow: Vec<&Interval> =
            measured().filter(|one| one.p99_ns.is_some_and(|ns| ns >= p99_ns)).collect();
        let is_slow = |sample: &&MachineSample| {
            slow.iter().any(|one| (sample.time_s - one.time_s).abs() <= 0.5 * one.length_s)
        };
        let samples: Vec<&MachineSample> = in_window(run, observed).filter(is_slow).collect();
        if samples.is_empty() || slow.len() == measured().count() {
            return None;
        }
        let foreign: Option<Vec<f64>> = samples.iter().map(|one| one.foreign_cpus).collect();
        let foreign = foreign.map(|all| mean(all.into_iter())).or(run.cpu.foreign_cpus);
        Some(Self::of_samples(run, observed, &samples, foreign))
    }

    fn of_samples(
        run: &Run,
        observed: &MachineObservation,
        samples: &[&MachineSample],
        foreign_cpus: Option<f64>,
    ) -> Self {
        let own = run.generator.run_queue_wait_fraction.unwrap_or(0.0);
        let of_role = |name: &str| observed.roles.iter().position(|role| role.name == name);
        let waiting = |at: usize| mean(samples.iter().filter_map(|one| waiting_of(one, at)));
        let roles = mean(samples.iter().map(|one| one.roles.iter().map(RoleUse::cpus).sum()));
        // Threads of the run wait for each other too, with or without other programs.
        let share = foreign_cpus.map_or(1.0, |cpus| cpus.max(0.0) / (cpus.max(0.0) + roles).max(1e-9));
        let share = share.min(1.0);
        let late = |at: usize| {
            let roles = || samples.iter().filter_map(|one| one.roles.get(at));
            let waited = mean(
                roles().map(|role| role.threads.iter().filter_map(|thread| thread.waiting).sum::<f64>()),
            );
            let runs_per_s =
                mean(roles().map(|role| role.voluntary_switches_per_s + role.involuntary_switches_per_s));
            late_fraction(waited, runs_per_s, run.rates.responses_per_s)
        };
        let generator = of_role(GENERATOR);
        let others = (0..observed.roles.len()).filter(|at| Some(*at) != generator);
        let late_own = late_fraction(own, f64::INFINITY, run.rates.responses_per_s);
        Self {
            generator: generator.map_or(own, waiting) * share,
            subject: of_role(SUBJECT).map_or(0.0, waiting) * share,
            steal: run.cpu.steal_fraction.unwrap_or(0.0),
            late_generator: generator.map_or(late_own, late) * share,
            late_subject: others.map(late).sum::<f64>() * share,
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            generator: self.generator.max(other.generator),
            subject: self.subject.max(other.subject),
            steal: self.steal.max(other.steal),
            late_generator: self.late_generator.max(other.late_generator),
            late_subject: self.late_subject.max(other.late_subject),
        }
    }

    /// Returns the fraction of generator and subject together, or that of the subject, if the delays of the generator are
    /// known.
    fn fraction(&self, knows_generator: bool) -> f64 {
        let generator = if knows_generator { 0.0 } else { self.generator };
        (generator + self.subject + self.steal).min(1.0)
    }

    /// Returns the fraction of the requests that are delayed: those that come while a thread waits, as many as the
    /// fraction of the time, and those whose own wake-up waits.
    fn delayed_fraction(&self, knows_generator: bool) -> f64 {
        let late_generator = if knows_generator { 0.0 } else { self.late_generator };
        (self.fraction(knows_generator) + late_generator + self.late_subject).min(1.0)
    }
}

/// Returns the fraction of the requests whose wake-ups waited, if the threads of a role waited `waited` seconds a second
/// in `runs_per_s` runs, half a turn each. A run for several requests delays all of them.
fn late_fraction(waited: f64, runs_per_s: f64, responses_per_s: f64) -> f64 {
    let known = if runs_per_s > 0.0 { runs_per_s } else { f64::INFINITY };
    let wakeups_per_s = known.min(responses_per_s).max(1.0);
    waited / (wakeups_per_s * FOREIGN_TURN_NS / 2e9)
}

/// Returns the fraction of the time that the threads of a role waited for a CPU, each weighted by what it worked.
fn waiting_of(sample: &MachineSample, role: usize) -> Option<f64> {
    let threads = &sample.roles.get(role)?.threads;
    let weight: f64 = threads.iter().map(|thread| thread.busy + thread.waiting.unwrap_or(0.0)).sum();
    let sum: f64 =
        threads.iter().filter_map(|thread| Some(thread.waiting? * (thread.busy + thread.waiting?))).sum();
    (weight > 0.0).then(|| sum / weight)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn in_window<'a>(
    run: &Run,
    observed: &'a MachineObservation,
) -> impl Iterator<Item = &'a MachineSample> + use<'a> {
    let (from_s, to_s) = (run.window.from_s, run.window.to_s);
    observed.samples.iter().filter(move |one| one.time_s > from_s + 0.2 && one.time_s < to_s + 0.8)
}

/// Returns the ranges of rate, p50 and p99 in the seconds that nothing disturbed, if there are enough.
fn quiet_figures(run: &Run, observed: Option<&MachineObservation>) -> Option<[Range; 3]> {
    let measured: Vec<&Interval> =
        run.intervals.iter().filter(|one| one.measured && one.length_s > 0.9).collect();
    let quiet: Vec<&&Interval> = measured.iter().filter(|one| is_quiet(one, run, observed)).collect();
    let enough = quiet.len() >= QUIET_SECONDS_MIN
        && quiet.len() as f64 >= QUIET_FRACTION_MIN * measured.len() as f64
        && quiet.len() < measured.len();
    if !enough {
        return None;
    }
    let range = |figure: &dyn Fn(&Interval) -> Option<f64>| -> Option<Range> {
        let mut values: Vec<f64> = quiet.iter().filter_map(|one| figure(one)).collect();
        values.sort_by(f64::total_cmp);
        // Of many seconds, a tenth at each end is left out.
        let cut = values.len() / 10;
        Some((*values.get(cut)?, *values.get(values.len().checked_sub(cut + 1)?)?))
    };
    let rate = range(&|one| Some(one.responses as f64 / one.length_s))?;
    Some([rate, range(&|one| Some(one.p50_ns? as f64))?, range(&|one| Some(one.p99_ns? as f64))?])
}

fn is_quiet(interval: &Interval, run: &Run, observed: Option<&MachineObservation>) -> bool {
    let stalled = interval.stalled_ns as f64 / 1e9 / f64::from(run.generator.threads.max(1));
    let lag_max_ns = QUIET_LAG_NS.max(interval.p50_ns.unwrap_or(0) / 10);
    let foreign_max = FOREIGN_CPU_FRACTION_MAX * f64::from(run.host.cpus.max(1));
    let overlaps = |sample: &&MachineSample| (sample.time_s - interval.time_s).abs() < interval.length_s;
    let samples = observed.map_or(&[][..], |observed| &observed.samples);
    let mut foreign = samples.iter().filter(overlaps).filter_map(|sample| sample.foreign_cpus);
    stalled <= QUIET_STALLED_FRACTION * interval.length_s
        && interval.lag_p99_ns.is_none_or(|lag_ns| lag_ns <= lag_max_ns)
        && foreign.all(|cpus| cpus <= foreign_max)
}

#[cfg(test)]
mod tests;
