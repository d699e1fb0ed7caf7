//! Numbers in words: values with their unit, ratios as changes, intervals, probabilities, counts of things.
//! One form for all that says something of an experiment: its sentences, its report, the terminal.
//! Not for the sentences themselves: those are [`crate::judge`]'s.

use record::experiment::{Better, Metric};

/// A change of a ratio smaller than this is written as none: a hundredth of a percent.
const CHANGE_MIN: f64 = 0.000_05;
/// From this ratio on, "3.4 times" is easier to read than "240 % more".
const TIMES_FROM: f64 = 3.0;
/// Significant digits of a tick: enough for ticks that are close together.
const TICK_DIGITS: i32 = 6;

/// A value with three digits and its unit: `1.23 ms`, `42.0k/s`, `12.3 %`. Units are those of
/// [`Metric::unit`], with `s`, `us` and `bytes/s` beside them.
#[must_use]
pub fn value(value: f64, unit: &str) -> String {
    scaled(value, unit, three_digits)
}

/// The same for a tick: round numbers, without zeros that say nothing.
#[must_use]
pub fn tick(value: f64, unit: &str) -> String {
    scaled(value, unit, short)
}

/// How units grow: the factor from which a name is used, and the name.
const TIMES_NS: &[(f64, &str)] = &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (0.0, " ns")];
const COUNTS: &[(f64, &str)] = &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, "")];
const BYTES: &[(f64, &str)] =
    &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1024.0, " KiB"), (0.0, " B")];

/// What a unit is counted in at this size, where that is no power of ten.
#[must_use]
pub fn counted_in(size: f64, unit: &str) -> f64 {
    let steps = if matches!(unit, "bytes" | "bytes/s") { BYTES } else { &[] };
    let step = steps.iter().find(|(from, _)| *from > 0.0 && size >= *from);
    step.map_or(1.0, |(from, _)| *from)
}

fn scaled(value: f64, unit: &str, digits: fn(f64) -> String) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let grown = |value: f64, steps: &[(f64, &str)], behind: &str| {
        let size = rounded(value.abs(), 3);
        let step = steps.iter().find(|(from, _)| size >= *from && size > 0.0);
        let (from, name) = step.or_else(|| steps.last()).copied().unwrap_or((0.0, ""));
        let number = if from > 0.0 { value / from } else { value };
        format!("{}{name}{behind}", minus(&digits(number)))
    };
    match unit {
        "ns" => grown(value, TIMES_NS, ""),
        "us" => grown(value * 1e3, TIMES_NS, ""),
        "s" => grown(value * 1e9, TIMES_NS, ""),
        "1/s" => grown(value, COUNTS, "/s"),
        "bytes" => grown(value, BYTES, ""),
        "bytes/s" => grown(value, BYTES, "/s"),
        "share" => format!("{} %", minus(&digits(value * 100.0))),
        "cpus" => format!("{} CPU", minus(&digits(value))),
        "1" | "" => grown(value, COUNTS, ""),
        other => format!("{} {other}", grown(value, COUNTS, "")),
    }
}

/// To so many significant digits: so that 999.6 is a thousand before its unit is chosen.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = 10f64.powf(value.abs().log10().floor() - f64::from(digits - 1));
    (value / power).round() * power
}

fn three_digits(value: f64) -> String {
    match rounded(value.abs(), 3) {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        // Two digits of what is small: a share of 0.0395 % is no more exact than 0.04 %.
        size if size >= 0.0001 => short(rounded(value, 2)),
        _ => format!("{value:.1e}"),
    }
}

/// The fewest digits that tell a round number.
fn short(value: f64) -> String {
    if value == 0.0 || value.abs() < 1e-12 {
        return "0".to_owned();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let behind = usize::try_from(TICK_DIGITS - before).unwrap_or(0).min(9);
    let text = format!("{value:.behind$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// With a minus sign, which is as wide as a plus, in place of a hyphen.
fn minus(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.to_owned(), |rest| format!("−{rest}"))
}

/// A ratio as a change without a sign: `3.1 % more`, `2.0 % less`, `the same`, `3.4 times as much`.
#[must_use]
pub fn change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "unknown".to_owned();
    }
    if is_same(ratio) {
        return "the same".to_owned();
    }
    if ratio >= TIMES_FROM {
        return format!("{} times as much", three_digits(ratio));
    }
    let word = if ratio > 1.0 { "more" } else { "less" };
    format!("{} {word}", percent((ratio - 1.0).abs()))
}

/// A ratio as a change with its sign: `+3.1 %`, `−2.0 %`, `±0 %`, `×3.40`.
#[must_use]
pub fn signed(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "–".to_owned();
    }
    if is_same(ratio) {
        return "±0 %".to_owned();
    }
    if ratio >= TIMES_FROM {
        return format!("×{}", three_digits(ratio));
    }
    let sign = if ratio > 1.0 { '+' } else { '−' };
    format!("{sign}{}", percent((ratio - 1.0).abs()))
}

/// The same for a tick: `+2 %`, `−0.5 %`, `0 %`.
#[must_use]
pub fn signed_tick(ratio: f64) -> String {
    match ratio - 1.0 {
        change if change.abs() < CHANGE_MIN / 100.0 => "0 %".to_owned(),
        _ if ratio >= TIMES_FROM => format!("×{}", short(ratio)),
        change if change > 0.0 => format!("+{} %", short(change * 100.0)),
        change => minus(&format!("{} %", short(change * 100.0))),
    }
}

/// An interval of ratios: `+1.9 % to +4.3 %`.
#[must_use]
pub fn interval((low, high): (f64, f64)) -> String {
    format!("{} to {}", signed(low), signed(high))
}

/// A share with as many digits as it takes: `0.03 %`, `3.1 %`, `123 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.095 => format!("{percent:.2} %"),
        size if size < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A bound in percent as people write it: `2 %`, `0.5 %`.
#[must_use]
pub fn bound(share: f64) -> String {
    format!("{} %", short(share * 100.0))
}

/// A number of things: `1 block`, `12 blocks`.
#[must_use]
pub fn count(number: usize, thing: &str) -> String {
    record::units::count_of(number as u64, thing)
}

/// How often: `once`, `3 times`.
#[must_use]
pub fn times(number: u32) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// A range of whole numbers: `10 to 30`, or `10` where both ends are.
#[must_use]
pub fn range((least, most): (u32, u32)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// A range of things: `10 to 30 blocks`, `1 block`.
#[must_use]
pub fn counts((least, most): (u32, u32), thing: &str) -> String {
    format!("{} {thing}{}", range((least, most)), if most == 1 { "" } else { "s" })
}

/// An estimate of a length of time: seconds below two minutes, whole minutes above: `45 s`, `10 min`,
/// `2 h 13 min`.
#[must_use]
pub fn estimate(seconds: f64) -> String {
    let whole = seconds.max(0.0).ceil() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole.div_ceil(60)),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The same of both ends: `6 min to 2 h 13 min`, or `10 min` where both are said alike.
#[must_use]
pub fn estimates((least_s, most_s): (f64, f64)) -> String {
    let (least, most) = (estimate(least_s), estimate(most_s));
    if least == most { least } else { format!("{least} to {most}") }
}

/// Whether a ratio is so near to 1 that a change of it would be written as none.
#[must_use]
pub fn is_same(ratio: f64) -> bool {
    (ratio - 1.0).abs() < CHANGE_MIN
}

/// A length of time for people: `38 s`, `12 min 30 s`, `2 h 5 min`.
#[must_use]
pub fn length(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) if seconds < 10.0 && seconds.fract() > 0.0 => value(seconds, "s"),
        (0, 0) => format!("{rest} s"),
        (0, _) if rest == 0 => format!("{minutes} min"),
        (0, _) => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// A probability by chance: `0.004`, `< 0.001`.
#[must_use]
pub fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// The same within a sentence: `p = 0.004`, `p < 0.001`.
#[must_use]
pub fn of_chance(p: f64) -> String {
    let than = if p < 0.001 { "" } else { "= " };
    format!("p {than}{}", probability(p))
}

/// In how many of a hundred pairings one side is the better one: `97 %`, and in words where it is all of
/// them or none. Digits behind it would be more than some dozen trials can tell.
#[must_use]
pub fn better_share(share: f64) -> String {
    match share {
        0.0 => "worse in every pairing".to_owned(),
        1.0 => "better in every pairing".to_owned(),
        share if share < 0.01 => "< 1 %".to_owned(),
        share if share > 0.99 => "> 99 %".to_owned(),
        share => format!("{:.0} %", share * 100.0),
    }
}

/// Which way a metric is good: `higher is better`.
#[must_use]
pub fn better(metric: &Metric) -> &'static str {
    match metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}

/// A code with spaces in place of its underscores: `user_cpu_bound` -> `user cpu bound`.
#[must_use]
pub fn code(code: &str) -> String {
    code.replace('_', " ")
}

/// A text as a sentence begins.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Words of a command line as a shell takes them, with quotes where they need them.
#[must_use]
pub fn shell(words: &[String]) -> String {
    let quoted = |word: &String| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_their_unit() {
        for (number, unit, text) in [
            (1_234_567.0, "ns", "1.23 ms"),
            (999_960.0, "ns", "1.00 ms"),
            (12.34, "us", "12.3 µs"),
            (0.5, "us", "500 ns"),
            (2.0, "s", "2.00 s"),
            (42_000.0, "1/s", "42.0k/s"),
            (999.7, "1/s", "1.00k/s"),
            (0.0, "1/s", "0/s"),
            (0.123, "share", "12.3 %"),
            (0.0004, "share", "0.04 %"),
            (0.000_395, "share", "0.04 %"),
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
            (0.6000000000000001, "share", "60 %"),
            (100_200.0, "1/s", "100.2k/s"),
            (100_000.0, "1/s", "100k/s"),
            (0.0, "ns", "0 ns"),
            (1e-13, "1", "0"),
            (2.5e6, "ns", "2.5 ms"),
            (0.001, "share", "0.1 %"),
        ] {
            assert_eq!(tick(number, unit), text, "{number} {unit}");
        }
    }

    #[test]
    fn ratios_are_changes() {
        assert_eq!(change(1.031), "3.1 % more");
        assert_eq!(change(0.98), "2.0 % less");
        assert_eq!(change(1.0), "the same");
        assert_eq!(change(3.4), "3.40 times as much");
        assert_eq!(change(0.2), "80.0 % less");
        assert_eq!(signed(1.0004), "+0.04 %");
        assert_eq!(signed(0.5), "−50.0 %");
        assert_eq!(signed(f64::NAN), "–");
        assert_eq!((signed_tick(1.02), signed_tick(0.995)), ("+2 %".into(), "−0.5 %".into()));
        assert_eq!((signed_tick(1.0), signed_tick(5.0)), ("0 %".into(), "×5".into()));
        assert_eq!(interval((1.019, 1.043)), "+1.9 % to +4.3 %");
    }

    #[test]
    fn the_rest_is_said_as_people_say_it() {
        assert_eq!((count(1, "block"), count(12, "block")), ("1 block".into(), "12 blocks".into()));
        assert_eq!(
            (counts((1, 1), "block"), counts((3, 3), "block")),
            ("1 block".into(), "3 blocks".into())
        );
        assert_eq!(
            (counts((1, 3), "block"), range((10, 30))),
            ("1 to 3 blocks".into(), "10 to 30".into())
        );
        assert_eq!((times(1), times(3)), ("once".into(), "3 times".into()));
        assert_eq!((estimate(0.0), estimate(61.0)), ("0 s".into(), "61 s".into()));
        assert_eq!((estimate(330.0), estimate(8000.0)), ("6 min".into(), "2 h 13 min".into()));
        assert_eq!(estimates((30.0, 330.0)), "30 s to 6 min");
        assert_eq!(estimates((310.0, 330.0)), "6 min");
        assert_eq!(length(38.2), "38 s");
        assert_eq!(length(750.0), "12 min 30 s");
        assert_eq!(length(7500.0), "2 h 5 min");
        assert_eq!((length(2.5), length(8.0)), ("2.50 s".into(), "8 s".into()));
        assert_eq!((probability(0.0001), probability(0.0417)), ("< 0.001".into(), "0.042".into()));
        assert_eq!(
            (of_chance(0.0001), of_chance(0.0417)),
            ("p < 0.001".into(), "p = 0.042".into())
        );
        assert_eq!((better_share(0.974), better_share(0.996)), ("97 %".into(), "> 99 %".into()));
        // None of a hundred pairings is no small chance: it is the other way in all of them.
        assert_eq!(
            (better_share(0.0), better_share(0.004)),
            ("worse in every pairing".into(), "< 1 %".into())
        );
        assert_eq!(better_share(1.0), "better in every pairing");
        assert_eq!((bound(0.02), bound(0.005)), ("2 %".into(), "0.5 %".into()));
        assert_eq!((percent(0.0), percent(0.0003)), ("0 %".into(), "0.03 %".into()));
        assert_eq!((capital("it was"), capital("")), ("It was".into(), String::new()));
        assert_eq!(code("user_cpu_bound"), "user cpu bound");
        let words = ["weir", "--set", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(shell(&words), r"weir --set 'a b' 'it'\''s' ''");
    }
}
