//! Check of this machine against the catalogue. Pure: the state is an argument.

use std::collections::BTreeMap;

use host::tuning::ObservedValue;

use crate::judge::{JudgeContext, ReplacedValue, ValueJudgement, is_satisfied, judge_observed, same_value};
use crate::observation::{MachineState, ObservedSetting};
use crate::report::{Action, SettingFinding};
use crate::setting::{Assessment, Certainty, Role, Scope};

pub fn judge_context<'a>(
    state: &'a MachineState,
    values: &'a BTreeMap<String, String>,
    role: Role,
) -> JudgeContext<'a> {
    JudgeContext {
        kernel: state.kernel,
        memory_bytes: state.memory_bytes,
        page_bytes: state.page_bytes,
        role,
        machine: values,
        congestion_modules: &state.congestion_modules,
        replaced: BTreeMap::new(),
    }
}

/// Checks every setting of a machine, in the order of the catalogue.
pub fn check_machine(
    state: &MachineState,
    role: Role,
    set_by: &BTreeMap<String, ReplacedValue>,
) -> Vec<SettingFinding> {
    let values = state.values();
    let context = judge_context(state, &values, role);
    let check = |observed: &ObservedSetting| {
        let mut finding = check_setting(observed, &context);
        let set = set_by.get(observed.setting.name);
        let is_in_force =
            |set: &&ReplacedValue| observed.value.text().is_some_and(|now| same_value(now, &set.value));
        finding.set_by = set.filter(is_in_force).map(|set| set.location.clone());
        finding
    };
    state.settings.iter().map(check).collect()
}

fn check_setting(observed: &ObservedSetting, context: &JudgeContext<'_>) -> SettingFinding {
    let setting = observed.setting;
    let mut finding = SettingFinding {
        name: setting.name.to_owned(),
        interface: observed.interface.clone(),
        scope: setting.scope,
        unit: setting.unit.to_owned(),
        value: observed.value.text().map(str::to_owned),
        set_by: None,
        default: setting.default_for(context.kernel).map(str::to_owned),
        wanted: None,
        action: Action::Keep,
        verdict: None,
        certainty: Certainty::Documented,
        reason: String::new(),
        effect: setting.effect.to_owned(),
        risk: setting.risk.to_owned(),
        source: setting.source.to_owned(),
    };
    let advice = setting.advice_for(context.role, context.memory_bytes);
    finding.wanted = advice.map(|advice| advice.wanted.text().to_owned());
    match &observed.value {
        ObservedValue::Value(value) => {
            let judged = judge_observed(setting, value, context);
            decide(&mut finding, observed, &judged, value, context);
        }
        ObservedValue::Absent => {
            finding.action = Action::Absent;
            finding.reason = absence_reason(observed, context);
        }
        ObservedValue::NotObservable(reason) => {
            finding.action = Action::NotObservable;
            finding.reason = reason.clone();
        }
    }
    finding
}

/// Sets action, assessment and reason of a setting that has a value.
fn decide(
    finding: &mut SettingFinding,
    observed: &ObservedSetting,
    judged: &ValueJudgement,
    value: &str,
    context: &JudgeContext<'_>,
) {
    let setting = observed.setting;
    let advice = setting.advice_for(context.role, context.memory_bytes);
    finding.verdict = Some(judged.verdict);
    finding.certainty = judged.certainty;
    finding.reason.clone_from(&judged.reason);
    if judged.verdict == Assessment::Harmful {
        finding.action = Action::Change;
        finding.wanted = finding.wanted.take().or_else(|| finding.default.clone());
        return;
    }
    match advice {
        Some(advice) if !is_satisfied(advice.wanted, value) => {
            finding.action = if advice.unconditional { Action::Change } else { Action::Consider };
            finding.certainty = advice.certainty;
            finding.reason = setting.effect.to_owned();
        }
        Some(_) => finding.reason = "as recommended".to_owned(),
        None => {
            let is_default = finding.default.as_deref().is_some_and(|default| same_value(default, value));
            finding.reason = match (&finding.default, is_default) {
                (_, true) => "the default".to_owned(),
                (Some(default), false) => format!("differs from the default {default}: {}", judged.reason),
                (None, false) if setting.scope == Scope::Boot => setting.effect.to_owned(),
                (None, false) => "no fixed value is right for every machine".to_owned(),
            };
        }
    }
}

fn absence_reason(observed: &ObservedSetting, context: &JudgeContext<'_>) -> String {
    let setting = observed.setting;
    match (setting.removed, setting.added) {
        (Some(removed), _) if removed <= context.kernel => format!("removed in {removed}"),
        (_, Some(added)) if added > context.kernel => format!("new in {added}"),
        _ if setting.scope == Scope::Boot => "not set".to_owned(),
        _ => "not in this kernel, not loaded, or not in this namespace".to_owned(),
    }
}

pub fn count_changes(findings: &[SettingFinding]) -> usize {
    findings.iter().filter(|finding| finding.action == Action::Change).count()
}

#[cfg(test)]
mod tests;
