//! Tests of `weir edge` against origins and limits with a known edge. They assert the order and
//! kind of the results, not figures, which depend on the machine.

use std::fs;
use std::process::Command;

use record::units::format_count;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::peers::start_slots;
use crate::support::timing::{assert_timing, tries};
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, RUN_TIME_MAX, WEIR, command, quiet_machine, run_weir,
    shared_machine, temp_dir, within,
};

/// Maximum number of tries for a search that the machine disturbs.
const TRIES: usize = 5;

/// Maximum number of searches of a test: one of them should have nothing beside it.
pub(crate) fn search_tries() -> usize {
    tries(TRIES).max(2)
}

/// Returns whether a search ended because the machine disturbed its generator, because a level that
/// had held no longer did, or because its time was over. That proves nothing about the server or the
/// search.
pub(crate) fn was_disturbed(record: &Value) -> bool {
    let disturbances = ["cpu_steal", "send_lag", "run_queue_wait", "client_bound", "generator_stalled"];
    let is_one = |reason: &Value| {
        let reason = reason.as_str().unwrap();
        disturbances.iter().any(|code| reason.starts_with(code))
    };
    let conclusion = &record["conclusion"];
    if ["not_verified", "drifted", "stopped"].iter().any(|end| conclusion["end"] == *end) {
        return true;
    }
    let is_over =
        |note: &Value| note.as_str().is_some_and(|note| note == "stopped at the announced maximum duration");
    if record["notes"].as_array().is_some_and(|notes| notes.iter().any(is_over)) {
        return true;
    }
    let reasons = conclusion["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    conclusion["end"] == "generator_limit" && !reasons.is_empty() && reasons.iter().all(is_one)
}

/// A search that has ended.
struct SearchResult {
    code: i32,
    output: String,
    record: Value,
    /// Directory with its record, `edge.json`.
    directory: TempDir,
}

/// Runs a search, again if it was disturbed; `None` if every try was disturbed.
fn run_edge(arguments: &[&str]) -> Option<SearchResult> {
    let mut searched = search(arguments);
    for _ in 1..search_tries() {
        if !was_disturbed(&searched.record) {
            break;
        }
        searched = search(arguments);
    }
    let held_up = was_disturbed(&searched.record);
    if held_up {
        assert_timing(false, "a search that is not held up", &searched.output);
    }
    (!held_up).then_some(searched)
}

fn search(arguments: &[&str]) -> SearchResult {
    let directory = temp_dir();
    let mut search = command(WEIR, directory.path());
    search.arg("edge").args(arguments).args(["--json", "edge.json"]);
    finish_search(search, directory)
}

/// Runs a search that writes its record in its directory.
fn finish_search(mut search: Command, directory: TempDir) -> SearchResult {
    let (json, out) = (directory.path().join("edge.json"), directory.path().join("out"));
    search.current_dir(directory.path()).stdout(fs::File::create(&out).unwrap());
    let code = Process::spawn(&mut search).wait(RUN_TIME_MAX);
    let record = fs::read(&json).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
    let output = fs::read_to_string(&out).unwrap();
    SearchResult { code, output, record, directory }
}

fn purposes(record: &Value) -> Vec<&str> {
    let trials = record["trials"].as_array().unwrap().iter();
    trials.map(|trial| trial["purpose"].as_str().unwrap()).collect()
}

const SHORT_FLAGS: [&str; 3] = ["--quick", "--trial", "100ms"];

#[test]
fn a_search_ends_with_a_ladder_and_a_record_and_never_above_its_bound() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let bounds = ["--from", "500", "--to", "1k", "--slo", "p99<4s,errors<5%", "-t", "1"];
    let direct = ["--direct", &origin.url("/?t=1"), &origin.url("/?t=2")];
    let Some(searched) = run_edge(&[&SHORT_FLAGS[..], &bounds, &direct].concat()) else { return };
    let SearchResult { code, output, record, .. } = searched;
    assert_eq!(code, 0, "{output}");
    assert_eq!(record["schema"], "weir.edge/1");
    // The page wraps its sentences.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = words(record["answer"]["what"].as_str().unwrap());
    assert!(output.contains("takes about") && words(&output).contains(&what), "{output}");
    assert!(["max_level", "found"].contains(&record["conclusion"]["end"].as_str().unwrap()), "{output}");
    let purposes = purposes(&record);
    let count = |name: &str| purposes.iter().filter(|purpose| **purpose == name).count();
    let ladders = count("ladder");
    assert!(purposes[0] == "reference" && (11..=12).contains(&ladders), "{purposes:?}");
    assert!(count("direct") == ladders && count("verify") >= 2 && count("recheck") >= 1);
    assert_eq!(record["added_latency"].as_array().unwrap().len(), ladders);
    let trials = record["trials"].as_array().unwrap();
    for trial in trials {
        // In a tenth of a second, one request more than is due may be counted.
        let offered_per_s = trial["offered_per_s"].as_f64().unwrap();
        assert!(trial["level"].as_f64() <= Some(1000.0) && offered_per_s <= 1020.0, "{trial}");
    }
    assert!(count("scaling") == 0 && record["scaling"].is_null(), "{output}");
    let names_bound = |note: &Value| note.as_str().is_some_and(|note| note.contains("--to"));
    assert!(record["notes"].as_array().unwrap().iter().any(names_bound), "{}", record["notes"]);
    let ladder = trials.iter().find(|trial| trial["purpose"] == "ladder").unwrap();
    assert!(ladder["observer"]["responses"].as_u64() > Some(0), "{ladder}");
    assert!(record["at_edge"]["totals"]["responses"].as_u64() > Some(0));
    assert!(record["operating_range"][1].as_f64() > record["operating_range"][0].as_f64());
}

#[test]
fn without_a_bound_there_is_a_law_and_the_run_that_it_stopped_at_is_diagnosed_again() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    // Eight at a time, twenty milliseconds each: four hundred per second.
    let arguments = ["--slo", "p99<4s,errors<5%", "-c", "8", "-t", "1"];
    let searched = run_edge(&[&SHORT_FLAGS[..], &arguments, &[&origin.url("/?t=20")]].concat());
    let Some(SearchResult { code, output, record, directory }) = searched else { return };
    assert_eq!(code, 0, "{output}");
    let json = directory.path().join("edge.json");
    let scaling = purposes(&record).iter().filter(|purpose| **purpose == "scaling").count();
    assert_eq!(scaling, 6, "{output}");
    assert!(!output.contains("(--confirm)"), "{output}");
    let stopped_by = record["stopped_by"]["verdict"].as_str().unwrap();
    assert!(record["stopped_run"]["totals"]["responses"].as_u64() > Some(0));
    let again = run_weir(&["lab", "diagnose", "--json", "-", json.to_str().unwrap()]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    // A cause that no run proves is unknown, whatever the lowest level above the edge shows.
    assert_ne!(stopped_by, "none", "{output}");
    assert!(again["diagnosis"]["verdict"] == stopped_by || stopped_by == "unknown", "{again}");
    let text = run_weir(&["lab", "diagnose", json.to_str().unwrap()]).stdout;
    let offered_per_s = record["stopped_run"]["rates"]["offered_per_s"].as_f64().unwrap();
    let rate = format!(" {}/s ", format_count(offered_per_s));
    assert!(text.contains("\nsearch ") && text.contains(&rate), "{rate}: {text}");
}

#[test]
fn a_bound_inside_of_the_server_is_what_stops_it() {
    let _exclusive = quiet_machine();
    let (_server, url) = start_slots(6, 15);
    let arguments = ["--quick", "--search-only", "--trial", "300ms", &url];
    let is_named = |result: &SearchResult| result.record["stopped_by"]["verdict"] == "subject_limited";
    // On a busy machine, a level may be missed, or held again, for other reasons.
    let searched = std::iter::repeat_with(|| run_edge(&arguments)).take(search_tries()).flatten();
    let mut last = None;
    for result in searched {
        let named = is_named(&result);
        last = Some(result);
        if named {
            break;
        }
    }
    let Some(searched) = last else { return };
    let SearchResult { output, record, .. } = &searched;
    // The baseline is measured once, and every trial is diagnosed with it.
    assert!(record["baseline"]["good"].as_u64() > Some(1), "{output}");
    for run in ["stopped_run", "at_edge"].map(|name| &record[name]).iter().filter(|run| !run.is_null()) {
        assert_eq!(run["baseline"], record["baseline"], "{output}");
    }
    assert_timing(is_named(&searched), "a semaphore is named as a bound inside of the subject", output);
}

#[test]
fn without_a_baseline_a_search_sends_nothing_before_its_first_trial() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let bounds = ["--search-only", "--no-baseline", "--from", "100", "--to", "100", &origin.url("/")];
    let Some(searched) = run_edge(&[&SHORT_FLAGS[..], &bounds].concat()) else { return };
    let SearchResult { output, record, .. } = searched;
    assert!(record["baseline"].is_null() && record["at_edge"]["baseline"].is_null(), "{output}");
}

#[test]
fn an_objective_that_nothing_meets_is_missed() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let arguments = ["--find", "connections", "--from", "4", "--slo", "p99<1ns", &origin.url("/")];
    let Some(searched) = run_edge(&[&SHORT_FLAGS[..], &arguments].concat()) else { return };
    let SearchResult { code, output, record, .. } = searched;
    assert_eq!((code, record["conclusion"]["end"].as_str()), (3, Some("below_lowest")), "{output}");
    assert_eq!(record["objectives"], serde_json::json!(["p99<1ns", "errors<0.1%"]));
    assert_eq!(record["conclusion"]["upper"].as_f64(), Some(1.0), "{output}");
    assert!(output.contains("p99<1ns"), "{output}");
}

#[test]
fn a_server_of_errors_only_ends_the_search_at_once() {
    let origin = OriginProcess::start(&["-t", "1"]);
    // Searched only with its reference: no other rate has another status.
    let searched = search(&["-c", "4", "-t", "1", &origin.url("/?r=404")]);
    assert_eq!(searched.code, 3, "{}", searched.output);
    assert_eq!(purposes(&searched.record), ["reference"], "{}", searched.output);
    for part in ["no request got a good response", "status 404", "curl -i"] {
        let words = searched.output.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn connections_are_counted_up_to_what_the_server_takes() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--connections-max", "40"]);
    let arguments = ["--find", "connections", "--from", "10", "--to", "100", "-w", "1s"];
    let searched = run_edge(&[&SHORT_FLAGS[..], &arguments, &[&origin.url("/")]].concat());
    let Some(SearchResult { code, output, record, .. }) = searched else { return };
    assert_eq!(code, 0, "{output}");
    // The end of a trial may cut one request, and so allow one or two connections too many.
    let level = record["conclusion"]["level"].as_f64().unwrap();
    assert!((1.0..=44.0).contains(&level), "{output}");
}

/// Searches for connections in a process that may open 128 files.
fn search_with_few_descriptors(url: &str) -> SearchResult {
    let directory = temp_dir();
    let flags = "--quick --trial 100ms --find connections --from 10 --json edge.json";
    let mut shell = command("sh", directory.path());
    shell.args(["-c", &format!("ulimit -n 128; exec {WEIR} edge {flags} {url}")]);
    finish_search(shell, directory)
}

#[test]
fn own_descriptors_are_a_limit_of_the_generator() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let is_limit = |result: &SearchResult| result.record["conclusion"]["limited_at"] == 64.0;
    let mut searched = search_with_few_descriptors(&origin.url("/"));
    for _ in 1..TRIES {
        if is_limit(&searched) {
            break;
        }
        searched = search_with_few_descriptors(&origin.url("/"));
    }
    let SearchResult { code, output, record, .. } = &searched;
    if !is_limit(&searched) {
        // On a busy machine a level below that limit may be missed.
        let trials = record["trials"].as_array().unwrap();
        assert!(trials.iter().any(|trial| trial["outcome"] != "held"), "{output}");
        return assert_timing(false, "a search that is not held up", output);
    }
    assert_eq!((*code, record["conclusion"]["end"].as_str()), (4, Some("generator_limit")), "{output}");
    let reason = record["conclusion"]["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("descriptors: ") && output.contains("descriptors"), "{reason} {output}");
}

#[test]
fn what_was_known_is_kept_when_it_is_interrupted() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let mut search = command(WEIR, directory.path());
    let arguments = ["edge", "--json", "edge.json", "--keep", "trials", "--trial", "400ms"];
    search.args(arguments).arg(origin.url("/")).current_dir(directory.path());
    search.stdout(fs::File::create(directory.path().join("out")).unwrap());
    let mut search = Process::spawn(&mut search);
    // One trial is kept.
    let trial_files = || {
        let entries = fs::read_dir(directory.path().join("trials")).into_iter().flatten().flatten();
        let ends = entries.map(|entry| entry.path().extension().map(ToOwned::to_owned));
        ends.filter(|end| end.as_deref() == Some("json".as_ref())).count()
    };
    assert!(within(EVENT_TIMEOUT, || trial_files() > 0), "no trial is kept");
    search.signal(Signal::INT);
    assert_eq!(search.wait(EVENT_TIMEOUT), 4);
    let text = fs::read(directory.path().join("edge.json")).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["conclusion"]["end"], "stopped");
    let trial_count = trial_files();
    assert!(trial_count >= record["trials"].as_array().unwrap().len() && trial_count > 0, "{trial_count}");
}

#[test]
fn impossible_searches_are_reported() {
    let _shared = shared_machine();
    let handshakes = run_weir(&["edge", "--find", "handshakes", "http://127.0.0.1:1/"]);
    assert_eq!(handshakes.code, 2);
    assert!(["--find: ", "TLS"].iter().all(|part| handshakes.stderr.contains(part)), "{handshakes:?}");
    let nothing = run_weir(&["edge", "--slo", "rate>5", "--to", "1"]);
    assert_eq!(nothing.code, 2);
    for flag in ["--slo", "--to", "URL"] {
        assert!(nothing.stderr.contains(flag), "{flag}: {}", nothing.stderr);
    }
    let nobody = run_weir(&["edge", "http://127.0.0.1:1/"]);
    assert_eq!(nobody.code, 1, "{}", nobody.stderr);
}
