//! `weir lab profile` at a server whose burning function is known, and what it says when something is
//! wrong.

use std::fs;

use serde_json::Value;

use crate::support::{
    Origin, PATIENCE, WEIR, beside_others, folder, start, start_load, weir, within,
};

/// Whether this machine lets us sample functions; why not otherwise.
pub(crate) fn allowed() -> Result<(), String> {
    let output = weir(&["lab", "profile", "-d", "100ms", "--json", "-", "--", "true"]);
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
    let _shared = beside_others();
    if let Err(why) = allowed() {
        println!("skipped: {why}");
        return;
    }
    let origin = Origin::start(&["-t", "1"]);
    let folder = folder();
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let load = start_load(&["-c", "2", "-d", "60s", &origin.url("/?cpu=5ms")]);
    let burns = || origin.stats()["requests"].as_u64() > Some(10);
    assert!(within(PATIENCE, burns), "the load did not begin");
    let pid = origin.process.id().to_string();
    let folded = file("run.folded");
    let svg = file("run.svg");
    let output = start(
        WEIR,
        &[
            "lab", "profile", "-p", &pid, "-d", "2s", "--json", "RECORD", "--folded", &folded,
            "--svg", &svg,
        ],
    )
    .finish();
    assert_eq!(output.code, 0, "{output:?}");
    let functions = output.record["functions"].as_array().unwrap();
    // Which asks for the time over and over; in a build for tests the name may be of either.
    let burns =
        functions.iter().find(|one| one["function"].as_str().unwrap().contains("work::burn"));
    assert!(burns.is_some_and(|one| one["share_total"].as_f64() > Some(0.5)), "{functions:?}");
    assert!(output.stdout.contains("work::burn"), "{}", output.stdout);
    assert!(fs::read_to_string(&folded).unwrap().contains("work::burn"));
    assert!(fs::read_to_string(&svg).unwrap().contains("<svg"));
    let against = weir(&["lab", "profile", "-p", &pid, "-d", "1s", "--against", &folded]);
    assert_eq!(against.code, 0, "{against:?}");
    assert!(against.stdout.contains("Against a run of"), "{}", against.stdout);
    drop(load);
}

#[test]
fn a_command_is_sampled_to_its_end() {
    let _shared = beside_others();
    if let Err(why) = allowed() {
        println!("skipped: {why}");
        return;
    }
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo said";
    let output = weir(&["lab", "profile", "-d", "60s", "--json", "-", "--", "sh", "-c", script]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("said"), "{}", output.stderr);
    let record: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(record["samples"].as_u64() > Some(0), "{record}");
    assert!(record["length_s"].as_f64() < Some(60.0));
    let idle = weir(&["lab", "profile", "-d", "100ms", "--", "sleep", "5"]);
    assert!(idle.code == 0 || idle.stdout.contains("No sample"), "{idle:?}");
    // What it started ends with it.
    let with_child =
        weir(&["lab", "profile", "-d", "1s", "--", "sh", "-c", "sleep 600 & echo child $!; wait"]);
    let id = with_child.stderr.split_whitespace().skip_while(|word| *word != "child").nth(1);
    let stat = format!("/proc/{}/stat", id.unwrap());
    let is_gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
    assert!(within(PATIENCE, is_gone), "{with_child:?}");
}

#[test]
fn what_cannot_be_sampled_is_said() {
    let _shared = beside_others();
    let nobody = weir(&["lab", "profile", "--pid", "2147483647", "-d", "100ms"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.stderr.contains("not observable"), "{}", nobody.stderr);
    let two = weir(&["lab", "profile", "--pid", "1", "--port", "80"]);
    assert_eq!(two.code, 2, "{two:?}");
    assert!(two.stderr.contains("name one program"), "{}", two.stderr);
    let missing = weir(&["lab", "profile", "--pid", "1", "--against", "/no/such/file"]);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.stderr.contains("--against"), "{}", missing.stderr);
    let nothing = weir(&["lab", "profile", "--pid", "1", "-d", "0"]);
    assert!(nothing.stderr.contains("'0' is not above 0 and at most 1h"), "{nothing:?}");
    let program = weir(&["lab", "profile", "-d", "1", "--", "/no/such"]);
    assert_eq!((program.code, program.stderr.as_str()), (1, "weir: /no/such: not found\n"));
    let program = weir(&["lab", "profile", "-d", "1", "--", "no-such-program"]);
    assert_eq!(program.code, 1, "{program:?}");
    assert!(program.stderr.contains("no-such-program: not found in PATH"), "{program:?}");
    let folder = weir(&["lab", "profile", "-d", "1", "--", "/"]);
    assert!(folder.stderr.contains("no program that may be executed"), "{folder:?}");
}

#[test]
fn a_system_call_that_the_kernel_does_not_have_is_refused_before_the_run() {
    let _shared = beside_others();
    if host::perf::calls::Call::parse("no_such_call").unwrap().is_known().is_none() {
        return println!("skipped: this kernel does not tell which there are, or not to us");
    }
    let arguments = ["lab", "profile", "--pid", "1", "-d", "1h", "--calls", "read,no_such_call"];
    let output = weir(&arguments);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("--calls: this kernel has no system call 'no_such_call'"));
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
}
