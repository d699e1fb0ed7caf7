//! What would be the limit next: every resource that has a bound, by how much of it is used, with the
//! rate at which it would be full.
//!
//! Each figure assumes that a resource is used in proportion to the rate, which is right for
//! processors, links and ports, and a first guess for the rest.

use record::run::ResourceUse;
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
    (&s::ORIGIN_AT_LIMIT, "origin's busiest thread or CPUs"),
    (&s::BUSIEST_CPU, "busiest processor"),
    (&s::IN_FLIGHT_SHARE, "generator's connections"),
    (&s::LINK, "busiest link"),
    (&s::DESCRIPTORS, "subject's descriptors"),
    (&s::PORTS, "local ports"),
    (&s::CONNTRACK, "connection tracking"),
    (&s::ACCEPT_QUEUE, "subject's accept queue"),
    (&s::MEMORY_USED, "subject's memory"),
    (&s::DISK_USED, "subject's writes to a disk"),
];

/// A resource with a bound, and how much of it was used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// What it is, in words.
    pub resource: &'static str,
    /// The share that was used: 1 is all of it. A little more comes of samples that are not quite as
    /// long as they should be.
    pub share: f64,
}

/// The resources that can be seen, the fullest first.
pub(super) fn used(view: &View<'_>) -> Vec<Used> {
    let mut used: Vec<Used> = RESOURCES
        .iter()
        .filter_map(|(signal, resource)| Some(Used { resource, share: (signal.read)(view)? }))
        .filter(|one| one.share.is_finite() && one.share > 0.0)
        .collect();
    used.sort_by(|a, b| b.share.total_cmp(&a.share));
    used
}

/// The same with the time of each per good response (the service demand D of U = X · D), where a
/// resource is a thread or CPU.
pub(super) fn resources(view: &View<'_>) -> Vec<ResourceUse> {
    let rate = view.goodput();
    let demand = |name: &str, share: f64| {
        let over_time = name.contains("thread");
        (over_time && rate > 0.0).then(|| share * 1e9 / rate)
    };
    used(view)
        .into_iter()
        .map(|Used { resource, share }| ResourceUse {
            resource: resource.to_owned(),
            utilisation: share,
            demand_ns: demand(resource, share),
        })
        .collect()
}

/// The same in words. Where nothing was carried, it cannot be told at which rate they are full.
pub(super) fn next_limits(view: &View<'_>) -> Vec<String> {
    let rate = view.goodput();
    let line = |Used { resource, share }: Used| match share >= 0.01 {
        true if rate <= 0.0 => format!("{resource}: {:.0} % used", share * 100.0),
        true => format!(
            "{resource}: {:.0} % used, full at {}/s",
            share * 100.0,
            format_count(rate / share.min(1.0))
        ),
        false => format!("{resource}: {:.2} % used", share * 100.0),
    };
    used(view).into_iter().map(line).collect()
}
