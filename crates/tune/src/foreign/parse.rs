//! Parser of `sysctl.conf` (sysctl.d(5)), `limits.conf` (limits.conf(5)) and tuned profiles (tuned.conf(5)).
//! Judges nothing.

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Lines `name = value`, and lines of `limits.conf`.
    Sysctl,
    /// Sections with plugins of tuned.
    Tuned,
}

/// One setting of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignLine {
    /// Path of the file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// Name, as in the catalogue.
    pub name: String,
    /// Value.
    pub value: String,
    /// Comment after the value.
    pub comment: String,
    /// Facts about the line that do not change its verdict.
    pub notes: Vec<String>,
    /// Reason why the line is no setting.
    pub problem: Option<String>,
    /// Reason why the value is not known: a variable, another file.
    pub unresolved: Option<String>,
}

impl ForeignLine {
    /// Returns `FILE:LINE`.
    #[must_use]
    pub fn location(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Returns the format of a file: tuned profiles have sections.
#[must_use]
pub fn detect_format(text: &str) -> FileFormat {
    let is_section = |line: &str| line.starts_with('[') && line.ends_with(']');
    if text.lines().map(str::trim).any(is_section) { FileFormat::Tuned } else { FileFormat::Sysctl }
}

/// Parses a file. Comments and empty lines are left out.
#[must_use]
pub fn parse_file(file: &str, text: &str) -> Vec<ForeignLine> {
    let format = detect_format(text);
    let mut section = String::new();
    let mut lines = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let base = ForeignLine { file: file.to_owned(), line: at + 1, ..ForeignLine::default() };
        if format == FileFormat::Tuned {
            if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.trim().clone_into(&mut section);
                continue;
            }
            lines.extend(parse_tuned(base, &section, trimmed));
        } else {
            lines.push(parse_sysctl(base, trimmed));
        }
    }
    lines
}

/// Parses `name = value`, with an optional `-` before the name.
fn parse_sysctl(base: ForeignLine, line: &str) -> ForeignLine {
    if let Some(limit) = parse_limit(&base, line) {
        return limit;
    }
    let Some((name, value)) = line.split_once('=') else {
        let problem = Some("no setting: expected 'name = value'".to_owned());
        return ForeignLine { name: line.to_owned(), problem, ..base };
    };
    let name = name.trim();
    let name = name.strip_prefix('-').unwrap_or(name).trim();
    let (value, comment) = split_comment(value);
    let mut notes = Vec::new();
    if !comment.is_empty() {
        notes.push("text after the value: comments need a line of their own".to_owned());
    }
    let mut one = ForeignLine {
        name: canonical_name(name),
        value: one_line(value),
        comment: comment.to_owned(),
        notes,
        ..base
    };
    if name.contains(['*', '?']) {
        one.unresolved = Some("a pattern of names: weir does not expand it".to_owned());
    }
    one
}

/// Parses a line of `limits.conf`: `domain type item value`.
fn parse_limit(base: &ForeignLine, line: &str) -> Option<ForeignLine> {
    let (line, comment) = split_comment(line);
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, kind, item, value] = fields.as_slice() else { return None };
    if !["soft", "hard", "-"].contains(kind) {
        return None;
    }
    let name = match *item {
        "nofile" => "process.nofile".to_owned(),
        "memlock" => "process.memlock".to_owned(),
        other => format!("process.{other}"),
    };
    let known = ["nofile", "memlock"].contains(item);
    let unresolved = (!known).then(|| "a limit that the catalogue does not have".to_owned());
    Some(ForeignLine {
        name,
        value: (*value).to_owned(),
        comment: comment.to_owned(),
        unresolved,
        ..base.clone()
    })
}

/// Splits a value from a comment behind it.
fn split_comment(value: &str) -> (&str, &str) {
    match value.find(" #").or_else(|| value.find("\t#")) {
        Some(at) => (value[..at].trim(), value[at..].trim().trim_start_matches('#').trim()),
        None => (value.trim(), ""),
    }
}

/// Returns a sysctl name with dots. A name whose first separator is a slash has its slashes replaced, and the
/// dots within its parts become slashes, as sysctl(8) does.
fn canonical_name(name: &str) -> String {
    match name.chars().find(|one| "./".contains(*one)) {
        Some('/') => name
            .chars()
            .map(|one| match one {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn one_line(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parses a line of a tuned profile; a command line of the boot loader has several settings.
fn parse_tuned(base: ForeignLine, section: &str, line: &str) -> Vec<ForeignLine> {
    let Some((key, value)) = line.split_once('=') else {
        let problem = Some("no setting: expected 'name = value'".to_owned());
        return vec![ForeignLine { name: line.to_owned(), problem, ..base }];
    };
    let key = key.trim().trim_end_matches('+').trim();
    let (value, comment) = split_comment(value);
    let value = value.trim_start_matches('>').trim().trim_matches('"');
    if section == "bootloader" {
        return boot_parameters(&base, value);
    }
    let name = match (section, key) {
        ("sysctl", name) => canonical_name(name),
        ("cpu", "governor") => "cpu.governor".to_owned(),
        ("cpu", "force_latency") => "cpu.idle_latency".to_owned(),
        ("cpu", "min_perf_pct") => "cpu.min_perf_pct".to_owned(),
        ("cpu", "energy_perf_bias") => "cpu.energy_perf_bias".to_owned(),
        ("vm", "transparent_hugepages" | "transparent_hugepage") => "thp.enabled".to_owned(),
        ("vm", "transparent_hugepage.defrag") => "thp.defrag".to_owned(),
        ("main" | "variables", _) => return Vec::new(),
        ("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled") => "thp.enabled".to_owned(),
        ("sysfs", "/sys/kernel/mm/transparent_hugepage/defrag") => "thp.defrag".to_owned(),
        (section, key) => {
            let reason = format!("plugin [{section}] of tuned: weir does not judge it");
            let name = format!("{section}.{key}");
            return vec![ForeignLine { name, value: one_line(value), unresolved: Some(reason), ..base }];
        }
    };
    let unresolved = value.contains("${").then(|| "a variable of tuned: weir does not expand it".to_owned());
    vec![ForeignLine { name, value: one_line(value), comment: comment.to_owned(), unresolved, ..base }]
}

/// Parses the words of a boot command line.
fn boot_parameters(base: &ForeignLine, line: &str) -> Vec<ForeignLine> {
    let one = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, "1"));
        let unresolved =
            value.contains("${").then(|| "a variable of tuned: weir does not expand it".to_owned());
        let name = format!("boot.{key}");
        let is_known = crate::catalogue::find_setting(&name).is_some();
        let unknown = (!is_known).then(|| "a boot parameter that the catalogue does not have".to_owned());
        ForeignLine { name, value: value.to_owned(), unresolved: unresolved.or(unknown), ..base.clone() }
    };
    line.split_whitespace().map(one).collect()
}
