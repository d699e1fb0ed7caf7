//! Assessment of one value of a setting, for a machine. Pure: the machine's values are arguments.

use std::collections::BTreeMap;

use crate::catalogue::accepted_values;
use crate::kernel::KernelVersion;
use crate::kernel_value::{AcceptedValues, RejectedValue, parse_number};
use crate::setting::{Assessment, Certainty, Role, RuleCondition, Setting, WantedValue};

/// Facts that an assessment depends on.
#[derive(Clone, Debug)]
pub struct JudgeContext<'a> {
    pub kernel: KernelVersion,
    pub memory_bytes: u64,
    pub page_bytes: u64,
    pub role: Role,
    /// Values of this machine, by setting name.
    pub machine: &'a BTreeMap<String, String>,
    /// Congestion controls that have a module on this machine.
    pub congestion_modules: &'a [String],
    /// Values that a file sets in place of the machine's, by setting name.
    pub replaced: BTreeMap<String, ReplacedValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedValue {
    pub value: String,
    /// Position: `FILE:LINE`.
    pub location: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueJudgement {
    pub verdict: Assessment,
    pub certainty: Certainty,
    pub reason: String,
    /// True if a kernel rejects the line, or does not know it.
    pub is_rejected: bool,
}

impl ValueJudgement {
    fn new(verdict: Assessment, certainty: Certainty, reason: impl Into<String>) -> Self {
        Self { verdict, certainty, reason: reason.into(), is_rejected: false }
    }

    fn rejected(self) -> Self {
        Self { is_rejected: true, ..self }
    }
}

pub fn judge_value(setting: &Setting, value: &str, context: &JudgeContext<'_>) -> ValueJudgement {
    if let Some(judged) = judge_existence(setting, context.kernel) {
        return judged;
    }
    let now = context.machine.get(setting.name).map(String::as_str);
    let written = value;
    let accepted = accepted_values(setting.name);
    if let Some((accepted, source)) = accepted
        && let Some(reason) = rejection(accepted, setting, value, context)
    {
        let reason = format!("{reason} ({source})");
        return ValueJudgement::new(Assessment::Invalid, Certainty::Measured, reason).rejected();
    }
    let accepted = accepted.map_or(AcceptedValues::Text, |(accepted, _)| accepted);
    let value = &accepted.in_force(value, now.or_else(|| setting.default_for(context.kernel)));
    let mut judged = judge_in_force(setting, value, now, context);
    if let Some(note) = accepted.length_note(written) {
        judged.reason.push_str(&format!("; {note}"));
    }
    judged
}

/// Judges a value that is in force, so the kernel has accepted it.
pub fn judge_observed(setting: &Setting, value: &str, context: &JudgeContext<'_>) -> ValueJudgement {
    let now = context.machine.get(setting.name).map(String::as_str);
    judge_existence(setting, context.kernel).unwrap_or_else(|| judge_in_force(setting, value, now, context))
}

/// Judges the value that is in force after a write; `now` is that of the machine.
fn judge_in_force(
    setting: &Setting,
    value: &str,
    now: Option<&str>,
    context: &JudgeContext<'_>,
) -> ValueJudgement {
    if let Some(judged) = judge_by_rule(setting, value, context) {
        return judged;
    }
    let is_default = setting.default_for(context.kernel).is_some_and(|default| same_value(default, value));
    if let Some(advice) = setting.advice_for(context.role, context.memory_bytes)
        && is_satisfied(advice.wanted, value)
    {
        let note = if is_default { "the default, and recommended: " } else { "" };
        let parity = parity_note(advice.wanted, value);
        let reason = format!("{note}{}{parity}", setting.effect);
        return ValueJudgement::new(Assessment::Recommend, advice.certainty, reason);
    }
    let is_change = now.is_some_and(|now| !same_value(now, value));
    if is_default && !is_change {
        let reason = format!("the default of kernel {}: the line has no effect", context.kernel);
        return ValueJudgement::new(Assessment::Obsolete, Certainty::Documented, reason);
    }
    if is_default {
        let reason = format!("back to the default of kernel {}; {}", context.kernel, setting.effect);
        return ValueJudgement::new(Assessment::Conditional, Certainty::Judgement, reason);
    }
    let verdict = match setting.verdict {
        Assessment::Obsolete => Assessment::Obsolete,
        _ => Assessment::Conditional,
    };
    let reason = format!("{}; risk: {}", setting.effect, setting.risk);
    ValueJudgement::new(verdict, Certainty::Judgement, reason)
}

/// Returns the assessment of a setting that the kernel does not have, or ignores.
fn judge_existence(setting: &Setting, kernel: KernelVersion) -> Option<ValueJudgement> {
    let effect = setting.effect;
    if let Some(removed) = setting.removed.filter(|removed| *removed <= kernel) {
        let reason = format!("removed in {removed}: the kernel rejects it; {effect}");
        return Some(ValueJudgement::new(Assessment::Obsolete, Certainty::Measured, reason).rejected());
    }
    if let Some(added) = setting.added.filter(|added| *added > kernel) {
        let reason = format!("new in {added}: kernel {kernel} rejects it; {effect}");
        return Some(ValueJudgement::new(Assessment::Obsolete, Certainty::Documented, reason).rejected());
    }
    let since = setting.ignored.filter(|since| *since <= kernel)?;
    let reason = format!("ignored since {since}; {effect}");
    Some(ValueJudgement::new(Assessment::Obsolete, Certainty::Documented, reason))
}

fn judge_by_rule(setting: &Setting, value: &str, context: &JudgeContext<'_>) -> Option<ValueJudgement> {
    let rule = setting.rules.iter().find(|rule| holds(rule.when, setting, value, context))?;
    let mut reason = rule.reason.to_owned();
    match rule.when {
        RuleCondition::FieldBelowDefault(at) => {
            if let Some((basis, origin)) = baseline(setting, context) {
                let field = basis.split_whitespace().nth(at).unwrap_or_default();
                reason.push_str(&format!(" ({origin} {field})"));
            }
        }
        RuleCondition::OtherIs(name, _) | RuleCondition::AboveOther(name) => {
            if let Some(other) = context.replaced.get(name) {
                reason.push_str(&format!(" ({})", other.location));
            }
        }
        RuleCondition::PagesAboveMemory | RuleCondition::BytesEachAboveMemory(_) => {
            reason.push_str(&format!(" ({:.1} GiB)", context.memory_bytes as f64 / (1_u64 << 30) as f64));
        }
        _ => {}
    }
    Some(ValueJudgement::new(rule.verdict, rule.certainty, reason))
}

/// Returns the value that a change is measured against, and its origin: the default, or the machine's value
/// if the default depends on the machine.
fn baseline<'a>(setting: &Setting, context: &'a JudgeContext<'_>) -> Option<(&'a str, &'static str)> {
    if let Some(default) = setting.default_for(context.kernel) {
        return Some((default, "default"));
    }
    context.machine.get(setting.name).map(|value| (value.as_str(), "this machine:"))
}

fn holds(when: RuleCondition, setting: &Setting, value: &str, context: &JudgeContext<'_>) -> bool {
    let field = |text: &str, at: usize| text.split_whitespace().nth(at).and_then(parse_number);
    let compared = |at: usize| {
        let (basis, _) = baseline(setting, context)?;
        Some((field(value, at)?, field(basis, at)?))
    };
    match when {
        RuleCondition::Is(text) => same_value(text, value),
        RuleCondition::Below(limit) => field(value, 0).is_some_and(|number| number < i128::from(limit)),
        RuleCondition::Above(limit) => field(value, 0).is_some_and(|number| number > i128::from(limit)),
        RuleCondition::FieldBelowDefault(at) => compared(at).is_some_and(|(ours, basis)| ours < basis),
        RuleCondition::FieldAboveDefault(at) => compared(at).is_some_and(|(ours, basis)| ours > basis),
        RuleCondition::PagesAboveMemory => {
            let pages = value.split_whitespace().next_back().and_then(parse_number);
            let memory = i128::from(context.memory_bytes);
            pages.is_some_and(|pages| pages.saturating_mul(i128::from(context.page_bytes)) > memory)
        }
        RuleCondition::BytesEachAboveMemory(bytes) => {
            let memory = i128::from(context.memory_bytes);
            field(value, 0).is_some_and(|count| count.saturating_mul(i128::from(bytes)) > memory)
        }
        RuleCondition::TurnsOff => {
            let now = context.machine.get(setting.name).and_then(|now| field(now, 0));
            field(value, 0) == Some(0) && now.is_some_and(|now| now != 0)
        }
        RuleCondition::AboveOther(name) => {
            let other = other_value(name, context).and_then(|other| field(other, 0));
            field(value, 0).zip(other).is_some_and(|(ours, other)| ours > other)
        }
        RuleCondition::OtherIs(name, expected) => {
            other_value(name, context).is_some_and(|other| same_value(expected, other))
        }
        RuleCondition::Always => true,
    }
}

/// Returns the value of another setting: that of the same file, or that of the machine.
fn other_value<'a>(name: &str, context: &'a JudgeContext<'_>) -> Option<&'a str> {
    let replaced = context.replaced.get(name).map(|other| other.value.as_str());
    replaced.or_else(|| context.machine.get(name).map(String::as_str))
}

/// Returns the reason why the kernel rejects a value.
fn rejection(
    accepted: AcceptedValues,
    setting: &Setting,
    value: &str,
    context: &JudgeContext<'_>,
) -> Option<RejectedValue> {
    if let Some(rejected) = accepted.rejection(value, setting.unit) {
        return Some(rejected);
    }
    if accepted == AcceptedValues::CongestionControl {
        let available = context.machine.get("net.ipv4.tcp_available_congestion_control")?;
        let is_known = available.split_whitespace().any(|algorithm| algorithm == value)
            || context.congestion_modules.iter().any(|module| module == value);
        let rejected =
            RejectedValue::CongestionControl { value: value.to_owned(), available: available.clone() };
        return (!is_known).then_some(rejected);
    }
    let is_range = setting.advice.iter().any(|advice| matches!(advice.wanted, WantedValue::PortCount(..)));
    let now = context.machine.get(setting.name).map(String::as_str);
    let default = setting.default_for(context.kernel);
    let range = is_range.then(|| accepted.in_force(value, now.or(default)))?;
    // net/ipv4/sysctl_net_ipv4.c, ipv4_local_port_range().
    let start = other_value("net.ipv4.ip_unprivileged_port_start", context).and_then(parse_number);
    let start = start.unwrap_or(PRIVILEGED_PORTS_END);
    let is_valid = |(first, last)| start.max(1) <= first && first <= last && last <= i128::from(u16::MAX);
    (!port_range(&range).is_some_and(is_valid)).then_some(RejectedValue::PortRange(start))
}

/// First port that is not privileged, if the machine's is not known.
const PRIVILEGED_PORTS_END: i128 = 1024;

/// Returns whether two values are equal: field by field, as numbers or as words.
pub fn same_value(first: &str, second: &str) -> bool {
    let fields = |text: &str| -> Vec<String> {
        let field =
            |word: &str| parse_number(word).map_or_else(|| word.to_owned(), |number| number.to_string());
        text.split_whitespace().map(field).collect()
    };
    fields(first) == fields(second)
}

/// Returns whether a value is what an advice asks for.
pub fn is_satisfied(wanted: WantedValue, value: &str) -> bool {
    let compare = |text: &str, fits: fn(i128, i128) -> bool| {
        let ours: Vec<Option<i128>> = value.split_whitespace().map(parse_number).collect();
        let theirs: Vec<Option<i128>> = text.split_whitespace().map(parse_number).collect();
        let mut pairs = ours.iter().zip(&theirs);
        ours.len() == theirs.len()
            && pairs.all(|(ours, theirs)| ours.zip(*theirs).is_some_and(|(ours, theirs)| fits(ours, theirs)))
    };
    match wanted {
        WantedValue::Exactly(text) => same_value(text, value),
        WantedValue::OneOf(texts) => texts.iter().any(|text| same_value(text, value)),
        WantedValue::AtLeast(text) => value == "unlimited" || compare(text, |ours, theirs| ours >= theirs),
        WantedValue::AtMost(text) => compare(text, |ours, theirs| ours <= theirs),
        WantedValue::PortCount(count, _) => {
            port_range(value).is_some_and(|(first, last)| last - first + 1 >= i128::from(count))
        }
    }
}

fn port_range(value: &str) -> Option<(i128, i128)> {
    let mut fields = value.split_whitespace().map(parse_number);
    Some((fields.next()??, fields.next()??))
}

fn parity_note(wanted: WantedValue, value: &str) -> &'static str {
    let is_range = matches!(wanted, WantedValue::PortCount(..));
    match port_range(value).filter(|_| is_range) {
        Some((first, last)) if first % 2 == last % 2 => {
            "; start and end of different parity are preferred (the kernel logs it)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
