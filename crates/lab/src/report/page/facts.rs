//! What is looked up rather than read: the trials with why some do not count, the machine, the file, and
//! how to do it again.
//! Not for charts.

use std::fmt::Write as _;

use record::experiment::{Experiment, TrialLine};
use record::facts::HostFacts;

use super::figure::{self, Data};
use super::{Beside, Section};
use crate::report::Raw;
use crate::report::again::again as command;
use crate::report::charts::{Cell, Chart, Table};
use crate::report::csv::{Figures, ROWS_MAX, number};
use crate::report::svg::escaped;
use crate::report::unseen::unseen;
use crate::tally::Fate;
use crate::words;

/// Trials in the table at most; all are in the record.
const TRIALS_MAX: usize = 600;
/// Bytes of the trials' data in the page at most: charts are worth more.
const DATA_BYTES_MAX: usize = 300_000;
/// Metrics that have a column in the table of trials; all are in its data.
const METRICS_MAX: usize = 4;
/// Bytes of a text that are shown at most: a file of this size was not written by hand.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Facts of the environment at most.
const FACTS_MAX: usize = 300;

/// The sections behind the charts.
#[must_use]
pub(super) fn sections(
    experiment: &Experiment,
    raw: &dyn Raw,
    beside: &mut Vec<Beside>,
) -> Vec<Section> {
    let section = |anchor: &str, title: &str, body: String| Section {
        anchor: anchor.to_owned(),
        title: title.to_owned(),
        body,
    };
    vec![
        section("trials", "Trials", trials(experiment, beside)),
        section("not-observable", "What was not observable", not_observable(experiment, raw)),
        section("machine", "Machine and programs", machine(experiment)),
        section("file", "The experiment's file", file(experiment)),
        section("again", "Do it again", again(experiment, raw)),
    ]
}

fn trials(experiment: &Experiment, beside: &mut Vec<Beside>) -> String {
    let mut out = String::new();
    let aside: Vec<&TrialLine> = experiment
        .trials
        .iter()
        .filter(|line| line.discarded.is_some() || line.failed.is_some())
        .collect();
    if aside.is_empty() {
        out.push_str("<p>Every trial counts: none was disturbed and none failed.</p>");
    }
    out.push_str("<ul class=\"aside\">");
    for line in aside.iter().take(TRIALS_MAX) {
        let (what, why) = reason(line);
        let place = &line.place;
        let _ = write!(
            out,
            "<li>Trial {} ({}, {}, block {}, try {}) {what}: {}</li>",
            place.number,
            escaped(&place.arm),
            escaped(&place.load),
            place.block,
            place.attempt,
            escaped(why),
        );
    }
    out.push_str("</ul>");
    let caption = "Every trial in the order in which they ran; those that do not count say why, and \
                   the others of their block and load were run again with them.";
    let mut chart = Chart::new("all-trials", "All trials", caption, figures(experiment));
    if experiment.trials.len() > TRIALS_MAX {
        let note = format!("{} of {} are shown.", TRIALS_MAX, experiment.trials.len());
        chart.notes.push(note);
    }
    let chart = chart.table(table(experiment));
    let text = chart.figures.text();
    let fits = text.len() <= DATA_BYTES_MAX;
    let name = figure::file_name(&experiment.plan.name, &chart);
    let place = if fits { Data::Here } else { Data::Beside };
    out.push_str(&figure::figure(&chart, place, &name));
    if !fits || chart.figures.len() > ROWS_MAX {
        beside.push(Beside { name, text });
    }
    out
}

fn not_observable(experiment: &Experiment, raw: &dyn Raw) -> String {
    let all = unseen(experiment, raw);
    if all.is_empty() {
        return "<p>The trials say of nothing that it was asked for and could not be seen.</p>"
            .to_owned();
    }
    let mut out = String::from(
        "<p>What the trials could not see, and what the programs that drove the load do not tell, or tell \
         in a way that has to be known to read it.</p><ul>",
    );
    for one in all.iter().take(FACTS_MAX) {
        let trials = words::count(one.trials, "trial");
        let _ = write!(out, "<li>{} ({trials})</li>", escaped(&short(&one.text)));
    }
    out.push_str("</ul>");
    out
}

/// Why a trial does not count.
fn reason(line: &TrialLine) -> (&'static str, &str) {
    let fate = Fate::of(line);
    let said = line.failed.as_deref();
    let said = said.or_else(|| line.discarded.as_ref().map(|why| why.text.as_str()));
    let text = match fate {
        Fate::Pilot => "finds out how long a warm-up has to be",
        Fate::Probe => "counts calls, which slows it down",
        _ => said.unwrap_or_default(),
    };
    (fate.word(), text)
}

fn table(experiment: &Experiment) -> Table {
    let metrics: Vec<_> = experiment.plan.metrics.iter().take(METRICS_MAX).collect();
    let mut columns: Vec<String> =
        ["trial", "block", "arm", "load", "state"].map(str::to_owned).to_vec();
    columns.extend(metrics.iter().map(|metric| metric.title.clone()));
    columns.extend(["steal", "others' CPU", "wake-up 99 %", "limited by"].map(str::to_owned));
    let mut table = Table { columns, rows: Vec::new() };
    for line in experiment.trials.iter().take(TRIALS_MAX) {
        let place = &line.place;
        let again =
            if place.attempt > 1 { format!(", try {}", place.attempt) } else { String::new() };
        let (what, _) = reason(line);
        let mut row = vec![
            Cell::figure(Some(place.number.to_string())),
            Cell::words(format!("{}{again}", place.block)),
            Cell::words(place.arm.clone()),
            Cell::words(place.load.clone()),
            if what == "counts" { Cell::words(what) } else { Cell::words(what).class("bad") },
        ];
        let figure = |value: Option<f64>, unit: &str| {
            Cell::figure(value.map(|value| words::value(value, unit)))
        };
        for metric in &metrics {
            row.push(figure(line.metrics.get(&metric.name).copied(), &metric.unit));
        }
        let covariates = &line.covariates;
        row.push(figure(covariates.steal_share, "share"));
        row.push(figure(covariates.foreign_cpus, "cpus"));
        row.push(figure(covariates.wake_up_p99_ns.map(|ns| ns as f64), "ns"));
        row.push(Cell::words(words::code(line.verdict.as_deref().unwrap_or("–"))));
        table.rows.push(row);
    }
    table
}

fn figures(experiment: &Experiment) -> Figures {
    let mut columns =
        vec!["trial", "block", "attempt", "arm", "load", "started_at", "state", "why"];
    let metrics: Vec<&str> =
        experiment.plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
    columns.extend(&metrics);
    columns.extend(["steal_share", "foreign_cpus", "wake_up_p99_ns", "generator_lag_p99_ns"]);
    columns.extend(["generator_busiest_share", "error_share", "throttled_share", "clock_step_s"]);
    columns.extend(["steady_from_s", "verdict", "file"]);
    let mut figures = Figures::new(&columns);
    for line in &experiment.trials {
        let (place, covariates) = (&line.place, &line.covariates);
        let (state, why) = reason(line);
        let mut row = vec![
            place.number.to_string(),
            place.block.to_string(),
            place.attempt.to_string(),
            place.arm.clone(),
            place.load.clone(),
            line.started_at.clone(),
            state.to_owned(),
            why.to_owned(),
        ];
        row.extend(metrics.iter().map(|&metric| number(line.metrics.get(metric).copied())));
        row.extend([
            number(covariates.steal_share),
            number(covariates.foreign_cpus),
            number(covariates.wake_up_p99_ns.map(|ns| ns as f64)),
            number(covariates.generator_lag_p99_ns.map(|ns| ns as f64)),
            number(covariates.generator_busiest_share),
            number(covariates.error_share),
            number(covariates.throttled_share),
            number(covariates.clock_step_s),
            number(line.steady.from_s),
        ]);
        row.extend([line.verdict.clone().unwrap_or_default(), line.file.clone()]);
        figures.row(row);
    }
    figures
}

fn machine(experiment: &Experiment) -> String {
    let mut rows = host(&experiment.host);
    rows.extend(experiment.environment.iter().map(|(key, value)| (key.clone(), value.clone())));
    let left_out = rows.len().saturating_sub(FACTS_MAX);
    rows.truncate(FACTS_MAX);
    let rows = rows
        .into_iter()
        .map(|(key, value)| vec![Cell::words(key), Cell::words(short(&value)).class("mono")]);
    let table =
        Table { columns: vec!["what".to_owned(), "value".to_owned()], rows: rows.collect() };
    let mut out = String::from(
        "<p>What was known of the machine and of the programs when the experiment began.</p>",
    );
    let _ =
        write!(out, "<div class=\"scroll\">{}</div>", figure::rows(&table, "Machine and programs"));
    if left_out > 0 {
        let _ = write!(out, "<p class=\"note\">{left_out} more are in the record.</p>");
    }
    if !experiment.host.not_observable.is_empty() {
        out.push_str("<p>What this machine does not tell:</p><ul>");
        for what in experiment.host.not_observable.iter().take(FACTS_MAX) {
            let _ = write!(out, "<li>{}</li>", escaped(what));
        }
        out.push_str("</ul>");
    }
    out
}

fn host(host: &HostFacts) -> Vec<(String, String)> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    let rows = [
        ("machine", known(&host.name)),
        ("processor", known(&host.cpu_model)),
        ("processors", host.cpus.to_string()),
        ("memory", words::value(host.memory_bytes as f64, "bytes")),
        ("virtualised", host.virtualised.clone().unwrap_or_else(|| "no, or not told".to_owned())),
        ("operating system", known(&host.os)),
        ("kernel", host.kernel.clone()),
        ("congestion control", known(&host.congestion_control)),
    ];
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn short(text: &str) -> String {
    crate::report::svg::shortened(text, 2_000)
}

fn file(experiment: &Experiment) -> String {
    let text = &experiment.plan.file;
    let (shown, cut) = head_of(text);
    let mut out = format!(
        "<p>The file as it was run; saved as <code>{0}.toml</code> it can be run again.</p><div \
         class=\"source\"><button type=\"button\" class=\"save\" data-file=\"{0}.toml\" hidden>Save the \
         file</button><pre tabindex=\"0\">\n{1}</pre></div>",
        escaped(&experiment.plan.name),
        escaped(shown),
    );
    if cut {
        let _ = write!(
            out,
            "<p class=\"note\">The first {} of {}; the whole file is in the experiment's folder.</p>",
            words::value(shown.len() as f64, "bytes"),
            words::value(text.len() as f64, "bytes"),
        );
    }
    out
}

/// As much of a text as is shown, at the end of a letter.
fn head_of(text: &str) -> (&str, bool) {
    if text.len() <= TEXT_BYTES_MAX {
        return (text, false);
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], true)
}

fn again(experiment: &Experiment, raw: &dyn Raw) -> String {
    let mut out = format!(
        "<p>The same file, the same seed ({}) and so the same order of trials; it took {}{}.</p><pre \
         tabindex=\"0\">\n{}</pre>",
        experiment.plan.seed,
        words::length(experiment.duration_s),
        match experiment.resumed {
            0 => String::new(),
            1 => " and was taken up again once".to_owned(),
            times => format!(" and was taken up again {times} times"),
        },
        escaped(&words::shell(&command(experiment))),
    );
    let first = experiment.trials.iter().filter(|line| line.counts());
    let first = first.take(1).find_map(|line| raw.trial(&line.file));
    let commands = first.filter(|trial| !trial.commands.is_empty());
    if let Some(trial) = commands {
        let _ = writeln!(
            out,
            "<p>What it ran, in trial {} ({}):</p><pre tabindex=\"0\">",
            trial.place.number,
            escaped(&trial.place.arm)
        );
        for (role, command) in &trial.commands {
            let _ = writeln!(out, "# {}\n{}", escaped(role), escaped(&short(command)));
        }
        out.push_str("</pre>");
    }
    out
}
