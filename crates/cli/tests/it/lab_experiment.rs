//! `weir lab run` and what looks at its results, through the real binary: what is kept, what a kill leaves,
//! what is refused, and the pages. Nothing here is about how fast anything is.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PATIENCE, Process, WEIR, beside_others, command, folder, weir, within};

/// Two arms of a server on the loopback, which needs no root. Nothing is discarded: the machine of a test is
/// not quiet, and what is tested here is not the judgement.
const TINY: &str = r#"
name = "tiny"
title = "Do 50 us of work show?"
[scenario]
network = "loopback"
[parameters]
burn = "0us"
[subject]
command = "{weir} lab sick --listen {subject}:{port} --threads 1 --burn {burn}"
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

fn write(folder: &Path, text: &str) -> String {
    let path = folder.join("tiny.toml");
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn read(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// The names of the trials' records.
fn trials(experiment: &Path) -> Vec<String> {
    let entries = fs::read_dir(experiment.join("trials")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Each of six blocks has each of three arms once. A trial fails where somebody else has taken its port by
/// then; its block is run again, and what does not count is kept beside what does.
fn assert_each_cell_once(kept: &Path) {
    let experiment = read(&kept.join("experiment.json"));
    let all = experiment["trials"].as_array().unwrap();
    let has_failed = |trial: &Value| trial["failed"].is_string();
    let counting = all.iter().filter(|one| !has_failed(one) && one["discarded"].is_null());
    let cell = |trial: &Value| (trial["block"].as_u64(), trial["arm"].to_string());
    let cells: Vec<_> = counting.map(cell).collect();
    assert_eq!(cells.len(), 18, "{cells:?}");
    assert_eq!(cells.iter().collect::<BTreeSet<_>>().len(), 18, "{cells:?}");
    let files = trials(kept);
    assert_eq!(files.len(), all.len(), "{files:?}");
    assert!(files.len() == 18 || all.iter().any(has_failed), "{files:?}");
}

/// A record that cannot be read is named by whatever leaves it out.
fn without_a_record(folder: &Path, kept: &Path) {
    let copy = folder.join("broken").to_string_lossy().into_owned();
    let copied = std::process::Command::new("cp").arg("-r").arg(kept).arg(&copy).status();
    assert!(copied.unwrap().success());
    let broken = trials(kept).pop().unwrap();
    fs::write(Path::new(&copy).join("trials").join(&broken), "{\"schema\": ").unwrap();
    let markdown = folder.join("broken.md").to_string_lossy().into_owned();
    let shown = weir(&["lab", "show", "--markdown", &markdown, &copy]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let report = fs::read_to_string(&markdown).unwrap();
    for text in [&shown.stdout, &report, &weir(&["lab", "compare", &copy, &copy]).stdout] {
        assert!(text.contains(&broken) && text.contains("cannot be read"), "{broken}: {text}");
    }
}

#[test]
fn an_experiment_is_run_kept_and_looked_at() {
    let _shared = beside_others();
    let folder = folder();
    let file = write(folder.path(), TINY);
    let kept = folder.path().join("kept/tiny-1");
    let result = folder.path().join("result.json");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let ran = weir(&[
        "lab",
        "run",
        "--blocks",
        "6",
        "--duration",
        "1s",
        "--seed",
        "7",
        "--folder",
        &path(&kept),
        "--json",
        &path(&result),
        &file,
    ]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    assert!(ran.stdout.contains("report.html"), "{}", ran.stdout);
    for name in ["experiment.toml", "plan.json", "experiment.json", "report.html", "report.md"] {
        assert!(kept.join(name).is_file(), "{name}: {}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(kept.join("experiment.toml")).unwrap(), TINY);
    let experiment = read(&kept.join("experiment.json"));
    assert_eq!(experiment["schema"], "weir.experiment/1");
    assert_eq!(experiment["plan"]["seed"], 7);
    let arms = experiment["plan"]["arms"].as_array().unwrap();
    let arms: Vec<&str> = arms.iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(arms, ["idle", "idle-again", "busy"]);
    assert_each_cell_once(&kept);
    let files = trials(&kept);
    let compared = experiment["comparisons"].as_array().unwrap();
    let primary: Vec<&Value> = compared.iter().filter(|one| one["primary"] == true).collect();
    assert_eq!(primary.len(), 2, "{compared:#?}");
    assert!(primary.iter().any(|one| one["noise"] == true && one["arm"] == "idle-again"));
    assert!(primary.iter().all(|one| one["pairs"].as_array().unwrap().len() == 6));
    assert!(!experiment["summary"].as_array().unwrap().is_empty());
    assert_eq!(read(&result)["schema"], "weir.experiment/1");
    // What is over is over.
    let again = weir(&["lab", "run", "--resume", &path(&kept)]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    for part in ["is finished", "report.html"] {
        assert!(again.stderr.contains(part), "{part}: {}", again.stderr);
    }
    assert_eq!(trials(&kept), files);
    looked_at(folder.path(), &kept);
    pages(folder.path());
}

/// Lists, shows and compares what was run.
fn looked_at(folder: &Path, kept: &Path) {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let all = path(&folder.join("kept"));
    let listed = weir(&["lab", "list", &all]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("tiny-1"), "{}", listed.stdout);
    let rows: Value = serde_json::from_str(&weir(&["lab", "list", "--json", &all]).stdout).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["blocks"]), (&"tiny".into(), &6.into()), "{rows:#}");
    let (html, markdown) = (folder.join("again.html"), folder.join("again.md"));
    let files = ["--html", &path(&html), "--markdown", &path(&markdown)].map(str::to_owned);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let shown = weir(&[&["lab", "show"], &files[..], &[&path(kept)]].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("idle-again"), "{}", shown.stdout);
    for file in [&html, &markdown] {
        assert!(fs::read_to_string(file).unwrap().contains("busy"), "{}", file.display());
    }
    let json = weir(&["lab", "show", "--json", "-", &path(kept)]);
    let json: Value = serde_json::from_str(&json.stdout).expect("only JSON");
    let stored = read(&kept.join("experiment.json"));
    assert_eq!(json["comparisons"], stored["comparisons"], "judged again, the same");
    let refused = weir(&["lab", "show", "--html", "-", &path(kept)]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--html: "), "{}", refused.stderr);
    without_a_record(folder, kept);
    let compared = weir(&["lab", "compare", "--json", "-", &path(kept), &path(kept)]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    let compared: Value = serde_json::from_str(&compared.stdout).expect("only JSON");
    assert!(compared["rows"].as_array().unwrap().iter().all(|row| row["ratio"] == 1.0));
    assert_eq!(compared["differences"], Value::Array(Vec::new()));
}

/// What a server of pages answers: its status and its body.
fn get(authority: &str, target: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer[9..12].parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// The pages of what was run in `kept`, and of nothing else.
fn pages(folder: &Path) {
    fs::write(folder.join("secret.json"), "{}").unwrap();
    std::os::unix::fs::symlink("../../secret.json", folder.join("kept/tiny-1/out.json")).unwrap();
    std::os::unix::fs::symlink("..", folder.join("kept/up")).unwrap();
    let mut serve = command(WEIR, folder);
    let kept = folder.join("kept");
    serve.args(["lab", "serve", kept.to_str().unwrap()]).stdout(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let mut process = Process::from(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}"));
    let authority = url.split('/').next().unwrap();
    let page = |target: &str| get(authority, target, "localhost");
    let (status, index) = page("/");
    assert!(status == 200 && index.contains("/x/tiny-1/"), "{index}");
    assert!(!page("/?filter=nothing-like-it").1.contains("/x/tiny-1/"));
    assert!(page("/x/tiny-1/").1.contains("busy"));
    let (status, json) = page("/x/tiny-1/experiment.json");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["schema"], "weir.experiment/1");
    let trial = trials(&kept.join("tiny-1")).remove(0);
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
    assert_eq!(get(authority, "/", "evil.example").0, 421);
    process.signal(Signal::INT);
    assert_eq!(process.wait(PATIENCE), 0);
}

#[test]
fn a_killed_experiment_goes_on() {
    let _shared = beside_others();
    let folder = folder();
    let file = write(folder.path(), TINY);
    let kept = folder.path().join("tiny-1");
    let mut run = command(WEIR, folder.path());
    run.args(["lab", "run", "--blocks", "6", "-d", "500ms", "--seed", "3", "--folder"]);
    run.arg(&kept).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Process::spawn(&mut run);
    let some = || trials(&kept).len() >= 4;
    assert!(within(4 * PATIENCE, some), "{:?}", trials(&kept));
    let pid = run.id();
    run.signal(Signal::KILL);
    run.wait(PATIENCE);
    let before = trials(&kept);
    let bytes = |name: &String| fs::read(kept.join("trials").join(name)).unwrap();
    let kept_bytes: Vec<Vec<u8>> = before.iter().map(bytes).collect();
    assert!(before.len() < 18, "{before:?}");
    let ran = weir(&["lab", "run", "--resume", kept.to_str().unwrap()]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    let experiment = read(&kept.join("experiment.json"));
    assert_eq!((&experiment["resumed"], &experiment["plan"]["seed"]), (&1.into(), &3.into()));
    assert_eq!(experiment["plan"]["duration_s"], 0.5);
    assert_each_cell_once(&kept);
    // What was there is as it was.
    assert_eq!(before.iter().map(bytes).collect::<Vec<_>>(), kept_bytes);
    assert_eq!(left_of(pid), [] as [PathBuf; 0]);
}

/// Folders of runs that a process made, and did not remove.
fn left_of(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/var/tmp").into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let of_it = format!("weir-{pid}-");
    let is_of_it = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&of_it))
    };
    paths.filter(is_of_it).collect()
}

#[test]
fn an_experiment_that_is_interrupted_is_judged_and_can_go_on() {
    let _shared = beside_others();
    let folder = folder();
    let file = write(folder.path(), TINY);
    let kept = folder.path().join("tiny-1");
    let out = folder.path().join("out");
    let mut run = command(WEIR, folder.path());
    run.args(["lab", "run", "--blocks", "6", "-d", "500ms", "--folder"]).arg(&kept).arg(&file);
    run.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&out).unwrap());
    let mut run = Process::spawn(&mut run);
    assert!(within(4 * PATIENCE, || trials(&kept).len() >= 4), "{:?}", trials(&kept));
    run.signal(Signal::INT);
    let code = run.wait(PATIENCE);
    let said = fs::read_to_string(&out).unwrap();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("--resume"), "{said}");
    let experiment = read(&kept.join("experiment.json"));
    assert_eq!(experiment["partial"], true);
    assert_eq!(experiment["stopped"]["code"], "interrupted");
    assert!(kept.join("report.html").is_file());
    let files = trials(&kept);
    assert_eq!(experiment["trials"].as_array().unwrap().len(), files.len(), "{files:?}");
}

#[test]
fn what_is_wrong_with_a_file_is_told_at_once_with_its_place() {
    let _shared = beside_others();
    let folder = folder();
    let text = TINY
        .replace("[arms.busy]", "[arms.busy]\nsubject.comand = \"x\"")
        .replace("primary = \"responses_per_s\"", "primary = \"speed\"")
        .replace("\"50ms\"", "\"soon\"");
    let file = write(folder.path(), &text);
    let ran = weir(&["lab", "run", "--blocks", "0", "--check", &file]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    for part in ["comand", "'speed'", "load.warm-up", "--blocks", "tiny.toml:"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let places = ran.stderr.lines().filter(|line| line.contains("tiny.toml:"));
    assert!(places.count() >= 3, "{}", ran.stderr);
    for (arguments, part) in [
        (&["lab", "run"][..], "FILE"),
        (&["lab", "run", "no-such-experiment"], "no-such-experiment"),
        (&["lab", "run", "--print", "no-such"], "--print"),
        (&["lab", "run", "--resume", "/no/such", "--seed", "1"], "--seed"),
        (&["lab", "run", "--resume", "/no/such"], "/no/such"),
        (&["lab", "show", "/no/such"], "/no/such"),
        (&["lab", "show"], "FOLDER"),
        (&["lab", "compare", "/no/such", "/nor/this"], "/nor/this"),
        (&["lab", "compare", "one"], "A B"),
        (&["lab", "compare", "--a", "x*"], "--b"),
        (&["lab", "serve", "--listen", "8000"], "--listen"),
    ] {
        let ran = weir(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn what_is_not_on_this_machine_is_told_before_anything_runs() {
    let _shared = beside_others();
    let folder = folder();
    let text = TINY
        .replace("network = \"loopback\"", "network = \"loopback\"\npin = { client = \"1000\" }")
        .replace("[arms.busy]", "[arms.busy]\nsubject.command = \"no-such-program -x\"")
        .replace("-t 1 -c 2", "--bogus 3")
        .replace("ready = \"{subject}:{port}\"", "ready = \"{subject}\"")
        .replace("also = [\"p99_ns\"]", "also = [\"p99_ns\", \"origin_cpus\", \"p99_ns\"]");
    let file = write(folder.path(), &text);
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let kept = kept.to_str().unwrap();
    for check in [&["--check"][..], &[]] {
        let ran = weir(&[&["lab", "run"], check, &["--folder", kept, &file]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        for part in [
            "--folder: ",
            "there is no processor 1000 on this machine",
            "'no-such-program' is in none of the folders of PATH on this machine (arm 'busy')",
            "'ready' is an address with its port",
            "'--bogus'",
            "'origin_cpus' has no figure, because there is no [origin]",
            "'p99_ns' stands in 'measure.also' twice",
        ] {
            let told = ran.stderr.lines().filter(|line| line.contains(part)).count();
            assert_eq!(told, 1, "{part}: {}", ran.stderr);
        }
        let placed = ran.stderr.lines().filter(|line| line.contains("tiny.toml:")).count();
        assert_eq!(placed, 6, "{}", ran.stderr);
    }
    fs::write(&file, b"name = \"a\"\ntitle = \"\xff\"\n").unwrap();
    for (arguments, parts) in [
        (&[file.as_str()][..], &["tiny.toml:2:10: ", "UTF-8"][..]),
        (&["alocator"], &["did you mean 'allocator'?"]),
        (&["--print", "alocator"], &["did you mean 'allocator'?"]),
        (&["same", "-d", "-1"], &["--duration: '-1' is not above 0"]),
        (&["same", "--blocks", "5..2"], &["--blocks: '5..2' has more blocks at least"]),
    ] {
        let ran = weir(&[&["lab", "run", "--check"], arguments].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{parts:?}: {}", ran.stderr);
    }
}

#[test]
fn an_experiment_that_is_ended_before_its_first_block_says_nothing() {
    let _shared = beside_others();
    let folder = folder();
    let file = write(folder.path(), TINY);
    let (kept, out) = (folder.path().join("tiny-1"), folder.path().join("out"));
    let mut run = command(WEIR, folder.path());
    // Two more trials of the block take twice this time.
    run.args(["lab", "run", "--blocks", "6", "-d", "5s", "--folder"]).arg(&kept).arg(&file);
    run.stdout(Stdio::null()).stderr(fs::File::create(&out).unwrap());
    let mut run = Process::spawn(&mut run);
    assert!(within(4 * PATIENCE, || !trials(&kept).is_empty()), "{:?}", trials(&kept));
    run.signal(Signal::INT);
    let code = run.wait(PATIENCE);
    let said = fs::read_to_string(&out).unwrap();
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("before its first block was whole"), "{said}");
    // What cannot be read is told with what to do, and always with the same code.
    let resume = || weir(&["lab", "run", "--resume", kept.to_str().unwrap()]);
    fs::write(kept.join("experiment.json"), "{\"schema\": \"weir.exp").unwrap();
    let ran = resume();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("experiment.json:1:") && ran.stderr.contains("remove it"));
    fs::write(kept.join("plan.json"), "[]").unwrap();
    let ran = resume();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("plan.json") && ran.stderr.contains("put it back"));
}

#[test]
fn an_arm_whose_library_is_not_there_is_refused_before_anything_runs() {
    let _shared = beside_others();
    let folder = folder();
    let preload = "[arms.busy]\nsubject.env.LD_PRELOAD = \"/no/such/libjemalloc.so.2\"";
    let file = write(folder.path(), &TINY.replace("[arms.busy]", preload));
    let kept = folder.path().join("kept");
    let ran = weir(&["lab", "run", "--folder", kept.to_str().unwrap(), &file]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    for part in ["'busy'", "/no/such/libjemalloc.so.2", "libjemalloc2", "--set"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!kept.exists());
}

#[test]
fn a_plan_is_told_and_nothing_is_run() {
    let _shared = beside_others();
    let folder = folder();
    let file = write(folder.path(), TINY);
    let ran = weir(&["lab", "run", "--check", "--blocks", "6..12", "--set", "burn=1us", &file]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in ["idle-again", "busy", "responses_per_s", "6 to 12", "at least 18"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("remark"), "{}", ran.stdout);
    let same = weir(&[
        "lab",
        "run",
        "--check",
        &write(folder.path(), &TINY.replace("\"50us\"", "\"0us\"")),
    ]);
    assert!(same.stdout.contains("remark      busy is what idle is"), "{}", same.stdout);
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "only the file itself");
}

#[test]
fn every_ready_made_experiment_is_listed_printed_and_right() {
    let _shared = beside_others();
    let listed = weir(&["lab", "run", "--list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let names: Vec<&str> =
        listed.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert!(!names.is_empty(), "{}", listed.stdout);
    for name in names {
        let printed = weir(&["lab", "run", "--print", name]);
        assert_eq!(printed.code, 0, "{name}: {}", printed.stderr);
        let folder = folder();
        let file = write(folder.path(), &printed.stdout);
        let checked = weir(&["lab", "run", "--check", &file]);
        // Some ask for what only the user has: those say so.
        // And what is not on this machine is told as such.
        let known = |line: &str| line.contains("--set") || line.contains("on this machine");
        let asks = checked.code == 2 && checked.stderr.lines().all(known);
        assert!(checked.code == 0 || asks, "{name}: {}", checked.stderr);
    }
}

#[test]
fn two_runs_are_set_side_by_side_without_a_test() {
    let _shared = beside_others();
    let folder = folder();
    let origin = crate::support::Origin::start(&["-t", "1"]);
    let mut files = Vec::new();
    for (name, connections) in [("a-1.json", "1"), ("a-2.json", "1"), ("b-1.json", "2")] {
        let file = folder.path().join(name).to_string_lossy().into_owned();
        let url = origin.url("/");
        let ran =
            weir(&["load", "-t", "1", "-c", connections, "-d", "300ms", "--json", &file, &url]);
        assert!([0, 3, 4].contains(&ran.code), "{}", ran.stderr);
        files.push(file);
    }
    let ran = weir(&["lab", "compare", &files[0], &files[2]]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in ["not tested", "plan.connections: 1 | 2", "depend on each other"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let pattern = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (a, b) = (pattern("a*.json"), pattern("b*.json"));
    let ran = weir(&["lab", "compare", "--a", &a, "--b", &b, "--json", "-"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let compared: Value = serde_json::from_str(&ran.stdout).expect("only JSON");
    let row = &compared["rows"][0];
    assert_eq!(row["counts"], serde_json::json!([2, 1]), "{compared:#}");
    // Three runs can show nothing.
    assert_eq!(row["outcome"], "inconclusive", "{compared:#}");
}
