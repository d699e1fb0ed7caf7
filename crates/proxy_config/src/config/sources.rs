//! The files of a config: that of the caller, and those that `include` names. The offsets of a file's problems
//! and sections are shifted behind those of the files before it, so that an offset names one place.

use std::fs;
use std::path::{Path, PathBuf};

use record::document::{Problems, TomlDocument};
use record::problem::InputProblem;

use super::errors::ValueError;
use super::value::{INCLUDE, Section, TableReader};
use super::variables::{Lookup, expand_table};

/// Maximum number of included files.
const FILES_MAX: usize = 1_000;
/// Maximum depth of files that include others.
const DEPTH_MAX: usize = 8;
/// Maximum size of an included file, and of all together.
const BYTES_MAX: usize = 64 << 20;

/// The files of a config, in the order in which they were read.
pub(super) struct Sources {
    files: Vec<SourceFile>,
    /// Directories of patterns, where new files may appear.
    directories: Vec<PathBuf>,
    /// True if all files are TOML, apart from duplicates.
    pub(super) is_readable: bool,
}

struct SourceFile {
    name: String,
    text: String,
    /// Path without links, to find files that are included twice.
    path: Option<PathBuf>,
    base: usize,
}

impl SourceFile {
    fn end(&self) -> usize {
        self.base + self.text.len()
    }
}

/// A file that is to be read.
struct Inclusion {
    path: PathBuf,
    /// Offset of the pattern that names it.
    offset: usize,
    depth: usize,
}

/// Reads a config and the files that it includes.
pub(super) fn read(
    file_name: &str,
    text: &str,
    lookup: Lookup<'_>,
    problems: &mut Problems,
) -> (Section, Sources) {
    let mut sources = Sources { files: Vec::new(), directories: Vec::new(), is_readable: true };
    let path = fs::canonicalize(file_name).ok();
    let main = SourceFile { name: file_name.to_owned(), text: text.to_owned(), path, base: 0 };
    let mut root = sources.read_file(main, lookup, problems);
    let mut pending = sources.inclusions(&root, 0, problems);
    // The first file is the last one of the list.
    pending.reverse();
    while let Some(inclusion) = pending.pop() {
        let Some(file) = sources.open(&inclusion, problems) else { continue };
        let section = sources.read_file(file, lookup, problems);
        let mut nested = sources.inclusions(&section, inclusion.depth + 1, problems);
        nested.reverse();
        pending.extend(nested);
        root.merge(section, problems);
    }
    (root, sources)
}

impl Sources {
    /// Returns the included files, and the directories where others may appear.
    pub(super) fn watched_paths(&self) -> Vec<PathBuf> {
        let files = self.files.iter().skip(1).map(|file| PathBuf::from(&file.name));
        files.chain(self.directories.iter().cloned()).collect()
    }

    /// Returns problems and warnings with their files, each sorted by position.
    pub(super) fn locate(&self, mut problems: Problems) -> (Vec<InputProblem>, Vec<InputProblem>) {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        for file in &self.files {
            let own = problems.take_range(file.base..=file.end());
            let (own_errors, own_warnings) = own.into_problems(&file.name, &file.text);
            errors.extend(own_errors);
            warnings.extend(own_warnings);
        }
        // An offset behind the end belongs to a text with the value of a variable.
        if let Some(last) = self.files.last() {
            let (rest, rest_warnings) =
                problems.take_range(last.base..=usize::MAX).into_problems(&last.name, &last.text);
            errors.extend(rest);
            warnings.extend(rest_warnings);
        }
        (errors, warnings)
    }

    /// Reads a file, whose offsets are shifted.
    fn read_file(&mut self, file: SourceFile, lookup: Lookup<'_>, problems: &mut Problems) -> Section {
        let mut own = Problems::default();
        let mut document = TomlDocument::parse(&file.text);
        let variables = expand_table(document.table_mut(), lookup, &mut own);
        let is_lenient = !document.is_readable();
        let mut reader = TableReader::new(&mut own, is_lenient).with_variables(&variables);
        let mut section = reader.read_section("", document.table(), 0);
        document.report_syntax_errors(&mut own);
        self.is_readable &= document.is_readable();
        own.shift(file.base);
        problems.append(own);
        section.shift(file.base);
        self.files.push(file);
        section
    }

    /// Returns the files that a section includes, in order.
    fn inclusions(&mut self, section: &Section, depth: usize, problems: &mut Problems) -> Vec<Inclusion> {
        let mut inclusions = Vec::new();
        let directory = self.files.last().map(|file| Path::new(&file.name)).and_then(Path::parent);
        let directory = directory.unwrap_or_else(|| Path::new("")).to_owned();
        for pattern in section.texts(INCLUDE) {
            if depth == DEPTH_MAX {
                problems
                    .add_error(pattern.offset, format!("files include others up to {DEPTH_MAX} levels deep"));
                break;
            }
            match find_files(&directory, &pattern.value) {
                Ok((paths, searched)) => {
                    if paths.is_empty() {
                        problems.warn(pattern.offset, format!("'{}' matches no file", pattern.value));
                    }
                    self.directories.extend(searched);
                    let offset = pattern.offset;
                    inclusions.extend(paths.into_iter().map(|path| Inclusion { path, offset, depth }));
                }
                Err(error) => problems.add_error(pattern.offset, error),
            }
        }
        inclusions
    }

    fn open(&self, inclusion: &Inclusion, problems: &mut Problems) -> Option<SourceFile> {
        let path = &inclusion.path;
        let name = path.display().to_string();
        let fault = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let base = self.files.last().map_or(0, |file| file.end() + 1);
        if self.files.len() > FILES_MAX || base > BYTES_MAX {
            let text = format!("more than {FILES_MAX} included files, or 64 MiB of them");
            problems.add_error(inclusion.offset, text);
            return None;
        }
        let resolved =
            problems.ok_or_report(inclusion.offset, fs::canonicalize(path).map_err(|error| fault(&error)))?;
        if self.files.iter().any(|file| file.path.as_ref() == Some(&resolved)) {
            problems.add_error(inclusion.offset, fault(&"the file is included twice"));
            return None;
        }
        let text =
            problems.ok_or_report(inclusion.offset, super::validate::read_text_file(path, BYTES_MAX))?;
        Some(SourceFile { name, text, path: Some(resolved), base })
    }
}

/// Returns the files of a pattern, relative to a directory, sorted by name, and the directory that was searched.
///
/// # Errors
/// The directory is not readable, or has a wildcard in its own name.
fn find_files(base: &Path, pattern: &str) -> Result<(Vec<PathBuf>, Option<PathBuf>), ValueError> {
    let has_wildcard = |text: &str| text.contains(['*', '?', '[']);
    let (own_directory, name) = pattern.rsplit_once('/').map_or(("", pattern), |(own, name)| (own, name));
    if name.is_empty() || name.contains('[') {
        return Err(ValueError::FilePattern(pattern.into()));
    }
    if has_wildcard(own_directory) {
        return Err(ValueError::DirectoryPattern(pattern.into()));
    }
    let path = base.join(pattern);
    if !has_wildcard(name) {
        return Ok((vec![path], None));
    }
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let failed = |error| ValueError::File { path: directory.into(), error };
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        let matches = file_name.to_str().is_some_and(|file_name| {
            file_name.starts_with('.') == name.starts_with('.')
                && matches_wildcards(name.as_bytes(), file_name.as_bytes())
        });
        if matches && entry.path().is_file() {
            files.push(parent.join(file_name));
        }
    }
    files.sort_unstable();
    Ok((files, Some(directory.to_owned())))
}

/// Returns whether a name matches a pattern with `*` and `?`. Takes the product of both lengths at most.
fn matches_wildcards(pattern: &[u8], name: &[u8]) -> bool {
    let (mut in_pattern, mut in_name) = (0, 0);
    // The last star, and the end of the text that it has taken.
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, in_name));
                in_pattern += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[in_name] => {
                in_pattern += 1;
                in_name += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (in_pattern, in_name) = (at + 1, taken + 1);
            }
        }
    }
    pattern[in_pattern..].iter().all(|&byte| byte == b'*')
}

/// Reads the first of these files, and those that it includes: each problem has a place in one of them. `true`: an
/// included file was read. For fuzzing.
///
/// # Panics
/// The property does not hold.
#[cfg(any(test, fuzzing, feature = "fixtures"))]
pub fn check_sources(files: &[(String, &str)]) -> bool {
    let lookup = |name: &str| name.len().is_multiple_of(2).then(|| Ok(name.to_owned()));
    let mut problems = Problems::default();
    let Some((main, text)) = files.first() else { return false };
    let (_, sources) = read(main, text, &lookup, &mut problems);
    let (errors, warnings) = sources.locate(problems);
    for problem in errors.iter().chain(&warnings) {
        let is_in_file = |(name, text): &(String, &str)| {
            let place = problem.location.strip_prefix(&**name).and_then(|rest| rest.strip_prefix(':'));
            let line = place.and_then(|place| place.split(':').next()?.parse::<usize>().ok());
            line.is_some_and(|line| line <= text.matches('\n').count() + 1)
        };
        assert!(files.iter().any(is_in_file) && !problem.text.is_empty(), "{problem}");
    }
    sources.files.len() > 1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{ParsedConfig, parse};

    const MAIN: &str =
        "[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nname = 'first'\ndeny = true\nhost = 'a'\n";

    fn parse_in(
        directory: &Path,
        include: &str,
        files: &[(&str, &str)],
    ) -> Result<ParsedConfig, Vec<String>> {
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        let text = format!("include = {include}\n{MAIN}");
        let file = directory.join("weir.toml");
        fs::write(&file, &text).unwrap();
        let prefix = format!("{}/", directory.display());
        parse(file.to_str().unwrap(), &text).map_err(|problems| {
            problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
        })
    }

    #[test]
    fn included_files_add_tables_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("b.toml", "[[route]]\nname = 'third'\npool = 'app'"),
            ("a.toml", "[[route]]\nname = 'second'\ndeny = true\nhost = 'b'\n[[log]]\nto = 'stdout'"),
            ("pools.toml", "[pool.app]\nservers = ['127.0.0.1:9001']"),
            (".hidden.toml", "nonsense"),
            ("c.conf", "nonsense"),
        ];
        let parsed = parse_in(directory.path(), "['?.toml', 'pools.toml']", &files).unwrap();
        let names: Vec<&str> = parsed.plan.routes.iter().map(|route| &*route.name).collect();
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!((parsed.plan.logs.len(), parsed.plan.pools.iter().count()), (1, 1));
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
        let watched: Vec<_> = parsed.plan.included.iter().map(|path| path.file_name().unwrap()).collect();
        assert!(watched.contains(&"a.toml".as_ref()) && watched.len() == 4, "{watched:?}");
    }

    #[test]
    fn problems_name_the_included_file() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("a.toml", "threads = 2\n[[route]]\npool = 'ap'\n"),
            ("b.toml", "\nthreads = 3\n[listener.web]\nbind = ':1'\n[[route]]\nhots = 'x'\ndeny = true\n"),
            ("c.toml", "[[route\ndeny = true\n"),
        ];
        let problems = parse_in(directory.path(), "'*.toml'", &files).unwrap_err();
        // The main file matches its own pattern.
        assert!(
            problems[0].starts_with("weir.toml:1:11: weir.toml: the file is included twice"),
            "{problems:#?}"
        );
        for expected in
            ["b.toml:2:1: 'threads'", "b.toml:3:11: 'web'", "b.toml:6:1: unknown key 'hots'", "c.toml:1:8:"]
        {
            assert!(
                problems.iter().any(|problem| problem.starts_with(expected)),
                "{expected}: {problems:#?}"
            );
        }
        fs::remove_file(directory.path().join("c.toml")).unwrap();
        fs::remove_file(directory.path().join("b.toml")).unwrap();
        let problems = parse_in(directory.path(), "'a.toml'", &[]).unwrap_err();
        assert!(
            problems.len() == 1 && problems[0].starts_with("a.toml:3:8: unknown pool 'ap'"),
            "{problems:#?}"
        );
    }

    #[test]
    fn cycles_and_missing_files_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let problems =
            parse_in(directory.path(), "'a.toml'", &[("a.toml", "include = 'weir.toml'")]).unwrap_err();
        assert!(problems[0].starts_with("a.toml:1:11: ") && problems[0].contains("twice"), "{problems:#?}");
        for (include, part) in [
            ("'none.toml'", "No such file"),
            ("'*/a.toml'", "name of a directory"),
            ("'[ab].toml'", "'*' and '?'"),
            ("'none/*.toml'", "No such file"),
        ] {
            let problems = parse_in(directory.path(), include, &[]).unwrap_err();
            assert!(
                problems[0].starts_with("weir.toml:1:11: ") && problems[0].contains(part),
                "{problems:#?}"
            );
        }
        let parsed = parse_in(directory.path(), "'*.conf'", &[]).unwrap();
        assert!(parsed.warnings[0].to_string().contains("matches no file"), "{:?}", parsed.warnings);
    }

    #[test]
    fn wildcards_match_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*.toml", "a.toml", true),
            ("*.toml", "a.toml~", false),
            ("a*b*c", "axxbyybc", true),
            ("a*b*c", "axxbyyb", false),
            ("?.toml", "ab.toml", false),
            ("", "a", false),
            ("**a?", "aab", true),
        ] {
            assert_eq!(matches_wildcards(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
