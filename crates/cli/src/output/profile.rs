//! A profile as people read it, and as JSON.

use std::fmt::Write as _;

use host::NotObservable;
use host::perf::calls::Counted;
use host::perf::{Folded, Profile, TaskRow, difference};
use record::observed::Missing;
use record::units::count_of;
use serde_json::{Value, json};

/// The schema of a profile's JSON.
const SCHEMA: &str = "weir.profile/1";
/// Letters of a function's name in a table.
const NAME_LETTERS_MAX: usize = 120;

/// All that a profile is made of.
pub(crate) struct Outcome {
    /// When the sampling began, RFC 3339.
    pub(crate) started_at: String,
    pub(crate) profile: Profile,
    /// The other run that this one is compared with.
    pub(crate) against: Option<Folded>,
    pub(crate) counted: Vec<Counted>,
    /// HAProxy's own table.
    pub(crate) tasks: Option<Vec<TaskRow>>,
    pub(crate) missing: Vec<NotObservable>,
    /// What the processes are called in records.
    pub(crate) role: &'static str,
}

impl Outcome {
    /// One line for a picture.
    pub(crate) fn title(&self) -> String {
        let compared = if self.against.is_some() { ", against another run" } else { "" };
        format!(
            "{} at {} Hz in {:.1} s{compared}",
            count_of(self.profile.samples, "sample"),
            self.profile.frequency,
            self.profile.length_s
        )
    }
}

/// The tables of a profile, with the first `top` functions.
pub(crate) fn words(outcome: &Outcome, top: usize) -> String {
    let profile = &outcome.profile;
    let seconds = profile.length_s.max(1e-9);
    let unit = if profile.threads_only { "ticks  " } else { "samples" };
    let mut text = format!(
        "{unit}      {} in {:.1} s at {} per second of processor time: {:.2} processors used; {} lost\n\
         cost         {:.2} % of a core to read them, {:.2} s to look up the names\n",
        profile.samples,
        profile.length_s,
        profile.frequency,
        profile.samples as f64 / f64::from(profile.frequency.max(1)) / seconds,
        profile.lost + profile.not_kept,
        profile.reading_s / seconds * 100.0,
        profile.naming_s,
    );
    if profile.throttled > 0 {
        let _ = writeln!(
            text,
            "note         the kernel slowed the sampling down {} (kernel.perf_cpu_time_max_percent)",
            count_of(profile.throttled, "time")
        );
    }
    for note in &profile.notes {
        let _ = writeln!(text, "note         {note}");
    }
    if profile.samples == 0 {
        text.push_str("\nNo sample: the processes used no processor time.\n");
    } else if outcome.against.is_none() {
        text.push_str(&functions(outcome, top));
    }
    if let Some(before) = &outcome.against {
        text.push_str(&changes(before, &profile.folded(), top));
    }
    text.push_str(&calls(outcome));
    text.push_str(&tasks(outcome, top));
    text
}

fn functions(outcome: &Outcome, top: usize) -> String {
    let mut text = "\n    self     total  module            function\n".to_owned();
    for row in outcome.profile.functions(outcome.role).iter().take(top) {
        let _ = writeln!(
            text,
            "{:6.2} %  {:6.2} %  {:<16}  {}",
            row.share_self * 100.0,
            row.share_total * 100.0,
            row.module,
            shortened(&row.function)
        );
    }
    text
}

fn changes(before: &Folded, after: &Folded, top: usize) -> String {
    let mut text = format!(
        "\nAgainst a run of {}; shares of each run's own:\n\
         \x20  self                           total\n\
         \x20 before     after    change      before     after    change  function\n",
        count_of(before.samples(), "sample")
    );
    for row in difference(before, after).iter().take(top) {
        let _ = writeln!(
            text,
            "{:6.2} %  {:6.2} %  {:+6.2} %    {:6.2} %  {:6.2} %  {:+6.2} %  {}",
            row.self_before * 100.0,
            row.self_after * 100.0,
            row.self_delta() * 100.0,
            row.total_before * 100.0,
            row.total_after * 100.0,
            row.total_delta() * 100.0,
            shortened(&row.function)
        );
    }
    text
}

fn calls(outcome: &Outcome) -> String {
    let mut text = String::new();
    for one in &outcome.counted {
        let rate = one.call.count as f64 / one.call.length_s.max(1e-9);
        let _ = write!(
            text,
            "\n{:<12} {rate:.0}/s ({} in {:.3} s, {})\n             counting cost {:.1} % of a core \
             meanwhile, {:.2} % over all; {:.2} µs a call, {}\n",
            one.call.call,
            one.call.count,
            one.call.length_s,
            one.of,
            one.call.cost_cpus * 100.0,
            one.cost_in_all_cpus * 100.0,
            one.hit.hit_ns / 1000.0,
            if one.hit.is_measured { "measured here" } else { "as measured elsewhere" },
        );
    }
    for why in &outcome.missing {
        let _ = write!(text, "\n{why}\n");
    }
    text
}

fn tasks(outcome: &Outcome, top: usize) -> String {
    let Some(rows) = &outcome.tasks else { return String::new() };
    let all = rows.iter().map(|row| row.cpu_ns).sum::<u64>().max(1) as f64;
    let mut text =
        "\nHAProxy's own profile, of one second:\n    share      calls   µs a call  function\n"
            .to_owned();
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

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_LETTERS_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// The same for programs.
pub(crate) fn json(outcome: &Outcome) -> Value {
    let profile = &outcome.profile;
    let missing: Vec<Missing> = outcome
        .missing
        .iter()
        .map(|one| Missing { what: one.what.clone(), why: one.why.clone() })
        .collect();
    let changes = outcome.against.as_ref().map(|before| {
        let rows = difference(before, &profile.folded()).into_iter();
        let row = rows.map(|row| {
            json!({
                "function": row.function,
                "self_before": row.self_before, "self_after": row.self_after,
                "total_before": row.total_before, "total_after": row.total_after,
            })
        });
        row.collect::<Vec<Value>>()
    });
    let calls = outcome.counted.iter().map(|one| {
        json!({
            "count": one.call, "of": one.of, "cost_in_all_cpus": one.cost_in_all_cpus,
            "call_cost_ns": one.hit.hit_ns, "call_cost_is_measured": one.hit.is_measured,
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
        "not_kept": profile.not_kept,
        "throttled": profile.throttled,
        "has_kernel": profile.has_kernel,
        "threads_only": profile.threads_only,
        "cost": {"reading_s": profile.reading_s, "naming_s": profile.naming_s},
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
    fn what_was_not_seen_is_said() {
        let missing = NotObservable { what: "calls of x".to_owned(), why: "no such".to_owned() };
        let outcome = Outcome {
            started_at: String::new(),
            profile: Profile::default(),
            against: Some(Folded::parse("a;main 3\n").unwrap()),
            counted: Vec::new(),
            tasks: Some(vec![TaskRow::default()]),
            missing: vec![missing],
            role: "subject",
        };
        let text = words(&outcome, 5);
        for part in
            ["No sample", "calls of x: not observable: no such", "-100.00 %", "HAProxy's own"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let value = json(&outcome);
        assert_eq!(value["changes"][0]["self_before"], 1.0);
        assert_eq!(shortened(&"ä".repeat(200)).chars().count(), NAME_LETTERS_MAX + 1);
    }
}
