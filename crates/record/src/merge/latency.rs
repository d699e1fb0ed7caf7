//! Sums of histograms over all runs. Each histogram is decoded once and the sum is encoded once, so that the
//! cost grows linearly with the number of runs.

use super::MergeError;
use crate::histogram::{LatencyHistogram, LatencySummary};
use crate::run::{LatencyPair, PhaseLatencies, Run};

/// Returns the sum of the latencies of all runs; there is at least one.
pub(super) fn add_latencies(runs: &[Run]) -> Result<PhaseLatencies, MergeError> {
    Ok(PhaseLatencies {
        connect: pair(runs, |latency| &latency.connect)?,
        tls_handshake: optional_pair(runs, |latency| latency.tls_handshake.as_ref())?,
        tls_full: optional(runs, |latency| latency.tls_full.as_ref())?,
        tls_resumed: optional(runs, |latency| latency.tls_resumed.as_ref())?,
        first_byte: pair(runs, |latency| &latency.first_byte)?,
        last_byte: pair(runs, |latency| &latency.last_byte)?,
        last_byte_bad: optional_pair(runs, |latency| latency.last_byte_bad.as_ref())?,
    })
}

fn pair(runs: &[Run], select: impl Fn(&PhaseLatencies) -> &LatencyPair) -> Result<LatencyPair, MergeError> {
    let sum = |part: fn(&LatencyPair) -> &LatencySummary| {
        optional(runs, |latency| Some(part(select(latency))))
            .map(|sum| sum.unwrap_or_else(|| LatencyHistogram::new().summary()))
    };
    Ok(LatencyPair { service: sum(|pair| &pair.service)?, response: sum(|pair| &pair.response)? })
}

fn optional_pair(
    runs: &[Run],
    select: impl Fn(&PhaseLatencies) -> Option<&LatencyPair>,
) -> Result<Option<LatencyPair>, MergeError> {
    let service = optional(runs, |latency| select(latency).map(|pair| &pair.service))?;
    let response = optional(runs, |latency| select(latency).map(|pair| &pair.response))?;
    Ok(service.zip(response).map(|(service, response)| LatencyPair { service, response }))
}

/// Returns the sum of a phase; `None` if no run has it.
fn optional(
    runs: &[Run],
    select: impl Fn(&PhaseLatencies) -> Option<&LatencySummary>,
) -> Result<Option<LatencySummary>, MergeError> {
    let mut sum: Option<LatencyHistogram> = None;
    for (index, run) in (1..).zip(runs) {
        let Some(summary) = select(&run.latency) else { continue };
        let latencies =
            LatencyHistogram::decode(&summary.hdr).map_err(|error| MergeError::Histogram { index, error })?;
        match &mut sum {
            Some(sum) => sum.add(&latencies),
            None => sum = Some(latencies),
        }
    }
    Ok(sum.map(|sum| sum.summary()))
}
