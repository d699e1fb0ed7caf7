//! What is known of the machine and the programs around an experiment: read when it begins, held against
//! itself when it ends and when it is taken up again. What the machine does not tell is absent.
//!
//! Not for what differs between arms: that is in the plan. Not for what is read each second of a trial
//! either.

mod programs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use record::facts::HostFacts;
use record::run::Weir;

use super::folder::Start;
use crate::scenario::read::parse_cpus;
pub use programs::{Wanted, not_startable, not_there, program_file, started_by, version_of};

/// The most bytes of a file of the kernel that are read: each of these is a line.
const LINE_BYTES_MAX: u64 = 4096;
/// The most processors whose governor is looked at.
const CPUS_MAX: usize = 1024;
/// The most files of mitigations that are read: kernels have about twenty.
const MITIGATIONS_MAX: usize = 100;
/// Settings that appear when a module is loaded, which a trial's own firewall may do: one that was not
/// there before is no change.
const ON_DEMAND: &str = "sysctl net.netfilter.";

/// One fact, a line in a file.
#[derive(Clone, Copy, Debug)]
struct Fact {
    name: &'static str,
    path: &'static str,
    /// Whether the file lists all choices with the one in force in brackets.
    choice: bool,
}

/// The facts that are a line each. What they mean: `Documentation/admin-guide/mm/transhuge.rst`,
/// `Documentation/admin-guide/pm/{cpufreq,intel_pstate}.rst`, `Documentation/admin-guide/cputopology.rst`.
const FACTS: &[Fact] = &[
    fact("kernel", "/proc/sys/kernel/osrelease"),
    fact("kernel build", "/proc/sys/kernel/version"),
    fact("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    fact("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    fact("address space randomisation", "/proc/sys/kernel/randomize_va_space"),
    fact("simultaneous multithreading", "/sys/devices/system/cpu/smt/active"),
    fact("turbo off (intel_pstate)", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
    fact("boost (cpufreq)", "/sys/devices/system/cpu/cpufreq/boost"),
    fact("processors online", "/sys/devices/system/cpu/online"),
    choice("transparent hugepages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    choice("transparent hugepages, defragmentation", "/sys/kernel/mm/transparent_hugepage/defrag"),
];

const fn fact(name: &'static str, path: &'static str) -> Fact {
    Fact { name, path, choice: false }
}

const fn choice(name: &'static str, path: &'static str) -> Fact {
    Fact { name, path, choice: true }
}

/// Reads everything: the machine's facts, mitigations and settings, and the programs' versions. Starts each
/// program once with its flag for the version; takes a second, or a few where a program does not end.
#[must_use]
pub fn read(wanted: &Wanted) -> BTreeMap<String, String> {
    let mut known: BTreeMap<String, String> = FACTS
        .iter()
        .filter_map(|fact| Some((fact.name.to_owned(), fact.read(Path::new(fact.path))?)))
        .collect();
    let cpus = Path::new("/sys/devices/system/cpu");
    known.extend(governors(cpus).map(|text| ("governor".to_owned(), text)));
    known.extend(mitigations(&cpus.join("vulnerabilities")));
    let (settings, _) = host::settings::read(i32::try_from(std::process::id()).unwrap_or(0));
    known.extend(settings.into_iter().map(|(name, value)| (format!("sysctl {name}"), value)));
    known.extend(wanted.read());
    known
}

/// The processors that are online, in order; empty where the machine does not tell.
#[must_use]
pub fn cpus() -> Vec<u32> {
    let online = line(Path::new("/sys/devices/system/cpu/online"));
    online.and_then(|text| parse_cpus(&text)).unwrap_or_default()
}

impl Fact {
    fn read(&self, path: &Path) -> Option<String> {
        let line = line(path)?;
        if self.choice { chosen(&line).map(str::to_owned) } else { Some(line) }
    }
}

/// The first line of a small file, if there is one and something in it.
fn line(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LINE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// `madvise` of `always [madvise] never`.
fn chosen(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen)
}

/// The governors of the processors, each once.
fn governors(cpus: &Path) -> Option<String> {
    let of = |cpu: usize| line(&cpus.join(format!("cpu{cpu}/cpufreq/scaling_governor")));
    let mut names: Vec<String> = (0..CPUS_MAX).map_while(of).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

fn mitigations(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MITIGATIONS_MAX);
    let of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((format!("mitigation {name}"), line(&path)?))
    };
    entries.filter_map(|entry| of(entry.path())).collect()
}

/// What is other now than it was, in words: `governor: powersave, was performance`.
#[must_use]
pub fn changed(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
    names
        .filter_map(|name| match (before.get(name), now.get(name)) {
            (Some(was), Some(is)) if was != is => Some(format!("{name}: {is}, was {was}")),
            (Some(was), None) => Some(format!("{name}: not there any more, was {was}")),
            (None, Some(is)) if !name.starts_with(ON_DEMAND) => {
                Some(format!("{name}: {is}, was not there"))
            }
            _ => None,
        })
        .collect()
}

/// Where an experiment is about to be taken up again.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// Which weir.
    pub weir: Weir,
    /// The machine.
    pub host: HostFacts,
    /// What [`read`] gives.
    pub environment: BTreeMap<String, String>,
}

/// What of the machine, of weir and of the programs is other than when an experiment began, in words. Its
/// trials before and after would not have been measured by the same means.
#[must_use]
pub fn differs(start: &Start, here: &Here) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let weir = |weir: &Weir| format!("{} ({})", weir.version, weir.commit);
    let (was, is) = (&start.host, &here.host);
    let pairs = [
        ("weir", weir(&start.weir), weir(&here.weir)),
        ("machine", was.fingerprint.clone(), is.fingerprint.clone()),
        ("host name", text(&was.name), text(&is.name)),
        ("processor", text(&was.cpu_model), text(&is.cpu_model)),
        ("processors", was.cpus.to_string(), is.cpus.to_string()),
        ("operating system", text(&was.os), text(&is.os)),
    ];
    let differ = pairs.into_iter().filter(|(_, was, is)| was != is);
    let mut what: Vec<String> =
        differ.map(|(name, was, is)| format!("{name}: {is}, was {was}")).collect();
    what.extend(changed(&start.environment, &here.environment));
    what
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_fact_stands_once() {
        for (at, fact) in FACTS.iter().enumerate() {
            assert!(FACTS[..at].iter().all(|it| it.name != fact.name && it.path != fact.path));
        }
    }

    #[test]
    fn lines_and_choices_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("enabled");
        fs::write(&path, "always [madvise]\tnever\n").unwrap();
        assert_eq!(choice("x", "").read(&path).unwrap(), "madvise");
        assert_eq!(fact("x", "").read(&path).unwrap(), "always [madvise] never");
        fs::write(&path, "\n").unwrap();
        assert_eq!(fact("x", "").read(&path), None);
        assert_eq!(chosen("no choice"), None);
        assert_eq!(line(Path::new("/no/such/file")), None);
    }

    #[test]
    fn governors_are_named_once_and_mitigations_all() {
        let folder = tempfile::tempdir().unwrap();
        for (cpu, governor) in ["powersave", "performance", "powersave"].iter().enumerate() {
            let path = folder.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("scaling_governor"), governor).unwrap();
        }
        assert_eq!(governors(folder.path()).unwrap(), "performance, powersave");
        assert_eq!(governors(Path::new("/no/such")), None);
        let path = folder.path().join("vulnerabilities");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        let found = mitigations(&path);
        let expected = ("mitigation spectre_v2".to_owned(), "Mitigation: Retpolines".to_owned());
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_changed_is_said() {
        let before =
            map(&[("governor", "performance"), ("program nginx", "1.24"), ("kernel", "6")]);
        let now = map(&[
            ("governor", "powersave"),
            ("kernel", "6"),
            ("library x", "new"),
            ("sysctl net.netfilter.nf_conntrack_max", "262144"),
        ]);
        let expected = [
            "governor: powersave, was performance",
            "program nginx: not there any more, was 1.24",
            "library x: new, was not there",
        ];
        assert_eq!(changed(&before, &now), expected);
        assert!(changed(&before, &before).is_empty());
    }

    #[test]
    fn another_machine_or_weir_differs() {
        let start = Start::default();
        let mut here = Here::default();
        assert!(differs(&start, &here).is_empty());
        here.weir.version = "0.2.0".to_owned();
        here.host.cpus = 8;
        let what = differs(&start, &here);
        assert_eq!(what, ["weir: 0.2.0 (), was  ()", "processors: 8, was 0"]);
    }

    #[test]
    fn the_live_machine_is_read() {
        let known = read(&Wanted::default());
        assert!(known.contains_key("kernel"));
        assert!(!cpus().is_empty());
        assert!(known.keys().any(|name| name.starts_with("sysctl net.ipv4.")));
        assert!(changed(&known, &read(&Wanted::default())).is_empty());
    }
}
