//! Waiting for a CPU that other programs had.

use record::observed::{GENERATOR, MachineObservation, MachineSample, SUBJECT};
use record::run::{Interval, Run};

/// Longest turn of another program before a thread that woke up gets its CPU: a tick of a kernel with 250 Hz, which is
/// also above the slice of EEVDF (Documentation/scheduler/sched-eevdf.rst; `base_slice_ns` is at most 3 ms).
pub(super) const FOREIGN_TURN_NS: f64 = 4e6;

/// Fractions of the time that work waited for a CPU that other programs had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForeignWaiting {
    generator: f64,
    subject: f64,
    /// Time that the hypervisor gave to other machines.
    steal: f64,
    /// Fraction of the requests whose own wake-ups waited, in the generator, if each waited half of the longest turn.
    late_generator: f64,
    /// The same in the subject and the servers behind it.
    late_subject: f64,
}

impl ForeignWaiting {
    pub(super) fn new(run: &Run, observed: Option<&MachineObservation>) -> Self {
        let own = run.generator.run_queue_wait_fraction.unwrap_or(0.0);
        let Some(observed) = observed else {
            let late_generator = late_fraction(own, f64::INFINITY, run.rates.responses_per_s, None);
            return Self { generator: own, late_generator, ..Self::default() };
        };
        Self::from_samples(run, observed, &in_window(run, observed).collect::<Vec<_>>(), run.cpu.foreign_cpus)
    }

    /// Returns the waiting in the seconds whose p99 is at least that of the run: the slowest responses are theirs. `None`
    /// if they are not known, or if these are all seconds.
    pub(super) fn when_slow(run: &Run, observed: Option<&MachineObservation>) -> Option<Self> {
        let observed = observed?;
        let p99_ns = run.latency.last_byte.response.p99_ns;
        let measured = || run.intervals.iter().filter(|interval| interval.measured);
        let slow: Vec<&Interval> =
            measured().filter(|interval| interval.p99_ns.is_some_and(|ns| ns >= p99_ns)).collect();
        let is_slow = |sample: &&MachineSample| {
            slow.iter().any(|interval| (sample.time_s - interval.time_s).abs() <= 0.5 * interval.length_s)
        };
        let samples: Vec<&MachineSample> = in_window(run, observed).filter(is_slow).collect();
        if samples.is_empty() || slow.len() == measured().count() {
            return None;
        }
        let foreign: Option<Vec<f64>> = samples.iter().map(|sample| sample.foreign_cpus).collect();
        let foreign = foreign.map(|all| mean(all.into_iter())).or(run.cpu.foreign_cpus);
        Some(Self::from_samples(run, observed, &samples, foreign))
    }

    fn from_samples(
        run: &Run,
        observed: &MachineObservation,
        samples: &[&MachineSample],
        foreign_cpus: Option<f64>,
    ) -> Self {
        let own = run.generator.run_queue_wait_fraction.unwrap_or(0.0);
        let find_role = |name: &str| observed.roles.iter().position(|role| role.name == name);
        let waiting = |at: usize| mean(samples.iter().filter_map(|sample| waiting_of(sample, at)));
        let share = foreign_cpus.map_or(1.0, |cpus| foreign_share(cpus.max(0.0), samples));
        let passes = |at: usize| match find_role(SUBJECT) == Some(at) && !observed.origins.is_empty() {
            // A proxy runs for the request and for the response.
            true => 2.0,
            false => 1.0,
        };
        let closed_latency_s = run.rates.offered_per_s.is_none().then(|| {
            let response = &run.latency.last_byte.response;
            response.mean_ns / 1e9
        });
        let late = |at: usize| {
            let roles = || samples.iter().filter_map(|sample| sample.roles.get(at));
            let waited = mean(
                roles().map(|role| role.threads.iter().filter_map(|thread| thread.waiting).sum::<f64>()),
            );
            let runs_per_s = mean(roles().map(|role| role.voluntary_switches_per_s)) / passes(at);
            late_fraction(waited, runs_per_s, run.rates.responses_per_s, closed_latency_s)
        };
        let generator = find_role(GENERATOR);
        let others = (0..observed.roles.len()).filter(|at| Some(*at) != generator);
        let late_own = late_fraction(own, f64::INFINITY, run.rates.responses_per_s, None);
        Self {
            generator: generator.map_or(own, waiting) * share,
            subject: find_role(SUBJECT).map_or(0.0, waiting) * share,
            steal: run.cpu.steal_fraction.unwrap_or(0.0),
            late_generator: generator.map_or(late_own, late) * share,
            late_subject: others.map(late).sum::<f64>() * share,
        }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            generator: self.generator.max(other.generator),
            subject: self.subject.max(other.subject),
            steal: self.steal.max(other.steal),
            late_generator: self.late_generator.max(other.late_generator),
            late_subject: self.late_subject.max(other.late_subject),
        }
    }

    /// Returns the fraction of generator and subject together, or that of the subject, if the delays of the generator are
    /// known.
    pub(super) fn fraction(&self, knows_generator: bool) -> f64 {
        let generator = if knows_generator { 0.0 } else { self.generator };
        (generator + self.subject + self.steal).min(1.0)
    }

    /// Returns the fraction of the requests that are delayed, if turns of other programs last up to `turn_ns`: those that
    /// come while a thread waits, as many as the fraction of the time, and those whose own wake-up waits.
    pub(super) fn delayed_fraction(&self, knows_generator: bool, turn_ns: f64) -> f64 {
        let late_generator = if knows_generator { 0.0 } else { self.late_generator };
        let late = (late_generator + self.late_subject) * FOREIGN_TURN_NS / turn_ns;
        (self.fraction(knows_generator) + late).min(1.0)
    }
}

/// Returns the share of other programs in the time that threads wait for a CPU. Threads of the run wait for each other
/// too. Whoever waits behind a program waits for the rest of its turn, so each counts with its CPU time and its turn.
fn foreign_share(foreign_cpus: f64, samples: &[&MachineSample]) -> f64 {
    let roles = samples.iter().map(|sample| {
        sample.roles.iter().map(|role| {
            let runs_per_s = role.voluntary_switches_per_s + role.involuntary_switches_per_s;
            role.cpus() * (role.cpus() * 1e9 / runs_per_s.max(1e-9)).min(FOREIGN_TURN_NS)
        })
    });
    let own = mean(roles.map(Iterator::sum));
    let foreign = foreign_cpus * FOREIGN_TURN_NS;
    if foreign > 0.0 { foreign / (foreign + own) } else { 0.0 }
}

/// Returns the fraction of the requests whose wake-ups waited, if the threads of a role waited `waited` seconds a second
/// in `runs_per_s` runs, half a turn each. A run for several requests delays all of them. In a closed loop requests that
/// were delayed together come back together: there one wait can delay all that are in flight.
fn late_fraction(waited: f64, runs_per_s: f64, responses_per_s: f64, closed_latency_s: Option<f64>) -> f64 {
    let known = if runs_per_s > 0.0 { runs_per_s } else { f64::INFINITY };
    let waits_per_s = waited / (FOREIGN_TURN_NS / 2e9);
    let waits_per_run = waits_per_s / known.min(responses_per_s).max(1.0);
    waits_per_run.max(waits_per_s * closed_latency_s.unwrap_or(0.0))
}

/// Returns the fraction of the time that the threads of a role waited for a CPU, each weighted by what it worked.
fn waiting_of(sample: &MachineSample, role: usize) -> Option<f64> {
    let threads = &sample.roles.get(role)?.threads;
    let weight: f64 = threads.iter().map(|thread| thread.busy + thread.waiting.unwrap_or(0.0)).sum();
    let sum: f64 =
        threads.iter().filter_map(|thread| Some(thread.waiting? * (thread.busy + thread.waiting?))).sum();
    (weight > 0.0).then(|| sum / weight)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

pub(super) fn in_window<'a>(
    run: &Run,
    observed: &'a MachineObservation,
) -> impl Iterator<Item = &'a MachineSample> + use<'a> {
    let (from_s, to_s) = (run.window.from_s, run.window.to_s);
    observed.samples.iter().filter(move |sample| sample.time_s > from_s + 0.2 && sample.time_s < to_s + 0.8)
}
