//! How figures are written. Not for reading them.

use record::units::{format_bytes, format_count, format_duration_ns};

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 1, written in per cent.
    Share,
    /// Processors.
    Cpus,
    /// Per second.
    PerSecond,
    /// Per response.
    PerResponse,
    /// A ratio.
    Times,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A count.
    Count,
}

/// A share, a time, a rate: as people read it.
pub(in crate::diagnosis) fn written(value: f64, unit: Unit) -> String {
    // The sum of nothing is a negative zero.
    let value = value + 0.0;
    match unit {
        Unit::Share if value >= 0.0995 || value == 0.0 => format!("{:.0} %", value * 100.0),
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::Cpus => format!("{value:.2}"),
        Unit::PerSecond if value < 10.0 => format!("{value:.1}/s"),
        Unit::PerSecond => format!("{}/s", format_count(value)),
        Unit::PerResponse => format!("{value:.2}"),
        Unit::Times if value >= 100.0 => format!("{value:.0} times"),
        Unit::Times => format!("{value:.1} times"),
        Unit::Nanoseconds => format_duration_ns(value.max(0.0) as u64),
        Unit::Bytes => format_bytes(value),
        Unit::Count => format!("{value:.1}"),
    }
}
