//! `weir proxy import`: reads a config of another program, and the files that it includes.

use std::path::{Path, PathBuf};

use import::{BYTES_MAX, IncludeError, Kind, Left, Program, Surroundings};
use record::problem::InputProblem;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, ImportFlags};
use crate::input_file;
use crate::output::file::write_text;
use crate::preflight::STDOUT;

/// Maximum number of entries of a directory that a pattern is compared with.
const ENTRIES_MAX: usize = 10_000;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let file = match args.values().as_slice() {
        [file] => file.clone(),
        _ => return Err(vec![InputProblem::new("FILE", "name one config file")].into()),
    };
    let problem =
        |error: &dyn std::fmt::Display| vec![InputProblem::new(&*file, format!("cannot be read: {error}"))];
    let text = input_file::read_text(&file, BYTES_MAX as u64).map_err(|error| problem(&error))?;
    let flags = ImportFlags::parse(args)?;
    let program = flags.program.unwrap_or_else(|| Program::detect(&text));
    let path = Path::new(&file);
    let directory =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let name = path.file_name().map_or_else(|| file.clone(), |name| name.to_string_lossy().into_owned());
    let name = if file == "-" { "stdin".to_owned() } else { name };
    let random: [u8; 24] =
        rt::machine::random_bytes().map_err(|error| Failure::cannot("proxy import", error))?;
    let mut machine = Machine {
        directory: directory.canonicalize().unwrap_or_else(|_| directory.to_owned()),
        secret: random.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let import = import::convert(program, &name, &text, &mut machine)
        .map_err(|error| vec![InputProblem::from_file_error(error)])?;
    let invalid = match proxy_config::config::parse("config", &import.config) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    };
    write_text(&import.config, Some(flags.output.as_deref().unwrap_or(STDOUT)))?;
    print_report(program, &import.report, &invalid);
    let is_left = !invalid.is_empty() || import.report.iter().any(|left| left.kind.is_left());
    Ok(if is_left { Exit::ObjectiveMissed } else { Exit::Done })
}

/// Prints the number of lines first, then those to do, then the others.
fn print_report(program: Program, report: &[Left], invalid: &[InputProblem]) {
    let count = |kind: Kind| report.iter().filter(|left| left.kind == kind).count();
    let left = count(Kind::NotSupported) + count(Kind::Needs) + invalid.len();
    warn!(
        "weir: config of {}: {left} left to do, {} translated with a difference, {} without an effect here",
        program.title(),
        count(Kind::Differs),
        count(Kind::NoEffect),
    );
    for problem in invalid {
        warn!("weir: needs: {problem}");
    }
    for is_left in [true, false] {
        for line in report.iter().filter(|left| left.kind.is_left() == is_left) {
            warn!("weir: {line}");
        }
    }
}

/// The files below the directory of the config, and facts of this machine.
struct Machine {
    directory: PathBuf,
    /// Key of the cookies of all pools.
    secret: String,
}

impl Machine {
    /// Returns the files that a pattern names, sorted.
    fn files(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found =
            vec![if pattern.starts_with('/') { PathBuf::from("/") } else { self.directory.clone() }];
        for component in pattern.split('/').filter(|component| !component.is_empty()) {
            if !component.contains(['*', '?', '[']) {
                found.iter_mut().for_each(|path| path.push(component));
                continue;
            }
            let mut matching: Vec<PathBuf> = found
                .iter()
                .filter_map(|path| std::fs::read_dir(path).ok())
                .flat_map(|entries| entries.take(ENTRIES_MAX).filter_map(Result::ok))
                .filter(|entry| is_match(component, &entry.file_name().to_string_lossy()))
                .map(|entry| entry.path())
                .collect();
            matching.sort();
            matching.truncate(ENTRIES_MAX);
            found = matching;
        }
        found
    }
}

/// Returns whether a name has the form of a pattern with `*` and `?`. A hidden file needs a dot in the pattern.
fn is_match(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut position) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while position < name.len() {
        match pattern.get(at) {
            Some('*') => {
                last_star = Some((at, position));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match last_star {
                Some((star, start)) => {
                    last_star = Some((star, start + 1));
                    (at, position) = (star + 1, start + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

impl Surroundings for Machine {
    fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError> {
        let has_wildcards = pattern.contains(['*', '?']);
        let mut files = Vec::new();
        for path in self.files(pattern) {
            let shown = path.strip_prefix(&self.directory).unwrap_or(&path).display().to_string();
            let real = match path.canonicalize() {
                Ok(real) => real,
                Err(_) if has_wildcards => continue,
                Err(error) => {
                    return Err(IncludeError::Unreadable { path: shown, reason: error.to_string() });
                }
            };
            if !real.starts_with(&self.directory) {
                return Err(IncludeError::Outside(shown));
            }
            if real.is_dir() && has_wildcards {
                continue;
            }
            let text = input_file::read_text(&real.to_string_lossy(), BYTES_MAX as u64).map_err(|error| {
                IncludeError::Unreadable { path: shown.clone(), reason: error.to_string() }
            })?;
            files.push((shown, text));
        }
        Ok(files)
    }

    fn exists(&mut self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn is_page(&mut self, path: &str) -> bool {
        let is_small =
            std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= 64 << 10);
        is_small && std::fs::read_to_string(path).is_ok()
    }

    fn has_user(&mut self, name: &str) -> bool {
        is_listed("/etc/passwd", name)
    }

    fn has_group(&mut self, name: &str) -> bool {
        is_listed("/etc/group", name)
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn secret(&mut self) -> String {
        self.secret.clone()
    }
}

/// Returns whether a file of accounts has a name.
fn is_listed(file: &str, name: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    !name.is_empty() && text.lines().any(|line| line.split(':').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_and_question_marks() {
        assert!(is_match("*.conf", "a.conf") && is_match("a?c*", "abcd") && is_match("*a*b*", "xxaxxbxx"));
        assert!(!is_match("*.conf", "a.conf.bak") && !is_match("*", ".hidden") && !is_match("a", "ab"));
        assert!(is_match("a*", "a") && !is_match("?", ""));
    }

    #[test]
    fn only_files_below_the_directory_are_included() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("etc");
        std::fs::create_dir_all(directory.join("conf.d")).unwrap();
        std::fs::write(directory.join("conf.d/b.conf"), "b;").unwrap();
        std::fs::write(directory.join("conf.d/a.conf"), "a;").unwrap();
        std::fs::write(outer.path().join("secret"), "x;").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), directory.join("link.conf")).unwrap();
        let mut machine = Machine { directory: directory.canonicalize().unwrap(), secret: String::new() };
        let names =
            |files: Vec<(String, String)>| files.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(machine.include("conf.d/*.conf").unwrap()), ["conf.d/a.conf", "conf.d/b.conf"]);
        let absolute = machine.directory.join("conf.d/a.conf");
        assert_eq!(machine.include(absolute.to_str().unwrap()).unwrap().len(), 1);
        assert!(machine.include("none/*.conf").unwrap().is_empty());
        for outside in ["../secret", "link.conf", "/etc/passwd"] {
            assert!(matches!(machine.include(outside), Err(IncludeError::Outside(_))), "{outside}");
        }
        assert!(matches!(machine.include("missing.conf"), Err(IncludeError::Unreadable { .. })));
    }
}
