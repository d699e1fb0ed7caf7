//! The ladder: which rates are driven once the edge is known, how much of them the observer beside
//! them takes, with how many connections the law of scaling is fitted, and what follows from that.

use record::edge::{Added, Knee, Outcome, Trial};

/// The rungs, as shares of the edge.
pub const RUNGS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1];
/// Share of the load that the observer has, its least rate, and its greatest share where that is more.
const OBSERVER_SHARE: f64 = 0.01;
const OBSERVER_PER_S_MIN: f64 = 10.0;
const OBSERVER_SHARE_MAX: f64 = 0.1;
/// Where to run it, as shares of the knee or of the edge (dpbench, "safe operating area").
const OPERATING: (f64, f64) = (0.5, 0.8);
/// Points that connections are tried at, besides 1.
const SCALING_POINTS: u32 = 7;

/// A point of the law of scaling counts when the generator's busiest thread used less of a core.
const BUSY_MAX: f64 = 0.95;

/// The levels of the ladder below and above `edge`, none of them above `highest`.
#[must_use]
pub fn rungs(edge: f64, highest: f64) -> Vec<f64> {
    let mut levels: Vec<f64> = RUNGS.iter().map(|share| (share * edge).min(highest)).collect();
    levels.dedup();
    levels
}

/// The points (connections, good responses per second) that the law of scaling is fitted to, of trials and of
/// whether they met the objective of errors; and why others are left out. What is answered with an error
/// is no work done, and the generator's own limit is not the subject's.
#[must_use]
pub fn scaling_points(trials: &[(Trial, bool)]) -> (Vec<(f64, f64)>, Vec<String>) {
    let (good, failing): (Vec<_>, Vec<_>) = trials.iter().partition(|(_, met)| *met);
    let (used, busy): (Vec<_>, Vec<_>) = good
        .into_iter()
        .partition(|(trial, _)| trial.generator_busy.is_none_or(|busy| busy < BUSY_MAX));
    let connections = |left: &[&(Trial, bool)]| {
        let counts = left.iter().map(|(trial, _)| format!("{:.0}", trial.level));
        counts.collect::<Vec<_>>().join(", ")
    };
    let whys = [
        (failing, "more requests failed there than the objective allows"),
        (busy, "the generator was the limit there"),
    ];
    let notes = whys.iter().filter(|(left, _)| !left.is_empty()).map(|(left, why)| {
        format!(
            "{} points of the law of scaling are left out ({} connections): {why}",
            left.len(),
            connections(left)
        )
    });
    let points = used.iter().map(|(trial, _)| (trial.level, trial.goodput_per_s()));
    (points.collect(), notes.collect())
}

/// The rate of the observer beside a load of `rate_per_s`: 1 % of it, at least 10/s, but never more than
/// a tenth.
#[must_use]
pub fn observer_rate_per_s(rate_per_s: f64) -> f64 {
    let wanted = (OBSERVER_SHARE * rate_per_s).max(OBSERVER_PER_S_MIN);
    wanted.min(OBSERVER_SHARE_MAX * rate_per_s)
}

/// Where to run it.
#[must_use]
pub fn operating_range(edge: f64, knee: Option<&Knee>) -> (f64, f64) {
    let limit = knee.map_or(edge, |knee| knee.level.value.min(edge));
    (OPERATING.0 * limit, OPERATING.1 * limit)
}

/// From one connection to `most`, at even ratios, each once.
#[must_use]
pub fn scaling_connections(most: u64) -> Vec<u64> {
    let points = (0..=SCALING_POINTS).map(|index| {
        let share = f64::from(index) / f64::from(SCALING_POINTS);
        (most as f64).powf(share).round() as u64
    });
    let mut all: Vec<u64> = points.collect();
    all.dedup();
    all
}

/// What the subject adds, at each rate that both ladders have.
#[must_use]
pub fn added(trials: &[Trial]) -> Vec<Added> {
    let of = |purpose: &'static str| trials.iter().filter(move |trial| trial.purpose == purpose);
    let pairs = of("ladder").filter_map(|through| {
        let direct = of("direct").find(|direct| direct.level == through.level)?;
        Some(Added {
            level: through.level,
            mean_ns: (through.mean_ns - direct.mean_ns) as i64,
            through_p50_ns: through.p50_ns,
            through_p99_ns: through.p99_ns,
            direct_p50_ns: direct.p50_ns,
            direct_p99_ns: direct.p99_ns,
            direct_held: direct.outcome == Outcome::Held,
        })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::edge::Estimate;

    #[test]
    fn no_rung_is_above_the_highest_level() {
        assert_eq!(rungs(1000.0, 1e9).last(), Some(&1100.0));
        assert_eq!((rungs(1000.0, 1e9).len(), rungs(1000.0, 1000.0).len()), (12, 11));
        for highest in [1000.0, 1050.0, 1099.0] {
            let levels = rungs(1000.0, highest);
            assert_eq!(levels.last(), Some(&highest), "{levels:?}");
            assert!(levels.windows(2).all(|pair| pair[0] < pair[1]), "{levels:?}");
        }
    }

    #[test]
    fn what_failed_and_what_the_generator_limited_is_no_point_of_the_law() {
        let trial = |level, generator_busy, met| {
            let responses_per_s = 100.0 * level;
            (Trial { level, responses_per_s, generator_busy, ..Trial::default() }, met)
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
        let knee =
            |value| Knee { level: Estimate { value, ..Estimate::default() }, ..Knee::default() };
        assert_eq!(operating_range(1000.0, None), (500.0, 800.0));
        assert_eq!(operating_range(1000.0, Some(&knee(600.0))), (300.0, 480.0));
        assert_eq!(operating_range(1000.0, Some(&knee(1050.0))), (500.0, 800.0));
    }

    #[test]
    fn what_is_added_is_the_difference_at_the_same_rate() {
        let trial = |purpose: &str, level, p50_ns: u64| Trial {
            mean_ns: 1.5 * p50_ns as f64,
            purpose: purpose.to_owned(),
            level,
            p50_ns,
            p99_ns: 2 * p50_ns,
            outcome: Outcome::Held,
            ..Trial::default()
        };
        let trials =
            [trial("ladder", 10.0, 900), trial("direct", 10.0, 1000), trial("ladder", 20.0, 5)];
        let added = added(&trials);
        assert_eq!(added.len(), 1);
        assert_eq!((added[0].mean_ns, added[0].direct_held), (-150, true));
        assert_eq!((added[0].through_p50_ns, added[0].direct_p99_ns), (900, 2000));
    }
}
