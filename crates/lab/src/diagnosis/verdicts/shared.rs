//! What several rows of the catalogue have in common. Not for what only one row looks at.

use super::{Answer, Bound, Class, Perturbation, Sign, Verdict};
use crate::diagnosis::signals as s;
use crate::diagnosis::signals::Signal;

pub(super) const fn at_least(signal: &'static Signal, bound: f64) -> Sign {
    Sign { signal, bound: Bound::AtLeast(bound) }
}

pub(super) const fn at_most(signal: &'static Signal, bound: f64) -> Sign {
    Sign { signal, bound: Bound::AtMost(bound) }
}

/// A thread, or CPUs, used this much of the time are full: what is left goes to wake-ups and switches.
/// With so much in use requests queue, which the rows below want to see as well.
pub(super) const SATURATED: f64 = 0.85;

/// Less than this of a thread or of the CPUs leaves them out as the limit.
pub(super) const SUBJECT_NOT_FULL: f64 = 0.75;

/// Requests hardly wait: nothing that they need is full.
pub(super) const NO_QUEUEING: Sign = at_most(&s::QUEUEING, 0.25);

/// Requests wait for a good part of their time.
pub(super) const QUEUES: Sign = at_least(&s::QUEUEING, QUEUEING_MIN);

/// The share of waiting in the latency that tells a limit (more) from a delay (less).
pub(super) const QUEUEING_MIN: f64 = 0.4;

/// The servers behind the subject are full, and need more CPU time than the subject does.
pub(super) const ORIGIN_FULL: Sign = at_least(&s::ORIGIN_AT_LIMIT, SATURATED);

/// An open loop got all that it asked for, in time: what bounds throughput was not reached, however full
/// it was. What breaks requests, delays them or voids the run may have been there all the same.
pub(super) const CARRIED: Sign = at_least(&s::CARRIED, s::CARRIED_MIN);

/// A subject that uses so little is not bound by processor time, whatever it spends that on: where
/// others take the rest, it looks as if it had all that there is.
pub(super) const HARDLY_BUSY: Sign = at_most(&s::SUBJECT_CPUS, 0.3);

/// Nearly all that came back was broken: there was no throughput that something could have bound. What
/// breaks requests (no ports, no descriptors, full queues) is named all the same.
pub(super) const NOTHING_VALID: Sign = at_least(&s::BROKEN, 0.9);

/// A row of which every part has its default.
pub(super) const VERDICT: Verdict = Verdict {
    code: "",
    claim: "",
    class: Class::Failure,
    proofs: &[],
    any: &[],
    signs_min: 1,
    signs: &[],
    counted: false,
    circumstantial: false,
    unless: &[],
    confusions: "",
    remedy: "",
    counter_test: (Perturbation::Nothing, Answer::Stays, ""),
    second_test: None,
    not_observable: "",
};
