//! Result of a search for the edge as Markdown, for reports and comments on changes. Reads only the record.

use record::capacity_search::{CapacitySearch, LevelOutcome};
use record::run::Answer;
use record::units::{format_duration_ns, format_rate};

use super::decision::decision_rows;
use super::edge::{answer, edge_headline};
use super::markdown::escape;

/// Formats a search as Markdown: rate and percentiles, the answer, the decision, the ladder.
pub fn search_markdown(search: &CapacitySearch) -> String {
    let mut text = format!("{}\n\n", escape(&edge_headline(search)));
    let Answer { what, why, next } = answer(search);
    text += &format!("**{}** {}\n\n{}\n\n", escape(&what), escape(&why), escape(&next));
    let rows = decision_rows(search);
    if !rows.is_empty() {
        text += "| Decision | |\n| --- | --- |\n";
    }
    for (label, row) in rows {
        text += &format!("| {label} | {} |\n", escape(&row));
    }
    let ladder: Vec<_> = search.trials.iter().filter(|trial| trial.purpose == "ladder").collect();
    if !ladder.is_empty() {
        text += "\n| Offered | Good responses | p50 | p99 | Outcome |\n| ---: | ---: | ---: | ---: | --- |\n";
    }
    for trial in ladder {
        let outcome = match trial.outcome {
            LevelOutcome::Held => "held",
            LevelOutcome::Missed => "**missed**",
            LevelOutcome::Undecided => "undecided",
        };
        text += &format!(
            "| {} | {} | {} | {} | {outcome} |\n",
            format_rate(trial.level),
            format_rate(trial.goodput_per_s()),
            format_duration_ns(trial.p50_ns),
            format_duration_ns(trial.p99_ns),
        );
    }
    text
}
