//! Tests of `weir lab profile` against a server whose burning function is known, and of its error
//! messages.

use std::fs;

use serde_json::Value;

use crate::support::{
    EVENT_TIMEOUT, OriginProcess, RunOutput, WEIR, run_weir, shared_machine, start, start_load, temp_dir,
    within,
};

/// Checks whether this machine allows function sampling; otherwise returns the reason.
pub(crate) fn sampling_allowed() -> Result<(), String> {
    let output = run_weir(&["lab", "profile", "-d", "100ms", "--json", "-", "--", "true"]);
    if output.code == 1 && output.stderr.contains("not observable") {
        return Err(output.stderr);
    }
    let record: Value = serde_json::from_str(&output.stdout).unwrap();
    if record["threads_only"] == true {
        return Err(format!("only the time of threads is seen here: {}", record["notes"]));
    }
    Ok(())
}

#[test]
fn a_function_that_burns_is_on_top() {
    let _shared = shared_machine();
    if let Err(reason) = sampling_allowed() {
        test_needs::skip(test_needs::PERF, reason);
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let file = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let load = start_load(&["-c", "2", "-d", "600s", &origin.url("/?cpu=5ms")]);
    let burns = || origin.stats()["requests"].as_u64() > Some(10);
    assert!(within(EVENT_TIMEOUT, burns), "the load did not begin");
    let pid = origin.process.id().to_string();
    let folded = file("run.folded");
    let svg = file("run.svg");
    let output = start(
        WEIR,
        &["lab", "profile", "-p", &pid, "-d", "2s", "--json", "RECORD", "--folded", &folded, "--svg", &svg],
    )
    .finish();
    assert_eq!(output.code, 0, "{output:?}");
    let functions = output.record["functions"].as_array().unwrap();
    // The function reads the clock over and over; in a test build the name may belong to either.
    let burns =
        functions.iter().find(|function| function["function"].as_str().unwrap().contains("burn::burn"));
    assert!(burns.is_some_and(|function| function["total_fraction"].as_f64() > Some(0.5)), "{functions:?}");
    assert!(output.stdout.contains("burn::burn"), "{}", output.stdout);
    assert!(fs::read_to_string(&folded).unwrap().contains("burn::burn"));
    assert!(fs::read_to_string(&svg).unwrap().contains("<svg"));
    let flags = ["-d", "1s", "--baseline", &folded, "--json", "RECORD"];
    let against = start(WEIR, &[&["lab", "profile", "-p", &pid], &flags[..]].concat()).finish();
    assert_eq!(against.code, 0, "{against:?}");
    let changes = against.record["changes"].as_array().unwrap();
    let burns = changes.iter().filter(|change| change["function"].as_str().unwrap().contains("burn::burn"));
    let mut totals = burns.map(|change| (change["total_before"].as_f64(), change["total_after"].as_f64()));
    assert!(totals.any(|(before, after)| before > Some(0.0) && after > Some(0.0)), "{changes:?}");
    assert!(against.stdout.contains("Compared"), "{}", against.stdout);
    drop(load);
}

#[test]
fn a_command_is_sampled_to_its_end() {
    let _shared = shared_machine();
    if let Err(reason) = sampling_allowed() {
        test_needs::skip(test_needs::PERF, reason);
        return;
    }
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo said";
    let output = run_weir(&["lab", "profile", "-d", "60s", "--json", "-", "--", "sh", "-c", script]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("said"), "{}", output.stderr);
    let record: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(record["samples"].as_u64() > Some(0), "{record}");
    assert!(record["length_s"].as_f64() < Some(60.0));
    let idle =
        start(WEIR, &["lab", "profile", "-d", "100ms", "--json", "RECORD", "--", "sleep", "5"]).finish();
    assert_eq!(idle.code, if idle.count("samples") == 0 { 4 } else { 0 }, "{idle:?}");
    // The command's children end with it.
    let with_child =
        run_weir(&["lab", "profile", "-d", "3s", "--", "sh", "-c", "sleep 600 & echo child $!; wait"]);
    let id = with_child.stderr.split_whitespace().skip_while(|word| *word != "child").nth(1);
    let stat = format!("/proc/{}/stat", id.unwrap());
    let is_gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
    assert!(within(EVENT_TIMEOUT, is_gone), "{with_child:?}");
}

#[test]
fn impossible_sampling_is_reported() {
    let _shared = shared_machine();
    let nobody = run_weir(&["lab", "profile", "--pid", "2147483647", "-d", "100ms"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.stderr.contains("not observable"), "{}", nobody.stderr);
    let assert_named = |output: &RunOutput, parts: &[&str]| {
        assert!(parts.iter().all(|part| output.stderr.contains(part)), "{parts:?}: {output:?}");
    };
    let two = run_weir(&["lab", "profile", "--pid", "1", "--port", "80"]);
    assert_eq!(two.code, 2, "{two:?}");
    assert_named(&two, &["--pid", "--port"]);
    let missing = run_weir(&["lab", "profile", "--pid", "1", "--baseline", "/no/such/file"]);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.stderr.contains("--baseline"), "{}", missing.stderr);
    let nothing = run_weir(&["lab", "profile", "--pid", "1", "-d", "0"]);
    assert_eq!(nothing.code, 2, "{nothing:?}");
    assert_named(&nothing, &["--duration: ", "'0'"]);
    let program = run_weir(&["lab", "profile", "-d", "1", "--", "/no/such"]);
    assert_eq!((program.code, program.stderr.lines().count()), (1, 1), "{program:?}");
    assert_named(&program, &["weir: /no/such: "]);
    let program = run_weir(&["lab", "profile", "-d", "1", "--", "no-such-program"]);
    assert_eq!(program.code, 1, "{program:?}");
    assert_named(&program, &["no-such-program: ", "PATH"]);
    let directory = run_weir(&["lab", "profile", "-d", "1", "--", "/"]);
    assert_eq!(directory.code, 1, "{directory:?}");
    assert_named(&directory, &["weir: /: "]);
}

#[test]
fn a_system_call_that_the_kernel_does_not_have_is_refused_before_the_run() {
    let _shared = shared_machine();
    if host::perf::call_counter::CallKind::parse("no_such_call").unwrap().is_known().is_none() {
        return test_needs::skip(test_needs::PERF, "this kernel does not list the tracepoints, or not to us");
    }
    let arguments = ["lab", "profile", "--pid", "1", "-d", "1h", "--calls", "read,no_such_call"];
    let output = run_weir(&arguments);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(["--calls: ", "'no_such_call'"].iter().all(|part| output.stderr.contains(part)), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
}
