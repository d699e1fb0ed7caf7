//! Complete text form of a run's record (`-v`): all latencies, the state of the generator, CPU use,
//! and all lines of the diagnosis. Reads only the record, so a stored one looks the same.

use record::histogram::LatencySummary;
use record::run::{LatencyPair, ObjectiveOutcome, Run};
use record::units::{format_byte_rate, format_duration_ns, format_plural, format_rate};

use super::breakdown::{REQUEST_COLUMNS, STAGE_COLUMNS, request_rows, stage_rows};
use super::conclusions::{objective_text, outcome_word};
use super::diagnosis::format_diagnosis;
use super::histogram::latency_histogram;
use super::summary::{
    GREEN, RED, YELLOW, format_http2, format_plan, format_resent, format_tls, labelled, latency_figures,
    paint, verdict,
};
use super::table::table;

pub(super) fn verbose_summary(run: &Run, colour: bool) -> String {
    let mut parts = vec![
        head(run),
        outcome(run),
        latencies(run),
        parts_table(&STAGE_COLUMNS, stage_rows(run)),
        parts_table(&REQUEST_COLUMNS, request_rows(run)),
        generator(run),
        objectives(run, colour) + &verdict(run, colour),
    ];
    parts.push(format_diagnosis(run, false));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn head(run: &Run) -> String {
    let requests = run.plan["requests"].as_array().cloned().unwrap_or_default();
    let part = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
    let urls =
        requests.iter().map(|request| format!("{} {}\n", part(&request["method"]), part(&request["url"])));
    let tls = run.tls.as_ref().map(|tls| labelled("tls", &format_tls(tls)) + "\n");
    let http2 = run.http2.as_ref().and_then(format_http2).map(|text| labelled("http2", &text) + "\n");
    let live = [
        ("pipeline", format_resent(&run.totals.connections)),
        ("websocket", super::live::format_websocket(run)),
        ("events", super::live::format_event_stream(run)),
        ("transport", super::live::format_transport(run)),
    ];
    let live = live.into_iter().filter_map(|(label, text)| Some(labelled(label, &text?) + "\n"));
    let tls = tls.into_iter().chain(http2).chain(live).collect::<String>();
    format!("{}{}\n{tls}", urls.collect::<String>(), format_plan(run))
}

fn outcome(run: &Run) -> String {
    let (totals, rates) = (&run.totals, &run.rates);
    let counts = |map: Vec<(String, u64)>| match map.is_empty() {
        true => "none".to_owned(),
        false => map.iter().map(|(key, n)| format!("{key} {n}")).collect::<Vec<_>>().join(", "),
    };
    let status = totals.status.iter().map(|(status, n)| (format!("{status}:"), *n)).collect();
    let errors = totals.errors.iter().map(|(kind, n)| (kind.clone(), *n)).collect();
    let (good, bad) = (totals.good(), totals.bad());
    let mut lines = vec![
        format!(
            "responses    {good} good, {bad} bad; goodput {}, {} in",
            format_rate(run.goodput_per_s()),
            format_byte_rate(rates.bytes_in_per_s)
        ),
        format!("status       {}", counts(status)),
        format!(
            "errors       {}",
            match (totals.errors.is_empty(), bad) {
                (true, 1..) => format!("none; {}", format_plural(bad, "bad response")),
                _ => counts(errors),
            }
        ),
    ];
    if bad > 0 {
        let all = format_rate(rates.responses_per_s);
        lines[0].push_str(&format!(", {all} with the bad responses"));
    }
    if let Some(offered) = rates.offered_per_s {
        lines[0].push_str(&format!(", {} offered", format_rate(offered)));
    }
    if let Some((min_age_ns, max_age_ns)) = totals.timeout_age_ns {
        let phases = totals.timeouts_by_phase.iter();
        let phases = counts(phases.map(|(phase, n)| (phase.clone(), *n)).collect());
        let ages = format!("{} to {} old", format_duration_ns(min_age_ns), format_duration_ns(max_age_ns));
        lines.push(format!("             timed out waiting for: {phases}; {ages}"));
    }
    for (code, error) in totals.parse_errors_by_count() {
        lines.push(format!("             parse: {code} {}, {}", error.count, error.text));
    }
    lines.extend(failed_checks(run));
    if totals.unfinished > 0 {
        let age = format_duration_ns(totals.unfinished_age_ns_max);
        lines.push(format!("             {} unfinished, up to {age} old", totals.unfinished));
    }
    if totals.dropped > 0 {
        lines.push(format!("dropped      {} due and never sent", totals.dropped));
    }
    let connections = &totals.connections;
    lines.push(format!(
        "connections  {} of {} obtained; {} opened, {} failed, {} lost, {} closed while idle",
        connections.max_open,
        connections.requested,
        connections.opened,
        connections.failed,
        connections.lost,
        connections.closed_idle
    ));
    lines.join("\n") + "\n"
}

fn failed_checks(run: &Run) -> Vec<String> {
    let totals = &run.totals;
    let mut lines = Vec::new();
    if !totals.failed_checks.is_empty() {
        let failed = totals.failed_checks.iter().map(|(check, count)| format!("{check} {count}"));
        lines.push(format!("checks       failed: {}", failed.collect::<Vec<_>>().join(", ")));
    }
    for sample in &run.check_samples {
        lines.push(format!(
            "             at {:.3} s {}: {} ({}, {} B) {:?}",
            sample.time_s, sample.request, sample.found, sample.status, sample.body_bytes, sample.body_start
        ));
    }
    lines
}

fn latencies(run: &Run) -> String {
    let names = ["latency", "", "p50", "p90", "p99", "p99.9", "max", "mean", "count"];
    let mut rows = vec![names.map(ToOwned::to_owned).to_vec()];
    add_pair(&mut rows, "connect", &run.latency.connect);
    if let Some(handshake) = &run.latency.tls_handshake {
        add_pair(&mut rows, "tls handshake", handshake);
    }
    // One kind is all of them.
    if let (Some(full), Some(resumed)) = (&run.latency.tls_full, &run.latency.tls_resumed) {
        rows.push(latency_row("  full", "service", full));
        rows.push(latency_row("  resumed", "service", resumed));
    }
    add_pair(&mut rows, "first byte", &run.latency.first_byte);
    add_pair(&mut rows, "last byte", &run.latency.last_byte);
    if let Some(bad) = &run.latency.last_byte_bad {
        add_pair(&mut rows, "(bad)", bad);
    }
    table(&rows)
        + &latency_histogram(&run.latency.last_byte.response)
        + &format!(
            "             service: from the send; response: from the due time\n\
             percentiles  of {}{}\n\
             window       {:.1} s to {:.1} s; {}\n",
            format_plural(run.latency.last_byte.response.count, "good response"),
            without_good_response(run),
            run.window.from_s,
            run.window.to_s,
            run.window.text
        )
}

/// Formats the results of the stages or the requests; empty without any.
fn parts_table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = columns.iter().map(|column| (*column).to_owned()).collect();
    let all: Vec<_> = std::iter::once(head).chain(rows).collect();
    table(&all)
}

fn add_pair(rows: &mut Vec<Vec<String>>, name: &str, pair: &LatencyPair) {
    rows.push(latency_row(name, "service", &pair.service));
    rows.push(latency_row("", "response", &pair.response));
}

/// Formats the number of requests that are in no percentile.
fn without_good_response(run: &Run) -> String {
    match run.window.not_good {
        0 => String::new(),
        count => format!(
            "; {} without one {} in none of them",
            format_plural(count, "request"),
            if count == 1 { "is" } else { "are" }
        ),
    }
}

fn latency_row(name: &str, kind: &str, summary: &LatencySummary) -> Vec<String> {
    let mut row = vec![name.to_owned(), kind.to_owned()];
    row.extend(latency_figures(summary));
    row.push(summary.count.to_string());
    row
}

fn generator(run: &Run) -> String {
    let generator = &run.generator;
    let format_percent = |fraction: Option<f64>| {
        fraction.map_or_else(|| "not observable".to_owned(), |fraction| format!("{:.0} %", fraction * 100.0))
    };
    let mut text = format!(
        "generator    busiest thread {} of a core, run-queue wait {}; {} lag p50 {}, p99 {}, max {}\n\
         in flight    {:.2} counted, {:.2} by Little's law\n",
        format_percent(generator.busiest_thread_fraction),
        format_percent(generator.run_queue_wait_fraction),
        generator.lag_kind,
        format_duration_ns(generator.lag_p50_ns),
        format_duration_ns(generator.lag_p99_ns),
        format_duration_ns(generator.lag_max_ns),
        generator.in_flight_mean,
        generator.in_flight_by_littles_law,
    );
    let back_off = &generator.back_off;
    if back_off.requests > 0 {
        text.push_str(&format!(
            "back-off     {} waited up to {} for the generator's pauses after failed connects\n",
            format_plural(back_off.requests, "request"),
            format_duration_ns(back_off.longest_ns)
        ));
    }
    let stalls = &generator.stalls;
    if stalls.count > 0 {
        text.push_str(&format!(
            "stalls       {}, longest {}, in all {}; {} due or answered in them\n",
            stalls.count,
            format_duration_ns(stalls.longest_ns),
            format_duration_ns(stalls.total_ns),
            format_plural(stalls.affected_requests(), "request")
        ));
    }
    if let Some(calibrated) = &generator.calibrated {
        text.push_str(&format!(
            "calibrated   {} with these threads ({}); this run used {:.0} % of it\n",
            format_rate(calibrated.responses_per_s),
            calibrated.profile,
            calibrated.used_fraction * 100.0
        ));
    }
    let cpus = |cpus: Option<f64>| {
        cpus.map_or_else(|| "not observable here".to_owned(), |cpus| format!("{cpus:.2}"))
    };
    text.push_str(&format!(
        "CPUs         subject {}, generator {:.2}, other processes {}, of {}\n",
        cpus(run.cpu.subject_cpus),
        run.cpu.per_core.iter().sum::<f64>() + 0.0,
        cpus(run.cpu.foreign_cpus),
        run.host.cpus
    ));
    text
}

fn objectives(run: &Run, colour: bool) -> String {
    let lines = run.objectives.iter().map(|objective| {
        let text = objective_text(run, objective);
        let word = outcome_word(objective);
        let code = match objective.outcome() {
            ObjectiveOutcome::Met => GREEN,
            ObjectiveOutcome::Missed => RED,
            ObjectiveOutcome::NotProven => YELLOW,
        };
        let painted = text.replacen(&format!(": {word} "), &format!(": {} ", paint(word, code, colour)), 1);
        format!("objective    {painted}\n")
    });
    lines.collect()
}
