//! Machine facts: stored in a record so that its figures can be interpreted later, with a
//! fingerprint that keys a stored calibration.
//!
//! This module reads nothing that changes during a run, and nothing that a user would not want in a
//! record: no addresses, no serial numbers.
//!
//! Sources: uname(2), os-release(5), `/proc/cpuinfo`, `/proc/meminfo`,
//! `/sys/devices/system/cpu/online` (`Documentation/admin-guide/cputopology.rst`),
//! `/sys/devices/system/clocksource`, `/sys/class/dmi/id`, and [`crate::limits`].

use crate::kernel_file::{NotObservable, read_once};
use crate::limits::{self, Limits};

/// Facts about the machine. `None`: see `not_observable`, except for `virtualised`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The kernel's release, such as "6.18.44".
    pub kernel: String,
    /// `PRETTY_NAME` of the distribution.
    pub os: Option<String>,
    pub cpu_model: Option<String>,
    /// CPUs online; a process may be allowed fewer.
    pub cpus_online: Option<u32>,
    /// Memory available to the kernel, in bytes.
    pub memory_bytes: Option<u64>,
    pub hostname: String,
    /// The default congestion control of new TCP sockets.
    pub congestion_control: Option<String>,
    /// The kernel's clock source; anything but "tsc" or "arch_sys_counter" makes each clock reading
    /// more expensive.
    pub clocksource: Option<String>,
    /// Hard limit of descriptors for this process; `u64::MAX` is no limit.
    pub nofile_hard: u64,
    /// First and last port of outgoing connections.
    pub port_range: Option<(u16, u16)>,
    /// Maximum length of a listener's accept queue.
    pub somaxconn: Option<u32>,
    /// Detected sign of a virtual machine or a container; `None` if there is none.
    pub virtualised: Option<String>,
    /// 16 hexadecimal digits: a hash of the CPU's name, the number of online CPUs, the kernel's
    /// first two version numbers and the memory in whole GiB. It is equal on machines that may
    /// have the same calibration. The hash (FNV-1a, 64 bits) is part of the stored format and does not
    /// change.
    pub fingerprint: String,
    /// Facts that could not be read.
    pub not_observable: Vec<NotObservable>,
}

/// Reads the facts. Costs some tens of small files; meant for the start of a run.
pub fn read() -> HostFacts {
    let Limits { nofile_hard, port_range, somaxconn, congestion_control, not_observable: missing, .. } =
        limits::read();
    let uname = rustix::system::uname();
    let mut facts = HostFacts {
        kernel: uname.release().to_string_lossy().into_owned(),
        hostname: uname.nodename().to_string_lossy().into_owned(),
        congestion_control,
        nofile_hard,
        port_range,
        somaxconn,
        not_observable: missing,
        ..HostFacts::default()
    };
    facts.os = facts.read_field("distribution", "/etc/os-release", parse_pretty_name);
    facts.cpu_model = facts.read_field("CPU model", "/proc/cpuinfo", parse_cpu_model);
    let online = "/sys/devices/system/cpu/online";
    facts.cpus_online = facts.read_field("online CPUs", online, parse_cpu_list_count);
    facts.memory_bytes = facts.read_field("memory", "/proc/meminfo", parse_memory_bytes);
    let clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    facts.clocksource = facts.read_field("clock source", clocksource, |text| Some(text.to_owned()));
    facts.virtualised = VirtualizationHints::read().describe();
    facts.fingerprint = fingerprint(&facts);
    facts
}

impl HostFacts {
    fn read_field<T>(
        &mut self,
        figure: &'static str,
        path: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = read_once(figure, path)
            .and_then(|text| parse(&text).ok_or_else(|| NotObservable::bad_format(figure, path)));
        parsed.map_err(|error| self.not_observable.push(error)).ok()
    }
}

/// Texts that reveal a virtual machine or a container; each is empty if its file is missing.
#[derive(Debug, Default)]
struct VirtualizationHints {
    cpuinfo: String,
    vendor: String,
    product: String,
    hypervisor: String,
    container: String,
}

impl VirtualizationHints {
    fn read() -> Self {
        let text = |path| read_once("sign of virtualisation", path).unwrap_or_default();
        let mut container = text("/run/systemd/container");
        for (file, name) in [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")] {
            if container.is_empty() && std::path::Path::new(file).exists() {
                name.clone_into(&mut container);
            }
        }
        Self {
            cpuinfo: text("/proc/cpuinfo"),
            vendor: text("/sys/class/dmi/id/sys_vendor"),
            product: text("/sys/class/dmi/id/product_name"),
            hypervisor: text("/sys/hypervisor/type"),
            container,
        }
    }

    fn describe(&self) -> Option<String> {
        let mut hints = Vec::new();
        let dmi = format!("{} {}", self.vendor, self.product);
        if VIRTUAL_VENDORS.iter().any(|name| dmi.contains(name)) {
            hints.push(format!("virtual machine ({})", dmi.trim()));
        } else if !self.hypervisor.is_empty() {
            hints.push(format!("virtual machine ({})", self.hypervisor));
        } else if has_hypervisor_flag(&self.cpuinfo) {
            hints.push("virtual machine (hypervisor CPU flag)".to_owned());
        }
        if !self.container.is_empty() {
            hints.push(format!("container ({})", self.container));
        }
        (!hints.is_empty()).then(|| hints.join(", "))
    }
}

/// Names in the DMI vendor or product of virtual machines. Bare-metal cloud machines carry the
/// cloud's vendor name too ("Amazon EC2", product "*.metal"), so that name is not listed. The
/// virtual machines of those clouds show by the CPU's flag.
const VIRTUAL_VENDORS: [&str; 9] =
    ["QEMU", "KVM", "VMware", "VirtualBox", "innotek", "Xen", "Bochs", "Parallels", "Google Compute Engine"];

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    find_value(cpuinfo, "flags")
        .is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

fn parse_pretty_name(text: &str) -> Option<String> {
    let quoted = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let name = quoted.trim().trim_matches(['"', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns "model name" on x86; on Arm the kernel gives only the numbers of implementer and part.
fn parse_cpu_model(text: &str) -> Option<String> {
    if let Some(name) = find_value(text, "model name").or_else(|| find_value(text, "cpu model")) {
        return Some(name.to_owned());
    }
    let (implementer, part) = (find_value(text, "CPU implementer")?, find_value(text, "CPU part")?);
    Some(format!("Arm implementer {implementer} part {part}"))
}

/// Returns the value of the first line "name\t: value".
fn find_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim()).filter(|value| !value.is_empty())
    })
}

/// Returns the number of CPUs in a list such as "0-3,8".
fn parse_cpu_list_count(text: &str) -> Option<u32> {
    let mut count = 0;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

fn parse_memory_bytes(text: &str) -> Option<u64> {
    let kib: u64 = find_value(text, "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn fingerprint(facts: &HostFacts) -> String {
    const GIB: u64 = 1 << 30;
    let memory_gib = facts.memory_bytes.map(|bytes| (bytes + GIB / 2) / GIB);
    let key = format!(
        "{}|{}|{}|{}",
        facts.cpu_model.as_deref().unwrap_or("?"),
        facts.cpus_online.map_or_else(|| "?".to_owned(), |count| count.to_string()),
        kernel_series(&facts.kernel),
        memory_gib.map_or_else(|| "?".to_owned(), |gib| gib.to_string()),
    );
    format!("{:016x}", fnv1a(key.as_bytes()))
}

/// Returns "6.18" for "6.18.44-cloud".
fn kernel_series(release: &str) -> &str {
    let minor_ends = release.match_indices(|c: char| !c.is_ascii_digit()).nth(1);
    minor_ends.map_or(release, |(at, _)| &release[..at])
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\n\
        model name\t: AMD EPYC\nflags\t\t: fpu vme hypervisor lahf_lm\npower management:\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\n\
        CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n";

    #[test]
    fn the_cpu_has_a_name_on_each_architecture() {
        assert_eq!(parse_cpu_model(X86).as_deref(), Some("AMD EPYC"));
        assert_eq!(parse_cpu_model(ARM).as_deref(), Some("Arm implementer 0x41 part 0xd40"));
        assert_eq!(parse_cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn small_files_are_parsed() {
        let os = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(parse_pretty_name(os).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(parse_pretty_name("PRETTY_NAME=Void\n").as_deref(), Some("Void"));
        assert_eq!(parse_cpu_list_count("0-1\n"), Some(2));
        assert_eq!(parse_cpu_list_count("0,2-5,9"), Some(6));
        assert_eq!(parse_cpu_list_count("5-2"), None);
        assert_eq!(parse_cpu_list_count(""), None);
        let memory = "MemTotal:       24684096 kB\nMemFree:        24338992 kB\n";
        assert_eq!(parse_memory_bytes(memory), Some(24_684_096 * 1024));
        assert_eq!(kernel_series("6.18.44-fc"), "6.18");
        assert_eq!(kernel_series("6.18-rc1"), "6.18");
        assert_eq!(kernel_series("6"), "6");
    }

    #[test]
    fn virtual_machines_and_containers_show() {
        let check = |hints: VirtualizationHints, expected: Option<&str>| {
            assert_eq!(hints.describe().as_deref(), expected);
        };
        check(VirtualizationHints::default(), None);
        check(
            VirtualizationHints { cpuinfo: X86.to_owned(), ..VirtualizationHints::default() },
            Some("virtual machine (hypervisor CPU flag)"),
        );
        check(
            VirtualizationHints {
                vendor: "QEMU".to_owned(),
                product: "Standard PC".to_owned(),
                container: "docker".to_owned(),
                ..VirtualizationHints::default()
            },
            Some("virtual machine (QEMU Standard PC), container (docker)"),
        );
        check(
            VirtualizationHints {
                vendor: "Amazon EC2".to_owned(),
                product: "c7g.metal".to_owned(),
                cpuinfo: ARM.to_owned(),
                ..VirtualizationHints::default()
            },
            None,
        );
    }

    #[test]
    fn the_fingerprint_ignores_what_an_update_changes() {
        let facts = HostFacts {
            kernel: "6.18.44".to_owned(),
            cpu_model: Some("AMD EPYC".to_owned()),
            cpus_online: Some(2),
            memory_bytes: Some(24_684_096 * 1024),
            ..HostFacts::default()
        };
        // Stored calibrations are keyed by this very value.
        assert_eq!(fingerprint(&facts), "bad63b96a497eb7d");
        let updated = HostFacts {
            kernel: "6.18.45-cloud".to_owned(),
            memory_bytes: Some(24_684_000 * 1024),
            hostname: "other".to_owned(),
            ..facts.clone()
        };
        assert_eq!(fingerprint(&updated), fingerprint(&facts));
        let larger = HostFacts { cpus_online: Some(4), ..facts.clone() };
        assert_ne!(fingerprint(&larger), fingerprint(&facts));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_live_host_is_read() {
        let facts = read();
        assert!(!facts.kernel.is_empty());
        assert_eq!(facts.fingerprint.len(), 16);
        assert_eq!(facts.fingerprint, read().fingerprint);
    }
}
