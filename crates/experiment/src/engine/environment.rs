//! Facts about the machine and the programs of an experiment. They are read at the start, and
//! compared at the end and on resume. Facts that the machine does not report are absent.
//!
//! Not for differences between arms: the plan has them. Not for values that are sampled each second
//! of a trial.

mod programs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use record::document::table::parse_cpus;
use record::facts::HostFacts;
use record::run::WeirVersion;
use record::sorted::CollectSorted;

use super::experiment_dir::ExperimentStart;
pub use programs::{
    ExecutableSet, missing_libraries, program_file, program_name, program_version, start_problem,
};

/// Maximum number of bytes to read from a kernel file: each of these is a line.
const LINE_BYTES_MAX: u64 = 4096;
/// Maximum number of CPUs whose governor is read.
const CPUS_MAX: usize = 1024;
/// Maximum number of mitigation files to read: kernels have about twenty.
const MITIGATIONS_MAX: usize = 100;
/// Prefix of settings that appear when a kernel module is loaded, for example by a trial's own
/// firewall. A new setting with this prefix is no change.
const ON_DEMAND_PREFIX: &str = "sysctl net.netfilter.";

/// Fact in the first line of a file.
#[derive(Clone, Copy, Debug)]
struct FactSource {
    name: &'static str,
    path: &'static str,
    /// True if the file lists all choices, with the active one in brackets.
    is_choice: bool,
}

/// Facts of one line each. Their meaning: `Documentation/admin-guide/mm/transhuge.rst`,
/// `Documentation/admin-guide/pm/{cpufreq,intel_pstate}.rst`,
/// `Documentation/admin-guide/cputopology.rst`.
const FACTS: &[FactSource] = &[
    fact("kernel", "/proc/sys/kernel/osrelease"),
    fact("kernel build", "/proc/sys/kernel/version"),
    fact("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    fact("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    fact("address space randomisation", "/proc/sys/kernel/randomize_va_space"),
    fact("simultaneous multithreading", "/sys/devices/system/cpu/smt/active"),
    fact("turbo off (intel_pstate)", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
    fact("boost (cpufreq)", "/sys/devices/system/cpu/cpufreq/boost"),
    fact("CPUs online", "/sys/devices/system/cpu/online"),
    choice_fact("transparent hugepages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    choice_fact("transparent hugepages, defragmentation", "/sys/kernel/mm/transparent_hugepage/defrag"),
];

const fn fact(name: &'static str, path: &'static str) -> FactSource {
    FactSource { name, path, is_choice: false }
}

const fn choice_fact(name: &'static str, path: &'static str) -> FactSource {
    FactSource { name, path, is_choice: true }
}

/// Reads the facts, mitigations and settings of the machine, and the versions of the programs. It
/// starts each program once with its version flag. This takes a second, or a few if a program does
/// not end.
pub fn read(executables: &ExecutableSet) -> BTreeMap<String, String> {
    let mut facts: BTreeMap<String, String> = FACTS
        .iter()
        .filter_map(|fact| Some((fact.name.to_owned(), fact.read(Path::new(fact.path))?)))
        .collect_map();
    let cpus = Path::new("/sys/devices/system/cpu");
    facts.extend(governors(cpus).map(|text| ("governor".to_owned(), text)));
    facts.extend(mitigations(&cpus.join("vulnerabilities")));
    let (settings, _) = host::settings::read(i32::try_from(std::process::id()).unwrap_or(0));
    facts.extend(settings.into_iter().map(|(name, value)| (format!("sysctl {name}"), value)));
    facts.extend(executables.read());
    facts
}

/// Returns the online CPUs in ascending order; empty if the machine does not report them.
pub fn cpus() -> Vec<u32> {
    let online = first_line(Path::new("/sys/devices/system/cpu/online"));
    online.and_then(|text| parse_cpus(&text)).unwrap_or_default()
}

impl FactSource {
    fn read(&self, path: &Path) -> Option<String> {
        let line = first_line(path)?;
        if self.is_choice { active_choice(&line).map(str::to_owned) } else { Some(line) }
    }
}

/// Returns the first line of a small file, unless it is empty.
fn first_line(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LINE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// Returns the active choice: `madvise` for `always [madvise] never`.
fn active_choice(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen)
}

/// Returns the CPU governors without duplicates.
fn governors(cpus: &Path) -> Option<String> {
    let governor_of = |cpu: usize| first_line(&cpus.join(format!("cpu{cpu}/cpufreq/scaling_governor")));
    let mut names: Vec<String> = (0..CPUS_MAX).map_while(governor_of).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

fn mitigations(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MITIGATIONS_MAX);
    let mitigation = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((format!("mitigation {name}"), first_line(&path)?))
    };
    entries.filter_map(|entry| mitigation(entry.path())).collect()
}

/// Describes the differences between two sets of facts: `governor: powersave, was performance`.
pub fn changed_facts(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
    names
        .filter_map(|name| match (before.get(name), now.get(name)) {
            (Some(was), Some(is)) if was != is => Some(format!("{name}: {is}, was {was}")),
            (Some(was), None) => Some(format!("{name}: missing, was {was}")),
            (None, Some(is)) if !name.starts_with(ON_DEMAND_PREFIX) => {
                Some(format!("{name}: {is}, was missing"))
            }
            _ => None,
        })
        .collect()
}

/// Environment in which an experiment is about to be resumed.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentFacts {
    pub weir: WeirVersion,
    pub host: HostFacts,
    /// Result of [`read`].
    pub environment: BTreeMap<String, String>,
}

/// Describes the differences in the machine, weir and the programs since the experiment's start.
/// Trials before and after such a change are not comparable.
pub fn environment_differences(start: &ExperimentStart, current: &EnvironmentFacts) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let weir = |weir: &WeirVersion| format!("{} ({})", weir.version, weir.commit);
    let (was, is) = (&start.host, &current.host);
    let pairs = [
        ("weir", weir(&start.weir), weir(&current.weir)),
        ("machine", was.fingerprint.clone(), is.fingerprint.clone()),
        ("host name", text(&was.name), text(&is.name)),
        ("CPU model", text(&was.cpu_model), text(&is.cpu_model)),
        ("CPUs", was.cpus.to_string(), is.cpus.to_string()),
        ("operating system", text(&was.os), text(&is.os)),
    ];
    let differ = pairs.into_iter().filter(|(_, was, is)| was != is);
    let mut differences: Vec<String> =
        differ.map(|(name, was, is)| format!("{name}: {is}, was {was}")).collect();
    differences.extend(changed_facts(&start.environment, &current.environment));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_fact_occurs_once() {
        for (at, fact) in FACTS.iter().enumerate() {
            assert!(FACTS[..at].iter().all(|it| it.name != fact.name && it.path != fact.path));
        }
    }

    #[test]
    fn lines_and_choices_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("enabled");
        fs::write(&path, "always [madvise]\tnever\n").unwrap();
        assert_eq!(choice_fact("x", "").read(&path).unwrap(), "madvise");
        assert_eq!(fact("x", "").read(&path).unwrap(), "always [madvise] never");
        fs::write(&path, "\n").unwrap();
        assert_eq!(fact("x", "").read(&path), None);
        assert_eq!(active_choice("no choice"), None);
        assert_eq!(first_line(Path::new("/no/such/file")), None);
    }

    #[test]
    fn governors_are_named_once_and_mitigations_all() {
        let directory = tempfile::tempdir().unwrap();
        for (cpu, governor) in ["powersave", "performance", "powersave"].iter().enumerate() {
            let path = directory.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("scaling_governor"), governor).unwrap();
        }
        assert_eq!(governors(directory.path()).unwrap(), "performance, powersave");
        assert_eq!(governors(Path::new("/no/such")), None);
        let path = directory.path().join("vulnerabilities");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        let entries = mitigations(&path);
        let expected = ("mitigation spectre_v2".to_owned(), "Mitigation: Retpolines".to_owned());
        assert_eq!(entries, [expected]);
    }

    #[test]
    fn changed_facts_are_reported() {
        let before = map(&[("governor", "performance"), ("program nginx", "1.24"), ("kernel", "6")]);
        let now = map(&[
            ("governor", "powersave"),
            ("kernel", "6"),
            ("library x", "new"),
            ("sysctl net.netfilter.nf_conntrack_max", "262144"),
        ]);
        let expected = [
            "governor: powersave, was performance",
            "program nginx: missing, was 1.24",
            "library x: new, was missing",
        ];
        assert_eq!(changed_facts(&before, &now), expected);
        assert!(changed_facts(&before, &before).is_empty());
    }

    #[test]
    fn another_machine_or_weir_differs() {
        let start = ExperimentStart::default();
        let mut environment = EnvironmentFacts::default();
        assert!(environment_differences(&start, &environment).is_empty());
        environment.weir.version = "0.2.0".to_owned();
        environment.host.cpus = 8;
        let differences = environment_differences(&start, &environment);
        assert_eq!(differences, ["weir: 0.2.0 (), was  ()", "CPUs: 8, was 0"]);
    }

    #[test]
    fn the_live_machine_is_read() {
        let facts = read(&ExecutableSet::default());
        assert!(facts.contains_key("kernel"));
        assert!(!cpus().is_empty());
        assert!(facts.keys().any(|name| name.starts_with("sysctl net.ipv4.")));
        assert!(changed_facts(&facts, &read(&ExecutableSet::default())).is_empty());
    }
}
