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

/// The levels of the ladder below and above `edge`.
#[must_use]
pub fn rungs(edge: f64) -> Vec<f64> {
    RUNGS.iter().map(|share| share * edge).collect()
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
            p50_ns: through.p50_ns as i64 - direct.p50_ns as i64,
            p99_ns: through.p99_ns as i64 - direct.p99_ns as i64,
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
        let trial = |purpose: &str, level, p50_ns| Trial {
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
        assert_eq!((added[0].p50_ns, added[0].p99_ns, added[0].direct_held), (-100, -200, true));
    }
}
