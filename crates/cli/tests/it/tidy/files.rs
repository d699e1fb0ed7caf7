//! Source files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::scan;

/// Returns the root of the repository.
pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text of a file of the repository.
pub(super) fn read(path: &str) -> String {
    let text = fs::read_to_string(repository().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the directories below `crates`.
pub(super) fn crate_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(repository().join("crates"))
        .expect("the directory crates")
        .map(|entry| entry.expect("an entry of crates"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Returns every Rust file below a crate's `src`, as a path from the repository's root.
pub(super) fn source_files() -> Vec<String> {
    let mut files = Vec::new();
    for name in crate_names() {
        collect(&format!("crates/{name}/src"), &mut files);
    }
    files
}

/// Adds the Rust files below a directory.
pub(super) fn collect(directory: &str, files: &mut Vec<String>) {
    let entries = fs::read_dir(repository().join(directory));
    let entries = entries.unwrap_or_else(|error| panic!("{directory}: {error}"));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a directory entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    for name in names {
        let path = format!("{directory}/{name}");
        if repository().join(&path).is_dir() {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

/// Returns the source files of the product. It leaves out tests by name (`tests.rs`, `tests/`, and
/// `fuzzing.rs`, whose properties panic by design) and modules that another file declares for tests
/// only.
pub(super) fn product_files() -> Vec<String> {
    let files = source_files();
    let mut test_only = BTreeSet::new();
    for file in &files {
        for module in scan::test_modules(&scan::mask(&read(file))) {
            test_only.insert(format!("{}/{module}", module_directory(file)));
        }
    }
    let is_product = |file: &String| {
        let by_name =
            ["/tests.rs", "/tests/", "/fuzzing.rs", "/fuzzing/"].iter().any(|name| file.contains(name));
        let stem = file.trim_end_matches(".rs");
        let declared = test_only.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        !by_name && !declared
    };
    files.into_iter().filter(is_product).collect()
}

/// Returns the directory with the modules that `file` declares.
fn module_directory(file: &str) -> String {
    let stem = file.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((directory, "lib" | "main" | "mod")) => directory.to_owned(),
        _ => stem.to_owned(),
    }
}
