//! Part of a latency that waiting for a CPU prolongs.

use record::histogram::LatencyHistogram;
use record::observed::MachineObservation;
use record::run::Run;

use super::waiting::in_window;

/// Minimum number of unloaded requests whose latencies show the part without queueing, and the highest quantile of them.
const UNLOADED_REQUESTS_MIN: u64 = 20;
const UNLOADED_QUANTILE_MAX: f64 = 0.9;
/// Use of a thread from which its queue is not estimated any more.
const USED_MAX: f64 = 0.95;

/// Part of a latency that is longer by the fraction of the time that threads wait for a CPU: the queueing, in which a
/// request waits for the work for others, and its own CPU time. The rest is a pause, which no other program prolongs.
pub(super) struct Stretch {
    /// Latencies of one request at a time, which have no queueing.
    unloaded: Option<LatencyHistogram>,
    /// CPU time of a request in generator and subject, as long as the busiest thread lets it wait for others.
    cpu_ns: f64,
}

impl Stretch {
    pub(super) fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let baseline = run.baseline.as_ref().filter(|baseline| baseline.good >= UNLOADED_REQUESTS_MIN);
        let window_s = (run.window.to_s - run.window.from_s).max(1e-9);
        let cpus = (run.cpu.user_s + run.cpu.system_s) / window_s + run.cpu.subject_cpus.unwrap_or(0.0);
        let samples = observed.into_iter().flat_map(|observed| in_window(run, observed));
        let threads = samples.flat_map(|sample| &sample.roles).filter_map(|role| role.threads.first());
        let used = threads.map(|thread| thread.busy + thread.waiting.unwrap_or(0.0));
        let used = used.chain(run.cpu.per_core.iter().copied()).fold(0.0, f64::max).min(USED_MAX);
        Self {
            unloaded: baseline.and_then(|baseline| LatencyHistogram::decode(&baseline.hdr).ok()),
            cpu_ns: cpus * 1e9 / run.rates.responses_per_s.max(1e-9) / (1.0 - used),
        }
    }

    /// Returns the part of a percentile, which is all of it if nothing is known about requests without queueing.
    pub(super) fn part_ns(&self, quantile: f64, value_ns: f64) -> f64 {
        let Some(unloaded) = self.unloaded.as_ref().filter(|known| !known.is_empty()) else {
            return value_ns;
        };
        // The slowest of few unloaded requests may be chance.
        let queueing_ns = value_ns - unloaded.value_at_quantile(quantile.min(UNLOADED_QUANTILE_MAX)) as f64;
        // The times in the queue of a thread are exponential at most (M/M/1).
        let cpu_ns = -(1.0 - quantile).ln() * self.cpu_ns;
        queueing_ns.max(cpu_ns).clamp(0.0, value_ns)
    }
}
