//! The timeout that a client states in a field of its request: `X-Request-Timeout` and such, in
//! seconds or with a unit, and gRPC's `grpc-timeout`. No I/O; the caller decides which clients to
//! believe.

/// Name of the field in gRPC's form (PROTOCOL-HTTP2.md, "Timeout").
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Upper bound of a stated timeout. The proxy's own limits are shorter anyway.
const TIMEOUT_MAX_NS: u64 = 24 * 3_600_000_000_000;

/// Returns the shortest timeout of any of the `fields` in nanoseconds. `None`: no field has a valid
/// one.
pub(crate) fn client_timeout_ns<'a>(
    value_of: impl Fn(&str) -> Option<&'a [u8]>,
    fields: &[Box<str>],
) -> Option<u64> {
    fields.iter().filter_map(|field| parse(field, value_of(field)?)).min()
}

fn parse(field: &str, value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let time_ns = if field.eq_ignore_ascii_case(GRPC_TIMEOUT) { parse_grpc(text) } else { parse_plain(text) };
    time_ns.map(|time_ns| time_ns.min(TIMEOUT_MAX_NS))
}

/// Parses `5`, `0.5`, `500ms`, `5s`.
fn parse_plain(text: &str) -> Option<u64> {
    let digits =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit.trim_start() {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "m" => 60e9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // Float to integer saturates.
    Some((number * unit_ns) as u64)
}

/// Parses up to eight digits and one letter.
fn parse_grpc(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let unit_ns: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()?.saturating_mul(unit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn times_are_understood_and_nothing_else_is() {
        let cases = [
            ("x-request-timeout", "5", Some(5_000 * MS)),
            ("x-request-timeout", "0.25", Some(250 * MS)),
            ("x-request-timeout", "500ms", Some(500 * MS)),
            ("x-request-timeout", " 2s ", Some(2_000 * MS)),
            ("x-request-timeout", "0", Some(0)),
            ("x-request-timeout", "99999999999999999999999", Some(TIMEOUT_MAX_NS)),
            ("x-request-timeout", "-1", None),
            ("x-request-timeout", "", None),
            ("x-request-timeout", "1.2.3", None),
            ("x-request-timeout", "5 apples", None),
            ("x-request-timeout", "NaN", None),
            ("x-request-timeout", "inf", None),
            ("grpc-timeout", "100m", Some(100 * MS)),
            ("grpc-timeout", "1S", Some(1_000 * MS)),
            ("Grpc-Timeout", "7n", Some(7)),
            ("grpc-timeout", "99999999H", Some(TIMEOUT_MAX_NS)),
            ("grpc-timeout", "100", None),
            ("grpc-timeout", "S", None),
            ("grpc-timeout", "123456789S", None),
            ("grpc-timeout", "1\u{e9}", None),
            ("grpc-timeout", "", None),
        ];
        for (field, text, expected) in cases {
            let expected = expected.map(|ns: u64| ns.min(TIMEOUT_MAX_NS));
            assert_eq!(parse(field, text.as_bytes()), expected, "{field}: {text}");
        }
        assert_eq!(parse("x-request-timeout", b"\xff"), None);
    }
}
