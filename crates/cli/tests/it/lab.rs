//! Tests of `weir lab`: experiments that are run, killed and cleaned up; the faulty server;
//! rejected input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{
    EVENT_TIMEOUT, Process, WEIR, command, exclusive_machine, run_weir, shared_machine, temp_dir, within,
};

/// Returns the experiments of the documentation.
fn documented_experiments() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/scenarios");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_documented_experiments_are_right() {
    let _shared = shared_machine();
    let files = documented_experiments();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let ran = run_weir(&["lab", "try", "--check", file.to_str().unwrap()]);
        // A program that is missing on this machine is reported as such.
        let is_missing = ran.code == 2 && ran.stderr.lines().all(|line| line.contains("on this machine"));
        assert!(ran.code == 0 || is_missing, "{}", ran.stderr);
    }
}

#[test]
fn a_scenario_is_checked_like_an_experiment() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = directory.path().join("a.toml");
    let text = "[scenario]\nnetwork = \"loopback\"\n[subject]\ncommand = \"no-such-program\"\n\
        ready = \"{subject}:8000\"\n[load]\nflags = \"--bogus http://{subject}:8000/\"\n";
    fs::write(&file, text).unwrap();
    for flags in [&["lab", "try", "--check"][..], &["lab", "try"]] {
        let ran = run_weir(&[flags, &[file.to_str().unwrap()]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        for part in ["a.toml:4:11: the program 'no-such-program'", "a.toml:7:9: 'load.flags': ", "--bogus"] {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    }
    fs::write(&file, text.replace("--bogus", "-d {duraton}").replace("no-such-program", "sh")).unwrap();
    let ran = run_weir(&["lab", "try", "--check", file.to_str().unwrap()]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("a.toml:7:13: unknown placeholder '{duraton}'"), "{}", ran.stderr);
    let missing = run_weir(&["lab", "try", "--check", "/no/such.toml"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(missing.stderr.contains("/no/such.toml"), "{}", missing.stderr);
}

#[test]
fn errors_are_reported_at_once() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = directory.path().join("a.toml");
    fs::write(&file, "[scenario]\nlos = 1\n[subject]\ncommand = \"x 'y\"\n").unwrap();
    let ran = run_weir(&["lab", "try", "-d", "x", file.to_str().unwrap()]);
    let expected = [
        "'load'",
        "a.toml:2:1: ",
        "'scenario.los'",
        "'command': the quotation mark ' is not",
        "--duration: ",
    ];
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for part in expected {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let ran = run_weir(&["lab", "selftest", "--only", "none,nope", "--repetitions", "0", "--seed", "x"]);
    assert_eq!(ran.code, 2);
    for part in ["'nope'", "--repetitions", "--seed"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let ran = run_weir(&["lab", "selftest", "--set", "foreign", "--cases", "/no/such", "--seed", "x"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 2), "{}", ran.stderr);
    assert!(ran.stderr.contains("/no/such: "), "{}", ran.stderr);
    let ran = run_weir(&["lab", "faulty-server", "--threads", "0", "--error-fraction", "x", "--listen", "y"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 3), "{}", ran.stderr);
    assert_eq!(run_weir(&["lab"]).code, 2);
}

#[test]
fn the_selftest_lists_its_cases_and_what_cannot_be_shown() {
    let _shared = shared_machine();
    let listed = run_weir(&["lab", "selftest", "--list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("numa_remote: "), "{}", listed.stdout);
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../proving_ground/cases/foreign");
    let listed = run_weir(&["lab", "selftest", "--set", "foreign", "--cases", cases, "--list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("go_open"), "{}", listed.stdout);
}

/// Returns everything that has `run` in its name and still exists.
fn remaining_resources(run: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut collect = |directory: &Path| {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(run) {
                names.push(format!("{}/{name}", directory.display()));
            }
        }
    };
    collect(Path::new("/run/netns"));
    collect(Path::new("/run/weir-root/lab"));
    collect(Path::new("/var/tmp"));
    let groups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    collect(Path::new("/sys/fs/cgroup"));
    groups.for_each(|entry| collect(&entry.path()));
    names
}

#[test]
fn a_killed_run_leaves_nothing_after_the_next_start() {
    // The next start must be that of this test: any other weir cleans up too.
    let _exclusive = exclusive_machine();
    if !rustix::process::geteuid().is_root() {
        test_needs::skip(test_needs::ROOT, "only root can make network namespaces");
        return;
    }
    let directory = temp_dir();
    let file = directory.path().join("a.toml");
    let text = "[scenario]\ndelay.round-trip = \"2ms\"\nnoise.processes = 1\n\
        cpu-quota.subject = 0.5\nbandwidth.rate = \"100mbit\"\n\
        [subject]\ncommand = \"sh -c '{weir} lab faulty-server --listen {subject}:8000 & wait'\"\n\
        ready = \"{subject}:8000\"\n\
        [load]\nflags = \"-t 1 -c 2 -d 60s http://{subject}:8000/\"\nwarm-up = \"100ms\"\n";
    fs::write(&file, text).unwrap();
    let mut lab = command(WEIR, directory.path());
    lab.args(["lab", "try", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut lab = Process::spawn(&mut lab);
    let run = format!("weir-{}-", lab.id());
    // The directory of the run contains a log of the load once everything is set up.
    let is_set_up = || {
        let left = remaining_resources(&run);
        let files = left.iter().filter(|path| path.starts_with("/var/tmp"));
        files.map(Path::new).any(|path| path.join("load.log").exists())
    };
    let stood = within(EVENT_TIMEOUT, || is_set_up() || lab.has_ended());
    if lab.has_ended() {
        test_needs::skip(test_needs::ROOT, "this machine cannot make the scenario");
        return;
    }
    assert!(stood && remaining_resources(&run).len() >= 6, "{:?}", remaining_resources(&run));
    lab.signal(Signal::KILL);
    lab.wait(EVENT_TIMEOUT);
    assert!(!remaining_resources(&run).is_empty());
    let next = documented_experiments().into_iter().find(|file| file.ends_with("slow-origin.toml")).unwrap();
    let ran = run_weir(&["lab", "try", "-d", "200ms", "--json", "-", next.to_str().unwrap()]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    // With `-` stdout has the record and nothing else.
    assert!(serde_json::from_str::<serde_json::Value>(&ran.stdout).is_ok(), "{}", ran.stdout);
    assert!(ran.stderr.contains(&run), "{}", ran.stderr);
    assert_eq!(remaining_resources(&run), [""; 0]);
}

/// `weir lab try` over loopback, under load for at least two seconds. Its subject writes its
/// process id to a file.
struct TrialRun {
    directory: tempfile::TempDir,
    process: Process,
}

impl TrialRun {
    fn start() -> Self {
        let directory = temp_dir();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let text = format!(
            "[scenario]\nnetwork = \"loopback\"\n[subject]\n\
             command = '''sh -c 'echo $$ > {}; exec {{weir}} serve --listen {{subject}}:{{port}}' '''\n\
             ready = \"{{subject}}:{{port}}\"\n\
             [load]\nflags = \"--live -t 1 -c 2 -d {{duration}} http://{{subject}}:{{port}}/\"\n",
            path("pid")
        );
        fs::write(path("a.toml"), text).unwrap();
        let mut lab = command(WEIR, directory.path());
        lab.args(["lab", "try", "-d", "60s", "--json", &path("run.json"), &path("a.toml")]);
        let output = |name: &str| fs::File::create(path(name)).unwrap();
        lab.stdout(output("out")).stderr(output("err"));
        let trial = Self { process: Process::spawn(&mut lab), directory };
        let second = |line: &str| line.split_whitespace().next() == Some("2");
        let runs = within(EVENT_TIMEOUT, || trial.read_file("out").lines().any(second));
        assert!(runs, "{}{}", trial.read_file("out"), trial.read_file("err"));
        trial
    }

    fn read_file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    fn record(&self) -> serde_json::Value {
        serde_json::from_str(&self.read_file("run.json")).unwrap()
    }
}

#[test]
fn a_trial_that_is_stopped_leaves_what_it_measured() {
    let _shared = shared_machine();
    let mut trial = TrialRun::start();
    trial.process.signal(Signal::TERM);
    assert_eq!(trial.process.wait(EVENT_TIMEOUT), 4, "{}", trial.read_file("err"));
    let stderr = trial.read_file("err");
    let json = trial.directory.path().join("run.json").display().to_string();
    assert!(stderr.contains(&json), "{stderr}");
    assert!(trial.read_file("out").contains("bottleneck"), "{}", trial.read_file("out"));
    let record = trial.record();
    assert_eq!(record["partial"], true);
    assert!(record["totals"]["responses"].as_u64().unwrap() > 0, "{}", record["totals"]);
}

#[test]
fn a_subject_that_ends_under_load_leaves_what_there_is() {
    let _shared = shared_machine();
    let mut trial = TrialRun::start();
    let pid: i32 = trial.read_file("pid").trim().parse().unwrap();
    crate::support::send_signal(pid, Signal::KILL);
    // The load would run for another minute: it has noticed the end before it is stopped.
    // The line names other errors of the same second too (closed, reset).
    let failed = |line: &str| line.contains("errors: ") && line.contains("refused ");
    assert!(
        within(EVENT_TIMEOUT, || trial.read_file("out").lines().any(failed)),
        "{}",
        trial.read_file("out")
    );
    // Processes are sampled five times per second, so more than once in three more lines.
    let lines = || trial.read_file("out").lines().count();
    let enough = lines() + 3;
    assert!(within(EVENT_TIMEOUT, || lines() >= enough), "{}", trial.read_file("out"));
    let load = children_of(trial.process.id());
    load.iter().filter(|child| **child != pid).for_each(|child| {
        crate::support::send_signal(*child, Signal::TERM);
    });
    assert_eq!(trial.process.wait(EVENT_TIMEOUT), 1, "{}", trial.read_file("err"));
    let ended = format!("process {pid} (weir) ended at ");
    let stderr = trial.read_file("err");
    assert!(stderr.contains("SIGKILL") && stderr.contains(&ended), "{stderr}");
    let record = trial.record();
    let evidence = record["diagnosis"]["evidence"][0].as_str().unwrap();
    assert!(evidence.starts_with(&ended), "{evidence}");
    let reasons = record["validity"]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["code"] == "subject_ended"), "{reasons:?}");
    assert_eq!(record["validity"]["verdict"], "invalid");
}

fn children_of(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>())
        .collect()
}

#[test]
fn what_is_no_record_or_no_length_is_refused() {
    let _shared = shared_machine();
    let file = documented_experiments().remove(0);
    let ran = run_weir(&["lab", "try", "-d", "0", file.to_str().unwrap()]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--duration: "), "{}", ran.stderr);
    let directory = temp_dir();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in ["/dev/urandom", pipe.to_str().unwrap()] {
        let ran = run_weir(&["lab", "diagnose", file]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(file) && ran.stdout.is_empty(), "{}", ran.stderr);
    }
    let ran = run_weir(&["load", "-d", "1s", "--subject", "2147483647", "http://127.0.0.1:1/"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for part in ["--subject: ", "2147483647"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}
