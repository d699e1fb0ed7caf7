//! Every row is complete, and agrees with the running kernel.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::kernel::ANY;
use crate::observation::observe_machine;
use crate::setting::{Probe, Scope};
use host::tuning::{ObservedValue, read_sysctl, sysctl_path};

#[test]
fn every_row_is_complete_and_has_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for row in settings() {
        assert!(names.insert(row.name), "{} twice", row.name);
        for text in [row.effect, row.risk, row.source] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: '{text}'", row.name);
        }
        assert!(row.defaults.is_sorted_by_key(|(since, _)| *since), "{}", row.name);
        assert!(row.defaults.first().is_none_or(|(since, _)| *since == ANY), "{}", row.name);
        assert!(row.added.zip(row.removed).is_none_or(|(added, removed)| added < removed), "{}", row.name);
        if row.probe == Probe::Sysctl {
            assert!(sysctl_path(row.name).is_some(), "{}", row.name);
        }
    }
    assert!(names.len() > 170, "{}", names.len());
}

#[test]
fn the_running_kernel_has_every_row_that_it_should_have() {
    let state = observe_machine();
    // Parts of the kernel that may be left out of a build, or loaded on demand.
    let optional =
        ["kernel.sysrq", "kernel.numa_balancing", "kernel.nmi_watchdog", "vm.compaction_proactiveness"];
    let mut results = Vec::new();
    for observed in state.settings.iter().filter(|one| one.setting.probe == Probe::Sysctl) {
        let row = observed.setting;
        let is_expected =
            !row.is_removed_in(state.kernel) && row.added.is_none_or(|added| added <= state.kernel);
        let is_optional = optional.contains(&row.name)
            || row.name.starts_with("net.netfilter.")
            || row.name == "kernel.sched_autogroup_enabled"
            || row.name.starts_with("kernel.task_");
        let exists = observed.value != ObservedValue::Absent;
        assert!(exists == is_expected || is_optional, "{}: {:?}", row.name, observed.value);
        results.push(format!("{}: {:?}", row.name, observed.value));
    }
    println!("{}", results.join("\n"));
}

#[test]
fn defaults_are_those_of_a_new_namespace() {
    // A new namespace has the kernel's defaults, whatever the host has, except for values that it inherits.
    let inherited = ["net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
    let kernel = observe_machine().kernel;
    let rows: Vec<&Setting> = settings()
        .filter(|row| row.scope == Scope::NetworkNamespace && row.probe == Probe::Sysctl)
        .filter(|row| !row.name.contains("netfilter") && !inherited.contains(&row.name))
        .filter(|row| row.default_for(kernel).is_some() && !row.is_removed_in(kernel))
        .collect();
    let script = rows
        .iter()
        .filter_map(|row| sysctl_path(row.name))
        .map(|path| format!("cat {} 2>/dev/null || echo absent\n", path.display()));
    let output = Command::new("unshare").args(["-n", "sh", "-c", &script.collect::<String>()]).output();
    let Ok(output) = output else { return test_needs::skip("unshare", "it is not installed") };
    if !output.status.success() && output.stdout.is_empty() {
        return test_needs::skip(test_needs::ROOT, "unshare -n takes root");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    for (row, value) in rows.iter().zip(text.lines()) {
        if value == "absent" {
            assert!(row.added.is_some_and(|added| added > kernel), "{} is not of a namespace", row.name);
            continue;
        }
        let default = row.default_for(kernel).unwrap();
        assert!(
            crate::judge::same_value(default, value),
            "{}: {default}, and the kernel has {value}",
            row.name
        );
    }
}

#[test]
fn global_settings_are_not_in_a_new_namespace() {
    let rows: Vec<&Setting> = settings()
        .filter(|row| {
            row.scope == Scope::Global && row.probe == Probe::Sysctl && row.name.starts_with("net.")
        })
        .filter(|row| read_sysctl(row.name) != ObservedValue::Absent)
        .collect();
    let script = rows
        .iter()
        .filter_map(|row| sysctl_path(row.name))
        .map(|path| format!("test -w {0} && stat -c %A {0} | grep -q '^-rw' && echo {0}\n", path.display()));
    let script = format!("{}true", script.collect::<String>());
    let Ok(output) = Command::new("unshare").args(["-n", "sh", "-c", &script]).output() else {
        return test_needs::skip("unshare", "it is not installed");
    };
    let writable = String::from_utf8(output.stdout).unwrap();
    assert_eq!(writable, "", "these have a value of their own in a namespace");
}
