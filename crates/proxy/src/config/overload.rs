//! The keys of overload, of listeners, routes and pools: what was read of them to the plan's parts.

use crate::plan::{
    AdaptivePlan, Admission, OnLimit, PoolBounds, Priority, QueueOrder, QueuePlan, Rate,
    RetryBudgetPlan, SourcePlan,
};

use super::forms;
use super::source::Problems;
use super::value::Section;

/// What a listener takes on.
pub(super) fn admission(section: &Section, problems: &mut Problems) -> Admission {
    let on_limit = section.text("on-limit").map(|text| match &*text.value {
        "wait" => OnLimit::Wait,
        "reset" => OnLimit::Reset,
        _ => OnLimit::Reject,
    });
    let deadline_headers = section.texts("deadline-headers").into_iter().filter_map(|text| {
        problems.take(text.at, forms::field_name(&text.value))?;
        Some(text.value)
    });
    Admission {
        backlog: u32::try_from(section.number("backlog")).unwrap_or(u32::MAX),
        connections_rate: rate(section, "connections-rate", "connections-burst"),
        on_limit,
        deadline_headers: deadline_headers.collect(),
        per_source: section.place("per-source").map(|_| per_source(section, problems)),
    }
}

fn rate(section: &Section, rate: &str, burst: &str) -> Option<Rate> {
    let rate_per_s = section.fraction(rate)?;
    let burst = section.whole(burst).map_or_else(|| rate_per_s.ceil(), |burst| burst as f64);
    // At most 1e9 by the ranges of both.
    Some(Rate { rate_per_s, burst: burst as u32 })
}

fn per_source(listener: &Section, problems: &mut Problems) -> SourcePlan {
    let section = listener.table("per-source");
    let prefix = |key| u8::try_from(section.number(key)).unwrap_or_default();
    let plan = SourcePlan {
        connections: section.whole("connections").and_then(|max| u32::try_from(max).ok()),
        connections_rate: rate(&section, "connections-rate", "connections-burst"),
        requests_rate: rate(&section, "requests-rate", "requests-burst"),
        prefix4: prefix("prefix4"),
        prefix6: prefix("prefix6"),
        entries: section.size("entries"),
    };
    let rates = (plan.connections_rate, plan.requests_rate);
    if plan.connections.is_none() && rates == (None, None) {
        let text = "nothing is bounded: give connections, connections-rate or requests-rate";
        problems.warn(listener.value_place("per-source"), text);
    }
    plan
}

/// How urgent a route's requests are.
pub(super) fn priority(section: &Section) -> Priority {
    match section.text("priority").as_ref().map(|text| &*text.value) {
        Some("high") => Priority::High,
        Some("low") => Priority::Low,
        _ => Priority::Normal,
    }
}

/// The queue of a pool.
pub(super) fn queue(section: &Section) -> QueuePlan {
    let order = match section.text("order").as_ref().map(|text| &*text.value) {
        Some("oldest-first") => QueueOrder::OldestFirst,
        Some("newest-first") => QueueOrder::NewestFirst,
        _ => QueueOrder::Adaptive,
    };
    QueuePlan {
        limit: section.size("limit"),
        timeout_ns: section.number("timeout"),
        order,
        stands_after_ns: section.number("stands-after"),
    }
}

/// A pool's bounds beside those of its servers.
pub(super) fn bounds(section: &Section, problems: &mut Problems) -> PoolBounds {
    let budget = section.table("retry-budget");
    PoolBounds {
        maxconn: section.bound("maxconn"),
        adaptive: section.place("adaptive").map(|_| adaptive(section, problems)),
        retry_budget: RetryBudgetPlan {
            share: budget.fraction("share").unwrap_or_default(),
            min: u32::try_from(budget.number("min")).unwrap_or(u32::MAX),
            window_ns: budget.number("window"),
        },
    }
}

fn adaptive(pool: &Section, problems: &mut Problems) -> AdaptivePlan {
    let section = pool.table("adaptive");
    let plan = AdaptivePlan { min: section.size("min"), max: section.size("max") };
    if plan.min > plan.max {
        let text = format!("the least, {}, is more than the most, {}", plan.min, plan.max);
        problems.add(section.value_place("min"), text);
    }
    plan
}
