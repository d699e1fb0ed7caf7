//! Text of `weir tune`: findings about settings and lines, and the plan of a change.

use record::sorted::sort_by_key;

use crate::text::answer::format_answer;
use crate::text::layout::{page_width, wrap};
use crate::text::table::table;
use record::run::Answer;
use record::units::format_plural;
use tune::ablation::{AblationReport, SettingEffect};
use tune::apply::ApplyPlan;
use tune::journal::Target;
use tune::report::{Action, CheckReport, LineFinding, SettingFinding};
use tune::setting::{Assessment, Scope};

/// Maximum number of findings that an answer names.
const NAMED_MAX: usize = 3;

/// Formats the settings of this machine: the answer, those to change, those to consider, and a count of the others;
/// with `all`, the others too.
pub fn format_settings(report: &CheckReport, all: bool) -> String {
    let memory_gib = report.memory_bytes as f64 / (1_u64 << 30) as f64;
    let role = report.role.name();
    let with = |action: Action| report.settings.iter().filter(move |finding| finding.action == action);
    let change: Vec<&SettingFinding> = with(Action::Change).collect();
    let mut text = format_answer(&settings_answer(report, &change));
    text.push_str(&format!("\nkernel {}, {memory_gib:.1} GiB, role {role}\n", report.kernel));
    section(&mut text, "Change", change.into_iter());
    section(
        &mut text,
        "Consider (depends on the load: measure it with weir lab run)",
        with(Action::Consider),
    );
    if all {
        let program = |finding: &&SettingFinding| finding.scope == Scope::Application;
        section(&mut text, "Keep", with(Action::Keep));
        section(&mut text, "Not in this kernel, or not set", with(Action::Absent));
        section(&mut text, "Options of programs", with(Action::NotObservable).filter(program));
    }
    let hidden = with(Action::NotObservable).filter(|finding| finding.scope != Scope::Application);
    let hidden: Vec<&SettingFinding> = hidden.collect();
    if !hidden.is_empty() {
        text.push_str("\nNot observable here\n");
        for finding in hidden {
            push_wrapped(&mut text, 2, &format!("{}: {}", full_name(finding), finding.reason));
        }
    }
    let kept = with(Action::Keep).count();
    let (change, consider) = (report.findings, with(Action::Consider).count());
    text.push_str(&format!("\n{change} to change, {consider} to consider, {kept} to keep"));
    text.push_str(if all { "\n" } else { " (--all lists everything)\n" });
    text
}

/// Returns the answer for this machine: the settings to change, the reason of the first, and the command.
fn settings_answer(report: &CheckReport, change: &[&SettingFinding]) -> Answer {
    let role = report.role.name();
    let Some(first) = change.first() else {
        return Answer {
            what: format!("Nothing to change: no setting of this machine holds a {role} back."),
            why: "Each value is harmless, and as recommended where the recommendation has no condition."
                .to_owned(),
            next: "Measure what is left with `weir load` or `weir edge`: their answer names the limit."
                .to_owned(),
        };
    };
    let value = |finding: &SettingFinding| match (&finding.value, &finding.wanted) {
        (Some(value), Some(wanted)) => format!("{} {value} → {wanted}", full_name(finding)),
        _ => full_name(finding),
    };
    let settings = format_plural(change.len() as u64, "setting");
    let is_written = |finding: &&&SettingFinding| {
        let setting = tune::catalogue::find_setting(&finding.name);
        finding.wanted.is_some() && setting.is_some_and(tune::setting::Setting::is_writable)
    };
    let quoted = |text: String| if text.contains(' ') { format!("'{text}'") } else { text };
    let words = change
        .iter()
        .filter(is_written)
        .filter_map(|finding| Some(quoted(format!("{}={}", full_name(finding), finding.wanted.as_ref()?))));
    let words: Vec<String> = words.collect();
    let by_hand: Vec<String> =
        change.iter().filter(|finding| !is_written(finding)).map(|finding| full_name(finding)).collect();
    let mut next = String::new();
    if !words.is_empty() {
        next = format!(
            "`weir tune apply --host --for 10m {}` tries them, and restores the old values after 10 minutes.",
            words.join(" ")
        );
    }
    if !by_hand.is_empty() {
        next.push_str(&format!(" By hand: {}.", by_hand.join(", ")));
    }
    Answer {
        what: format!(
            "Change {settings} of this machine for a {role}: {}.",
            listed(change, |finding| value(finding))
        ),
        why: format!("{}: {}.", full_name(first), first.reason),
        next: next.trim_start().to_owned(),
    }
}

/// Joins the first entries, and counts the others.
fn listed<T>(entries: &[T], text: impl Fn(&T) -> String) -> String {
    let named: Vec<String> = entries.iter().take(NAMED_MAX).map(text).collect();
    match entries.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Adds a text, broken into lines of the page with an indent; further lines have two columns more.
fn push_wrapped(text: &mut String, indent: usize, paragraph: &str) {
    let width = page_width().saturating_sub(indent + 2);
    for (at, line) in wrap(paragraph, width).iter().enumerate() {
        let margin = indent + if at == 0 { 0 } else { 2 };
        text.push_str(&format!("{:margin$}{line}\n", ""));
    }
}

fn section<'a>(text: &mut String, title: &str, findings: impl Iterator<Item = &'a SettingFinding>) {
    let mut findings = findings.peekable();
    if findings.peek().is_none() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for finding in findings {
        let unit = if finding.unit.is_empty() { String::new() } else { format!(" {}", finding.unit) };
        let value = match (&finding.value, &finding.wanted) {
            (Some(value), Some(wanted)) if matches!(finding.action, Action::Change | Action::Consider) => {
                format!(": {value} → {wanted}{unit}")
            }
            (Some(value), _) => format!(": {value}{unit}"),
            (None, _) => String::new(),
        };
        let set_by =
            finding.set_by.as_ref().map_or_else(String::new, |location| format!(" (set by {location})"));
        push_wrapped(text, 2, &format!("{}{value}{set_by}", full_name(finding)));
        let reason = if finding.reason.is_empty() || finding.action == Action::NotObservable {
            &finding.effect
        } else {
            &finding.reason
        };
        let (certainty, source) = (finding.certainty.name(), &finding.source);
        push_wrapped(text, 4, &format!("{reason} ({certainty}; {source})"));
        if matches!(finding.action, Action::Change | Action::Consider) && !finding.risk.is_empty() {
            push_wrapped(text, 4, &format!("risk: {}", finding.risk));
        }
    }
}

fn full_name(finding: &SettingFinding) -> String {
    match &finding.interface {
        Some(interface) => format!("{}@{interface}", finding.name),
        None => finding.name.clone(),
    }
}

/// Formats the lines of files: the answer, the lines to remove or correct, then the others, one verdict a line, as a
/// compiler does.
pub fn format_lines(report: &CheckReport) -> String {
    let (findings, others): (Vec<&LineFinding>, Vec<&LineFinding>) =
        report.lines.iter().partition(|line| line.is_finding);
    let mut text = format_answer(&lines_answer(report, &findings));
    for (title, lines) in [("Remove or correct", &findings), ("The other lines", &others)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}\n"));
        }
        lines.iter().for_each(|line| push_line(&mut text, line));
    }
    let verdicts = [
        Assessment::Recommend,
        Assessment::Conditional,
        Assessment::Obsolete,
        Assessment::Harmful,
        Assessment::Invalid,
    ];
    let counts = verdicts.iter().filter_map(|verdict| {
        let count = report.lines.iter().filter(|line| line.verdict == *verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    let counts: Vec<String> = counts.collect();
    let (lines, findings) = (report.lines.len(), report.findings);
    let counts = if counts.is_empty() { "no setting".to_owned() } else { counts.join(", ") };
    text.push_str(&format!(
        "\n{}: {counts}; {findings} to remove or correct\n",
        format_plural(lines as u64, "line")
    ));
    if !report.is_tried && !report.lines.is_empty() {
        push_wrapped(
            &mut text,
            0,
            "as root, weir also tries the values of network settings in a new network namespace",
        );
    }
    text
}

fn push_line(text: &mut String, line: &LineFinding) {
    let value = if line.value.is_empty() { String::new() } else { format!(" = {}", line.value) };
    let limit = line.limit.as_ref().map_or_else(String::new, |limit| format!(" ({})", limit.text()));
    let (place, verdict) = (location(line), line.verdict.name());
    push_wrapped(text, 0, format!("{place}: {verdict}: {}{limit}{value}", line.name).trim_end());
    for (at, reason) in line.reasons.iter().enumerate() {
        let certainty = if at == 0 { format!(" ({})", line.certainty.name()) } else { String::new() };
        push_wrapped(text, 4, &format!("{reason}{certainty}"));
    }
    if let Some(change) = &line.change {
        push_wrapped(text, 4, change);
    }
}

fn location(line: &LineFinding) -> String {
    if line.line == 0 { line.file.clone() } else { format!("{}:{}", line.file, line.line) }
}

/// Returns the answer for files: the number of faults, the first ones with their reasons, and what to do.
fn lines_answer(report: &CheckReport, findings: &[&LineFinding]) -> Answer {
    let lines = format_plural(report.lines.len() as u64, "line");
    let changes = report
        .lines
        .iter()
        .filter(|line| line.change.as_ref().is_some_and(|change| !change.ends_with(": no change")));
    let changes = match changes.count() {
        0 => "none of the lines changes this machine".to_owned(),
        1 => "1 line changes a value of this machine".to_owned(),
        many => format!("{many} lines change a value of this machine"),
    };
    let count = |is_kind: fn(&LineFinding) -> bool| findings.iter().filter(|line| is_kind(line)).count();
    let kinds = [
        (count(|line| line.verdict == Assessment::Invalid), "invalid"),
        (count(|line| line.verdict == Assessment::Harmful), "harmful"),
        (count(|line| line.verdict < Assessment::Harmful), "without the effect that it seems to have"),
    ];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
    let kinds: Vec<String> = kinds.collect();
    // A harmful line that the kernel takes does more damage than one that it rejects.
    let mut ordered = findings.to_vec();
    sort_by_key(&mut ordered, |line| line.verdict != Assessment::Harmful);
    let Some(first) = ordered.first() else {
        return Answer {
            what: format!("Nothing to correct in {lines}; {changes}."),
            why: "This kernel takes each line, and none does damage.".to_owned(),
            next: "Keep those that a measurement confirms: `weir tune trial FILE` measures each.".to_owned(),
        };
    };
    let reason = first.reasons.first().map_or("", String::as_str).trim_end_matches('.');
    let what = format!("Correct {} of {lines}: {}; {changes}.", findings.len(), kinds.join(", "));
    Answer {
        what,
        why: format!("{}: {} {}: {reason}.", location(first), first.name, first.value),
        next: format!("Remove or correct {}.", listed(&ordered, |line| location(line))),
    }
}

pub fn format_plan(plan: &ApplyPlan, target: &Target, is_dry_run: bool) -> String {
    let mode = if is_dry_run { "would change" } else { "changes" };
    let settings = format_plural(plan.changes.len() as u64, "setting");
    let mut text = format!("{mode} {settings} of {}\n", target.description());
    for change in &plan.changes {
        let (name, new) = (&change.requested.name, &change.requested.value);
        text.push_str(&format!("  {name}: {} → {new}\n", change.old));
        text.push_str(&format!("    {}: {}\n", change.verdict.name(), change.reason));
    }
    if !plan.unchanged.is_empty() {
        text.push_str(&format!("  unchanged: {}\n", plan.unchanged.join(", ")));
    }
    for (name, reason) in &plan.skipped {
        text.push_str(&format!("  skipped: {name}: {reason}\n"));
    }
    text
}

/// Formats the result of an ablation: the sentences, then a line a setting.
pub fn format_ablation(report: &AblationReport) -> String {
    let mut text = String::new();
    for sentence in &report.summary {
        text.push_str(&format!("{sentence}\n"));
    }
    let heads = ["setting", "value", "contribution", "load", "alone", "in the profile"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for result in &report.settings {
        let mut label = [result.name.clone(), result.value.clone(), result.contribution.name().to_owned()];
        for load in &result.loads {
            let mut row = std::mem::take(&mut label).to_vec();
            row.push(load.load.clone());
            row.extend([&load.alone, &load.within].map(|effect| effect_text(effect.as_ref())));
            rows.push(row);
        }
    }
    let confidence = report.confidence * 100.0;
    text.push_str(&format!("\n{}", table(&rows)));
    text.push_str(&format!(
        "{} with the setting over without it, {confidence:.0} % intervals; {:.1} % matters\n",
        report.metric,
        report.effect * 100.0
    ));
    text
}

fn effect_text(effect: Option<&SettingEffect>) -> String {
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    let Some(effect) = effect else { return "-".to_owned() };
    match (effect.ratio, effect.interval) {
        (Some(ratio), Some((low, high))) => {
            format!("{} % ({} to {})", percent(ratio), percent(low), percent(high))
        }
        (Some(ratio), None) => format!("{} %", percent(ratio)),
        _ => "-".to_owned(),
    }
}
