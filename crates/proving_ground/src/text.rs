//! Texts of a self-test on a terminal.

use experiment::format::count;

use crate::cases::TestCase;
use crate::matrix::{NotInducible, SelfTest, matrix_text};
use crate::outcome::CaseOutcome;
use crate::reliability::reliability_text;

/// Formats the matrices, the reliability, and the result in one line.
pub fn result_text(result: &SelfTest) -> String {
    let early = if result.partial { "stopped early; " } else { "" };
    let part = result.part.as_ref().map(|part| format!(", part {part}")).unwrap_or_default();
    let prefix = result.load_prefix.as_ref().map(|prefix| format!(", loads by {prefix}")).unwrap_or_default();
    format!(
        "{}\n{}\n{}\n{}{}set {}{part}{prefix}; {early}took {:.0} s, seed {}: {}\n",
        matrix_text(&result.verdicts),
        matrix_text(&result.cases),
        reliability_text(&result.reliability),
        skipped_text(&result.not_inducible),
        counts_text(result),
        result.set,
        result.duration_s,
        result.seed,
        if result.passed { "passed" } else { "not passed" }
    )
}

fn counts_text(result: &SelfTest) -> String {
    let mut text = format!("{} wrong with high confidence", result.wrong_sure);
    if result.failed > 0 {
        let failed = count(result.failed as usize, "run");
        text.push_str(&format!("; {failed} failed, counted as incorrect"));
    }
    if let (runs @ 1.., both_count) = result.both {
        text.push_str(&format!("; of {runs} runs of two causes {both_count} reported both"));
    }
    text.push('\n');
    text
}

fn skipped_text(skipped: &[NotInducible]) -> String {
    let lines = skipped.iter().map(|case| format!("  {}: {}\n", case.name, case.why));
    match skipped.is_empty() {
        true => String::new(),
        false => format!("not supported here:\n{}\n", lines.collect::<String>()),
    }
}

/// Formats one line per case, and the reasons why others cannot run.
pub fn list(cases: &[&TestCase], skipped: &[NotInducible]) -> String {
    let mut text = String::new();
    for case in cases {
        let title = case.experiment().map(|experiment| experiment.title).unwrap_or_default();
        let part = case.part().map(|part| format!("{:12} ", part.name())).unwrap_or_default();
        text.push_str(&format!("{:24} {:32} {part}{title}\n", case.verdict, case.name));
    }
    format!("{text}{}", skipped_text(skipped))
}

/// Formats the outcome of one run in a line.
pub fn outcome_line(outcome: &CaseOutcome) -> String {
    let mark = match (outcome.is_right(), &outcome.reported) {
        (true, _) => "right ",
        (false, Some(_)) => "WRONG ",
        (false, None) => "FAILED",
    };
    let verdict_text = match (&outcome.reported, &outcome.error) {
        (Some(verdict), _) => {
            let confidence = outcome.confidence.as_deref().map(|level| format!(" ({level})"));
            format!("{verdict}{}", confidence.unwrap_or_default())
        }
        (None, why) => format!("failed: {}", why.clone().unwrap_or_default()),
    };
    format!("{mark} {}: {verdict_text}", outcome.case)
}
