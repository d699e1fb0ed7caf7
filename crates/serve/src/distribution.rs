//! Value of an option after its `=`: a number, or a distribution to draw one for each request.
//!
//! Pure functions: bytes in, an [`OptionValue`] out; the caller supplies the randomness. The table of
//! [`crate::url_options`] has the meaning of a number (bytes, a status, a time).

use fastrand::Rng;

/// Unit of a bare number, and the suffixes that a written one may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueUnit {
    /// A count, a size or a switch: `k`, `m` and `g` multiply by powers of 1024.
    Plain,
    /// A time in milliseconds; also `us`, `ms` and `s`. Held in nanoseconds.
    Milliseconds,
    /// A time in microseconds; also `us`, `ms` and `s`. Held in nanoseconds.
    Microseconds,
}

impl ValueUnit {
    fn scale(self) -> i64 {
        match self {
            Self::Plain => 1,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1_000,
        }
    }
}

/// A number, or a distribution to draw one from.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    Fixed(i64),
    /// Uniform from 0 to below this: `5kr`.
    Below(i64),
    /// Uniform from the first to the second, both included: `10~20`, `uniform(10:20)`.
    Between(i64, i64),
    /// Exponential with this mean: `exp(10)`.
    Exponential(f64),
    /// Lognormal with a median and the standard deviation of its logarithm: `lognormal(10:0.5)`.
    LogNormal(f64, f64),
    /// One of several by their percentages; the rest to 100 % is the option's default:
    /// `200:95,503:5`.
    Weighted(Box<[WeightedValue]>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedValue {
    /// Sum of its percentage and those of the entries before it.
    cumulative_percent: f64,
    value: i64,
}

impl OptionValue {
    #[inline]
    pub fn draw(&self, default: i64, rng: &mut Rng) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            other => other.draw_random(default, rng),
        }
    }

    fn draw_random(&self, default: i64, rng: &mut Rng) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Below(end) => rng.i64(0..(*end).max(1)),
            Self::Between(first, last) => rng.i64(*first..=*last),
            Self::Exponential(mean) => (-mean * (1.0 - rng.f64()).ln()) as i64,
            Self::LogNormal(median, sigma) => (median * (sigma * normal(rng)).exp()) as i64,
            Self::Weighted(choices) => {
                let total_percent = choices.last().map_or(0.0, |choice| choice.cumulative_percent);
                let point = rng.f64() * total_percent.max(100.0);
                let chosen = choices.iter().find(|choice| point < choice.cumulative_percent);
                chosen.map_or(default, |choice| choice.value)
            }
        }
    }

    #[inline]
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// Returns a standard normal number (Box-Muller transform).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Parses a value from the start of `text`; returns it and the number of used bytes.
///
/// Like strtol(3), which httpterm uses, it reads no digits at all as a 0 of no bytes.
#[inline]
pub(crate) fn parse_value(text: &[u8], unit: ValueUnit) -> (OptionValue, usize) {
    if text.first().is_some_and(u8::is_ascii_alphabetic)
        && let Some(named_value) = parse_named(text, unit)
    {
        return named_value;
    }
    let first = parse_number(text, unit);
    let value = if first.random { OptionValue::Below(first.value) } else { OptionValue::Fixed(first.value) };
    match text.get(first.used) {
        Some(b'~') if first.used > 0 => parse_range(text, unit, first).unwrap_or((value, first.used)),
        Some(b':') if first.used > 0 => parse_list(text, unit).unwrap_or((value, first.used)),
        _ => (value, first.used),
    }
}

/// An integer in its written form.
#[derive(Clone, Copy, Debug)]
struct ParsedNumber {
    value: i64,
    random: bool,
    used: usize,
}

/// Parses a sign, digits as strtol(3) with base 0, and suffixes.
#[inline]
fn parse_number(text: &[u8], unit: ValueUnit) -> ParsedNumber {
    let mut used = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let (radix, prefix) = match &text[used..] {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    };
    used += prefix;
    let digits_start = used;
    let mut value: i64 = 0;
    while let Some(digit) = text.get(used).and_then(|&byte| char::from(byte).to_digit(radix)) {
        value = value.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit));
        used += 1;
    }
    if used == digits_start {
        return ParsedNumber { value: 0, random: false, used: 0 };
    }
    if negative {
        value = -value;
    }
    parse_suffixes(text, unit, ParsedNumber { value, random: false, used })
}

/// Parses a unit of time, or any number of `k`, `m`, `g` and `r`, which httpterm chains.
#[inline]
fn parse_suffixes(text: &[u8], unit: ValueUnit, mut number: ParsedNumber) -> ParsedNumber {
    let mut scale = unit.scale();
    let rest = &text[number.used..];
    let time_unit = match rest {
        _ if unit == ValueUnit::Plain => None,
        [b'u', b's', ..] => Some((1_000, 2)),
        [b'm', b's', ..] => Some((1_000_000, 2)),
        [b's', ..] => Some((1_000_000_000, 1)),
        _ => None,
    };
    if let Some((unit_ns, length)) = time_unit {
        scale = unit_ns;
        number.used += length;
    }
    number.value = number.value.saturating_mul(scale);
    while let Some(suffix) = text.get(number.used) {
        match suffix {
            b'k' | b'K' => number.value = number.value.saturating_mul(1 << 10),
            b'm' | b'M' => number.value = number.value.saturating_mul(1 << 20),
            b'g' | b'G' => number.value = number.value.saturating_mul(1 << 30),
            b'r' => number.random = true,
            _ => break,
        }
        number.used += 1;
    }
    number
}

fn parse_range(text: &[u8], unit: ValueUnit, first: ParsedNumber) -> Option<(OptionValue, usize)> {
    let offset = first.used + 1;
    let last = parse_number(&text[offset..], unit);
    (last.used > 0).then(|| (between(first.value, last.value), offset + last.used))
}

fn between(first: i64, last: i64) -> OptionValue {
    OptionValue::Between(first.min(last), first.max(last))
}

/// Parses `value:weight`, and more entries while a comma and a number with a weight follow.
fn parse_list(text: &[u8], unit: ValueUnit) -> Option<(OptionValue, usize)> {
    let mut choices: Vec<WeightedValue> = Vec::new();
    let (mut offset, mut used) = (0, 0);
    loop {
        let number = parse_number(&text[offset..], unit);
        let weight_start = offset + number.used + 1;
        if number.used == 0 || text.get(weight_start - 1) != Some(&b':') {
            break;
        }
        let Some((weight, length)) = parse_decimal(&text[weight_start..]) else {
            break;
        };
        let before = choices.last().map_or(0.0, |choice| choice.cumulative_percent);
        choices.push(WeightedValue { cumulative_percent: before + weight, value: number.value });
        used = weight_start + length;
        if text.get(used) != Some(&b',') || choices.len() == CHOICES_MAX {
            break;
        }
        offset = used + 1;
    }
    (!choices.is_empty()).then(|| (OptionValue::Weighted(choices.into()), used))
}

/// Maximum number of entries in one weighted list.
const CHOICES_MAX: usize = 64;

/// Parses `exp(10)`, `lognormal(10:0.5)`, `uniform(5:15)`.
fn parse_named(text: &[u8], unit: ValueUnit) -> Option<(OptionValue, usize)> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let first = parse_number(&text[open + 1..], unit);
    let mut offset = open + 1 + first.used;
    if first.used == 0 {
        return None;
    }
    let value = match &text[..open] {
        b"exp" => OptionValue::Exponential(first.value.max(0) as f64),
        name @ (b"lognormal" | b"uniform") => {
            if text.get(offset) != Some(&b':') {
                return None;
            }
            let (value, used) = parse_second(name, &text[offset + 1..], unit, first)?;
            offset += 1 + used;
            value
        }
        _ => return None,
    };
    (text.get(offset) == Some(&b')')).then_some((value, offset + 1))
}

fn parse_second(
    name: &[u8],
    text: &[u8],
    unit: ValueUnit,
    first: ParsedNumber,
) -> Option<(OptionValue, usize)> {
    if name == b"uniform" {
        let last = parse_number(text, unit);
        return (last.used > 0).then(|| (between(first.value, last.value), last.used));
    }
    let (sigma, used) = parse_decimal(text)?;
    Some((OptionValue::LogNormal(first.value.max(0) as f64, sigma), used))
}

/// Parses a plain decimal number: `5`, `0.25`.
fn parse_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let plain = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let used = text.iter().position(|byte| !plain(byte)).unwrap_or(text.len());
    let number = std::str::from_utf8(&text[..used]).ok()?.parse().ok()?;
    Some((number, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, unit: ValueUnit) -> (OptionValue, &str) {
        let (value, used) = parse_value(text.as_bytes(), unit);
        (value, &text[used..])
    }

    #[test]
    fn numbers_are_read_as_strtol_reads_them() {
        for (text, value, rest) in [
            ("100", 100, ""),
            ("-1", -1, ""),
            ("0x10", 16, ""),
            ("010", 8, ""),
            ("0", 0, ""),
            ("5k&t=1", 5 << 10, "&t=1"),
            ("1kk", 1 << 20, ""),
            ("2g", 2 << 30, ""),
            ("", 0, ""),
            ("abc", 0, "abc"),
            ("99999999999999999999", i64::MAX, ""),
            ("9g9", 9 << 30, "9"),
        ] {
            assert_eq!(parse(text, ValueUnit::Plain), (OptionValue::Fixed(value), rest), "{text}");
        }
    }

    #[test]
    fn the_random_suffix_is_drawn_after_the_multiplier() {
        assert_eq!(parse("5kr", ValueUnit::Plain).0, OptionValue::Below(5 << 10));
        let mut rng = Rng::with_seed(1);
        let drawn: Vec<_> = (0..1000).map(|_| OptionValue::Below(5120).draw(0, &mut rng)).collect();
        assert!(drawn.iter().all(|value| (0..5120).contains(value)));
        assert!(drawn.iter().any(|value| value % 1024 != 0));
    }

    #[test]
    fn times_take_units_and_are_held_in_nanoseconds() {
        for (text, ns) in [
            ("1", 1_000_000),
            ("250us", 250_000),
            ("5ms", 5_000_000),
            ("2s", 2_000_000_000),
            ("10k", 10_240_000_000),
        ] {
            assert_eq!(parse(text, ValueUnit::Milliseconds), (OptionValue::Fixed(ns), ""), "{text}");
        }
        assert_eq!(parse("7", ValueUnit::Microseconds).0, OptionValue::Fixed(7_000));
    }

    #[test]
    fn a_list_binds_while_weights_follow() {
        let (value, rest) = parse("200:95,503:5,s=100", ValueUnit::Plain);
        assert_eq!(rest, ",s=100");
        let OptionValue::Weighted(choices) = &value else { panic!("{value:?}") };
        assert_eq!(choices.len(), 2);
        let (_, rest) = parse("100:50,10k:50/t=1", ValueUnit::Plain);
        assert_eq!(rest, "/t=1");
        assert_eq!(parse("100,t=1", ValueUnit::Plain), (OptionValue::Fixed(100), ",t=1"));
    }

    #[test]
    fn what_a_list_leaves_of_100_is_the_default() {
        let (value, _) = parse("503:20,404:10", ValueUnit::Plain);
        let mut rng = Rng::with_seed(7);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let drawn = value.draw(200, &mut rng);
            let index = [503, 404, 200].iter().position(|status| *status == drawn);
            counts[index.unwrap()] += 1;
        }
        for (count, expected) in counts.iter().zip([2000i32, 1000, 7000]) {
            assert!((count - expected).abs() < 200, "{counts:?}");
        }
    }

    #[test]
    fn distributions_have_their_means_and_medians() {
        let mut rng = Rng::with_seed(3);
        let mut sample = |text: &str| {
            let (value, rest) = parse(text, ValueUnit::Milliseconds);
            assert_eq!(rest, "", "{text}");
            let mut drawn: Vec<_> = (0..20_000).map(|_| value.draw(0, &mut rng) as f64).collect();
            drawn.sort_by(f64::total_cmp);
            (drawn.iter().sum::<f64>() / 20_000.0 / 1e6, drawn[10_000] / 1e6)
        };
        let near = |actual: f64, expected: f64| (actual - expected).abs() < expected / 20.0;
        assert!(near(sample("exp(10)").0, 10.0));
        assert!(near(sample("lognormal(10:0.5)").1, 10.0));
        assert!(near(sample("uniform(5:15)").0, 10.0));
        assert!(near(sample("10~20").1, 15.0));
    }

    #[test]
    fn an_unknown_name_or_an_open_bracket_is_a_zero_of_no_bytes() {
        for text in ["gamma(1)", "exp(10", "exp()", "uniform(5)", "lognormal(5:x)"] {
            assert_eq!(parse(text, ValueUnit::Plain), (OptionValue::Fixed(0), text));
        }
    }
}
