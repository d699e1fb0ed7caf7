//! Requests of the command line, and the plan of their change.

use std::collections::BTreeMap;

use super::*;
use crate::kernel::KernelVersion;
use crate::setting::Role;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn plan(requests: &[&str], is_namespace: bool, value: &str) -> Result<ApplyPlan, Vec<InputProblem>> {
    let machine = BTreeMap::new();
    let context = JudgeContext {
        kernel: KernelVersion(6, 18),
        memory_bytes: 8 << 30,
        page_bytes: 4096,
        role: Role::Proxy,
        machine: &machine,
        congestion_modules: &[],
        replaced: BTreeMap::new(),
    };
    let requests = parse_requests(&words(requests)).expect("valid requests");
    plan_apply(&requests, &context, is_namespace, |_| ObservedValue::Value(value.to_owned()))
}

#[test]
fn all_faulty_requests_are_reported_at_once() {
    let faulty = ["proxi", "net.core.somaxcon=1", "net.core.somaxconn=", "net.core.somaxconn@eth0=1"];
    let problems = parse_requests(&words(&faulty)).expect_err("all are faulty");
    assert_eq!(problems.len(), faulty.len(), "{problems:?}");
    assert_eq!(parse_requests(&[]).expect_err("nothing is requested").len(), 1);
}

#[test]
fn no_request_leaves_the_directory_of_settings() {
    for word in ["net/../../../etc/passwd=1", "../x=1", "net.ipv4.conf.../x.rp_filter=1"] {
        assert!(parse_requests(&words(&[word])).is_err(), "{word}");
    }
}

#[test]
fn a_later_request_replaces_an_earlier_one() {
    let requests = parse_requests(&words(&["proxy", "net.core.somaxconn=77"])).expect("valid");
    let somaxconn_requests: Vec<_> =
        requests.iter().filter(|request| request.name == "net.core.somaxconn").collect();
    assert_eq!(somaxconn_requests.len(), 1);
    assert_eq!((somaxconn_requests[0].value.as_str(), somaxconn_requests[0].is_optional), ("77", false));
}

#[test]
fn only_values_that_differ_are_written() {
    let same = plan(&["net.core.somaxconn=4096"], true, "4096\n").expect("a plan");
    assert_eq!((same.changes.len(), same.unchanged), (0, vec!["net.core.somaxconn".to_owned()]));
    let other = plan(&["net.core.somaxconn=8192"], true, "4096").expect("a plan");
    assert_eq!(other.changes.len(), 1);
    assert_eq!(other.changes[0].old, "4096");
    assert!(plan(&["net.core.somaxconn=many"], true, "4096").is_err());
}

#[test]
fn a_namespace_has_no_settings_of_the_machine() {
    assert!(plan(&["vm.swappiness=1"], true, "60").is_err());
    assert_eq!(plan(&["vm.swappiness=1"], false, "60").expect("a plan").changes.len(), 1);
    // A profile skips them, and reports it.
    for profile in PROFILES {
        let plan = plan(&[profile.name], true, "no such value").expect("a plan");
        let global = plan.changes.iter().filter(|change| change.requested.setting.scope == Scope::Global);
        assert_eq!(global.count(), 0, "{}", profile.name);
    }
}

#[test]
fn a_persistent_file_states_reason_and_source_of_each_line() {
    let plan = plan(&["net.core.somaxconn=8192"], false, "4096").expect("a plan");
    let text = persistent_text(&plan, "weir tune apply");
    assert!(text.lines().any(|line| line == "net.core.somaxconn = 8192"), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("# ")).count() >= 4, "{text}");
}
