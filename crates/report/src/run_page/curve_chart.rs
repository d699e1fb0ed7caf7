//! Latency distribution as a curve of percentiles; several runs over each other.

use record::histogram::LatencyHistogram;
use record::run::Run;

use super::layout::Figure;
use crate::charts::latency::{LatencyCurve, draw_curves};

pub(super) fn percentiles(runs: &[(&str, &Run)]) -> Option<Figure> {
    let caption = "Latency by percentile, on logarithmic axes: each further nine has the same width. A line is thin \
                   where fewer than 100 responses are beyond.";
    let figure = Figure::draw("percentiles", "Latency distribution", caption, |layout| {
        let curve = |(series, (name, run)): (usize, &(&'_ str, &Run))| {
            let latencies = LatencyHistogram::decode(&run.latency.last_byte.response.hdr).ok()?;
            (!latencies.is_empty()).then(|| (series, (*name).to_owned(), latencies))
        };
        let decoded: Vec<_> = runs.iter().enumerate().filter_map(curve).collect();
        let curves: Vec<LatencyCurve<'_>> = decoded
            .iter()
            .map(|(series, name, latencies)| LatencyCurve::new(name, *series, latencies.clone()))
            .collect();
        draw_curves("Latency by percentile", &curves, layout.width)
    })?;
    Some(figure.legend(runs.iter().map(|(name, _)| *name)))
}
