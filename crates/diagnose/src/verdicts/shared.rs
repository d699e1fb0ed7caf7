//! Constants shared by several rows of the table of bottlenecks.

use super::rule::{Bound, Criterion, LimitClass, Perturbation, ThroughputChange, VerdictRule};
use crate::sentences::not_observable;
use crate::signals as s;
use crate::signals::Signal;

pub(super) const fn at_least(signal: &'static Signal, bound: f64) -> Criterion {
    Criterion { signal, bound: Bound::AtLeast(bound) }
}

pub(super) const fn at_most(signal: &'static Signal, bound: f64) -> Criterion {
    Criterion { signal, bound: Bound::AtMost(bound) }
}

/// Minimum utilisation of a full thread or of full CPUs: the rest goes to wake-ups and switches. At
/// this utilisation requests queue, which the rows below require as well.
pub(super) const SATURATED: f64 = 0.85;

/// Maximum utilisation of a thread or of the CPUs that excludes them as the limit.
pub(super) const SUBJECT_NOT_FULL: f64 = 0.75;

/// Requests hardly wait: no resource that they need is full.
pub(super) const NO_QUEUEING: Criterion = at_most(&s::QUEUEING, 0.25);

/// Requests wait for a good part of their time.
pub(super) const REQUESTS_QUEUE: Criterion = at_least(&s::QUEUEING, QUEUEING_MIN);

/// Fraction of waiting in the latency that separates a limit (more) from a delay (less).
pub(super) const QUEUEING_MIN: f64 = 0.4;

/// The servers behind the subject are full, and need more CPU time than the subject.
pub(super) const ORIGIN_FULL: Criterion = at_least(&s::ORIGIN_AT_LIMIT, SATURATED);

/// An open loop was served completely and in time: the throughput limit was not reached, however
/// full a resource was. Causes of broken or delayed requests, or of an invalid run, may still have
/// been present.
pub(super) const LOAD_CARRIED: Criterion = at_least(&s::CARRIED, s::CARRIED_MIN);

/// A subject with this little use is not CPU-bound, whatever it spends the time on: if other
/// processes take the rest, it looks as if it had used everything available.
pub(super) const HARDLY_BUSY: Criterion = at_most(&s::SUBJECT_CPUS, s::HARDLY_BUSY_CPUS);

/// Nearly all responses were broken or bad, or none was good: there was no throughput to limit. Causes of broken requests
/// (no ports, no descriptors, full queues) are still reported.
pub(super) const NOTHING_VALID: Criterion = at_least(&s::UNUSABLE, 0.9);

pub(super) const DEFAULT_RULE: VerdictRule = VerdictRule {
    code: "",
    claim: "",
    class: LimitClass::Failure,
    required: &[],
    required_of_client: &[],
    any_of: &[],
    supporting_min: 1,
    supporting: &[],
    is_counted: false,
    is_circumstantial: false,
    is_general: false,
    is_by_exclusion: false,
    excluding: &[],
    yielding: &[],
    confusions: "",
    remedy: "",
    counter_test: (Perturbation::NotPossible, ThroughputChange::Stays, ""),
    second_test: None,
    answer: not_observable,
    not_observable: "",
};
