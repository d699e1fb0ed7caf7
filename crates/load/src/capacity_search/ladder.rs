//! Ladder: the rates of the trials once the edge is known, the observer's part of them, the numbers
//! of connections for the fit of the scaling law, and the conclusions.

use record::capacity_search::{AddedLatency, Knee, LevelOutcome, SearchTrial};

/// Rungs, as fractions of the edge.
pub const LADDER_FRACTIONS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1];
/// Fraction of the load for the observer, its minimum rate, and its maximum fraction if that
/// minimum is more.
const OBSERVER_FRACTION: f64 = 0.01;
const OBSERVER_PER_S_MIN: f64 = 10.0;
const OBSERVER_FRACTION_MAX: f64 = 0.1;
/// Operating range, as fractions of the knee or of the edge (dpbench, "safe operating area").
const OPERATING_RANGE: (f64, f64) = (0.5, 0.8);
/// Number of points at which connections are tried, besides 1.
const SCALING_POINTS: u32 = 7;

/// Maximum used fraction of a core by the generator's busiest thread for a valid point of the
/// scaling law.
const THREAD_UTILIZATION_MAX: f64 = 0.95;

/// Returns the levels of the ladder below and above `edge`, none of them above `highest`.
pub fn ladder_levels(edge: f64, highest: f64) -> Vec<f64> {
    let mut levels: Vec<f64> =
        LADDER_FRACTIONS.iter().map(|fraction| (fraction * edge).min(highest)).collect();
    levels.dedup();
    levels
}

/// Returns the points (connections, good responses per second) for the fit of the scaling law, and
/// the reasons why others are left out. Each trial comes with whether it met the objective of
/// errors. An error response is no work done, and the generator's own limit is not the subject's.
pub fn scaling_points(trials: &[(SearchTrial, bool)]) -> (Vec<(f64, f64)>, Vec<String>) {
    let (good, failing): (Vec<_>, Vec<_>) = trials.iter().partition(|(_, met)| *met);
    let (used, busy): (Vec<_>, Vec<_>) = good
        .into_iter()
        .partition(|(trial, _)| trial.generator_busy.is_none_or(|busy| busy < THREAD_UTILIZATION_MAX));
    let connections = |excluded: &[&(SearchTrial, bool)]| {
        let counts = excluded.iter().map(|(trial, _)| format!("{:.0}", trial.level));
        counts.collect::<Vec<_>>().join(", ")
    };
    let exclusions =
        [(failing, "more requests failed than the objective allows"), (busy, "the generator was the limit")];
    let notes = exclusions.iter().filter(|(left, _)| !left.is_empty()).map(|(left, reason)| {
        format!(
            "{} points of the scaling law are excluded ({} connections): {reason}",
            left.len(),
            connections(left)
        )
    });
    let points = used.iter().map(|(trial, _)| (trial.level, trial.goodput_per_s()));
    (points.collect(), notes.collect())
}

/// Returns the rate of the observer beside a load of `rate_per_s`: 1 % of it, at least 10/s, but
/// never more than a tenth.
pub fn observer_rate_per_s(rate_per_s: f64) -> f64 {
    let rate = (OBSERVER_FRACTION * rate_per_s).max(OBSERVER_PER_S_MIN);
    rate.min(OBSERVER_FRACTION_MAX * rate_per_s)
}

pub fn operating_range(edge: f64, knee: Option<&Knee>) -> (f64, f64) {
    let limit = knee.map_or(edge, |knee| knee.level.value.min(edge));
    (OPERATING_RANGE.0 * limit, OPERATING_RANGE.1 * limit)
}

/// Returns numbers of connections from one to `max_connections`, at even ratios, each once.
pub fn scaling_connections(max_connections: u64) -> Vec<u64> {
    let points = (0..=SCALING_POINTS).map(|index| {
        let fraction = f64::from(index) / f64::from(SCALING_POINTS);
        (max_connections as f64).powf(fraction).round() as u64
    });
    let mut all: Vec<u64> = points.collect();
    all.dedup();
    all
}

/// Returns the latency that the subject adds to the direct load, at each rate of both ladders.
pub fn added_latency(trials: &[SearchTrial]) -> Vec<AddedLatency> {
    let with_purpose = |purpose: &'static str| trials.iter().filter(move |trial| trial.purpose == purpose);
    let pairs = with_purpose("ladder").filter_map(|through| {
        let direct = with_purpose("direct").find(|direct| direct.level == through.level)?;
        Some(AddedLatency {
            level: through.level,
            mean_ns: (through.mean_ns - direct.mean_ns) as i64,
            through_p50_ns: through.p50_ns,
            through_p99_ns: through.p99_ns,
            direct_p50_ns: direct.p50_ns,
            direct_p99_ns: direct.p99_ns,
            direct_held: direct.outcome == LevelOutcome::Held,
        })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::capacity_search::Estimate;

    #[test]
    fn no_ladder_level_is_above_the_highest_level() {
        assert_eq!(ladder_levels(1000.0, 1e9).last(), Some(&1100.0));
        assert_eq!((ladder_levels(1000.0, 1e9).len(), ladder_levels(1000.0, 1000.0).len()), (12, 11));
        for highest in [1000.0, 1050.0, 1099.0] {
            let levels = ladder_levels(1000.0, highest);
            assert_eq!(levels.last(), Some(&highest), "{levels:?}");
            assert!(levels.windows(2).all(|pair| pair[0] < pair[1]), "{levels:?}");
        }
    }

    #[test]
    fn what_failed_and_what_the_generator_limited_is_no_point_of_the_law() {
        let trial = |level, generator_busy, met| {
            let responses_per_s = 100.0 * level;
            (SearchTrial { level, responses_per_s, generator_busy, ..SearchTrial::default() }, met)
        };
        let trials = [
            trial(1.0, Some(0.2), true),
            trial(2.0, None, true),
            trial(4.0, Some(0.99), true),
            trial(8.0, Some(0.2), false),
            trial(16.0, Some(0.99), false),
        ];
        let (points, notes) = scaling_points(&trials);
        assert_eq!(points, [(1.0, 100.0), (2.0, 200.0)]);
        assert!(notes[0].starts_with("2 points") && notes[0].contains("(8, 16 connections)"));
        assert!(notes[0].contains("failed") && notes[1].contains("(4 connections): the generator"));
        assert!(scaling_points(&trials[..2]).1.is_empty());
    }

    #[test]
    fn the_observer_takes_a_hundredth_and_never_over_a_tenth() {
        let rates = [10_000.0, 500.0, 50.0].map(observer_rate_per_s);
        assert_eq!(rates, [100.0, 10.0, 5.0]);
    }

    #[test]
    fn connections_grow_at_even_ratios_and_come_once() {
        assert_eq!(scaling_connections(64), [1, 2, 3, 6, 11, 20, 35, 64]);
        assert_eq!(scaling_connections(3), [1, 2, 3]);
        assert_eq!(scaling_connections(1), [1]);
    }

    #[test]
    fn it_is_run_below_the_knee_and_below_the_edge() {
        let knee = |value| Knee { level: Estimate { value, ..Estimate::default() }, ..Knee::default() };
        assert_eq!(operating_range(1000.0, None), (500.0, 800.0));
        assert_eq!(operating_range(1000.0, Some(&knee(600.0))), (300.0, 480.0));
        assert_eq!(operating_range(1000.0, Some(&knee(1050.0))), (500.0, 800.0));
    }

    #[test]
    fn what_is_added_is_the_difference_at_the_same_rate() {
        let trial = |purpose: &str, level, p50_ns: u64| SearchTrial {
            mean_ns: 1.5 * p50_ns as f64,
            purpose: purpose.to_owned(),
            level,
            p50_ns,
            p99_ns: 2 * p50_ns,
            outcome: LevelOutcome::Held,
            ..SearchTrial::default()
        };
        let trials = [trial("ladder", 10.0, 900), trial("direct", 10.0, 1000), trial("ladder", 20.0, 5)];
        let added = added_latency(&trials);
        assert_eq!(added.len(), 1);
        assert_eq!((added[0].mean_ns, added[0].direct_held), (-150, true));
        assert_eq!((added[0].through_p50_ns, added[0].direct_p99_ns), (900, 2000));
    }
}
