//! Parser of `sysctl.conf` (sysctl.d(5)); the other formats have files of their own. Judges nothing.

use std::path::Path;

use super::{limits, tuned};
use crate::kernel_value::parse_number;
use crate::report::LimitTarget;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Lines `name = value`, and lines of `limits.conf`.
    Sysctl,
    /// Lines of `limits.conf`.
    Limits,
    /// Unit file of systemd, with limits of a service.
    Unit,
    /// Sections with plugins of tuned.
    Tuned,
}

/// Condition of tuned for a write (`name=>value`, `name=<value`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCondition {
    /// Only a value above the machine's.
    Higher,
    /// Only a value below the machine's.
    Lower,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignLine {
    pub file: String,
    /// Number of the line, from 1; 0 for the complete file.
    pub line: usize,
    pub name: String,
    pub value: String,
    pub comment: String,
    /// Facts about the line that do not change its assessment.
    pub notes: Vec<String>,
    /// Reason why the line is no setting.
    pub problem: Option<String>,
    /// Reason why the value is not known: a variable, another file.
    pub unresolved: Option<String>,
    pub write_if: Option<WriteCondition>,
    /// True if the tools report no failure of the line: `-` before the name.
    pub may_fail: bool,
    /// True if the name is a pattern of names.
    pub is_pattern: bool,
    /// True if the line keeps patterns away from its name, and sets nothing.
    pub is_exclusion: bool,
    /// Users and limits of a line of `limits.conf`.
    pub limit: Option<LimitTarget>,
}

impl ForeignLine {
    /// Returns `FILE:LINE`, or `FILE`.
    pub fn location(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }

    /// Returns a line about a complete file that cannot be read.
    #[must_use]
    pub fn unreadable(file: &str, problem: String) -> Self {
        Self { file: file.to_owned(), problem: Some(problem), ..Self::default() }
    }

    /// Returns whether the condition of the line keeps the value `now`.
    pub fn keeps(&self, now: &str) -> bool {
        let (ours, now) = (parse_number(&self.value), parse_number(now));
        match (self.write_if, ours.zip(now)) {
            (Some(WriteCondition::Higher), Some((ours, now))) => ours <= now,
            (Some(WriteCondition::Lower), Some((ours, now))) => ours >= now,
            _ => false,
        }
    }

    pub fn is_setting(&self) -> bool {
        self.problem.is_none() && self.unresolved.is_none() && !self.is_exclusion
    }
}

/// Returns the lines that say something, with their numbers.
pub(super) fn significant_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', ';']))
}

/// Returns the format of a file, by its name or its first line.
pub fn detect_format(file: &str, text: &str) -> FileFormat {
    let path = Path::new(file);
    let is_below = |directory: &str| path.parent().is_some_and(|parent| parent.ends_with(directory));
    let first = significant_lines(text).next();
    if first.is_some_and(|(_, line)| limits::UNIT_SECTIONS.contains(&line)) {
        return FileFormat::Unit;
    }
    if path.ends_with("tuned.conf") || tuned::is_profile(text) {
        return FileFormat::Tuned;
    }
    let is_limits = path.ends_with("limits.conf")
        || is_below("limits.d")
        || first.is_some_and(|(_, line)| limits::is_line(line));
    if is_limits { FileFormat::Limits } else { FileFormat::Sysctl }
}

/// Mark that some editors put in front of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

pub fn parse_file(file: &str, text: &str) -> Vec<ForeignLine> {
    let unmarked = text.strip_prefix(BYTE_ORDER_MARK);
    let (has_mark, text) = (unmarked.is_some(), unmarked.unwrap_or(text));
    let base = |line: usize| ForeignLine { file: file.to_owned(), line, ..ForeignLine::default() };
    let mut lines = match detect_format(file, text) {
        FileFormat::Tuned => tuned::parse(&base, text),
        FileFormat::Unit => limits::parse_unit(&base, text),
        FileFormat::Limits => {
            significant_lines(text).map(|(at, line)| limits::parse(base(at), line)).collect()
        }
        FileFormat::Sysctl => {
            significant_lines(text).map(|(at, line)| parse_sysctl(base(at), line)).collect()
        }
    };
    if let Some(first) = lines.first_mut().filter(|line| has_mark && line.line == 1) {
        let problem = "a byte order mark before the name: sysctl tools take it for a part of the name";
        first.problem.get_or_insert_with(|| problem.to_owned());
    }
    lines
}

/// Parses `name = value`, with an optional `-` before the name.
fn parse_sysctl(base: ForeignLine, line: &str) -> ForeignLine {
    if limits::is_line(line) {
        return limits::parse(base, line);
    }
    let Some((name, value)) = line.split_once('=') else {
        if let Some(name) = line.strip_prefix('-').map(str::trim).filter(|name| is_name(name)) {
            return ForeignLine { name: canonical_name(name), is_exclusion: true, ..base };
        }
        let problem = Some("no setting: expected 'name = value'".to_owned());
        return ForeignLine { name: line.to_owned(), problem, ..base };
    };
    let name = name.trim();
    let (minus, name) = name.strip_prefix('-').map_or(("", name), |name| ("-", name));
    let mut notes = Vec::new();
    if !minus.is_empty() && name.starts_with(char::is_whitespace) {
        notes.push("a blank behind '-': systemd-sysctl sets it, sysctl(8) does not".to_owned());
    }
    let (name, may_fail) = (name.trim(), !minus.is_empty());
    let (value, comment) = split_comment(value);
    if !comment.is_empty() {
        notes.push("text after the value: comments need a line of their own".to_owned());
    }
    ForeignLine {
        name: canonical_name(name),
        value: one_line(value),
        comment: comment.to_owned(),
        notes,
        may_fail,
        is_pattern: name.contains(['*', '?', '[']),
        ..base
    }
}

fn is_name(text: &str) -> bool {
    text.contains(['.', '/']) && !text.contains(char::is_whitespace)
}

pub(super) fn split_comment(value: &str) -> (&str, &str) {
    match value.find(" #").or_else(|| value.find("\t#")) {
        Some(at) => (value[..at].trim(), value[at..].trim().trim_start_matches('#').trim()),
        None => (value.trim(), ""),
    }
}

/// Returns a sysctl name with dots. A name whose first separator is a slash has its slashes replaced, and the
/// dots within its parts become slashes, as sysctl(8) does.
pub(super) fn canonical_name(name: &str) -> String {
    let swap = |character: char| match character {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    match name.chars().find(|character| "./".contains(*character)) {
        Some('/') => name.chars().map(swap).collect(),
        _ => name.to_owned(),
    }
}

pub(super) fn one_line(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a name matches a pattern as glob(7) does: `*` and `?` stay within a part of the name.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at_pattern, mut at_name) = (0, 0);
    // Positions behind the last `*`, from which the match goes on with one more character.
    let mut star: Option<(usize, usize)> = None;
    while at_name < name.len() {
        let character = name[at_name];
        if pattern.get(at_pattern) == Some(&'*') {
            star = Some((at_pattern + 1, at_name));
            at_pattern += 1;
            continue;
        }
        if let Some(length) = match_one(&pattern[at_pattern..], character) {
            at_pattern += length;
            at_name += 1;
            continue;
        }
        match star {
            Some((behind, start)) if name[start] != '.' => {
                (at_pattern, at_name) = (behind, start + 1);
                star = Some((behind, start + 1));
            }
            _ => return false,
        }
    }
    pattern[at_pattern..].iter().all(|character| *character == '*')
}

/// Returns the length of the start of a pattern that matches one character.
fn match_one(pattern: &[char], character: char) -> Option<usize> {
    match pattern.first()? {
        '?' => (character != '.').then_some(1),
        '[' => {
            let end = pattern.iter().skip(2).position(|character| *character == ']')? + 2;
            let (set, is_negated) = match pattern[1] {
                '!' | '^' => (&pattern[2..end], true),
                _ => (&pattern[1..end], false),
            };
            let is_range = |at: usize| set.get(at + 1) == Some(&'-') && at + 2 < set.len();
            let is_in = (0..set.len()).any(|at| match is_range(at) {
                true => (set[at]..=set[at + 2]).contains(&character),
                false => set[at] == character,
            });
            (is_in != is_negated && character != '.').then_some(end + 1)
        }
        literal => (*literal == character).then_some(1),
    }
}
