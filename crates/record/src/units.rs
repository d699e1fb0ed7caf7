//! Units in human-readable text: durations (`250ms`), sizes and counts (`64k`), rates (`10k/s`),
//! percentages. Parsing is strict; formatting keeps three digits.

use crate::invalid_value;
use crate::problem::InvalidValue;

pub const MICROSECOND_NS: u64 = 1_000;
pub const MILLISECOND_NS: u64 = 1_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;

/// Unit of a bare number, as documented for the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationUnit {
    Microseconds,
    Milliseconds,
    Seconds,
}

/// Parses `10s`, `1.5ms`, `250us`, `2m`, `1h`, `100ns`, or several of them with falling units:
/// `1m30s`. A bare number has the default unit. Returns nanoseconds.
///
/// # Errors
/// The text is not a duration; the error says why.
pub fn parse_duration_ns(text: &str, default_unit: DurationUnit) -> Result<u64, InvalidValue> {
    let (mut rest, mut sum_ns, mut previous_unit_ns) = (text, 0u64, u64::MAX);
    loop {
        let (number, unit, following) = split_part(rest);
        let value = parse_decimal(number)
            .ok_or_else(|| invalid_value!("'{text}' is not a duration (write 10s, 250ms, 1.5m or 1m30s)"))?;
        let is_bare = unit.is_empty() && previous_unit_ns == u64::MAX;
        let unit_ns = match unit {
            "ns" => 1,
            "us" | "µs" => MICROSECOND_NS,
            "ms" => MILLISECOND_NS,
            "s" => SECOND_NS,
            "m" | "min" => 60 * SECOND_NS,
            "h" => 3600 * SECOND_NS,
            "" if is_bare => match default_unit {
                DurationUnit::Microseconds => MICROSECOND_NS,
                DurationUnit::Milliseconds => MILLISECOND_NS,
                DurationUnit::Seconds => SECOND_NS,
            },
            "" => return Err(invalid_value!("'{text}' ends with a number without a unit (write 1m30s)")),
            _ => return Err(invalid_value!("'{text}' has an unknown unit '{unit}' (use us, ms, s, m or h)")),
        };
        if unit_ns >= previous_unit_ns {
            return Err(invalid_value!("'{text}': larger units come first (write 1m30s)"));
        }
        previous_unit_ns = unit_ns;
        let part_ns = scale(value, unit_ns);
        sum_ns = part_ns
            .and_then(|part_ns| sum_ns.checked_add(part_ns))
            .ok_or_else(|| invalid_value!("'{text}' is longer than 584 years"))?;
        if following.is_empty() {
            return Ok(sum_ns);
        }
        rest = following;
    }
}

/// Parses the time of an objective: a duration with its unit. Returns nanoseconds.
///
/// # Errors
/// The text is not a duration, or has no unit: other tools read it as milliseconds or as seconds.
pub fn parse_limit_ns(text: &str) -> Result<u64, InvalidValue> {
    if parse_decimal(text).is_some() {
        return Err(invalid_value!("'{text}' has no unit: write {text}ms or {text}s"));
    }
    parse_duration_ns(text, DurationUnit::Milliseconds)
}

/// Parses a size in bytes or a count: `100`, `64k`, `1m`, `2g`, with binary multipliers (1k =
/// 1024), as in HAProxy and httpterm.
///
/// # Errors
/// The text is not a size; the error says why.
pub fn parse_size(text: &str) -> Result<u64, InvalidValue> {
    parse_scaled(text, 1024, "a size (write 100, 64k, 1m or 2g)")
}

/// Parses a count or a rate: `100`, `10k`, `2M`, `1.5k`, with decimal multipliers (1k = 1000) and
/// an optional `/s`.
///
/// # Errors
/// The text is not a count; the error says why.
pub fn parse_count(text: &str) -> Result<u64, InvalidValue> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    parse_scaled(plain, 1000, "a count (write 100, 10k or 2M)")
}

/// Parses a rate like [`parse_count`], but a bare number need not be an integer: `0.5`, `1.5/s`.
///
/// # Errors
/// The text is not a rate; the error says why.
pub fn parse_rate(text: &str) -> Result<f64, InvalidValue> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    parse_decimal(plain).map_or_else(|| parse_count(text).map(|count| count as f64), Ok)
}

/// Parses a fraction: `1%`, `0.1%` or a bare `0.01`.
///
/// # Errors
/// The text is not a fraction; the error says why.
pub fn parse_fraction(text: &str) -> Result<f64, InvalidValue> {
    parse_fraction_up_to(text, 1.0)
}

/// Parses a fraction that may exceed 1: `150%` or `1.5`, up to `max`.
///
/// # Errors
/// The text is not such a fraction; the error says why.
pub fn parse_fraction_up_to(text: &str, max: f64) -> Result<f64, InvalidValue> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let value = parse_decimal(number.trim()).map(|value| value * scale);
    value
        .filter(|fraction| (0.0..=max).contains(fraction))
        .ok_or_else(|| invalid_value!("'{text}' is not a fraction (write 1% or 0.01)"))
}

fn parse_scaled(text: &str, base: u64, kind: &str) -> Result<u64, InvalidValue> {
    let (number, unit) = split_number(text);
    let power = match unit {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        _ => return Err(invalid_value!("'{text}' is not {kind}")),
    };
    let value = parse_decimal(number).ok_or_else(|| invalid_value!("'{text}' is not {kind}"))?;
    if power == 0 && value.fract() != 0.0 {
        return Err(invalid_value!("'{text}' is not a whole number"));
    }
    scale(value, base.pow(power)).ok_or_else(|| invalid_value!("'{text}' is too large"))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// Splits a duration into the number and the unit of its first part, and the rest.
fn split_part(text: &str) -> (&str, &str, &str) {
    let (number, rest) = split_number(text);
    let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    (number, unit, rest)
}

/// Parses a plain decimal number; no sign, no exponent, no infinity.
fn parse_decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && text.bytes().any(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn scale(value: f64, unit: u64) -> Option<u64> {
    let scaled = (value * unit as f64).round();
    // 2^64 is the first f64 that does not fit.
    (scaled < 18_446_744_073_709_551_616.0).then_some(scaled as u64)
}

/// Formats a number of things: `1 block`, `12 blocks`.
pub fn format_plural(number: u64, noun: &str) -> String {
    let ends_with = |ends: &[&str]| ends.iter().any(|end| noun.ends_with(end));
    if number == 1 {
        format!("1 {noun}")
    } else if ends_with(&["s", "x", "ch", "sh"]) {
        format!("{number} {noun}es")
    } else if noun.ends_with('y') && !ends_with(&["ay", "ey", "oy", "uy"]) {
        format!("{number} {}ies", &noun[..noun.len() - 1])
    } else {
        format!("{number} {noun}s")
    }
}

/// Steps of a unit, largest first: the value from which a step is used, and its text with the space
/// before it.
pub type UnitSteps = [(f64, &'static str)];

pub const TIME_STEPS: &UnitSteps = &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")];
/// Steps of a count or a rate, with decimal prefixes.
pub const COUNT_STEPS: &UnitSteps = &[(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
/// Steps of a number of bytes, with binary prefixes.
pub const BYTE_STEPS: &UnitSteps =
    &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB"), (1.0, " B")];

/// Scales a value to the largest step that it reaches after rounding to three digits. Returns the
/// scaled value and the text of the unit.
pub fn scale_to_step(value: f64, steps: &UnitSteps) -> (f64, &'static str) {
    let size = round_to_digits(value.abs(), 3);
    let step = steps.iter().find(|(from, _)| size >= *from).or_else(|| steps.last());
    step.map_or((value, ""), |(from, unit)| (value / from, unit))
}

pub fn round_to_digits(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = value.abs().log10().floor() as i32 - (digits - 1);
    // A product with 0.1 is not the nearest number to its decimal digits: 33.300000000000004.
    let power = 10f64.powi(exponent.abs());
    let rounded =
        if exponent < 0 { (value * power).round() / power } else { (value / power).round() * power };
    if rounded.is_finite() { rounded } else { value }
}

/// Formats a duration with three digits and its unit: `873 ns`, `41.2 µs`, `1.05 ms`, `2.00 s`.
pub fn format_duration_ns(ns: u64) -> String {
    format_scaled(ns as f64, TIME_STEPS)
}

/// Formats a duration as the flags take it, without a space: `41.2us`, `1.05ms`.
pub fn format_duration_flag(ns: u64) -> String {
    format_duration_ns(ns).replace(' ', "").replace('µ', "u")
}

/// Formats a count with three digits and a decimal prefix: `873`, `41.2 k`, `1.05 M`.
pub fn format_count(value: f64) -> String {
    format_scaled(value, COUNT_STEPS)
}

/// Formats a rate with three digits and a decimal prefix: `873/s`, `41.2 k/s`, `1.05 M/s`.
pub fn format_rate(per_s: f64) -> String {
    format!("{}/s", format_count(per_s))
}

/// Formats a rate of bits: `873 bit/s`, `41.2 Mbit/s`.
pub fn format_bit_rate(bits_per_s: f64) -> String {
    let count = format_count(bits_per_s);
    let space = if count.contains(' ') { "" } else { " " };
    format!("{count}{space}bit/s")
}

/// Formats a number of bytes with three digits and a binary prefix: `873 B`, `41.2 KiB`.
pub fn format_bytes(bytes: f64) -> String {
    format_scaled(bytes, BYTE_STEPS)
}

/// Formats a rate of bytes: `873 B/s`, `41.2 KiB/s`.
pub fn format_byte_rate(bytes_per_s: f64) -> String {
    format!("{}/s", format_bytes(bytes_per_s))
}

fn format_scaled(value: f64, steps: &UnitSteps) -> String {
    let (scaled, unit) = scale_to_step(value, steps);
    // Nanoseconds and bytes are whole; a whole number without a prefix needs no decimals.
    let is_whole = matches!(unit, " ns" | " B") || (unit.is_empty() && scaled.fract() == 0.0);
    let decimals = match round_to_digits(scaled.abs(), 3) {
        _ if is_whole => 0,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let parse = |text| parse_duration_ns(text, DurationUnit::Seconds);
        assert_eq!(parse("10"), Ok(10 * SECOND_NS));
        assert_eq!(parse("250ms"), Ok(250 * MILLISECOND_NS));
        assert_eq!(parse("1.5m"), Ok(90 * SECOND_NS));
        assert_eq!(parse("100us"), Ok(100_000));
        assert_eq!(parse("1m30s"), Ok(90 * SECOND_NS));
        assert_eq!(parse("1h1.5m20ms"), Ok(3690 * SECOND_NS + 20 * MILLISECOND_NS));
        for (wrong, why) in [("30s1m", "larger units"), ("1m30", "without a unit"), ("1s1s", "larger units")]
        {
            assert!(parse(wrong).unwrap_err().to_string().contains(why), "{wrong}");
        }
        for invalid in ["", "s", "-1s", "1e3s", "1d", "1.2.3s", "inf", "nan", ".", "99999999999h"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
        for no_number in ["abc", "-5s", "", ".s"] {
            let why = parse(no_number).unwrap_err().to_string();
            assert!(why.contains(&format!("'{no_number}'")) && !why.contains("unit"), "{why}");
        }
        assert!(parse("1d").unwrap_err().to_string().contains("unit 'd'"));
    }

    #[test]
    fn a_limit_needs_a_unit() {
        assert_eq!((parse_limit_ns("50ms"), parse_limit_ns("1m30s")), (Ok(50_000_000), Ok(90 * SECOND_NS)));
        let why = parse_limit_ns("50").unwrap_err().to_string();
        assert!(why.contains("50ms") && why.contains("50s"), "{why}");
    }

    #[test]
    fn sizes_are_binary_and_counts_are_decimal() {
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("1.5m"), Ok(1_572_864));
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("2M/s"), Ok(2_000_000));
        assert!(parse_size("1t").is_err() && parse_count("ten").is_err());
    }

    #[test]
    fn a_count_is_whole_and_a_rate_need_not_be() {
        assert_eq!((parse_count("1.5k"), parse_size("1.3k")), (Ok(1500), Ok(1331)));
        assert_eq!(parse_count("4.0"), Ok(4));
        assert_eq!(parse_count("3.7").unwrap_err().to_string(), "'3.7' is not a whole number");
        assert!(parse_size("0.5").is_err());
        assert_eq!((parse_rate("1.5"), parse_rate("0.5/s")), (Ok(1.5), Ok(0.5)));
        assert_eq!((parse_rate("10k/s"), parse_rate("0")), (Ok(10_000.0), Ok(0.0)));
        assert!(parse_rate("x").is_err() && parse_rate("1e3").is_err());
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(
            [0, 1, 2].map(|number| format_plural(number, "block")),
            ["0 blocks", "1 block", "2 blocks"]
        );
        let nouns = ["address", "retry", "day", "more switch"].map(|noun| format_plural(2, noun));
        assert_eq!(nouns, ["2 addresses", "2 retries", "2 days", "2 more switches"]);
    }

    #[test]
    fn fractions() {
        assert_eq!(parse_fraction("1%"), Ok(0.01));
        assert_eq!(parse_fraction("0.5"), Ok(0.5));
        assert!(parse_fraction("101%").is_err() && parse_fraction("x").is_err());
        assert_eq!(parse_fraction_up_to("150%", 10.0), Ok(1.5));
        assert!(parse_fraction_up_to("1001%", 10.0).is_err());
    }

    #[test]
    fn three_digits_of_each() {
        let durations = [0, 873, 41_250, 1_049_999, 2_000_000_000, 999_960].map(format_duration_ns);
        assert_eq!(durations, ["0 ns", "873 ns", "41.2 µs", "1.05 ms", "2.00 s", "1.00 ms"]);
        let counts = [0.0, 0.25, 873.0, 41_234.0, 999_700.0, 1.05e6].map(format_count);
        assert_eq!(counts, ["0", "0.25", "873", "41.2 k", "1.00 M", "1.05 M"]);
        assert_eq!([873.0, 42_188.8].map(format_bytes), ["873 B", "41.2 KiB"]);
    }

    #[test]
    fn rates_have_a_space_before_the_prefix() {
        assert_eq!([873.0, 28_000.0].map(format_rate), ["873/s", "28.0 k/s"]);
        assert_eq!([177.0, 1_468_006.4].map(format_byte_rate), ["177 B/s", "1.40 MiB/s"]);
        assert_eq!([800.0, 1e9].map(format_bit_rate), ["800 bit/s", "1.00 Gbit/s"]);
    }

    #[test]
    fn formatted_durations_are_valid_flags() {
        let parse = |text: &str| parse_duration_ns(text, DurationUnit::Seconds);
        assert_eq!(format_duration_flag(41_200), "41.2us");
        assert_eq!(parse(&format_duration_flag(41_200)), Ok(41_200));
    }
}
