//! Tests of standard streams that are full or have no reader: no panic, and no silently lost
//! output.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::lab_experiment::own_lines;
use crate::support::{OriginProcess, WEIR, command, run_load, shared_machine, temp_dir};

/// Returns a stdout on which every write fails because it is full.
fn full_stdout() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").unwrap())
}

/// Runs weir with a stdout; returns its exit code and its stderr.
fn with_stdout(arguments: &[&str], stdout: Stdio) -> (i32, String) {
    let directory = temp_dir();
    let output = command(WEIR, directory.path()).args(arguments).stdout(stdout).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns a pipe whose reader has gone.
fn unread_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

#[test]
fn a_full_stdout_is_reported_and_a_closed_one_is_no_error() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = origin.url("/");
    let directory = temp_dir();
    let path = directory.path().join("record.json");
    let record = run_load(&["-n", "20", "-c", "1", &url]).record;
    fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    let path = path.to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["--help"],
        &["load", "--help"],
        &["reference"],
        &["completions", "bash"],
        &["load", "report", path],
        &["lab", "diagnose", path],
        &["lab", "selftest", "--list"],
        &["watch", "--once", "-d", "200ms"],
        &["load", "-R", "200", "-d", "1s", "-c", "1", "--json", "-", &url],
    ];
    for arguments in commands {
        let (code, stderr) = with_stdout(arguments, full_stdout());
        assert_eq!(code, 1, "{arguments:?}: {stderr}");
        let lines: Vec<_> = stderr.lines().filter(|line| line.contains("standard output")).collect();
        assert_eq!(lines.len(), 1, "{arguments:?}: {stderr}");
        assert!(lines[0].ends_with("No space left on device"), "{arguments:?}: {stderr}");
        let (code, stderr) = with_stdout(arguments, unread_pipe());
        // A disturbed load is no failure here.
        assert!(code == 0 || code == 4 && arguments.contains(&"-R"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("standard output"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_watch_that_nobody_reads_any_more_ends() {
    let _shared = shared_machine();
    let (code, stderr) = with_stdout(&["watch", "--interval", "100ms", "-d", "1h"], unread_pipe());
    assert_eq!((code, own_lines(&stderr)), (0, Vec::<&str>::new()));
}

#[test]
fn a_full_stderr_changes_no_exit_code() {
    let _shared = shared_machine();
    let code = |arguments: &[&str]| {
        let directory = temp_dir();
        let mut weir: Command = command(WEIR, directory.path());
        weir.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full_stdout());
        weir.status().unwrap().code()
    };
    assert_eq!(code(&["load", "-c", "0", "http://127.0.0.1:1/"]), Some(2));
    assert_eq!(code(&["load", "--no-such-flag"]), Some(2));
    assert_eq!(code(&["lab"]), Some(2));
    let serve = ["serve", "--listen", "127.0.0.1:0", "-t", "1", "--until-stdin-closes"];
    assert_eq!(code(&serve), Some(0));
}
