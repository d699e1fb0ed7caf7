//! Plan of a change: requested values, compared with the machine's. Pure: the machine's values are arguments.

use std::path::PathBuf;

use host::tuning::{ObservedValue, interface_file, sysctl_path};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue, nearest};

use crate::catalogue::{counterpart, find_setting, settings};
use crate::judge::{JudgeContext, judge_value, same_value};
use crate::kernel::KernelVersion;
use crate::profiles::{PROFILES, Profile, find_profile};
use crate::setting::{Assessment, Probe, Scope, Setting};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedValue {
    pub setting: &'static Setting,
    /// Full name: that of the row, with `@INTERFACE` for a setting of an interface, or that of the interface's
    /// sysctl.
    pub name: String,
    pub value: String,
    pub path: PathBuf,
    /// True if it comes from a profile: it is skipped if it cannot be set here.
    pub is_optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    pub requested: RequestedValue,
    pub old: String,
    pub verdict: Assessment,
    pub reason: String,
    /// True if the kernel makes this change with the one before it: the other setting of an exclusive pair.
    pub follows: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyPlan {
    /// Changes, in the order of writing.
    pub changes: Vec<PlannedChange>,
    /// Names of settings that have the requested value already.
    pub unchanged: Vec<String>,
    /// Settings of a profile that cannot be set here, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Parses the values of the command line: names of profiles, and `name=value`. A later value replaces an
/// earlier one.
///
/// # Errors
/// All problems of the values.
pub fn parse_requests(words: &[String]) -> Result<Vec<RequestedValue>, Vec<InputProblem>> {
    let mut requests: Vec<RequestedValue> = Vec::new();
    let mut problems = Vec::new();
    let mut add = |request: RequestedValue| {
        let other = counterpart(&request.name);
        requests.retain(|earlier| earlier.name != request.name && Some(earlier.name.as_str()) != other);
        requests.push(request);
    };
    for word in words {
        if let Some(profile) = find_profile(word) {
            profile_requests(profile).into_iter().for_each(&mut add);
            continue;
        }
        match parse_assignment(word) {
            Ok(request) => add(request),
            Err(text) => problems.push(InputProblem::new(word.as_str(), text)),
        }
    }
    if words.is_empty() {
        let text = format!("name a profile ({}), or settings as name=value", profile_names());
        problems.push(InputProblem::new("PROFILE|NAME=VALUE", text));
    }
    if problems.is_empty() { Ok(requests) } else { Err(problems) }
}

/// Returns the requests of a profile. Settings that weir never writes are kept, and skipped by the plan.
pub fn profile_requests(profile: &Profile) -> Vec<RequestedValue> {
    let request = |profile_setting: &crate::profiles::ProfileSetting| {
        let setting = profile_setting.setting()?;
        let path = setting_path(setting, profile_setting.name, None).unwrap_or_default();
        Some(RequestedValue {
            setting,
            name: profile_setting.name.to_owned(),
            value: profile_setting.value.to_owned(),
            path,
            is_optional: true,
        })
    };
    profile.settings.iter().filter_map(request).collect()
}

pub fn profile_names() -> String {
    PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
}

fn parse_assignment(word: &str) -> Result<RequestedValue, InvalidValue> {
    let Some((name, value)) = word.split_once('=') else {
        let hint = match nearest(word, PROFILES.iter().map(|profile| profile.name)) {
            Some(near) => format!(" (did you mean '{near}'?)"),
            None => String::new(),
        };
        return Err(invalid_value!(
            "no such profile{hint}; profiles: {}; a setting is name=value",
            profile_names()
        ));
    };
    let (name, value) = (name.trim(), value.trim());
    let (setting, path) = find_file(name)?;
    if value.is_empty() || value.contains('\n') {
        return Err(invalid_value!("the value is missing"));
    }
    let request =
        RequestedValue { setting, name: name.to_owned(), value: value.to_owned(), path, is_optional: false };
    Ok(request)
}

/// Returns the row of the catalogue and the file of a setting, by its full name ([`RequestedValue::name`]).
///
/// # Errors
/// The catalogue does not have it, or weir does not write it.
pub(crate) fn find_file(name: &str) -> Result<(&'static Setting, PathBuf), InvalidValue> {
    let (row_name, interface) = match name.split_once('@') {
        Some((row, interface)) => (row, Some(interface)),
        None => (name, None),
    };
    let Some(setting) = find_setting(row_name) else {
        let hint = match nearest(row_name, settings().map(|setting| setting.name)) {
            Some(near) => format!(" (did you mean '{near}'?)"),
            None => String::new(),
        };
        return Err(invalid_value!("not in the catalogue{hint}; weir tune check --all lists it"));
    };
    Ok((setting, setting_path(setting, row_name, interface)?))
}

/// Returns the file of a setting, or the reason why weir does not write it.
fn setting_path(setting: &Setting, name: &str, interface: Option<&str>) -> Result<PathBuf, InvalidValue> {
    if setting.scope == Scope::Boot {
        return Err(invalid_value!("a boot parameter: weir reports it, and never sets it"));
    }
    let is_name =
        |text: &&str| !text.is_empty() && !text.contains(['/', '\0']) && *text != "." && *text != "..";
    match setting.probe {
        Probe::Sysctl if interface.is_none() => {
            sysctl_path(name).ok_or_else(|| invalid_value!("invalid name"))
        }
        Probe::Sysctl => Err(invalid_value!("write {name} without @INTERFACE")),
        Probe::File(path) if path.starts_with("/sys/") => Ok(PathBuf::from(path)),
        Probe::InterfaceFile(file) => match interface.filter(is_name) {
            Some(interface) => Ok(interface_file(interface, file)),
            None => Err(invalid_value!("name the interface: {name}@eth0=…")),
        },
        Probe::Ethtool(_) => Err(invalid_value!("weir does not set it; {}", setting.effect)),
        _ => Err(invalid_value!("weir does not set it; {}: {}", setting.scope.name(), setting.effect)),
    }
}

/// Plans the change of the requested values. `observe` reads a file; `is_namespace` is true if the target
/// is a network namespace and not the host.
///
/// # Errors
/// All settings that cannot be set here, except optional ones.
pub fn plan_apply(
    requests: &[RequestedValue],
    context: &JudgeContext<'_>,
    is_namespace: bool,
    observe: impl Fn(&RequestedValue) -> ObservedValue,
) -> Result<ApplyPlan, Vec<InputProblem>> {
    let mut plan = ApplyPlan::default();
    let mut problems = Vec::new();
    for request in requests {
        let old = match obstacle(request, context, is_namespace, &observe) {
            Ok(old) => old,
            Err(reason) if request.is_optional => {
                plan.skipped.push((request.name.clone(), reason.to_string()));
                continue;
            }
            Err(reason) => {
                problems.push(InputProblem::new(request.name.as_str(), reason));
                continue;
            }
        };
        if same_value(&old, &request.value) {
            plan.unchanged.push(request.name.clone());
            continue;
        }
        let judged = judge_value(request.setting, &request.value, context);
        if judged.verdict == Assessment::Invalid {
            problems.push(InputProblem::new(request.name.as_str(), judged.reason));
            continue;
        }
        let follower = match follower(request, &old, &observe) {
            Ok(follower) => follower,
            Err(problem) => {
                problems.push(InputProblem::new(request.name.as_str(), problem));
                continue;
            }
        };
        let (requested, verdict) = (request.clone(), judged.verdict);
        plan.changes.push(PlannedChange { requested, old, verdict, reason: judged.reason, follows: false });
        plan.changes.extend(follower);
    }
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

/// Returns the change that the kernel makes with that of `request`: it sets the other setting of an exclusive pair to
/// 0, so a revert has to restore that one.
///
/// # Errors
/// The kernel has no way back to the present state.
fn follower(
    request: &RequestedValue,
    old: &str,
    observe: &impl Fn(&RequestedValue) -> ObservedValue,
) -> Result<Option<PlannedChange>, InvalidValue> {
    let Some(name) = counterpart(&request.name) else { return Ok(None) };
    let (setting, path) = find_file(name)?;
    let (name, value) = (name.to_owned(), "0".to_owned());
    let other = RequestedValue { setting, name, value, path, is_optional: request.is_optional };
    match observe(&other) {
        ObservedValue::Value(value) if same_value(&value, "0") && same_value(old, "0") => {
            Err(invalid_value!(
                "it and {} are 0, and the kernel has no way back to that: write one of the two first",
                other.name
            ))
        }
        ObservedValue::Value(value) if !same_value(&value, "0") => Ok(Some(PlannedChange {
            requested: other,
            old: value,
            verdict: Assessment::Conditional,
            reason: format!("the kernel sets it to 0 with {}; a revert restores it", request.name),
            follows: true,
        })),
        _ => Ok(None),
    }
}

/// Reason why a setting cannot be written here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Obstacle {
    #[error("removed in {0}")]
    Removed(KernelVersion),
    #[error(transparent)]
    NeverWritten(#[from] InvalidValue),
    /// The target is a network namespace, and the setting has this scope.
    #[error("{}: a network namespace has no value of its own", .0.name())]
    NotOfNamespace(Scope),
    /// The kernel has no such file.
    #[error("this kernel does not have it, or not in this namespace")]
    Absent,
    /// Its value cannot be read.
    #[error("not observable: {0}")]
    NotObservable(String),
}

fn obstacle(
    request: &RequestedValue,
    context: &JudgeContext<'_>,
    is_namespace: bool,
    observe: impl Fn(&RequestedValue) -> ObservedValue,
) -> Result<String, Obstacle> {
    let setting = request.setting;
    if let Some(removed) = setting.removed.filter(|removed| *removed <= context.kernel) {
        return Err(Obstacle::Removed(removed));
    }
    if request.path.as_os_str().is_empty() {
        return Ok(setting_path(setting, &request.name, None).map(|_| String::new())?);
    }
    let is_of_namespace =
        setting.scope == Scope::NetworkNamespace || (setting.scope == Scope::Interface && is_sysctl(setting));
    if is_namespace && !is_of_namespace {
        return Err(Obstacle::NotOfNamespace(setting.scope));
    }
    match observe(request) {
        ObservedValue::Value(old) => Ok(old),
        ObservedValue::Absent => Err(Obstacle::Absent),
        ObservedValue::NotObservable(reason) => Err(Obstacle::NotObservable(reason)),
    }
}

fn is_sysctl(setting: &Setting) -> bool {
    setting.probe == Probe::Sysctl
}

/// First words and second line of a file for `/etc/sysctl.d`, by which weir knows its own files.
const PERSISTED_START: &str = "# Written by: ";
const PERSISTED_LINE: &str = "# Remove this file to undo it at the next boot.";

/// Returns whether a text has the form of [`persistent_text`].
pub(crate) fn is_persistent_text(text: &str) -> bool {
    text.starts_with(PERSISTED_START) && text.lines().nth(1) == Some(PERSISTED_LINE)
}

/// Returns a file for `/etc/sysctl.d` with the reasons as comments.
pub fn persistent_text(plan: &ApplyPlan, command: &str) -> String {
    // Below the first line a command of several lines would be settings.
    let command = command.replace(char::is_control, " ");
    let mut text = format!("{PERSISTED_START}{command}\n{PERSISTED_LINE}\n");
    for change in plan.changes.iter().filter(|change| !change.follows) {
        let request = &change.requested;
        let setting = request.setting;
        text.push_str(&format!("\n# {} (was {}): {}\n", change.verdict.name(), change.old, change.reason));
        text.push_str(&format!("# Risk: {}. Source: {}\n", setting.risk, setting.source));
        if is_sysctl(setting) {
            text.push_str(&format!("{} = {}\n", request.name, request.value));
        } else {
            let path = request.path.display();
            text.push_str(&format!(
                "# Not a sysctl: a boot script has to write {} to {path}\n",
                request.value
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests;
