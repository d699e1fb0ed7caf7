//! Formats of numbers: values with their unit, ratios as changes, intervals, probabilities, counts.
//! All output about an experiment uses them: sentences, report, terminal. [`crate::judge`] writes
//! the sentences themselves.

use record::experiment::{BetterDirection, ExperimentMetric};
use record::units::{BYTE_STEPS, COUNT_STEPS, TIME_STEPS, UnitSteps, round_to_digits, scale_to_step};

/// Change of a ratio below which the text says that there is none: a hundredth of a percent.
const CHANGE_MIN: f64 = 0.000_05;
/// Ratio from which "3.4 times" is easier to read than "240 % more".
const TIMES_RATIO_MIN: f64 = 3.0;
/// Significant digits of a tick: enough for ticks that are close together.
const TICK_DIGITS: i32 = 6;

/// Formats a value with three digits and its unit: `1.23 ms`, `42.0 k/s`, `12.3 %`. Units are those
/// of `ExperimentMetric::unit`, and also `s`, `us` and `bytes/s`.
pub fn value(value: f64, unit: &str) -> String {
    scaled_text(value, unit, three_digits)
}

/// Formats a value for a tick: round numbers, without insignificant zeros.
pub fn tick(value: f64, unit: &str) -> String {
    scaled_text(value, unit, short)
}

/// Returns the size of the displayed unit for a value of this size, if it is not a power of ten;
/// otherwise 1.
pub fn display_unit_size(size: f64, unit: &str) -> f64 {
    let steps = if matches!(unit, "bytes" | "bytes/s") { BYTE_STEPS } else { &[] };
    let step = steps.iter().find(|(from, _)| size >= *from);
    step.map_or(1.0, |(from, _)| *from)
}

fn scaled_text(value: f64, unit: &str, digits: fn(f64) -> String) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let with_step = |value: f64, steps: &UnitSteps, behind: &str| {
        let (number, name) = scale_to_step(value, steps);
        format!("{}{name}{behind}", with_minus_sign(&digits(number)))
    };
    match unit {
        "ns" => with_step(value, TIME_STEPS, ""),
        "us" => with_step(value * 1e3, TIME_STEPS, ""),
        "s" => with_step(value * 1e9, TIME_STEPS, ""),
        "1/s" => with_step(value, COUNT_STEPS, "/s"),
        "bytes" => with_step(value, BYTE_STEPS, ""),
        "bytes/s" => with_step(value, BYTE_STEPS, "/s"),
        "fraction" => format!("{} %", with_minus_sign(&digits(value * 100.0))),
        "cpus" => format!("{} CPU", with_minus_sign(&digits(value))),
        "1" | "" => with_step(value, COUNT_STEPS, ""),
        other => format!("{} {other}", with_step(value, COUNT_STEPS, "")),
    }
}

fn three_digits(value: f64) -> String {
    match round_to_digits(value.abs(), 3) {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        // Small values get two digits: a fraction of 0.0395 % is no more exact than 0.04 %.
        size if size >= 0.0001 => short(round_to_digits(value, 2)),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a round number with the fewest digits that it needs.
fn short(value: f64) -> String {
    if value == 0.0 || value.abs() < 1e-12 {
        return "0".to_owned();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let behind = usize::try_from(TICK_DIGITS - before).unwrap_or(0).min(9);
    let text = format!("{value:.behind$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Replaces a hyphen by a minus sign, which is as wide as a plus.
fn with_minus_sign(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.to_owned(), |rest| format!("−{rest}"))
}

/// Formats a ratio as a change without a sign: `3.1 % more`, `2.0 % less`, `the same`,
/// `3.4 times as much`.
pub fn change_text(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "unknown".to_owned();
    }
    if is_same(ratio) {
        return "the same".to_owned();
    }
    if ratio >= TIMES_RATIO_MIN {
        return format!("{} times as much", three_digits(ratio));
    }
    let word = if ratio > 1.0 { "more" } else { "less" };
    format!("{} {word}", percent((ratio - 1.0).abs()))
}

/// Formats a ratio as a change with its sign: `+3.1 %`, `−2.0 %`, `±0 %`, `×3.40`.
pub fn signed_change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "–".to_owned();
    }
    if is_same(ratio) {
        return "±0 %".to_owned();
    }
    if ratio >= TIMES_RATIO_MIN {
        return format!("×{}", three_digits(ratio));
    }
    let sign = if ratio > 1.0 { '+' } else { '−' };
    format!("{sign}{}", percent((ratio - 1.0).abs()))
}

/// Formats a ratio for a tick: `+2 %`, `−0.5 %`, `0 %`.
pub fn signed_tick(ratio: f64) -> String {
    match ratio - 1.0 {
        change if change.abs() < CHANGE_MIN / 100.0 => "0 %".to_owned(),
        _ if ratio >= TIMES_RATIO_MIN => format!("×{}", short(ratio)),
        change if change > 0.0 => format!("+{} %", short(change * 100.0)),
        change => with_minus_sign(&format!("{} %", short(change * 100.0))),
    }
}

/// Ratio of the ends of an interval above which it is no figure.
const WIDE_FROM: f64 = 2.0;
/// Replacement of a figure whose interval is wider than a factor of two, and contains no change.
pub const NOT_CLEAR: &str = "not clear";

/// Returns whether an interval of ratios is wider than a factor of two, which is no figure.
pub fn is_wide((low, high): (f64, f64)) -> bool {
    high > WIDE_FROM * low
}

/// Formats an interval of ratios: `+1.9 % to +4.3 %`. Of a wide one only the end that is nearer to no change.
pub fn ratio_interval((low, high): (f64, f64)) -> String {
    interval_with((low, high), signed_change)
}

/// Formats an interval of ratios as factors: `1.019 to 1.043`. Of a wide one only the end that is nearer to no change.
pub fn factor_interval((low, high): (f64, f64)) -> String {
    interval_with((low, high), |ratio| format!("{ratio:.3}"))
}

fn interval_with((low, high): (f64, f64), format: impl Fn(f64) -> String) -> String {
    match is_wide((low, high)) {
        false => format!("{} to {}", format(low), format(high)),
        true if low > 1.0 => format!("{} or more", format(low)),
        true if high < 1.0 => format!("{} or less", format(high)),
        true => NOT_CLEAR.to_owned(),
    }
}

/// Formats a fraction with as many digits as it needs: `0.03 %`, `3.1 %`, `123 %`.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.095 => format!("{percent:.2} %"),
        size if size < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a bound in percent as people write it: `2 %`, `0.5 %`.
pub fn bound_percent(fraction: f64) -> String {
    format!("{} %", short(fraction * 100.0))
}

/// Formats a number of things: `1 block`, `12 blocks`.
pub fn count(number: usize, thing: &str) -> String {
    record::units::format_plural(number as u64, thing)
}

/// Formats a frequency: `once`, `3 times`.
pub fn frequency(number: u32) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// Formats a range of integers: `10 to 30`, or `10` if both ends are 10.
pub fn int_range((min, max): (u32, u32)) -> String {
    if min == max { min.to_string() } else { format!("{min} to {max}") }
}

/// Formats a range of things: `10 to 30 blocks`, `1 block`.
pub fn count_range((min, max): (u32, u32), thing: &str) -> String {
    let things = count(max as usize, thing);
    if min == max { things } else { format!("{min} to {things}") }
}

/// Formats an estimate of a duration: seconds below two minutes, full minutes above: `45 s`,
/// `10 min`, `2 h 13 min`.
pub fn duration_estimate(seconds: f64) -> String {
    let whole_seconds = seconds.max(0.0).ceil() as u64;
    match whole_seconds {
        0..120 => format!("{whole_seconds} s"),
        120..7200 => format!("{} min", whole_seconds.div_ceil(60)),
        _ => format!("{} h {} min", whole_seconds / 3600, whole_seconds % 3600 / 60),
    }
}

/// Formats an estimate of both ends: `6 min to 2 h 13 min`, or `10 min` if both read alike.
pub fn duration_estimates((min_s, max_s): (f64, f64)) -> String {
    let (min, max) = (duration_estimate(min_s), duration_estimate(max_s));
    if min == max { min } else { format!("{min} to {max}") }
}

/// Returns whether a ratio is so close to 1 that the text reports no change.
pub fn is_same(ratio: f64) -> bool {
    (ratio - 1.0).abs() < CHANGE_MIN
}

/// Formats a duration for people: `38 s`, `12 min 30 s`, `2 h 5 min`.
pub fn duration_text(seconds: f64) -> String {
    let whole_seconds = seconds.max(0.0).round() as u64;
    let (hours, minutes, rest) = (whole_seconds / 3600, whole_seconds / 60 % 60, whole_seconds % 60);
    match (hours, minutes) {
        (0, 0) if seconds < 10.0 && seconds.fract() > 0.0 => value(seconds, "s"),
        (0, 0) => format!("{rest} s"),
        (0, _) if rest == 0 => format!("{minutes} min"),
        (0, _) => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// Formats a probability by chance: `0.004`, `< 0.001`.
pub fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Formats a probability within a sentence: `p = 0.004`, `p < 0.001`.
pub fn p_value(p: f64) -> String {
    let relation = if p < 0.001 { "" } else { "= " };
    format!("p {relation}{}", probability(p))
}

/// Formats the percentage of pairings in which one side is better: `97 %`, and in words for all or
/// none of them. Some dozen trials do not justify more digits.
pub fn better_fraction(fraction: f64) -> String {
    match fraction {
        0.0 => "worse in every pairing".to_owned(),
        1.0 => "better in every pairing".to_owned(),
        fraction if fraction < 0.01 => "< 1 %".to_owned(),
        fraction if fraction > 0.99 => "> 99 %".to_owned(),
        fraction => format!("{:.0} %", fraction * 100.0),
    }
}

/// Returns the better direction of a metric: `higher is better`.
pub fn better_direction(metric: &ExperimentMetric) -> &'static str {
    match metric.better {
        BetterDirection::Higher => "higher is better",
        BetterDirection::Lower => "lower is better",
    }
}

/// Formats a code with spaces in place of its underscores: `user_cpu_bound` -> `user cpu bound`.
pub fn code_words(code: &str) -> String {
    code.replace('_', " ")
}

/// Capitalises a text for the start of a sentence.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_interval_is_no_figure() {
        let both = |ends| [ratio_interval(ends), factor_interval(ends)];
        assert_eq!(both((1.019, 1.043)), ["+1.9 % to +4.3 %", "1.019 to 1.043"]);
        assert_eq!(both((1.5, 4.0)), ["+50.0 % or more", "1.500 or more"]);
        assert_eq!(both((0.1, 0.5)), ["−50.0 % or less", "0.500 or less"]);
        assert_eq!(both((0.6, 1.9)), [NOT_CLEAR, NOT_CLEAR]);
        assert_eq!(both((f64::NEG_INFINITY, f64::INFINITY)), [NOT_CLEAR, NOT_CLEAR]);
    }

    #[test]
    fn values_have_three_digits_and_their_unit() {
        for (number, unit, text) in [
            (1_234_567.0, "ns", "1.23 ms"),
            (999_960.0, "ns", "1.00 ms"),
            (12.34, "us", "12.3 µs"),
            (0.5, "us", "500 ns"),
            (2.0, "s", "2.00 s"),
            (42_000.0, "1/s", "42.0 k/s"),
            (999.7, "1/s", "1.00 k/s"),
            (0.0, "1/s", "0/s"),
            (0.123, "fraction", "12.3 %"),
            (0.0004, "fraction", "0.04 %"),
            (0.000_395, "fraction", "0.04 %"),
            (0.006_14, "cpus", "0.0061 CPU"),
            (1.5, "cpus", "1.50 CPU"),
            (1536.0, "bytes", "1.50 KiB"),
            (3.0e6, "bytes/s", "2.86 MiB/s"),
            (-3.0, "1", "−3.00"),
            (7.0, "calls", "7.00 calls"),
            (f64::NAN, "ns", "–"),
        ] {
            assert_eq!(value(number, unit), text, "{number} {unit}");
        }
    }

    #[test]
    fn ticks_tell_round_numbers_and_no_more() {
        for (number, unit, text) in [
            (500_000.0, "ns", "500 µs"),
            (0.6000000000000001, "fraction", "60 %"),
            (100_200.0, "1/s", "100.2 k/s"),
            (100_000.0, "1/s", "100 k/s"),
            (0.0, "ns", "0 ns"),
            (1e-13, "1", "0"),
            (2.5e6, "ns", "2.5 ms"),
            (0.001, "fraction", "0.1 %"),
        ] {
            assert_eq!(tick(number, unit), text, "{number} {unit}");
        }
    }

    #[test]
    fn ratios_are_changes() {
        assert_eq!(change_text(1.031), "3.1 % more");
        assert_eq!(change_text(0.98), "2.0 % less");
        assert_eq!(change_text(1.0), "the same");
        assert!(change_text(3.4).starts_with("3.40 "));
        assert_eq!(change_text(0.2), "80.0 % less");
        assert_eq!(signed_change(1.0004), "+0.04 %");
        assert_eq!(signed_change(0.5), "−50.0 %");
        assert_eq!(signed_change(f64::NAN), "–");
        assert_eq!((signed_tick(1.02), signed_tick(0.995)), ("+2 %".into(), "−0.5 %".into()));
        assert_eq!((signed_tick(1.0), signed_tick(5.0)), ("0 %".into(), "×5".into()));
        assert_eq!(ratio_interval((1.019, 1.043)), "+1.9 % to +4.3 %");
    }

    #[test]
    fn other_formats_read_naturally() {
        assert_eq!((count(1, "block"), count(12, "block")), ("1 block".into(), "12 blocks".into()));
        assert_eq!(
            (count_range((1, 1), "block"), count_range((3, 3), "block")),
            ("1 block".into(), "3 blocks".into())
        );
        assert_eq!(
            (count_range((1, 3), "block"), int_range((10, 30))),
            ("1 to 3 blocks".into(), "10 to 30".into())
        );
        assert_eq!((frequency(1), frequency(3)), ("once".into(), "3 times".into()));
        assert_eq!((duration_estimate(0.0), duration_estimate(61.0)), ("0 s".into(), "61 s".into()));
        assert_eq!(
            (duration_estimate(330.0), duration_estimate(8000.0)),
            ("6 min".into(), "2 h 13 min".into())
        );
        assert_eq!(duration_estimates((30.0, 330.0)), "30 s to 6 min");
        assert_eq!(duration_estimates((310.0, 330.0)), "6 min");
        assert_eq!(duration_text(38.2), "38 s");
        assert_eq!(duration_text(750.0), "12 min 30 s");
        assert_eq!(duration_text(7500.0), "2 h 5 min");
        assert_eq!((duration_text(2.5), duration_text(8.0)), ("2.50 s".into(), "8 s".into()));
        assert_eq!((probability(0.0001), probability(0.0417)), ("< 0.001".into(), "0.042".into()));
        assert_eq!((p_value(0.0001), p_value(0.0417)), ("p < 0.001".into(), "p = 0.042".into()));
        assert_eq!((better_fraction(0.974), better_fraction(0.996)), ("97 %".into(), "> 99 %".into()));
        // None of a hundred pairings is not a small chance: it is the other way in all of them.
        assert_eq!(better_fraction(0.004), "< 1 %");
        assert!(better_fraction(0.0).starts_with("worse") && better_fraction(1.0).starts_with("better"));
        assert_eq!((bound_percent(0.02), bound_percent(0.005)), ("2 %".into(), "0.5 %".into()));
        assert_eq!((percent(0.0), percent(0.0003)), ("0 %".into(), "0.03 %".into()));
        assert_eq!((capitalized("it was"), capitalized("")), ("It was".into(), String::new()));
        assert_eq!(code_words("user_cpu_bound"), "user cpu bound");
    }
}
