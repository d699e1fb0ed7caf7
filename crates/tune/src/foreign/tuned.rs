//! Profiles of tuned (tuned.conf(5), tuned-profiles(7)).

use std::collections::BTreeMap;

use record::sorted::CollectSorted;

use super::parse::{ForeignLine, WriteCondition, canonical_name, one_line, significant_lines, split_comment};

/// Name of the file in the directory of a profile.
pub const PROFILE_FILE: &str = "tuned.conf";
/// Directories with profiles, the first one wins.
pub const PROFILE_DIRECTORIES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
/// Parts of sysctl names that no key of another plugin starts with.
const SYSCTL_STARTS: [&str; 7] = ["net.", "vm.", "kernel.", "fs.", "net/", "kernel/", "fs/"];
/// Keys of every section, which set nothing.
const CONTROL_KEYS: [&str; 11] = [
    "type",
    "enabled",
    "devices",
    "devices_udev_regex",
    "replace",
    "priority",
    "script_pre",
    "script_post",
    "drop",
    "cpuinfo_regex",
    "uname_regex",
];

fn section_name(line: &str) -> Option<&str> {
    Some(split_comment(line).0.strip_prefix('[')?.strip_suffix(']')?.trim())
}

/// Returns whether a text is a profile: it starts with a section, and has no sysctl outside of a section for them.
pub(super) fn is_profile(text: &str) -> bool {
    let starts = significant_lines(text).next().is_some_and(|(_, line)| section_name(line).is_some());
    let sections = Sections::new(text);
    let is_foreign = |(_, section, line): &(usize, &str, &str)| {
        let is_sysctl = SYSCTL_STARTS.iter().any(|start| line.trim_start_matches('-').starts_with(start));
        is_sysctl && sections.plugin(section) != "sysctl"
    };
    starts && !sections.lines.iter().any(is_foreign)
}

/// Lines of a profile with their sections.
struct Sections<'a> {
    lines: Vec<(usize, &'a str, &'a str)>,
    /// Values of control keys by section and key.
    control: BTreeMap<(&'a str, &'a str), &'a str>,
}

impl<'a> Sections<'a> {
    fn new(text: &'a str) -> Self {
        let mut section = "";
        let mut sections = Self { lines: Vec::new(), control: BTreeMap::new() };
        for (at, line) in significant_lines(text) {
            if let Some(name) = section_name(line) {
                section = name;
                continue;
            }
            if let Some((key, value)) = line.split_once('=')
                && CONTROL_KEYS.contains(&key.trim())
            {
                sections.control.insert((section, key.trim()), split_comment(value).0);
                continue;
            }
            sections.lines.push((at, section, line));
        }
        sections
    }

    /// Returns the plugin of a section: its `type`, or its name.
    fn plugin(&self, section: &'a str) -> &'a str {
        self.control.get(&(section, "type")).copied().unwrap_or(section)
    }

    fn is_enabled(&self, section: &'a str) -> bool {
        let value = self.control.get(&(section, "enabled")).map(|value| value.to_lowercase());
        value.is_none_or(|value| !["0", "false", "no", "n", "f", "off"].contains(&value.as_str()))
    }
}

/// Returns the profiles that a profile includes, with the line of each. A name with `-` before it may be missing.
pub fn included_profiles(text: &str) -> Vec<(usize, String)> {
    let sections = Sections::new(text);
    let lines = sections.lines.iter().filter(|(_, section, _)| *section == "main");
    let includes = lines.filter_map(|(at, _, line)| {
        let (key, names) = line.split_once('=')?;
        (key.trim() == "include").then(|| (*at, split_comment(names).0))
    });
    includes
        .flat_map(|(at, names)| names.split([',', ';']).map(move |name| (at, name.trim().to_owned())))
        .filter(|(_, name)| !name.is_empty())
        .collect()
}

pub(super) fn parse(base: &impl Fn(usize) -> ForeignLine, text: &str) -> Vec<ForeignLine> {
    let sections = Sections::new(text);
    let variables = sections.lines.iter().filter(|(_, section, _)| *section == "variables");
    let variables: BTreeMap<&str, &str> = variables
        .filter_map(|(_, _, line)| line.split_once('='))
        .map(|(name, value)| (name.trim(), split_comment(value).0))
        .collect_map();
    let parse_line = |(at, section, line): &(usize, &str, &str)| {
        if ["main", "variables"].contains(section) {
            return Vec::new();
        }
        let mut lines = parse_line(base(*at), sections.plugin(section), line, &variables);
        if !sections.is_enabled(section) {
            let reason = format!("the section [{section}] is not enabled");
            lines.iter_mut().for_each(|line| line.unresolved = Some(reason.clone()));
        }
        lines
    };
    sections.lines.iter().flat_map(parse_line).collect()
}

/// Replaces `${name}` by its value. `None` for a function, and for a variable that is set elsewhere.
fn expand(value: &str, variables: &BTreeMap<&str, &str>) -> Option<String> {
    /// Number of replacements in a value: a variable may name another one.
    const DEPTH_MAX: usize = 8;
    let mut value = value.to_owned();
    for _ in 0..DEPTH_MAX {
        let Some((start, rest)) = value.split_once("${") else { return Some(value) };
        let (name, end) = rest.split_once('}')?;
        value = format!("{start}{}{end}", variables.get(name)?);
    }
    None
}

fn catalogue_name(plugin: &str, key: &str, value: &str) -> Option<String> {
    let name = match (plugin, key) {
        ("sysctl", name) => canonical_name(name),
        ("vm", "dirty_bytes" | "dirty_background_bytes") if value.ends_with('%') => {
            format!("vm.{}", key.replace("bytes", "ratio"))
        }
        ("vm", "dirty_bytes" | "dirty_background_bytes" | "dirty_ratio" | "dirty_background_ratio") => {
            format!("vm.{key}")
        }
        ("cpu", "governor") => "cpu.governor".to_owned(),
        ("cpu", "force_latency") => "cpu.idle_latency".to_owned(),
        ("cpu", "min_perf_pct") => "cpu.min_perf_pct".to_owned(),
        ("cpu", "energy_perf_bias") => "cpu.energy_perf_bias".to_owned(),
        ("vm", "transparent_hugepages" | "transparent_hugepage") => "thp.enabled".to_owned(),
        ("vm", "transparent_hugepage.defrag") => "thp.defrag".to_owned(),
        ("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled") => "thp.enabled".to_owned(),
        ("sysfs", "/sys/kernel/mm/transparent_hugepage/defrag") => "thp.defrag".to_owned(),
        _ => return None,
    };
    Some(name)
}

/// Parses a line; a command line of the boot loader has several settings.
fn parse_line(
    base: ForeignLine,
    plugin: &str,
    line: &str,
    variables: &BTreeMap<&str, &str>,
) -> Vec<ForeignLine> {
    let Some((key, value)) = line.split_once('=') else {
        let problem = Some("no setting: expected 'name = value'".to_owned());
        return vec![ForeignLine { name: line.to_owned(), problem, ..base }];
    };
    let key = key.trim().trim_end_matches('+').trim();
    let (written, comment) = split_comment(value);
    let expanded = expand(written, variables);
    let value = expanded.as_deref().unwrap_or(written);
    if plugin == "bootloader" && key.starts_with("cmdline") {
        return boot_parameters(&base, value);
    }
    let value = value.trim().trim_matches('"');
    let (value, write_if) = match (value.strip_prefix('>'), value.strip_prefix('<')) {
        (Some(value), _) => (value, Some(WriteCondition::Higher)),
        (_, Some(value)) => (value, Some(WriteCondition::Lower)),
        _ => (value, None),
    };
    let value = value.trim();
    let Some(name) = catalogue_name(plugin, key, value) else {
        let reason = format!("plugin [{plugin}] of tuned: weir does not judge it");
        let name = format!("{plugin}.{key}");
        return vec![ForeignLine { name, value: one_line(value), unresolved: Some(reason), ..base }];
    };
    let value = if name.starts_with("vm.dirty") { value.trim_end_matches('%') } else { value };
    let condition = match write_if {
        Some(WriteCondition::Higher) => Some("tuned writes it only if it is above the value of the machine"),
        Some(WriteCondition::Lower) => Some("tuned writes it only if it is below the value of the machine"),
        None => None,
    };
    let mut notes: Vec<String> = condition.map(str::to_owned).into_iter().collect();
    // The CPU plugin takes the first governor that the driver has.
    let (value, others) = value.split_once('|').filter(|_| name == "cpu.governor").unwrap_or((value, ""));
    if !others.is_empty() {
        notes.push(format!("or {others}, if the driver does not have it"));
    }
    let unresolved = expanded.is_none().then(|| "a variable of tuned: weir does not expand it".to_owned());
    vec![ForeignLine {
        name,
        value: one_line(value),
        comment: comment.to_owned(),
        unresolved,
        notes,
        write_if,
        ..base
    }]
}

/// Parses the words of a boot command line, which adds them, or removes them with `-`.
fn boot_parameters(base: &ForeignLine, line: &str) -> Vec<ForeignLine> {
    let line = line.trim().trim_matches('"');
    let (line, is_removal) = match line.strip_prefix('-') {
        Some(line) => (line, true),
        None => (line.strip_prefix('+').unwrap_or(line), false),
    };
    let parameter = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, "1"));
        let name = format!("boot.{key}");
        let is_known = crate::catalogue::find_setting(&name).is_some();
        let unresolved = match () {
            () if is_removal => Some("removes this parameter, if another profile of tuned adds it"),
            () if word.contains("${") => Some("a variable of tuned: weir does not expand it"),
            () if !is_known => Some("a boot parameter that the catalogue does not have"),
            () => None,
        };
        let unresolved = unresolved.map(str::to_owned);
        ForeignLine { name, value: value.trim_matches('"').to_owned(), unresolved, ..base.clone() }
    };
    line.split_whitespace().map(parameter).collect()
}
