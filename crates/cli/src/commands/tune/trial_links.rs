//! Settings of virtual links before a trial: each is written once to a link in a new namespace, which ends with the
//! test, so that a setting that the kernel refuses is reported before the first trial.

use std::process::{Command, Stdio};

use host::sandbox::link_settings::LinkSetting;
use host::sandbox::namespace::run_with_sysfs_in_new_netns;
use host::sandbox::programs::find_program;
use tune::apply::{ApplyPlan, RequestedValue};
use tune::check::judge_context;
use tune::link::plan_links;
use tune::observation::observe_machine;
use tune::setting::Role;

use crate::exit::Failure;

/// Ends of the link in the namespace.
const LINK: [&str; 2] = ["weir-near", "weir-far"];

/// Compares the settings with a new virtual link.
pub(super) fn plan(requests: &[RequestedValue], role: Role) -> Result<ApplyPlan, Failure> {
    if requests.is_empty() {
        return Ok(ApplyPlan::default());
    }
    let state = observe_machine();
    let values = state.values();
    let context = judge_context(&state, &values, role);
    let planned = run_with_sysfs_in_new_netns(|| -> std::io::Result<_> {
        create_link()?;
        Ok(plan_links(requests, &context, try_value))
    });
    let failed = |error: std::io::Error| Failure::cannot("weir tune trial", error);
    Ok(planned.and_then(|made: std::io::Result<_>| made).map_err(failed)??)
}

/// Returns the value of the link, after another one was written, read back and restored.
fn try_value(setting: &LinkSetting, value: &str) -> std::io::Result<String> {
    let [link, _] = LINK;
    let old = setting.read(link)?;
    if old == value {
        return Ok(old);
    }
    setting.write(link, value)?;
    // Settings depend on others: segmentation on checksums.
    setting.write(link, &old)?;
    Ok(old)
}

/// Makes the link. Both ends are up: a link that is down has no queueing discipline.
fn create_link() -> std::io::Result<()> {
    let [near, far] = LINK;
    run_ip(&["link", "add", near, "type", "veth", "peer", "name", far])?;
    LINK.iter().try_for_each(|end| run_ip(&["link", "set", "dev", end, "up"]))
}

fn run_ip(words: &[&str]) -> std::io::Result<()> {
    let run = |program| Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = find_program("ip").and_then(run);
    let output = output
        .map_err(|error| std::io::Error::new(error.kind(), format!("ip: {error} (install iproute2)")))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(std::io::Error::other(format!("ip {}: {}", words.join(" "), stderr.trim())))
}
