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
    assert!(!is_listed(&required, need), "WEIR_REQUIRE lists `{need}`, and it is missing: {reason}");
    if let Some(path) = std::env::var_os("WEIR_SKIPPED_FILE") {
        let line = format!("{test}\t{need}\t{}\n", reason.to_string().replace(['\n', '\t'], " "));
        let written = OpenOptions::new().create(true).append(true).open(&path);
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

    /// Runs the child of the test below: the variables are those of a process.
    #[test]
    #[ignore = "the child of `a_required_need_fails_and_another_is_written_to_the_file`"]
    fn skips() {
        skip("nginx", "two\nlines");
    }

    #[test]
    fn a_required_need_fails_and_another_is_written_to_the_file() {
        let file = std::env::temp_dir().join(format!("weir-skipped-{}", std::process::id()));
        let run = |required: &str| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::skips", "--ignored"])
                .env("WEIR_REQUIRE", required)
                .env("WEIR_SKIPPED_FILE", &file)
                .output()
                .unwrap()
                .status
                .success()
        };
        assert!(run("haproxy"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "tests::skips\tnginx\ttwo lines\n");
        assert!(!run("root,nginx"));
        std::fs::remove_file(&file).unwrap();
    }
}
