//! Values as the kernel parses them (`kernel/sysctl.c`), and the values that a setting accepts. Pure.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedValues {
    /// Up to this number of whole numbers, each in the range. A shorter list sets the first fields.
    Numbers {
        fields: usize,
        min: i128,
        max: i128,
    },
    Words(&'static [&'static str]),
    /// Ports and ranges of ports, with commas.
    PortList,
    /// A congestion control that is available, or has a module.
    CongestionControl,
    /// Nothing: it can only be read.
    ReadOnly,
    /// Text that weir does not check.
    Text,
}

/// Reason why the kernel rejects a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedValue {
    #[error("the value is missing")]
    Missing,
    /// A number has a unit behind it.
    #[error("'{field}': the unit is {unit}; write the number alone")]
    Unit { field: String, unit: &'static str },
    #[error("'{0}' is not a number")]
    NotNumber(String),
    #[error("{field} is not from {min} to {max}: the kernel rejects it")]
    OutOfRange { field: String, min: i128, max: i128 },
    #[error("'{value}' is none of the words that the kernel knows: {words}")]
    Word { value: String, words: String },
    #[error("'{0}' is no port, and no range of ports with the lower one first")]
    Ports(String),
    /// The range of ports does not start with the lower one, or starts below the privileged ports.
    #[error("the kernel expects two ports from {0} (ip_unprivileged_port_start) to 65535, the lower first")]
    PortRange(i128),
    /// The kernel does not have this congestion control.
    #[error(
        "'{value}' is no congestion control of this machine ({available}), and there is no module tcp_{value}"
    )]
    CongestionControl { value: String, available: String },
    /// The setting cannot be written.
    #[error("read-only: the kernel shows it, and no line can set it")]
    ReadOnly,
}

/// Parses a whole number as the kernel does: decimal, hexadecimal with `0x`, octal with `0`, and an optional `-`.
pub fn parse_number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    // Not a second sign, which from_str_radix takes.
    let is_digit = digits.starts_with(|character: char| character.is_digit(radix));
    let number = is_digit.then(|| i128::from_str_radix(digits, radix).ok()).flatten()?;
    Some(sign * number)
}

impl AcceptedValues {
    /// Returns the reason why the kernel rejects `value`. `unit` is that of the setting.
    #[must_use]
    pub fn rejection(self, value: &str, unit: &'static str) -> Option<RejectedValue> {
        let value = value.trim();
        match self {
            Self::Numbers { fields, min, max } => {
                let mut given = value.split_whitespace().take(fields).peekable();
                if given.peek().is_none() {
                    return Some(RejectedValue::Missing);
                }
                given.find_map(|field| number_rejection(field, min, max, unit))
            }
            Self::Words(words) if !words.contains(&value) => {
                let (value, words) = (value.to_owned(), words.join(", "));
                Some(RejectedValue::Word { value, words })
            }
            Self::PortList => {
                let mut parts = value.split(',').filter(|_| !value.is_empty());
                parts.find(|part| !is_port_range(part)).map(|part| RejectedValue::Ports(part.to_owned()))
            }
            Self::ReadOnly => Some(RejectedValue::ReadOnly),
            Self::Words(_) | Self::CongestionControl | Self::Text => None,
        }
    }

    /// Returns a note about a list of numbers that is not complete, or longer than the kernel reads.
    #[must_use]
    pub fn length_note(self, value: &str) -> Option<String> {
        let Self::Numbers { fields, .. } = self else { return None };
        let given = value.split_whitespace().count();
        if given > fields {
            let ignored: Vec<&str> = value.split_whitespace().skip(fields).collect();
            return Some(format!(
                "the kernel reads {}, and ignores '{}'",
                number_count(fields),
                ignored.join(" ")
            ));
        }
        let first = if given == 1 { "first".to_owned() } else { format!("first {given}") };
        (given < fields).then(|| format!("sets the {first} of {}; the others stay", number_count(fields)))
    }

    /// Returns the value that is in force after a write of `value`: decimal numbers, the missing ones from `now`.
    pub fn in_force(self, value: &str, now: Option<&str>) -> String {
        let Self::Numbers { fields, .. } = self else {
            return value.split_whitespace().collect::<Vec<_>>().join(" ");
        };
        let decimal =
            |field: &str| parse_number(field).map_or_else(|| field.to_owned(), |number| number.to_string());
        let mut numbers: Vec<String> = value.split_whitespace().take(fields).map(decimal).collect();
        let rest = now.unwrap_or_default().split_whitespace().take(fields).skip(numbers.len());
        numbers.extend(rest.map(decimal));
        numbers.join(" ")
    }
}

fn number_count(fields: usize) -> String {
    if fields == 1 { "one number".to_owned() } else { format!("{fields} numbers") }
}

fn number_rejection(field: &str, min: i128, max: i128, unit: &'static str) -> Option<RejectedValue> {
    let Some(number) = parse_number(field) else {
        let starts_with_digit = field.starts_with(|character: char| character.is_ascii_digit());
        // "5s" has a unit; "1,2" and "09" do not.
        let has_unit = starts_with_digit && field.ends_with(char::is_alphabetic) && !unit.is_empty();
        let field = field.to_owned();
        return Some(if has_unit {
            RejectedValue::Unit { field, unit }
        } else {
            RejectedValue::NotNumber(field)
        });
    };
    let is_outside = number < min || max < number;
    is_outside.then(|| RejectedValue::OutOfRange { field: field.to_owned(), min, max })
}

fn is_port_range(part: &str) -> bool {
    let port = |text: &str| text.trim().parse::<u16>().ok();
    match part.split_once('-') {
        Some((first, last)) => port(first).zip(port(last)).is_some_and(|(first, last)| first <= last),
        None => port(part).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bases_of_the_kernel() {
        for (text, number) in [
            ("10", Some(10)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("0x1e", Some(30)),
            ("-0X10", Some(-16)),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("09", None),
            ("+30", None),
            ("--5", None),
            ("0x", None),
            ("0x-5", None),
            ("\"30\"", None),
            ("30s", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(parse_number(text), number, "{text}");
        }
    }

    #[test]
    fn short_and_long_lists_are_those_that_the_kernel_takes() {
        let three = AcceptedValues::Numbers { fields: 3, min: 1, max: i32::MAX.into() };
        for (value, is_rejected, in_force) in [
            ("0x1000", false, "4096 131072 6291456"),
            ("4096 200000", false, "4096 200000 6291456"),
            ("4096 1 2 # text", false, "4096 1 2"),
            ("4096 1 # text", true, ""),
            ("4096,1,2", true, ""),
            ("0 1 2", true, ""),
            ("4096 1 2500000000", true, ""),
        ] {
            assert_eq!(three.rejection(value, "B").is_some(), is_rejected, "{value}");
            if !is_rejected {
                assert_eq!(three.in_force(value, Some("4096 131072 6291456")), in_force);
            }
        }
        assert!(three.length_note("1 2").is_some() && three.length_note("1 2 3 4").is_some());
        assert_eq!(three.length_note("1 2 3"), None);
        for (ports, is_rejected) in
            [("", false), ("8080,9000-9100", false), ("70000", true), ("9100-9000", true), ("80,", true)]
        {
            assert_eq!(AcceptedValues::PortList.rejection(ports, "").is_some(), is_rejected, "{ports}");
        }
    }
}
