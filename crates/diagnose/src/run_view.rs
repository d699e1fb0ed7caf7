//! View of a record for the signals: the load's own figures, and the view of its machines in the measured
//! window.
//!
//! Thresholds are elsewhere: a view gives values, never their meaning.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use record::histogram::LatencyHistogram;
use record::observed::{ConnectionEnd, EndQueues};
use record::run::Run;

use crate::window::{SUBJECT, View, fraction};

/// Record with the observations of the machines, which are read as those of a [`View`].
#[derive(Debug)]
pub(crate) struct RunView<'a> {
    pub(crate) run: &'a Run,
    machines: View<'a>,
    pub(crate) last_byte: Rc<LatencyHistogram>,
    pub(crate) connect: Rc<LatencyHistogram>,
}

impl<'a> Deref for RunView<'a> {
    type Target = View<'a>;

    fn deref(&self) -> &View<'a> {
        &self.machines
    }
}

impl<'a> RunView<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        // An unreadable histogram counts as none: its signals are not observable.
        let decode = |text: &str| Rc::new(LatencyHistogram::decode(text).unwrap_or_default());
        Self {
            run,
            machines: View::new(&run.observed, run.window.from_s, run.window.to_s),
            last_byte: decode(&run.latency.last_byte.service.hdr),
            connect: decode(&run.latency.connect.service.hdr),
        }
    }

    /// Returns the name of the machine that a figure is from, if several were observed and exactly one of
    /// them has this value alone.
    pub(crate) fn machine_of_value(
        &self,
        read: impl Fn(&Self) -> Option<f64>,
        value: f64,
    ) -> Option<&'a str> {
        if self.run.observed.len() < 2 {
            return None;
        }
        let alone = |machines: View<'a>| Self {
            run: self.run,
            machines,
            last_byte: Rc::clone(&self.last_byte),
            connect: Rc::clone(&self.connect),
        };
        let views = self.machines.split().into_iter().map(alone);
        let mut matching = views.filter(|view| read(view) == Some(value));
        let first = matching.next().filter(|_| matching.next().is_none())?;
        first.machines.all().first().map(|machine| machine.observed.host.as_str())
    }

    /// Returns whether the kernel's counters miss the connections of this run: those of the generator are in user
    /// space, and no socket of the subject is seen, which then may have such connections, too.
    pub(crate) fn misses_kernel_tcp(&self) -> bool {
        let sockets = |ends: &EndQueues| Some(ends.count_in_state("established") as f64);
        self.run.transport.is_some()
            && self.ends_median(SUBJECT, ConnectionEnd::Server, sockets).is_none_or(|count| count < 1.0)
    }

    pub(crate) fn calls_per_s(&self, role: &str, call: &str) -> Option<f64> {
        let counts = self.calls(role, call);
        let (count, length_s) =
            counts.fold((0, 0.0), |sum, call_count| (sum.0 + call_count.count, sum.1 + call_count.length_s));
        (length_s > 0.0).then(|| count as f64 / length_s)
    }

    /// Returns the good responses per second.
    pub(crate) fn goodput(&self) -> f64 {
        self.run.goodput_per_s()
    }

    pub(crate) fn error_fraction(&self, kinds: &[&str]) -> f64 {
        let errors: &BTreeMap<String, u64> = &self.run.totals.errors;
        let failed: u64 = kinds.iter().filter_map(|kind| errors.get(*kind)).sum();
        fraction(failed as f64, self.run.totals.requests as f64)
    }
}
