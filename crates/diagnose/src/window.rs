//! View of the observed machines in a window of time: their samples and snapshots, and statistics over
//! them. Whoever needs a figure of a machine reads it here, so that a figure has one window and one meaning.
//!
//! Two statistics: the *median* of the samples, for verdicts (a disturbed second does not count), and the
//! *mean by time*, for costs, covariates and alerts (it adds up, and a short event counts for its length).

use std::collections::BTreeMap;

use record::observed::{
    CallCount, ConnectionEnd, EndQueues, FunctionUse, MachineObservation, MachineSample, NamespaceUse,
    PortRoles, QueueSnapshot, RoleUse,
};

use crate::figures as f;
use crate::traffic;

pub use record::observed::{GENERATOR, ORIGIN, SUBJECT};

/// Observed machines in a window.
#[derive(Clone, Debug)]
pub struct View<'a> {
    machines: Vec<MachineWindow<'a>>,
}

impl<'a> View<'a> {
    /// Takes the part of the observations between two times.
    #[must_use]
    pub fn new(all: &'a [MachineObservation], from_s: f64, to_s: f64) -> Self {
        let machine = |observed| MachineWindow { observed, all, from_s, to_s };
        Self { machines: all.iter().map(machine).collect() }
    }

    pub(crate) fn split(&self) -> Vec<Self> {
        self.machines.iter().map(|machine| Self { machines: vec![*machine] }).collect()
    }

    pub fn all(&self) -> &[MachineWindow<'a>] {
        &self.machines
    }

    /// Returns the machines of a role. Merged records have one per generator; every other role is
    /// on one machine, the first where it was observed.
    pub fn machines(&self, role: &str) -> Vec<MachineWindow<'a>> {
        let max = if role == GENERATOR { usize::MAX } else { 1 };
        let machines = self.machines.iter().filter(|machine| machine.observed.role_index(role).is_some());
        machines.take(max).copied().collect()
    }

    pub fn machine(&self, role: &str) -> Option<MachineWindow<'a>> {
        self.machines(role).into_iter().next()
    }

    /// Returns the machines at both ends of the path from the generator to the subject, each once:
    /// a link of any of them may be the full one.
    pub(crate) fn path_machines(&self) -> Vec<MachineWindow<'a>> {
        let mut linked = self.machines(GENERATOR);
        let subject = self.machine(SUBJECT);
        let is_included = |machine: &MachineWindow<'_>| {
            linked.iter().any(|other| std::ptr::eq(machine.observed, other.observed))
        };
        linked.extend(subject.filter(|machine| !is_included(machine)));
        linked
    }

    /// Returns a figure of a role's machine; for several machines the maximum, because the worst of
    /// the generators limits them all.
    fn max_over(&self, role: &str, figure: impl Fn(MachineWindow<'a>) -> Option<f64>) -> Option<f64> {
        self.machines(role).into_iter().filter_map(figure).reduce(f64::max)
    }

    /// Returns the median of a figure over the samples that have it.
    pub(crate) fn sample_median(
        &self,
        role: &str,
        figure: impl Fn(&MachineSample) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over(role, |machine| machine.series().median(&figure))
    }

    /// Returns the mean by time of a figure of a role's machine.
    pub(crate) fn sample_mean(
        &self,
        role: &str,
        figure: impl Fn(&MachineSample) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over(role, |machine| machine.series().mean(&figure))
    }

    /// Returns the mean by time of a figure. Of several machines, the largest counts: a disturbance of any
    /// of them disturbs the run.
    pub fn mean_of_any(&self, figure: impl Fn(&MachineSample) -> Option<f64>) -> Option<f64> {
        self.machines.iter().filter_map(|machine| machine.series().mean(&figure)).reduce(f64::max)
    }

    /// Returns the median of a figure over the samples that have it, which also gets the busy CPUs that belong to no
    /// role of the run.
    pub(crate) fn foreign_median(
        &self,
        role: &str,
        figure: impl Fn(&MachineSample, f64) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over(role, |machine| {
            machine.series().median(|sample| figure(sample, machine.foreign_cpus(sample)?))
        })
    }

    /// Returns the mean by time of the busy CPUs that belong to no role of the run, on the machine with most
    /// of them.
    pub fn foreign_mean_of_any(&self) -> Option<f64> {
        let mean = |machine: &MachineWindow<'_>| machine.series().mean(|sample| machine.foreign_cpus(sample));
        self.machines.iter().filter_map(mean).reduce(f64::max)
    }

    /// Returns the median of a figure of one role over the samples.
    pub(crate) fn role_median(&self, role: &str, figure: impl Fn(&RoleUse) -> Option<f64>) -> Option<f64> {
        self.max_over(role, |machine| machine.role(role).median(&figure))
    }

    pub fn role_mean(&self, role: &str, figure: impl Fn(&RoleUse) -> Option<f64>) -> Option<f64> {
        self.max_over(role, |machine| machine.role(role).mean(&figure))
    }

    pub fn role_max(&self, role: &str, figure: impl Fn(&RoleUse) -> Option<f64>) -> Option<f64> {
        self.max_over(role, |machine| machine.role(role).max(&figure))
    }

    /// Returns the events per second of a counter in the namespace of a role, over the whole
    /// window. `None` only if no counters were read.
    pub(crate) fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        self.max_over(role, |machine| machine.counter(role, names))
    }

    /// Returns the median of a figure over the snapshots, at the end of a role: the end that serves
    /// the port, or that connects to it.
    pub(crate) fn ends_median(
        &self,
        role: &str,
        end: ConnectionEnd,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over(role, |machine| machine.ends_median(role, end, &figure))
    }

    /// Returns the mean of a figure over the snapshots, at the end of a role.
    pub(crate) fn ends_mean(
        &self,
        role: &str,
        end: ConnectionEnd,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over(role, |machine| {
            let ends = machine.ends_by_time(role, end);
            let values: Vec<f64> = ends.iter().filter_map(|(_, ends)| figure(ends)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        })
    }

    /// Returns the wake-up lag on the CPU of a role's machine with the most of it: the median over its samples
    /// of their 99th percentiles, which cannot be averaged.
    pub fn wake_up_lag_ns(&self, role: &str) -> Option<f64> {
        self.max_over(role, |machine| {
            let samples = machine.samples();
            let lags = samples.iter().flat_map(|sample| &sample.wakeup_lags);
            let mut by_cpu: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            lags.for_each(|lag| by_cpu.entry(lag.cpu).or_default().extend((f::WAKE_UP_LAG.read)(lag)));
            by_cpu.into_values().filter_map(median).reduce(f64::max)
        })
    }

    /// Returns the sum of the fractions on top of the stack, over a role's functions that satisfy
    /// `is_included`.
    pub(crate) fn function_fraction(
        &self,
        role: &str,
        is_included: impl Fn(&FunctionUse) -> bool,
    ) -> Option<f64> {
        let observed = self.machine(role)?.observed;
        let mut functions = observed.functions.iter().filter(|function| function.role == role).peekable();
        functions.peek()?;
        Some(functions.filter(|function| is_included(function)).map(|function| function.self_fraction).sum())
    }

    pub fn calls(&self, role: &str, call: &str) -> impl Iterator<Item = &'a CallCount> {
        let observed = self.machine(role).map(|machine| machine.observed);
        let counts = observed.into_iter().flat_map(|observed| &observed.calls);
        counts.filter(move |count| count.role == role && count.call == call)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct MachineWindow<'a> {
    /// Complete observation, for settings, ports and functions.
    pub observed: &'a MachineObservation,
    /// Observations of the run, this one included: some may be of the same kernel.
    all: &'a [MachineObservation],
    from_s: f64,
    to_s: f64,
}

impl<'a> MachineWindow<'a> {
    /// Takes the last `span_s` seconds of an observation, at least one sample.
    pub(crate) fn over_last(observed: &'a MachineObservation, span_s: f64) -> Self {
        let from_s = observed.samples.last().map_or(0.0, |last| last.time_s - span_s.max(last.length_s));
        Self { observed, all: std::slice::from_ref(observed), from_s, to_s: f64::INFINITY }
    }

    /// Returns the samples of the window. A run that is too short for a complete sample returns all
    /// samples.
    pub fn samples(&self) -> Vec<&'a MachineSample> {
        self.observed.samples_in_range(self.from_s, self.to_s)
    }

    pub(crate) fn snapshots(&self) -> Vec<&'a QueueSnapshot> {
        let within =
            |snapshot: &&QueueSnapshot| snapshot.time_s >= self.from_s && snapshot.time_s <= self.to_s;
        self.observed.queues.iter().filter(within).collect()
    }

    pub(crate) fn series(&self) -> Series<'a, MachineSample> {
        self.samples().into_iter().map(|sample| (sample.length_s, sample)).collect()
    }

    /// Returns the use by a role, without the samples before its discovery.
    pub(crate) fn role(&self, role: &str) -> Series<'a, RoleUse> {
        let Some(index) = self.observed.role_index(role) else {
            return Series(Vec::new());
        };
        self.series_of(|sample| sample.roles.get(index))
    }

    pub(crate) fn series_of<P>(&self, part: impl Fn(&'a MachineSample) -> Option<&'a P>) -> Series<'a, P> {
        let parts = self.samples().into_iter().filter_map(|sample| Some((sample.length_s, part(sample)?)));
        parts.collect()
    }

    /// Returns the busy CPUs that belong to no role of the run on this kernel.
    pub(crate) fn foreign_cpus(&self, sample: &MachineSample) -> Option<f64> {
        sample.foreign_cpus_among(self.observed, self.all)
    }

    /// Returns the number of CPUs that a role may use by its affinity: so many of its threads can run at a
    /// time.
    pub(crate) fn cpus_by_affinity(&self, role: &str) -> Option<f64> {
        let role = self.observed.roles.iter().find(|candidate| candidate.name == role)?;
        Some(f64::from(role.cpus_allowed.clamp(1, self.observed.cpus.max(1))))
    }

    /// Returns the sum of some counters in the namespace of a role, per second.
    pub fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        let samples = self.series();
        let spaces = self.series_of(|sample| namespace(sample, role));
        let is_complete = spaces.0.len() == samples.0.len();
        is_complete.then(|| spaces.mean(|space| Some(events_per_s(space, names))))?
    }

    /// Returns a number of a setting of the machine, `index` counted from 0.
    pub(crate) fn setting(&self, name: &str, index: usize) -> Option<f64> {
        self.observed.settings.get(name)?.split_whitespace().nth(index)?.parse().ok()
    }

    /// Returns the number of local ports by the machine's settings.
    pub(crate) fn local_port_count(&self) -> Option<f64> {
        let name = "net.ipv4.ip_local_port_range";
        Some((self.setting(name, 1)? - self.setting(name, 0)? + 1.0).max(1.0))
    }

    /// Returns the port that a role serves, or to which it connects. The other end may be on
    /// another machine.
    pub(crate) fn port_of(&self, role: &str, end: ConnectionEnd) -> Option<u16> {
        let is_at_end = |port: &&PortRoles| match end {
            ConnectionEnd::Server => port.served_by.as_deref() == Some(role),
            ConnectionEnd::Client => port.used_by.as_deref() == Some(role),
        };
        Some(self.observed.ports.iter().find(is_at_end)?.port)
    }

    /// Returns the ports at the end of a role. For a role's connections to others these are the
    /// ports that carry its requests: a connection that is only kept open carries none.
    fn ports_of(&self, role: &str, end: ConnectionEnd) -> Vec<u16> {
        match end {
            ConnectionEnd::Server => self.observed.ports_served_by(role),
            ConnectionEnd::Client => {
                traffic::request_ports(&self.snapshots(), self.observed.ports_used_by(role))
            }
        }
    }

    /// Returns the sums over all ports at the end of a role, with their times, in order.
    pub(crate) fn ends_by_time(&self, role: &str, end: ConnectionEnd) -> Vec<(f64, EndQueues)> {
        let ports = self.ports_of(role, end);
        let timed_ends = |snapshot: &QueueSnapshot| Some((snapshot.time_s, snapshot.sum_ends(&ports, end)?));
        self.snapshots().into_iter().filter_map(timed_ends).collect()
    }

    pub(crate) fn ends_median(
        &self,
        role: &str,
        end: ConnectionEnd,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        self.ends_by_time(role, end)
            .iter()
            .map(|(time_s, ends)| (*time_s, ends))
            .collect::<Series<'_, _>>()
            .median(figure)
    }
}

/// Values of one place (a machine, a role, a CPU, a link, the sockets of a port) in the samples or snapshots
/// of a window, each with its length or its time.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a, P>(Vec<(f64, &'a P)>);

impl<'a, P> FromIterator<(f64, &'a P)> for Series<'a, P> {
    fn from_iter<T: IntoIterator<Item = (f64, &'a P)>>(values: T) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<'a, P> Series<'a, P> {
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &'a P> + '_ {
        self.0.iter().map(|(_, value)| *value)
    }

    /// Returns the values with their lengths or times.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (f64, &'a P)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn last(&self) -> Option<&'a P> {
        self.values().next_back()
    }

    /// Returns the lengths and finite figures of the values that have it.
    fn figures(&self, figure: impl Fn(&P) -> Option<f64>) -> Vec<(f64, f64)> {
        let known = self.0.iter().filter_map(|(length_s, value)| Some((*length_s, figure(value)?)));
        known.filter(|(_, value)| value.is_finite()).collect()
    }

    pub(crate) fn median(&self, figure: impl Fn(&P) -> Option<f64>) -> Option<f64> {
        median(self.figures(figure).into_iter().map(|(_, value)| value).collect())
    }

    pub(crate) fn mean(&self, figure: impl Fn(&P) -> Option<f64>) -> Option<f64> {
        let known = self.figures(figure);
        let (_, first) = *known.first()?;
        let length_s: f64 = known.iter().map(|(length_s, _)| length_s).sum();
        // Relative to the first value, so that equal values have exactly that mean.
        let sum: f64 = known.iter().map(|(one_s, value)| one_s * (value - first)).sum();
        (length_s > 0.0).then(|| first + sum / length_s)
    }

    /// Returns the mean by time of a figure that every value has; 0 without values.
    pub(crate) fn mean_of(&self, figure: impl Fn(&P) -> f64) -> f64 {
        self.mean(|value| Some(figure(value))).unwrap_or(0.0)
    }

    /// Returns the median of a figure that every value has; 0 without values.
    pub(crate) fn median_of(&self, figure: impl Fn(&P) -> f64) -> f64 {
        self.median(|value| Some(figure(value))).unwrap_or(0.0)
    }

    pub(crate) fn max(&self, figure: impl Fn(&P) -> Option<f64>) -> Option<f64> {
        self.figures(figure).into_iter().map(|(_, value)| value).reduce(f64::max)
    }

    /// Returns the growth of a sum over sockets. Closing sockets reduce the sum, so only growth between
    /// neighbours counts.
    pub(crate) fn growth(&self, figure: impl Fn(&P) -> f64) -> f64 {
        let values: Vec<f64> = self.values().map(figure).collect();
        values.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).sum()
    }
}

pub fn namespace<'a>(sample: &'a MachineSample, role: &str) -> Option<&'a NamespaceUse> {
    sample.namespaces.iter().find(|space| space.roles.iter().any(|name| name == role))
}

/// Returns the sum of some counters of a namespace, per second. Samples omit counters that did not change.
pub(crate) fn events_per_s(space: &NamespaceUse, names: &[&str]) -> f64 {
    names.iter().filter_map(|name| space.counters.get(*name)).sum()
}

/// Returns the median of the finite values; `None` if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    stats::median(&values)
}

/// Returns a part as a fraction of a whole; 0 if the whole is 0.
pub(crate) fn fraction(part: f64, total: f64) -> f64 {
    if total > 0.0 { part / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_s: f64, length_s: f64, role: Option<f64>) -> MachineSample {
        let used = |user_cpus| RoleUse { user_cpus, ..RoleUse::default() };
        MachineSample {
            time_s,
            length_s,
            roles: role.map(used).into_iter().collect(),
            ..MachineSample::default()
        }
    }

    fn observed(samples: Vec<MachineSample>) -> MachineObservation {
        let role = record::observed::Role { name: SUBJECT.to_owned(), ..Default::default() };
        MachineObservation { roles: vec![role], samples, ..MachineObservation::default() }
    }

    #[test]
    fn a_median_counts_samples_and_a_mean_their_lengths() {
        // The role was discovered after the first sample, and the last one ends after the window.
        let all = [observed(vec![
            sample(1.0, 1.0, None),
            sample(2.0, 1.0, Some(0.4)),
            sample(5.0, 3.0, Some(0.8)),
            sample(6.0, 1.0, Some(9.0)),
        ])];
        let view = View::new(&all, 0.0, 5.0);
        assert!((view.role_mean(SUBJECT, f::CPUS.read).unwrap() - 0.7).abs() < 1e-9);
        assert!((view.role_median(SUBJECT, f::CPUS.read).unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(view.role_max(SUBJECT, f::CPUS.read), Some(0.8));
        assert_eq!(view.role_mean(ORIGIN, f::CPUS.read), None);
    }

    #[test]
    fn the_last_seconds_have_at_least_one_sample() {
        let all = observed((1..=4).map(|index| sample(f64::from(index) * 5.0, 5.0, Some(0.1))).collect());
        assert_eq!(MachineWindow::over_last(&all, 1.0).samples().len(), 1);
        assert_eq!(MachineWindow::over_last(&all, 10.0).samples().len(), 2);
        assert!(MachineWindow::over_last(&MachineObservation::default(), 1.0).samples().is_empty());
    }

    #[test]
    fn a_sum_over_sockets_does_not_shrink_when_they_close() {
        let sums = [10.0, 25.0, 5.0, 7.0];
        let series: Series<'_, f64> = sums.iter().map(|sum| (0.0, sum)).collect();
        assert_eq!(series.growth(|sum| *sum), 17.0);
    }
}
