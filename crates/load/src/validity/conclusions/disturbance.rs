//! Estimate of what disturbed a run, and the range of each figure without it.

use record::histogram::{Delays, LatencyHistogram};
use record::observed::{MachineObservation, MachineSample};
use record::run::{Interval, Run, UndelayedLatency};
use record::units::MILLISECOND_NS;
use record::validity::{ConclusionValidity, FOREIGN_CPU_FRACTION_MAX, ValidityLevel};

use super::stretch::Stretch;
use super::waiting::{FOREIGN_TURN_NS, ForeignWaiting};
use super::{STALLED, Sending, conclusion};

/// Reasons about a generator that is the limit itself: by how much is not known.
pub(super) const UNBOUNDED: &[&str] = &["client_bound", "near_calibrated_limit"];
/// Ratio to the figure without disturbance up to which a figure counts as not disturbed, and from which it misleads.
const RATIO_VALID: f64 = 1.1;
const RATIO_INVALID: f64 = 2.0;
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
/// Wake-ups of the generator on the way of a request: for its send and for the response.
const OWN_WAKEUPS: f64 = 2.0;
/// Longest turns of other programs that are tried: delays up to a shorter one are more, and have another shape.
const TURNS_NS: [f64; 4] =
    [FOREIGN_TURN_NS / 4.0, FOREIGN_TURN_NS / 2.0, FOREIGN_TURN_NS * 0.75, FOREIGN_TURN_NS];
/// Quantile from which the slowest responses make a percentile.
const SLOW_QUANTILE_MIN: f64 = 0.99;

/// Range of a figure without what disturbed it.
pub(super) type Range = (f64, f64);

/// Estimate of what disturbed a run.
pub(super) struct Disturbance {
    is_limit: bool,
    /// True if the generator stood still for long: only seconds without a stall tell something.
    has_stalled: bool,
    sending: Sending,
    /// Waiting for a CPU because of other programs.
    waiting: ForeignWaiting,
    /// The same in the seconds that have the slowest responses, if it is more there.
    waiting_when_slow: ForeignWaiting,
    /// All latencies.
    distribution: Option<LatencyHistogram>,
    /// Latencies without the generator's own part, if they were measured.
    undelayed: Option<UndelayedLatency>,
    undelayed_distribution: Option<LatencyHistogram>,
    /// Fraction of the good responses that are in it.
    undelayed_fraction: f64,
    /// Number of requests that one wait delays.
    together: f64,
    /// Number of wake-ups on the way of a request that other programs can delay.
    wakeups: f64,
    /// Part of a latency that waiting for a CPU stretches.
    stretch: Stretch,
    /// Figures of the seconds without disturbance: rates, p50 and p99.
    quiet: Option<[Range; 3]>,
}

impl Disturbance {
    pub(super) fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let undelayed = run.generator.undelayed.as_ref();
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
            distribution: distribution_of(&run.latency.last_byte.response.hdr),
            undelayed_distribution: undelayed.and_then(|sample| distribution_of(&sample.hdr)),
            undelayed_fraction: undelayed.map_or(0.0, |sample| {
                sample.requests as f64 / run.latency.last_byte.response.count.max(1) as f64
            }),
            undelayed: undelayed.cloned(),
            together: delayed_together(run),
            wakeups: if has_local_subject { 3.0 } else { 2.0 },
            stretch: Stretch::new(run, observed),
            quiet: quiet_figures(run, observed),
        }
    }

    pub(super) fn conclusions(&self, run: &Run, worst: ValidityLevel) -> Vec<ConclusionValidity> {
        let latency = &run.latency.last_byte.response;
        let lags = &run.generator;
        let lag_p50_ns = lags.lag_p50_ns.saturating_sub(NORMAL_LAG_P50_NS);
        let lag_p99_ns = lags.lag_p99_ns.saturating_sub(NORMAL_LAG_P99_NS);
        let lag_max_ns = lags.lag_max_ns.max(lags.stalls.longest_ns);
        let percentiles = [
            ("p50", 0.5, latency.p50_ns, lag_p50_ns, Some(1)),
            ("p90", 0.9, latency.p90_ns, lag_p99_ns, None),
            ("p99", 0.99, latency.p99_ns, lag_p99_ns, Some(2)),
            ("p99.9", 0.999, latency.p999_ns, lag_max_ns, None),
        ];
        let mut all = vec![self.judge_rate(run.rates.responses_per_s, worst)];
        for (name, quantile, value_ns, lag_ns, at) in percentiles {
            let value = value_ns as f64;
            // No percentile is below the fastest response.
            let fastest = self.distribution.as_ref().map_or(0.0, |all| all.min_ns() as f64).min(value);
            let estimated = ((value - self.delay_ns(quantile, value, lag_ns)).max(fastest), value);
            let quiet = at.and_then(|at: usize| Some(self.quiet?[at]));
            let is_measured = self.own_ns(quantile, value).is_some();
            let range = match quiet {
                Some(quiet) if !is_measured || ratio_of(quiet, value) < ratio_of(estimated, value) => quiet,
                _ => estimated,
            };
            all.push(self.judge(name, value, range, worst));
        }
        all.insert(0, self.judge_counts(run, &all));
        all
    }

    /// Returns the largest part of a percentile that generator and other programs can have added to it.
    fn delay_ns(&self, quantile: f64, value_ns: f64, lag_ns: u64) -> f64 {
        let waiting = if quantile >= SLOW_QUANTILE_MIN { &self.waiting_when_slow } else { &self.waiting };
        let own_ns = self.own_ns(quantile, value_ns);
        let stretched_ns = waiting.fraction(own_ns.is_some()) * self.stretch.part_ns(quantile, value_ns);
        let turned_ns = |knows_generator: bool| {
            let (distribution, counted) = match own_ns {
                Some(_) => (self.undelayed_distribution.as_ref(), self.undelayed_fraction),
                None => (self.distribution.as_ref(), 1.0),
            };
            let together = (self.together * counted).max(1.0);
            let parts_ns = TURNS_NS.into_iter().map(|longest_ns| {
                let fraction_max = waiting.delayed_fraction(knows_generator, longest_ns);
                turn_part_ns(distribution, quantile, Delays { fraction_max, longest_ns, together })
            });
            parts_ns.fold(0.0, f64::max)
        };
        // The generator's own part is measured, or bounded by its lags or by its waiting.
        let delayed_ns = match own_ns {
            Some(own_ns) => own_ns + turned_ns(true),
            None => (self.wakeups * lag_ns as f64 + turned_ns(true)).max(turned_ns(false)),
        };
        delayed_ns + stretched_ns
    }

    /// Returns the generator's own part of a percentile beyond the usual one, if it was measured.
    fn own_ns(&self, quantile: f64, value_ns: f64) -> Option<f64> {
        let undelayed_ns = self.undelayed.as_ref()?.at(quantile)? as f64;
        let usual_ns = if quantile > 0.5 { NORMAL_LAG_P99_NS } else { NORMAL_LAG_P50_NS };
        Some((value_ns - undelayed_ns - OWN_WAKEUPS * usual_ns as f64).max(0.0))
    }

    /// Judges the counts: what was counted is right, but a delay as long as a time-out fails a request, and a generator
    /// that stood still leaves requests unsent.
    fn judge_counts(&self, run: &Run, figures: &[ConclusionValidity]) -> ConclusionValidity {
        let timed_out = run.totals.errors.get("timeout").is_some_and(|count| *count > 0);
        let unsent = self.sending.is_open_loop && !self.sending.sent_all;
        let delayed = figures.iter().filter(|figure| ["rate", "p99.9"].contains(&figure.conclusion.as_str()));
        let worst = delayed.map(|figure| figure.verdict).max().filter(|_| timed_out || unsent);
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
        let verdict = match ratio_of(range, value) {
            _ if self.is_limit || self.has_stalled => worst,
            ratio if ratio <= RATIO_VALID => ValidityLevel::Valid,
            ratio if ratio < RATIO_INVALID => ValidityLevel::Suspect.min(worst),
            _ => worst,
        };
        let is_known = !self.is_limit && (!self.has_stalled || self.quiet.is_some());
        let undisturbed = is_known.then_some(range);
        ConclusionValidity { undisturbed, verdict, ..conclusion(name, Some(value)) }
    }
}

/// Returns the largest ratio between a figure and an end of its range, of the larger one to the smaller one.
fn ratio_of(range: Range, value: f64) -> f64 {
    let ratio = |end: f64| end.max(value) / end.min(value).max(1e-9);
    ratio(range.0).max(ratio(range.1))
}

/// Returns the part of a percentile that turns of other programs can have made, which delayed a fraction of the requests
/// by times that are uniform up to a turn; without them these requests are not slower than others. Without a
/// distribution all of them may be the slowest: then a fraction below the requests beyond the quantile does not reach
/// it.
fn turn_part_ns(distribution: Option<&LatencyHistogram>, quantile: f64, delays: Delays) -> f64 {
    let beyond = 1.0 - quantile;
    match distribution {
        Some(distribution) => {
            let measured_ns = distribution.value_at_quantile(quantile) as f64;
            measured_ns - distribution.quantile_before_delays(quantile, delays)
        }
        None if delays.fraction_max <= beyond => 0.0,
        None => delays.longest_ns * (1.0 - beyond / delays.fraction_max),
    }
}

/// Returns the number of requests that a wait for a CPU delays together: in a closed loop all that are in flight, because
/// those that were delayed together come back together; in an open one those that come in half a turn.
fn delayed_together(run: &Run) -> f64 {
    let waits_s = match run.rates.offered_per_s {
        Some(_) => FOREIGN_TURN_NS / 2e9,
        None => run.latency.last_byte.response.mean_ns / 1e9,
    };
    run.rates.responses_per_s * waits_s
}

/// Returns the latencies of an encoding. `None` for a record without them, or with foreign ones.
fn distribution_of(hdr: &str) -> Option<LatencyHistogram> {
    LatencyHistogram::decode(hdr).ok().filter(|read| !read.is_empty())
}

/// Returns the ranges of rate, p50 and p99 in the seconds that nothing disturbed, if there are enough.
fn quiet_figures(run: &Run, observed: Option<&MachineObservation>) -> Option<[Range; 3]> {
    let measured: Vec<&Interval> =
        run.intervals.iter().filter(|interval| interval.measured && interval.length_s > 0.9).collect();
    let quiet: Vec<&&Interval> =
        measured.iter().filter(|interval| is_quiet(interval, run, observed)).collect();
    let enough = quiet.len() >= QUIET_SECONDS_MIN
        && quiet.len() as f64 >= QUIET_FRACTION_MIN * measured.len() as f64
        && quiet.len() < measured.len();
    if !enough {
        return None;
    }
    let range = |figure: &dyn Fn(&Interval) -> Option<f64>| -> Option<Range> {
        let mut values: Vec<f64> = quiet.iter().filter_map(|interval| figure(interval)).collect();
        values.sort_by(f64::total_cmp);
        // Of many seconds, a tenth at each end is left out.
        let cut = values.len() / 10;
        Some((*values.get(cut)?, *values.get(values.len().checked_sub(cut + 1)?)?))
    };
    let rate = range(&|interval| Some(interval.responses as f64 / interval.length_s))?;
    Some([
        rate,
        range(&|interval| Some(interval.p50_ns? as f64))?,
        range(&|interval| Some(interval.p99_ns? as f64))?,
    ])
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
