//! The report in Markdown: result, comparisons, warnings, and the command to repeat the experiment.
//! It is short enough for a comment on a pull request; details are folded. It has no charts.

use std::fmt::Write as _;

use experiment::format;
use experiment::trial_counts::{LeftOutCounts, TrialStatus};
use record::experiment::{Comparison, Experiment};

use super::data::comparisons::{change, has_few_blocks, outcome};
use super::data::trials::has_several_loads;
use super::plot::shortened;
use super::repro_command::repro_command as command;
use super::text::experiment::{answer, experiment_headline, other_findings};
use super::unobservable::missing_observations;
use super::{TextTable, TrialRecords};

/// Maximum number of rows of a table: a comment on GitHub has at most 65,536 characters.
const ROWS_MAX: usize = 60;
/// Maximum number of characters of the experiment's file in the report.
const FILE_CHARS_MAX: usize = 12_000;
/// Maximum number of characters of one cell or name.
const CELL_CHARS_MAX: usize = 200;

pub(super) fn render(experiment: &Experiment, raw: &dyn TrialRecords) -> String {
    let mut out = format!("## {}\n\n", escaped_line(&experiment.plan.title));
    if experiment.partial {
        let _ = writeln!(
            out,
            "**Not finished.** {}\n",
            escaped_line(&format::capitalized(&experiment.stopped.text))
        );
    }
    let answer = answer(experiment);
    let _ = writeln!(out, "{}\n", escaped_line(&experiment_headline(experiment)));
    let [what, why, next] = [&answer.what, &answer.why, &answer.next].map(|text| escaped_line(text));
    let _ = writeln!(out, "**{what}** {why}\n\n{next}\n");
    let others: Vec<&String> = other_findings(experiment, &answer).collect();
    if !others.is_empty() {
        out.push_str("<details><summary>Other findings</summary>\n\n");
        for sentence in others {
            let _ = writeln!(out, "{}\n", escaped_line(sentence));
        }
        out.push_str("</details>\n\n");
    }
    write_warnings(&mut out, experiment);
    let grid = super::charts::text_table(experiment, raw);
    match &grid {
        Some(grid) => write_levels(&mut out, experiment, grid),
        None => write_comparisons(&mut out, experiment),
    }
    write_scalings(&mut out, experiment);
    write_arms(&mut out, experiment);
    if grid.is_none() {
        write_other_metrics(&mut out, experiment);
    }
    write_excluded_trials(&mut out, experiment);
    write_not_observable(&mut out, experiment, raw);
    write_repro_command(&mut out, experiment);
    out
}

fn write_comparisons(out: &mut String, experiment: &Experiment) {
    if let Some(metric) = experiment.plan.primary() {
        let _ = writeln!(out, "{} ({}):\n", escaped_line(&metric.title), format::better_direction(metric));
    }
    write_comparison_table(out, experiment, true);
}

/// Writes the results of one arm under the levels of its loads, and, folded, its A/A comparison.
fn write_levels(out: &mut String, experiment: &Experiment, grid: &TextTable) {
    for (index, row) in grid.rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|text| cell_text(text)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
        }
    }
    out.push('\n');
    if grid.rows_omitted > 0 {
        let _ = writeln!(out, "{} more are in the report.\n", grid.rows_omitted);
    }
    out.push_str("<details><summary>Noise: the arm against itself</summary>\n\n");
    write_comparisons(out, experiment);
    out.push_str("</details>\n\n");
}

fn write_scalings(out: &mut String, experiment: &Experiment) {
    for line in experiment.scalings.iter().filter(|line| !line.text.is_empty()).take(ROWS_MAX) {
        let _ = writeln!(out, "{}\n", escaped_line(&line.labelled_text()));
    }
}

fn write_other_metrics(out: &mut String, experiment: &Experiment) {
    if experiment.comparisons.iter().any(|comparison| !comparison.primary) {
        out.push_str("<details><summary>Other metrics</summary>\n\n");
        write_comparison_table(out, experiment, false);
        out.push_str("</details>\n\n");
    }
}

fn write_not_observable(out: &mut String, experiment: &Experiment, raw: &dyn TrialRecords) {
    let all = missing_observations(experiment, raw);
    if all.is_empty() {
        return;
    }
    out.push_str("<details><summary>Missing observations</summary>\n\n");
    for observation in all.iter().take(ROWS_MAX) {
        let text = shortened(&observation.text, CELL_CHARS_MAX * 2);
        let _ = writeln!(out, "- {} ({})", escaped_line(&text), format::count(observation.trials, "trial"));
    }
    out.push_str("\n</details>\n\n");
}

fn write_warnings(out: &mut String, experiment: &Experiment) {
    if experiment.warnings.is_empty() {
        return;
    }
    for warning in experiment.warnings.iter().take(ROWS_MAX) {
        let _ = writeln!(
            out,
            "> **Warning, {}:** {}\n>",
            escaped_line(&format::code_words(&warning.code)),
            escaped_line(&warning.text)
        );
    }
    out.push('\n');
}

/// Writes a table of the comparisons of the primary metric, or of those of all other metrics with a
/// column for the metric.
fn write_comparison_table(out: &mut String, experiment: &Experiment, primary: bool) {
    let rows: Vec<&Comparison> =
        experiment.comparisons.iter().filter(|comparison| comparison.primary == primary).collect();
    let (several, named) = (has_several_loads(&experiment.plan), !primary);
    let interval = format!("{} interval", format::bound_percent(experiment.plan.confidence));
    let mut heads = vec!["arm"];
    heads.extend(several.then_some("load"));
    heads.extend(named.then_some("metric"));
    heads.extend(["baseline", "outcome", "change", &interval, "p", "P(better)", "blocks"]);
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", " --- |".repeat(heads.len()));
    for comparison in rows.iter().take(ROWS_MAX) {
        let name =
            if comparison.noise { format!("{} (A/A)", comparison.baseline) } else { comparison.arm.clone() };
        let mut cells = vec![cell_text(&name)];
        cells.extend(several.then(|| cell_text(&comparison.load)));
        cells.extend(named.then(|| cell_text(&comparison.metric)));
        cells.push(cell_text(&comparison.baseline));
        let outcome = if comparison.noise { "noise" } else { outcome(experiment, comparison) };
        cells.push(if comparison.noise { outcome.to_owned() } else { format!("**{outcome}**") });
        let bound = if comparison.bound.is_some() { " (only a bound)" } else { "" };
        let ratio = change(experiment, comparison);
        cells.push(format!("{ratio}{bound}"));
        cells.push(comparison.interval.map_or_else(|| "–".to_owned(), format::ratio_interval));
        let p = comparison.p_adjusted.or(comparison.p).filter(|_| !has_few_blocks(comparison));
        cells.push(p.map_or_else(|| "–".to_owned(), format::probability));
        let better =
            comparison.better_fraction.filter(|_| !has_few_blocks(comparison)).map(format::better_fraction);
        cells.push(better.unwrap_or_else(|| "–".to_owned()));
        cells.push(comparison.pairs.len().to_string());
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    if rows.len() > ROWS_MAX {
        let _ = writeln!(out, "{} more are in the report.\n", rows.len() - ROWS_MAX);
    }
}

fn write_arms(out: &mut String, experiment: &Experiment) {
    out.push_str("<details><summary>Arms</summary>\n\n");
    for arm in experiment.plan.arms.iter().filter(|arm| arm.repeats.is_none()) {
        let _ = writeln!(out, "- **{}** {}", escaped_line(&arm.name), escaped_line(&arm.title));
        for (key, value) in arm.changes.iter().take(ROWS_MAX) {
            let _ = writeln!(out, "  - {} = {}", code(key), code(value));
        }
    }
    let host = &experiment.host;
    let _ = writeln!(
        out,
        "\nOn {}, {}, kernel {}; {}; weir {} ({}).\n\n</details>\n",
        escaped_line(host.cpu_model.as_deref().unwrap_or("unknown CPU model")),
        format::count(host.cpus as usize, "CPU"),
        escaped_line(&host.kernel),
        escaped_line(host.virtualised.as_deref().unwrap_or("virtualisation unknown")),
        escaped_line(&experiment.weir.version),
        escaped_line(&experiment.weir.commit),
    );
}

fn write_excluded_trials(out: &mut String, experiment: &Experiment) {
    let lines: Vec<_> =
        experiment.trials.iter().filter(|line| line.discarded.is_some() || line.failed.is_some()).collect();
    if lines.is_empty() {
        return;
    }
    let left_out = LeftOutCounts::count(&experiment.trials);
    let _ = writeln!(out, "<details><summary>Left out: {left_out}</summary>\n");
    for line in lines.iter().take(ROWS_MAX) {
        let why = line.failed.as_deref();
        let why = why.or_else(|| line.discarded.as_ref().map(|discarded| discarded.text.as_str()));
        let _ = writeln!(
            out,
            "- trial {} ({}, {}) {}: {}",
            line.position.number,
            escaped_line(&line.position.arm),
            escaped_line(&line.position.load),
            TrialStatus::from_line(line).as_str(),
            escaped_line(why.unwrap_or_default())
        );
    }
    out.push_str("\n</details>\n\n");
}

fn write_repro_command(out: &mut String, experiment: &Experiment) {
    let _ = writeln!(
        out,
        "<details><summary>Reproduce</summary>\n\n{}",
        fenced(&record::shell::quoted(&command(experiment)), "sh")
    );
    let file = shortened(&experiment.plan.file, FILE_CHARS_MAX);
    let _ = writeln!(
        out,
        "Seed {}. The file, {}:\n\n{}</details>",
        experiment.plan.seed,
        code(&format!("{}.toml", experiment.plan.name)),
        fenced(&file, "toml")
    );
}

/// Returns a text as a fenced code block. The fence is longer than any run of backticks in the text.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

/// Returns a text as inline code, in more backticks than it contains.
fn code(text: &str) -> String {
    let text = shortened(&text.replace(['\n', '\r'], " "), CELL_CHARS_MAX);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let padding = if longest > 0 { " " } else { "" };
    format!("{fence}{padding}{text}{padding}{fence}")
}

fn cell_text(text: &str) -> String {
    escaped_line(&shortened(text, CELL_CHARS_MAX))
}

/// Escapes a text for one line of Markdown, which may contain HTML. A zero-width space after `@` prevents
/// a mention, which would notify a user.
fn escaped_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\r' => out.push(' '),
            '@' => out.push_str("@\u{200b}"),
            '*' | '_' | '`' | '[' | ']' | '|' | '\\' | '~' | '#' => {
                out.push('\\');
                out.push(letter);
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{MARKUP_NAME, one_load, synthetic_experiment};

    #[test]
    fn it_begins_with_the_result_and_ends_with_the_repro_command() {
        let (experiment, raw) = synthetic_experiment();
        let text = render(&experiment, &raw);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("**jemalloc is faster"),
            at("> **Warning, noise floor:**"),
            at("| arm | load | baseline | outcome | change | 95 % interval | p | P(better) | blocks |"),
            at("<details><summary>Arms"),
            at("subject.env.LD_PRELOAD"),
            at("<details><summary>Other metrics"),
            at("<details><summary>Left out: 6 trials discarded, 3 failed</summary>"),
            at("weir lab run allocator.toml --set 'note=a b'"),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert!(text.len() < 65_536, "{}", text.len());
        assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
    }

    #[test]
    fn every_row_has_as_many_cells_as_its_head() {
        let mut one_arm = synthetic_experiment();
        one_arm.0.plan.arms.truncate(2);
        for (experiment, raw) in [synthetic_experiment(), one_load(), one_arm] {
            let text = render(&experiment, &raw);
            let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
            let cells = |line: &str| line.replace("\\|", "").matches('|').count();
            let mut head = 0;
            for row in rows {
                if row.starts_with("| arm") || head == 0 {
                    head = cells(row);
                }
                assert_eq!(cells(row), head, "{row}");
            }
        }
    }

    #[test]
    fn one_arm_under_levels_is_a_table_and_no_list_of_itself() {
        let (mut experiment, mut raw) = synthetic_experiment();
        experiment.plan.arms.truncate(2);
        raw.trials.values_mut().for_each(|trial| {
            trial.driver.program = "wrk".to_owned();
            trial.driver.notes = vec!["coordinated omission".to_owned()];
        });
        let text = render(&experiment, &raw);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("| connections | rate, mean | rate, best second | p50 |"),
            at("<details><summary>Noise"),
            at("| P(better) |"),
            at("three points are too few for a fit"),
            at("<details><summary>Missing observations"),
            at("- wrk: coordinated omission ("),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert!(!text.contains("Other metrics"), "{text}");
    }

    #[test]
    fn names_of_others_are_no_markup() {
        let (mut experiment, raw) = synthetic_experiment();
        experiment.plan.file = "```\n</details>".to_owned();
        let text = render(&experiment, &raw);
        assert!(!text.contains(MARKUP_NAME) && text.contains("&lt;script&gt;"), "{text}");
        assert!(text.contains("````toml"), "{text}");
        assert_eq!(escaped_line("a|b @me *x*\n"), "a\\|b @\u{200b}me \\*x\\* ");
        assert_eq!(code("a`b"), "`` a`b ``");
    }
}
