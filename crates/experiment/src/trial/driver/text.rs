//! Parsing of figures with their units in the output of load generators. Not for their meaning.

/// Returns the text after `label` in the first line that begins with it, without surrounding
/// blanks.
pub(super) fn text_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}

pub(super) fn number(text: &str) -> Option<f64> {
    split_number(text).map(|(number, _)| number)
}

/// Parses a time with its unit, in ns: `1.23ms`, `43us`, `2.00s`, `1.5m`, `1h`.
pub(super) fn time_ns(text: &str) -> Option<f64> {
    let (number, unit) = split_number(text)?;
    let ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    Some(number * ns)
}

/// Parses bytes with a unit of powers of 1024: `235.40MB`, `12.00KB/s`.
pub(super) fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = split_number(text)?;
    let power = match unit.trim_end_matches("/s") {
        "B" => 0,
        "KB" | "K" => 1,
        "MB" | "M" => 2,
        "GB" | "G" => 3,
        "TB" | "T" => 4,
        _ => return None,
    };
    Some(number * 1024_f64.powi(power))
}

/// Parses the number before `label`: 12 in `3 total, 12 failed` before ` failed`.
pub(super) fn number_before(text: &str, label: &str) -> Option<f64> {
    let at = text.find(label)?;
    text[..at].rsplit([' ', ',', '(', ':']).find(|word| !word.is_empty()).and_then(number)
}

/// Splits a text into a number and the word directly after it.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|character: char| !(character.is_ascii_digit() || character == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].split(|character: char| character.is_whitespace() || character == ',').next();
    Some((number, unit.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_with_their_units() {
        assert_eq!(time_ns("1.50ms"), Some(1.5e6));
        assert_eq!(time_ns("43us"), Some(43e3));
        assert_eq!(time_ns("  2.00s, and"), Some(2e9));
        assert_eq!(time_ns("2"), None);
        assert_eq!(time_ns("-nan"), None);
        assert_eq!(bytes("2.00MB read"), Some(2097152.0));
        assert_eq!(bytes("3.5KB/s"), Some(3584.0));
        assert_eq!(bytes("3x"), None);
        assert_eq!(number("48123.33 req/s"), Some(48123.33));
        assert_eq!(number("x"), None);
        assert_eq!(number_before("144 total, 12 failed, 0 errored", " failed"), Some(12.0));
        assert_eq!(number_before("37.04MB (38839530) total", ") total"), Some(38839530.0));
        assert_eq!(text_after("a: 1\n  b:   2 x\n", "b:"), Some("2 x"));
        assert_eq!(text_after("a", "b:"), None);
    }
}
