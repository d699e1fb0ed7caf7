//! Standard streams that are full or that nobody reads: no panic, and no output lost in silence.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::support::{Origin, WEIR, beside_others, command, folder, load};

/// What everything that is written to fails on, for want of room.
fn full() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").unwrap())
}

/// Runs weir with a stdout; its exit code, and what it said on stderr.
fn with_stdout(arguments: &[&str], stdout: Stdio) -> (i32, String) {
    let home = folder();
    let output = command(WEIR, home.path()).args(arguments).stdout(stdout).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pipe whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

#[test]
fn a_full_stdout_is_said_and_one_that_nobody_reads_is_no_error() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let url = origin.url("/");
    let home = folder();
    let path = home.path().join("record.json");
    let record = load(&["-n", "20", "-c", "1", &url]).record;
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
        let (code, said) = with_stdout(arguments, full());
        assert_eq!(code, 1, "{arguments:?}: {said}");
        let lines: Vec<_> = said.lines().filter(|line| line.contains("standard output")).collect();
        assert_eq!(lines.len(), 1, "{arguments:?}: {said}");
        assert!(lines[0].contains("No space left"), "{arguments:?}: {said}");
        let (code, said) = with_stdout(arguments, unread());
        // A load may be disturbed, which is another matter.
        assert!(code == 0 || code == 4 && arguments.contains(&"-R"), "{arguments:?}: {said}");
        assert!(!said.contains("standard output"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_watch_that_nobody_reads_any_more_ends() {
    let _shared = beside_others();
    let (code, said) = with_stdout(&["watch", "--every", "100ms", "-d", "1h"], unread());
    assert_eq!((code, said.as_str()), (0, ""));
}

#[test]
fn a_full_stderr_changes_no_exit_code() {
    let _shared = beside_others();
    let code = |arguments: &[&str]| {
        let home = folder();
        let mut weir: Command = command(WEIR, home.path());
        weir.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full());
        weir.status().unwrap().code()
    };
    assert_eq!(code(&["load", "-c", "0", "http://127.0.0.1:1/"]), Some(2));
    assert_eq!(code(&["load", "--no-such-flag"]), Some(2));
    assert_eq!(code(&["lab"]), Some(2));
    let serve = ["serve", "--listen", "127.0.0.1:0", "-t", "1", "--until-stdin-closes"];
    assert_eq!(code(&serve), Some(0));
}
