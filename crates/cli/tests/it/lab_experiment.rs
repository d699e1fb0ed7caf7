//! Tests of `weir lab run` and of the commands that read its results, through the real binary: kept
//! files, remains after a kill, rejected input, and the pages. They assert no speed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{EVENT_TIMEOUT, Process, WEIR, command, run_weir, shared_machine, temp_dir, within};

/// Two arms of a server on the loopback, which needs no root. Nothing is discarded: the test
/// machine is not quiet, and the judgement is not the subject of these tests.
const TINY_EXPERIMENT: &str = r#"
name = "tiny"
title = "Do 50 us of work show?"
[scenario]
network = "loopback"
[parameters]
burn = "0us"
[subject]
command = "{weir} lab faulty-server --listen {subject}:{port} --threads 1 --burn {burn}"
ready = "{subject}:{port}"
[load]
flags = "-t 1 -c 2 -d {duration} http://{subject}:{port}/"
warm-up = "50ms"
[arms.idle]
title = "no work"
[arms.busy]
title = "50 us of work"
parameters.burn = "50us"
[measure]
primary = "responses_per_s"
also = ["p99_ns"]
[discard]
steal = "100%"
foreign-cpus = 1000
wake-up-ratio = 100000
generator-lag = "10s"
errors = "100%"
throttled = "100%"
clock-step = "1h"
"#;

fn write(directory: &Path, text: &str) -> String {
    let path = directory.join("tiny.toml");
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn read(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// Returns the names of the trials' records.
fn trials(experiment: &Path) -> Vec<String> {
    let entries = fs::read_dir(experiment.join("trials")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Asserts that each of six blocks contains each of three arms once. A trial fails if another
/// process has taken its port by then. Its block runs again, and the discarded trials are kept
/// in addition to the counted ones.
fn assert_each_cell_once(stored: &Path) {
    let experiment = read(&stored.join("experiment.json"));
    let all = experiment["trials"].as_array().unwrap();
    let has_failed = |trial: &Value| trial["failed"].is_string();
    let counting = all.iter().filter(|trial| !has_failed(trial) && trial["discarded"].is_null());
    let cell = |trial: &Value| (trial["block"].as_u64(), trial["arm"].to_string());
    let cells: Vec<_> = counting.map(cell).collect();
    assert_eq!(cells.len(), 18, "{cells:?}");
    assert_eq!(cells.iter().collect::<BTreeSet<_>>().len(), 18, "{cells:?}");
    let files = trials(stored);
    assert_eq!(files.len(), all.len(), "{files:?}");
    assert!(files.len() == 18 || all.iter().any(has_failed), "{files:?}");
}

/// Returns the lines of a weir about itself. Any weir also removes what the killed run of a test
/// beside it left, and reports that.
pub(crate) fn own_lines(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| !line.contains("leftover")).collect()
}

/// Asserts that every command that leaves out an unreadable record names it.
fn assert_broken_record_is_named(directory: &Path, stored: &Path) {
    let copy = directory.join("broken").to_string_lossy().into_owned();
    let copied = std::process::Command::new("cp").arg("-r").arg(stored).arg(&copy).status();
    assert!(copied.unwrap().success());
    let broken = trials(stored).pop().unwrap();
    fs::write(Path::new(&copy).join("trials").join(&broken), "{\"schema\": ").unwrap();
    let markdown = directory.join("broken.md").to_string_lossy().into_owned();
    let shown = run_weir(&["lab", "show", "--markdown", &markdown, &copy]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let report = fs::read_to_string(&markdown).unwrap();
    for text in [&shown.stdout, &report, &run_weir(&["lab", "compare", &copy, &copy]).stdout] {
        assert!(text.contains(&broken), "{broken}: {text}");
    }
    let json = |command: &[&str]| -> Value { serde_json::from_str(&run_weir(command).stdout).unwrap() };
    let names_it = |text: &Value| text.as_str().is_some_and(|text| text.contains(&broken));
    let shown = json(&["lab", "show", "--json", "-", &copy]);
    let mut warnings = shown["warnings"].as_array().unwrap().iter();
    let is_named = warnings.any(|warning| warning["code"] == "broken_record" && names_it(&warning["text"]));
    assert!(is_named, "{:#}", shown["warnings"]);
    let compared = json(&["lab", "compare", "--json", "-", &copy, &copy]);
    assert!(compared["notes"].as_array().unwrap().iter().any(names_it), "{:#}", compared["notes"]);
}

#[test]
fn an_experiment_is_run_stored_and_displayed() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = write(directory.path(), TINY_EXPERIMENT);
    let stored = directory.path().join("kept/tiny-1");
    let result = directory.path().join("result.json");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let ran = run_weir(&[
        "lab",
        "run",
        "--blocks",
        "6",
        "--duration",
        "1s",
        "--seed",
        "7",
        "--output",
        &path(&stored),
        "--json",
        &path(&result),
        &file,
    ]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    assert!(ran.stdout.contains("report.html"), "{}", ran.stdout);
    for name in ["experiment.toml", "plan.json", "experiment.json", "report.html", "report.md"] {
        assert!(stored.join(name).is_file(), "{name}: {}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(stored.join("experiment.toml")).unwrap(), TINY_EXPERIMENT);
    let experiment = read(&stored.join("experiment.json"));
    assert_eq!(experiment["schema"], "weir.experiment/1");
    assert_eq!(experiment["plan"]["seed"], 7);
    let arms = experiment["plan"]["arms"].as_array().unwrap();
    let arms: Vec<&str> = arms.iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(arms, ["idle", "idle-repeat", "busy"]);
    assert_each_cell_once(&stored);
    let files = trials(&stored);
    let compared = experiment["comparisons"].as_array().unwrap();
    let primary: Vec<&Value> = compared.iter().filter(|comparison| comparison["primary"] == true).collect();
    assert_eq!(primary.len(), 2, "{compared:#?}");
    assert!(
        primary.iter().any(|comparison| comparison["noise"] == true && comparison["arm"] == "idle-repeat")
    );
    assert!(primary.iter().all(|comparison| comparison["pairs"].as_array().unwrap().len() == 6));
    assert!(!experiment["summary"].as_array().unwrap().is_empty());
    assert_eq!(read(&result)["schema"], "weir.experiment/1");
    // A finished experiment does not run again.
    let again = run_weir(&["lab", "run", "--resume", &path(&stored)]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("report.html"), "{}", again.stderr);
    assert_eq!(trials(&stored), files);
    assert_listed_and_compared(directory.path(), &stored);
    assert_pages(directory.path());
}

/// Lists, shows and compares the finished experiments.
fn assert_listed_and_compared(directory: &Path, experiment_path: &Path) {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let all = path(&directory.join("kept"));
    let listed = run_weir(&["lab", "list", &all]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("tiny-1"), "{}", listed.stdout);
    let rows: Value = serde_json::from_str(&run_weir(&["lab", "list", "--json", &all]).stdout).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["blocks"]), (&"tiny".into(), &6.into()), "{rows:#}");
    let (html, markdown) = (directory.join("again.html"), directory.join("again.md"));
    let files = ["--html", &path(&html), "--markdown", &path(&markdown)].map(str::to_owned);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let shown = run_weir(&[&["lab", "show"], &files[..], &[&path(experiment_path)]].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("idle-repeat"), "{}", shown.stdout);
    for file in [&html, &markdown] {
        assert!(fs::read_to_string(file).unwrap().contains("busy"), "{}", file.display());
    }
    let json = run_weir(&["lab", "show", "--json", "-", &path(experiment_path)]);
    let json: Value = serde_json::from_str(&json.stdout).expect("only JSON");
    let stored = read(&experiment_path.join("experiment.json"));
    assert_eq!(json["comparisons"], stored["comparisons"], "judged again, the same");
    let refused = run_weir(&["lab", "show", "--html", "-", &path(experiment_path)]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--html: "), "{}", refused.stderr);
    assert_broken_record_is_named(directory, experiment_path);
    let compared =
        run_weir(&["lab", "compare", "--json", "-", &path(experiment_path), &path(experiment_path)]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    let compared: Value = serde_json::from_str(&compared.stdout).expect("only JSON");
    assert!(compared["rows"].as_array().unwrap().iter().all(|row| row["ratio"] == 1.0));
    assert_eq!(compared["differences"], Value::Array(Vec::new()));
}

/// Fetches a page from the server; returns its status and its body.
fn fetch(authority: &str, target: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let status = response[9..12].parse().unwrap();
    (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Asserts that the server serves the pages of the experiments in `kept`, and nothing else.
fn assert_pages(directory: &Path) {
    fs::write(directory.join("secret.json"), "{}").unwrap();
    std::os::unix::fs::symlink("../../secret.json", directory.join("kept/tiny-1/out.json")).unwrap();
    std::os::unix::fs::symlink("..", directory.join("kept/up")).unwrap();
    let mut serve = command(WEIR, directory);
    let stored = directory.join("kept");
    serve.args(["lab", "serve", stored.to_str().unwrap()]).stdout(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let mut process = Process::from(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}"));
    let authority = url.split('/').next().unwrap();
    let page = |target: &str| fetch(authority, target, "localhost");
    let (status, index) = page("/");
    assert!(status == 200 && index.contains("/x/tiny-1/"), "{index}");
    assert!(!page("/?filter=nothing-like-it").1.contains("/x/tiny-1/"));
    assert!(page("/x/tiny-1/").1.contains("busy"));
    let (status, json) = page("/x/tiny-1/experiment.json");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["schema"], "weir.experiment/1");
    let trial = trials(&stored.join("tiny-1")).remove(0);
    assert_eq!(page(&format!("/x/tiny-1/trials/{trial}")).0, 200);
    let (status, compared) = page("/compare?a=tiny-1&b=tiny-1");
    assert!(status == 200 && compared.contains("1.000"), "{compared}");
    for target in [
        "/x/tiny-1/out.json",
        "/x/tiny-1/..%2f..%2fsecret.json",
        "/x/../secret.json",
        "/x/%2e%2e/secret.json",
        "/x/tiny-1/%2e%2e/%2e%2e/secret.json",
        "/x//etc/passwd",
        "/x/%2fetc%2fpasswd",
        "/x/up/secret.json",
        "/x/tiny-1/trials",
        "/x/tiny-1/trials/",
        "/x/nothing/",
        "/compare?a=..&b=tiny-1",
        "/compare?a=tiny-1&b=%2fetc",
        "/secret.json",
    ] {
        let (status, _) = page(target);
        assert!(status == 400 || status == 404, "{target}: {status}");
    }
    assert_eq!(fetch(authority, "/", "evil.example").0, 421);
    process.signal(Signal::INT);
    assert_eq!(process.wait(EVENT_TIMEOUT), 0);
}

#[test]
fn a_killed_experiment_goes_on() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = write(directory.path(), TINY_EXPERIMENT);
    let stored = directory.path().join("tiny-1");
    let mut run = command(WEIR, directory.path());
    run.args(["lab", "run", "--blocks", "6", "-d", "500ms", "--seed", "3", "--output"]);
    run.arg(&stored).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Process::spawn(&mut run);
    let has_some_trials = || trials(&stored).len() >= 4;
    assert!(within(4 * EVENT_TIMEOUT, has_some_trials), "{:?}", trials(&stored));
    let pid = run.id();
    run.signal(Signal::KILL);
    run.wait(EVENT_TIMEOUT);
    let before = trials(&stored);
    let bytes = |name: &String| fs::read(stored.join("trials").join(name)).unwrap();
    let kept_bytes: Vec<Vec<u8>> = before.iter().map(bytes).collect();
    assert!(before.len() < 18, "{before:?}");
    let ran = run_weir(&["lab", "run", "--resume", stored.to_str().unwrap()]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    let experiment = read(&stored.join("experiment.json"));
    assert_eq!((&experiment["resumed"], &experiment["plan"]["seed"]), (&1.into(), &3.into()));
    assert_eq!(experiment["plan"]["duration_s"], 0.5);
    assert_each_cell_once(&stored);
    // A finished experiment goes on with more blocks.
    let more = ["lab", "run", "--resume", stored.to_str().unwrap(), "--blocks", "7", "--reruns", "100%"];
    let ran = run_weir(&more);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    let experiment = read(&stored.join("experiment.json"));
    assert_eq!((&experiment["plan"]["blocks_max"], &experiment["resumed"]), (&7.into(), &2.into()));
    let counted = experiment["trials"].as_array().unwrap().iter();
    let counted = counted.filter(|trial| !trial["failed"].is_string() && trial["discarded"].is_null());
    assert_eq!(counted.count(), 21, "{experiment:#}");
    // The earlier records are unchanged.
    assert_eq!(before.iter().map(bytes).collect::<Vec<_>>(), kept_bytes);
    assert_eq!(directories_left_by(pid), [] as [PathBuf; 0]);
}

/// Returns the directories of runs that a process made and did not remove.
fn directories_left_by(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/var/tmp").into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let prefix = format!("weir-{pid}-");
    let is_of_it =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    paths.filter(is_of_it).collect()
}

#[test]
fn an_experiment_that_is_interrupted_is_judged_and_can_go_on() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = write(directory.path(), TINY_EXPERIMENT);
    let stored = directory.path().join("tiny-1");
    let out = directory.path().join("out");
    let mut run = command(WEIR, directory.path());
    run.args(["lab", "run", "--blocks", "6", "-d", "500ms", "--output"]).arg(&stored).arg(&file);
    let output = fs::File::create(&out).unwrap();
    run.stdout(output.try_clone().unwrap()).stderr(output);
    let mut run = Process::spawn(&mut run);
    // Two blocks: if a trial of the first failed, the second repeats it.
    assert!(within(4 * EVENT_TIMEOUT, || trials(&stored).len() >= 7), "{:?}", trials(&stored));
    run.signal(Signal::INT);
    let code = run.wait(EVENT_TIMEOUT);
    let output = fs::read_to_string(&out).unwrap();
    assert_eq!(code, 4, "no conclusion stood: {output}");
    let finish = format!("weir lab run --resume {}", stored.display());
    assert!(output.contains(&finish) && output.contains("So far"), "{output}");
    let experiment = read(&stored.join("experiment.json"));
    assert!(experiment["finish"]["command"].as_str().unwrap().starts_with(&finish), "{experiment:#}");
    assert_eq!(experiment["partial"], true);
    assert_eq!(experiment["stopped"]["code"], "interrupted");
    assert!(stored.join("report.html").is_file());
    let files = trials(&stored);
    assert_eq!(experiment["trials"].as_array().unwrap().len(), files.len(), "{files:?}");
}

#[test]
fn errors_in_a_file_are_reported_at_once_with_their_position() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let text = TINY_EXPERIMENT
        .replace("[arms.busy]", "[arms.busy]\nsubject.comand = \"x\"")
        .replace("primary = \"responses_per_s\"", "primary = \"speed\"")
        .replace("\"50ms\"", "\"soon\"");
    let file = write(directory.path(), &text);
    let ran = run_weir(&["lab", "run", "--blocks", "0", "--check", &file]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    for part in ["comand", "'speed'", "load.warm-up", "--blocks", "tiny.toml:"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let positions = ran.stderr.lines().filter(|line| line.contains("tiny.toml:"));
    assert!(positions.count() >= 3, "{}", ran.stderr);
    for (arguments, part) in [
        (&["lab", "run"][..], "FILE"),
        (&["lab", "run", "no-such-experiment"], "no-such-experiment"),
        (&["lab", "run", "--print", "no-such"], "--print"),
        (&["lab", "run", "--resume", "/no/such", "--seed", "1"], "--seed"),
        (&["lab", "run", "--resume", "/no/such"], "/no/such"),
        (&["lab", "show", "/no/such"], "/no/such"),
        (&["lab", "show"], "DIR"),
        (&["lab", "compare", "/no/such", "/nor/this"], "/nor/this"),
        (&["lab", "compare", "one"], "A B"),
        (&["lab", "compare", "--a", "x*"], "--b"),
        (&["lab", "serve", "--listen", "8000"], "--listen"),
    ] {
        let ran = run_weir(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn missing_requirements_are_reported_before_the_run() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let text = TINY_EXPERIMENT
        .replace("network = \"loopback\"", "network = \"loopback\"\npin = { client = \"1000\" }")
        .replace("[arms.busy]", "[arms.busy]\nsubject.command = \"no-such-program -x\"")
        .replace("-t 1 -c 2", "--bogus 3")
        .replace("ready = \"{subject}:{port}\"", "ready = \"{subject}\"")
        .replace("also = [\"p99_ns\"]", "also = [\"p99_ns\", \"origin_cpus\", \"p99_ns\"]");
    let file = write(directory.path(), &text);
    let stored = directory.path().join("kept");
    fs::create_dir(&stored).unwrap();
    let kept_path = stored.to_str().unwrap();
    for check in [&["--check"][..], &[]] {
        let ran = run_weir(&[&["lab", "run"], check, &["--output", kept_path, &file]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        for parts in [
            &["--output: "][..],
            &[" CPU 1000 "],
            &["'no-such-program'", "PATH", "'busy'"],
            &["'ready'"],
            &["'--bogus'"],
            &["'origin_cpus'", "[origin]"],
            &["'p99_ns'", "'measure.also'"],
        ] {
            let names_all = |line: &&str| parts.iter().all(|part| line.contains(part));
            assert_eq!(ran.stderr.lines().filter(names_all).count(), 1, "{parts:?}: {}", ran.stderr);
        }
        let placed = ran.stderr.lines().filter(|line| line.contains("tiny.toml:")).count();
        assert_eq!(placed, 6, "{}", ran.stderr);
    }
    fs::write(&file, b"name = \"a\"\ntitle = \"\xff\"\n").unwrap();
    for (arguments, parts) in [
        (&[file.as_str()][..], &["tiny.toml:2:10: ", "UTF-8"][..]),
        (&["alocator"], &["'allocator'"]),
        (&["--print", "alocator"], &["'allocator'"]),
        (&["same", "-d", "-1"], &["--duration: ", "'-1'"]),
        (&["same", "--blocks", "5..2"], &["--blocks: ", "'5..2'"]),
    ] {
        let ran = run_weir(&[&["lab", "run", "--check"], arguments].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{parts:?}: {}", ran.stderr);
    }
}

#[test]
fn an_experiment_that_is_ended_before_its_first_block_says_nothing() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = write(directory.path(), TINY_EXPERIMENT);
    let (stored, out) = (directory.path().join("tiny-1"), directory.path().join("out"));
    let mut run = command(WEIR, directory.path());
    // Two more trials of the block take twice this time.
    run.args(["lab", "run", "--blocks", "6", "-d", "5s", "--output"]).arg(&stored).arg(&file);
    run.stdout(Stdio::null()).stderr(fs::File::create(&out).unwrap());
    let mut run = Process::spawn(&mut run);
    assert!(within(4 * EVENT_TIMEOUT, || !trials(&stored).is_empty()), "{:?}", trials(&stored));
    run.signal(Signal::INT);
    let code = run.wait(EVENT_TIMEOUT);
    let output = fs::read_to_string(&out).unwrap();
    assert_eq!(code, 4, "{output}");
    assert!(output.contains("complete block") && output.contains("--resume"), "{output}");
    // An unreadable file is reported with a remedy, and always with the same exit code.
    let resume = || run_weir(&["lab", "run", "--resume", stored.to_str().unwrap()]);
    fs::write(stored.join("experiment.json"), "{\"schema\": \"weir.exp").unwrap();
    let ran = resume();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("experiment.json:1:") && ran.stderr.contains("remove it"));
    fs::write(stored.join("plan.json"), "[]").unwrap();
    let ran = resume();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("plan.json") && ran.stderr.contains("restore it"));
}

#[test]
fn an_arm_whose_library_is_not_there_is_refused_before_anything_runs() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let preload = "[arms.busy]\nsubject.env.LD_PRELOAD = \"/no/such/libjemalloc.so.2\"";
    let file = write(directory.path(), &TINY_EXPERIMENT.replace("[arms.busy]", preload));
    let stored = directory.path().join("kept");
    let ran = run_weir(&["lab", "run", "--output", stored.to_str().unwrap(), &file]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    for part in ["'busy'", "/no/such/libjemalloc.so.2", "libjemalloc2", "--set"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!stored.exists());
}

#[test]
fn a_plan_is_printed_and_nothing_is_run() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = write(directory.path(), TINY_EXPERIMENT);
    let ran = run_weir(&["lab", "run", "--check", "--blocks", "6..12", "--set", "burn=1us", &file]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in ["idle-repeat", "busy", "responses_per_s", "6 to 12", "at least 18"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("remark"), "{}", ran.stdout);
    let same = run_weir(&[
        "lab",
        "run",
        "--check",
        &write(directory.path(), &TINY_EXPERIMENT.replace("\"50us\"", "\"0us\"")),
    ]);
    let mut remarks = same.stdout.lines().filter(|line| line.starts_with("remark "));
    assert!(remarks.any(|line| line.contains("busy") && line.contains("idle")), "{}", same.stdout);
    let names = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 1, "only the file itself");
}

#[test]
fn every_ready_made_experiment_is_listed_printed_and_right() {
    let _shared = shared_machine();
    let listed = run_weir(&["lab", "run", "--list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let names: Vec<&str> = listed.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert!(!names.is_empty(), "{}", listed.stdout);
    for name in names {
        let printed = run_weir(&["lab", "run", "--print", name]);
        assert_eq!(printed.code, 0, "{name}: {}", printed.stderr);
        let directory = temp_dir();
        let file = write(directory.path(), &printed.stdout);
        let checked = run_weir(&["lab", "run", "--check", &file]);
        // Some examples need something that only the user has, and report it. Programs missing on
        // this machine are reported as such.
        let known = |line: &str| line.contains("--set") || line.contains("on this machine");
        let needs_configuration = checked.code == 2 && checked.stderr.lines().all(known);
        assert!(checked.code == 0 || needs_configuration, "{name}: {}", checked.stderr);
    }
}

#[test]
fn two_runs_are_set_side_by_side_without_a_test() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let origin = crate::support::OriginProcess::start(&["-t", "1"]);
    let mut files = Vec::new();
    for (name, connections) in [("a-1.json", "1"), ("a-2.json", "1"), ("b-1.json", "2")] {
        let file = directory.path().join(name).to_string_lossy().into_owned();
        let url = origin.url("/");
        let ran = run_weir(&["load", "-t", "1", "-c", connections, "-d", "300ms", "--json", &file, &url]);
        assert!([0, 3, 4].contains(&ran.code), "{}", ran.stderr);
        files.push(file);
    }
    let ran = run_weir(&["lab", "compare", &files[0], &files[2]]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("not tested"), "{}", ran.stdout);
    let ran = run_weir(&["lab", "compare", "--json", "-", &files[0], &files[2]]);
    let compared: Value = serde_json::from_str(&ran.stdout).expect("only JSON");
    let rows = compared["rows"].as_array().unwrap();
    let is_untested = |row: &Value| row["outcome"].is_null() && row["p"].is_null();
    assert!(!rows.is_empty() && rows.iter().all(is_untested), "{compared:#}");
    let connections = serde_json::json!({"path": "settings.connections", "a": "1", "b": "2"});
    assert!(compared["differences"].as_array().unwrap().contains(&connections), "{compared:#}");
    let pattern = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let (a, b) = (pattern("a*.json"), pattern("b*.json"));
    let ran = run_weir(&["lab", "compare", "--a", &a, "--b", &b, "--json", "-"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let compared: Value = serde_json::from_str(&ran.stdout).expect("only JSON");
    let row = &compared["rows"][0];
    assert_eq!(row["counts"], serde_json::json!([2, 1]), "{compared:#}");
    // Three runs can prove nothing.
    assert_eq!(row["outcome"], "inconclusive", "{compared:#}");
}
