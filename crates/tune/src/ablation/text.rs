//! Texts of an ablation: the arms of its experiment, those of the confirmation, and the minimal profile.

use std::fmt::Write as _;

use super::{AblationDesign, AblationReport, AblationSetting};
use crate::catalogue::find_setting;

/// Name of the arm without any of the settings.
pub const NONE: &str = "none";
/// Name of the arm with all settings.
pub const PROFILE: &str = "profile";
/// Name of the arm with the minimal profile.
pub const MINIMAL: &str = "minimal";
/// Suffix of the name of the experiment that confirms the minimal profile.
pub const CONFIRM_SUFFIX: &str = "-confirm";

/// Returns the experiment's file `base`, which has no arms, with the arms of an ablation.
pub fn ablation_text(base: &str, design: &AblationDesign) -> String {
    let mut text = base_text(base);
    let count = design.settings.len();
    push_arm(&mut text, design, NONE, "none of the settings", &[]);
    let all: Vec<&AblationSetting> = design.settings.iter().collect();
    let title = match design.settings.as_slice() {
        [setting] => format!("{} = {}", setting.name, setting.value),
        _ => format!("all {count} settings"),
    };
    push_arm(&mut text, design, PROFILE, &title, &all);
    for setting in &design.settings {
        if let Some(arm) = design.without_arm(setting) {
            let rest: Vec<&AblationSetting> =
                design.settings.iter().filter(|other| other.name != setting.name).collect();
            push_arm(&mut text, design, &arm, &format!("the profile without {}", setting.name), &rest);
        }
    }
    for setting in design.settings.iter().filter(|_| design.has_single_arms()) {
        if let Some(arm) = design.alone_arm(setting) {
            push_arm(
                &mut text,
                design,
                &arm,
                &format!("{} = {} alone", setting.name, setting.value),
                &[setting],
            );
        }
    }
    text
}

/// Returns the experiment's file `base` with the arms that compare a minimal profile with the complete one.
pub fn confirmation_text(base: &str, design: &AblationDesign, minimal: &[String]) -> String {
    let mut text = base_text(base);
    let all: Vec<&AblationSetting> = design.settings.iter().collect();
    let kept: Vec<&AblationSetting> =
        design.settings.iter().filter(|setting| minimal.contains(&setting.name)).collect();
    push_arm(
        &mut text,
        design,
        PROFILE,
        &format!("all {}", record::units::format_plural(all.len() as u64, "setting")),
        &all,
    );
    push_arm(&mut text, design, MINIMAL, &format!("the minimal profile: {}", minimal.join(", ")), &kept);
    push_arm(&mut text, design, NONE, "none of the settings", &[]);
    text
}

fn base_text(base: &str) -> String {
    let mut text = base.trim_end().to_owned();
    text.push_str("\n\n# Arms of weir tune trial.\n");
    text
}

/// Appends an arm. Every key is written in full, so that it fits after any table.
fn push_arm(
    text: &mut String,
    design: &AblationDesign,
    name: &str,
    title: &str,
    settings: &[&AblationSetting],
) {
    // Writing to a String has no error.
    let _ = writeln!(text, "[arms.{}]\ntitle = {}", quote(name), quote(title));
    for setting in settings {
        let (key, value) = (quote(&setting.key), quote(&setting.value));
        let _ = match setting.is_global {
            true => writeln!(text, "scenario.host-settings.{key} = {value}"),
            false if setting.is_of_link => {
                writeln!(text, "scenario.interface.{}.{key} = {value}", design.node)
            }
            false => writeln!(text, "scenario.sysctl.{}.{key} = {value}", design.node),
        };
    }
}

/// Returns a TOML basic string.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // A control character has to be escaped (TOML 1.0, Strings).
            control if control.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns the minimal profile as a file in the form of sysctl.conf, which `weir tune apply` takes, with the
/// measured reason of each line.
pub fn profile_text(report: &AblationReport, source: &str) -> String {
    let requested = report.design.requested.join(" ");
    let mut text = format!(
        "# Minimal profile of '{requested}', measured by weir tune trial ({source}).\n\
         # Measure again after a change of the kernel, the programs or the load.\n"
    );
    if report.is_partial {
        text.push_str("# Partial: the trial was stopped early.\n");
    }
    if report.minimal.is_empty() {
        text.push_str("# No setting earns its place.\n");
    }
    for result in report.settings.iter().filter(|result| report.minimal.contains(&result.name)) {
        let _ = writeln!(text, "\n# {}: {}", result.contribution.name(), result.reason);
        if let Some(setting) = find_setting(&result.name) {
            let _ = writeln!(text, "# Risk: {}. Source: {}", setting.risk, setting.source);
        }
        // weir tune apply takes no setting of an interface without its name, and no offload.
        let is_of_link = |setting: &&AblationSetting| setting.name == result.name && setting.is_of_link;
        let mark = if report.design.settings.iter().any(|setting| is_of_link(&setting)) { "# " } else { "" };
        let _ = writeln!(text, "{mark}{} = {}", result.name, result.value);
    }
    text
}
