//! Plan of a load in words, for `weir load --check`.

use std::fmt::Write as _;

use record::units::{format_count, format_duration_flag, format_plural, format_rate};

use super::{Expect, RunPlan, StageQuantity, TimeoutFrom};
use crate::pace::{Arrivals, Pace};

/// Maximum number of requests that are listed.
const REQUESTS_SHOWN: usize = 10;

/// Announces a load in a line: what runs, and how long.
pub fn announce_load(plan: &RunPlan) -> String {
    let first = plan
        .requests
        .first()
        .map_or_else(String::new, |request| format!("{} {}", request.method, request.url));
    let others = match plan.requests.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let length = match (plan.end.requests, &plan.replay) {
        (Some(requests), _) => format!("until {}", format_plural(requests, "request")),
        (None, Some(_)) => "until the last request".to_owned(),
        (None, None) => format!("for {}", format_duration_flag(plan.end.duration_ns)),
    };
    format!("{first}{others}: {}, {}, {length}", connections(plan), pace(plan))
}

pub fn describe_plan(plan: &RunPlan) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<12} {value}");
    };
    let sum: u64 = plan.requests.iter().map(|request| request.weight).sum();
    for (index, request) in plan.requests.iter().take(REQUESTS_SHOWN).enumerate() {
        let weight = match plan.requests.iter().any(|request| request.weight != 1) {
            true => format!(" ({:.1} % of the requests)", request.weight as f64 / sum as f64 * 100.0),
            false => String::new(),
        };
        let body = match request.body_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} B body"),
        };
        let label = if index == 0 { "requests" } else { "" };
        line(label, format!("{} {}{body}{weight}", request.method, request.url));
    }
    if plan.requests.len() > REQUESTS_SHOWN {
        line("", format!("and {} more", plan.requests.len() - REQUESTS_SHOWN));
    }
    line("connections", connections(plan));
    line("pace", pace(plan));
    line("end", end(plan));
    let from = match plan.timeout_from {
        TimeoutFrom::Due => "the due time",
        TimeoutFrom::Send => "the send",
    };
    line("timeout", format!("{} from {from}", format_duration_flag(plan.timeout_ns)));
    line("checks", checks(&plan.expect));
    if plan.session.cookies || !plan.session.captures.is_empty() {
        let mut parts: Vec<String> =
            plan.session.captures.iter().map(|capture| format!("value {}", capture.name)).collect();
        if plan.session.cookies {
            parts.insert(0, "cookies".to_owned());
        }
        line("session", format!("each connection keeps: {}", parts.join(", ")));
    }
    if let Some(table) = &plan.values {
        line(
            "values",
            format!("{} of {}", format_plural(table.rows() as u64, "row"), table.columns().join(", ")),
        );
    }
    let objectives = serde_json::to_value(&plan.objectives).unwrap_or_default();
    let objectives: Vec<_> =
        objectives.as_array().into_iter().flatten().filter_map(|objective| objective.as_str()).collect();
    if !objectives.is_empty() {
        line("objectives", objectives.join(", "));
    }
    text
}

fn connections(plan: &RunPlan) -> String {
    let mut text = format_plural(plan.connections, "connection");
    if let Some(http2) = &plan.http2 {
        text += &format!(" x {} of HTTP/2", format_plural(http2.streams, "stream"));
    }
    if plan.pipeline > 1 {
        text += &format!(", up to {} requests in flight on each", plan.pipeline);
    }
    text += &format!(", {}", format_plural(plan.threads as u64, "thread"));
    if let Some(each) = plan.requests_per_connection {
        text += &format!(", {} on each before it is closed", format_plural(each, "request"));
    }
    if !plan.sources.is_empty() {
        text += &format!(", from {}", format_plural(plan.sources.len() as u64, "source address"));
    }
    if let Some(header) = &plan.proxy_header {
        text += &format!(", PROXY {:?} header", header.version).to_lowercase().replace("proxy", "PROXY");
        if !header.sources.is_empty() {
            text += &format!(" of {}", format_plural(header.sources.len() as u64, "client address"));
        }
    }
    text
}

fn pace(plan: &RunPlan) -> String {
    if let Some(replay) = &plan.replay {
        let last = format_duration_flag(replay.last_due_ns());
        return format!("replay of {} within {last}", format_plural(replay.len() as u64, "request"));
    }
    if let Some(stages) = &plan.stages {
        let (quantity, format): (_, fn(f64) -> String) = match stages.quantity {
            StageQuantity::Rate => ("open loop, rate", format_rate),
            StageQuantity::Connections => ("closed loop, connections", format_count),
        };
        let parts = stages.stages.iter().map(|(length_ns, target)| {
            format!("within {} to {}", format_duration_flag(*length_ns), format(*target))
        });
        return format!("{quantity} {}", parts.collect::<Vec<_>>().join(", "));
    }
    let ramp = match plan.ramp_ns {
        0 => String::new(),
        ramp_ns => format!(", reached within {}", format_duration_flag(ramp_ns)),
    };
    match plan.pace {
        Pace::Open { rate_per_s, arrivals } => {
            let arrivals = match arrivals {
                Arrivals::Constant => "at even intervals",
                Arrivals::Poisson => "at random (Poisson)",
            };
            format!("open loop, {} {arrivals}{ramp}", format_rate(rate_per_s))
        }
        Pace::Closed { think_ns: 0 } => format!("closed loop{ramp}"),
        Pace::Closed { think_ns } => {
            format!("closed loop, think time {}{ramp}", plan.think.describe(think_ns))
        }
    }
}

fn end(plan: &RunPlan) -> String {
    let duration = format_duration_flag(plan.end.duration_ns);
    let end = match (plan.end.requests, &plan.replay) {
        (Some(requests), _) => {
            format!("after {}, at the latest after {duration}", format_plural(requests, "request"))
        }
        (None, Some(_)) => "with the last request".to_owned(),
        (None, None) => format!("after {duration}"),
    };
    format!("{end}; then up to {} for requests in flight", format_duration_flag(plan.drain_ns))
}

fn checks(expect: &Expect) -> String {
    let mut parts = Vec::new();
    let status = serde_json::to_value(&expect.status).unwrap_or_default();
    parts.push(match status.as_str() {
        Some(list) => format!("status {list}"),
        None => "status below 400".to_owned(),
    });
    parts.extend(expect.headers.iter().map(|header| format!("field '{header}'")));
    parts.extend(expect.body_bytes.map(|bytes| format!("body of {bytes} B")));
    parts.extend(expect.hash.as_ref().map(|hash| format!("hash {hash}")));
    parts.extend(expect.body.as_ref().map(|pattern| format!("body with '{pattern}'")));
    parts.join(", ")
}
