//! The normal and Student's t distribution: cumulative fractions and quantiles, to about 12 digits.
//!
//! Tails beyond 1e-300 are not supported.

use std::f64::consts::PI;

/// Maximum number of terms of a series or a continued fraction; the uses here need under a hundred.
const TERMS_MAX: usize = 500;
/// Maximum number of steps of a search for a quantile; bisection alone needs sixty.
const STEPS_MAX: usize = 200;
/// Terms smaller than this fraction of the sum end the sum.
const TERM_TOLERANCE: f64 = 1e-15;
/// Smaller steps end a search: fractions are not known more exactly.
const STEP_TOLERANCE: f64 = 1e-13;
/// Replacement for a zero in a continued fraction (Lentz).
const TINY: f64 = 1e-300;

/// Returns the fraction of a normal distribution (mean 0, deviation 1) below `z`.
#[must_use]
pub fn normal_cdf(z: f64) -> f64 {
    if z < 0.0 { normal_upper_tail(-z) } else { 1.0 - normal_upper_tail(z) }
}

/// Returns the fraction of a normal distribution above `z`, exact in the tail too.
#[must_use]
pub fn normal_upper_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_upper_tail(-z);
    }
    let density = (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
    if z < 3.0 {
        // Abramowitz and Stegun 26.2.11: all terms are positive, so nothing cancels.
        let (mut term, mut sum) = (z, z);
        for n in 1..TERMS_MAX {
            term *= z * z / (2 * n + 1) as f64;
            sum += term;
            if term < TERM_TOLERANCE * sum {
                break;
            }
        }
        return 0.5 - density * sum;
    }
    // Abramowitz and Stegun 26.2.14: 1/(z + 1/(z + 2/(z + 3/(z + ..)))), from its far end.
    let tail = (1..=100).rev().fold(z, |rest, n| z + f64::from(n) / rest);
    density / tail
}

/// Returns the value below which a fraction of a normal distribution lies; infinite for 0 and 1.
#[must_use]
pub fn normal_quantile(probability: f64) -> f64 {
    if probability > 0.5 {
        return -normal_quantile(1.0 - probability);
    }
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let density = |z: f64| (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
    // The fraction is below exp(-z²/2)/2, which bounds the search.
    let low = -(-2.0 * (2.0 * probability).ln()).sqrt() - 1.0;
    invert_increasing((low, 1.0), probability, normal_cdf, density)
}

/// Returns the fraction of Student's t distribution with `degrees_of_freedom` below `t`.
#[must_use]
pub fn t_cdf(t: f64, degrees_of_freedom: f64) -> f64 {
    let tail =
        regularized_beta(degrees_of_freedom / (degrees_of_freedom + t * t), degrees_of_freedom / 2.0, 0.5)
            / 2.0;
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// Returns the value below which a fraction of Student's t distribution lies; infinite for 0 and 1.
#[must_use]
pub fn t_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    if probability > 0.5 {
        return -t_quantile(1.0 - probability, degrees_of_freedom);
    }
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let mut low = -1.0;
    while t_cdf(low, degrees_of_freedom) > probability && low > -1e15 {
        low *= 2.0;
    }
    let scale = log_gamma(f64::midpoint(degrees_of_freedom, 1.0))
        - log_gamma(degrees_of_freedom / 2.0)
        - (degrees_of_freedom * PI).ln() / 2.0;
    let density = |t: f64| {
        (scale - f64::midpoint(degrees_of_freedom, 1.0) * (t * t / degrees_of_freedom).ln_1p()).exp()
    };
    invert_increasing((low, 1.0), probability, |t| t_cdf(t, degrees_of_freedom), density)
}

/// Returns the point at which a rising function reaches a value. It uses Newton's steps, and
/// bisection if a step would leave the bounds.
fn invert_increasing(
    (mut low, mut high): (f64, f64),
    target: f64,
    distribution: impl Fn(f64) -> f64,
    density: impl Fn(f64) -> f64,
) -> f64 {
    let mut at = f64::midpoint(low, high);
    for _ in 0..STEPS_MAX {
        let error = distribution(at) - target;
        if error > 0.0 {
            high = at
        } else {
            low = at
        }
        let step = at - error / density(at);
        let next = if step > low && step < high { step } else { f64::midpoint(low, high) };
        if (next - at).abs() <= STEP_TOLERANCE * next.abs().max(1.0) {
            return next;
        }
        at = next;
    }
    at
}

/// Returns the regularised incomplete beta function, by its continued fraction (Abramowitz and
/// Stegun 26.5.8; Numerical Recipes 6.4).
fn regularized_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = log_gamma(a + b) - log_gamma(a) - log_gamma(b);
    let front = (front + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast only on this side.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_continued_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_continued_fraction(1.0 - x, b, a) / b
    }
}

fn beta_continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    let nonzero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut product = d;
    for step in 1..TERMS_MAX {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for factor in [even, odd] {
            d = 1.0 / nonzero(1.0 + factor * d);
            c = nonzero(1.0 + factor / c);
            product *= d * c;
        }
        if (d * c - 1.0).abs() < TERM_TOLERANCE {
            break;
        }
    }
    product
}

/// Returns the logarithm of the gamma function for positive values: Stirling's series from 10 on,
/// and the recurrence below it.
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = 1.0 / 12.0
        - square
            * (1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square * (1.0 / 1188.0))));
    shift + (x - 0.5) * x.ln() - x + (2.0 * PI).sqrt().ln() + series / x
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
        near(normal_cdf(1.0), 0.841_344_746_068_543, 1e-14);
        near(normal_cdf(2.0), 0.977_249_868_051_821, 1e-14);
        near(normal_upper_tail(3.0), 1.349_898_031_630_09e-3, 1e-16);
        near(normal_upper_tail(5.0), 2.866_515_718_791_94e-7, 1e-19);
        near(normal_cdf(-1.0), 0.158_655_253_931_457, 1e-14);
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
            near(t_cdf(t, freedom), probability, 1e-9);
            near(t_cdf(-t, freedom), 1.0 - probability, 1e-9);
        }
        // With many degrees of freedom it is the normal distribution.
        near(t_quantile(0.975, 1e6), 1.959_966_4, 1e-6);
    }
}
