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
}
