//! Settings of a virtual link (veth(4)) inside of a network namespace: offloads, steering, queue length and queueing
//! discipline. A table of them, and functions that read and write one.
//!
//! Both act on the interfaces that this thread sees: run them in
//! [`super::namespace::run_with_sysfs_in_netns`]. Settings that a virtual link does not have (rings, interrupt delay)
//! are not in the table.

use std::io;
use std::process::{Command, Stdio};

use record::invalid_value;
use record::problem::InvalidValue;

use super::programs::find_program;
use crate::links::{DriverSetting, read_queues, write_offload, write_queues};
use crate::tuning::{interface_file, read_choice, read_driver, write_value};

/// Method to read and write a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSettingKind {
    /// Offload (ethtool(8)): 0 or 1.
    Offload(DriverSetting),
    /// File below `/sys/class/net/INTERFACE` with a number.
    Number(&'static str),
    /// File below `/sys/class/net/INTERFACE` with a mask of CPUs.
    CpuMask(&'static str),
    /// Root queueing discipline (tc(8)), without parameters.
    Qdisc,
    /// Receiving queues, and as many sending ones (ethtool(8), `-L`).
    Channels,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSetting {
    pub name: &'static str,
    pub kind: LinkSettingKind,
}

/// All settings, in the order of writing: segmentation needs checksums, and a new queueing discipline takes its
/// limit from the queue length.
pub const LINK_SETTINGS: &[LinkSetting] = &[
    LinkSetting { name: "channels", kind: LinkSettingKind::Channels },
    LinkSetting { name: "tx_checksum", kind: LinkSettingKind::Offload(DriverSetting::TxChecksum) },
    LinkSetting { name: "gso", kind: LinkSettingKind::Offload(DriverSetting::Gso) },
    LinkSetting { name: "tso", kind: LinkSettingKind::Offload(DriverSetting::Tso) },
    LinkSetting { name: "gro", kind: LinkSettingKind::Offload(DriverSetting::Gro) },
    LinkSetting { name: "rps_cpus", kind: LinkSettingKind::CpuMask("queues/rx-0/rps_cpus") },
    LinkSetting { name: "rps_flow_cnt", kind: LinkSettingKind::Number("queues/rx-0/rps_flow_cnt") },
    LinkSetting { name: "xps_cpus", kind: LinkSettingKind::CpuMask("queues/tx-0/xps_cpus") },
    LinkSetting { name: "threaded_napi", kind: LinkSettingKind::Number("threaded") },
    LinkSetting { name: "napi_defer_hard_irqs", kind: LinkSettingKind::Number("napi_defer_hard_irqs") },
    LinkSetting { name: "gro_flush_timeout", kind: LinkSettingKind::Number("gro_flush_timeout") },
    LinkSetting { name: "tx_queue_len", kind: LinkSettingKind::Number("tx_queue_len") },
    LinkSetting { name: "qdisc", kind: LinkSettingKind::Qdisc },
];

pub fn find_link_setting(name: &str) -> Option<&'static LinkSetting> {
    LINK_SETTINGS.iter().find(|setting| setting.name == name)
}

impl LinkSetting {
    /// Returns a value in the form in which the kernel reports it.
    ///
    /// # Errors
    /// The text is no value of this setting; the error says which values are.
    pub fn normalize(&self, value: &str) -> Result<String, InvalidValue> {
        let wrong = |values: &str| Err(invalid_value!("'{value}' is not {values}"));
        match self.kind {
            LinkSettingKind::Offload(_) => match value {
                "1" | "on" => Ok("1".to_owned()),
                "0" | "off" => Ok("0".to_owned()),
                _ => wrong("0 or 1"),
            },
            LinkSettingKind::Channels => match value.parse::<u32>() {
                Ok(number) if number > 0 => Ok(number.to_string()),
                _ => wrong("a number of queues"),
            },
            LinkSettingKind::Number(_) => match value.parse::<u64>() {
                Ok(number) => Ok(number.to_string()),
                Err(_) => wrong("a whole number"),
            },
            LinkSettingKind::CpuMask(_) => {
                let is_mask = |character: char| character.is_ascii_hexdigit() || character == ',';
                let digits = value.to_ascii_lowercase();
                let digits = digits.trim_start_matches(['0', ',']);
                match !value.is_empty() && value.chars().all(is_mask) {
                    true if digits.is_empty() => Ok("0".to_owned()),
                    true => Ok(digits.to_owned()),
                    false => wrong("a mask of CPUs in hexadecimal: 3 is CPU 0 and 1"),
                }
            }
            LinkSettingKind::Qdisc => {
                let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
                match !value.is_empty() && value.chars().all(is_name) {
                    true => Ok(value.to_owned()),
                    false => wrong("a queueing discipline without parameters: fq"),
                }
            }
        }
    }

    /// Reads the value of an interface, in the form of [`Self::normalize`].
    ///
    /// # Errors
    /// The interface does not have the setting, or the program `tc` fails.
    pub fn read(&self, interface: &str) -> io::Result<String> {
        let observed = match self.kind {
            LinkSettingKind::Offload(which) => read_driver(interface, which),
            LinkSettingKind::Number(file) | LinkSettingKind::CpuMask(file) => {
                read_choice(interface_file(interface, file))
            }
            LinkSettingKind::Qdisc => return root_qdisc(interface),
            LinkSettingKind::Channels => return read_queues(interface).map(|queues| queues.to_string()),
        };
        match observed {
            crate::tuning::ObservedValue::Value(text) => self.normalize(&text).map_err(io::Error::other),
            crate::tuning::ObservedValue::NotObservable(reason) => Err(io::Error::other(reason)),
            crate::tuning::ObservedValue::Absent => Err(io::Error::other("this kernel does not have it")),
        }
    }

    /// Writes a value in the form of [`Self::normalize`], and reads it back.
    ///
    /// # Errors
    /// The kernel rejects the value, or another one is in force afterwards.
    pub fn write(&self, interface: &str, value: &str) -> io::Result<()> {
        match self.kind {
            LinkSettingKind::Offload(which) => write_offload(interface, which, value == "1")?,
            LinkSettingKind::Number(file) | LinkSettingKind::CpuMask(file) => {
                write_value(&interface_file(interface, file), value)?;
            }
            LinkSettingKind::Channels => {
                write_queues(interface, value.parse().map_err(io::Error::other)?)?;
            }
            LinkSettingKind::Qdisc => {
                run_tc(&["qdisc", "replace", "dev", interface, "root", value])?;
            }
        }
        match self.read(interface)? {
            now if now == value => Ok(()),
            now => Err(io::Error::other(format!("the kernel keeps {now} instead of {value}"))),
        }
    }
}

fn root_qdisc(interface: &str) -> io::Result<String> {
    let text = run_tc(&["qdisc", "show", "dev", interface, "root"])?;
    parse_root_qdisc(&text).ok_or_else(|| io::Error::other("tc reports no root queueing discipline"))
}

/// Parses `qdisc fq 8001: root refcnt 2 …`.
fn parse_root_qdisc(text: &str) -> Option<String> {
    let mut words = text.lines().next()?.split_whitespace();
    let kind = words.by_ref().nth(1)?.to_owned();
    words.any(|word| word == "root").then_some(kind)
}

fn run_tc(arguments: &[&str]) -> io::Result<String> {
    let run = |program| Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = find_program("tc").and_then(run).map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::NotFound { " (install iproute2)" } else { "" };
        io::Error::new(error.kind(), format!("tc: {error}{hint}"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("tc {}: {}", arguments.join(" "), stderr.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_form_of_the_kernel() {
        let normalize = |name: &str, value: &str| find_link_setting(name).unwrap().normalize(value);
        for (name, value, expected) in [
            ("gro", "on", "1"),
            ("tx_queue_len", "0500", "500"),
            ("rps_cpus", "00000000,0000000A", "a"),
            ("rps_cpus", "0", "0"),
            ("qdisc", "fq_codel", "fq_codel"),
            ("channels", "02", "2"),
        ] {
            assert_eq!(normalize(name, value).as_deref(), Ok(expected), "{name} {value}");
        }
        for (name, value) in [
            ("gro", "2"),
            ("tx_queue_len", "x"),
            ("rps_cpus", "0-1"),
            ("qdisc", "fq limit 3"),
            ("channels", "0"),
        ] {
            assert!(normalize(name, value).is_err(), "{name} {value}");
        }
        assert_eq!(parse_root_qdisc("qdisc noqueue 0: root refcnt 2 \n").as_deref(), Some("noqueue"));
        assert_eq!(parse_root_qdisc(""), None);
        assert_eq!(find_link_setting("rx_ring"), None);
    }
}
