//! Units as people write and read them: durations (`250ms`), sizes and counts (`64k`), rates
//! (`10k/s`), percentages. Parsing is strict; formatting keeps three digits.

/// A microsecond, in nanoseconds.
pub const MICROSECOND_NS: u64 = 1_000;
/// A millisecond, in nanoseconds.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// A second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The unit that a bare number takes, by the flag's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationUnit {
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// Parses `10s`, `1.5ms`, `250us`, `2m`, `1h`, `100ns`; a bare number is in `bare`. In nanoseconds.
///
/// # Errors
/// Why the text is not a duration.
pub fn parse_duration_ns(text: &str, bare: DurationUnit) -> Result<u64, String> {
    let (number, unit) = split_number(text);
    let unit_ns = match unit {
        "ns" => 1,
        "us" | "µs" => MICROSECOND_NS,
        "ms" => MILLISECOND_NS,
        "s" => SECOND_NS,
        "m" | "min" => 60 * SECOND_NS,
        "h" => 3600 * SECOND_NS,
        "" => match bare {
            DurationUnit::Microseconds => MICROSECOND_NS,
            DurationUnit::Milliseconds => MILLISECOND_NS,
            DurationUnit::Seconds => SECOND_NS,
        },
        _ => {
            return Err(format!("'{text}' has an unknown unit '{unit}' (use us, ms, s, m or h)"));
        }
    };
    let value = decimal(number)
        .ok_or_else(|| format!("'{text}' is not a duration (write 10s, 250ms or 1.5m)"))?;
    scale(value, unit_ns).ok_or_else(|| format!("'{text}' is longer than 584 years"))
}

/// Parses a size in bytes or a count: `100`, `64k`, `1m`, `2g`, with binary multipliers (1k = 1024),
/// as HAProxy and httpterm have them.
///
/// # Errors
/// Why the text is not a size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, 1024, "a size (write 100, 64k, 1m or 2g)")
}

/// Parses a count or a rate: `100`, `10k`, `2M`, `1.5k`, with decimal multipliers (1k = 1000); `/s`
/// may stand behind.
///
/// # Errors
/// Why the text is not a count.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    parse_scaled(plain, 1000, "a count (write 100, 10k or 2M)")
}

/// Parses a rate: as [`parse_count`], and a bare number need not be whole: `0.5`, `1.5/s`.
///
/// # Errors
/// Why the text is not a rate.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    decimal(plain).map_or_else(|| parse_count(text).map(|count| count as f64), Ok)
}

/// Parses a share: `1%`, `0.1%` or a bare fraction `0.01`. As a fraction.
///
/// # Errors
/// Why the text is not a share.
pub fn parse_share(text: &str) -> Result<f64, String> {
    parse_share_to(text, 1.0)
}

/// Parses a share of which there may be more than all: `150%` or `1.5`, up to `most`. As a fraction.
///
/// # Errors
/// Why the text is no such share.
pub fn parse_share_to(text: &str, most: f64) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let value = decimal(number.trim()).map(|value| value * scale);
    value
        .filter(|share| (0.0..=most).contains(share))
        .ok_or_else(|| format!("'{text}' is not a share (write 1% or 0.01)"))
}

fn parse_scaled(text: &str, base: u64, what: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text);
    let power = match unit {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        _ => return Err(format!("'{text}' is not {what}")),
    };
    let value = decimal(number).ok_or_else(|| format!("'{text}' is not {what}"))?;
    if power == 0 && value.fract() != 0.0 {
        return Err(format!("'{text}' is not a whole number"));
    }
    scale(value, base.pow(power)).ok_or_else(|| format!("'{text}' is too large"))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// A plain decimal number; no sign, no exponent, no infinity.
fn decimal(text: &str) -> Option<f64> {
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

/// A number of things: `1 block`, `12 blocks`.
#[must_use]
pub fn count_of(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A duration with three digits and its unit: `873ns`, `41.2us`, `1.05ms`, `2.00s`.
#[must_use]
pub fn format_duration_ns(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..MICROSECOND_NS => format!("{ns}ns"),
        MICROSECOND_NS..MILLISECOND_NS => three_digits(value / 1e3, "us"),
        MILLISECOND_NS..SECOND_NS => three_digits(value / 1e6, "ms"),
        _ => three_digits(value / 1e9, "s"),
    }
}

/// A count or a rate with three digits and a decimal multiplier: `873`, `41.2k`, `1.05M`.
#[must_use]
pub fn format_count(value: f64) -> String {
    match value.abs() {
        v if v < 1e3 => three_digits(value, ""),
        v if v < 1e6 => three_digits(value / 1e3, "k"),
        v if v < 1e9 => three_digits(value / 1e6, "M"),
        _ => three_digits(value / 1e9, "G"),
    }
}

/// A number of bytes with three digits and a binary multiplier: `873 B`, `41.2 KiB`.
#[must_use]
pub fn format_bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        v if v < KIB => format!("{bytes:.0} B"),
        v if v < KIB * KIB => three_digits(bytes / KIB, " KiB"),
        v if v < KIB * KIB * KIB => three_digits(bytes / (KIB * KIB), " MiB"),
        _ => three_digits(bytes / (KIB * KIB * KIB), " GiB"),
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    match value.abs() {
        v if v == v.trunc() && v < 1000.0 && unit.is_empty() => format!("{value:.0}"),
        v if v < 9.995 => format!("{value:.2}{unit}"),
        v if v < 99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
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
        for wrong in ["", "s", "-1s", "1e3s", "1d", "1.2.3s", "inf", "nan", ".", "99999999999h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
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
        assert_eq!(parse_count("3.7").unwrap_err(), "'3.7' is not a whole number");
        assert!(parse_size("0.5").is_err());
        assert_eq!((parse_rate("1.5"), parse_rate("0.5/s")), (Ok(1.5), Ok(0.5)));
        assert_eq!((parse_rate("10k/s"), parse_rate("0")), (Ok(10_000.0), Ok(0.0)));
        assert!(parse_rate("x").is_err() && parse_rate("1e3").is_err());
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(
            [0, 1, 2].map(|number| count_of(number, "block")),
            ["0 blocks", "1 block", "2 blocks"]
        );
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("1%"), Ok(0.01));
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert!(parse_share("101%").is_err() && parse_share("x").is_err());
        assert_eq!(parse_share_to("150%", 10.0), Ok(1.5));
        assert!(parse_share_to("1001%", 10.0).is_err());
    }

    #[test]
    fn three_digits_of_each() {
        let durations = [873, 41_250, 1_049_999, 2_000_000_000, 999_960].map(format_duration_ns);
        assert_eq!(durations, ["873ns", "41.2us", "1.05ms", "2.00s", "1000us"]);
        assert_eq!([873.0, 41_234.0, 1.05e6].map(format_count), ["873", "41.2k", "1.05M"]);
        assert_eq!([873.0, 42_188.8].map(format_bytes), ["873 B", "41.2 KiB"]);
    }
}
