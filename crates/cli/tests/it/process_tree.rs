//! A subject whose named process only waits for its children, as a master does for its workers:
//! their activity belongs to the subject.

use std::process::Stdio;

use serde_json::Value;

use crate::profile::sampling_allowed;
use crate::support::{
    EVENT_TIMEOUT, Process, RunOutput, WEIR, command, run_weir, shared_machine, start, stats_of, temp_dir,
    within,
};

/// Maximum number of loads: in a short count of calls, a server without a CPU makes none.
const TRIES: usize = 5;

/// Script that starts a server in the background and waits for it; the server ends with the test's
/// end of stdin.
const MASTER_SCRIPT: &str =
    "exec 3<&0; \"$0\" serve -t 1 --until-stdin-closes --listen 127.0.0.1:0 <&3 & wait";

/// Returns the subject's entries of a list of the observation.
fn select_subject_rows(output: &RunOutput, list: &str) -> Vec<Value> {
    let all = output.record["observed"][0][list].as_array().unwrap().iter();
    all.filter(|row| row["role"] == "subject").cloned().collect()
}

/// Returns whether every count of system calls has some.
fn has_counts(output: &RunOutput) -> bool {
    let calls = select_subject_rows(output, "calls");
    let mut counts = calls.iter().filter(|count| count["call"] == "system calls");
    counts.all(|count| count["count"].as_u64() > Some(0))
}

#[test]
fn what_workers_do_is_their_masters() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut master = Process::spawn(
        command("sh", directory.path())
            .args(["-c", MASTER_SCRIPT, WEIR])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    );
    let line = master.first_line();
    let address = line.strip_prefix("listening on ").unwrap().split(' ').next().unwrap();
    let url = format!("{}/?cpu=2ms", address.trim_end().trim_end_matches('/'));
    let authority = address.trim_start_matches("http://").trim_end().trim_end_matches('/');
    let pid = master.id().to_string();
    let load = ["load", "--json", "RECORD", "-c", "2", "-t", "1", "-d", "4s", "--subject", &pid, &url];
    let mut loads = std::iter::repeat_with(|| run_weir(&load)).take(TRIES);
    let output = loads.find(has_counts).expect("a count of the workers' system calls");
    // The master itself only waits. A worker has little of a busy machine.
    assert!(output.number("cpu.subject_cpus") > 0.01, "{output:?}");
    let observed = &output.record["observed"][0];
    if let Err(reason) = sampling_allowed() {
        test_needs::skip(test_needs::PERF, reason);
        return;
    }
    let burns = |functions: &[Value]| {
        functions.iter().any(|function| function["function"].as_str().unwrap().contains("burn::burn"))
    };
    assert!(burns(&select_subject_rows(&output, "functions")), "{:?}", observed["functions"]);
    assert!(observed["cost_after_s"].as_f64() > Some(0.0), "{:?}", observed["cost_after_s"]);
    let requests = || stats_of(authority)["requests"].as_u64().unwrap();
    let before = requests();
    let busy = start(WEIR, &["load", "-c", "2", "-t", "1", "-d", "600s", &url]);
    assert!(within(EVENT_TIMEOUT, || requests() > before + 10), "the load did not begin");
    let output = start(WEIR, &["lab", "profile", "-p", &pid, "-d", "1s", "--json", "RECORD"]).finish();
    drop(busy);
    assert!(burns(output.record["functions"].as_array().unwrap()), "{output:?}");
}
