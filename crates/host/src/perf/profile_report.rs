//! Text and JSON form of a profile.

use std::fmt::Write as _;

use record::observed::UnobservableMetric;
use record::units::format_plural;
use serde_json::{Value, json};

use super::call_counter::CountedCalls;
use super::{FoldedStacks, Profile, TaskRow, diff};
use crate::NotObservable;

/// Schema of a profile's JSON.
const SCHEMA: &str = "weir.profile/1";
/// Maximum length of a function's name in a table.
const NAME_CHARS_MAX: usize = 120;

pub struct ProfileReport {
    /// Start of the sampling, RFC 3339.
    pub started_at: String,
    pub profile: Profile,
    /// The other run for the comparison.
    pub baseline: Option<FoldedStacks>,
    pub call_counts: Vec<CountedCalls>,
    /// HAProxy's own table.
    pub tasks: Option<Vec<TaskRow>>,
    pub missing: Vec<NotObservable>,
    pub role: &'static str,
}

impl ProfileReport {
    pub fn title(&self) -> String {
        let compared = if self.baseline.is_some() { ", compared with another run" } else { "" };
        format!(
            "{} at {} Hz in {:.1} s{compared}",
            format_plural(self.profile.samples, "sample"),
            self.profile.frequency,
            self.profile.length_s
        )
    }
}

/// Formats the tables of a profile, with the first `top` functions.
pub fn format_profile(outcome: &ProfileReport, top: usize) -> String {
    let profile = &outcome.profile;
    let seconds = profile.length_s.max(1e-9);
    let unit = if profile.threads_only { "ticks  " } else { "samples" };
    let mut text = format!(
        "{unit}      {} in {:.1} s at {} per second of CPU time: {:.2} CPUs used; {} lost\n\
         cost         {:.2} % of a core to read them, {:.2} s to look up the names\n",
        profile.samples,
        profile.length_s,
        profile.frequency,
        profile.samples as f64 / f64::from(profile.frequency.max(1)) / seconds,
        profile.lost + profile.dropped,
        profile.sampling_cpu_s / seconds * 100.0,
        profile.symbolization_cpu_s,
    );
    if profile.throttled > 0 {
        let _ = writeln!(
            text,
            "note         the kernel slowed the sampling down {} (kernel.perf_cpu_time_max_percent)",
            format_plural(profile.throttled, "time")
        );
    }
    for note in &profile.notes {
        let _ = writeln!(text, "note         {note}");
    }
    if profile.samples == 0 {
        text.push_str("\nNo samples: the processes used no CPU time.\n");
    } else if outcome.baseline.is_none() {
        text.push_str(&functions(outcome, top));
    }
    if let Some(baseline) = &outcome.baseline {
        text.push_str(&changes(baseline, &profile.folded(), top));
    }
    text.push_str(&calls(outcome));
    text.push_str(&tasks(outcome, top));
    text
}

fn functions(outcome: &ProfileReport, top: usize) -> String {
    let mut text = "\n    self     total  module            function\n".to_owned();
    for row in outcome.profile.functions(outcome.role).iter().take(top) {
        let _ = writeln!(
            text,
            "{:6.2} %  {:6.2} %  {:<16}  {}",
            row.self_fraction * 100.0,
            row.total_fraction * 100.0,
            row.module,
            shorten(&row.function)
        );
    }
    text
}

fn changes(baseline: &FoldedStacks, after: &FoldedStacks, top: usize) -> String {
    let mut text = format!(
        "\nCompared with a run of {}; fractions of each run:\n\
         \x20  self                           total\n\
         \x20 before     after    change      before     after    change  function\n",
        format_plural(baseline.samples(), "sample")
    );
    for row in diff(baseline, after).iter().take(top) {
        let _ = writeln!(
            text,
            "{:6.2} %  {:6.2} %  {:+6.2} %    {:6.2} %  {:6.2} %  {:+6.2} %  {}",
            row.self_before * 100.0,
            row.self_after * 100.0,
            row.self_delta() * 100.0,
            row.total_before * 100.0,
            row.total_after * 100.0,
            row.total_delta() * 100.0,
            shorten(&row.function)
        );
    }
    text
}

fn calls(outcome: &ProfileReport) -> String {
    let mut text = String::new();
    for counted_call in &outcome.call_counts {
        let rate = counted_call.call.count as f64 / counted_call.call.length_s.max(1e-9);
        let _ = write!(
            text,
            "\n{:<12} {rate:.0}/s ({} in {:.3} s, {})\n             cost of counting {:.1} % of a core \
             during bursts, {:.2} % overall; {:.2} µs a call, {}\n",
            counted_call.call.call,
            counted_call.call.count,
            counted_call.call.length_s,
            counted_call.target,
            counted_call.call.cost_cpus * 100.0,
            counted_call.total_cost_cpus * 100.0,
            counted_call.hit_cost.hit_ns / 1000.0,
            if counted_call.hit_cost.is_measured { "measured here" } else { "as measured elsewhere" },
        );
    }
    for missing in &outcome.missing {
        let _ = write!(text, "\n{missing}\n");
    }
    text
}

fn tasks(outcome: &ProfileReport, top: usize) -> String {
    let Some(rows) = &outcome.tasks else { return String::new() };
    let all = rows.iter().map(|row| row.cpu_ns).sum::<u64>().max(1) as f64;
    let mut text =
        "\nHAProxy's own profile, of one second:\n   fraction    calls    µs/call  function\n".to_owned();
    for row in rows.iter().take(top) {
        let _ = writeln!(
            text,
            "{:6.2} %  {:9}  {:10.2}  {}",
            row.cpu_ns as f64 / all * 100.0,
            row.calls,
            row.cpu_ns as f64 / row.calls.max(1) as f64 / 1000.0,
            row.function
        );
    }
    text
}

fn shorten(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

pub fn json(outcome: &ProfileReport) -> Value {
    let profile = &outcome.profile;
    let missing: Vec<UnobservableMetric> = outcome
        .missing
        .iter()
        .map(|metric| UnobservableMetric { figure: metric.figure.clone(), reason: metric.reason.clone() })
        .collect();
    let changes = outcome.baseline.as_ref().map(|baseline| {
        let rows = diff(baseline, &profile.folded()).into_iter();
        let row = rows.map(|row| {
            json!({
                "function": row.function,
                "self_before": row.self_before, "self_after": row.self_after,
                "total_before": row.total_before, "total_after": row.total_after,
            })
        });
        row.collect::<Vec<Value>>()
    });
    let calls = outcome.call_counts.iter().map(|counted_call| {
        json!({
            "count": counted_call.call, "target": counted_call.target, "total_cost_cpus": counted_call.total_cost_cpus,
            "call_cost_ns": counted_call.hit_cost.hit_ns, "cost_is_measured": counted_call.hit_cost.is_measured,
        })
    });
    let tasks = outcome.tasks.as_ref().map(|rows| {
        let row = |row: &TaskRow| {
            json!({
                "function": row.function, "calls": row.calls, "cpu_ns": row.cpu_ns,
                "latency_ns": row.latency_ns,
            })
        };
        rows.iter().map(row).collect::<Vec<Value>>()
    });
    json!({
        "schema": SCHEMA,
        "started_at": outcome.started_at,
        "pids": profile.pids,
        "length_s": profile.length_s,
        "frequency_per_s": profile.frequency,
        "samples": profile.samples,
        "lost": profile.lost,
        "dropped": profile.dropped,
        "throttled": profile.throttled,
        "has_kernel": profile.has_kernel,
        "threads_only": profile.threads_only,
        "cost": {"reading_s": profile.sampling_cpu_s, "naming_s": profile.symbolization_cpu_s},
        "notes": profile.notes,
        "functions": profile.functions(outcome.role),
        "changes": changes,
        "calls": calls.collect::<Vec<Value>>(),
        "haproxy_tasks": tasks,
        "not_observable": missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_observations_are_reported() {
        let missing = NotObservable { figure: "calls of x".to_owned(), reason: "no such".to_owned() };
        let outcome = ProfileReport {
            started_at: String::new(),
            profile: Profile::default(),
            baseline: Some(FoldedStacks::parse("a;main 3\n").unwrap()),
            call_counts: Vec::new(),
            tasks: Some(vec![TaskRow::default()]),
            missing: vec![missing],
            role: "subject",
        };
        let text = format_profile(&outcome, 5);
        for part in ["No samples", "calls of x: not observable: no such", "-100.00 %", "HAProxy's own"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let value = json(&outcome);
        assert_eq!(value["changes"][0]["self_before"], 1.0);
        assert_eq!(shorten(&"ä".repeat(200)).chars().count(), NAME_CHARS_MAX + 1);
    }
}
