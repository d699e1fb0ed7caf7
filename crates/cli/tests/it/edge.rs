//! `weir edge` against origins and limits whose edge is known beforehand. What it finds is asserted by
//! order and kind, not by figures: those depend on the machine.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::times::demand;
use crate::support::{
    Origin, PATIENCE, Process, WEIR, beside_others, command, folder, weir, within,
};

/// How often a search is done that the machine does not let end.
pub(crate) const TRIES: usize = 5;

/// Whether a search ended because its generator was held up by the machine: that says nothing of the
/// server, nor of the search.
pub(crate) fn was_held_up(record: &Value) -> bool {
    let disturbances =
        ["cpu_steal", "send_lag", "run_queue_wait", "client_bound", "generator_stalled"];
    let is_one = |reason: &Value| {
        let reason = reason.as_str().unwrap();
        disturbances.iter().any(|code| reason.starts_with(code))
    };
    let conclusion = &record["conclusion"];
    let reasons = conclusion["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    conclusion["end"] == "generator_limit" && !reasons.is_empty() && reasons.iter().all(is_one)
}

/// A search that has ended.
struct Searched {
    code: i32,
    said: String,
    record: Value,
    /// With its record, `edge.json`.
    place: TempDir,
}

/// Does a search, again where it was held up; `None` where it never was not.
fn edge(arguments: &[&str]) -> Option<Searched> {
    let mut searched = search(arguments);
    for _ in 1..TRIES {
        if !was_held_up(&searched.record) {
            break;
        }
        searched = search(arguments);
    }
    let held_up = was_held_up(&searched.record);
    if held_up {
        demand(false, "a search that is not held up", &searched.said);
    }
    (!held_up).then_some(searched)
}

fn search(arguments: &[&str]) -> Searched {
    let place = folder();
    let json = place.path().join("edge.json");
    let out = place.path().join("out");
    let mut search = command(WEIR, place.path());
    search.arg("edge").args(arguments).arg("--json").arg(&json).current_dir(place.path());
    search.stdout(fs::File::create(&out).unwrap());
    let code = Process::spawn(&mut search).wait(4 * PATIENCE);
    let record = fs::read(&json).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
    let said = fs::read_to_string(&out).unwrap();
    Searched { code, said, record, place }
}

fn purposes(record: &Value) -> Vec<&str> {
    let trials = record["trials"].as_array().unwrap().iter();
    trials.map(|trial| trial["purpose"].as_str().unwrap()).collect()
}

const SHORT: [&str; 3] = ["--quick", "--trial", "100ms"];

#[test]
fn a_search_ends_with_a_ladder_and_a_record_and_never_above_its_bound() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let bounds = ["--from", "500", "--to", "1k", "--slo", "p99<4s,errors<5%", "-t", "1"];
    let direct = ["--direct", &origin.url("/?t=1"), &origin.url("/?t=2")];
    let Some(searched) = edge(&[&SHORT[..], &bounds, &direct].concat()) else { return };
    let Searched { code, said, record, .. } = searched;
    assert_eq!(code, 0, "{said}");
    assert_eq!(record["schema"], "weir.edge/1");
    assert!(said.contains("takes about") && said.contains(record["words"].as_str().unwrap()));
    assert!(["top", "found"].contains(&record["conclusion"]["end"].as_str().unwrap()), "{said}");
    let purposes = purposes(&record);
    let count = |name: &str| purposes.iter().filter(|purpose| **purpose == name).count();
    let ladders = count("ladder");
    assert!(purposes[0] == "reference" && (11..=12).contains(&ladders), "{purposes:?}");
    assert!(count("direct") == ladders && count("verify") >= 2 && count("recheck") >= 1);
    assert_eq!(record["added"].as_array().unwrap().len(), ladders);
    let trials = record["trials"].as_array().unwrap();
    for trial in trials {
        // One more request than is due may be counted in a tenth of a second.
        let offered_per_s = trial["offered_per_s"].as_f64().unwrap();
        assert!(trial["level"].as_f64() <= Some(1000.0) && offered_per_s <= 1020.0, "{trial}");
    }
    assert!(count("scaling") == 0 && said.contains("no law of scaling"), "{said}");
    let ladder = trials.iter().find(|trial| trial["purpose"] == "ladder").unwrap();
    assert!(ladder["observer"]["responses"].as_u64() > Some(0), "{ladder}");
    assert!(record["at_edge"]["totals"]["responses"].as_u64() > Some(0));
    assert!(record["operating_range"][1].as_f64() > record["operating_range"][0].as_f64());
}

#[test]
fn without_a_bound_there_is_a_law_and_the_run_that_it_stopped_at_is_diagnosed_again() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    // Eight at a time, twenty milliseconds each: four hundred a second.
    let asked = ["--slo", "p99<4s,errors<5%", "-c", "8", "-t", "1"];
    let searched = edge(&[&SHORT[..], &asked, &[&origin.url("/?t=20")]].concat());
    let Some(Searched { code, said, record, place }) = searched else { return };
    assert_eq!(code, 0, "{said}");
    let json = place.path().join("edge.json");
    let scaling = purposes(&record).iter().filter(|purpose| **purpose == "scaling").count();
    assert_eq!(scaling, 6, "{said}");
    assert!(!said.contains("(--confirm)"), "{said}");
    let stopped_by = record["stopped_by"]["verdict"].as_str().unwrap();
    assert!(record["stopped_run"]["totals"]["responses"].as_u64() > Some(0));
    let again = weir(&["lab", "diagnose", "--json", "-", json.to_str().unwrap()]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    // A cause that no run proves is unknown, whatever that of the lowest level above the edge says.
    assert_ne!(stopped_by, "none", "{said}");
    assert!(again["diagnosis"]["verdict"] == stopped_by || stopped_by == "unknown", "{again}");
    let text = weir(&["lab", "diagnose", json.to_str().unwrap()]).stdout;
    assert!(text.starts_with("search       the run at") && text.contains("which did not hold"));
}

#[test]
fn an_objective_that_nothing_meets_is_missed() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let asked = ["--find", "connections", "--from", "4", "--slo", "p99<1ns", &origin.url("/")];
    let Some(searched) = edge(&[&SHORT[..], &asked].concat()) else { return };
    let Searched { code, said, record, .. } = searched;
    assert_eq!((code, record["conclusion"]["end"].as_str()), (3, Some("below_lowest")), "{said}");
    assert!(said.contains("does not hold p99<1ns, errors<0.1% even at 1 connection:"), "{said}");
}

#[test]
fn connections_are_counted_up_to_what_the_server_takes() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1", "--connections-max", "40"]);
    let asked = ["--find", "connections", "--from", "10", "--to", "100", "-w", "500ms"];
    let searched = edge(&[&SHORT[..], &asked, &[&origin.url("/")]].concat());
    let Some(Searched { code, said, record, .. }) = searched else { return };
    assert_eq!(code, 0, "{said}");
    // One request may be cut by the end of a trial, and so one or two connections too many.
    let level = record["conclusion"]["level"].as_f64().unwrap();
    assert!((1.0..=44.0).contains(&level), "{said}");
}

#[test]
fn own_descriptors_are_a_limit_of_the_generator() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let place = folder();
    let out = place.path().join("out");
    let line = format!(
        "ulimit -n 128; exec {WEIR} edge --quick --trial 100ms --find connections --from 10 {}",
        origin.url("/")
    );
    let mut shell = command("sh", place.path());
    shell.args(["-c", &line]).stdout(fs::File::create(&out).unwrap());
    let code = Process::spawn(&mut shell).wait(4 * PATIENCE);
    let said = fs::read_to_string(&out).unwrap();
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("the edge is at least") && said.contains("descriptors"), "{said}");
}

#[test]
fn what_was_known_is_kept_when_it_is_interrupted() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let place = folder();
    let mut search = command(WEIR, place.path());
    let asked = ["edge", "--json", "edge.json", "--keep", "trials", "--trial", "400ms"];
    search.args(asked).arg(origin.url("/")).current_dir(place.path());
    search.stdout(fs::File::create(place.path().join("out")).unwrap());
    let mut search = Process::spawn(&mut search);
    // One trial is kept.
    let kept = || {
        let entries = fs::read_dir(place.path().join("trials")).into_iter().flatten().flatten();
        let ends = entries.map(|entry| entry.path().extension().map(ToOwned::to_owned));
        ends.filter(|end| end.as_deref() == Some("json".as_ref())).count()
    };
    assert!(within(PATIENCE, || kept() > 0), "no trial is kept");
    search.signal(Signal::INT);
    assert_eq!(search.wait(PATIENCE), 4);
    let text = fs::read(place.path().join("edge.json")).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["conclusion"]["end"], "stopped");
    let kept = kept();
    assert!(kept >= record["trials"].as_array().unwrap().len() && kept > 0, "{kept}");
}

#[test]
fn what_cannot_be_searched_for_is_said() {
    let _shared = beside_others();
    let handshakes = weir(&["edge", "--find", "handshakes", "http://127.0.0.1:1/"]);
    assert_eq!(handshakes.code, 2);
    assert!(handshakes.stderr.contains("TLS is not in weir yet: not available"));
    let nothing = weir(&["edge", "--slo", "rate>5", "--to", "1"]);
    assert_eq!(nothing.code, 2);
    for place in ["--slo", "--to", "URL"] {
        assert!(nothing.stderr.contains(place), "{place}: {}", nothing.stderr);
    }
    let nobody = weir(&["edge", "http://127.0.0.1:1/"]);
    assert_eq!(nobody.code, 1, "{}", nobody.stderr);
}
