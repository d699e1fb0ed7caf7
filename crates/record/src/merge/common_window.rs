//! Common clock of merged runs: their identities, the time in which all of them were measured, and
//! their seconds on one axis. Times count from the earliest start.

use std::collections::BTreeMap;

use super::{MergeError, add_interval};
use crate::run::{Interval, MeasuredWindow, Rates, Run};
use crate::validity::{ValidityLevel, ValidityReason};

/// Windows with less than this fraction of the longest in common are reported.
const COMMON_FRACTION_MIN: f64 = 0.9;

/// Maximum overlap of a baseline with the load of another run, as a fraction of its length.
const OVERLAP_FRACTION_MAX: f64 = 0.2;

/// Common time of several runs, in s after the earliest start.
pub(super) struct CommonWindow {
    starts_s: Vec<f64>,
    /// Start and end of the time in which every run was measured.
    window_start_s: f64,
    window_end_s: f64,
}

impl CommonWindow {
    pub(super) fn from_runs(runs: &[Run]) -> Result<Self, MergeError> {
        let starts_ns = starts_ns(runs)?;
        let origin_ns = starts_ns.iter().copied().min().unwrap_or(0);
        let starts_s: Vec<f64> = starts_ns.iter().map(|ns| (ns - origin_ns) as f64 / 1e9).collect();
        let windows = || {
            let numbered = runs.iter().zip(&starts_s).enumerate();
            numbered.map(|(index, (run, start_s))| {
                (index + 1, start_s + run.window.from_s, start_s + run.window.to_s)
            })
        };
        let (last, from_s, _) = windows().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
        let (first, _, to_s) = windows().min_by(|a, b| a.2.total_cmp(&b.2)).unwrap_or_default();
        if to_s <= from_s {
            return Err(MergeError::NotConcurrent { first, second: last, gap_s: from_s - to_s });
        }
        Ok(Self { starts_s, window_start_s: from_s, window_end_s: to_s })
    }

    fn length_s(&self) -> f64 {
        self.window_end_s - self.window_start_s
    }

    /// Returns whether another run generated its load while the baseline of this one was measured,
    /// just before its start. A small overlap is tolerated: runs do not start at exactly the same
    /// time.
    pub(super) fn disturbs_baseline(&self, index: usize, duration_s: f64, runs: &[Run]) -> bool {
        let Some(&start_s) = self.starts_s.get(index) else { return false };
        let (from_s, to_s) = (start_s - duration_s, start_s - OVERLAP_FRACTION_MAX * duration_s);
        let others =
            runs.iter().zip(&self.starts_s).enumerate().filter(|(other_index, _)| *other_index != index);
        others.into_iter().any(|(_, (run, other_s))| *other_s < to_s && other_s + run.duration_s > from_s)
    }

    /// Returns the time from the earliest start to the last end.
    pub(super) fn duration_s(&self, runs: &[Run]) -> f64 {
        let ends = runs.iter().zip(&self.starts_s).map(|(run, start_s)| start_s + run.duration_s);
        ends.fold(0.0, f64::max)
    }

    /// Returns the rates over the common time. An interval that lies partly in it counts with that
    /// part.
    pub(super) fn rates(&self, runs: &[Run]) -> Rates {
        let per_s = |count: fn(&Interval) -> u64| {
            let rates = runs.iter().zip(&self.starts_s).map(|(run, start_s)| {
                let counts = run.intervals.iter().map(|interval| {
                    let to_s = (start_s + interval.time_s).min(self.window_end_s);
                    let from_s = (start_s + interval.time_s - interval.length_s).max(self.window_start_s);
                    let fraction = (to_s - from_s) / interval.length_s.max(1e-9);
                    count(interval) as f64 * fraction.clamp(0.0, 1.0)
                });
                counts.sum::<f64>()
            });
            rates.sum::<f64>() / self.length_s()
        };
        let good = |interval: &Interval| interval.good.unwrap_or(interval.responses);
        let offered: Option<Vec<f64>> = runs.iter().map(|run| run.rates.offered_per_s).collect();
        // Weighted by the offered rates.
        let answered: Option<Vec<f64>> =
            runs.iter().map(|run| Some(run.rates.answered_fraction? * run.rates.offered_per_s?)).collect();
        let offered_per_s: Option<f64> = offered.map(|each| each.iter().sum());
        Rates {
            answered_fraction: answered
                .zip(offered_per_s)
                .map(|(answered, offered)| answered.iter().sum::<f64>() / offered.max(1e-9)),
            responses_per_s: per_s(|interval| interval.responses),
            goodput_per_s: Some(per_s(good)),
            bytes_in_per_s: per_s(|interval| interval.bytes_in),
            offered_per_s,
        }
    }

    pub(super) fn window(&self, runs: &[Run]) -> MeasuredWindow {
        let sum = |count: fn(&MeasuredWindow) -> u64| runs.iter().map(|run| count(&run.window)).sum();
        let text = format!(
            "{} runs, rates over the {:.1} s in which all of them were measured",
            self.starts_s.len(),
            self.length_s()
        );
        MeasuredWindow {
            from_s: self.window_start_s,
            to_s: self.window_end_s,
            excluded_ramp: sum(|window| window.excluded_ramp),
            excluded_tail: sum(|window| window.excluded_tail),
            not_good: sum(|window| window.not_good),
            text,
        }
    }

    /// Returns the seconds of all runs, each added to the nearest ones of the other runs.
    pub(super) fn intervals(&self, runs: &[Run]) -> Vec<Interval> {
        let mut seconds: BTreeMap<i64, (Interval, usize)> = BTreeMap::new();
        for (run, start_s) in runs.iter().zip(&self.starts_s) {
            let shift_s = start_s.round();
            for interval in &run.intervals {
                let shifted = Interval { time_s: interval.time_s + shift_s, ..interval.clone() };
                let begin = (shifted.time_s - shifted.length_s).round() as i64;
                let entry = seconds.entry(begin);
                entry
                    .and_modify(|(sum, run_count)| {
                        (*sum, *run_count) = (add_interval(sum, &shifted), *run_count + 1)
                    })
                    .or_insert((shifted, 1));
            }
        }
        let runs_total = runs.len();
        let finish_interval = |(sum, run_count): (Interval, usize)| Interval {
            measured: sum.measured && run_count == runs_total,
            ..sum
        };
        seconds.into_values().map(finish_interval).collect()
    }

    /// Returns a reason if windows are only partly common.
    pub(super) fn check_overlap(&self, runs: &[Run]) -> Option<ValidityReason> {
        let longest_s = runs.iter().map(|run| run.window.length_s()).fold(0.0, f64::max);
        (self.length_s() < COMMON_FRACTION_MIN * longest_s).then(|| ValidityReason {
            code: "overlap".to_owned(),
            verdict: ValidityLevel::Suspect,
            text: format!(
                "the runs were measured together for {:.1} s, of up to {longest_s:.1} s each: rates are \
                 over that time, latencies and counts over all of each run",
                self.length_s()
            ),
        })
    }
}

/// Returns the start of each run by the wall clock, in ns; fails if a run is there twice.
fn starts_ns(runs: &[Run]) -> Result<Vec<u64>, MergeError> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut starts_ns = Vec::new();
    for (index, run) in (1..).zip(runs) {
        let start_ns = run.identities.iter().map(|identity| identity.start_unix_ns).min();
        starts_ns.push(start_ns.ok_or(MergeError::NoIdentity { index })?);
        for identity in &run.identities {
            if let Some(first) = known.insert(&identity.id, index) {
                let id = format!("{} of process {}", identity.id, identity.pid);
                return Err(MergeError::SameRun { first, second: index, id });
            }
        }
    }
    Ok(starts_ns)
}
