//! Findings about synthetic machines.

use super::*;
use crate::catalogue::{find_setting, settings};
use crate::kernel::KernelVersion;
use crate::setting::{ROLES, WantedValue};

fn state(values: &[(&str, ObservedValue)]) -> MachineState {
    let observed = |(name, value): &(&str, ObservedValue)| ObservedSetting {
        setting: find_setting(name).expect("in the catalogue"),
        interface: None,
        value: value.clone(),
    };
    MachineState {
        release: "6.18.0".to_owned(),
        kernel: KernelVersion(6, 18),
        memory_bytes: 8 << 30,
        page_bytes: 4096,
        congestion_modules: Vec::new(),
        settings: values.iter().map(observed).collect(),
    }
}

fn value(text: &str) -> ObservedValue {
    ObservedValue::Value(text.to_owned())
}

#[test]
fn what_is_not_there_needs_no_change() {
    let state = state(&[
        ("net.ipv4.tcp_tw_recycle", ObservedValue::Absent),
        ("vm.swappiness", ObservedValue::NotObservable("no permission".to_owned())),
    ]);
    let findings = check_machine(&state, Role::Proxy, &BTreeMap::new());
    assert_eq!(findings[0].action, Action::Absent);
    assert_eq!((findings[1].action, findings[1].reason.as_str()), (Action::NotObservable, "no permission"));
    assert_eq!(count_changes(&findings), 0);
}

#[test]
fn a_harmful_value_is_to_be_changed() {
    let findings =
        check_machine(&state(&[("net.core.somaxconn", value("128"))]), Role::Proxy, &BTreeMap::new());
    assert_eq!((findings[0].action, findings[0].verdict), (Action::Change, Some(Assessment::Harmful)));
    assert!(findings[0].wanted.is_some());
    assert_eq!(count_changes(&findings), 1);
}

/// For every row and role: a machine that follows the advice gets no finding.
#[test]
fn a_machine_as_advised_needs_no_change() {
    for role in ROLES {
        for setting in settings() {
            let Some(advice) = setting.advice_for(role, 8 << 30) else { continue };
            let wanted = match advice.wanted {
                WantedValue::Exactly(text) | WantedValue::AtLeast(text) | WantedValue::AtMost(text) => text,
                WantedValue::OneOf(texts) => texts[0],
                WantedValue::PortCount(..) => "1024 65001",
            };
            let findings = check_machine(&state(&[(setting.name, value(wanted))]), role, &BTreeMap::new());
            assert_eq!(
                findings[0].action,
                Action::Keep,
                "{} = {wanted}, {role:?}: {findings:?}",
                setting.name
            );
        }
    }
}
