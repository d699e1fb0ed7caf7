//! `weir lab`: experiments that are run, killed and swept up; the sick server; what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{
    PATIENCE, Process, WEIR, alone, beside_others, command, folder, weir, within,
};

/// The experiments of the documentation.
fn documented() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/scenarios");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_documented_experiments_are_right() {
    let _shared = beside_others();
    let files = documented();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let ran = weir(&["lab", "try", "--check", file.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}

#[test]
fn what_is_wrong_is_told_at_once() {
    let _shared = beside_others();
    let folder = folder();
    let file = folder.path().join("a.toml");
    fs::write(&file, "[scenario]\nlos = 1\n[subject]\ncommand = \"x\"\n").unwrap();
    let ran = weir(&["lab", "try", "-d", "x", file.to_str().unwrap()]);
    let expected =
        ["'load' is missing", "a.toml:2:1: there is no key 'scenario.los'", "--duration"];
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for part in expected {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let ran =
        weir(&["lab", "selftest", "--only", "none,nope", "--repetitions", "0", "--seed", "x"]);
    assert_eq!(ran.code, 2);
    for part in ["'nope'", "--repetitions", "--seed"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let ran = weir(&["lab", "sick", "--threads", "0", "--fail-share", "x", "--listen", "y"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 3), "{}", ran.stderr);
    assert_eq!(weir(&["lab"]).code, 2);
}

#[test]
fn the_selftest_lists_its_cases_and_what_cannot_be_shown() {
    let _shared = beside_others();
    let listed = weir(&["lab", "selftest", "--list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("numa_remote: it takes a machine with two memory nodes"));
}

/// Whatever has `run` in its name and is still there.
fn left(run: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |folder: &Path| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(run) {
                found.push(format!("{}/{name}", folder.display()));
            }
        }
    };
    look(Path::new("/run/netns"));
    look(Path::new("/run/weir/lab"));
    look(Path::new("/var/tmp"));
    let groups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    look(Path::new("/sys/fs/cgroup"));
    groups.for_each(|entry| look(&entry.path()));
    found
}

#[test]
fn a_killed_run_leaves_nothing_after_the_next_start() {
    // The next start is to be the one of this test: any other weir sweeps as well.
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make network namespaces");
        return;
    }
    let folder = folder();
    let file = folder.path().join("a.toml");
    let text = "[scenario]\ndelay.round-trip = \"2ms\"\nnoise.processes = 1\n\
        cpu-quota.subject = 0.5\nbandwidth.rate = \"100mbit\"\n\
        [subject]\ncommand = \"sh -c '{weir} lab sick --listen {subject}:8000 & wait'\"\n\
        ready = \"{subject}:8000\"\n\
        [load]\nflags = \"-t 1 -c 2 -d 60s http://{subject}:8000/\"\nwarm-up = \"100ms\"\n";
    fs::write(&file, text).unwrap();
    let mut lab = command(WEIR, folder.path());
    lab.args(["lab", "try", file.to_str().unwrap()]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut lab = Process::spawn(&mut lab);
    let run = format!("weir-{}-", lab.id());
    // The folder of the run has a log of the load once everything stands.
    let stands = || {
        let left = left(&run);
        let files = left.iter().filter(|path| path.starts_with("/var/tmp"));
        files.map(Path::new).any(|path| path.join("load.log").exists())
    };
    let stood = within(PATIENCE, || stands() || lab.has_ended());
    if lab.has_ended() {
        println!("skipped: this machine cannot make the scenario");
        return;
    }
    assert!(stood && left(&run).len() >= 6, "{:?}", left(&run));
    lab.signal(Signal::KILL);
    lab.wait(PATIENCE);
    assert!(!left(&run).is_empty());
    let next = documented().into_iter().find(|file| file.ends_with("slow-origin.toml")).unwrap();
    let ran = weir(&["lab", "try", "-d", "200ms", next.to_str().unwrap()]);
    assert!(ran.code == 0 || ran.code == 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("removed what the killed run"), "{}", ran.stderr);
    assert_eq!(left(&run), [""; 0]);
}

/// `weir lab try` over loopback, under load for two seconds and more. Its subject writes its number down.
struct Trying {
    folder: tempfile::TempDir,
    process: Process,
}

impl Trying {
    fn start() -> Self {
        let folder = folder();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let text = format!(
            "[scenario]\nnetwork = \"loopback\"\n[subject]\n\
             command = '''sh -c 'echo $$ > {}; exec {{weir}} serve --listen {{subject}}:{{port}}' '''\n\
             ready = \"{{subject}}:{{port}}\"\n\
             [load]\nflags = \"--live -t 1 -c 2 -d {{duration}} http://{{subject}}:{{port}}/\"\n",
            path("pid")
        );
        fs::write(path("a.toml"), text).unwrap();
        let mut lab = command(WEIR, folder.path());
        lab.args(["lab", "try", "-d", "60s", "--json", &path("run.json"), &path("a.toml")]);
        let output = |name: &str| fs::File::create(path(name)).unwrap();
        lab.stdout(output("out")).stderr(output("err"));
        let trying = Self { process: Process::spawn(&mut lab), folder };
        let second = |line: &str| line.split_whitespace().next() == Some("2");
        let runs = within(PATIENCE, || trying.text("out").lines().any(second));
        assert!(runs, "{}{}", trying.text("out"), trying.text("err"));
        trying
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn record(&self) -> serde_json::Value {
        serde_json::from_str(&self.text("run.json")).unwrap()
    }
}

#[test]
fn a_trial_that_is_stopped_leaves_what_it_measured() {
    let _shared = beside_others();
    let mut trying = Trying::start();
    trying.process.signal(Signal::TERM);
    assert_eq!(trying.process.wait(PATIENCE), 4, "{}", trying.text("err"));
    let said = trying.text("err");
    assert!(said.contains("weir: stopping; ") && said.contains("marked as partial"), "{said}");
    assert!(trying.text("out").contains("bottleneck"), "{}", trying.text("out"));
    let record = trying.record();
    assert_eq!(record["partial"], true);
    assert!(record["totals"]["responses"].as_u64().unwrap() > 0, "{}", record["totals"]);
}

#[test]
fn a_subject_that_ends_under_load_leaves_what_there_is() {
    let _shared = beside_others();
    let mut trying = Trying::start();
    let pid: i32 = trying.text("pid").trim().parse().unwrap();
    crate::support::send_signal(pid, Signal::KILL);
    // The load goes on to its end, which is a minute away: it has seen the end before it is told to stop.
    let failed = |line: &str| line.contains("refused=");
    assert!(within(PATIENCE, || trying.text("out").lines().any(failed)), "{}", trying.text("out"));
    // Long enough for a look at the processes, which are five a second.
    crate::support::pause_ms(2_000);
    let load = children_of(trying.process.id());
    load.iter().filter(|child| **child != pid).for_each(|child| {
        crate::support::send_signal(*child, Signal::TERM);
    });
    assert_eq!(trying.process.wait(PATIENCE), 1, "{}", trying.text("err"));
    let ended = format!("process {pid} (weir) ended at ");
    let said = trying.text("err");
    assert!(said.contains("the subject ended under load (signal: 9 (SIGKILL))"), "{said}");
    assert!(said.contains(&ended), "{said}");
    let record = trying.record();
    let evidence = record["diagnosis"]["evidence"][0].as_str().unwrap();
    assert!(evidence.starts_with(&ended), "{evidence}");
    let reasons = record["validity"]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["code"] == "subject_ended"), "{reasons:?}");
    assert_eq!(record["validity"]["verdict"], "invalid");
}

fn children_of(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists =
        tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>()
        })
        .collect()
}

#[test]
fn what_is_no_record_or_no_length_is_refused() {
    let _shared = beside_others();
    let file = documented().remove(0);
    let ran = weir(&["lab", "try", "-d", "0", file.to_str().unwrap()]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--duration: a load of no length"), "{}", ran.stderr);
    let folder = folder();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in ["/dev/urandom", pipe.to_str().unwrap()] {
        let ran = weir(&["lab", "diagnose", file]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("it is a device, a pipe or a socket"), "{}", ran.stderr);
    }
    let ran = weir(&["load", "-d", "1s", "--subject", "2147483647", "http://127.0.0.1:1/"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--subject: there is no process 2147483647"), "{}", ran.stderr);
}
