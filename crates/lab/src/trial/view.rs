//! A trial, as metrics and covariates read it: what its driver measured, and the samples of the machine
//! that lie within the load.
//!
//! Not for what a figure means.

use record::histogram::Latencies;
use record::observed::{CallCount, Observed, RoleUse, Sample};
use record::run::Run;
use record::trial::Trial;

use super::driver::{self, Reading};

/// A trial with what can be read from it.
pub(super) struct View<'a> {
    pub(super) trial: &'a Trial,
    /// What another driver than weir printed.
    pub(super) reading: Option<Reading>,
    /// Latencies of weir from the due time to the last byte; empty for others.
    latencies: Latencies,
    /// The machine of the subject.
    seen: Option<&'a Observed>,
    from_s: f64,
    to_s: f64,
}

impl<'a> View<'a> {
    pub(super) fn new(trial: &'a Trial) -> Self {
        let of_run = trial.run.iter().flat_map(|run| &run.observed);
        let mut all = trial.observed.iter().chain(of_run);
        let seen = all.find(|seen| seen.role_at(SUBJECT).is_some());
        let output = trial.driver.output.as_deref();
        let reading = driver::named(&trial.driver.program)
            .zip(output)
            .and_then(|(row, output)| (row.parse)(output).ok());
        let hdr = trial.run.as_ref().map(|run| run.latency.last_byte.response.hdr.as_str());
        // A histogram that cannot be read is as good as none.
        let latencies = hdr.and_then(|hdr| Latencies::decode(hdr).ok()).unwrap_or_default();
        let (from_s, to_s) = match (&trial.run, &reading) {
            (Some(run), _) => (run.window.from_s, run.window.to_s),
            (None, Some(reading)) => (0.0, reading.length_s),
            (None, None) => (0.0, trial.duration_s),
        };
        Self { trial, reading, latencies, seen, from_s, to_s }
    }

    pub(super) fn run(&self) -> Option<&'a Run> {
        self.trial.run.as_ref()
    }

    /// A figure that another driver printed.
    pub(super) fn read(&self, name: &str) -> Option<f64> {
        self.reading.as_ref()?.values.get(name).copied()
    }

    pub(super) fn responses_per_s(&self) -> Option<f64> {
        let rate = match self.run() {
            Some(run) => Some(run.rates.responses_per_s),
            None => self.read("responses_per_s"),
        };
        rate.filter(|rate| *rate > 0.0)
    }

    /// Good responses per second. A driver that counts errors beside responses tells how many were good.
    pub(super) fn goodput_per_s(&self) -> Option<f64> {
        let rate = match (self.run(), &self.reading) {
            (Some(run), _) => Some(run.goodput_per_s()),
            (None, Some(reading)) => {
                let share = reading.good.map_or(1.0, |good| good / reading.responses.max(1.0));
                self.read("responses_per_s").map(|rate| rate * share.min(1.0))
            }
            (None, None) => None,
        };
        rate.filter(|rate| *rate > 0.0)
    }

    /// How many latencies the percentiles are of.
    fn latencies_counted(&self) -> f64 {
        match &self.reading {
            Some(reading) => reading.responses,
            None => self.latencies.count() as f64,
        }
    }

    /// A percentile, in ns: absent with fewer than 100 / (1 - q) requests, which it would rest on a
    /// handful of.
    pub(super) fn latency_ns(&self, quantile: f64, name: &str) -> Option<f64> {
        // Written so that 0.9 needs 1000, whatever its binary fraction is.
        let needed = (100.0 / (1.0 - quantile)).round();
        if self.latencies_counted() < needed {
            return None;
        }
        match self.run() {
            Some(_) => Some(self.latencies.at(quantile) as f64).filter(|ns| *ns > 0.0),
            None => self.read(name),
        }
    }

    pub(super) fn mean_ns(&self) -> Option<f64> {
        match self.run() {
            Some(run) => Some(run.latency.last_byte.response.mean_ns).filter(|ns| *ns > 0.0),
            None => self.read("mean_ns"),
        }
    }

    pub(super) fn max_ns(&self) -> Option<f64> {
        match self.run() {
            Some(run) => Some(run.latency.last_byte.response.max_ns as f64).filter(|ns| *ns > 0.0),
            None => self.read("max_ns"),
        }
    }

    /// The samples that lie within the load; a load that is too short for a whole one has all there are.
    pub(super) fn samples(&self) -> Vec<&'a Sample> {
        let Some(seen) = self.seen else { return Vec::new() };
        seen.samples_within(self.from_s, self.to_s)
    }

    /// The mean of a figure over the samples that have it, each as heavy as it is long.
    pub(super) fn mean(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let (mut sum, mut length_s) = (0.0, 0.0);
        for sample in self.samples() {
            if let Some(value) = figure(sample).filter(|value| value.is_finite()) {
                sum += value * sample.length_s;
                length_s += sample.length_s;
            }
        }
        (length_s > 0.0).then(|| sum / length_s)
    }

    /// The same of one role.
    pub(super) fn mean_of(
        &self,
        role: &str,
        figure: impl Fn(&RoleUse) -> Option<f64>,
    ) -> Option<f64> {
        let place = self.seen?.role_at(role)?;
        self.mean(|sample| figure(sample.roles.get(place)?))
    }

    /// The most of a figure of one role over the samples.
    pub(super) fn most_of(
        &self,
        role: &str,
        figure: impl Fn(&RoleUse) -> Option<f64>,
    ) -> Option<f64> {
        let place = self.seen?.role_at(role)?;
        let of = |sample: &Sample| figure(sample.roles.get(place)?);
        self.samples().into_iter().filter_map(of).reduce(f64::max)
    }

    /// Events per second of a counter of the namespace that the generator is in, sample by sample, if
    /// that namespace fits.
    pub(super) fn counter(&self, name: &str, fits: impl Fn(&[String]) -> bool) -> Vec<f64> {
        let of = |sample: &&Sample| {
            let mut spaces = sample.namespaces.iter();
            let space = spaces.find(|space| space.roles.iter().any(|role| role == GENERATOR))?;
            // A counter that did not change is left out of a sample.
            fits(&space.roles).then(|| space.counters.get(name).copied().unwrap_or(0.0))
        };
        self.samples().iter().filter_map(of).collect()
    }

    /// Responses per second while something else was counted; over the whole window where the driver does
    /// not tell them by the second.
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

    /// System calls of the subject per response, where they were counted.
    pub(super) fn syscalls_per_response(&self) -> Option<f64> {
        let mut counts = self.seen?.calls.iter();
        let count = counts.find(|one| one.role == SUBJECT && one.call == "system calls")?;
        self.per_response(count)
    }

    /// Calls of the function that was asked for per response.
    pub(super) fn calls_per_response(&self) -> Option<f64> {
        let calls = self.trial.calls.as_ref()?;
        self.per_response(&calls.count)
    }

    fn per_response(&self, count: &CallCount) -> Option<f64> {
        let rate = self.responses_per_s_during(count.from_s, count.from_s + count.length_s)?;
        (count.length_s > 0.0).then(|| count.count as f64 / count.length_s / rate)
    }
}

pub(super) const GENERATOR: &str = host::observe::GENERATOR;
pub(super) const SUBJECT: &str = host::observe::SUBJECT;
pub(super) const ORIGIN: &str = host::observe::ORIGIN;
