//! Needs of tests: root, profiling, programs. Only tests depend on this crate.
//!
//! A test whose need is missing calls [`skip`] and returns. The reason is printed. Two variables make
//! skipped tests visible to a script such as `.ci/run`:
//!
//! - `WEIR_REQUIRE=root,perf,nginx`: a test fails if it would be skipped for one of these needs.
//! - `WEIR_SKIPPED_FILE=FILE`: each skip appends a line to FILE: test, need and reason, with tabs.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// Privileges of root: namespaces, other users, settings of the host.
pub const ROOT: &str = "root";
/// Samples of other processes by `perf_event_open`.
pub const PERF: &str = "perf";
/// Thousands of file descriptors in one process.
pub const DESCRIPTORS: &str = "descriptors";
/// A facility of the kernel: IPv6, Landlock, a cgroup controller.
pub const KERNEL: &str = "kernel";
/// The module `h2` of the `python3` on the path.
pub const PYTHON_H2: &str = "python-h2";
/// The program `nats-server`, on the path or in `~/go/bin`.
pub const NATS_SERVER: &str = "nats-server";

/// Reports that the calling test is skipped. `need` is a constant of this crate or the name of a
/// program.
///
/// # Panics
///
/// If `WEIR_REQUIRE` lists `need`.
pub fn skip(need: &str, reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    println!("skipped: {test}: {need}: {reason}");
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    let skipped_file = std::env::var_os("WEIR_SKIPPED_FILE");
    report(test, need, &reason.to_string(), &required, skipped_file.as_deref().map(Path::new));
}

/// Fails if `required` lists `need`; otherwise appends a line to the file.
fn report(test: &str, need: &str, reason: &str, required: &str, skipped_file: Option<&Path>) {
    assert!(!is_listed(required, need), "WEIR_REQUIRE lists `{need}`, and it is missing: {reason}");
    if let Some(path) = skipped_file {
        let line = format!("{test}\t{need}\t{}\n", reason.replace(['\n', '\t'], " "));
        let written = OpenOptions::new().create(true).append(true).open(path);
        // Tests append at the same time, so that a line is one write.
        // Invariant: the script that names the file can write it.
        written
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("WEIR_SKIPPED_FILE can be written");
    }
}

fn is_listed(required: &str, need: &str) -> bool {
    required.split(',').any(|name| name.trim() == need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_listed_by_its_whole_name() {
        assert!(is_listed("root, perf", PERF));
        assert!(is_listed("root", ROOT));
        for (required, need) in [("", ROOT), ("nginx-light", "nginx"), ("perf", "per")] {
            assert!(!is_listed(required, need), "{required} {need}");
        }
    }

    #[test]
    fn a_required_need_fails_and_another_is_written_to_the_file() {
        let file = std::env::temp_dir().join(format!("weir-skipped-{}", std::process::id()));
        report("a::test", "nginx", "two\nlines", "haproxy", Some(&file));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a::test\tnginx\ttwo lines\n");
        std::fs::remove_file(&file).unwrap();
        let required = std::panic::catch_unwind(|| report("a::test", "nginx", "missing", "root,nginx", None));
        assert!(required.is_err());
    }
}
