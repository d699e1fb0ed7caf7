//! Lists of files by patterns in which `*` stands for anything in a file's name: quoted, so that no shell
//! mixes two lists up. Not for what is in the files.

use std::fs;
use std::path::{Path, PathBuf};

/// Files of one list: more than anybody runs.
const FILES_MAX: usize = 1000;

/// The files that fit any of the patterns, each once, in the order of their names.
pub(super) fn files(patterns: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for pattern in patterns {
        let before = found.len();
        let path = Path::new(pattern);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| format!("'{pattern}' names no files"))?;
        if !name.contains('*') {
            found.push(path.to_owned());
            continue;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let shown = folder.unwrap_or_else(|| Path::new("."));
        let entries =
            fs::read_dir(shown).map_err(|error| format!("{}: {error}", shown.display()))?;
        for entry in entries.flatten() {
            let own = entry.file_name();
            if fits(&name, &own.to_string_lossy()) && entry.path().is_file() {
                found.push(folder.map_or_else(|| PathBuf::from(&own), |at| at.join(&own)));
            }
            if found.len() > FILES_MAX {
                return Err(format!("'{pattern}' fits more than {FILES_MAX} files"));
            }
        }
        if found.len() == before {
            return Err(format!("no file fits '{pattern}'"));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether a name fits a pattern. Names that begin with a dot fit only patterns that do, as in a shell.
fn fits(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pattern.rsplit_once('*').map(|(_, last)| last) else { return rest.is_empty() };
    let between = parts.clone().count().saturating_sub(1);
    for part in parts.take(between) {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_in_a_name() {
        for (pattern, name, expected) in [
            ("a*.json", "a.json", true),
            ("a*.json", "a-1.json", true),
            ("a*.json", "b.json", false),
            ("*", "x", true),
            ("*", ".x", false),
            ("*a*b*", "xaxb", true),
            ("*a*b*", "xbxa", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a.json", "a.json", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b-2.json", "b-1.json", "c.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let pattern = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let names = files(&[pattern("b*.json"), pattern("b-1.json")]).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["b-1.json", "b-2.json"]);
        assert!(files(&[pattern("x*")]).unwrap_err().contains("no file fits"));
        assert!(files(&[pattern("no/x*")]).is_err());
    }
}
