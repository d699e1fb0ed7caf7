//! Traces: the context that goes to servers, the spans of requests that are recorded, and their export.
//!
//! ```text
//!  head -> context -> traceparent of the server
//!  outcome + context -> spans in a batch -> export thread -> collector
//! ```
//! A core appends spans to its batch and hands it over when it is full or a tick old. It never waits: beyond the
//! maximum in flight, spans are dropped and counted.

mod export;
#[cfg(test)]
mod fixtures;
mod otlp;
mod recorder;
mod spans;

pub use export::{TraceExporter, TraceSender, start};
pub(crate) use recorder::CoreTraces;

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of spans, for all cores.
#[derive(Debug, Default)]
pub struct TraceCounts {
    exported: AtomicU64,
    /// Requests over the maximum rate, which have no spans.
    over_rate: AtomicU64,
    /// Spans that the exporter had no room for.
    overflowed: AtomicU64,
    /// Spans that the collector did not take.
    failed: AtomicU64,
}

impl TraceCounts {
    /// Returns each counter with its name in metrics.
    pub(crate) fn values(&self) -> [(&'static str, u64); 4] {
        [
            ("exported", &self.exported),
            ("rate", &self.over_rate),
            ("overflow", &self.overflowed),
            ("failed", &self.failed),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}
