//! View of a record for the signals: the samples and snapshots of its measured window, and medians
//! over them. Figures of a role are read from its machine: the subject may be on another one than
//! the generator, and only one of them may have been monitored.
//!
//! Thresholds are elsewhere: a view gives values, never their meaning.

use std::collections::BTreeMap;
use std::rc::Rc;

use record::histogram::LatencyHistogram;
use record::observed::{
    ConnectionEnd, EndQueues, FunctionUse, MachineObservation, MachineSample, NamespaceUse, PortRoles,
    QueueSnapshot, RoleUse,
};
use record::run::Run;

use super::traffic;

/// Role of the load generator.
pub(super) const GENERATOR: &str = "generator";
/// Role under load.
pub(super) const SUBJECT: &str = "subject";
/// Role behind the subject.
pub(super) const ORIGIN: &str = "origin";

/// Record with the observations of the machines.
#[derive(Debug)]
pub(super) struct RunView<'a> {
    pub(super) run: &'a Run,
    machines: Vec<MachineWindow<'a>>,
    pub(super) last_byte: Rc<LatencyHistogram>,
    pub(super) connect: Rc<LatencyHistogram>,
}

impl<'a> RunView<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let (from_s, to_s) = (run.window.from_s, run.window.to_s);
        let machine = |observed| MachineWindow { observed, all: &run.observed, from_s, to_s };
        // An unreadable histogram counts as none: its signals are not observable.
        let decode = |text: &str| Rc::new(LatencyHistogram::decode(text).unwrap_or_default());
        Self {
            run,
            machines: run.observed.iter().map(machine).collect(),
            last_byte: decode(&run.latency.last_byte.service.hdr),
            connect: decode(&run.latency.connect.service.hdr),
        }
    }

    /// Returns the name of the machine that a figure is from, if several were observed and exactly one of
    /// them has this value alone.
    pub(super) fn machine_of_value(
        &self,
        read: impl Fn(&Self) -> Option<f64>,
        value: f64,
    ) -> Option<&'a str> {
        if self.machines.len() < 2 {
            return None;
        }
        let alone = |machine: &MachineWindow<'a>| Self {
            run: self.run,
            machines: vec![*machine],
            last_byte: Rc::clone(&self.last_byte),
            connect: Rc::clone(&self.connect),
        };
        let mut matching = self.machines.iter().filter(|machine| read(&alone(machine)) == Some(value));
        matching.next().filter(|_| matching.next().is_none()).map(|machine| machine.observed.host.as_str())
    }

    /// Returns the machines of a role. Merged records have one per generator; every other role is
    /// on one machine, the first where it was observed.
    pub(super) fn machines(&self, role: &str) -> Vec<MachineWindow<'a>> {
        let max = if role == GENERATOR { usize::MAX } else { 1 };
        let machines = self.machines.iter().filter(|machine| machine.observed.role_index(role).is_some());
        machines.take(max).copied().collect()
    }

    /// Returns the first machine of a role.
    pub(super) fn machine(&self, role: &str) -> Option<MachineWindow<'a>> {
        self.machines(role).into_iter().next()
    }

    /// Returns the machines at both ends of the path from the generator to the subject, each once:
    /// a link of any of them may be the full one.
    pub(super) fn path_machines(&self) -> Vec<MachineWindow<'a>> {
        let mut linked = self.machines(GENERATOR);
        let subject = self.machine(SUBJECT);
        let is_included =
            |one: &MachineWindow<'_>| linked.iter().any(|other| std::ptr::eq(one.observed, other.observed));
        linked.extend(subject.filter(|one| !is_included(one)));
        linked
    }

    /// Returns a figure of a role's machine; for several machines the maximum, because the worst of
    /// the generators limits them all.
    fn max_over_machines(
        &self,
        role: &str,
        figure: impl Fn(MachineWindow<'a>) -> Option<f64>,
    ) -> Option<f64> {
        self.machines(role).into_iter().filter_map(figure).reduce(f64::max)
    }

    /// Returns the median of a figure over the samples that have it.
    pub(super) fn sample_median(
        &self,
        role: &str,
        figure: impl Fn(&MachineSample) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over_machines(role, |machine| machine.sample_median(&figure))
    }

    /// Returns the median of a figure over the samples that have it, which also gets the busy CPUs that belong to no
    /// role of the run.
    pub(super) fn foreign_median(
        &self,
        role: &str,
        figure: impl Fn(&MachineSample, f64) -> f64,
    ) -> Option<f64> {
        self.max_over_machines(role, |machine| {
            machine.sample_median(|sample| Some(figure(sample, machine.foreign_cpus(sample)?)))
        })
    }

    /// Returns the median of a figure of one role over the samples.
    pub(super) fn role_median(&self, role: &str, figure: impl Fn(&RoleUse) -> Option<f64>) -> Option<f64> {
        self.max_over_machines(role, |machine| machine.role_median(role, &figure))
    }

    /// Returns the events per second of a counter in the namespace of a role, over the whole
    /// window. `None` only if no counters were read.
    pub(super) fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        self.max_over_machines(role, |machine| machine.counter(role, names))
    }

    /// Returns the median of a figure over the snapshots, at the end of a role: the end that serves
    /// the port, or that connects to it.
    pub(super) fn ends_median(
        &self,
        role: &str,
        end: ConnectionEnd,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        self.max_over_machines(role, |machine| machine.ends_median(role, end, &figure))
    }

    /// Returns the sum of the fractions on top of the stack, over a role's functions that satisfy
    /// `is_included`.
    pub(super) fn function_fraction(
        &self,
        role: &str,
        is_included: impl Fn(&FunctionUse) -> bool,
    ) -> Option<f64> {
        let observed = self.machine(role)?.observed;
        let mut of_role = observed.functions.iter().filter(|one| one.role == role).peekable();
        of_role.peek()?;
        Some(of_role.filter(|one| is_included(one)).map(|one| one.self_fraction).sum())
    }

    /// Returns the calls of one kind per second, if they were counted.
    pub(super) fn calls_per_s(&self, role: &str, call: &str) -> Option<f64> {
        let observed = self.machine(role)?.observed;
        let matching = observed.calls.iter().filter(|one| one.role == role && one.call == call);
        let (count, length_s) = matching.fold((0, 0.0), |sum, one| (sum.0 + one.count, sum.1 + one.length_s));
        (length_s > 0.0).then(|| count as f64 / length_s)
    }

    /// Returns the good responses per second.
    pub(super) fn goodput(&self) -> f64 {
        self.run.goodput_per_s()
    }

    /// Returns the fraction of all requests that failed with these kinds.
    pub(super) fn error_fraction(&self, kinds: &[&str]) -> f64 {
        let errors: &BTreeMap<String, u64> = &self.run.totals.errors;
        let failed: u64 = kinds.iter().filter_map(|kind| errors.get(*kind)).sum();
        fraction(failed as f64, self.run.totals.requests as f64)
    }
}

/// Observations of one machine in the measured window.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineWindow<'a> {
    pub(super) observed: &'a MachineObservation,
    /// Observations of the run, this one included: some may be of the same kernel.
    all: &'a [MachineObservation],
    from_s: f64,
    to_s: f64,
}

impl<'a> MachineWindow<'a> {
    /// Returns the samples of the window. A run that is too short for a complete sample returns all
    /// samples.
    pub(super) fn samples(&self) -> Vec<&'a MachineSample> {
        self.observed.samples_in_range(self.from_s, self.to_s)
    }

    /// Returns the busy CPUs that belong to no role of the run on this kernel.
    fn foreign_cpus(&self, sample: &MachineSample) -> Option<f64> {
        sample.foreign_cpus_among(self.observed, self.all)
    }

    pub(super) fn sample_median(&self, figure: impl Fn(&MachineSample) -> Option<f64>) -> Option<f64> {
        median(self.samples().into_iter().filter_map(figure).collect())
    }

    /// Returns the use by a role in each sample.
    pub(super) fn role_uses(&self, role: &str) -> Vec<&'a RoleUse> {
        let Some(index) = self.observed.role_index(role) else {
            return Vec::new();
        };
        self.samples().into_iter().filter_map(|sample| sample.roles.get(index)).collect()
    }

    pub(super) fn role_median(&self, role: &str, figure: impl Fn(&RoleUse) -> Option<f64>) -> Option<f64> {
        median(self.role_uses(role).into_iter().filter_map(figure).collect())
    }

    pub(super) fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        let (mut events, mut length_s) = (0.0, 0.0);
        for sample in self.samples() {
            let space = namespace(sample, role)?;
            let sum: f64 = names.iter().filter_map(|name| space.counters.get(*name)).sum();
            events += sum * sample.length_s;
            length_s += sample.length_s;
        }
        (length_s > 0.0).then(|| events / length_s)
    }

    /// Returns the snapshots of the window.
    pub(super) fn snapshots(&self) -> Vec<&'a QueueSnapshot> {
        let within =
            |snapshot: &&QueueSnapshot| snapshot.time_s >= self.from_s && snapshot.time_s <= self.to_s;
        self.observed.queues.iter().filter(within).collect()
    }

    /// Returns the port that a role serves, or to which it connects. The other end may be on
    /// another machine.
    pub(super) fn port_of(&self, role: &str, end: ConnectionEnd) -> Option<u16> {
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
            ConnectionEnd::Client => traffic::request_ports(self, self.observed.ports_used_by(role)),
        }
    }

    /// Returns the sums over all ports at the end of a role, with their times, in order.
    pub(super) fn ends_by_time(&self, role: &str, end: ConnectionEnd) -> Vec<(f64, EndQueues)> {
        let ports = self.ports_of(role, end);
        let of_snapshot = |snapshot: &QueueSnapshot| Some((snapshot.time_s, snapshot.sum_ends(&ports, end)?));
        self.snapshots().into_iter().filter_map(of_snapshot).collect()
    }

    /// Returns the same without the times.
    pub(super) fn ends(&self, role: &str, end: ConnectionEnd) -> Vec<EndQueues> {
        self.ends_by_time(role, end).into_iter().map(|(_, ends)| ends).collect()
    }

    pub(super) fn ends_median(
        &self,
        role: &str,
        end: ConnectionEnd,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        median(self.ends(role, end).iter().filter_map(figure).collect())
    }
}

/// Returns the network namespace of a role.
pub(super) fn namespace<'a>(sample: &'a MachineSample, role: &str) -> Option<&'a NamespaceUse> {
    sample.namespaces.iter().find(|space| space.roles.iter().any(|one| one == role))
}

/// Returns the median of the finite values; `None` if there are none.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    stats::median(&values)
}

/// Returns a part as a fraction of a whole; 0 if the whole is 0.
pub(super) fn fraction(part: f64, total: f64) -> f64 {
    if total > 0.0 { part / total } else { 0.0 }
}
