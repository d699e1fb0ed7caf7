//! A record, as the signals read it: the samples and snapshots of its measured window, and medians
//! over them.
//!
//! Not for thresholds: a view says what was, never what it means.

use std::collections::BTreeMap;

use record::histogram::Latencies;
use record::observed::{End, EndQueues, Observed, PortUse, QueueSnapshot, RoleUse, Sample};
use record::run::Run;

use crate::statistics;

/// The role that drives the load.
pub(super) const GENERATOR: &str = "generator";
/// The role under load.
pub(super) const SUBJECT: &str = "subject";
/// The role behind the subject.
pub(super) const ORIGIN: &str = "origin";

/// A record and what was seen of the machine of the subject.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    /// The generator's machine.
    own: Option<&'a Observed>,
    /// The subject's machine: the same one, mostly.
    subject: Option<&'a Observed>,
    pub(super) last_byte: Latencies,
    pub(super) connect: Latencies,
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let with = |role| run.observed.iter().find(|seen| seen.role_at(role).is_some());
        // A histogram that cannot be read is as good as none: its signals are not observable.
        let decode = |text: &str| Latencies::decode(text).unwrap_or_default();
        Self {
            run,
            own: with(GENERATOR),
            subject: with(SUBJECT),
            last_byte: decode(&run.latency.last_byte.service.hdr),
            connect: decode(&run.latency.connect.service.hdr),
        }
    }

    /// What was seen of the machine of a role.
    pub(super) fn machine(&self, role: &str) -> Option<&'a Observed> {
        match role {
            GENERATOR => self.own,
            _ => self.subject.filter(|seen| role == SUBJECT || seen.role_at(role).is_some()),
        }
    }

    /// The samples of the window, of the machine of a role. A run that is too short for a whole one
    /// has all it has.
    pub(super) fn samples(&self, role: &str) -> Vec<&'a Sample> {
        let Some(seen) = self.machine(role) else {
            return Vec::new();
        };
        seen.samples_within(self.run.window.from_s, self.run.window.to_s)
    }

    /// The median of a figure over the samples that have it.
    pub(super) fn of_samples(
        &self,
        role: &str,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        median(self.samples(role).into_iter().filter_map(figure).collect())
    }

    /// The median of a figure of one role over the samples.
    pub(super) fn of_role(
        &self,
        role: &str,
        figure: impl Fn(&RoleUse) -> Option<f64>,
    ) -> Option<f64> {
        let index = self.machine(role)?.role_at(role)?;
        self.of_samples(role, |sample| figure(sample.roles.get(index)?))
    }

    /// Events per second of a counter in the namespace of a role, over the whole window. `None` only
    /// where no counters were read.
    pub(super) fn counter(&self, role: &str, names: &[&str]) -> Option<f64> {
        let (mut events, mut length_s) = (0.0, 0.0);
        for sample in self.samples(role) {
            let mut spaces = sample.namespaces.iter();
            let space = spaces.find(|space| space.roles.iter().any(|of| of == role))?;
            let sum: f64 = names.iter().filter_map(|name| space.counters.get(*name)).sum();
            events += sum * sample.length_s;
            length_s += sample.length_s;
        }
        (length_s > 0.0).then(|| events / length_s)
    }

    /// The snapshots of the window, of the machine of a role.
    pub(super) fn snapshots(&self, role: &str) -> Vec<&'a QueueSnapshot> {
        let Some(seen) = self.machine(role) else {
            return Vec::new();
        };
        let within = |snapshot: &&QueueSnapshot| {
            snapshot.time_s >= self.run.window.from_s && snapshot.time_s <= self.run.window.to_s
        };
        seen.queues.iter().filter(within).collect()
    }

    /// The port that a role serves.
    pub(super) fn port_of(&self, role: &str) -> Option<&'a PortUse> {
        let by = |port: &&PortUse| port.served_by.as_deref() == Some(role);
        self.machine(role)?.ports.iter().find(by)
    }

    /// All entries of one end of the port that `role` serves with their times, in order. A client's
    /// end on another machine is not seen.
    pub(super) fn ends_in_time(&self, role: &str, end: End) -> Vec<(f64, &'a EndQueues)> {
        let Some(port) = self.port_of(role).map(|port| port.port) else {
            return Vec::new();
        };
        let of_snapshot = |snapshot: &'a QueueSnapshot| {
            let mut ends = snapshot.ends.iter();
            let found = ends.find(|ends| ends.port == port && ends.end == end)?;
            Some((snapshot.time_s, found))
        };
        self.snapshots(role).into_iter().filter_map(of_snapshot).collect()
    }

    /// The same without the times.
    pub(super) fn ends(&self, role: &str, end: End) -> Vec<&'a EndQueues> {
        self.ends_in_time(role, end).into_iter().map(|(_, ends)| ends).collect()
    }

    /// The median over the snapshots of a figure of one end.
    pub(super) fn of_ends(
        &self,
        role: &str,
        end: End,
        figure: impl Fn(&EndQueues) -> Option<f64>,
    ) -> Option<f64> {
        median(self.ends(role, end).into_iter().filter_map(figure).collect())
    }

    /// Functions of a role with their share on top, added up over those that `is_one`.
    pub(super) fn function_share(&self, role: &str, is_one: impl Fn(&str) -> bool) -> Option<f64> {
        let seen = self.machine(role)?;
        let mut of_role = seen.functions.iter().filter(|one| one.role == role).peekable();
        of_role.peek()?;
        Some(of_role.filter(|one| is_one(&one.function)).map(|one| one.share_self).sum())
    }

    /// Calls of one kind per second, where they were counted.
    pub(super) fn calls_per_s(&self, role: &str, call: &str) -> Option<f64> {
        let seen = self.machine(role)?;
        let of = seen.calls.iter().filter(|one| one.role == role && one.call == call);
        let (count, length_s) =
            of.fold((0, 0.0), |sum, one| (sum.0 + one.count, sum.1 + one.length_s));
        (length_s > 0.0).then(|| count as f64 / length_s)
    }

    /// Share of all requests that failed with this kind.
    pub(super) fn error_share(&self, kinds: &[&str]) -> f64 {
        let errors: &BTreeMap<String, u64> = &self.run.totals.errors;
        let failed: u64 = kinds.iter().filter_map(|kind| errors.get(*kind)).sum();
        share(failed as f64, self.run.totals.requests as f64)
    }
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
