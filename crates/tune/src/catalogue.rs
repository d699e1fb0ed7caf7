//! Catalogue of host settings: one row a setting. Rows are grouped by area in the files of this
//! directory. Not for reading the machine, and not for judging values.

mod accepted;
mod application;
mod boot;
mod cpu;
mod device;
mod machine;
mod net;
mod obsolete;
mod tcp_buffers;
mod tcp_connections;
mod tcp_recovery;

pub use self::accepted::accepted_values;

use crate::kernel::KernelVersion;
use crate::setting::{Advice, Assessment, Certainty, Role, RuleCondition, Setting, ValueRule, WantedValue};

/// Document of the IPv4 and TCP settings.
const IP: &str = "networking/ip-sysctl";
/// Document of `net.core`.
const NET: &str = "admin-guide/sysctl/net";
const KERNEL: &str = "admin-guide/sysctl/kernel";
const VM: &str = "admin-guide/sysctl/vm";
const FS: &str = "admin-guide/sysctl/fs";
/// Document of connection tracking.
const CONNTRACK: &str = "networking/nf_conntrack-sysctl";
/// Document of receive and transmit steering.
const SCALING: &str = "networking/scaling";
const NAPI: &str = "networking/napi";
const BOOT: &str = "admin-guide/kernel-parameters";

/// Groups of rows, in the order of the output.
const GROUPS: &[&[Setting]] = &[
    tcp_connections::ROWS,
    tcp_buffers::ROWS,
    tcp_recovery::ROWS,
    net::ROWS,
    machine::ROWS,
    cpu::ROWS,
    device::ROWS,
    boot::ROWS,
    application::ROWS,
    obsolete::ROWS,
];

/// Returns all settings, in the order of the output.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|rows| rows.iter())
}

/// Returns the setting with this name.
///
/// A per-interface sysctl (`net.ipv4.conf.eth0.rp_filter`) has the row of `all`.
pub fn find_setting(name: &str) -> Option<&'static Setting> {
    let find = |name: &str| settings().find(|setting| setting.name == name);
    find(name).or_else(|| find(&general_name(name)?))
}

/// Returns the name of a per-interface sysctl for all interfaces.
fn general_name(name: &str) -> Option<String> {
    let (family, rest) = name.split_once(".conf.")?;
    let (_, leaf) = rest.rsplit_once('.')?;
    Some(format!("{family}.conf.all.{leaf}"))
}

/// Settings of which the kernel keeps one: a write of one sets the other to 0 (admin-guide/sysctl/vm).
pub const EXCLUSIVE_PAIRS: [(&str, &str); 3] = [
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.overcommit_kbytes", "vm.overcommit_ratio"),
];

pub fn counterpart(name: &str) -> Option<&'static str> {
    EXCLUSIVE_PAIRS.iter().find_map(|(first, second)| match name {
        _ if name == *first => Some(*second),
        _ if name == *second => Some(*first),
        _ => None,
    })
}

const ALL: &[Role] = &[Role::Client, Role::Proxy, Role::Origin];
const OPENING: &[Role] = &[Role::Client, Role::Proxy];
const ACCEPTING: &[Role] = &[Role::Proxy, Role::Origin];

/// Returns an advice whose value is worth a change by itself.
const fn advise(roles: &'static [Role], wanted: WantedValue, certainty: Certainty) -> Advice {
    Advice { roles, memory_gib_min: 0, wanted, certainty, unconditional: true }
}

/// Returns an advice that depends on the load.
const fn consider(roles: &'static [Role], wanted: WantedValue) -> Advice {
    Advice { roles, memory_gib_min: 0, wanted, certainty: Certainty::Judgement, unconditional: false }
}

/// Returns an advice for machines with at least this much memory.
const fn from_gib(memory_gib_min: u64, advice: Advice) -> Advice {
    Advice { memory_gib_min, ..advice }
}

/// Returns a rule: values under this condition are harmful.
const fn harmful(when: RuleCondition, certainty: Certainty, reason: &'static str) -> ValueRule {
    ValueRule { when, verdict: Assessment::Harmful, certainty, reason }
}

/// Returns a rule: values under this condition depend on the load.
const fn depends(when: RuleCondition, reason: &'static str) -> ValueRule {
    // A threshold is a judgement of weir.
    let certainty = match when {
        RuleCondition::Above(1..) | RuleCondition::Below(_) => Certainty::Judgement,
        _ => Certainty::Documented,
    };
    ValueRule { when, verdict: Assessment::Conditional, certainty, reason }
}

/// Returns a rule: values under this condition have no effect here.
const fn no_effect(when: RuleCondition, certainty: Certainty, reason: &'static str) -> ValueRule {
    ValueRule { when, verdict: Assessment::Obsolete, certainty, reason }
}

const fn v(major: u16, minor: u16) -> KernelVersion {
    KernelVersion(major, minor)
}

#[cfg(test)]
mod tests;
