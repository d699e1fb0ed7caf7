//! The normal and Student's t distribution: cumulative fractions and quantiles, to ten digits or
//! more, from the crate `statrs`.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Returns the fraction of a normal distribution (mean 0, deviation 1) below `z`.
pub fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// Returns the fraction of a normal distribution above `z`, exact in the tail too.
pub fn normal_upper_tail(z: f64) -> f64 {
    Normal::standard().sf(z)
}

/// Returns the value below which a fraction of a normal distribution lies; infinite for 0 and 1,
/// and not a number outside of that range.
pub fn normal_quantile(probability: f64) -> f64 {
    if !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    Normal::standard().inverse_cdf(probability)
}

/// Returns the fraction of Student's t distribution above `t`; not a number without degrees of freedom.
pub fn t_upper_tail(t: f64, degrees_of_freedom: f64) -> f64 {
    if degrees_of_freedom >= NEARLY_NORMAL_FREEDOM {
        return normal_upper_tail(t);
    }
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(f64::NAN, |student| student.sf(t))
}

/// Degrees of freedom from which `statrs` 0.19 loses digits (5 are left at a million). From here on
/// the normal distribution with one more term is exact to seven.
const NEARLY_NORMAL_FREEDOM: f64 = 1e4;

/// Returns the value below which a fraction of Student's t distribution lies; infinite for 0 and 1,
/// and not a number for fractions outside of that range or without degrees of freedom.
pub fn t_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    if degrees_of_freedom >= NEARLY_NORMAL_FREEDOM {
        // Abramowitz and Stegun 26.7.5.
        let z = normal_quantile(probability);
        return if z.is_finite() { z + (z.powi(3) + z) / (4.0 * degrees_of_freedom) } else { z };
    }
    match StudentsT::new(0.0, 1.0, degrees_of_freedom) {
        Ok(student) if (0.0..=1.0).contains(&probability) => student.inverse_cdf(probability),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    #[test]
    fn normal_probabilities_are_those_of_tables() {
        // Abramowitz and Stegun, table 26.1.
        near(normal_cdf(0.0), 0.5, 1e-15);
        near(normal_cdf(1.0), 0.841_344_746_068_543, 1e-10);
        near(normal_cdf(2.0), 0.977_249_868_051_821, 1e-10);
        near(normal_upper_tail(3.0), 1.349_898_031_630_09e-3, 1e-12);
        near(normal_upper_tail(5.0), 2.866_515_718_791_94e-7, 1e-16);
        near(normal_cdf(-1.0), 0.158_655_253_931_457, 1e-10);
    }

    #[test]
    fn normal_quantiles_are_those_of_tables() {
        near(normal_quantile(0.975), 1.959_963_984_540_054, 1e-12);
        near(normal_quantile(0.05), -1.644_853_626_951_472, 1e-12);
        near(normal_quantile(0.5), 0.0, 1e-12);
        near(normal_quantile(1e-6), -4.753_424_308_822_899, 1e-9);
        assert!(normal_quantile(0.0).is_infinite() && normal_quantile(1.0) > 0.0);
    }

    #[test]
    fn quantiles_of_t_are_those_of_tables() {
        // Student's table: 0.975 with 1, 5, 9, 29 degrees of freedom; 0.995 with 9.
        for (probability, freedom, t) in [
            (0.975, 1.0, 12.706_204_736),
            (0.975, 5.0, 2.570_581_836),
            (0.975, 9.0, 2.262_157_163),
            (0.975, 29.0, 2.045_229_642),
            (0.995, 9.0, 3.249_835_542),
            (0.95, 2.0, 2.919_985_580),
        ] {
            near(t_quantile(probability, freedom), t, 2e-8);
            near(t_quantile(1.0 - probability, freedom), -t, 2e-8);
            near(t_upper_tail(t, freedom), 1.0 - probability, 1e-9);
        }
        near(t_upper_tail(1.959_963_985, 1e6), 0.025, 1e-6);
        assert!(t_upper_tail(1.0, 0.0).is_nan());
        // With many degrees of freedom it is the normal distribution.
        near(t_quantile(0.975, 1e6), 1.959_966_4, 1e-7);
        near(t_quantile(0.975, 1e4), t_quantile(0.975, 9999.999), 1e-7);
        near(t_quantile(0.975, f64::INFINITY), normal_quantile(0.975), 1e-12);
        assert!(t_quantile(1.0, 1e9).is_infinite());
        assert_eq!((t_quantile(0.0, 3.0), t_quantile(1.0, 3.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(t_quantile(0.9, 0.0).is_nan() && t_quantile(f64::NAN, 3.0).is_nan());
        assert!(t_quantile(1.1, 3.0).is_nan() && normal_quantile(-0.1).is_nan());
    }
}
