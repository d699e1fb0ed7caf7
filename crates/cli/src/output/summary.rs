//! A run's record as people read it: what came of it, how long it took, how the generator did, and
//! whether to believe it. Reads the record and nothing else, so a stored one looks the same.

use record::histogram::LatencySummary;
use record::run::{Pair, Run};
use record::units::{count_of, format_bytes, format_count, format_duration_ns};
use record::validity::Verdict;

use super::diagnosis::diagnosis;
use super::table::table;

/// The whole summary.
pub(crate) fn summary(run: &Run, colour: bool) -> String {
    let mut text = String::new();
    text.push_str(&head(run));
    text.push('\n');
    text.push_str(&outcome(run));
    text.push('\n');
    text.push_str(&latencies(run));
    text.push('\n');
    text.push_str(&generator(run));
    text.push('\n');
    text.push_str(&objectives(run, colour));
    text.push_str(&verdict(run, colour));
    let diagnosis = diagnosis(run, false);
    if !diagnosis.is_empty() {
        text.push('\n');
        text.push_str(&diagnosis);
    }
    text
}

fn head(run: &Run) -> String {
    let plan = &run.plan;
    let number = |name: &str| plan[name].as_u64().unwrap_or(0);
    let requests = plan["requests"].as_array().cloned().unwrap_or_default();
    let urls = requests.iter().map(|request| {
        let part = |name: &str| request[name].as_str().unwrap_or("?").to_owned();
        format!("{} {}", part("method"), part("url"))
    });
    let pace = match plan["pace"]["loop"].as_str() {
        Some("open") => format!(
            "open loop, {}/s, {} arrivals",
            format_count(plan["pace"]["rate_per_s"].as_f64().unwrap_or(0.0)),
            plan["pace"]["arrivals"].as_str().unwrap_or("?"),
        ),
        _ => match plan["pace"]["think_ns"].as_u64() {
            None | Some(0) => "closed loop".to_owned(),
            Some(think) => format!("closed loop, {} think time", format_duration_ns(think)),
        },
    };
    format!(
        "{}\n{}, {}, {pace}, {:.1} s\n",
        urls.collect::<Vec<_>>().join("\n"),
        count_of(number("connections"), "connection"),
        count_of(number("threads"), "thread"),
        run.duration_s
    )
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
            "responses    {good} good, {bad} bad; goodput {}/s, {}/s in",
            format_count(run.goodput_per_s()),
            format_bytes(rates.bytes_in_per_s)
        ),
        format!("status       {}", counts(status)),
        format!(
            "errors       {}",
            match (totals.errors.is_empty(), bad) {
                (true, 1..) => format!(
                    "no request failed, but {} had a bad response",
                    count_of(bad, "request")
                ),
                _ => counts(errors),
            }
        ),
    ];
    if bad > 0 {
        let all = format_count(rates.responses_per_s);
        lines[0].push_str(&format!(", {all} responses/s of both kinds"));
    }
    if let Some(offered) = rates.offered_per_s {
        lines[0].push_str(&format!(", {}/s offered", format_count(offered)));
    }
    if let Some((young, old)) = totals.timeout_age_ns {
        let phases = totals.timeouts_by_phase.iter();
        let phases = counts(phases.map(|(phase, n)| (phase.clone(), *n)).collect());
        let ages = format!("{} to {} old", format_duration_ns(young), format_duration_ns(old));
        lines.push(format!("             timed out waiting for: {phases}; {ages}"));
    }
    if totals.unfinished > 0 {
        let age = format_duration_ns(totals.unfinished_age_ns_max);
        lines.push(format!("             {} unfinished, up to {age} old", totals.unfinished));
    }
    if totals.dropped > 0 {
        lines.push(format!("dropped      {} were due and never sent", totals.dropped));
    }
    let connections = &totals.connections;
    lines.push(format!(
        "connections  {} of {} obtained; {} opened, {} failed, {} lost, {} closed while idle",
        connections.obtained,
        connections.wanted,
        connections.opened,
        connections.failed,
        connections.lost,
        connections.closed_idle
    ));
    lines.join("\n") + "\n"
}

fn latencies(run: &Run) -> String {
    let names = ["latency", "", "p50", "p90", "p99", "p99.9", "max", "mean", "count"];
    let mut rows = vec![names.map(ToOwned::to_owned).to_vec()];
    let mut add = |name: &str, pair: &Pair| {
        for (kind, summary) in [("service", &pair.service), ("response", &pair.response)] {
            let name = if kind == "service" { name } else { "" };
            rows.push(latency_row(name, kind, summary));
        }
    };
    add("connect", &run.latency.connect);
    add("first byte", &run.latency.first_byte);
    add("last byte", &run.latency.last_byte);
    if let Some(bad) = &run.latency.last_byte_bad {
        add("(bad)", bad);
    }
    table(&rows)
        + &format!(
            "             service: from the send; response: from the due time\n\
             percentiles  of {}{}\n\
             window       {:.1} s to {:.1} s; {}\n",
            count_of(run.latency.last_byte.response.count, "good response"),
            without_good(run),
            run.window.from_s,
            run.window.to_s,
            run.window.text
        )
}

/// The requests that no percentile has.
fn without_good(run: &Run) -> String {
    match run.window.not_good {
        0 => String::new(),
        count => format!(
            "; {} without one {} in none of them",
            count_of(count, "request"),
            if count == 1 { "is" } else { "are" }
        ),
    }
}

fn latency_row(name: &str, kind: &str, summary: &LatencySummary) -> Vec<String> {
    let mut row = vec![name.to_owned(), kind.to_owned()];
    let times = [
        summary.p50_ns,
        summary.p90_ns,
        summary.p99_ns,
        summary.p999_ns,
        summary.max_ns,
        summary.mean_ns as u64,
    ];
    row.extend(times.map(|ns| match summary.count {
        0 => "-".to_owned(),
        _ => format_duration_ns(ns),
    }));
    row.push(summary.count.to_string());
    row
}

fn generator(run: &Run) -> String {
    let generator = &run.generator;
    let share = |share: Option<f64>| {
        share.map_or_else(|| "not observable".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    let mut text = format!(
        "generator    busiest thread {} of a core, run-queue wait {}; {} lag p50 {}, p99 {}, max {}\n\
         in flight    {:.2} counted, {:.2} by Little's law\n",
        share(generator.busiest_thread_share),
        share(generator.run_queue_wait_share),
        generator.lag_of,
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
            count_of(back_off.requests, "request"),
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
            count_of(stalls.affected(), "request")
        ));
    }
    if let Some(calibrated) = &generator.calibrated {
        text.push_str(&format!(
            "calibrated   {}/s with these threads ({}); this run used {:.0} % of it\n",
            format_count(calibrated.responses_per_s),
            calibrated.profile,
            calibrated.used_share * 100.0
        ));
    }
    let cpus = |cpus: Option<f64>| {
        cpus.map_or_else(|| "not observable here".to_owned(), |cpus| format!("{cpus:.2}"))
    };
    text.push_str(&format!(
        "processors   subject {}, others {}, of {}\n",
        cpus(run.cpu.subject_cpus),
        cpus(run.cpu.foreign_cpus),
        run.host.cpus
    ));
    text
}

fn objectives(run: &Run, colour: bool) -> String {
    let lines = run.objectives.iter().map(|objective| {
        let value = if objective.value.is_finite() {
            objective.value_text()
        } else {
            let (failed, good) = (run.window.not_good, run.latency.last_byte.response.count);
            format!("{failed} of {} had no good response", count_of(failed + good, "request"))
        };
        let (word, code) = if objective.met { ("met", "32") } else { ("MISSED", "31") };
        format!("objective    {}: {} ({value})\n", objective.text, paint(word, code, colour))
    });
    lines.collect()
}

/// The verdict with its reasons.
pub(crate) fn verdict(run: &Run, colour: bool) -> String {
    let (word, code) = match run.validity.verdict {
        Verdict::Valid => ("VALID", "32"),
        Verdict::Suspect => ("SUSPECT", "33"),
        Verdict::Invalid => ("INVALID", "31"),
    };
    let mut text = format!("verdict      {}", paint(word, code, colour));
    if run.validity.reasons.is_empty() {
        text.push_str(": nothing speaks against this result");
    }
    text.push('\n');
    for reason in &run.validity.reasons {
        text.push_str(&format!(
            "  {:<8} {}: {}\n",
            reason.verdict.word(),
            reason.code,
            reason.text
        ));
    }
    text
}

fn paint(word: &str, code: &str, colour: bool) -> String {
    if colour { format!("\x1b[1;{code}m{word}\x1b[0m") } else { word.to_owned() }
}
