//! Files that `weir tune check` reads: single ones, directories of sysctl.d(5), those of a root directory, and
//! included profiles of tuned. A file of a directory that cannot be read becomes a line with the reason.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{
    FileFormat, ForeignLine, PROFILE_DIRECTORIES, PROFILE_FILE, SYSCTL_CONF, SYSCTL_DIRECTORIES,
    detect_format, included_profiles, order_files, parse_file,
};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

const FILES_MAX: usize = 1000;
/// Maximum size of a file: settings are a few kilobytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
const PROFILES_MAX: usize = 32;
/// Files of limits below a root directory: a file, and a directory whose files come after it.
const LIMITS: (&str, &str) = ("etc/security/limits.conf", "etc/security/limits.d");

/// Program that applies the settings at boot, below a root directory.
const SYSTEMD_SYSCTL: [&str; 2] = ["usr/lib/systemd/systemd-sysctl", "lib/systemd/systemd-sysctl"];
const NOT_AT_BOOT: &str = "systemd-sysctl does not read this file at boot, only `sysctl --system` does: link \
                           /etc/sysctl.d/99-sysctl.conf to it";

/// Reads the lines of all files, in the order in which they take effect.
///
/// # Errors
/// Every path that cannot be read.
pub fn read_lines(paths: &[String]) -> Result<Vec<ForeignLine>, Vec<InputProblem>> {
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    let mut directories = Vec::new();
    for path in paths {
        let path = Path::new(path);
        if !path.is_dir() {
            flush(&mut directories, &mut lines);
            match read_named(path) {
                Ok(found) => lines.extend(found),
                Err(problem) => problems.push(problem),
            }
        } else if is_root(path) {
            flush(&mut directories, &mut lines);
            lines.extend(root_lines(path));
        } else {
            match conf_files(path) {
                Ok(files) => directories.push((path.to_owned(), files)),
                Err(text) => {
                    problems.push(InputProblem::new("--file", format!("{}: {text}", path.display())));
                }
            }
        }
    }
    flush(&mut directories, &mut lines);
    if problems.is_empty() { Ok(lines) } else { Err(problems) }
}

/// Reads the sysctl files of this machine.
pub fn machine_lines() -> Vec<ForeignLine> {
    let lines = root_lines(Path::new("/")).into_iter();
    lines.filter(|line| line.is_setting() && line.limit.is_none()).collect()
}

fn flush(directories: &mut Vec<(PathBuf, Vec<PathBuf>)>, lines: &mut Vec<ForeignLine>) {
    let order = order_files(&std::mem::take(directories));
    let hidden = |(hidden, by): &(PathBuf, PathBuf)| {
        let reason = format!("not read: {} has the same name, and its directory comes first", by.display());
        let file = hidden.display().to_string();
        ForeignLine { file, unresolved: Some(reason), ..ForeignLine::default() }
    };
    lines.extend(order.hidden.iter().map(hidden));
    lines.extend(order.files.iter().flat_map(|path| read_entry(path)));
}

fn is_root(path: &Path) -> bool {
    SYSCTL_DIRECTORIES.iter().chain([&SYSCTL_CONF, &LIMITS.0]).any(|below| path.join(below).exists())
}

/// Reads the files of sysctl.d(5), sysctl(8) and limits.conf(5) below a root directory.
fn root_lines(root: &Path) -> Vec<ForeignLine> {
    let mut seen = BTreeSet::new();
    // On many systems /lib is a link to /usr/lib.
    let mut is_new = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|path| seen.insert(path));
    let paths = SYSCTL_DIRECTORIES.iter().map(|directory| root.join(directory)).filter(|path| is_new(path));
    let mut directories: Vec<_> =
        paths.filter_map(|path| conf_files(&path).ok().map(|files| (path, files))).collect();
    let sysctl_conf = root.join(SYSCTL_CONF);
    let target = fs::canonicalize(&sysctl_conf).ok();
    let links = directories.iter().flat_map(|(_, files)| files);
    let is_linked = links.filter_map(|file| fs::canonicalize(file).ok()).any(|file| Some(file) == target);
    let mut lines = Vec::new();
    flush(&mut directories, &mut lines);
    let limits = conf_files(&root.join(LIMITS.1)).unwrap_or_default();
    if target.is_some() && !is_linked {
        let has_systemd = SYSTEMD_SYSCTL.iter().any(|program| root.join(program).exists());
        let mut conf = read_entry(&sysctl_conf);
        if let Some(first) = conf.first_mut().filter(|_| has_systemd) {
            first.notes.push(NOT_AT_BOOT.to_owned());
        }
        lines.extend(conf);
    }
    let main = Some(root.join(LIMITS.0)).filter(|path| path.exists());
    lines.extend(main.into_iter().chain(limits).flat_map(|path| read_entry(&path)));
    lines
}

/// Returns the `*.conf` entries of a directory by name.
fn conf_files(path: &Path) -> Result<Vec<PathBuf>, InvalidValue> {
    let entries = fs::read_dir(path).map_err(|error| invalid_value!("{error}"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "conf")).collect();
    files.sort();
    match files.len() {
        0 => Err(invalid_value!("no file *.conf in this directory")),
        1..=FILES_MAX => Ok(files),
        many => Err(invalid_value!("{many} files; the max is {FILES_MAX}")),
    }
}

fn read_named(path: &Path) -> Result<Vec<ForeignLine>, InputProblem> {
    let name = path.display().to_string();
    let text =
        read_text(path).map_err(|error| InputProblem::new(&name, format!("cannot be read: {error}")))?;
    Ok(parse(path, &text))
}

fn read_entry(path: &Path) -> Vec<ForeignLine> {
    let unreadable = |problem: String| vec![ForeignLine::unreadable(&path.display().to_string(), problem)];
    let skipped = |text: &str| unreadable(format!("{text}: the tools skip it"));
    match (fs::metadata(path), fs::read_link(path)) {
        (Err(_), Ok(target)) => skipped(&format!("a link to {}, which is missing", target.display())),
        (Err(error), Err(_)) => unreadable(format!("cannot be read: {error}")),
        (Ok(metadata), _) if metadata.is_dir() => skipped("a directory"),
        // A link to /dev/null hides the files of the same name (sysctl.d(5)).
        (Ok(_), Ok(target)) if target == Path::new("/dev/null") => Vec::new(),
        (Ok(metadata), _) if !metadata.is_file() => skipped("no regular file"),
        (Ok(_), _) => match read_text(path) {
            Ok(text) => parse(path, &text),
            Err(error) => unreadable(format!("cannot be read: {error}")),
        },
    }
}

/// Reads a text; bytes that are no UTF-8 are replaced, so that they are in the assessment of their line only.
fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses a file; the profiles that a profile of tuned includes come before it.
fn parse(path: &Path, text: &str) -> Vec<ForeignLine> {
    let mut seen = BTreeSet::from([path.to_owned()]);
    parse_including(path, text, &mut seen)
}

fn parse_including(path: &Path, text: &str, seen: &mut BTreeSet<PathBuf>) -> Vec<ForeignLine> {
    let name = path.display().to_string();
    let mut lines = Vec::new();
    if detect_format(&name, text) == FileFormat::Tuned {
        for (line, profile) in included_profiles(text) {
            match read_profile(path, &profile, seen) {
                Ok(included) => lines.extend(included),
                Err(reason) => lines.push(ForeignLine {
                    file: name.clone(),
                    line,
                    name: "include".to_owned(),
                    value: profile,
                    unresolved: Some(reason.to_string()),
                    ..ForeignLine::default()
                }),
            }
        }
    }
    lines.extend(parse_file(&name, text));
    lines
}

/// Reads an included profile, or returns the reason why it is not read.
fn read_profile(
    from: &Path,
    profile: &str,
    seen: &mut BTreeSet<PathBuf>,
) -> Result<Vec<ForeignLine>, InvalidValue> {
    if profile.contains('$') {
        return Err(invalid_value!("not read: its name is a variable of tuned"));
    }
    // A profile with '-' before its name may be missing.
    let profile = profile.strip_prefix('-').unwrap_or(profile);
    if profile.contains('/') || profile.starts_with('.') {
        return Err(invalid_value!("not read: no name of a profile"));
    }
    let beside = from.parent().and_then(Path::parent).map(Path::to_owned);
    let directories = beside.into_iter().chain(PROFILE_DIRECTORIES.map(PathBuf::from));
    let candidates: Vec<PathBuf> =
        directories.map(|directory| directory.join(profile).join(PROFILE_FILE)).collect();
    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
        return Err(invalid_value!(
            "not read: there is no {profile}/{PROFILE_FILE} beside this profile, in /etc/tuned or in /usr/lib/tuned"
        ));
    };
    if seen.len() >= PROFILES_MAX || !seen.insert(path.clone()) {
        return Err(invalid_value!("not read again: its lines are above"));
    }
    let text = read_text(path).map_err(|error| invalid_value!("not read: {}: {error}", path.display()))?;
    Ok(parse_including(path, &text, seen))
}
