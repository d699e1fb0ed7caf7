//! Content of a live screen of a machine, as data: lines in sections, and alerts on lines, each with
//! one sentence for its reason.
//!
//! Pure: an [`MachineObservation`] goes in, a [`Screen`] comes out. The layout is left to the caller. An alert
//! reports an unusual figure; it does not name the limit of a run.

mod measurements;
mod places;
mod rules;
mod screen;
mod section_lines;

#[cfg(test)]
mod tests;

use record::observed::MachineObservation;

use places::Places;
use rules::{Finding, evaluate_rules};

pub use rules::{AlertRule, RULES};
pub use screen::{BarPart, Screen, ScreenCell, ScreenLine, ScreenSection, Severity};

/// Lengths of the recent past that a screen uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreenWindows {
    /// Length of the last samples whose means are shown, in seconds; at least one sample.
    pub display_s: f64,
    pub rule_s: f64,
}

/// A live screen: figures of the last sample, rules over 10 s.
pub const LIVE_WINDOWS: ScreenWindows = ScreenWindows { display_s: 1.0, rule_s: 10.0 };

/// Builds the screen from the observation so far. Empty sections are left out.
pub fn screen(observed: &MachineObservation, windows: ScreenWindows) -> Screen {
    let findings = evaluate_rules(&Places::over_last(observed, windows.rule_s));
    let mut lines = now_lines(&findings, windows.rule_s, observed);
    lines.extend(section_lines::all_lines(&Places::over_last(observed, windows.display_s)));
    for finding in findings.iter().rev() {
        let matches_line =
            |line: &&mut ScreenLine| line.section == finding.section && line.label == finding.label;
        for line in lines.iter_mut().filter(matches_line) {
            // The list begins with the worst finding, so that it is written last.
            line.severity = finding.rule.severity;
            line.reason = Some(finding.sentence.clone());
        }
    }
    let severity = findings.iter().map(|finding| finding.rule.severity).max().unwrap_or_default();
    Screen { lines, severity }
}

/// Returns the lines of the top section.
fn now_lines(findings: &[Finding], rule_s: f64, observed: &MachineObservation) -> Vec<ScreenLine> {
    let observed_s: f64 = observed.samples.iter().map(|sample| sample.length_s).sum();
    if observed.samples.is_empty() {
        let cells = vec![ScreenCell::new("", "waiting for the first sample")];
        return vec![ScreenLine::new(ScreenSection::Now, "", cells)];
    }
    if findings.is_empty() {
        let observed_s = observed_s.min(rule_s);
        let cells = vec![ScreenCell::new("", format!("no alerts in the last {observed_s:.0} s"))];
        return vec![ScreenLine::new(ScreenSection::Now, "calm", cells)];
    }
    let mut lines: Vec<ScreenLine> = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        // A finding about several lines is reported for the worst of them, with the names of the
        // others.
        let has_same_rule = |other: &&Finding| other.rule == finding.rule;
        if findings[..index].iter().any(|other| has_same_rule(&other)) {
            continue;
        }
        let others: Vec<&str> =
            findings[index + 1..].iter().filter(has_same_rule).map(|other| other.label.as_str()).collect();
        let text = format!("{}{}", finding.sentence, others_text(&others));
        let mut line =
            ScreenLine::new(ScreenSection::Now, finding.label.clone(), vec![ScreenCell::new("", text)]);
        line.severity = finding.rule.severity;
        line.reason = Some(format!("{}; {}", finding.rule.description, finding.rule.source));
        lines.push(line);
    }
    lines
}

fn others_text(others: &[&str]) -> String {
    /// Maximum number of names in the list; the rest is counted.
    const NAMES_MAX: usize = 3;
    match others.len() {
        0 => String::new(),
        few if few <= NAMES_MAX => format!(" Also: {}.", others.join(", ")),
        many => format!(" Also: {} and {} more.", others[..NAMES_MAX].join(", "), many - NAMES_MAX),
    }
}
