//! Default text form of a run's record: rate and percentiles, the answer in three sentences, then counts, latencies
//! and validity. Prose wraps at the width of the page and is never cut; a table that is too wide drops columns.
//! `super::verbose` has the rest. Reads only the record, so a stored one looks the same.

use std::collections::BTreeMap;

use record::histogram::LatencySummary;
use record::run::{ConnectionTotals, Http2Totals, ObjectiveOutcome, Run, TlsSessions};
use record::sorted::sort_by_key;
use record::units::{format_byte_rate, format_duration_ns, format_plural, format_rate};
use record::validity::ValidityLevel;

use super::answer::{brief, format_answer_within, format_head, headline};
use super::breakdown::{STAGE_COLUMNS, stage_rows};
use super::conclusions::{figures_text, objective_text, reason_word};
use super::diagnosis::verdict_code;
use super::fleet::format_fleet;
use super::histogram::latency_histogram;
use super::layout::{LABEL_WIDTH, page_width, wrap, wrap_labelled};
use super::table::table_within;
use super::verbose::verbose_summary;

/// Width of the lines per second, of which a terminal has to show several in one place.
pub const WIDTH: usize = 80;
/// Minimum width of a page with a histogram.
const HISTOGRAM_WIDTH: usize = 75;
/// Columns of the latencies that a narrow page has no room for, the first to go first.
const LATENCY_DROPPABLE: &[usize] = &[6, 4, 2, 5];
/// Columns of the stages that a narrow page has no room for.
const STAGE_DROPPABLE: &[usize] = &[5, 2, 3];
/// Difference up to which the latencies from the send and from the due time count as equal, as a fraction.
const SAME_LATENCY_MAX: f64 = 0.03;
/// Maximum number of status codes, and of kinds of errors.
const KINDS_SHOWN: usize = 4;
/// Maximum number of lines about unusual counts: timeouts, dropped requests, lost connections.
const INCIDENTS_SHOWN: usize = 2;
const OBJECTIVES_SHOWN: usize = 2;
const STAGES_SHOWN: usize = 8;
/// Maximum number of reasons for the validity.
const REASONS_SHOWN: usize = 3;
/// Last line, which names the way to everything else.
const MORE: &str = "-v shows the evidence, CPU use, other phases and limits, and the generator";

/// Amount of a result that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Brief,
    Default,
    Verbose,
}

pub fn summary(run: &Run, detail: Detail, colour: bool) -> String {
    match detail {
        Detail::Brief => brief(run),
        Detail::Default => short_summary(run, colour, page_width()),
        Detail::Verbose => format!("{}\n{}", format_head(run), verbose_summary(run, colour)),
    }
}

fn short_summary(run: &Run, colour: bool, width: usize) -> String {
    let mut prose = vec![labelled("load", &format_target(run)), labelled("", &format_plan(run))];
    prose.extend(run.fleet.as_ref().map(|fleet| labelled("fleet", &format_fleet(fleet))));
    prose.extend(run.tls.as_ref().map(|tls| labelled("tls", &format_tls(tls))));
    prose.extend(run.http2.as_ref().and_then(format_http2).map(|text| labelled("http2", &text)));
    prose.extend(format_resent(&run.totals.connections).map(|text| labelled("pipeline", &text)));
    prose.extend(super::live::format_websocket(run).map(|text| labelled("websocket", &text)));
    prose.extend(super::live::format_event_stream(run).map(|text| labelled("events", &text)));
    prose.extend(super::live::format_transport(run).map(|text| labelled("transport", &text)));
    prose.extend(format_replay(run).map(|text| labelled("replay", &text)));
    prose.extend(format_addresses(run).map(|text| labelled("address", &text)));
    prose.extend(outcome(run));
    let mut end = objectives(run);
    end.extend(validity(run));
    end.extend(verdict_code(run).map(|code| labelled("bottleneck", &code)));
    end.push(labelled("more", MORE));
    let first = wrap(&headline(run), width).join("\n");
    let head = format!("{first}\n\n{}\n", format_answer_within(&diagnose::answer(run), width));
    // Colours are added last: they take no columns.
    let wrapped = |lines: Vec<String>| -> String {
        let split = |line: &String| {
            let at = line.char_indices().nth(LABEL_WIDTH).map_or(line.len(), |(at, _)| at);
            wrap_labelled(line[..at].trim_end(), &line[at..], width)
        };
        let text: String = lines.iter().map(split).collect();
        text.lines().map(|line| paint_verdict(line, colour) + "\n").collect()
    };
    format!("{head}{}\n{}\n{}", wrapped(prose), latencies(run, width), wrapped(end))
}

/// Formats a line with its label in the left column.
pub(crate) fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL_WIDTH$}{text}")
}

/// Formats the first URL and the number of the others.
pub fn format_target(run: &Run) -> String {
    let requests = run.plan["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(first) = requests.first() else { return "?".to_owned() };
    let part = |name: &str| first[name].as_str().unwrap_or("?");
    let others = match requests.len() {
        1 => String::new(),
        count => format!(" and {} more in the record", count - 1),
    };
    format!("{} {}{others}", part("method"), part("url"))
}

/// Formats connections, threads, the loop with its rate, and the duration.
pub fn format_plan(run: &Run) -> String {
    let plan = &run.plan;
    let number = |name: &str| plan[name].as_u64().unwrap_or(0);
    let pace = match plan["pace"]["loop"].as_str() {
        _ if plan["replay"].is_object() => {
            format!(
                "replay of {}",
                format_plural(plan["replay"]["requests"].as_u64().unwrap_or(0), "request")
            )
        }
        Some(kind) if plan["stages"].is_string() => {
            format!("{kind} loop, stages {}", plan["stages"].as_str().unwrap_or("?"))
        }
        Some("open") => format!(
            "open loop {} {}{}",
            format_rate(plan["pace"]["rate_per_s"].as_f64().unwrap_or(0.0)),
            plan["pace"]["arrivals"].as_str().unwrap_or("?"),
            if run.rate_changes.is_empty() { "" } else { ", then changed" },
        ),
        _ => match plan["pace"]["think_ns"].as_u64() {
            None | Some(0) => "closed loop".to_owned(),
            Some(think_ns) => format!(
                "closed loop, {}{} think time",
                format_distribution(&plan["think"]),
                format_duration_ns(think_ns)
            ),
        },
    };
    format!(
        "{}{}, {}, {pace}, {:.1} s",
        format_plural(number("connections"), "connection"),
        format_streams(&plan["http2"]),
        format_plural(number("threads"), "thread"),
        run.duration_s
    )
}

/// Formats the distribution of a random think time, with a space; empty if it is constant.
fn format_distribution(think: &serde_json::Value) -> String {
    let name = think.as_str().or_else(|| think.as_object()?.keys().next().map(String::as_str));
    name.map(|name| name.replace('_', "-") + " ").unwrap_or_default()
}

/// Formats the streams of each connection; empty without HTTP/2.
fn format_streams(http2: &serde_json::Value) -> String {
    let Some(streams) = http2["streams"].as_u64() else { return String::new() };
    let version = match http2["fraction"].as_f64() {
        Some(fraction) if fraction < 1.0 => format!("{:.0} % HTTP/2", fraction * 100.0),
        _ => "HTTP/2".to_owned(),
    };
    format!(" x {} ({version})", format_plural(streams, "stream"))
}

/// Formats the unusual counts of HTTP/2; `None` if there are none.
pub fn format_http2(http2: &Http2Totals) -> Option<String> {
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    let mut parts = Vec::new();
    parts.extend(
        http2
            .streams_allowed
            .map(|allowed| format!("server allows {} per connection", format_plural(allowed, "stream"))),
    );
    for (name, counts) in [("reset", &http2.resets), ("GOAWAY", &http2.goaways)] {
        if sum(counts) > 0 {
            parts.push(format!(
                "{} ({})",
                format_plural(sum(counts), name),
                largest_counts(counts.clone().into_iter())
            ));
        }
    }
    if http2.retried > 0 {
        parts.push(format!("{} sent again", format_plural(http2.retried, "request")));
    }
    let failed_calls = http2.grpc_status.iter().filter(|(status, _)| *status != "0");
    let failed_calls: Vec<_> = failed_calls.map(|(status, count)| (format!("{status}:"), *count)).collect();
    if !failed_calls.is_empty() {
        parts.push(format!("grpc-status {}", largest_counts(failed_calls.into_iter())));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats the pipelined requests that were sent again; `None` if there are none.
pub(super) fn format_resent(connections: &ConnectionTotals) -> Option<String> {
    let count = Some(connections.resent).filter(|count| *count > 0)?;
    let requests = format_plural(count, "request");
    Some(format!("{requests} sent again: a response before theirs ended the connection"))
}

/// Formats the lines of a replayed log that were read, sent and skipped.
pub(super) fn format_replay(run: &Run) -> Option<String> {
    let replay = &run.plan["replay"];
    let read = replay["read"].as_u64()?;
    let skipped = replay["skipped"].as_object().map(|counts| {
        let counts =
            counts.iter().map(|(reason, count)| (reason.replace('_', " "), count.as_u64().unwrap_or(0)));
        counts.collect::<Vec<_>>()
    });
    let skipped = skipped.unwrap_or_default();
    let total: u64 = skipped.iter().map(|(_, count)| count).sum();
    let sent = run.totals.requests.saturating_sub(run.totals.dropped);
    let mut text = format!("{read} read, {sent} sent, {total} skipped");
    if total > 0 {
        text += &format!(" ({})", largest_counts(skipped.into_iter()));
    }
    Some(text)
}

/// Formats the addresses of names that have several; `None` if none has.
pub(super) fn format_addresses(run: &Run) -> Option<String> {
    let rows = run.plan["addresses"].as_array().filter(|rows| !rows.is_empty())?.iter().map(|row| {
        let used = row["used"].as_array().into_iter().flatten().filter_map(|address| address.as_str());
        let used: Vec<&str> = used.collect();
        let count = row["count"].as_u64().unwrap_or(0);
        format!("{} for {} (which has {count})", used.join(", "), row["host"].as_str().unwrap_or("?"))
    });
    Some(rows.collect::<Vec<_>>().join("; "))
}

/// Formats what the first session negotiated, and the number of handshakes of each kind.
pub fn format_tls(tls: &TlsSessions) -> String {
    let mut text = match (&tls.version, &tls.cipher_suite) {
        (Some(version), Some(cipher_suite)) => format!("{version}, {cipher_suite}"),
        _ => "no session".to_owned(),
    };
    if tls.mixed {
        text.push_str(" and others");
    }
    text.push_str(&format!(", {} full and {} resumed handshakes", tls.full, tls.resumed));
    if tls.failed > 0 {
        text.push_str(&format!(", {} failed", tls.failed));
    }
    text
}

fn outcome(run: &Run) -> Vec<String> {
    let (totals, rates) = (&run.totals, &run.rates);
    let (good, bad) = (totals.good(), totals.bad());
    let mut requests = format!("{good} good ({}), {bad} bad", format_rate(run.goodput_per_s()));
    if let Some(offered) = rates.offered_per_s {
        requests.push_str(&format!("; {} offered", format_rate(offered)));
    }
    requests.push_str(&format!("; {} in", format_byte_rate(rates.bytes_in_per_s)));
    let status = totals.status.iter().map(|(status, count)| (format!("{status}:"), *count));
    let errors = match (totals.errors.is_empty(), bad) {
        (true, 1..) => format!("none; {}", format_plural(bad, "bad response")),
        _ => largest_counts(totals.errors.iter().map(|(kind, count)| (kind.clone(), *count))),
    };
    let mut lines = vec![
        labelled("requests", &requests),
        labelled("status", &largest_counts(status)),
        labelled("errors", &errors),
    ];
    lines.extend(incidents(run).into_iter().take(INCIDENTS_SHOWN));
    lines
}

pub fn largest_counts(counts: impl Iterator<Item = (String, u64)>) -> String {
    let mut counts: Vec<_> = counts.collect();
    if counts.is_empty() {
        return "none".to_owned();
    }
    sort_by_key(&mut counts, |(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<_> =
        counts.iter().take(KINDS_SHOWN).map(|(kind, count)| format!("{kind} {count}")).collect();
    match counts.len().saturating_sub(KINDS_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more in the record", shown.join(", ")),
    }
}

/// Returns the lines that only a run with an incident has, the most serious first.
fn incidents(run: &Run) -> Vec<String> {
    let totals = &run.totals;
    let mut lines = Vec::new();
    if !totals.parse_errors.is_empty() {
        let counts = totals.parse_errors.iter().map(|(code, error)| (code.clone(), error.count));
        let first = totals.parse_errors_by_count()[0].1;
        lines.push(labelled("parse", &format!("{}; first: {}", largest_counts(counts), first.text)));
    }
    if !totals.failed_checks.is_empty() {
        let failed = totals.failed_checks.iter().map(|(check, count)| (check.clone(), *count));
        let sample = run
            .check_samples
            .first()
            .map_or_else(String::new, |sample| format!("; first: {} {}", sample.found, sample.request));
        lines.push(labelled("checks", &format!("failed: {}{sample}", largest_counts(failed))));
    }
    if totals.dropped > 0 {
        lines.push(labelled("dropped", &format!("{} due and never sent", totals.dropped)));
    }
    if let Some((min_age_ns, max_age_ns)) = totals.timeout_age_ns {
        let phases = totals.timeouts_by_phase.iter().map(|(phase, n)| (phase.clone(), *n));
        let (min, max) = (format_duration_ns(min_age_ns), format_duration_ns(max_age_ns));
        let text = format!("{min} to {max} old, waiting for: {}", largest_counts(phases));
        lines.push(labelled("timeouts", &text));
    }
    if totals.unfinished > 0 {
        let age = format_duration_ns(totals.unfinished_age_ns_max);
        lines.push(labelled("unfinished", &format!("{}, up to {age} old", totals.unfinished)));
    }
    let connections = &totals.connections;
    if connections.max_open < connections.requested || connections.failed + connections.lost > 0 {
        let text = format!(
            "{} of {} open at a time; {} failed, {} lost",
            connections.max_open, connections.requested, connections.failed, connections.lost
        );
        lines.push(labelled("connections", &text));
    }
    lines
}

fn latencies(run: &Run, width: usize) -> String {
    let names = ["latency", "p50", "p90", "p99", "p99.9", "max", "mean"];
    let last_byte = &run.latency.last_byte;
    let mut rows = vec![names.map(ToOwned::to_owned).to_vec()];
    match is_same_latency(&last_byte.response, &last_byte.service) {
        true => rows.push(latency_row("response", &last_byte.response)),
        false => rows.extend([
            latency_row("response (from due)", &last_byte.response),
            latency_row("service (from send)", &last_byte.service),
        ]),
    }
    let distribution = match run.stages.is_empty() {
        true if width < HISTOGRAM_WIDTH => String::new(),
        true => latency_histogram(&last_byte.response),
        false => stages(run, width),
    };
    table_within(&rows, width, LATENCY_DROPPABLE) + &distribution
}

/// Returns whether two latencies differ by no more than a reader would notice.
fn is_same_latency(first: &LatencySummary, second: &LatencySummary) -> bool {
    let figures = |latency: &LatencySummary| {
        [
            latency.p50_ns,
            latency.p90_ns,
            latency.p99_ns,
            latency.p999_ns,
            latency.max_ns,
            latency.mean_ns as u64,
        ]
    };
    figures(first)
        .into_iter()
        .zip(figures(second))
        .all(|(first, second)| first.abs_diff(second) as f64 <= SAME_LATENCY_MAX * first.max(second) as f64)
}

/// Formats the first stages; latencies of different stages have no common distribution.
fn stages(run: &Run, width: usize) -> String {
    let mut rows = vec![STAGE_COLUMNS.map(ToOwned::to_owned).to_vec()];
    rows.extend(stage_rows(run).into_iter().take(STAGES_SHOWN));
    let more = match run.stages.len().saturating_sub(STAGES_SHOWN) {
        0 => String::new(),
        more => format!("and {} with -v\n", format_plural(more as u64, "more stage")),
    };
    format!("\n{}{more}", table_within(&rows, width, STAGE_DROPPABLE))
}

fn latency_row(name: &str, summary: &LatencySummary) -> Vec<String> {
    [name.to_owned()].into_iter().chain(latency_figures(summary)).collect()
}

/// Returns the figures of a row of latencies: p50, p90, p99, p99.9, maximum and mean.
pub(super) fn latency_figures(summary: &LatencySummary) -> [String; 6] {
    let times = [
        summary.p50_ns,
        summary.p90_ns,
        summary.p99_ns,
        summary.p999_ns,
        summary.max_ns,
        summary.mean_ns as u64,
    ];
    times.map(|ns| match summary.count {
        0 => "-".to_owned(),
        _ => format_duration_ns(ns),
    })
}

/// Formats the objectives, the missed ones first.
fn objectives(run: &Run) -> Vec<String> {
    let (missed, met): (Vec<_>, Vec<_>) =
        run.objectives.iter().partition(|objective| objective.outcome() != ObjectiveOutcome::Met);
    let all: Vec<_> = missed.iter().chain(&met).map(|objective| objective_text(run, objective)).collect();
    if all.len() <= OBJECTIVES_SHOWN {
        return all.iter().map(|text| labelled("objective", text)).collect();
    }
    let shown = OBJECTIVES_SHOWN - 1;
    let mut lines: Vec<_> = all.iter().take(shown).map(|text| labelled("objective", text)).collect();
    let text =
        format!("and {} more in the record, {} of all {} met", all.len() - shown, met.len(), all.len());
    lines.push(labelled("", &text));
    lines
}

/// Formats the validity and its most severe reasons.
fn validity(run: &Run) -> Vec<String> {
    let reasons = &run.validity.reasons;
    let (word, _) = verdict_word(run.validity.verdict);
    let text = match reasons.len() {
        0 => format!("{word}: no problem found"),
        count if count > REASONS_SHOWN => {
            format!("{word} (and {} more in the record)", count - REASONS_SHOWN)
        }
        _ => word.to_owned(),
    };
    let mut lines = vec![labelled("validity", &text)];
    lines.extend(reasons.iter().take(REASONS_SHOWN).map(|reason| {
        labelled(&format!("  {}", reason_word(reason.verdict)), &format!("{}: {}", reason.code, reason.text))
    }));
    lines.extend(figures_text(run).map(|text| labelled("  figures", &text)));
    lines
}

/// Returns the word for a validity, and the code of its colour.
fn verdict_word(verdict: ValidityLevel) -> (&'static str, &'static str) {
    match verdict {
        ValidityLevel::Valid => ("VALID", GREEN),
        ValidityLevel::Suspect => ("SUSPECT", YELLOW),
        ValidityLevel::Invalid => ("INVALID", RED),
    }
}

/// Paints the outcome in a line about the verdict or an objective.
fn paint_verdict(line: &str, colour: bool) -> String {
    let (label, words): (&str, &[(&str, &str)]) = if line.starts_with("validity ") {
        ("validity ", &[("INVALID", RED), ("VALID", GREEN), ("SUSPECT", YELLOW)])
    } else if line.starts_with("objective ") {
        ("objective ", &[(": MISSED (", RED), (": met (", GREEN), (": NOT PROVEN (", YELLOW)])
    } else {
        return line.to_owned();
    };
    let found = words.iter().find(|(word, _)| line[label.len()..].contains(word));
    match found {
        Some((word, code)) => line.replacen(word, &paint(word, code, colour), 1),
        None => line.to_owned(),
    }
}

/// Code of green in a terminal.
pub const GREEN: &str = "32";
/// Code of yellow in a terminal.
pub const YELLOW: &str = "33";
/// Code of red in a terminal.
pub const RED: &str = "31";

pub fn verdict(run: &Run, colour: bool) -> String {
    let (word, code) = verdict_word(run.validity.verdict);
    let mut text = format!("validity     {}", paint(word, code, colour));
    if run.validity.reasons.is_empty() {
        text.push_str(": no problem found");
    }
    text.push('\n');
    for reason in &run.validity.reasons {
        let label = format!("  {}", reason_word(reason.verdict));
        text.push_str(&wrap_labelled(&label, &format!("{}: {}", reason.code, reason.text), page_width()));
    }
    text.push_str(
        &figures_text(run)
            .map(|figures| wrap_labelled("  figures", &figures, page_width()))
            .unwrap_or_default(),
    );
    text
}

pub fn paint(word: &str, code: &str, colour: bool) -> String {
    if colour { format!("\x1b[1;{code}m{word}\x1b[0m") } else { word.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests;
