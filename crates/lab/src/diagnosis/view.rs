//! A record, as the signals read it: the samples and snapshots of its measured window, and medians
//! over them. What is of a role is read from the machine that the role is on: the subject may be on
//! another one than the generator, and only one of them may have been watched.
//!
//! Not for thresholds: a view says what was, never what it means.

use std::collections::BTreeMap;

use record::histogram::Latencies;
use record::observed::{
    End, EndQueues, FunctionShare, NamespaceUse, Observed, PortUse, QueueSnapshot, RoleUse, Sample,
};
use record::run::Run;

use super::traffic;
use crate::statistics;

/// The role that drives the load.
pub(super) const GENERATOR: &str = "generator";
/// The role under load.
pub(super) const SUBJECT: &str = "subject";
/// The role behind the subject.
pub(super) const ORIGIN: &str = "origin";

/// A record and what was seen of the machines.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    machines: Vec<Machine<'a>>,
    pub(super) last_byte: Latencies,
    pub(super) connect: Latencies,
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let (from_s, to_s) = (run.window.from_s, run.window.to_s);
        let machine = |seen| Machine { seen, from_s, to_s };
        // A histogram that cannot be read is as good as none: its signals are not observable.
        let decode = |text: &str| Latencies::decode(text).unwrap_or_default();
        Self {
            run,
            machines: run.observed.iter().map(machine).collect(),
            last_byte: decode(&run.latency.last_byte.service.hdr),
            connect: decode(&run.latency.connect.service.hdr),
        }
    }

    /// The machines of a role. Merged records have a generator each; every other role is on one machine,
    /// the first where it was seen.
    pub(super) fn machines(&self, role: &str) -> Vec<Machine<'a>> {
        let most = if role == GENERATOR { usize::MAX } else { 1 };
        let with = self.machines.iter().filter(|machine| machine.seen.role_at(role).is_some());
        with.take(most).copied().collect()
    }

    /// The first of them.
    pub(super) fn machine(&self, role: &str) -> Option<Machine<'a>> {
        self.machines(role).into_iter().next()
    }

    /// The machines at the ends of the way from the generator to the subject, each once: a link of any of
    /// them may be the one that is full.
    pub(super) fn linked(&self) -> Vec<Machine<'a>> {
        let mut linked = self.machines(GENERATOR);
        let subject = self.machine(SUBJECT);
        let known =
            |one: &Machine<'_>| linked.iter().any(|other| std::ptr::eq(one.seen, other.seen));
        linked.extend(subject.filter(|one| !known(one)));
        linked
    }

    /// A figure of a role's machine; of several the greatest, because the worst of the generators bounds
    /// them all.
    fn most(&self, role: &str, figure: impl Fn(Machine<'a>) -> Option<f64>) -> Option<f64> {
        self.machines(role).into_iter().filter_map(figure).reduce(f64::max)
    }

    /// The median of a figure over the samples that have it.
    pub(super) fn of_samples(
        &self,
        role: &str,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        self.most(role, |machine| machine.of_samples(&figure))
    }

    /// The median of a figure of one role over the samples.
    pub(super) fn of_role(
        &self,
        role: &str,
        figure: impl Fn(&RoleUse) -> Option<f64>,
    ) -> Option<f64> {
        self.most(role, |machine| machine.of_role(role, &figure))
    }

    /// Events per second of a counter in the namespace of a role, over the whole window. `None` only
    /// where no counters were read.
    pub(super) fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        self.most(role, |machine| machine.counter(role, names))
    }

    /// The median over the snapshots of a figure of the end that a role has: it serves the port, or it
    /// connects to it.
    pub(super) fn of_ends(
        &self,
        role: &str,
        end: End,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        self.most(role, |machine| machine.of_ends(role, end, &figure))
    }

    /// Functions of a role with their share on top, added up over those that `is_one`.
    pub(super) fn function_share(
        &self,
        role: &str,
        is_one: impl Fn(&FunctionShare) -> bool,
    ) -> Option<f64> {
        let seen = self.machine(role)?.seen;
        let mut of_role = seen.functions.iter().filter(|one| one.role == role).peekable();
        of_role.peek()?;
        Some(of_role.filter(|one| is_one(one)).map(|one| one.share_self).sum())
    }

    /// Calls of one kind per second, where they were counted.
    pub(super) fn calls_per_s(&self, role: &str, call: &str) -> Option<f64> {
        let seen = self.machine(role)?.seen;
        let of = seen.calls.iter().filter(|one| one.role == role && one.call == call);
        let (count, length_s) =
            of.fold((0, 0.0), |sum, one| (sum.0 + one.count, sum.1 + one.length_s));
        (length_s > 0.0).then(|| count as f64 / length_s)
    }

    /// Good responses per second.
    pub(super) fn goodput(&self) -> f64 {
        self.run.goodput_per_s()
    }

    /// Share of all requests that failed with this kind.
    pub(super) fn error_share(&self, kinds: &[&str]) -> f64 {
        let errors: &BTreeMap<String, u64> = &self.run.totals.errors;
        let failed: u64 = kinds.iter().filter_map(|kind| errors.get(*kind)).sum();
        share(failed as f64, self.run.totals.requests as f64)
    }
}

/// What was seen of one machine, in the measured window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) seen: &'a Observed,
    from_s: f64,
    to_s: f64,
}

impl<'a> Machine<'a> {
    /// The samples of the window. A run that is too short for a whole one has all it has.
    pub(super) fn samples(&self) -> Vec<&'a Sample> {
        self.seen.samples_within(self.from_s, self.to_s)
    }

    pub(super) fn of_samples(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples().into_iter().filter_map(figure).collect())
    }

    /// What a role used in each sample.
    pub(super) fn uses(&self, role: &str) -> Vec<&'a RoleUse> {
        let Some(index) = self.seen.role_at(role) else {
            return Vec::new();
        };
        self.samples().into_iter().filter_map(|sample| sample.roles.get(index)).collect()
    }

    pub(super) fn of_role(
        &self,
        role: &str,
        figure: impl Fn(&RoleUse) -> Option<f64>,
    ) -> Option<f64> {
        median(self.uses(role).into_iter().filter_map(figure).collect())
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

    /// The snapshots of the window.
    pub(super) fn snapshots(&self) -> Vec<&'a QueueSnapshot> {
        let within = |snapshot: &&QueueSnapshot| {
            snapshot.time_s >= self.from_s && snapshot.time_s <= self.to_s
        };
        self.seen.queues.iter().filter(within).collect()
    }

    /// The port that a role serves, or to which it connects. Who is at the other end may be on another
    /// machine.
    pub(super) fn port_of(&self, role: &str, end: End) -> Option<u16> {
        let of = |port: &&PortUse| match end {
            End::Server => port.served_by.as_deref() == Some(role),
            End::Client => port.used_by.as_deref() == Some(role),
        };
        Some(self.seen.ports.iter().find(of)?.port)
    }

    /// The ports of the end that a role has. Of a role's connections to others, those that carry its
    /// requests: a connection that is only kept open is on no request's way.
    fn ports_of(&self, role: &str, end: End) -> Vec<u16> {
        match end {
            End::Server => self.seen.ports_served_by(role),
            End::Client => traffic::carrying(self, self.seen.ports_used_by(role)),
        }
    }

    /// The sums over all ports of the end that a role has, with their times, in order.
    pub(super) fn ends_in_time(&self, role: &str, end: End) -> Vec<(f64, EndQueues)> {
        let ports = self.ports_of(role, end);
        let of_snapshot = |snapshot: &QueueSnapshot| {
            let ends = snapshot.ends.iter();
            let mut found = ends.filter(|ends| ends.end == end && ports.contains(&ends.port));
            let first = found.next()?.clone();
            Some((snapshot.time_s, found.fold(first, traffic::add)))
        };
        self.snapshots().into_iter().filter_map(of_snapshot).collect()
    }

    /// The same without the times.
    pub(super) fn ends(&self, role: &str, end: End) -> Vec<EndQueues> {
        self.ends_in_time(role, end).into_iter().map(|(_, ends)| ends).collect()
    }

    pub(super) fn of_ends(
        &self,
        role: &str,
        end: End,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        median(self.ends(role, end).iter().filter_map(figure).collect())
    }
}

/// The network namespace that a role is in.
pub(super) fn namespace<'a>(sample: &'a Sample, role: &str) -> Option<&'a NamespaceUse> {
    sample.namespaces.iter().find(|space| space.roles.iter().any(|of| of == role))
}

/// The median of those that are numbers; `None` of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    statistics::median(&values)
}

/// Standard deviation over mean; `None` of fewer than three values, or a mean of 0.
pub(super) fn relative_spread(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance =
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// A part of a whole; 0 of nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
