//! Settings of interfaces in a trial: on the virtual links of a node, in the namespace of the trial. Decides which
//! settings a virtual link has; `host` reads and writes them.

use std::io;
use std::path::PathBuf;

use host::sandbox::link_settings::{LinkSetting, find_link_setting};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

use crate::apply::{ApplyPlan, PlannedChange, RequestedValue, parse_requests};
use crate::catalogue::find_setting;
use crate::judge::{JudgeContext, judge_value};
use crate::setting::{Assessment, Probe, Scope, Setting};

/// Prefix of the catalogue's names of settings of interfaces.
const PREFIX: &str = "nic.";

/// Parses the values of a trial: as for an apply, and settings of interfaces without `@INTERFACE`, for the virtual
/// links of the trial's node. These come last.
///
/// # Errors
/// All problems of the values.
pub fn parse_trial_requests(words: &[String]) -> Result<Vec<RequestedValue>, Vec<InputProblem>> {
    let (mut links, mut others, mut problems) = (Vec::<RequestedValue>::new(), Vec::new(), Vec::new());
    for word in words {
        match link_request(word) {
            None => others.push(word.clone()),
            Some(Err(text)) => problems.push(InputProblem::new(word.as_str(), text)),
            Some(Ok(request)) => {
                links.retain(|earlier| earlier.name != request.name);
                links.push(request);
            }
        }
    }
    let mut requests = Vec::new();
    if !others.is_empty() || words.is_empty() {
        match parse_requests(&others) {
            Ok(parsed) => requests = parsed,
            Err(found) => problems.extend(found),
        }
    }
    requests.extend(links);
    if problems.is_empty() { Ok(requests) } else { Err(problems) }
}

/// Parses `nic.NAME=VALUE`; `None` for every other word.
fn link_request(word: &str) -> Option<Result<RequestedValue, InvalidValue>> {
    let (name, value) = word.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let setting = find_setting(name).filter(|setting| is_of_interface(setting))?;
    let request = || {
        let link = link_setting(setting).ok_or_else(|| {
            invalid_value!(
                "not on a virtual link, which the trial has instead of a NIC: set it on the NIC's machine; {}",
                setting.effect
            )
        })?;
        Ok(RequestedValue {
            setting,
            name: name.to_owned(),
            value: link.normalize(value)?,
            path: PathBuf::new(),
            is_optional: false,
        })
    };
    Some(request())
}

/// Returns whether each interface has a value of a setting that is no sysctl.
fn is_of_interface(setting: &Setting) -> bool {
    setting.scope == Scope::Interface && setting.probe != Probe::Sysctl
}

/// Returns whether a request is for the virtual links of a trial.
pub fn is_of_link(request: &RequestedValue) -> bool {
    is_of_interface(request.setting) && !request.name.contains('@')
}

/// Returns the setting of a virtual link for a row of the catalogue; `None` if a virtual link does not have it.
pub fn link_setting(setting: &Setting) -> Option<&'static LinkSetting> {
    find_link_setting(setting.name.strip_prefix(PREFIX)?)
}

/// Plans the change of settings of virtual links. `observe` returns the value of a new link, after the requested one
/// was written and read back there.
///
/// # Errors
/// All settings that a link does not have or does not take.
pub fn plan_links(
    requests: &[RequestedValue],
    context: &JudgeContext<'_>,
    observe: impl Fn(&LinkSetting, &str) -> io::Result<String>,
) -> Result<ApplyPlan, Vec<InputProblem>> {
    let (mut plan, mut problems) = (ApplyPlan::default(), Vec::new());
    for request in requests {
        let Some(link) = link_setting(request.setting) else { continue };
        match observe(link, &request.value) {
            Err(reason) => problems.push(InputProblem::new(request.name.as_str(), reason)),
            Ok(old) if old == request.value => plan.unchanged.push(request.name.clone()),
            Ok(old) => {
                let judged = judge_value(request.setting, &request.value, context);
                if judged.verdict == Assessment::Invalid {
                    problems.push(InputProblem::new(request.name.as_str(), judged.reason));
                    continue;
                }
                plan.changes.push(PlannedChange {
                    follows: false,
                    requested: request.clone(),
                    old,
                    verdict: judged.verdict,
                    reason: judged.reason,
                });
            }
        }
    }
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use host::sandbox::link_settings::LINK_SETTINGS;

    use super::*;

    fn requests(words: &[&str]) -> Result<Vec<RequestedValue>, Vec<InputProblem>> {
        parse_trial_requests(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_setting_of_a_link_is_a_row_of_the_catalogue() {
        for link in LINK_SETTINGS {
            let setting =
                find_setting(&format!("{PREFIX}{}", link.name)).unwrap_or_else(|| panic!("{}", link.name));
            assert_eq!(link_setting(setting), Some(link));
        }
    }

    #[test]
    fn settings_without_an_interface_are_those_of_the_trial() {
        let parsed =
            requests(&["nic.gro=on", "net.core.somaxconn=99", "nic.tx_queue_len@eth0=5", "nic.gro=off"]);
        let parsed = parsed.unwrap();
        let found: Vec<_> = parsed
            .iter()
            .map(|request| (request.name.as_str(), request.value.as_str(), is_of_link(request)))
            .collect();
        assert_eq!(
            found,
            [
                ("net.core.somaxconn", "99", false),
                ("nic.tx_queue_len@eth0", "5", false),
                ("nic.gro", "0", true)
            ]
        );
    }

    #[test]
    fn settings_that_no_virtual_link_has_are_refused_at_once() {
        let problems =
            requests(&["nic.rx_ring=4096", "nic.rx_usecs=8", "nic.adaptive_rx=1", "nic.gro=2"]).unwrap_err();
        assert_eq!(
            problems.iter().filter(|problem| problem.text.contains("not on a virtual link")).count(),
            3
        );
        assert!(problems[3].text.contains("0 or 1"), "{problems:?}");
        assert!(requests(&[]).is_err());
    }
}
