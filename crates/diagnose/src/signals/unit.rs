//! Formatting of figures.

use record::units::{format_bytes, format_duration_ns, format_rate};

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalUnit {
    /// 0 to 1, formatted in per cent.
    Fraction,
    /// Number of CPUs.
    Cpus,
    /// Per second.
    PerSecond,
    /// Per response.
    PerResponse,
    /// A ratio.
    Ratio,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A count.
    Count,
}

/// Formats a fraction, a time or a rate.
pub(crate) fn format_value(value: f64, unit: SignalUnit) -> String {
    // An empty sum is a negative zero.
    let value = value + 0.0;
    match unit {
        SignalUnit::Fraction if value >= 0.0995 || value == 0.0 => {
            format!("{:.0} %", value * 100.0)
        }
        SignalUnit::Fraction => format!("{:.2} %", value * 100.0),
        SignalUnit::Cpus => format!("{value:.2}"),
        SignalUnit::PerSecond if value < 10.0 => format!("{value:.1}/s"),
        SignalUnit::PerSecond => format_rate(value),
        SignalUnit::PerResponse => format!("{value:.2}"),
        SignalUnit::Ratio if value >= 100.0 => format!("{value:.0} times"),
        SignalUnit::Ratio => format!("{value:.1} times"),
        SignalUnit::Nanoseconds => format_duration_ns(value.max(0.0) as u64),
        SignalUnit::Bytes => format_bytes(value),
        SignalUnit::Count => format!("{value:.1}"),
    }
}
