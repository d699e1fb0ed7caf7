//! Reference sections: the trials with reasons why some do not count, the machine, the file, and
//! the command to repeat the experiment.

use std::fmt::Write as _;

use experiment::format;
use experiment::trial_counts::TrialStatus;
use record::experiment::{Experiment, TrialSummary};
use record::facts::HostFacts;

use super::figure::{self, DataPlacement};
use super::{DataFile, PageSection};
use crate::TrialRecords;
use crate::charts::{ChartTable, ReportChart, TableCell};
use crate::data_table::{DataTable, ROWS_MAX, number};
use crate::repro_command::repro_command as command;
use crate::svg::escaped;
use crate::unobservable::missing_observations;

/// Maximum number of trials in the table; the record has all of them.
const TRIALS_MAX: usize = 600;
/// Maximum bytes of the trials' data in the page: charts take precedence.
const DATA_BYTES_MAX: usize = 300_000;
/// Maximum number of metrics with a column in the table of trials; its data have all of them.
const METRICS_MAX: usize = 4;
/// Maximum bytes of a text that are shown: a file of this size was not written by hand.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of facts of the environment.
const FACTS_SHOWN_MAX: usize = 300;

/// Returns the sections after the charts.
#[must_use]
pub(super) fn sections(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    data_files: &mut Vec<DataFile>,
) -> Vec<PageSection> {
    let section = |anchor: &str, title: &str, body: String| PageSection {
        anchor: anchor.to_owned(),
        title: title.to_owned(),
        body,
    };
    vec![
        section("trials", "Trials", trials_section(experiment, data_files)),
        section("not-observable", "Missing observations", not_observable_section(experiment, raw)),
        section("machine", "Machine and programs", machine_section(experiment)),
        section("file", "Experiment file", file_section(experiment)),
        section("reproduce", "Reproduce", repro_section(experiment, raw)),
    ]
}

fn trials_section(experiment: &Experiment, data_files: &mut Vec<DataFile>) -> String {
    let mut out = String::new();
    let aside: Vec<&TrialSummary> =
        experiment.trials.iter().filter(|line| line.discarded.is_some() || line.failed.is_some()).collect();
    if aside.is_empty() {
        out.push_str("<p>Every trial counts: no trial was discarded or failed.</p>");
    }
    out.push_str("<ul class=\"aside\">");
    for line in aside.iter().take(TRIALS_MAX) {
        let (what, why) = exclusion_reason(line);
        let position = &line.position;
        let _ = write!(
            out,
            "<li>Trial {} ({}, {}, block {}, attempt {}) {what}: {}</li>",
            position.number,
            escaped(&position.arm),
            escaped(&position.load),
            position.block,
            position.attempt,
            escaped(why),
        );
    }
    out.push_str("</ul>");
    let caption = "All trials in run order. A trial that does not count has a reason, and the trials of its \
                   block and load were run again.";
    let mut chart = ReportChart::new("all-trials", "All trials", caption, trial_data(experiment));
    if experiment.trials.len() > TRIALS_MAX {
        let note = format!("{} of {} are shown.", TRIALS_MAX, experiment.trials.len());
        chart.notes.push(note);
    }
    let chart = chart.table(trial_table(experiment));
    let text = chart.data.to_csv();
    let fits = text.len() <= DATA_BYTES_MAX;
    let name = figure::data_file_name(&experiment.plan.name, &chart);
    let placement = if fits { DataPlacement::Inline } else { DataPlacement::SeparateFile };
    out.push_str(&figure::render_figure(&chart, placement, &name));
    if !fits || chart.data.len() > ROWS_MAX {
        data_files.push(DataFile { name, text });
    }
    out
}

fn not_observable_section(experiment: &Experiment, raw: &dyn TrialRecords) -> String {
    let all = missing_observations(experiment, raw);
    if all.is_empty() {
        return "<p>No requested observation is missing.</p>".to_owned();
    }
    let mut out = String::from(
        "<p>Observations that the trials could not make, and figures that the load generator does not \
         report, or reports in a way that needs an explanation.</p><ul>",
    );
    for one in all.iter().take(FACTS_SHOWN_MAX) {
        let trials = format::count(one.trials, "trial");
        let _ = write!(out, "<li>{} ({trials})</li>", escaped(&shortened_text(&one.text)));
    }
    out.push_str("</ul>");
    out
}

/// Returns the reason why a trial does not count.
fn exclusion_reason(line: &TrialSummary) -> (&'static str, &str) {
    let fate = TrialStatus::from_line(line);
    let reported = line.failed.as_deref();
    let reported = reported.or_else(|| line.discarded.as_ref().map(|why| why.text.as_str()));
    let text = match fate {
        TrialStatus::Pilot => "measures the length of the warm-up",
        TrialStatus::Probe => "counts calls, which slows down the subject",
        _ => reported.unwrap_or_default(),
    };
    (fate.as_str(), text)
}

fn trial_table(experiment: &Experiment) -> ChartTable {
    let metrics: Vec<_> = experiment.plan.metrics.iter().take(METRICS_MAX).collect();
    let mut columns: Vec<String> = ["trial", "block", "arm", "load", "state"].map(str::to_owned).to_vec();
    columns.extend(metrics.iter().map(|metric| metric.title.clone()));
    columns.extend(["steal", "other processes, CPUs", "wakeup latency p99", "limited by"].map(str::to_owned));
    let mut table = ChartTable { columns, rows: Vec::new() };
    for line in experiment.trials.iter().take(TRIALS_MAX) {
        let position = &line.position;
        let suffix =
            if position.attempt > 1 { format!(", attempt {}", position.attempt) } else { String::new() };
        let (what, _) = exclusion_reason(line);
        let mut row = vec![
            TableCell::figure(Some(position.number.to_string())),
            TableCell::plain(format!("{}{suffix}", position.block)),
            TableCell::plain(position.arm.clone()),
            TableCell::plain(position.load.clone()),
            if what == "counts" { TableCell::plain(what) } else { TableCell::plain(what).class("bad") },
        ];
        let figure =
            |value: Option<f64>, unit: &str| TableCell::figure(value.map(|value| format::value(value, unit)));
        for metric in &metrics {
            row.push(figure(line.metrics.get(&metric.name).copied(), &metric.unit));
        }
        let covariates = &line.covariates;
        row.push(figure(covariates.steal_fraction, "fraction"));
        row.push(figure(covariates.foreign_cpus, "cpus"));
        row.push(figure(covariates.wake_up_p99_ns.map(|ns| ns as f64), "ns"));
        row.push(TableCell::plain(format::code_words(line.verdict.as_deref().unwrap_or("–"))));
        table.rows.push(row);
    }
    table
}

fn trial_data(experiment: &Experiment) -> DataTable {
    let mut columns = vec!["trial", "block", "attempt", "arm", "load", "started_at", "state", "why"];
    let metrics: Vec<&str> = experiment.plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
    columns.extend(&metrics);
    columns.extend(["steal_fraction", "foreign_cpus", "wake_up_p99_ns", "generator_lag_p99_ns"]);
    columns.extend(["generator_busiest_fraction", "error_fraction", "throttled_fraction", "clock_step_s"]);
    columns.extend(["steady_from_s", "verdict", "file"]);
    let mut data = DataTable::new(&columns);
    for line in &experiment.trials {
        let (position, covariates) = (&line.position, &line.covariates);
        let (state, why) = exclusion_reason(line);
        let mut row = vec![
            position.number.to_string(),
            position.block.to_string(),
            position.attempt.to_string(),
            position.arm.clone(),
            position.load.clone(),
            line.started_at.clone(),
            state.to_owned(),
            why.to_owned(),
        ];
        row.extend(metrics.iter().map(|&metric| number(line.metrics.get(metric).copied())));
        row.extend([
            number(covariates.steal_fraction),
            number(covariates.foreign_cpus),
            number(covariates.wake_up_p99_ns.map(|ns| ns as f64)),
            number(covariates.generator_lag_p99_ns.map(|ns| ns as f64)),
            number(covariates.generator_busiest_fraction),
            number(covariates.error_fraction),
            number(covariates.throttled_fraction),
            number(covariates.clock_step_s),
            number(line.steady.from_s),
        ]);
        row.extend([line.verdict.clone().unwrap_or_default(), line.file.clone()]);
        data.add_row(row);
    }
    data
}

fn machine_section(experiment: &Experiment) -> String {
    let mut rows = host_rows(&experiment.host);
    rows.extend(experiment.environment.iter().map(|(key, value)| (key.clone(), value.clone())));
    let left_out = rows.len().saturating_sub(FACTS_SHOWN_MAX);
    rows.truncate(FACTS_SHOWN_MAX);
    let rows = rows.into_iter().map(|(key, value)| {
        vec![TableCell::plain(key), TableCell::plain(shortened_text(&value)).class("mono")]
    });
    let table = ChartTable { columns: vec!["fact".to_owned(), "value".to_owned()], rows: rows.collect() };
    let mut out =
        String::from("<p>Facts about the machine and the programs at the start of the experiment.</p>");
    let _ =
        write!(out, "<div class=\"scroll\">{}</div>", figure::render_table(&table, "Machine and programs"));
    if left_out > 0 {
        let _ = write!(out, "<p class=\"note\">{left_out} more are in the record.</p>");
    }
    if !experiment.host.not_observable.is_empty() {
        out.push_str("<p>Facts that this machine does not provide:</p><ul>");
        for what in experiment.host.not_observable.iter().take(FACTS_SHOWN_MAX) {
            let _ = write!(out, "<li>{}</li>", escaped(what));
        }
        out.push_str("</ul>");
    }
    out
}

fn host_rows(host: &HostFacts) -> Vec<(String, String)> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let rows = [
        ("machine", known(&host.name)),
        ("CPU model", known(&host.cpu_model)),
        ("CPUs", host.cpus.to_string()),
        ("memory", format::value(host.memory_bytes as f64, "bytes")),
        ("virtualised", host.virtualised.clone().unwrap_or_else(|| "no, or unknown".to_owned())),
        ("operating system", known(&host.os)),
        ("kernel", host.kernel.clone()),
        ("congestion control", known(&host.congestion_control)),
    ];
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn shortened_text(text: &str) -> String {
    crate::svg::shortened(text, 2_000)
}

fn file_section(experiment: &Experiment) -> String {
    let text = &experiment.plan.file;
    let (shown, cut) = truncated(text);
    let mut out = format!(
        "<p>The file of this run. To run it again, save it as <code>{0}.toml</code>.</p><div \
         class=\"source\"><button type=\"button\" class=\"save\" data-file=\"{0}.toml\" hidden>Save the \
         file</button><pre tabindex=\"0\">\n{1}</pre></div>",
        escaped(&experiment.plan.name),
        escaped(shown),
    );
    if cut {
        let _ = write!(
            out,
            "<p class=\"note\">The first {} of {}; the complete file is in the experiment's directory.</p>",
            format::value(shown.len() as f64, "bytes"),
            format::value(text.len() as f64, "bytes"),
        );
    }
    out
}

/// Returns the shown part of a text, cut at a character boundary, and whether it was cut.
fn truncated(text: &str) -> (&str, bool) {
    if text.len() <= TEXT_BYTES_MAX {
        return (text, false);
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], true)
}

fn repro_section(experiment: &Experiment, raw: &dyn TrialRecords) -> String {
    let mut out = format!(
        "<p>The same file and seed ({}) give the same order of trials. Duration: {}{}.</p><pre \
         tabindex=\"0\">\n{}</pre>",
        experiment.plan.seed,
        format::duration_text(experiment.duration_s),
        match experiment.resumed {
            0 => String::new(),
            1 => ", resumed once".to_owned(),
            times => format!(", resumed {times} times"),
        },
        escaped(&format::shell_quoted(&command(experiment))),
    );
    let first = experiment.trials.iter().filter(|line| line.is_counted());
    let first = first.take(1).find_map(|line| raw.trial(&line.file));
    let commands = first.filter(|trial| !trial.commands.is_empty());
    if let Some(trial) = commands {
        let _ = writeln!(
            out,
            "<p>Commands of trial {} ({}):</p><pre tabindex=\"0\">",
            trial.position.number,
            escaped(&trial.position.arm)
        );
        for (role, command) in &trial.commands {
            let _ = writeln!(out, "# {}\n{}", escaped(role), escaped(&shortened_text(command)));
        }
        out.push_str("</pre>");
    }
    out
}
