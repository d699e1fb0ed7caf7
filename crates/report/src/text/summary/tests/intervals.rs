//! Intervals in printed texts: one that is wider than a factor of two is no figure.

/// Ratio of the ends above which an interval is no figure, with a reserve for rounded digits.
const RATIO_MAX: f64 = 2.02;

/// Returns the intervals of a text whose ends differ by more than a factor of two: `(177..1.50 k)`, `(4.17 k to 5.58 k/s)`,
/// `between 37.4 ms and 252 ms`, `(+10.0 % to +300 %)`.
pub(crate) fn wide_intervals(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wide = Vec::new();
    let mut check = |from: &str, to: &str| {
        if let (Some(from_value), Some(to_value)) = (quantity(from, to), quantity(to, to))
            && from_value > 0.0
            && to_value > RATIO_MAX * from_value
        {
            wide.push(format!("{from} to {to}"));
        }
    };
    for part in text.split('(').skip(1).filter_map(|part| part.split(')').next()) {
        let part = part.trim_start_matches("95 % interval ");
        if let Some((from, to)) = part.split_once(" to ").or_else(|| part.split_once("..")) {
            check(from, to);
        }
    }
    for part in text.split("between ").skip(1) {
        if let Some((from, to)) = part.split_once(" and ") {
            let end =
                to.find([',', ';', '.']).filter(|at| to[*at..].starts_with([',', ';'])).unwrap_or(to.len());
            let words: Vec<&str> = to[..end].split(' ').take(2).collect();
            check(from, &words.join(" "));
        }
    }
    for part in text.split(" at ").skip(1) {
        if let Some((from, to)) = part.split_once("..").filter(|(from, _)| from.len() < 12) {
            check(from, to.split([' ', ';', '.']).next().unwrap_or_default());
        }
    }
    wide
}

/// Returns the value of a quantity; without a unit of time it has that of `other`. `None` for other words.
fn quantity(text: &str, other: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let (_, other_unit) = split(other)?;
    let unit = if unit.is_empty() && time(other_unit).is_some() { other_unit } else { unit };
    match unit {
        "%" => Some(1.0 + number / 100.0),
        "k" | "k/s" => Some(number * 1e3),
        "M" | "M/s" => Some(number * 1e6),
        "" | "/s" => Some(number),
        unit => Some(number * time(unit)?),
    }
}

/// Splits a quantity into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim().trim_start_matches(['×', '+', ' ']);
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == '-'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.trim_end_matches('.').parse().ok()?, unit.trim()))
}

fn time(unit: &str) -> Option<f64> {
    let units = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    units.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds)
}

#[test]
fn wide_intervals_are_found_and_others_are_not() {
    for text in [
        "knee at 1.29 k/s (177..1.50 k)",
        "from 1.42 k/s to about 2.83 k/s (900 to 2.97 k/s)",
        "without the disturbance p99 between 37.4 ms and 252 ms; x",
        "p99 27.0 ms -> 35.1 ms: +30.0 % (95 % interval -40.0 % to +90.0 %)",
        "took long (39 to 148 ms)",
        "× 1.88 (0.9 to 2.1)",
    ] {
        assert_eq!(wide_intervals(text).len(), 1, "{text}");
    }
    for text in [
        "(2.37 k to 2.97 k/s)",
        "rate between 218/s and 356/s, p50 between 83.4 ms and 136 ms",
        "raise that limit from 8 to 64 requests",
        "× 0.97 (0.96..1.03): 2.67 k, 2.54 k",
        "(95 % interval -4.0 % to +9.0 %)",
        "(bound: at least 40 %; 1 - R(1) / R(N): latency)",
        "keep it between the two and rest",
        "66 % took 39 to 148 ms",
    ] {
        assert_eq!(wide_intervals(text), Vec::<String>::new(), "{text}");
    }
}
