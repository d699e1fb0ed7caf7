//! `weir watch` against live programs: what it says, what it writes, how it ends.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;

use super::support::{
    Origin, PATIENCE, Process, Running, WEIR, beside_others, command, folder, start, weir, within,
};

/// The port of a running origin.
fn port(origin: &Origin) -> String {
    origin.authority.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn one_look_shows_every_section_of_a_live_server() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let port = port(&origin);
    let output = weir(&["watch", "--once", "--port", &port]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{}", output.stdout);
    let text = output.stdout;
    assert!(text.starts_with("weir watch   "), "{text}");
    for section in ["now", "processors", "programs", "machine"] {
        assert!(
            text.lines().any(|line| line.contains(&format!(" {section} "))),
            "{section}: {text}"
        );
    }
    assert!(text.contains(&format!("subject weir ({}", origin.process.id())), "{text}");
    assert!(text.contains(&format!("port {port}")) && text.contains("backlog"), "{text}");
    assert!(text.contains("cpu0") || text.contains("not observable"), "{text}");
    assert!(text.contains("of one core"), "{text}");
}

/// Waits for so many blocks of text, an interval each.
fn wait_for_blocks(running: &Running, wanted: usize) {
    let blocks = || running.stdout().matches("weir watch   ").count();
    assert!(within(PATIENCE, || blocks() >= wanted), "{}", running.stdout());
}

#[test]
fn a_record_has_the_schema_and_what_was_seen_of_the_program_that_serves_a_url() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let url = origin.url("/");
    let running = start(WEIR, &["watch", "--url", &url, "--every", "250ms", "--json", "RECORD"]);
    wait_for_blocks(&running, 2);
    running.process.signal(Signal::TERM);
    let output = running.finish();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let record = &output.record;
    assert_eq!(record["schema"], "weir.watch/1");
    let observed = &record["observed"];
    assert_eq!(observed["roles"][0]["name"], "subject");
    assert_eq!(observed["roles"][0]["pids"][0], origin.process.id());
    assert!(observed["samples"].as_array().unwrap().len() >= 2);
    assert!(observed["started_at"].as_str().unwrap().starts_with("20"));
    assert!(observed["cost_cpus"].as_f64().is_some());
    assert_eq!(observed["ports"][0]["port"].to_string(), port(&origin));
}

#[test]
fn names_that_are_given_are_the_roles() {
    let _shared = beside_others();
    let one = Origin::start(&["-t", "1"]);
    let other = Origin::start(&["-t", "1"]);
    let named = format!("origin={}", other.process.id());
    let output = weir(&["watch", "--once", "--json", "-", "--port", &port(&one), "--pid", &named]);
    let record: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let roles = record["observed"]["roles"].as_array().unwrap();
    let names: Vec<&str> = roles.iter().map(|role| role["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["origin", "subject"]);
    // The ports of a process are found without being named.
    let ports = record["observed"]["ports"].as_array().unwrap();
    assert!(
        ports.iter().any(|used| used["port"].as_u64() == port(&other).parse().ok()),
        "{ports:?}"
    );
}

#[test]
fn without_a_target_it_shows_the_machine() {
    let _shared = beside_others();
    let output = weir(&["watch", "--once"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{}", output.stdout);
    assert!(output.stdout.contains(" processors, "), "{}", output.stdout);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let _shared = beside_others();
    let wrong =
        weir(&["watch", "--pid", "x", "--port", "0", "--url", "y", "-d", "0", "--every", "1h"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    for flag in ["--pid: ", "--port: ", "--url: ", "--duration: ", "--every: "] {
        assert!(wrong.stderr.contains(flag), "{flag}: {}", wrong.stderr);
    }
    let named = [["--port", "a=80", "--port", "b=80"], ["--port", "a=80", "--pid", "a=1"]];
    for (flags, why) in named.iter().zip(["port 80 is given twice", "'a' is the name of process 1"])
    {
        let twice = weir(&[&["watch", "--once"], &flags[..]].concat());
        assert_eq!(twice.code, 2, "{}", twice.stderr);
        assert!(twice.stderr.contains(why), "{}", twice.stderr);
    }
    let absent = weir(&["watch", "--once", "--pid", "2147483647"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (1, ""));
    assert!(absent.stderr.contains("2147483647: there is no such process"), "{}", absent.stderr);
}

#[test]
fn a_signal_ends_it_with_what_was_seen() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let pid = origin.process.id().to_string();
    let running = start(WEIR, &["watch", "--pid", &pid, "--every", "100ms", "--json", "RECORD"]);
    wait_for_blocks(&running, 1);
    running.process.signal(Signal::TERM);
    let output = running.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(!output.record["observed"]["samples"].as_array().unwrap().is_empty());
}

#[test]
fn the_full_screen_comes_and_q_ends_it() {
    let _shared = beside_others();
    let folder = folder();
    // script(1) gives it a terminal of its own.
    let line = format!("stty cols 100 rows 30; exec {WEIR} watch --pid {}", std::process::id());
    let typed = folder.path().join("typed");
    let mut shell = command("script", folder.path());
    shell.env("TERM", "xterm").args(["-qefc", &line]).arg(&typed);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = shell.spawn() else {
        println!("skipped: there is no script(1) here");
        return;
    };
    let mut keys = child.stdin.take().unwrap();
    let mut process = Process::from(child);
    let shown = |text: &str| {
        let bytes = fs::read(&typed).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    assert!(within(PATIENCE, || shown("q quit") && shown("processors")));
    keys.write_all(b"?").unwrap();
    assert!(within(PATIENCE, || shown("Ctrl-C")));
    keys.write_all(b"q").unwrap();
    assert_eq!(process.wait(PATIENCE), 0);
    // The terminal has its first screen again.
    assert!(shown("\u{1b}[?1049h") && shown("\u{1b}[?1049l"));
}
