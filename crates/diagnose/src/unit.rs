//! Formatting of figures.

use record::units::{format_bytes, format_duration_ns, format_rate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 1, formatted in per cent.
    Fraction,
    Cpus,
    PerSecond,
    PerResponse,
    Ratio,
    Nanoseconds,
    Bytes,
    Count,
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fraction => "fraction",
            Self::Cpus => "CPUs",
            Self::PerSecond => "per second",
            Self::PerResponse => "per response",
            Self::Ratio => "ratio",
            Self::Nanoseconds => "ns",
            Self::Bytes => "bytes",
            Self::Count => "count",
        }
    }
}

/// Formats a fraction, a time or a rate.
pub(crate) fn format_value(value: f64, unit: Unit) -> String {
    // An empty sum is a negative zero.
    let value = value + 0.0;
    match unit {
        Unit::Fraction if value >= 0.0995 || value == 0.0 => {
            format!("{:.0} %", value * 100.0)
        }
        Unit::Fraction => format!("{:.2} %", value * 100.0),
        Unit::Cpus => format!("{value:.2}"),
        Unit::PerSecond if value < 10.0 => format!("{value:.1}/s"),
        Unit::PerSecond => format_rate(value),
        Unit::PerResponse => format!("{value:.2}"),
        Unit::Ratio if value >= 100.0 => format!("{value:.0} times"),
        Unit::Ratio => format!("{value:.1} times"),
        Unit::Nanoseconds => format_duration_ns(value.max(0.0) as u64),
        Unit::Bytes => format_bytes(value),
        Unit::Count => format!("{value:.1}"),
    }
}
