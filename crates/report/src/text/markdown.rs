//! Result of a run as Markdown, for reports and comments on changes. Reads only the record.

use record::comparison::BaselineComparison;
use record::histogram::LatencySummary;
use record::run::{Answer, ObjectiveOutcome, Run};
use record::units::{format_byte_rate, format_duration_ns, format_rate};

use super::breakdown::{REQUEST_COLUMNS, STAGE_COLUMNS, request_rows, stage_rows};
use super::conclusions::{figures_text, outcome_text, reason_word};
use super::summary::format_plan;
use crate::run_comparison::{condition_text, figure_text};

pub fn markdown(run: &Run) -> String {
    let mut text = format!("{}: {}\n\n", target(run), format_plan(run));
    let Answer { what, why, next } = diagnose::answer(run);
    text += &format!("**{}** {}\n\n{}\n\n", escape(&what), escape(&why), escape(&next));
    text += "| Figure | Value |\n| --- | --- |\n";
    let mut row = |name: &str, value: String| text += &format!("| {} | {} |\n", escape(name), escape(&value));
    row("Validity", run.validity.verdict.as_str().to_owned());
    row("Good responses", format!("{} ({})", run.totals.good(), format_rate(run.goodput_per_s())));
    row("Bad responses", run.totals.bad().to_string());
    if let Some(offered) = run.rates.offered_per_s {
        row("Offered", format_rate(offered));
    }
    row("Received", format_byte_rate(run.rates.bytes_in_per_s));
    for (status, count) in &run.totals.status {
        row(&format!("Status {status}"), count.to_string());
    }
    for (kind, count) in &run.totals.errors {
        row(&format!("Error `{kind}`"), count.to_string());
    }
    for (code, error) in run.totals.parse_errors_by_count() {
        row(&format!("Parse error `{code}`"), format!("{}: {}", error.count, error.text));
    }
    if run.totals.dropped > 0 {
        row("Dropped", run.totals.dropped.to_string());
    }
    text += "\n| Latency | p50 | p90 | p99 | p99.9 | max | mean |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    text += &latency_row("response (from due)", &run.latency.last_byte.response);
    text += &latency_row("service (from send)", &run.latency.last_byte.service);
    text += &latency_row("first byte (from send)", &run.latency.first_byte.service);
    text += &parts_table(&STAGE_COLUMNS, stage_rows(run));
    text += &parts_table(&REQUEST_COLUMNS, request_rows(run));
    if !run.objectives.is_empty() {
        text += "\n| Objective | Result |\n| --- | --- |\n";
    }
    for objective in &run.objectives {
        let word = match objective.outcome() {
            ObjectiveOutcome::Met => "met",
            ObjectiveOutcome::Missed => "**missed**",
            ObjectiveOutcome::NotProven => "**not proven**",
        };
        let outcome = outcome_text(run, objective);
        text += &format!("| `{}` | {word}: {} |\n", escape(&objective.text), escape(&outcome));
    }
    text += &run.comparison.as_ref().map_or_else(String::new, comparison_tables);
    text + &validity_list(run)
}

/// Formats the reasons for the validity, and the figures that they leave.
fn validity_list(run: &Run) -> String {
    let mut text = if run.validity.reasons.is_empty() { String::new() } else { "\n".to_owned() };
    for reason in &run.validity.reasons {
        text += &format!(
            "- {} `{}`: {}\n",
            reason_word(reason.verdict),
            escape(&reason.code),
            escape(&reason.text)
        );
    }
    if let Some(figures) = figures_text(run) {
        text += &format!("- figures: {}\n", escape(&figures));
    }
    text
}

/// Formats the first request, and the number of the others.
fn target(run: &Run) -> String {
    let requests = run.plan["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let target = requests.first().map_or_else(String::new, |first| {
        let part = |name: &str| first[name].as_str().unwrap_or("?").to_owned();
        format!("{} {}", part("method"), part("url"))
    });
    let more = match requests.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!("**`{}`**{more}", escape(&target.replace('`', "'")))
}

fn comparison_tables(comparison: &BaselineComparison) -> String {
    let name = comparison.baseline.replace('`', "'");
    let mut text = format!("\n| Compared with `{}` | Change |\n| --- | --- |\n", escape(&name));
    for figure in &comparison.figures {
        text += &format!("| {} | {} |\n", escape(&figure.figure), escape(&figure_text(figure)));
    }
    if !comparison.conditions.is_empty() {
        text += "\n| Regression | Decision |\n| --- | --- |\n";
    }
    for condition in &comparison.conditions {
        let outcome = condition_text(comparison, condition);
        text += &format!("| `{}` | {} |\n", escape(&condition.text), escape(&outcome));
    }
    if !comparison.plan_differences.is_empty() {
        text += &format!("\nThe loads differ in: {}.\n", escape(&comparison.plan_differences.join(", ")));
    }
    text
}

fn latency_row(name: &str, summary: &LatencySummary) -> String {
    let LatencySummary { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, mean_ns, .. } = *summary;
    let times = [p50_ns, p90_ns, p99_ns, p999_ns, max_ns, mean_ns as u64];
    let times = times.map(|ns| if summary.count == 0 { "-".to_owned() } else { format_duration_ns(ns) });
    format!("| {name} | {} |\n", times.join(" | "))
}

/// Formats the results of the stages or the requests; empty without any.
fn parts_table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n| {} |\n| --- |{}\n", columns.join(" | "), " ---: |".repeat(columns.len() - 1));
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| escape(cell)).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// Escapes text for a cell of a table: it may contain what a server, an agent or a file says. Controls and line ends
/// become spaces, and nothing begins a tag or a link.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        match letter {
            '|' => escaped.push_str("\\|"),
            '<' if next.is_some_and(|next| next.is_ascii_alphabetic() || "/!?".contains(next)) => {
                escaped.push_str("&lt;");
            }
            ']' if matches!(next, Some('(' | '[')) => escaped.push_str("\\]"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_stay_in_their_cell() {
        let escaped =
            escape("a|b\n# H1 \u{1b}[31m <img onerror=x> </td> ![x](http://h/) p99<5ms a[0] `weir edge`");
        assert_eq!(
            escaped,
            "a\\|b # H1  [31m &lt;img onerror=x> &lt;/td> ![x\\](http://h/) p99<5ms a[0] `weir edge`"
        );
    }
}
