//! Tests of `weir watch` against live processes: its output, its record, and its end.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;

use super::lab_experiment::own_lines;
use super::support::{
    EVENT_TIMEOUT, OriginProcess, Process, RunOutput, RunningProcess, WEIR, command, run_weir,
    shared_machine, start, temp_dir, within,
};

/// Asserts that a watch ended well and reported nothing about itself.
fn assert_silent_end(output: &RunOutput) {
    assert_eq!((output.code, own_lines(&output.stderr).len()), (0, 0), "{output:?}");
}

/// Returns the port of a running origin.
fn port(origin: &OriginProcess) -> String {
    origin.authority.rsplit(':').next().unwrap().to_owned()
}

#[test]
fn one_sample_shows_every_section_of_a_live_server() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let port = port(&origin);
    let output = run_weir(&["watch", "--once", "--port", &port]);
    assert_silent_end(&output);
    let text = output.stdout;
    assert!(text.starts_with("weir watch   "), "{text}");
    for section in ["now", "cpus", "processes", "machine"] {
        assert!(text.lines().any(|line| line.contains(&format!(" {section} "))), "{section}: {text}");
    }
    assert!(text.contains(&format!("subject weir ({}", origin.process.id())), "{text}");
    assert!(text.contains(&format!("port {port}")) && text.contains("backlog"), "{text}");
    assert!(text.contains("cpu0") || text.contains("not observable"), "{text}");
    assert!(text.contains("observation cost"), "{text}");
}

/// Waits for so many blocks of text, one per interval.
fn wait_for_blocks(running: &RunningProcess, count: usize) {
    let blocks = || running.stdout().matches("weir watch   ").count();
    assert!(within(EVENT_TIMEOUT, || blocks() >= count), "{}", running.stdout());
}

#[test]
fn a_record_has_the_schema_and_the_process_that_serves_a_url() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = origin.url("/");
    let running = start(WEIR, &["watch", "--url", &url, "--interval", "250ms", "--json", "RECORD"]);
    wait_for_blocks(&running, 2);
    running.process.signal(Signal::TERM);
    let output = running.finish();
    assert_silent_end(&output);
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
    let _shared = shared_machine();
    let subject = OriginProcess::start(&["-t", "1"]);
    let origin = OriginProcess::start(&["-t", "1"]);
    let named = format!("origin={}", origin.process.id());
    let output = run_weir(&["watch", "--once", "--json", "-", "--port", &port(&subject), "--pid", &named]);
    let record: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let roles = record["observed"]["roles"].as_array().unwrap();
    let names: Vec<&str> = roles.iter().map(|role| role["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["origin", "subject"]);
    // The ports of a process are found without being named.
    let ports = record["observed"]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|used| used["port"].as_u64() == port(&origin).parse().ok()), "{ports:?}");
}

#[test]
fn without_a_target_it_shows_the_machine() {
    let _shared = shared_machine();
    let output = run_weir(&["watch", "--once"]);
    assert_silent_end(&output);
    assert!(output.stdout.contains(" CPUs, "), "{}", output.stdout);
}

#[test]
fn all_errors_are_reported_at_once() {
    let _shared = shared_machine();
    let wrong =
        run_weir(&["watch", "--pid", "x", "--port", "0", "--url", "y", "-d", "0", "--interval", "1h"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    for flag in ["--pid: ", "--port: ", "--url: ", "--duration: ", "--interval: "] {
        assert!(wrong.stderr.contains(flag), "{flag}: {}", wrong.stderr);
    }
    let named = [["--port", "a=80", "--port", "b=80"], ["--port", "a=80", "--pid", "a=1"]];
    for (flags, parts) in named.iter().zip([&["--port: ", " 80 "][..], &["'a'", "port 80", "process 1"]]) {
        let twice = run_weir(&[&["watch", "--once"], &flags[..]].concat());
        assert_eq!(twice.code, 2, "{}", twice.stderr);
        assert!(parts.iter().all(|part| twice.stderr.contains(part)), "{parts:?}: {}", twice.stderr);
    }
    let absent = run_weir(&["watch", "--once", "--pid", "2147483647"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (1, ""));
    assert!(absent.stderr.contains("2147483647"), "{}", absent.stderr);
}

#[test]
fn a_signal_ends_it_with_what_was_seen() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let pid = origin.process.id().to_string();
    let running = start(WEIR, &["watch", "--pid", &pid, "--interval", "100ms", "--json", "RECORD"]);
    wait_for_blocks(&running, 1);
    running.process.signal(Signal::TERM);
    let output = running.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(!output.record["observed"]["samples"].as_array().unwrap().is_empty());
}

#[test]
fn the_full_screen_comes_and_q_ends_it() {
    let _shared = shared_machine();
    let directory = temp_dir();
    // script(1) gives it its own terminal.
    let line = format!("stty cols 100 rows 30; exec {WEIR} watch --pid {}", std::process::id());
    let typed = directory.path().join("typed");
    let mut shell = command("script", directory.path());
    shell.env("TERM", "xterm").args(["-qefc", &line]).arg(&typed);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = shell.spawn() else {
        test_needs::skip("script", "there is no script(1) here");
        return;
    };
    let mut keys = child.stdin.take().unwrap();
    let mut process = Process::from(child);
    let shown = |text: &str| {
        let bytes = fs::read(&typed).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    assert!(within(EVENT_TIMEOUT, || shown("q quit") && shown("cpus")));
    keys.write_all(b"?").unwrap();
    assert!(within(EVENT_TIMEOUT, || shown("Ctrl-C")));
    keys.write_all(b"q").unwrap();
    assert_eq!(process.wait(EVENT_TIMEOUT), 0);
    // The terminal shows its first screen again.
    assert!(shown("\u{1b}[?1049h") && shown("\u{1b}[?1049l"));
}
