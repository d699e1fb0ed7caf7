//! What would be the limit next: every resource that has a bound, by how much of it is used, with the
//! rate at which it would be full.
//!
//! Each figure assumes that a resource is used in proportion to the rate, which is right for
//! processors, links and ports, and a first guess for the rest.

use record::units::format_count;

use super::signals as s;
use super::signals::Signal;
use super::view::View;

/// Resources with a bound: the signal of the share that is used, and what to call it.
const RESOURCES: &[(&Signal, &str)] = &[
    (&s::GENERATOR_THREAD, "generator's busiest thread"),
    (&s::SUBJECT_THREAD, "subject's busiest thread"),
    (&s::SUBJECT_SATURATION, "subject's share of the processors"),
    (&s::SUBJECT_OF_QUOTA, "subject's processor quota"),
    (&s::ORIGIN_SATURATION, "origin's busiest thread"),
    (&s::BUSIEST_CPU, "busiest processor"),
    (&s::IN_FLIGHT_SHARE, "generator's connections"),
    (&s::LINK, "busiest link"),
    (&s::DESCRIPTORS, "subject's descriptors"),
    (&s::PORTS, "local ports"),
    (&s::CONNTRACK, "connection tracking"),
];

/// The resources that can be seen, the fullest first.
pub(super) fn next_limits(view: &View<'_>) -> Vec<String> {
    let rate = view.run.rates.responses_per_s;
    let mut used: Vec<(f64, &str)> = RESOURCES
        .iter()
        .filter_map(|(signal, name)| Some(((signal.read)(view)?, *name)))
        .filter(|(used, _)| used.is_finite() && *used > 0.0)
        .collect();
    used.sort_by(|a, b| b.0.total_cmp(&a.0));
    let line = |(used, name): (f64, &str)| match used >= 0.01 {
        true => format!(
            "{name}: {:.0} % used, full at {}/s",
            used * 100.0,
            format_count(rate / used.min(1.0))
        ),
        false => format!("{name}: {:.2} % used", used * 100.0),
    };
    used.into_iter().map(line).collect()
}
