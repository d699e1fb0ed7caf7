//! Files of other people: `sysctl.conf`, `sysctl.d`, `limits.conf` and tuned profiles. Parses their lines and
//! judges each. Pure: the texts are arguments.

mod parse;

use std::collections::BTreeMap;

pub use self::parse::{FileFormat, ForeignLine, detect_format, parse_file};

use crate::catalogue::{find_setting, settings};
use crate::judge::{JudgeContext, ReplacedValue, judge_value, same_value};
use crate::kernel::KernelVersion;
use crate::report::LineFinding;
use crate::setting::{Certainty, Setting, Verdict};

/// Names on this machine that the catalogue does not have.
pub type KnownNames = Vec<String>;

/// Units that a comment may name by mistake.
const UNITS: &[&str] =
    &["ns", "us", "µs", "ms", "s", "seconds", "milliseconds", "microseconds", "nanoseconds"];

/// Judges the lines of all files, in the order in which they take effect.
#[must_use]
pub fn judge_lines(
    lines: &[ForeignLine],
    context: &JudgeContext<'_>,
    known: &KnownNames,
) -> Vec<LineFinding> {
    let mut context = context.clone();
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.problem.is_none()) {
        last.insert(&line.name, at);
        let location = line.location();
        context.replaced.insert(line.name.clone(), ReplacedValue { value: line.value.clone(), location });
    }
    let judge = |(at, line): (usize, &ForeignLine)| {
        let mut finding = judge_line(line, &context, known);
        if let Some(&later) = last.get(line.name.as_str()).filter(|later| **later > at) {
            let later = &lines[later];
            let same = same_value(&later.value, &line.value);
            let effect = if same { "repeated" } else { "overridden" };
            finding.reasons.push(format!("{effect} by {}", later.location()));
            if !same {
                finding.is_finding = true;
                finding.verdict = Verdict::Obsolete.max(finding.verdict);
            }
        }
        finding
    };
    lines.iter().enumerate().map(judge).collect()
}

fn judge_line(line: &ForeignLine, context: &JudgeContext<'_>, known: &KnownNames) -> LineFinding {
    let mut finding = LineFinding {
        file: line.file.clone(),
        line: line.line,
        name: line.name.clone(),
        value: line.value.clone(),
        verdict: Verdict::Invalid,
        certainty: Certainty::Measured,
        reasons: Vec::new(),
        source: None,
        is_finding: true,
    };
    if let Some(problem) = &line.problem {
        finding.reasons.push(problem.clone());
        return finding;
    }
    if let Some(reason) = &line.unresolved {
        finding.verdict = Verdict::Conditional;
        finding.certainty = Certainty::Judgement;
        finding.is_finding = false;
        finding.reasons.push(reason.clone());
        return finding;
    }
    match find_setting(&line.name) {
        Some(setting) => judge_known(&mut finding, setting, line, context),
        None if known.contains(&line.name) => {
            finding.verdict = Verdict::Conditional;
            finding.certainty = Certainty::Judgement;
            finding.is_finding = false;
            finding.reasons.push("this kernel has it; the catalogue of weir does not".to_owned());
        }
        None => finding.reasons.push(unknown_text(&line.name, known, context.kernel)),
    }
    finding.reasons.extend(line.notes.iter().cloned());
    finding
}

fn judge_known(
    finding: &mut LineFinding,
    setting: &'static Setting,
    line: &ForeignLine,
    context: &JudgeContext<'_>,
) {
    let judged = judge_value(setting, &line.value, context);
    finding.verdict = judged.verdict;
    finding.certainty = judged.certainty;
    finding.is_finding = judged.is_rejected || matches!(judged.verdict, Verdict::Harmful | Verdict::Invalid);
    finding.reasons.push(judged.reason);
    finding.source = Some(setting.source.to_owned());
    finding.reasons.extend(unit_note(setting, &line.comment));
}

/// Returns a note if the comment names another unit than the setting has.
fn unit_note(setting: &Setting, comment: &str) -> Option<String> {
    let is_time = UNITS.contains(&setting.unit);
    let words = comment.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty());
    // "50ns" and "50 ns" both name a unit.
    let mut units = words.filter_map(|word| {
        let unit = word.trim_start_matches(|one: char| one.is_ascii_digit());
        UNITS.iter().find(|known| **known == unit && (unit.len() > 1 || word.len() > unit.len()))
    });
    let is_other = |unit: &&&str| symbol(unit) != symbol(setting.unit);
    let unit = units.find(is_other).filter(|_| is_time)?;
    Some(format!("the unit is {}, not {unit}", setting.unit))
}

fn symbol(unit: &str) -> &str {
    match unit {
        "us" | "microseconds" => "µs",
        "nanoseconds" => "ns",
        "milliseconds" => "ms",
        "seconds" => "s",
        other => other,
    }
}

/// Returns the text for a name that nothing here knows, with the nearest known name.
fn unknown_text(name: &str, known: &KnownNames, kernel: KernelVersion) -> String {
    let all = settings().map(|setting| setting.name).chain(known.iter().map(String::as_str));
    let blanks = name.replace([' ', '\t'], "_");
    let hint = match record::problem::nearest(&blanks, all) {
        Some(near) => format!(" (did you mean '{near}'?)"),
        None => String::new(),
    };
    let blank = if blanks == name { "" } else { ", and a name has no blanks" };
    format!("unknown setting: kernel {kernel} does not have it{blank}{hint}")
}

#[cfg(test)]
mod tests;
