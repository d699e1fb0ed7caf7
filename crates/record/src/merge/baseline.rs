//! Baseline of a merged record: R(1) of the load that all generators produced together.

use super::common_window::CommonWindow;
use crate::histogram::LatencyHistogram;
use crate::run::{Baseline, Run};

/// Merges the baselines of all runs. Counts and histograms are added. The mean weighs each
/// generator by its good responses under load, because the latency under load that it is compared
/// with does so too. The baselines' own counts are no weights: a near generator sends more
/// sequential requests than a distant one.
///
/// `None` if a run has no baseline, or if another run was generating its load meanwhile: a latency
/// with queueing is no baseline, and the other generators' baselines do not apply to this one.
pub(super) fn merge_baselines(runs: &[Run], common: &CommonWindow) -> Option<Baseline> {
    let mut latencies = LatencyHistogram::new();
    let mut merged = Baseline::default();
    let (mut weighted_ns, mut weight) = (0.0, 0.0);
    for (index, run) in runs.iter().enumerate() {
        let baseline = run.baseline.as_ref()?;
        if common.disturbs_baseline(index, baseline.duration_s, runs) {
            return None;
        }
        latencies.add(&LatencyHistogram::decode(&baseline.hdr).ok()?);
        merged.duration_s = merged.duration_s.max(baseline.duration_s);
        merged.requests += baseline.requests;
        merged.good += baseline.good;
        let good = run.totals.good() as f64;
        weighted_ns += baseline.mean_ns * good;
        weight += good;
    }
    if latencies.is_empty() || weight <= 0.0 {
        return None;
    }
    let summary = latencies.summary();
    merged.min_ns = latencies.value_at_quantile(0.0);
    merged.p50_ns = summary.p50_ns;
    merged.mean_ns = weighted_ns / weight;
    merged.hdr = summary.hdr;
    Some(merged)
}
