//! Every row is complete, and agrees with the running kernel.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::kernel::ANY;
use crate::kernel_value::AcceptedValues;
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
    for observed in state.settings.iter().filter(|observed| observed.setting.probe == Probe::Sysctl) {
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

#[test]
fn every_row_that_the_kernel_parses_has_its_accepted_values() {
    for row in settings().filter(|row| row.probe == Probe::Sysctl && row.removed.is_none()) {
        let (accepted, source) = accepted_values(row.name).unwrap_or_else(|| panic!("{}", row.name));
        assert!(!source.is_empty(), "{}", row.name);
        let values = row
            .defaults
            .iter()
            .map(|(_, value)| *value)
            .chain(row.advice.iter().map(|advice| advice.wanted.text()));
        // 0 is what the kernel shows for the one of a pair that is not in force.
        for value in
            values.filter(|_| counterpart(row.name).is_none() && accepted != AcceptedValues::ReadOnly)
        {
            assert_eq!(accepted.rejection(value, row.unit), None, "{} = {value}", row.name);
        }
    }
    let mut names = BTreeSet::new();
    assert_eq!(accepted::names().find(|name| !names.insert(*name)), None, "twice");
}

/// Settings whose range depends on other settings.
const DEPENDENT: [&str; 3] =
    ["net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.tcp_reordering"];

/// Writes the bounds of every range, and the numbers beyond them, in a new network namespace.
#[test]
fn the_running_kernel_accepts_the_ranges_of_the_tables() {
    let state = observe_machine();
    if state.kernel < v(6, 18) {
        return;
    }
    let checked = host::sandbox::namespace::run_in_new_netns(|| {
        let names = accepted::names().filter(|name| {
            name.starts_with("net.ipv4.") || name.starts_with("net.unix.") || *name == "net.core.somaxconn"
        });
        let mut checked = 0;
        for name in names.filter(|name| !DEPENDENT.contains(name) && !name.contains("conf.")) {
            let Some((AcceptedValues::Numbers { fields, min, max }, _)) = accepted_values(name) else {
                continue;
            };
            let path = sysctl_path(name).unwrap();
            // Shared settings are not in a namespace, or cannot be written there.
            if !host::tuning::is_writable(&path) {
                continue;
            }
            let write = |number: i128| {
                let value = vec![number.to_string(); fields].join(" ");
                host::tuning::write_value(&path, &value).is_ok()
            };
            // The bounds of a time depend on CONFIG_HZ.
            let is_time = max == i128::from(i32::MAX) / 100;
            assert!(is_time || write(max) && write(min), "{name}: {min} to {max}");
            assert!(!write(max + 1) && !write(min - 1), "{name}: beyond {min} to {max}");
            checked += 1;
        }
        checked
    });
    match checked {
        Ok(checked) => assert!(checked > 60, "{checked}"),
        Err(_) => test_needs::skip(test_needs::ROOT, "a new network namespace takes root"),
    }
}
