//! View of a trial for metrics and covariates: the measurements of its driver, and the samples of
//! the machine during the load.
//!
//! Not for the meaning of a figure.

use diagnose::window::{SUBJECT, View};
use record::histogram::LatencyHistogram;
use record::observed::{CallCount, Neighbour};
use record::run::Run;
use record::trial::ExperimentTrial;

use super::driver::{self, DriverReading};

/// Trial with the data that is derived from it.
pub(super) struct TrialView<'a> {
    pub(super) trial: &'a ExperimentTrial,
    /// Figures from the output of a driver other than weir.
    pub(super) reading: Option<DriverReading>,
    /// Latencies of weir from the due time to the last byte; empty for other drivers.
    latencies: LatencyHistogram,
    /// Programs beside the roles, of the first machine that names some.
    pub(super) neighbours: &'a [Neighbour],
    /// Observed machines during the load.
    pub(super) machines: View<'a>,
}

impl<'a> TrialView<'a> {
    pub(super) fn new(trial: &'a ExperimentTrial) -> Self {
        let run_observations = trial.run.as_ref().map_or(&[][..], |run| run.observed.as_slice());
        let own = trial.observed.as_ref().filter(|own| own.role_index(SUBJECT).is_some());
        let observed = own.map_or(run_observations, std::slice::from_ref);
        let mut named = observed.iter().map(|observation| observation.neighbours.as_slice());
        let neighbours = named.find(|all| !all.is_empty()).unwrap_or_default();
        let output = trial.driver.output.as_deref();
        let reading = driver::find_driver(&trial.driver.program)
            .zip(output)
            .and_then(|(driver, output)| (driver.parse)(output).ok());
        let hdr = trial.run.as_ref().map(|run| run.latency.last_byte.response.hdr.as_str());
        // A histogram that cannot be decoded counts as missing.
        let latencies = hdr.and_then(|hdr| LatencyHistogram::decode(hdr).ok()).unwrap_or_default();
        let (from_s, to_s) = match (&trial.run, &reading) {
            (Some(run), _) => (run.window.from_s, run.window.to_s),
            (None, Some(reading)) => (0.0, reading.duration_s),
            (None, None) => (0.0, trial.duration_s),
        };
        Self { trial, reading, latencies, neighbours, machines: View::new(observed, from_s, to_s) }
    }

    pub(super) fn run(&self) -> Option<&'a Run> {
        self.trial.run.as_ref()
    }

    pub(super) fn driver_value(&self, name: &str) -> Option<f64> {
        self.reading.as_ref()?.values.get(name).copied()
    }

    pub(super) fn responses_per_s(&self) -> Option<f64> {
        let rate = match self.run() {
            Some(run) => Some(run.rates.responses_per_s),
            None => self.driver_value("responses_per_s"),
        };
        rate.filter(|rate| *rate > 0.0)
    }

    /// Returns good responses per second. A driver that counts errors beside responses also has the
    /// number of good ones.
    pub(super) fn goodput_per_s(&self) -> Option<f64> {
        let rate = match (self.run(), &self.reading) {
            (Some(run), _) => Some(run.goodput_per_s()),
            (None, Some(reading)) => {
                let fraction = reading.good.map_or(1.0, |good| good / reading.responses.max(1.0));
                self.driver_value("responses_per_s").map(|rate| rate * fraction.min(1.0))
            }
            (None, None) => None,
        };
        rate.filter(|rate| *rate > 0.0)
    }

    /// Returns the number of latencies behind the percentiles.
    fn latency_count(&self) -> f64 {
        match &self.reading {
            Some(reading) => reading.responses,
            None => self.latencies.count() as f64,
        }
    }

    /// Returns a percentile, in ns. `None` with too few requests for it.
    pub(super) fn latency_ns(&self, quantile: f64, name: &str) -> Option<f64> {
        if self.latency_count() < super::metrics::requests_for(quantile) {
            return None;
        }
        match self.run() {
            Some(_) => Some(self.latencies.value_at_quantile(quantile) as f64).filter(|ns| *ns > 0.0),
            None => self.driver_value(name),
        }
    }

    pub(super) fn mean_ns(&self) -> Option<f64> {
        match self.run() {
            Some(run) => Some(run.latency.last_byte.response.mean_ns).filter(|ns| *ns > 0.0),
            None => self.driver_value("mean_ns"),
        }
    }

    pub(super) fn max_ns(&self) -> Option<f64> {
        match self.run() {
            Some(run) => Some(run.latency.last_byte.response.max_ns as f64).filter(|ns| *ns > 0.0),
            None => self.driver_value("max_ns"),
        }
    }

    /// Returns the responses per second while something else was counted. If the driver does not
    /// print them by the second, the rate of the complete window is returned.
    fn responses_per_s_during(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let (mut responses, mut length_s) = (0.0, 0.0);
        for second in self.run().iter().flat_map(|run| &run.intervals) {
            let begin_s = second.time_s - second.length_s;
            let shared_s = second.time_s.min(to_s) - begin_s.max(from_s);
            if shared_s > 0.0 && second.length_s > 0.0 {
                responses += second.responses as f64 * shared_s / second.length_s;
                length_s += shared_s;
            }
        }
        match responses > 0.0 {
            true => Some(responses / length_s),
            false => self.responses_per_s(),
        }
    }

    /// Returns the system calls of the subject per response, if they were counted.
    pub(super) fn syscalls_per_response(&self) -> Option<f64> {
        self.per_response(self.machines.calls(SUBJECT, "system calls").next()?)
    }

    pub(super) fn calls_per_response(&self) -> Option<f64> {
        let calls = self.trial.calls.as_ref()?;
        self.per_response(&calls.count)
    }

    fn per_response(&self, count: &CallCount) -> Option<f64> {
        let rate = self.responses_per_s_during(count.from_s, count.from_s + count.length_s)?;
        (count.length_s > 0.0).then(|| count.count as f64 / count.length_s / rate)
    }
}
