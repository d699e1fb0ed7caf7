//! The report in Markdown: what came of it, the comparisons, the warnings, how to do it again; short
//! enough for a comment of a pull request, with the rest folded away.
//! Not for charts.

use std::fmt::Write as _;

use record::experiment::{Comparison, Experiment};

use super::again::again as command;
use super::charts::{change, is_of_few, outcome, several_loads};
use super::unseen::unseen;
use super::{Grid, Raw};
use crate::tally::{Fate, LeftOut};
use crate::words;

/// Rows of a table at most: a comment has a bound of its own (65,536 letters at GitHub).
const ROWS_MAX: usize = 60;
/// Letters of the file that are repeated at most.
const FILE_LETTERS_MAX: usize = 12_000;
/// Letters of one cell or name at most.
const CELL_LETTERS_MAX: usize = 200;

/// The text.
#[must_use]
pub(super) fn text(experiment: &Experiment, raw: &dyn Raw) -> String {
    let mut out = format!("## {}\n\n", plain(&experiment.plan.title));
    if experiment.partial {
        let _ = writeln!(
            out,
            "**Not finished.** {}\n",
            plain(&words::capital(&experiment.stopped.text))
        );
    }
    let mut sentences = experiment.summary.iter();
    match sentences.next() {
        Some(first) => {
            let _ = writeln!(out, "**{}**\n", plain(first));
        }
        None => out.push_str("**There is no answer yet: no block is complete.**\n\n"),
    }
    for sentence in sentences {
        let _ = writeln!(out, "{}\n", plain(sentence));
    }
    warnings(&mut out, experiment);
    let grid = super::charts::grid(experiment, raw);
    match &grid {
        Some(grid) => levels(&mut out, experiment, grid),
        None => comparisons(&mut out, experiment),
    }
    scalings(&mut out, experiment);
    compared(&mut out, experiment);
    if grid.is_none() {
        others(&mut out, experiment);
    }
    aside(&mut out, experiment);
    not_observable(&mut out, experiment, raw);
    again(&mut out, experiment);
    out
}

/// The comparisons of the metric that decides.
fn comparisons(out: &mut String, experiment: &Experiment) {
    if let Some(metric) = experiment.plan.primary() {
        let _ = writeln!(out, "{} ({}):\n", plain(&metric.title), words::better(metric));
    }
    table(out, experiment, true);
}

/// One arm under the levels of its loads, and folded away how far it is from itself.
fn levels(out: &mut String, experiment: &Experiment, grid: &Grid) {
    for (index, row) in grid.rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
        }
    }
    out.push('\n');
    if grid.left_out > 0 {
        let _ = writeln!(out, "{} more are in the report.\n", grid.left_out);
    }
    out.push_str("<details><summary>Noise: the arm against itself</summary>\n\n");
    comparisons(out, experiment);
    out.push_str("</details>\n\n");
}

/// How it scales, and its knee, in words.
fn scalings(out: &mut String, experiment: &Experiment) {
    for line in experiment.scalings.iter().filter(|line| !line.text.is_empty()).take(ROWS_MAX) {
        let _ = writeln!(out, "{}\n", plain(&line.said()));
    }
}

/// The other metrics, folded away.
fn others(out: &mut String, experiment: &Experiment) {
    if experiment.comparisons.iter().any(|one| !one.primary) {
        out.push_str("<details><summary>Other metrics</summary>\n\n");
        table(out, experiment, false);
        out.push_str("</details>\n\n");
    }
}

fn not_observable(out: &mut String, experiment: &Experiment, raw: &dyn Raw) {
    let all = unseen(experiment, raw);
    if all.is_empty() {
        return;
    }
    out.push_str("<details><summary>What was not observable</summary>\n\n");
    for one in all.iter().take(ROWS_MAX) {
        let text = super::svg::shortened(&one.text, CELL_LETTERS_MAX * 2);
        let _ = writeln!(out, "- {} ({})", plain(&text), words::count(one.trials, "trial"));
    }
    out.push_str("\n</details>\n\n");
}

fn warnings(out: &mut String, experiment: &Experiment) {
    if experiment.warnings.is_empty() {
        return;
    }
    for warning in experiment.warnings.iter().take(ROWS_MAX) {
        let _ = writeln!(
            out,
            "> **Warning, {}:** {}\n>",
            plain(&words::code(&warning.code)),
            plain(&warning.text)
        );
    }
    out.push('\n');
}

/// A row for each comparison of the metric that decides, or of all others, which are named.
fn table(out: &mut String, experiment: &Experiment, primary: bool) {
    let rows: Vec<&Comparison> =
        experiment.comparisons.iter().filter(|one| one.primary == primary).collect();
    let (several, named) = (several_loads(&experiment.plan), !primary);
    let interval = format!("{} interval", words::bound(experiment.plan.confidence));
    let mut heads = vec!["arm"];
    heads.extend(several.then_some("load"));
    heads.extend(named.then_some("metric"));
    heads.extend(["against", "outcome", "change", &interval, "p", "P(better)", "blocks"]);
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", " --- |".repeat(heads.len()));
    for one in rows.iter().take(ROWS_MAX) {
        let name = if one.noise { format!("{} (A/A)", one.baseline) } else { one.arm.clone() };
        let mut cells = vec![cell(&name)];
        cells.extend(several.then(|| cell(&one.load)));
        cells.extend(named.then(|| cell(&one.metric)));
        cells.push(cell(&one.baseline));
        let outcome = if one.noise { "noise" } else { outcome(experiment, one) };
        cells.push(if one.noise { outcome.to_owned() } else { format!("**{outcome}**") });
        let bound = if one.bound.is_some() { " (only a bound)" } else { "" };
        let ratio = change(experiment, one);
        cells.push(format!("{ratio}{bound}"));
        cells.push(one.interval.map_or_else(|| "–".to_owned(), words::interval));
        let p = one.p_adjusted.or(one.p).filter(|_| !is_of_few(one));
        cells.push(p.map_or_else(|| "–".to_owned(), words::probability));
        let better = one.better_share.filter(|_| !is_of_few(one)).map(words::better_share);
        cells.push(better.unwrap_or_else(|| "–".to_owned()));
        cells.push(one.pairs.len().to_string());
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    if rows.len() > ROWS_MAX {
        let _ = writeln!(out, "{} more are in the report.\n", rows.len() - ROWS_MAX);
    }
}

fn compared(out: &mut String, experiment: &Experiment) {
    out.push_str("<details><summary>What was compared</summary>\n\n");
    for arm in experiment.plan.arms.iter().filter(|arm| arm.again.is_none()) {
        let _ = writeln!(out, "- **{}** {}", plain(&arm.name), plain(&arm.title));
        for (key, value) in arm.changes.iter().take(ROWS_MAX) {
            let _ = writeln!(out, "  - {} = {}", code(key), code(value));
        }
    }
    let host = &experiment.host;
    let _ = writeln!(
        out,
        "\nOn {}, {}, kernel {}; {}; weir {} ({}).\n\n</details>\n",
        plain(host.cpu_model.as_deref().unwrap_or("a processor that does not tell its model")),
        words::count(host.cpus as usize, "processor"),
        plain(&host.kernel),
        plain(host.virtualised.as_deref().unwrap_or("not known to be virtualised")),
        plain(&experiment.weir.version),
        plain(&experiment.weir.commit),
    );
}

fn aside(out: &mut String, experiment: &Experiment) {
    let lines: Vec<_> = experiment
        .trials
        .iter()
        .filter(|line| line.discarded.is_some() || line.failed.is_some())
        .collect();
    if lines.is_empty() {
        return;
    }
    let left_out = LeftOut::of(&experiment.trials);
    let _ = writeln!(out, "<details><summary>Left out: {left_out}</summary>\n");
    for line in lines.iter().take(ROWS_MAX) {
        let why = line.failed.as_deref();
        let why = why.or_else(|| line.discarded.as_ref().map(|discarded| discarded.text.as_str()));
        let _ = writeln!(
            out,
            "- trial {} ({}, {}) {}: {}",
            line.place.number,
            plain(&line.place.arm),
            plain(&line.place.load),
            Fate::of(line).word(),
            plain(why.unwrap_or_default())
        );
    }
    out.push_str("\n</details>\n\n");
}

fn again(out: &mut String, experiment: &Experiment) {
    let _ = writeln!(
        out,
        "<details><summary>Do it again</summary>\n\n{}",
        fenced(&words::shell(&command(experiment)), "sh")
    );
    let file = super::svg::shortened(&experiment.plan.file, FILE_LETTERS_MAX);
    let _ = writeln!(
        out,
        "Seed {}. The file, {}:\n\n{}</details>",
        experiment.plan.seed,
        code(&format!("{}.toml", experiment.plan.name)),
        fenced(&file, "toml")
    );
}

/// A text in a fence that it cannot end.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

/// A text as code in a line, in more backticks than it holds.
fn code(text: &str) -> String {
    let text = super::svg::shortened(&text.replace(['\n', '\r'], " "), CELL_LETTERS_MAX);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let room = if longest > 0 { " " } else { "" };
    format!("{fence}{room}{text}{room}{fence}")
}

/// A text in a table.
fn cell(text: &str) -> String {
    plain(&super::svg::shortened(text, CELL_LETTERS_MAX))
}

/// A text without any meaning to Markdown or HTML, in one line. `@` would call people.
fn plain(text: &str) -> String {
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
    use crate::report::sample::{NASTY, one_load, sample};

    #[test]
    fn it_begins_with_the_answer_and_ends_with_how_to_do_it_again() {
        let (experiment, raw) = sample();
        let text = text(&experiment, &raw);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("**jemalloc is faster"),
            at("> **Warning, noise floor:**"),
            at(
                "| arm | load | against | outcome | change | 95 % interval | p | P(better) | blocks |",
            ),
            at("<details><summary>What was compared"),
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
        let mut one_arm = sample();
        one_arm.0.plan.arms.truncate(2);
        for (experiment, raw) in [sample(), one_load(), one_arm] {
            let text = text(&experiment, &raw);
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
        let (mut experiment, mut raw) = sample();
        experiment.plan.arms.truncate(2);
        raw.trials.values_mut().for_each(|trial| {
            trial.driver.program = "wrk".to_owned();
            trial.driver.notes = vec!["coordinated omission".to_owned()];
        });
        let text = text(&experiment, &raw);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("| connections | rate, mean | rate, best second | p50 |"),
            at("<details><summary>Noise"),
            at("| P(better) |"),
            at("three points are too few for a fit"),
            at("<details><summary>What was not observable"),
            at("- wrk: coordinated omission ("),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert!(!text.contains("Other metrics"), "{text}");
    }

    #[test]
    fn names_of_others_are_no_markup() {
        let (mut experiment, raw) = sample();
        experiment.plan.file = "```\n</details>".to_owned();
        let text = text(&experiment, &raw);
        assert!(!text.contains(NASTY) && text.contains("&lt;script&gt;"), "{text}");
        assert!(text.contains("````toml"), "{text}");
        assert_eq!(plain("a|b @me *x*\n"), "a\\|b @\u{200b}me \\*x\\* ");
        assert_eq!(code("a`b"), "`` a`b ``");
    }
}
