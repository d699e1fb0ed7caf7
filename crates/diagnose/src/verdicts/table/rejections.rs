//! A limit that rejects: requests beyond a rate get an error instead of waiting.

use super::super::rule::{LimitClass, Perturbation, ThroughputChange, VerdictRule};
use super::super::shared::{DEFAULT_RULE, at_least, at_most};
use crate::sentences::rejections;
use crate::signals as s;

pub(super) const RATE_LIMITED: VerdictRule = VerdictRule {
    code: crate::verdicts::RATE_LIMITED,
    answer: rejections::rate_limited,
    claim: "a rate limit: so many requests per second are admitted whatever is offered, and the rest is rejected",
    class: LimitClass::Limit,
    required: &[
        at_least(&s::ERRORS_OVER_BOUND, 1.0),
        at_least(&s::REJECTED, 0.9),
        at_most(&s::ADMITTED_SPREAD, 0.06),
    ],
    // The status that means it (RFC 6585), or a good fraction that depends on the offered rate.
    any_of: &[at_least(&s::TOO_MANY, 0.9), at_least(&s::REJECTION_DEVIATION, 4.0)],
    supporting_min: 0,
    supporting: &[at_most(&s::SLOTS_FIT, 0.2), at_least(&s::ERROR_RESPONSES, 0.001)],
    is_counted: true,
    excluding: &[
        at_least(&s::FIXED_FRACTION, 1.0),
        at_least(&s::SLOTS_FIT, 0.5),
        at_least(&s::SERVERS_ENDED, 1.0),
    ],
    confusions: "servers that fail at random, or half of them: a fixed fraction fails at any rate; a limit of requests at a \
                 time that rejects (`limit_conn`), or a full queue: the rate is their number over the latency",
    remedy: "raise the limit where it is set: limit_req of nginx, a stick table of HAProxy (http_req_rate, gpc0_rate), \
             rate-limit of a route of weir proxy, or a token bucket in the service; to measure the service itself, \
             offer less than it admits",
    counter_test: (
        Perturbation::NotPossible,
        ThroughputChange::Stays,
        "at half the admitted rate no request is rejected",
    ),
    ..DEFAULT_RULE
};
