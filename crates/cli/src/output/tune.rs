//! Text of `weir tune`: findings about settings and lines, and the plan of a change.

use record::units::format_plural;
use tune::ablation::{AblationReport, SettingEffect};
use tune::apply::ApplyPlan;
use tune::journal::Target;
use tune::report::{Action, CheckReport, SettingFinding};
use tune::setting::{Scope, Verdict};

/// Formats the settings of this machine: those to change, those to consider, and a count of the others; with
/// `all`, the others too.
pub(crate) fn format_settings(report: &CheckReport, all: bool) -> String {
    let memory_gib = report.memory_bytes as f64 / (1_u64 << 30) as f64;
    let role = report.role.name();
    let mut text = format!("kernel {}, {memory_gib:.1} GiB, role {role}\n", report.kernel);
    let with = |action: Action| report.settings.iter().filter(move |one| one.action == action);
    section(&mut text, "Change", with(Action::Change));
    section(
        &mut text,
        "Consider (depends on the load: measure it with weir lab run)",
        with(Action::Consider),
    );
    if all {
        let program = |one: &&SettingFinding| one.scope == Scope::Application;
        section(&mut text, "Keep", with(Action::Keep));
        section(&mut text, "Not in this kernel, or not set", with(Action::Absent));
        section(&mut text, "Options of programs", with(Action::NotObservable).filter(program));
    }
    let hidden = with(Action::NotObservable).filter(|one| one.scope != Scope::Application);
    let hidden: Vec<&SettingFinding> = hidden.collect();
    if !hidden.is_empty() {
        text.push_str("\nNot observable here\n");
        for one in hidden {
            text.push_str(&format!("  {}: {}\n", full_name(one), one.reason));
        }
    }
    let kept = with(Action::Keep).count();
    let (change, consider) = (report.findings, with(Action::Consider).count());
    text.push_str(&format!("\n{change} to change, {consider} to consider, {kept} to keep"));
    text.push_str(if all { "\n" } else { " (--all lists everything)\n" });
    text
}

fn section<'a>(text: &mut String, title: &str, findings: impl Iterator<Item = &'a SettingFinding>) {
    let mut findings = findings.peekable();
    if findings.peek().is_none() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for one in findings {
        let unit = if one.unit.is_empty() { String::new() } else { format!(" {}", one.unit) };
        let value = match (&one.value, &one.wanted) {
            (Some(value), Some(wanted)) if matches!(one.action, Action::Change | Action::Consider) => {
                format!(": {value} → {wanted}{unit}")
            }
            (Some(value), _) => format!(": {value}{unit}"),
            (None, _) => String::new(),
        };
        text.push_str(&format!("  {}{value}\n", full_name(one)));
        let reason = if one.reason.is_empty() || one.action == Action::NotObservable {
            &one.effect
        } else {
            &one.reason
        };
        let (certainty, source) = (one.certainty.name(), &one.source);
        text.push_str(&format!("    {reason} ({certainty}; {source})\n"));
        if matches!(one.action, Action::Change | Action::Consider) && !one.risk.is_empty() {
            text.push_str(&format!("    risk: {}\n", one.risk));
        }
    }
}

fn full_name(finding: &SettingFinding) -> String {
    match &finding.interface {
        Some(interface) => format!("{}@{interface}", finding.name),
        None => finding.name.clone(),
    }
}

/// Formats the lines of files, one verdict a line, as a compiler does.
pub(crate) fn format_lines(report: &CheckReport) -> String {
    let mut text = String::new();
    for line in &report.lines {
        let value = if line.value.is_empty() { String::new() } else { format!(" = {}", line.value) };
        let (file, number, name) = (&line.file, line.line, &line.name);
        let verdict = line.verdict.name();
        text.push_str(&format!("{file}:{number}: {verdict}: {name}{value}\n"));
        for (at, reason) in line.reasons.iter().enumerate() {
            let certainty = if at == 0 { format!(" ({})", line.certainty.name()) } else { String::new() };
            text.push_str(&format!("    {reason}{certainty}\n"));
        }
    }
    let verdicts =
        [Verdict::Recommend, Verdict::Conditional, Verdict::Obsolete, Verdict::Harmful, Verdict::Invalid];
    let counts = verdicts.iter().filter_map(|verdict| {
        let count = report.lines.iter().filter(|line| line.verdict == *verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    let counts: Vec<String> = counts.collect();
    let (lines, findings) = (report.lines.len(), report.findings);
    let counts = if counts.is_empty() { "no setting".to_owned() } else { counts.join(", ") };
    text.push_str(&format!(
        "{}: {counts}; {findings} to remove or correct\n",
        format_plural(lines as u64, "line")
    ));
    text
}

/// Formats the plan of a change.
pub(crate) fn format_plan(plan: &ApplyPlan, target: &Target, is_dry_run: bool) -> String {
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
pub(crate) fn format_ablation(report: &AblationReport) -> String {
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
    text.push_str(&format!("\n{}", report::text::table::table(&rows)));
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
