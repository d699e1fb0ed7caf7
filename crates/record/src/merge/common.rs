//! The clock of merged runs: which runs they are, the time in which all of them were measured, and their
//! seconds on one axis. Times count from the earliest start.

use std::collections::BTreeMap;

use super::{MergeError, add_interval};
use crate::run::{Interval, Rates, Run, Window};
use crate::validity::{Reason, Verdict};

/// Windows that have less than this share of the longest in common are reported.
const COMMON_SHARE_MIN: f64 = 0.9;

/// The common time of several runs, in s after the earliest start.
pub(super) struct Common {
    /// Start of each run.
    starts_s: Vec<f64>,
    /// Begin and end of the time in which every run was measured.
    from_s: f64,
    to_s: f64,
}

impl Common {
    pub(super) fn of(runs: &[Run]) -> Result<Self, MergeError> {
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
            return Err(MergeError::NotTogether { first, second: last, gap_s: from_s - to_s });
        }
        Ok(Self { starts_s, from_s, to_s })
    }

    fn length_s(&self) -> f64 {
        self.to_s - self.from_s
    }

    /// From the earliest start to the last end.
    pub(super) fn duration_s(&self, runs: &[Run]) -> f64 {
        let ends = runs.iter().zip(&self.starts_s).map(|(run, start_s)| start_s + run.duration_s);
        ends.fold(0.0, f64::max)
    }

    /// Counts within the common time, per second of it. An interval that lies in it in part counts by
    /// that part.
    pub(super) fn rates(&self, runs: &[Run]) -> Rates {
        let per_s = |count: fn(&Interval) -> u64| {
            let of_runs = runs.iter().zip(&self.starts_s).map(|(run, start_s)| {
                let counts = run.intervals.iter().map(|interval| {
                    let to_s = (start_s + interval.time_s).min(self.to_s);
                    let from_s = (start_s + interval.time_s - interval.length_s).max(self.from_s);
                    let share = (to_s - from_s) / interval.length_s.max(1e-9);
                    count(interval) as f64 * share.clamp(0.0, 1.0)
                });
                counts.sum::<f64>()
            });
            of_runs.sum::<f64>() / self.length_s()
        };
        let good = |interval: &Interval| interval.good.unwrap_or(interval.responses);
        let offered: Option<Vec<f64>> = runs.iter().map(|run| run.rates.offered_per_s).collect();
        // Weighted by what was offered.
        let answered: Option<Vec<f64>> = runs
            .iter()
            .map(|run| Some(run.rates.answered_share? * run.rates.offered_per_s?))
            .collect();
        let offered_per_s: Option<f64> = offered.map(|each| each.iter().sum());
        Rates {
            answered_share: answered
                .zip(offered_per_s)
                .map(|(answered, offered)| answered.iter().sum::<f64>() / offered.max(1e-9)),
            responses_per_s: per_s(|interval| interval.responses),
            goodput_per_s: Some(per_s(good)),
            bytes_in_per_s: per_s(|interval| interval.bytes_in),
            offered_per_s,
        }
    }

    pub(super) fn window(&self, runs: &[Run]) -> Window {
        let sum = |count: fn(&Window) -> u64| runs.iter().map(|run| count(&run.window)).sum();
        let text = format!(
            "{} runs, rates over the {:.1} s in which all of them were measured",
            self.starts_s.len(),
            self.length_s()
        );
        Window {
            from_s: self.from_s,
            to_s: self.to_s,
            excluded_ramp: sum(|window| window.excluded_ramp),
            excluded_tail: sum(|window| window.excluded_tail),
            not_good: sum(|window| window.not_good),
            text,
        }
    }

    /// The seconds of all runs, each added to those of the others that it lies nearest to.
    pub(super) fn intervals(&self, runs: &[Run]) -> Vec<Interval> {
        let mut seconds: BTreeMap<i64, (Interval, usize)> = BTreeMap::new();
        for (run, start_s) in runs.iter().zip(&self.starts_s) {
            let shift_s = start_s.round();
            for interval in &run.intervals {
                let moved = Interval { time_s: interval.time_s + shift_s, ..interval.clone() };
                let begin = (moved.time_s - moved.length_s).round() as i64;
                let entry = seconds.entry(begin);
                entry
                    .and_modify(|(sum, of)| (*sum, *of) = (add_interval(sum, &moved), *of + 1))
                    .or_insert((moved, 1));
            }
        }
        let all = runs.len();
        let whole =
            |(sum, of): (Interval, usize)| Interval { measured: sum.measured && of == all, ..sum };
        seconds.into_values().map(whole).collect()
    }

    /// What there is to say of windows that have only a part in common.
    pub(super) fn not_common(&self, runs: &[Run]) -> Option<Reason> {
        let longest_s = runs.iter().map(|run| run.window.length_s()).fold(0.0, f64::max);
        (self.length_s() < COMMON_SHARE_MIN * longest_s).then(|| Reason {
            code: "overlap".to_owned(),
            verdict: Verdict::Suspect,
            text: format!(
                "the runs were measured together for {:.1} s, of up to {longest_s:.1} s each: rates are \
                 over that time, latencies and counts over all of each run",
                self.length_s()
            ),
        })
    }
}

/// Start of each run by the wall clock, in ns; every run is there once.
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
