//! Rows of a result by stage and by request of the plan, for the summaries and Markdown. Reads only the
//! record.

use record::run::{RequestResult, Run, StageResult};
use record::units::{format_count, format_duration_ns, format_rate};

pub const STAGE_COLUMNS: [&str; 6] = ["stage", "goodput", "not good", "p50", "p99", "max"];
pub const REQUEST_COLUMNS: [&str; 4] = ["request", "good", "bad", "failed checks"];

/// Returns the cells of each stage. Latencies are from the due time.
pub fn stage_rows(run: &Run) -> Vec<Vec<String>> {
    let is_rate = run.plan["pace"]["loop"].as_str() == Some("open");
    run.stages.iter().map(|stage| stage_row(stage, is_rate)).collect()
}

fn stage_row(stage: &StageResult, is_rate: bool) -> Vec<String> {
    let value = |value: f64| if is_rate { format_rate(value) } else { format_count(value) };
    let target = match stage.from_value.total_cmp(&stage.to_value) {
        std::cmp::Ordering::Equal => value(stage.to_value),
        _ => format!("{} to {}", value(stage.from_value), value(stage.to_value)),
    };
    let unit = if is_rate { "" } else { " connections" };
    let name = format!("{}: {:.1}-{:.1} s, {target}{unit}", stage.number, stage.from_s, stage.to_s);
    let latency = &stage.last_byte.response;
    let times = [latency.p50_ns, latency.p99_ns, latency.max_ns]
        .map(|ns| if latency.count == 0 { "-".to_owned() } else { format_duration_ns(ns) });
    let counts = [name, format_rate(stage.goodput_per_s()), stage.not_good.to_string()];
    counts.into_iter().chain(times).collect()
}

/// Returns the cells of each request of a plan with several.
pub fn request_rows(run: &Run) -> Vec<Vec<String>> {
    run.requests.iter().map(request_row).collect()
}

fn request_row(result: &RequestResult) -> Vec<String> {
    let checks = result.failed_checks.iter().map(|(check, count)| format!("{check} {count}"));
    let checks = checks.collect::<Vec<_>>().join(", ");
    let checks = if checks.is_empty() { "none".to_owned() } else { checks };
    vec![result.request.clone(), result.good.to_string(), result.bad.to_string(), checks]
}
