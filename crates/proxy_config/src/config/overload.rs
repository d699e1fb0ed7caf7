//! Converts the overload keys of listeners, routes and pools to their parts of the plan.

use record::document::Problems;

use crate::plan::{
    AdaptivePlan, Admission, OnLimit, PoolLimits, Priority, QueueOrder, QueuePlan, RetryBudgetPlan,
    SourcePlan, TokenRate,
};

use super::validate;
use super::value::Section;

/// Reads the connection limits of a listener.
pub(super) fn parse_admission(section: &Section, problems: &mut Problems) -> Admission {
    let on_limit = section.text("on-limit").map(|text| match &*text.value {
        "wait" => OnLimit::Wait,
        "reset" => OnLimit::Reset,
        _ => OnLimit::Reject,
    });
    let deadline_headers = section.texts("deadline-headers").into_iter().filter_map(|text| {
        problems.ok_or_report(text.offset, validate::check_field_name(&text.value))?;
        Some(text.value)
    });
    Admission {
        backlog: u32::try_from(section.integer_or_zero("backlog")).unwrap_or(u32::MAX),
        connections_rate: parse_rate_keys(section, "connections-rate", "connections-burst"),
        on_limit,
        deadline_headers: deadline_headers.collect(),
        per_source: section.key_offset("per-source").map(|_| parse_per_source(section, problems)),
    }
}

fn parse_rate_keys(section: &Section, rate: &str, burst: &str) -> Option<TokenRate> {
    let rate_per_s = section.float(rate)?;
    let burst = section.integer(burst).map_or_else(|| rate_per_s.ceil(), |burst| burst as f64);
    // Both have a maximum of 1e9, so the cast is lossless.
    Some(TokenRate { rate_per_s, burst: burst as u32 })
}

fn parse_per_source(listener: &Section, problems: &mut Problems) -> SourcePlan {
    let section = listener.table("per-source");
    let prefix = |key| u8::try_from(section.integer_or_zero(key)).unwrap_or_default();
    let plan = SourcePlan {
        connections: section.integer("connections").and_then(|max| u32::try_from(max).ok()),
        connections_rate: parse_rate_keys(&section, "connections-rate", "connections-burst"),
        requests_rate: parse_rate_keys(&section, "requests-rate", "requests-burst"),
        prefix4: prefix("prefix4"),
        prefix6: prefix("prefix6"),
        entries: section.size("entries"),
    };
    let rates = (plan.connections_rate, plan.requests_rate);
    if plan.connections.is_none() && rates == (None, None) {
        let text = "there is no limit: add connections, connections-rate or requests-rate";
        problems.warn(listener.value_offset("per-source"), text);
    }
    plan
}

/// Reads the priority of a route's requests.
pub(super) fn parse_priority(section: &Section) -> Priority {
    match section.text("priority").as_ref().map(|text| &*text.value) {
        Some("high") => Priority::High,
        Some("low") => Priority::Low,
        _ => Priority::Normal,
    }
}

pub(super) fn parse_queue(section: &Section) -> QueuePlan {
    let order = match section.text("order").as_ref().map(|text| &*text.value) {
        Some("oldest-first") => QueueOrder::OldestFirst,
        Some("newest-first") => QueueOrder::NewestFirst,
        _ => QueueOrder::Adaptive,
    };
    QueuePlan {
        limit: section.size("limit"),
        timeout_ns: section.integer_or_zero("timeout"),
        order,
        standing_after_ns: section.integer_or_zero("standing-after"),
    }
}

/// Reads the limits of a pool, in addition to those of its servers.
pub(super) fn parse_bounds(section: &Section, problems: &mut Problems) -> PoolLimits {
    let budget = section.table("retry-budget");
    PoolLimits {
        maxconn: section.optional_size("maxconn"),
        adaptive: section.key_offset("adaptive").map(|_| parse_adaptive(section, problems)),
        retry_budget: RetryBudgetPlan {
            fraction: budget.float("ratio").unwrap_or_default(),
            min: u32::try_from(budget.integer_or_zero("min")).unwrap_or(u32::MAX),
            window_ns: budget.integer_or_zero("window"),
        },
    }
}

fn parse_adaptive(pool: &Section, problems: &mut Problems) -> AdaptivePlan {
    let section = pool.table("adaptive");
    let plan = AdaptivePlan { min: section.size("min"), max: section.size("max") };
    if plan.min > plan.max {
        let text = format!("min ({}) is greater than max ({})", plan.min, plan.max);
        problems.add_error(section.value_offset("min"), text);
    }
    plan
}
