//! What stands behind the `=` of an option: a number, or how to draw one for each request.
//!
//! Pure: bytes in, a [`Value`] out; the randomness is the caller's. What a number means (bytes, a
//! status, a time) is in the table of [`crate::language`].

use fastrand::Rng;

/// What a bare number counts, and which suffixes a written one may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, a size or a switch: `k`, `m` and `g` multiply by powers of 1024.
    Plain,
    /// A time in milliseconds; also `us`, `ms` and `s`. Held in nanoseconds.
    Milliseconds,
    /// A time in microseconds; also `us`, `ms` and `s`. Held in nanoseconds.
    Microseconds,
}

impl Unit {
    fn scale(self) -> i64 {
        match self {
            Self::Plain => 1,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1_000,
        }
    }
}

/// A number, or a way to draw one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Always this.
    Fixed(i64),
    /// Uniform from 0 to below this: `5kr`.
    Below(i64),
    /// Uniform from the first to the second, both included: `10~20`, `uniform(10:20)`.
    Between(i64, i64),
    /// Exponential with this mean: `exp(10)`.
    Exponential(f64),
    /// Lognormal with a median and the standard deviation of its logarithm: `lognormal(10:0.5)`.
    LogNormal(f64, f64),
    /// One of several by their percentages; what is left of 100 is the option's default:
    /// `200:95,503:5`.
    Weighted(Box<[Choice]>),
}

/// One entry of a weighted list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its percentage and those of the entries before it.
    up_to: f64,
    value: i64,
}

impl Value {
    /// The value of one request.
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
                let all = choices.last().map_or(0.0, |choice| choice.up_to);
                let drawn = rng.f64() * all.max(100.0);
                let chosen = choices.iter().find(|choice| drawn < choice.up_to);
                chosen.map_or(default, |choice| choice.value)
            }
        }
    }

    /// Whether each request gets the same.
    #[inline]
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// A standard normal number, after Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Reads a value from the start of `text`; returns it and how many bytes it took.
///
/// As strtol(3) does, which httpterm uses, no digits at all are a 0 of no bytes.
#[inline]
pub(crate) fn parse_value(text: &[u8], unit: Unit) -> (Value, usize) {
    if text.first().is_some_and(u8::is_ascii_alphabetic)
        && let Some(named) = parse_named(text, unit)
    {
        return named;
    }
    let first = parse_number(text, unit);
    let value = if first.random { Value::Below(first.value) } else { Value::Fixed(first.value) };
    match text.get(first.used) {
        Some(b'~') if first.used > 0 => {
            parse_range(text, unit, first).unwrap_or((value, first.used))
        }
        Some(b':') if first.used > 0 => parse_list(text, unit).unwrap_or((value, first.used)),
        _ => (value, first.used),
    }
}

/// A whole number as it was written.
#[derive(Clone, Copy, Debug)]
struct Number {
    value: i64,
    random: bool,
    used: usize,
}

/// A sign, digits as strtol(3) with base 0 reads them, and suffixes.
#[inline]
fn parse_number(text: &[u8], unit: Unit) -> Number {
    let mut used = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let (radix, prefix) = match &text[used..] {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    };
    used += prefix;
    let digits_at = used;
    let mut value: i64 = 0;
    while let Some(digit) = text.get(used).and_then(|&byte| char::from(byte).to_digit(radix)) {
        value = value.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit));
        used += 1;
    }
    if used == digits_at {
        return Number { value: 0, random: false, used: 0 };
    }
    if negative {
        value = -value;
    }
    parse_suffixes(text, unit, Number { value, random: false, used })
}

/// A unit of time, or any of `k`, `m`, `g` and `r` in any number, as httpterm chains them.
#[inline]
fn parse_suffixes(text: &[u8], unit: Unit, mut number: Number) -> Number {
    let mut scale = unit.scale();
    let rest = &text[number.used..];
    let written = match rest {
        _ if unit == Unit::Plain => None,
        [b'u', b's', ..] => Some((1_000, 2)),
        [b'm', b's', ..] => Some((1_000_000, 2)),
        [b's', ..] => Some((1_000_000_000, 1)),
        _ => None,
    };
    if let Some((unit_ns, length)) = written {
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

fn parse_range(text: &[u8], unit: Unit, first: Number) -> Option<(Value, usize)> {
    let at = first.used + 1;
    let last = parse_number(&text[at..], unit);
    (last.used > 0).then(|| (between(first.value, last.value), at + last.used))
}

fn between(one: i64, other: i64) -> Value {
    Value::Between(one.min(other), one.max(other))
}

/// `value:weight`, and more of them as long as a comma and a number with a weight follow.
fn parse_list(text: &[u8], unit: Unit) -> Option<(Value, usize)> {
    let mut choices: Vec<Choice> = Vec::new();
    let (mut at, mut used) = (0, 0);
    loop {
        let number = parse_number(&text[at..], unit);
        let weight_at = at + number.used + 1;
        if number.used == 0 || text.get(weight_at - 1) != Some(&b':') {
            break;
        }
        let Some((weight, length)) = parse_decimal(&text[weight_at..]) else {
            break;
        };
        let before = choices.last().map_or(0.0, |choice| choice.up_to);
        choices.push(Choice { up_to: before + weight, value: number.value });
        used = weight_at + length;
        if text.get(used) != Some(&b',') || choices.len() == CHOICES_MAX {
            break;
        }
        at = used + 1;
    }
    (!choices.is_empty()).then(|| (Value::Weighted(choices.into()), used))
}

/// The most entries that one weighted list may have.
const CHOICES_MAX: usize = 64;

/// `exp(10)`, `lognormal(10:0.5)`, `uniform(5:15)`.
fn parse_named(text: &[u8], unit: Unit) -> Option<(Value, usize)> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let first = parse_number(&text[open + 1..], unit);
    let mut at = open + 1 + first.used;
    if first.used == 0 {
        return None;
    }
    let value = match &text[..open] {
        b"exp" => Value::Exponential(first.value.max(0) as f64),
        name @ (b"lognormal" | b"uniform") => {
            if text.get(at) != Some(&b':') {
                return None;
            }
            let (value, used) = parse_second(name, &text[at + 1..], unit, first)?;
            at += 1 + used;
            value
        }
        _ => return None,
    };
    (text.get(at) == Some(&b')')).then_some((value, at + 1))
}

fn parse_second(name: &[u8], text: &[u8], unit: Unit, first: Number) -> Option<(Value, usize)> {
    if name == b"uniform" {
        let last = parse_number(text, unit);
        return (last.used > 0).then(|| (between(first.value, last.value), last.used));
    }
    let (sigma, used) = parse_decimal(text)?;
    Some((Value::LogNormal(first.value.max(0) as f64, sigma), used))
}

/// A plain decimal number: `5`, `0.25`.
fn parse_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let plain = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let used = text.iter().position(|byte| !plain(byte)).unwrap_or(text.len());
    let number = std::str::from_utf8(&text[..used]).ok()?.parse().ok()?;
    Some((number, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, unit: Unit) -> (Value, &str) {
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
            assert_eq!(parse(text, Unit::Plain), (Value::Fixed(value), rest), "{text}");
        }
    }

    #[test]
    fn the_random_suffix_is_drawn_after_the_multiplier() {
        assert_eq!(parse("5kr", Unit::Plain).0, Value::Below(5 << 10));
        let mut rng = Rng::with_seed(1);
        let drawn: Vec<_> = (0..1000).map(|_| Value::Below(5120).draw(0, &mut rng)).collect();
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
            assert_eq!(parse(text, Unit::Milliseconds), (Value::Fixed(ns), ""), "{text}");
        }
        assert_eq!(parse("7", Unit::Microseconds).0, Value::Fixed(7_000));
    }

    #[test]
    fn a_list_binds_while_weights_follow() {
        let (value, rest) = parse("200:95,503:5,s=100", Unit::Plain);
        assert_eq!(rest, ",s=100");
        let Value::Weighted(choices) = &value else { panic!("{value:?}") };
        assert_eq!(choices.len(), 2);
        let (_, rest) = parse("100:50,10k:50/t=1", Unit::Plain);
        assert_eq!(rest, "/t=1");
        assert_eq!(parse("100,t=1", Unit::Plain), (Value::Fixed(100), ",t=1"));
    }

    #[test]
    fn what_a_list_leaves_of_100_is_the_default() {
        let (value, _) = parse("503:20,404:10", Unit::Plain);
        let mut rng = Rng::with_seed(7);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let drawn = value.draw(200, &mut rng);
            let index = [503, 404, 200].iter().position(|status| *status == drawn);
            counts[index.unwrap()] += 1;
        }
        for (count, wanted) in counts.iter().zip([2000i32, 1000, 7000]) {
            assert!((count - wanted).abs() < 200, "{counts:?}");
        }
    }

    #[test]
    fn distributions_have_their_means_and_medians() {
        let mut rng = Rng::with_seed(3);
        let mut sample = |text: &str| {
            let (value, rest) = parse(text, Unit::Milliseconds);
            assert_eq!(rest, "", "{text}");
            let mut drawn: Vec<_> = (0..20_000).map(|_| value.draw(0, &mut rng) as f64).collect();
            drawn.sort_by(f64::total_cmp);
            (drawn.iter().sum::<f64>() / 20_000.0 / 1e6, drawn[10_000] / 1e6)
        };
        let near = |found: f64, wanted: f64| (found - wanted).abs() < wanted / 20.0;
        assert!(near(sample("exp(10)").0, 10.0));
        assert!(near(sample("lognormal(10:0.5)").1, 10.0));
        assert!(near(sample("uniform(5:15)").0, 10.0));
        assert!(near(sample("10~20").1, 15.0));
    }

    #[test]
    fn an_unknown_name_or_an_open_bracket_is_a_zero_of_no_bytes() {
        for text in ["gamma(1)", "exp(10", "exp()", "uniform(5)", "lognormal(5:x)"] {
            assert_eq!(parse(text, Unit::Plain), (Value::Fixed(0), text));
        }
    }
}
