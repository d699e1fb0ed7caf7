//! Separation of good and bad responses everywhere: counts, rates, latencies, objectives, validity
//! and exit codes. Servers follow a script, so every count is exact.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::support::peers::ScriptedServer;
use crate::support::{RunOutput, run_load, shared_machine};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const MISSING: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// Starts a server that sends no response, or another response, to every `nth` request.
fn respond_differently_every(
    nth: u64,
    usually: &'static [u8],
    then: Option<&'static [u8]>,
) -> ScriptedServer {
    let request_count = AtomicU64::new(0);
    ScriptedServer::start(move |peer| {
        while peer.request()?.is_some() {
            let number = request_count.fetch_add(1, Ordering::Relaxed) + 1;
            match if number.is_multiple_of(nth) { then } else { Some(usually) } {
                Some(response) => peer.send(response)?,
                None => continue,
            }
        }
        Ok(())
    })
}

fn objectives_met(output: &RunOutput) -> Vec<bool> {
    let objectives = output.record["objectives"].as_array().unwrap();
    objectives.iter().map(|objective| objective["met"].as_bool().unwrap()).collect()
}

#[test]
fn a_request_without_a_response_is_slower_than_any_objective() {
    let _shared = shared_machine();
    let server = respond_differently_every(100, OK, None);
    let slo = "p50<60s,p98<60s,p99.9<60s,max<60s,mean<60s,errors<50%";
    let output =
        run_load(&["-v", "-c", "4", "-n", "300", "-w", "5s", "--slo", slo, "--no-watch", &server.url()]);
    assert_eq!(output.total("errors.timeout"), 3, "{output:?}");
    assert_eq!((output.total("good"), output.total("bad")), (297, 0));
    assert_eq!(objectives_met(&output), [true, true, false, false, false, true], "{output:?}");
    assert_eq!(output.record["objectives"][3]["value"], Value::Null);
    assert!(output.stdout.contains("3 of 300 "), "{output:?}");
    let mut percentiles = output.stdout.lines().filter(|line| line.starts_with("percentiles "));
    assert!(percentiles.any(|line| line.contains(" 297 ") && line.contains(" 3 ")), "{output:?}");
    assert!(!output.reasons().contains(&"errors"), "the objective of errors is the bound");
}

#[test]
fn bad_responses_are_in_no_rate_and_no_percentile_of_good_ones() {
    let _shared = shared_machine();
    let server = respond_differently_every(2, OK, Some(BUSY));
    let output = run_load(&["-c", "2", "-n", "400", "--slo", "rate>=1", "--no-watch", &server.url()]);
    assert_eq!((output.total("good"), output.total("bad")), (200, 200), "{output:?}");
    assert_eq!(output.total("responses"), 400);
    let goods = output.count("latency.last_byte.response.count");
    let bads = output.count("latency.last_byte_bad.response.count");
    // A load of over a second has no latencies of its last partial second.
    assert_eq!(goods + bads + output.count("window.excluded_tail"), 400, "{output:?}");
    assert!(goods <= 200 && bads <= 200, "{output:?}");
    assert_rates_of_window(&output);
    let mut errors = output.stdout.lines().filter(|line| line.starts_with("errors "));
    assert!(errors.any(|line| line.contains(" 200 ")), "{output:?}");
    let intervals = output.record["intervals"].as_array().unwrap();
    assert_eq!(intervals.iter().map(|interval| interval["good"].as_u64().unwrap()).sum::<u64>(), 200);
}

/// Asserts that the rates are those of the measured intervals, in which some responses are bad.
fn assert_rates_of_window(output: &RunOutput) {
    let length_s = output.number("window.to_s") - output.number("window.from_s");
    let sum = |name: &str| {
        let intervals = output.record["intervals"].as_array().unwrap().iter();
        let measured = intervals.filter(|interval| interval["measured"] == true);
        measured.map(|interval| interval[name].as_u64().unwrap()).sum::<u64>() as f64
    };
    let (goodput, all) = (output.number("rates.goodput_per_s"), output.number("rates.responses_per_s"));
    let (good, responses) = (sum("good"), sum("responses"));
    assert!((goodput * length_s - good).abs() < 1e-3, "{goodput} {output:?}");
    assert!((all * length_s - responses).abs() < 1e-3, "{all} {output:?}");
    assert!(good > 0.0 && good < responses, "{good} of {responses}");
    assert_eq!(output.number("objectives.0.value"), goodput);
}

#[test]
fn what_is_expected_is_what_is_good() {
    let _shared = shared_machine();
    let server = ScriptedServer::responding(MISSING);
    let flags = |more: &[&'static str]| {
        let mut all = vec!["-c", "2", "-n", "300", "--no-watch"];
        all.extend(more);
        let url = server.url();
        all.push(&url);
        run_load(&all)
    };
    let expected = flags(&["--expect-status", "404"]);
    assert_eq!((expected.total("good"), expected.total("bad"), expected.errors()), (300, 0, 0));
    assert!(!expected.reasons().contains(&"errors"), "{expected:?}");
    let unexpected = flags(&[]);
    assert_eq!((unexpected.total("good"), unexpected.total("bad")), (0, 300));
    assert!(unexpected.reasons().contains(&"errors"), "{unexpected:?}");
    // One response counts as bad once, as a response or as a failed check.
    let mixed = respond_differently_every(3, MISSING, Some(BUSY));
    let url = mixed.url();
    let expect = ["--expect-status", "404", "--expect-bytes", "0"];
    let output = run_load(&[&["-c", "2", "-n", "300", "--no-watch"], &expect[..], &[&url]].concat());
    assert_eq!((output.total("good"), output.total("bad")), (200, 100), "{output:?}");
    assert_eq!((output.total("errors.check"), output.errors()), (100, 100));
    let mut reasons = output.record["validity"]["reasons"].as_array().unwrap().iter();
    let text = reasons.find(|reason| reason["code"] == "errors").unwrap()["text"].as_str().unwrap();
    assert!(["33 %", "0 failed", "100 bad"].iter().all(|part| text.contains(part)), "{text}");
    let size = run_load(&["-n", "100", "--expect-bytes", "7", "--no-watch", &server.url()]);
    assert_eq!((size.total("bad"), size.total("errors.check")), (100, 100), "{size:?}");
}

#[test]
fn an_objective_of_errors_is_the_bound_of_validity() {
    let _shared = shared_machine();
    let server = respond_differently_every(200, OK, Some(BUSY));
    let url = server.url();
    let base = ["-c", "2", "-n", "400", "--no-watch", "--slo", "errors<1%"];
    let output = run_load(&[&base[..], &[&url]].concat());
    assert_eq!((objectives_met(&output), output.total("bad")), (vec![true], 2), "{output:?}");
    assert!(!output.reasons().contains(&"errors"), "{output:?}");
    assert_eq!(output.number("plan.max_error_rate"), 0.01);
    let stricter = run_load(&[&base[..], &["--max-error-rate", "0.1%", &url]].concat());
    assert!(stricter.reasons().contains(&"errors"), "{stricter:?}");
}

#[test]
fn a_result_that_is_not_valid_comes_before_an_objective() {
    let _shared = shared_machine();
    let server = ScriptedServer::responding(BUSY);
    let invalid = run_load(&["-n", "200", "--slo", "p99<60s", "--no-watch", &server.url()]);
    assert_eq!((objectives_met(&invalid), invalid.code), (vec![false], 4), "{invalid:?}");
    let server = ScriptedServer::responding(OK);
    let missed = run_load(&["-n", "200", "--slo", "p50<1us", "--no-watch", &server.url()]);
    let expected = if missed.record["validity"]["verdict"] == "invalid" { 4 } else { 3 };
    assert_eq!((objectives_met(&missed), missed.code), (vec![false], expected), "{missed:?}");
}
