//! Reads single host settings by name, and writes them. The only module of this crate that changes the
//! host: its caller journals the old value first.
//!
//! Sources: sysctl(8), `/sys/class/net` (`Documentation/ABI/testing/sysfs-class-net`), ethtool(8),
//! `/proc/cmdline`, `/proc/modules`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::cgroup;
pub use crate::links::DriverSetting;
use crate::links::read_driver_setting;

/// Value of a setting, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedValue {
    /// Value, with single blanks between fields.
    Value(String),
    /// This kernel, or this network namespace, does not have the setting.
    Absent,
    /// The setting cannot be read here, with the reason.
    NotObservable(String),
}

impl ObservedValue {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns the file of a sysctl. As in sysctl(8), `.` and `/` separate the parts, and the other of
/// the two stands for a dot within a part. `None` for an invalid name.
pub fn sysctl_path(name: &str) -> Option<PathBuf> {
    let separator = name.chars().find(|character| "./".contains(*character))?;
    let is_valid = |character: char| character.is_ascii_alphanumeric() || "._-/:@+".contains(character);
    let swap = |character: char| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = if separator == '.' { name.chars().map(swap).collect() } else { name.to_owned() };
    let is_inside = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    (name.chars().all(is_valid) && is_inside).then(|| Path::new("/proc/sys").join(path))
}

/// Directories of `/sys` with settings of the machine.
const SETTING_DIRECTORIES: [&str; 5] =
    ["/sys/devices/system", "/sys/kernel/mm", "/sys/class/net", "/sys/block", "/sys/module"];
/// Files that name a program, or text or firmware that the kernel runs: whoever writes them becomes root.
const PROGRAM_FILES: [&str; 7] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/kernel/usermodehelper",
    "/proc/sys/fs/binfmt_misc",
    "/sys/module/firmware_class",
];

/// Returns whether a file is a setting of the machine that weir changes and restores: a sysctl that names no
/// program, or a file of certain directories of `/sys`.
pub fn is_host_setting(path: &Path) -> bool {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir));
    let is_below = |directory: &&str| path.starts_with(directory) && path != Path::new(directory);
    let names_program = PROGRAM_FILES.iter().any(|program| path.starts_with(program));
    let is_setting = is_below(&"/proc/sys") || SETTING_DIRECTORIES.iter().any(is_below);
    is_plain && is_setting && !names_program
}

/// Returns the directories of `/sys` with settings, for messages.
pub fn setting_directories() -> String {
    SETTING_DIRECTORIES.join(", ")
}

/// Reads a sysctl of this thread's network namespace.
pub fn read_sysctl(name: &str) -> ObservedValue {
    match sysctl_path(name) {
        Some(path) => read_choice(&path),
        None => ObservedValue::Absent,
    }
}

/// Reads a file with one value. If it lists choices, the value is the one in brackets.
pub fn read_choice(path: impl AsRef<Path>) -> ObservedValue {
    let path = path.as_ref();
    match fs::read(path) {
        Ok(bytes) => ObservedValue::Value(normalize(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Files of the CPU's frequency and idle states are missing on machines without them.
            if path.starts_with("/sys") {
                ObservedValue::NotObservable(format!("no {}", path.display()))
            } else {
                ObservedValue::Absent
            }
        }
        Err(error) => ObservedValue::NotObservable(format!("{}: {error}", path.display())),
    }
}

/// Returns the chosen word, or the fields with single blanks.
fn normalize(text: &str) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((word, _)) => word.to_owned(),
        None => text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Writes a value to a file of the kernel, in one write.
///
/// # Errors
/// The file does not exist, may not be written, or the kernel rejects the value.
pub fn write_value(path: &Path, value: &str) -> io::Result<()> {
    let explain = |error: io::Error, hint: &str| {
        let hint = if error.kind() == io::ErrorKind::PermissionDenied { " (run as root)" } else { hint };
        io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
    };
    let mut file = File::options().write(true).open(path).map_err(|error| explain(error, ""))?;
    file.write_all(format!("{value}\n").as_bytes()).map_err(|error| {
        // The file exists, so what a write does not find is named by the value: a congestion control.
        let is_value = [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound].contains(&error.kind());
        explain(error, if is_value { " (the kernel rejects this value)" } else { "" })
    })
}

/// Returns the network interfaces with a device, by name; without any, all except loopback.
pub fn interfaces() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // A device without its own directory is a name only (bonding_masters).
    let is_device = |name: &String| name != "lo" && Path::new("/sys/class/net").join(name).is_dir();
    let mut names: Vec<String> = names.filter(is_device).take(crate::links::MAX_LINKS).collect();
    names.sort();
    let has_driver = |name: &String| Path::new("/sys/class/net").join(name).join("device").exists();
    let with_driver: Vec<String> = names.iter().filter(|name| has_driver(name)).cloned().collect();
    if with_driver.is_empty() { names } else { with_driver }
}

pub fn interface_file(interface: &str, file: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join(file)
}

pub fn read_driver(interface: &str, setting: DriverSetting) -> ObservedValue {
    match read_driver_setting(interface, setting) {
        Ok(text) => ObservedValue::Value(text),
        Err(error) => ObservedValue::NotObservable(format!("the driver does not report it: {error}")),
    }
}

/// Returns the soft limit of open files of this process.
pub fn nofile_soft() -> ObservedValue {
    limit(Resource::Nofile)
}

/// Returns the soft limit of locked memory of this process, in bytes.
pub fn memlock_soft() -> ObservedValue {
    limit(Resource::Memlock)
}

fn limit(resource: Resource) -> ObservedValue {
    let current = getrlimit(resource).current;
    ObservedValue::Value(current.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()))
}

/// Returns the CPU quota of this process: `max`, or a number of CPUs. The tightest of all parents.
pub fn cgroup_quota() -> ObservedValue {
    let (Ok(memberships), Ok(mounts)) =
        (fs::read_to_string("/proc/self/cgroup"), fs::read_to_string("/proc/self/mountinfo"))
    else {
        return ObservedValue::NotObservable("no control groups".to_owned());
    };
    let mounts = cgroup::parse_mounts(&mounts);
    let read = |directory: &str, file: &str| fs::read_to_string(Path::new(directory).join(file)).ok();
    let mut quotas = Vec::new();
    for directory in
        cgroup::group_directories(&memberships, &mounts, cgroup::Controller::V2).unwrap_or_default()
    {
        quotas.extend(read(&directory, "cpu.max").and_then(|text| cgroup::parse_cpu_max(&text)));
    }
    let v1 = cgroup::group_directories(&memberships, &mounts, cgroup::Controller::V1("cpu"));
    for directory in v1.unwrap_or_default() {
        let (quota, period) = (read(&directory, "cpu.cfs_quota_us"), read(&directory, "cpu.cfs_period_us"));
        let parsed = quota.zip(period).and_then(|(quota, period)| cgroup::parse_cfs(&quota, &period));
        quotas.extend(parsed);
    }
    let cpus = quotas.iter().flatten().map(cgroup::Quota::cpus).min_by(f64::total_cmp);
    ObservedValue::Value(cpus.map_or_else(|| "max".to_owned(), |cpus| format!("{cpus}")))
}

/// Returns the value of a boot parameter: `1` for one without a value.
pub fn boot_parameter(name: &str) -> ObservedValue {
    match fs::read_to_string("/proc/cmdline") {
        Ok(line) => parse_boot_parameter(&line, name),
        Err(error) => ObservedValue::NotObservable(format!("/proc/cmdline: {error}")),
    }
}

fn parse_boot_parameter(line: &str, name: &str) -> ObservedValue {
    let words = line.split_whitespace().take_while(|word| *word != "--");
    let values = words.filter_map(|word| match word.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (word == name).then_some("1"),
    });
    values.last().map_or(ObservedValue::Absent, |value| ObservedValue::Value(value.to_owned()))
}

/// Returns `loaded` or `built in` for a kernel module that is present.
pub fn module_state(name: &str) -> ObservedValue {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    if modules.lines().any(|line| line.split(' ').next() == Some(name)) {
        return ObservedValue::Value("loaded".to_owned());
    }
    if Path::new("/sys/module").join(name).is_dir() {
        return ObservedValue::Value("built in".to_owned());
    }
    ObservedValue::Absent
}

/// Returns the congestion controls that have a module for the kernel of this release, without those that are built
/// in: a write of such a name loads the module.
pub fn congestion_modules(release: &str) -> Vec<String> {
    let directory = Path::new("/lib/modules").join(release);
    let list = fs::read_to_string(directory.join("modules.dep")).unwrap_or_default();
    let files = list.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next());
    let names = files.filter_map(|file| file.strip_prefix("tcp_")?.split('.').next());
    names.map(str::to_owned).collect()
}

/// Returns whether the mode of a file allows its owner to write it.
pub fn is_writable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o200 != 0)
}

pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns the names of all sysctls that are visible here, and whether they can be written. A dot in a part of a name
/// is a slash, as in sysctl(8).
pub fn sysctl_names() -> BTreeMap<String, bool> {
    let mut names = BTreeMap::new();
    let mut directories = vec![PathBuf::from("/proc/sys")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory {
                directories.push(path);
            } else if let Ok(relative) = path.strip_prefix("/proc/sys") {
                let swap = |character: char| {
                    if character == '/' {
                        '.'
                    } else if character == '.' {
                        '/'
                    } else {
                        character
                    }
                };
                let name = relative.to_string_lossy().chars().map(swap).collect();
                names.insert(name, is_writable(&path));
            }
            if names.len() >= MAX_SYSCTLS {
                return names;
            }
        }
    }
    names
}

/// Maximum number of sysctls that are listed.
const MAX_SYSCTLS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sysctl() {
        let path = |name| sysctl_path(name).map(|path| path.display().to_string());
        assert_eq!(path("net.core.somaxconn").unwrap(), "/proc/sys/net/core/somaxconn");
        assert_eq!(
            path("net/ipv4/conf/eth0.1/rp_filter").unwrap(),
            "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"
        );
        assert_eq!(
            path("net.ipv4.conf.eth0/1.rp_filter").unwrap(),
            "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"
        );
        for invalid in ["", "net", "net..x", "net/../../etc/passwd", "net.core.a b", "../x", "net./.x"] {
            assert_eq!(path(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn settings_name_no_program() {
        let is_setting = |path: &str| is_host_setting(Path::new(path));
        for path in [
            "/proc/sys/vm/swappiness",
            "/proc/sys/kernel/sched_rt_runtime_us",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/class/net/eth0/tx_queue_len",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "/sys/module/tcp_cubic/parameters/hystart",
        ] {
            assert!(is_setting(path), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/proc/sys",
            "/proc/sysrq-trigger",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/fs/binfmt_misc/register",
            "/proc/sys/net/../kernel/core_pattern",
            "/sys/kernel/uevent_helper",
            "/sys/module/firmware_class/parameters/path",
            "/sys/fs/cgroup/release_agent",
            "/sys/kernel/mmx",
            "proc/sys/vm/swappiness",
            "vm/swappiness",
            "",
        ] {
            assert!(!is_setting(path), "{path}");
        }
    }

    #[test]
    fn values_are_normalized() {
        assert_eq!(normalize("always [madvise] never\n"), "madvise");
        assert_eq!(normalize("4096\t131072\t6291456\n"), "4096 131072 6291456");
        let line = "quiet mitigations=off mitigations=auto nosmt -- mitigations=no";
        assert_eq!(parse_boot_parameter(line, "mitigations").text(), Some("auto"));
        assert_eq!(parse_boot_parameter(line, "nosmt").text(), Some("1"));
        assert_eq!(parse_boot_parameter(line, "idle"), ObservedValue::Absent);
    }

    #[test]
    fn live_settings_are_read() {
        assert!(read_sysctl("net.core.somaxconn").text().is_some());
        assert_eq!(read_sysctl("net.ipv4.tcp_tw_recycle"), ObservedValue::Absent);
        assert!(matches!(read_choice("/sys/no/such"), ObservedValue::NotObservable(_)));
        assert!(nofile_soft().text().is_some() && cgroup_quota().text().is_some());
        assert!(sysctl_names().get("net.ipv4.tcp_rmem") == Some(&true));
        assert!(page_bytes() >= 4096);
        assert_eq!(module_state("no_such_module"), ObservedValue::Absent);
        for interface in interfaces() {
            assert!(read_choice(interface_file(&interface, "mtu")).text().is_some(), "{interface}");
        }
    }

    #[test]
    fn a_rejected_write_names_the_file() {
        let error = write_value(Path::new("/proc/sys/no/such"), "1").unwrap_err().to_string();
        assert!(error.contains("/proc/sys/no/such"), "{error}");
        let directory = std::env::temp_dir().join(format!("host-tuning-{}", std::process::id()));
        fs::write(&directory, "old").unwrap();
        write_value(&directory, "new").unwrap();
        assert_eq!(fs::read_to_string(&directory).unwrap(), "new\n");
        fs::remove_file(&directory).unwrap();
    }
}
