//! File lists from patterns in which `*` matches any part of a file name. The patterns are quoted,
//! so that no shell merges two lists. Does not read the files.

use std::fs;
use std::path::{Path, PathBuf};

use record::invalid_value;
use record::problem::InvalidValue;

/// Maximum number of files in a list: more than anybody runs.
const FILES_MAX: usize = 1000;

/// Returns the files that match any of the patterns, each once, sorted by name.
///
/// # Errors
/// No file matches one of them, too many do, or a directory cannot be read.
pub fn expand_patterns(patterns: &[String]) -> Result<Vec<PathBuf>, InvalidValue> {
    let mut matched = Vec::new();
    for pattern in patterns {
        let count_before = matched.len();
        let path = Path::new(pattern);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| invalid_value!("'{pattern}' is not a file pattern"))?;
        if !name.contains('*') {
            matched.push(path.to_owned());
            continue;
        }
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let listed_directory = directory.unwrap_or_else(|| Path::new("."));
        let entries = fs::read_dir(listed_directory)
            .map_err(|error| invalid_value!("{}: {error}", listed_directory.display()))?;
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            if matches_pattern(&name, &file_name.to_string_lossy()) && entry.path().is_file() {
                matched.push(directory.map_or_else(|| PathBuf::from(&file_name), |at| at.join(&file_name)));
            }
            if matched.len() > FILES_MAX {
                return Err(invalid_value!("'{pattern}' matches more than {FILES_MAX} files"));
            }
        }
        if matched.len() == count_before {
            return Err(invalid_value!("no file matches '{pattern}'"));
        }
    }
    matched.sort();
    matched.dedup();
    Ok(matched)
}

/// Returns whether a name matches a pattern. A name with a leading dot needs a pattern with one, as
/// in a shell.
fn matches_pattern(pattern: &str, name: &str) -> bool {
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
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_once_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b-2.json", "b-1.json", "c.json"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let pattern = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        let names = expand_patterns(&[pattern("b*.json"), pattern("b-1.json")]).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["b-1.json", "b-2.json"]);
        assert!(expand_patterns(&[pattern("x*")]).unwrap_err().to_string().contains("x*'"));
        assert!(expand_patterns(&[pattern("no/x*")]).is_err());
    }
}
