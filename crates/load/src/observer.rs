//! Observer of a run: callbacks at its stages, and with the data of each second.

use record::histogram::LatencyHistogram;
use record::run::Interval;

use crate::recorder::PhaseHistograms;

/// Callbacks during a run.
pub trait RunObserver {
    /// The connections are open. Returns the start time of the clock; the engine asks again until there is
    /// one, or until the run is stopped.
    fn start_time(&mut self, connections: u64, now_ns: u64) -> Option<u64> {
        let _ = connections;
        Some(now_ns)
    }
    /// The cores are connected; the load starts at `start_ns` of the clock.
    fn on_start(&mut self, start_ns: u64);
    /// The measured window begins now.
    fn on_window_start(&mut self);
    /// The load has ended now; requests in flight are drained.
    fn on_load_end(&mut self);
    /// A second is over. The observer may add data that the engine does not have.
    fn on_second(&mut self, interval: &mut Interval, latencies: &SecondLatencies);
}

#[derive(Clone, Debug, Default)]
pub struct SecondLatencies {
    /// Latencies by phase, without the ramp.
    pub phases: PhaseHistograms,
    /// Response latency to the last byte, of all requests.
    pub response: LatencyHistogram,
}

/// Observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl RunObserver for NoopObserver {
    fn on_start(&mut self, _start_ns: u64) {}
    fn on_window_start(&mut self) {}
    fn on_load_end(&mut self) {}
    fn on_second(&mut self, _interval: &mut Interval, _latencies: &SecondLatencies) {}
}
