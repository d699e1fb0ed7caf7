//! The pages of `load`, `load report` and `edge`, and the comparison with a baseline, by the real binary.

use std::fs;

use serde_json::Value;

use crate::support::{OriginProcess, run_weir, shared_machine, temp_dir};

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
    assert!(assert_page(&page).contains("id=\"ladder-latency\""));
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
    assert!(output.stdout.contains("undecided"), "50 requests decide nothing: {}", output.stdout);
}
