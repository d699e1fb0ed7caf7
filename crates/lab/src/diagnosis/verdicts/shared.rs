//! What several rows of the catalogue have in common. Not for what only one row looks at.

use super::{Bound, Sign};
use crate::diagnosis::signals as s;
use crate::diagnosis::signals::Signal;

pub(super) const fn at_least(signal: &'static Signal, bound: f64) -> Sign {
    Sign { signal, bound: Bound::AtLeast(bound) }
}

pub(super) const fn at_most(signal: &'static Signal, bound: f64) -> Sign {
    Sign { signal, bound: Bound::AtMost(bound) }
}

/// A thread that is on its processor this much of the time is at its limit.
pub(super) const SATURATED: f64 = 0.92;

/// An open loop got all that it asked for, in time: what bounds throughput was not reached, however full
/// it was. What breaks requests, delays them or voids the run may have been there all the same.
pub(super) const CARRIED: Sign = at_least(&s::CARRIED, s::CARRIED_MIN);

/// A subject that uses so little is not bound by processor time, whatever it spends that on: where
/// others take the rest, it looks as if it had all that there is.
pub(super) const HARDLY_BUSY: Sign = at_most(&s::SUBJECT_CPUS, 0.3);

/// Nearly all that came back was broken: there was no throughput that something could have bound. What
/// breaks requests (no ports, no descriptors, full queues) is named all the same.
pub(super) const NOTHING_VALID: Sign = at_least(&s::BROKEN, 0.9);
