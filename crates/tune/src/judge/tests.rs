//! Comparison of values, and assessments that depend on the kernel and on other settings.

use super::*;
use crate::catalogue::find_setting;

const CURRENT: KernelVersion = KernelVersion(6, 18);

fn context(machine: &BTreeMap<String, String>, kernel: KernelVersion) -> JudgeContext<'_> {
    let (memory_bytes, page_bytes, role) = (8 << 30, 4096, Role::Proxy);
    JudgeContext {
        kernel,
        memory_bytes,
        page_bytes,
        role,
        machine,
        congestion_modules: &[],
        replaced: BTreeMap::new(),
    }
}

fn judge(name: &str, value: &str, kernel: KernelVersion) -> ValueJudgement {
    judge_value(find_setting(name).expect("in the catalogue"), value, &context(&BTreeMap::new(), kernel))
}

#[test]
fn values_are_compared_field_by_field_as_numbers() {
    for (first, second, is_same) in [
        ("4096\t131072 6291456", " 4096 131072  6291456\n", true),
        ("010", "8", true),
        ("0xa", "10", true),
        ("4096 131072", "4096 131072 6291456", false),
        ("cubic", "bbr", false),
        ("", "", true),
        ("", "0", false),
    ] {
        assert_eq!(same_value(first, second), is_same, "{first:?}, {second:?}");
    }
}

#[test]
fn an_advice_is_a_bound_or_a_choice() {
    for (wanted, value, is_met) in [
        (WantedValue::AtLeast("4096"), "4096", true),
        (WantedValue::AtLeast("4096"), "128", false),
        (WantedValue::AtLeast("4096"), "unlimited", true),
        (WantedValue::AtLeast("4096 1 1"), "4096 0 9", false),
        (WantedValue::AtLeast("4096"), "4096 4096", false),
        (WantedValue::AtMost("60"), "60", true),
        (WantedValue::AtMost("60"), "61", false),
        (WantedValue::AtMost("60"), "never", false),
        (WantedValue::OneOf(&["madvise", "never"]), "never", true),
        (WantedValue::OneOf(&["madvise", "never"]), "always", false),
        (WantedValue::Exactly("1"), "01", true),
        (WantedValue::PortCount(50_000, ""), "10000 59999", true),
        (WantedValue::PortCount(50_000, ""), "10000 59998", false),
        (WantedValue::PortCount(50_000, ""), "10000", false),
    ] {
        assert_eq!(is_satisfied(wanted, value), is_met, "{wanted:?}, {value:?}");
    }
}

#[test]
fn a_removed_setting_is_rejected_only_by_kernels_without_it() {
    let removed = judge("net.ipv4.tcp_tw_recycle", "1", CURRENT);
    assert_eq!((removed.verdict, removed.is_rejected), (Assessment::Obsolete, true));
    let before = judge("net.ipv4.tcp_tw_recycle", "1", KernelVersion(4, 9));
    assert!(!before.is_rejected, "{before:?}");
    assert_ne!(before.verdict, Assessment::Recommend);
}

#[test]
fn units_and_wrong_numbers_of_fields_are_rejected() {
    for value in ["128k", "many", "2147483648", ""] {
        let judged = judge("net.core.somaxconn", value, CURRENT);
        assert_eq!((judged.verdict, judged.is_rejected), (Assessment::Invalid, true), "{value:?}");
    }
    assert!(!judge("net.core.somaxconn", "65535", CURRENT).is_rejected);
    for value in ["1024 99999", "0 65535", "1 65535", "60999 32768", "-5 100"] {
        let judged = judge("net.ipv4.ip_local_port_range", value, CURRENT);
        assert_eq!((judged.verdict, judged.is_rejected), (Assessment::Invalid, true), "{value:?}");
    }
    assert!(!judge("net.ipv4.ip_local_port_range", "1024 65535", CURRENT).is_rejected);
    let machine = BTreeMap::from([("net.ipv4.ip_unprivileged_port_start".to_owned(), "80".to_owned())]);
    let range = find_setting("net.ipv4.ip_local_port_range").unwrap();
    assert!(!judge_value(range, "80 65535", &context(&machine, CURRENT)).is_rejected);
}

#[test]
fn a_default_has_no_effect_unless_it_is_the_advice() {
    let setting = find_setting("net.core.somaxconn").expect("in the catalogue");
    let default = setting.default_for(CURRENT).expect("a default");
    let judged = judge("net.core.somaxconn", default, CURRENT);
    assert!(matches!(judged.verdict, Assessment::Recommend | Assessment::Obsolete), "{judged:?}");
    // What was the default of an old kernel lowers today's.
    let lowered = judge("net.core.somaxconn", "128", CURRENT);
    assert_eq!(lowered.verdict, Assessment::Harmful, "{lowered:?}");
}
