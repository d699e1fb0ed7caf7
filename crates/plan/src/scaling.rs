//! Throughput by the number of cores: the Universal Scalability Law of `stats`, with the range in which it
//! may predict.

use stats::fit::FitError;
use stats::scalability::{EXTRAPOLATION_MAX, SCALABILITY_POINTS_MIN, ScalabilityLaw, fit_law};

/// Number of points from which a fit is more than an indication.
pub const POINTS_SURE: usize = SCALABILITY_POINTS_MIN;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLaw {
    /// Law; its throughput is in requests per second.
    pub law: ScalabilityLaw,
    pub measured_max: f64,
}

impl MeasuredLaw {
    /// Fits the law to points (number, rate per second).
    ///
    /// # Errors
    /// There are fewer than three points with different numbers, or they do not determine the law.
    pub fn fit(points: &[(f64, f64)]) -> Result<Self, FitError> {
        let measured_max = points.iter().map(|(number, _)| *number).fold(0.0, f64::max);
        fit_law(points).map(|law| Self { law, measured_max })
    }

    /// Returns the number with the highest rate; infinite if the rate never falls.
    pub fn peak(&self) -> f64 {
        self.law.peak().max(1.0)
    }

    /// Returns the smallest whole number that reaches a rate, up to [`EXTRAPOLATION_MAX`] times the
    /// measured maximum; `None` if none does.
    pub fn number_for(&self, rate_per_s: f64) -> Option<u64> {
        (1..=self.number_max()).find(|number| self.law.throughput(*number as f64) >= rate_per_s)
    }

    /// Returns the highest rate of a whole number that the law may predict.
    pub fn max_rate_per_s(&self) -> f64 {
        (1..=self.number_max()).map(|number| self.law.throughput(number as f64)).fold(0.0, f64::max)
    }

    fn number_max(&self) -> u64 {
        (self.measured_max * EXTRAPOLATION_MAX) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_predicts_up_to_twice_the_measured_number() {
        let law = ScalabilityLaw { alpha: 0.05, beta: 0.002, gamma: 10_000.0 };
        let points: Vec<_> = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| (n, law.throughput(n))).into();
        let fitted = MeasuredLaw::fit(&points).unwrap();
        assert!((fitted.peak() - 21.79).abs() < 0.05, "{fitted:?}");
        assert_eq!((fitted.number_for(30_000.0), fitted.number_for(1e9)), (Some(4), None));
        assert!(fitted.max_rate_per_s() <= law.throughput(22.0) * 1.001);
        assert!(MeasuredLaw::fit(&points[..2]).is_err());
    }
}
