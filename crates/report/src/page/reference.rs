//! Reference sections: the trials with reasons why some do not count, the machine, the file, and
//! the command to repeat the experiment.

use experiment::format;
use experiment::trial_counts::TrialStatus;
use maud::{Markup, html};
use record::experiment::{Experiment, TrialSummary};
use record::facts::HostFacts;

use super::figure::{self, DataPlacement, preformatted, saved_text};
use super::{DataFile, PageSection};
use crate::TrialRecords;
use crate::charts::{ChartTable, ReportChart, TableCell};
use crate::data_table::{DataTable, Datum as _, ROWS_MAX, cells};
use crate::plot::shortened;
use crate::repro_command::repro_command;
use crate::unobservable::missing_observations;

/// Maximum number of trials in the table; the record has all of them.
const TRIALS_MAX: usize = 600;
/// Maximum bytes of the trials' data in the page: charts take precedence.
const DATA_BYTES_MAX: usize = 300_000;
/// Maximum number of metrics with a column in the table of trials; its data have all of them.
const METRICS_MAX: usize = 4;
/// Maximum bytes of a text that are shown: a file of this size was not written by hand.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of facts of the environment, and maximum length of one.
const FACTS_SHOWN_MAX: usize = 300;
const FACT_CHARS_MAX: usize = 2_000;

/// Returns the sections after the charts.
pub(super) fn sections(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    data_files: &mut Vec<DataFile>,
) -> Vec<PageSection> {
    let section = |anchor: &str, title: &str, body: Markup| PageSection {
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

fn trials_section(experiment: &Experiment, data_files: &mut Vec<DataFile>) -> Markup {
    let caption = "All trials in run order. A trial that does not count has a reason, and the trials of its \
                   block and load were run again.";
    let mut chart = ReportChart::new("all-trials", "All trials", caption, trial_data(experiment));
    if experiment.trials.len() > TRIALS_MAX {
        chart.notes.push(format!("{} of {} are shown.", TRIALS_MAX, experiment.trials.len()));
    }
    let chart = chart.table(trial_table(experiment));
    let text = chart.data.to_csv();
    let fits = text.len() <= DATA_BYTES_MAX;
    let name = figure::data_file_name(&experiment.plan.name, &chart);
    let placement = if fits { DataPlacement::Inline } else { DataPlacement::SeparateFile };
    let figure = figure::render_figure(&chart, placement, &name);
    if !fits || chart.data.len() > ROWS_MAX {
        data_files.push(DataFile { name, text });
    }
    let is_aside = |line: &&TrialSummary| line.discarded.is_some() || line.failed.is_some();
    let aside: Vec<&TrialSummary> = experiment.trials.iter().filter(is_aside).collect();
    html! {
        @if aside.is_empty() { p { "Every trial counts: no trial was discarded or failed." } }
        ul.aside {
            @for line in aside.iter().take(TRIALS_MAX) {
                @let (what, why) = exclusion_reason(line);
                @let at = &line.position;
                li {
                    "Trial " (at.number) " (" (at.arm) ", " (at.load) ", block " (at.block) ", attempt "
                    (at.attempt) ") " (what) ": " (why)
                }
            }
        }
        (figure)
    }
}

fn not_observable_section(experiment: &Experiment, raw: &dyn TrialRecords) -> Markup {
    let all = missing_observations(experiment, raw);
    if all.is_empty() {
        return html! { p { "No requested observation is missing." } };
    }
    html! {
        p {
            "Observations that the trials could not make, and figures that the load generator does not "
            "report, or reports in a way that needs an explanation."
        }
        ul {
            @for observation in all.iter().take(FACTS_SHOWN_MAX) {
                li { (shortened(&observation.text, FACT_CHARS_MAX)) " (" (format::count(observation.trials, "trial")) ")" }
            }
        }
    }
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
    let metrics = || experiment.plan.metrics.iter().map(|metric| metric.name.as_str());
    let data = DataTable::new("trial block attempt arm load started_at state why").with_columns(metrics());
    let data = data.with_columns(["steal_fraction", "foreign_cpus", "wake_up_p99_ns"]);
    let data = data.with_columns(["generator_lag_p99_ns", "generator_busiest_fraction", "error_fraction"]);
    let data = data.with_columns(["throttled_fraction", "clock_step_s", "steady_from_s"]);
    let mut data = data.with_columns(["verdict", "file"]);
    for line in &experiment.trials {
        let (at, of) = (&line.position, &line.covariates);
        let (state, why) = exclusion_reason(line);
        let mut row = cells(&[&at.number, &at.block, &at.attempt, &at.arm, &at.load]);
        row.extend(cells(&[&line.started_at, &state, &why]));
        row.extend(metrics().map(|metric| line.metrics.get(metric).text()));
        row.extend(cells(&[&of.steal_fraction, &of.foreign_cpus, &of.wake_up_p99_ns]));
        row.extend(cells(&[&of.generator_lag_p99_ns, &of.generator_busiest_fraction, &of.error_fraction]));
        row.extend(cells(&[&of.throttled_fraction, &of.clock_step_s, &line.steady.from_s]));
        row.extend(cells(&[&line.verdict, &line.file]));
        data.add_row(row);
    }
    data
}

fn machine_section(experiment: &Experiment) -> Markup {
    let mut rows = host_rows(&experiment.host);
    rows.extend(experiment.environment.iter().map(|(key, value)| (key.clone(), value.clone())));
    let left_out = rows.len().saturating_sub(FACTS_SHOWN_MAX);
    rows.truncate(FACTS_SHOWN_MAX);
    let row = |(key, value): (String, String)| {
        vec![TableCell::plain(key), TableCell::plain(shortened(&value, FACT_CHARS_MAX)).class("mono")]
    };
    let columns = vec!["fact".to_owned(), "value".to_owned()];
    let table = ChartTable { columns, rows: rows.into_iter().map(row).collect() };
    let missing = &experiment.host.not_observable;
    html! {
        p { "Facts about the machine and the programs at the start of the experiment." }
        div.scroll { (figure::render_table(&table, "Machine and programs")) }
        @if left_out > 0 { p.note { (left_out) " more are in the record." } }
        @if !missing.is_empty() {
            p { "Facts that this machine does not provide:" }
            ul {
                @for what in missing.iter().take(FACTS_SHOWN_MAX) { li { (what) } }
            }
        }
    }
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

fn file_section(experiment: &Experiment) -> Markup {
    let file = format!("{}.toml", experiment.plan.name);
    let text = &experiment.plan.file;
    let (shown, is_cut) = truncated(text);
    let bytes = |text: &str| format::value(text.len() as f64, "bytes");
    html! {
        p { "The file of this run. To run it again, save it as " code { (file) } "." }
        div.source { (saved_text("Save the file", &file, shown)) }
        @if is_cut {
            p.note {
                "The first " (bytes(shown)) " of " (bytes(text))
                "; the complete file is in the experiment's directory."
            }
        }
    }
}

/// Returns the shown part of a text, cut at a character boundary, and whether it was cut.
fn truncated(text: &str) -> (&str, bool) {
    if text.len() <= TEXT_BYTES_MAX {
        return (text, false);
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], true)
}

fn repro_section(experiment: &Experiment, raw: &dyn TrialRecords) -> Markup {
    let resumed = match experiment.resumed {
        0 => String::new(),
        1 => ", resumed once".to_owned(),
        times => format!(", resumed {times} times"),
    };
    let first = experiment.trials.iter().filter(|line| line.is_counted());
    let first = first.take(1).find_map(|line| raw.trial(&line.file));
    let first = first.filter(|trial| !trial.commands.is_empty());
    html! {
        p {
            "The same file and seed (" (experiment.plan.seed) ") give the same order of trials. Duration: "
            (format::duration_text(experiment.duration_s)) (resumed) "."
        }
        (preformatted(&record::shell::quoted(&repro_command(experiment))))
        @if let Some(trial) = first {
            @let commands = trial.commands.iter().map(|(role, command)| {
                format!("# {role}\n{}\n", shortened(command, FACT_CHARS_MAX))
            });
            p { "Commands of trial " (trial.position.number) " (" (trial.position.arm) "):" }
            (preformatted(&commands.collect::<String>()))
        }
    }
}
