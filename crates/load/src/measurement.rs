//! Result of a run: its measurement, or the reason why there is none.

use std::fmt;
use std::io;

use record::histogram::LatencyHistogram;
use record::problem::InputProblem;
use record::run::{Interval, UserTransport};
use rt::address::ResolveError;
use rt::cores::CoreError;

use crate::failure::FailureKind;
use crate::plan::RunPlan;
use crate::recorder::{Breakdown, CheckSample, Counters, LiveHistograms, PhaseHistograms};

/// Measurement of a run, over all cores.
#[derive(Clone, Debug)]
pub struct RunMeasurement {
    pub plan: RunPlan,
    /// Latencies of the requests that were due in the window.
    pub latencies: PhaseHistograms,
    /// Service latency of the good responses to requests due after the window: the partial second.
    pub tail_service: LatencyHistogram,
    /// Number of requests due after the window without a good response.
    pub tail_not_good: u64,
    /// Lag of the generator itself.
    pub lag: LatencyHistogram,
    /// Response latency without the generator's own part, of a sample of the connections.
    pub undelayed: LatencyHistogram,
    /// Counters over the complete run.
    pub counters: Counters,
    /// One entry a second; the last may be shorter, or the drain.
    pub intervals: Vec<Interval>,
    /// The window, in s after the start. Without complete seconds it is the complete run with its
    /// ramp.
    pub window_s: (f64, f64),
    /// True if the window has at least one complete second.
    pub has_complete_second: bool,
    pub window_responses: u64,
    pub window_good: u64,
    pub window_bytes_in: u64,
    /// Requests that became due in the window; open loop only.
    pub window_due: u64,
    /// Requests due in the window, without the ramp: the requests of the percentiles.
    pub window_requests: u64,
    /// Requests that were due and had no outcome, at the end of each interval.
    pub backlog: Vec<u64>,
    /// Requests in flight, integrated from the start of the window to the end of the load.
    pub area_ns: u128,
    /// The same from the end of the load to the end of the drain: part of latencies, but not of the
    /// mean.
    pub drain_area_ns: u128,
    /// Part of that area by failed requests, which have no latency.
    pub failed_area_ns: u128,
    /// Duration of the load, in s, without the drain.
    pub load_s: f64,
    /// True if the run was ended by hand.
    pub partial: bool,
    pub check_samples: Vec<CheckSample>,
    /// Outcomes by stage and by request.
    pub breakdown: Breakdown,
    /// Latencies of WebSocket and of event streams.
    pub live: LiveHistograms,
    /// Counts of TCP in user space, if the load has it.
    pub transport: Option<Box<UserTransport>>,
    /// Start of the load by the clock, in ns.
    pub start_ns: u64,
}

/// Reason why there is no result.
#[derive(Debug)]
pub enum RunError {
    /// A name could not be resolved.
    Resolve(ResolveError),
    /// Not a single connection could be opened.
    NoConnection {
        kind: FailureKind,
        text: String,
    },
    /// The files of TLS could not be read.
    Tls(Vec<InputProblem>),
    /// Threads or sockets could not be set up.
    Io(io::Error),
    Core(CoreError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => write!(f, "{error}"),
            Self::NoConnection { text, .. } => f.write_str(text),
            Self::Tls(problems) => {
                let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("; "))
            }
            Self::Io(error) => write!(f, "cannot start: {error}"),
            Self::Core(failure) => write!(f, "{failure}"),
        }
    }
}

impl std::error::Error for RunError {}

impl RunMeasurement {
    /// Marks the intervals of the window and sums them up.
    pub(crate) fn mark_window(&mut self, due: &[u64]) {
        let (from_s, to_s) = self.window_s;
        // Nothing is due after the end, so late requests of a delayed core were due before it.
        let load_ends_with_window = (self.load_s - to_s).abs() < 1e-6;
        let mut due_before = 0;
        for (interval, &due) in self.intervals.iter_mut().zip(due) {
            let begin_s = interval.time_s - interval.length_s;
            let complete = interval.length_s > 1.0 - 1e-6;
            // The last second may arrive together with the rest after it.
            let within = complete && begin_s >= from_s - 1e-6 && begin_s < to_s - 1e-6;
            interval.measured = within || !self.has_complete_second;
            let last = load_ends_with_window && interval.time_s > to_s - 1e-6;
            let due = if last { self.counters.due } else { due };
            if interval.measured {
                self.window_responses += interval.responses;
                self.window_good += interval.good.unwrap_or(interval.responses);
                self.window_bytes_in += interval.bytes_in;
                self.window_due += due - due_before;
            }
            due_before = due;
        }
    }

    /// Returns the length of the window, in s; never 0.
    pub fn window_length_s(&self) -> f64 {
        (self.window_s.1 - self.window_s.0).max(1e-9)
    }

    pub fn responses_per_s(&self) -> f64 {
        self.window_responses as f64 / self.window_length_s()
    }

    pub fn goodput_per_s(&self) -> f64 {
        self.window_good as f64 / self.window_length_s()
    }

    /// Returns the fraction of requests that failed or had a bad response.
    pub fn error_rate(&self) -> f64 {
        let bad = self.counters.errors.iter().sum::<u64>() + self.counters.bad_status;
        if self.counters.requests == 0 { 0.0 } else { bad as f64 / self.counters.requests as f64 }
    }

    /// Returns the mean number of requests in flight, as counted and by Little's law. The law uses
    /// rate and mean service latency; failed requests count with the time until they failed. Both
    /// cover the time from the start of the window to the end.
    pub fn in_flight(&self) -> (f64, f64) {
        let length_ns = (self.load_s - self.window_s.0).max(1e-9) * 1e9;
        let sum = |latencies: &LatencyHistogram| latencies.mean_ns() * latencies.count() as f64;
        let answered_ns = sum(&self.latencies.last_byte.service) + sum(&self.tail_service);
        let sum_ns = answered_ns + self.failed_area_ns as f64 - self.drain_area_ns as f64;
        (self.area_ns as f64 / length_ns, sum_ns / length_ns)
    }
}
