//! The pages of `load`, `load report` and `edge`, and the comparison with a baseline, by the real binary.

use std::fs;

use serde_json::Value;

use crate::support::peers::start_slots;
use crate::support::timing::assert_timing;
use crate::support::{OriginProcess, quiet_machine, run_weir, shared_machine, temp_dir};

/// Checks that a file is one complete page that loads nothing.
fn assert_page(path: &str) -> String {
    let page = fs::read_to_string(path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{path}");
    assert!(page.contains("default-src 'none'") && page.contains("class=\"answer\""), "{path}");
    for part in ["src=\"http", "href=\"http", "url(", "@import", "<link rel=\"stylesheet"] {
        assert!(!page.contains(part), "{part} in {path}");
    }
    page
}

#[test]
fn a_load_and_a_search_write_a_page_each() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = format!("http://{}/?s=100", origin.authority);
    let directory = temp_dir();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (page, json) = (name("load.html"), name("load.json"));
    let output =
        run_weir(&["load", "-c", "2", "-R", "200", "-d", "3s", "--json", &json, "--html", &page, &url]);
    assert!(output.code == 0 || output.code == 4, "{output:?}");
    let text = assert_page(&page);
    let record: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let p99 = record::units::format_duration_ns(
        record["latency"]["last_byte"]["response"]["p99_ns"].as_u64().unwrap(),
    );
    assert!(text.contains(&p99) && output.stdout.contains(&p99), "{p99}");
    assert!(text.contains("?s=100") && text.contains("attempted 200/s"));
    // The page of the stored record is the same.
    let again = name("again.html");
    run_weir(&["load", "report", "--html", &again, &json]);
    assert_eq!(fs::read_to_string(&again).unwrap(), text);
    let page = name("edge.html");
    let output = run_weir(&[
        "edge",
        "--quick",
        "--trial",
        "200ms",
        "--from",
        "200",
        "--to",
        "400",
        "--slo",
        "p99<5s,errors<5%",
        "-c",
        "4",
        "--html",
        &page,
        &url,
    ]);
    assert!(output.code == 0 || output.code == 4, "{output:?}");
    let text = assert_page(&page);
    assert!(text.contains("id=\"ladder-latency\"") && text.contains("class=\"decision\""));
    // The record beside the page is the one of the command on it.
    let record: Value = serde_json::from_slice(&fs::read(name("edge.json")).unwrap()).unwrap();
    let decision = &record["decision"];
    let command = decision["prove"].as_str().unwrap();
    assert!(command.ends_with("edge.json") && command.contains("--baseline"), "{command}");
    assert!(
        decision["proof"]["outcome"] == "untested" && !decision["sizes"].as_array().unwrap().is_empty(),
        "{decision}"
    );
    assert!(
        output.stdout.contains("prove it") && output.stdout.contains("not tested: --"),
        "{}",
        output.stdout
    );
    // A file beside a page that is no record of a search stays.
    fs::write(name("other.json"), "{}").unwrap();
    let output = run_weir(&["edge", "--html", &name("other.html"), &url]);
    assert!(output.code == 2 && output.stderr.contains("name one with --json"), "{output:?}");
}

#[test]
fn a_search_tests_its_limit_predicts_the_gain_and_compares_a_repetition() {
    let _exclusive = quiet_machine();
    let directory = temp_dir();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (_server, url) = start_slots(4, 10);
    let (before, after, table) = (name("before.json"), name("after.json"), name("after.md"));
    let search = |json: &str, more: &[&str]| {
        let flags = ["edge", "--trial", "200ms", "--slo", "p99<2s,errors<5%", "-c", "16", "--json", json];
        let output = run_weir(&[&flags[..], more, &[&url]].concat());
        let record: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        (output, record)
    };
    let (output, record) = search(&before, &["--target", "900"]);
    let decision = &record["decision"];
    // A busy machine may hide the limit; then the record says so.
    let proof = &decision["proof"];
    assert!(!proof["text"].as_str().unwrap().is_empty(), "{decision}");
    assert!(
        record["trials"].as_array().unwrap().iter().any(|trial| trial["purpose"] == "full"),
        "{output:?}"
    );
    let is_named = record["stopped_by"]["verdict"] == "subject_limited";
    assert_timing(is_named && proof["outcome"] == "confirmed", "the slots are confirmed", &output.stdout);
    if is_named {
        let expected = &decision["change"]["expected"];
        let (per_s, change) = (&expected["after_per_s"], decision["change"]["text"].as_str().unwrap());
        let factor = per_s["value"].as_f64().unwrap() / expected["before_per_s"].as_f64().unwrap();
        assert_timing(change.contains("from 4 to 8") && factor > 1.5, "twice the slots are worth it", change);
        assert!(per_s["low"].as_f64() <= per_s["value"].as_f64(), "{decision}");
        assert!(per_s["value"].as_f64() <= per_s["high"].as_f64() && factor < 2.2, "{decision}");
    }
    assert_eq!(decision["target_per_s"], 900.0);
    let (output, record) = search(&after, &["--baseline", &before, "--markdown", &table]);
    let comparison = &record["comparison"];
    // A search that was disturbed has no ceiling to compare.
    let factor = comparison["ceiling"]["factor"]["value"].as_f64();
    let is_same = factor.is_some_and(|factor| (0.7..1.4).contains(&factor));
    assert_timing(is_same, "the same server has the same ceiling", &output.stdout);
    // The answer on top may say "at full load", too.
    let compared = output.stdout.split_once("\ncompared ").map(|(_, rest)| rest).unwrap_or_default();
    let compared = compared.split("\n\n").next().unwrap_or_default();
    assert!(compared.contains(" with "), "{}", output.stdout);
    assert_eq!(compared.contains("full load"), factor.is_some(), "{}", output.stdout);
    let text = fs::read_to_string(&table).unwrap();
    // A generator that does not run ends a search before its ladder.
    let has_ladder = record["trials"].as_array().unwrap().iter().any(|trial| trial["purpose"] == "ladder");
    assert!(text.contains("| proof | "), "{text}");
    assert_eq!(text.contains("| Offered | "), has_ladder, "{text}");
    let output = run_weir(&["edge", "--baseline", &table, "--quick", "--thorough", &url]);
    assert!(output.code == 2 && output.stderr.contains("--thorough: not with --quick"), "{output:?}");
}

#[test]
fn a_page_that_cannot_be_written_is_reported_before_the_load() {
    let _shared = shared_machine();
    let output = run_weir(&["load", "--html", "/no/such/page.html", "http://127.0.0.1:1/"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("--html: cannot write /no/such/page.html"), "{}", output.stderr);
    let output = run_weir(&["load", "--html", "-", "http://127.0.0.1:1/"]);
    assert!(output.code == 2 && output.stderr.contains("--html: cannot go to stdout"), "{output:?}");
}

#[test]
fn every_problem_of_a_comparison_is_reported_at_once() {
    let _shared = shared_machine();
    let bad = "p99>10%,rps<-5%,p99.9>+1%";
    let output = run_weir(&["load", "--baseline", "/no/such.json", "--fail-if", bad, "http://127.0.0.1:1/"]);
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["write p99>+10%", "'rps' is unknown", "p50 and p99 only", "--baseline: "] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    let output = run_weir(&["load", "--fail-if", "p99>+10%", "http://127.0.0.1:1/"]);
    assert!(output.code == 2 && output.stderr.contains("add --baseline FILE"), "{output:?}");
}

#[test]
fn a_regression_is_exit_code_3_and_noise_is_none() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = format!("http://{}/", origin.authority);
    let directory = temp_dir();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (now, before) = (name("now.json"), name("before.json"));
    let run = run_weir(&["load", "-c", "2", "-R", "100", "-d", "10s", "--no-watch", "--json", &now, &url]);
    assert!(run.code == 0 || run.code == 4, "{run:?}");
    let mut record: Value = serde_json::from_slice(&fs::read(&now).unwrap()).unwrap();
    // What the machine did to this run is not the subject here.
    record["validity"] = serde_json::json!({ "verdict": "valid", "reasons": [] });
    let steady = |record: &mut Value, p99_ns: u64| {
        for (index, second) in record["intervals"].as_array_mut().unwrap().iter_mut().enumerate() {
            second["p99_ns"] = (p99_ns + index as u64 % 3 * p99_ns / 100).into();
        }
        record["latency"]["last_byte"]["response"]["p99_ns"] = p99_ns.into();
    };
    steady(&mut record, 2_000_000);
    fs::write(&now, record.to_string()).unwrap();
    steady(&mut record, 1_000_000);
    fs::write(&before, record.to_string()).unwrap();
    let page = name("compared.html");
    let compare = |condition: &str, a: &str, b: &str| {
        run_weir(&["load", "report", "--html", &page, "--fail-if", condition, a, b])
    };
    let output = compare("p99>+10%,rate<-50%", &before, &now);
    assert_eq!(output.code, 3, "{output:?}");
    assert!(
        output.stdout.contains("p99>+10%: YES") && output.stdout.contains("95 % interval"),
        "{}",
        output.stdout
    );
    let text = assert_page(&page);
    assert!(text.contains("Compared with") && text.contains("data-series=\"1\""));
    assert_eq!(compare("p99>+10%", &now, &before).code, 0, "an improvement");
    assert_eq!(compare("p99>+10%", &now, &now).code, 0, "the same");
    let output = run_weir(&["load", "report", "--fail-if", "p99>+10%", &now]);
    assert!(output.code == 2 && output.stderr.contains("compares two records"), "{output:?}");
    // A load compares itself with a record.
    let fast =
        ["load", "-c", "2", "-n", "50", "--no-watch", "--baseline", &before, "--fail-if", "p99>+900%", &url];
    let output = run_weir(&fast);
    assert!(output.code == 0 || output.code == 4, "{output:?}");
    assert!(output.stdout.contains("UNDECIDED"), "50 requests decide nothing: {}", output.stdout);
    // The comparison is in every form, and a condition that two records cannot decide is exit code 4.
    let (json, cases) = (name("compared.json"), name("compared.xml"));
    let forms = ["load", "report", "--json", &json, "--junit", &cases, "--markdown", "-", "--fail-if"];
    let output = run_weir(&[&forms[..], &["p99>+10%", &before, &now]].concat());
    assert!(output.code == 3 && output.stdout.contains("| `p99>+10%` | regression: "), "{output:?}");
    let compared: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(compared["comparison"]["conditions"][0]["decision"], "regression");
    assert_eq!(compared["comparison"]["exit_code"], 3);
    assert!(fs::read_to_string(&cases).unwrap().contains("regression: p99&gt;+10%"));
    let mut short = compared.clone();
    short["intervals"].as_array_mut().unwrap().truncate(3);
    let file = name("short.json");
    fs::write(&file, short.to_string()).unwrap();
    let output = run_weir(&["load", "report", "--fail-if", "p99>+10%", &before, &file]);
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.stderr.contains("UNDECIDED") && output.stderr.contains("-d 10s"), "{output:?}");
}
