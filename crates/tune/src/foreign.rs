//! Files of other people: `sysctl.conf`, `sysctl.d`, `limits.conf` and tuned profiles. Parses their lines and
//! judges each. Pure, except for [`files`]: the texts are arguments.

mod directories;
pub mod files;
mod limits;
mod parse;
mod tuned;

use std::collections::{BTreeMap, BTreeSet};

pub use self::directories::{FileOrder, SYSCTL_CONF, SYSCTL_DIRECTORIES, order_files};
pub use self::parse::{FileFormat, ForeignLine, WriteCondition, detect_format, matches_pattern, parse_file};
pub use self::tuned::{PROFILE_DIRECTORIES, PROFILE_FILE, included_profiles};

use record::sorted::CollectSorted;

use crate::catalogue::{accepted_values, counterpart, find_setting, settings};
use crate::judge::{JudgeContext, ReplacedValue, judge_value, same_value};
use crate::kernel::KernelVersion;
use crate::kernel_value::AcceptedValues;
use crate::report::LineFinding;
use crate::setting::{Assessment, Certainty, Setting};

/// Facts about this machine beside the values of the catalogue.
#[derive(Clone, Debug, Default)]
pub struct MachineFacts {
    /// Names of all sysctls, and whether they can be written.
    pub names: BTreeMap<String, bool>,
    /// Values of names in the files that the catalogue does not have.
    pub values: BTreeMap<String, String>,
    /// Position and value of the line of this machine's files that sets a name at boot.
    pub set_by: BTreeMap<String, ReplacedValue>,
    /// Errors of the kernel for lines that were tried in a new network namespace, by the index of the line.
    pub rejected: BTreeMap<usize, String>,
}

/// Units that a comment may name by mistake.
const UNITS: &[&str] =
    &["ns", "us", "µs", "ms", "s", "seconds", "milliseconds", "microseconds", "nanoseconds"];
/// Maximum number of names that a note lists.
const NAMES_MAX: usize = 4;

/// Names that a line sets, in the order of the lines.
pub fn names_set(lines: &[ForeignLine], names: &BTreeMap<String, bool>) -> Vec<Vec<String>> {
    let explicit: BTreeSet<&str> =
        lines.iter().filter(|line| !line.is_pattern).map(|line| line.name.as_str()).collect_set();
    let set_by = |line: &ForeignLine| match line.is_pattern {
        _ if !line.is_setting() => Vec::new(),
        true => {
            let free = names.keys().filter(|name| !explicit.contains(name.as_str()));
            free.filter(|name| matches_pattern(&line.name, name)).cloned().collect()
        }
        false => vec![line.name.clone()],
    };
    lines.iter().map(set_by).collect()
}

/// Returns the values that a configuration leaves behind, with the line of each.
pub fn values_left(lines: &[ForeignLine], names: &BTreeMap<String, bool>) -> BTreeMap<String, ReplacedValue> {
    let mut left = BTreeMap::new();
    for (line, set) in lines.iter().zip(names_set(lines, names)) {
        for name in set {
            counterpart(&name).map(|other| left.remove(other));
            let replaced = ReplacedValue { value: line.value.clone(), location: line.location() };
            left.insert(name, replaced);
        }
    }
    left
}

/// Judges the lines of all files, in the order in which they take effect.
pub fn judge_lines(
    lines: &[ForeignLine],
    context: &JudgeContext<'_>,
    facts: &MachineFacts,
) -> Vec<LineFinding> {
    let mut lines = lines.to_vec();
    limits::add_notes(&mut lines);
    let mut context = context.clone();
    context.replaced = values_left(&lines, &facts.names);
    let set = names_set(&lines, &facts.names);
    let overrides = Overrides::new(&lines, &set);
    let judge = |at: usize| {
        let line = &lines[at];
        let mut finding = judge_line(line, &set[at], &context, facts, facts.rejected.get(&at));
        overrides.add(&mut finding, &lines, at);
        finding
    };
    (0..lines.len()).map(judge).collect()
}

/// Last line that sets each value.
struct Overrides {
    /// Keys of each line.
    keys: Vec<Vec<String>>,
    /// Last line by key.
    last: BTreeMap<String, usize>,
}

impl Overrides {
    fn new(lines: &[ForeignLine], set: &[Vec<String>]) -> Self {
        let keys: Vec<Vec<String>> = lines.iter().zip(set).map(|(line, names)| keys(line, names)).collect();
        let mut last = BTreeMap::new();
        for (at, keys) in keys.iter().enumerate() {
            last.extend(keys.iter().map(|key| (key.clone(), at)));
        }
        Self { keys, last }
    }

    /// Adds the line that takes the place of line `at`, if all of its values have one.
    fn add(&self, finding: &mut LineFinding, lines: &[ForeignLine], at: usize) {
        let later: BTreeSet<usize> =
            self.keys[at].iter().filter_map(|key| self.last.get(key).copied()).collect_set();
        let Some(&last) = later.last().filter(|last| **last > at) else { return };
        let (is_complete, other) = (!later.contains(&at), &lines[last]);
        let same = other.name == lines[at].name && same_value(&other.value, &lines[at].value);
        let effect = match (same, is_complete) {
            (true, _) => "repeated",
            (false, true) => "overridden",
            (false, false) => "partly overridden",
        };
        let pair = match counterpart(&lines[at].name) == Some(other.name.as_str()) {
            true => format!(": the kernel keeps one of {} and {}", lines[at].name, other.name),
            false => String::new(),
        };
        finding.reasons.push(format!("{effect} by {}{pair}", other.location()));
        if !same && is_complete {
            finding.change = None;
            // A file that comes later is there to override: sysctl.d(5), included profiles.
            finding.is_finding |= other.file == lines[at].file;
            finding.verdict = Assessment::Obsolete.max(finding.verdict);
        }
    }
}

/// Returns the values that a line sets, as keys: names, one of an exclusive pair, and limits of users.
fn keys(line: &ForeignLine, names: &[String]) -> Vec<String> {
    if let Some(target) = &line.limit {
        let half =
            |is_set: bool, kind: &str| is_set.then(|| format!("{} {} {kind}", line.name, target.domain));
        let halves = [half(target.soft, "soft"), half(target.hard, "hard")];
        return halves.into_iter().flatten().filter(|_| line.problem.is_none()).collect();
    }
    let key = |name: &String| match counterpart(name) {
        Some(other) => other.min(name.as_str()).to_owned(),
        None => name.clone(),
    };
    names.iter().map(key).collect()
}

fn judge_line(
    line: &ForeignLine,
    names: &[String],
    context: &JudgeContext<'_>,
    facts: &MachineFacts,
    rejected: Option<&String>,
) -> LineFinding {
    let mut finding = new_finding(line);
    if let Some(problem) = &line.problem {
        finding.reasons.push(problem.clone());
        return finding;
    }
    let kept = context.machine.get(&line.name).filter(|now| line.keeps(now));
    let kept =
        kept.map(|now| format!("no change: this machine has {now}, and tuned does not write {}", line.value));
    let note = match (
        line.unresolved.as_ref().or(kept.as_ref()),
        line.is_exclusion,
        line.is_pattern && names.is_empty(),
    ) {
        (Some(reason), ..) => Some(reason.as_str()),
        (None, true, _) => Some("keeps the patterns of these files away from this name"),
        (None, false, true) => {
            Some("no setting of this kernel matches the pattern, or each has a line of its own")
        }
        _ => None,
    };
    if let Some(note) = note {
        set_open(&mut finding, note.to_owned());
        finding.reasons.extend(line.notes.iter().cloned());
        return finding;
    }
    let mut findings = names.iter().map(|name| judge_name(line, name, context, facts, rejected));
    let first = findings.next();
    let worst = first.map(|first| {
        findings.fold(first, |worst, other| if other.verdict > worst.verdict { other } else { worst })
    });
    let mut finding = worst.unwrap_or(finding);
    if line.is_pattern {
        let listed = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMES_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        finding.reasons.push(format!("the pattern matches {listed}{more}"));
        finding.name.clone_from(&line.name);
    }
    finding.reasons.extend(line.notes.iter().cloned());
    finding
}

/// Returns a finding about a line, which is invalid until it is judged.
fn new_finding(line: &ForeignLine) -> LineFinding {
    LineFinding {
        file: line.file.clone(),
        line: line.line,
        name: line.name.clone(),
        value: line.value.clone(),
        limit: line.limit.clone(),
        now: None,
        set_by: None,
        change: None,
        verdict: Assessment::Invalid,
        certainty: Certainty::Measured,
        reasons: Vec::new(),
        source: None,
        is_finding: true,
    }
}

/// Leaves the assessment of a line open, with a reason.
fn set_open(finding: &mut LineFinding, reason: String) {
    finding.verdict = Assessment::Conditional;
    finding.certainty = Certainty::Judgement;
    finding.is_finding = false;
    finding.reasons.push(reason);
}

fn judge_name(
    line: &ForeignLine,
    name: &str,
    context: &JudgeContext<'_>,
    facts: &MachineFacts,
    rejected: Option<&String>,
) -> LineFinding {
    let mut finding = LineFinding { name: name.to_owned(), ..new_finding(line) };
    let now = context.machine.get(name).or_else(|| facts.values.get(name));
    if line.limit.is_none() {
        finding.now = now.cloned();
        let set = facts.set_by.get(name);
        let is_in_force = |set: &&ReplacedValue| now.is_some_and(|now| same_value(now, &set.value));
        finding.set_by = set.filter(is_in_force).map(|set| set.location.clone());
    }
    let accepted = accepted_values(name).map(|(accepted, _)| accepted);
    match find_setting(name) {
        _ if facts.names.get(name) == Some(&false) && !name.starts_with("net.") => {
            finding.reasons.push("read-only on this kernel: no line can set it".to_owned());
        }
        Some(setting) if setting.name != name && now.is_some() => {
            // A setting of one interface is judged against the value of that interface.
            let mut machine = context.machine.clone();
            machine.insert(setting.name.to_owned(), now.cloned().unwrap_or_default());
            judge_known(&mut finding, setting, line, &JudgeContext { machine: &machine, ..context.clone() });
        }
        Some(setting) => judge_known(&mut finding, setting, line, context),
        None if facts.names.contains_key(name) => {
            match accepted.and_then(|accepted| accepted.rejection(&line.value, "")) {
                Some(rejected) => finding.reasons.push(rejected.to_string()),
                None => {
                    set_open(&mut finding, "this kernel has it; the catalogue of weir does not".to_owned())
                }
            }
        }
        None if line.may_fail => {
            set_open(
                &mut finding,
                format!("kernel {} does not have it: the tools skip the line", context.kernel),
            );
        }
        None => finding.reasons.push(unknown_text(name, &facts.names, context.kernel)),
    }
    if let Some(reason) = rejected.filter(|_| finding.verdict != Assessment::Invalid) {
        finding.verdict = Assessment::Invalid;
        finding.certainty = Certainty::Measured;
        finding.is_finding = true;
        finding.reasons = vec![reason.clone()];
    }
    finding.change = change_text(&finding, context, facts);
    finding
}

/// Describes the change of this machine by a line: the value now, its origin, and the value afterwards.
fn change_text(finding: &LineFinding, context: &JudgeContext<'_>, facts: &MachineFacts) -> Option<String> {
    let now = finding.now.as_deref()?;
    let name = finding.name.as_str();
    let default = find_setting(name).and_then(|setting| setting.default_for(context.kernel));
    let origin = match (&finding.set_by, facts.set_by.get(name)) {
        (Some(location), _) => format!(", set by {location}"),
        (None, Some(other)) if other.location == format!("{}:{}", finding.file, finding.line) => {
            ", so this line is not in force".to_owned()
        }
        (None, Some(other)) => format!(" (not by {}, which sets {})", other.location, other.value),
        (None, None) if default.is_some_and(|default| same_value(default, now)) => ", the default".to_owned(),
        (None, None) if default.is_some() => ", set by no file of this machine".to_owned(),
        (None, None) => String::new(),
    };
    let accepted = accepted_values(name).map_or(AcceptedValues::Text, |(accepted, _)| accepted);
    let after = accepted.in_force(&finding.value, Some(now));
    let change = match finding.verdict == Assessment::Invalid || same_value(&after, now) {
        true => "no change".to_owned(),
        false => format!("the line sets {after}"),
    };
    let now = if now.is_empty() { "empty" } else { now };
    Some(format!("now {now}{origin}: {change}"))
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
    finding.is_finding =
        judged.is_rejected || matches!(judged.verdict, Assessment::Harmful | Assessment::Invalid);
    finding.reasons.push(judged.reason);
    finding.source = Some(setting.source.to_owned());
    finding.reasons.extend(unit_note(setting, &line.comment));
}

/// Returns a note if the comment names another unit than the setting has.
fn unit_note(setting: &Setting, comment: &str) -> Option<String> {
    let is_time = UNITS.contains(&setting.unit);
    let words = comment.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    // "50ns" and "50 ns" both name a unit.
    let mut units = words.filter_map(|word| {
        let unit = word.trim_start_matches(|character: char| character.is_ascii_digit());
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
fn unknown_text(name: &str, known: &BTreeMap<String, bool>, kernel: KernelVersion) -> String {
    let all = settings().map(|setting| setting.name).chain(known.keys().map(String::as_str));
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
