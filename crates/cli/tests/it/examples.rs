//! Runs the examples of the reference exactly as printed, and tests the reference itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::edge::{search_tries, was_disturbed};
use crate::support::timing::assert_timing;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, RUN_TIME_MAX, WEIR, command, pause_ms, run_weir, shared_machine,
    temp_dir, within,
};

#[test]
fn the_reference_in_the_repository_is_current() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let new = directory.path().join("new/reference");
    assert_eq!(run_weir(&["reference", "--directory", new.to_str().unwrap()]).code, 0);
    let pages = |directory: &Path| -> BTreeMap<String, String> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        files
            .map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap()))
            .collect()
    };
    let stored = pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference"));
    let new = pages(&new);
    let differing: Vec<&String> =
        stored.keys().chain(new.keys()).filter(|name| stored.get(*name) != new.get(*name)).collect();
    assert!(
        differing.is_empty(),
        "docs/reference is not what the tables say, {differing:?}; run: \
         rm docs/reference/*.md; cargo run -q -- reference --directory docs/reference"
    );
    // The index leads to each page, and each page is printed by its name.
    for (name, text) in new.iter().filter(|(name, _)| *name != "README.md") {
        assert!(new["README.md"].contains(&format!("]({name})")), "{name}");
        assert_eq!(run_weir(&["reference", name.trim_end_matches(".md")]).stdout, **text, "{name}");
    }
}

#[test]
fn the_reference_of_the_config_is_current() {
    let _shared = shared_machine();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == run_weir(&["reference", "config"]).stdout,
        "docs/config.md is not what the tables say; run: \
         cargo run -q -- reference config > docs/config.md"
    );
}

#[test]
fn the_page_of_the_import_is_current() {
    let _shared = shared_machine();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/import.md");
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == run_weir(&["reference", "import"]).stdout,
        "docs/import.md is not what the tables say; run: \
         cargo run -q -- reference import > docs/import.md"
    );
}

/// Returns the command lines of the reference.
pub(crate) fn examples() -> Vec<String> {
    let reference = run_weir(&["reference"]).stdout;
    let mut lines = Vec::new();
    let mut inside = false;
    for line in reference.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && !line.starts_with('#') => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

#[test]
fn the_https_urls_of_the_guide_are_in_examples_that_are_run() {
    let _shared = shared_machine();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
    let guide = fs::read_to_string(guide).unwrap();
    let run = examples();
    let lines: Vec<&str> =
        guide.lines().filter(|line| line.starts_with("weir load") && line.contains("https:")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let command = line.split("  #").next().unwrap().trim();
        assert!(run.iter().any(|example| example == command), "{command}");
    }
}

/// Runs a command line in a directory as a shell does; returns its exit code and its stdout.
pub(crate) fn run_line(line: &str, directory: &Path) -> (i32, String) {
    let out = directory.join(".stdout");
    let mut shell = command("sh", directory);
    shell.args(["-c", &format!("exec {line}")]).current_dir(directory);
    let path = format!("{}:{}", directory.join(".bin").display(), env!("PATH"));
    shell.env("PATH", path).stdout(fs::File::create(&out).unwrap());
    let goes_on = (line.starts_with("weir serve") && !line.contains("--check"))
        || line.starts_with("weir lab faulty-server")
        || line.starts_with("weir lab serve")
        || (line.starts_with("weir proxy -") && !line.contains("--explain") && !line.contains("--check"));
    if !goes_on {
        let code = Process::spawn(&mut shell).wait(RUN_TIME_MAX);
        return (code, fs::read_to_string(&out).unwrap());
    }
    let mut process = Process::spawn(shell.stderr(Stdio::null()));
    let listens = || fs::read_to_string(&out).unwrap().contains("listening on ");
    assert!(within(EVENT_TIMEOUT, listens), "{line}");
    pause_ms(50);
    process.signal(Signal::TERM);
    (process.wait(EVENT_TIMEOUT), fs::read_to_string(&out).unwrap())
}

/// Returns whether an example may have ended so because the machine disturbed it or its server.
fn may_be_disturbed(line: &str, code: i32, directory: &Path) -> bool {
    if line.starts_with("weir edge") {
        let record = fs::read(directory.join("edge.json")).unwrap_or_default();
        return serde_json::from_slice(&record).is_ok_and(|record| was_disturbed(&record));
    }
    // A command that had no CPU in the time of its profile leaves no sample.
    (line.starts_with("weir load") && line.contains("--slo") && code == 3)
        || (line.starts_with("weir lab profile") && code == 4)
}

/// Writes `one.json` and `two.json`: only loads that ran at the same time can be merged.
fn two_at_the_same_time(authority: &str, directory: &Path) {
    let start = |name: &str| {
        let mut load = command(WEIR, directory);
        load.args(["load", "-c", "2", "-R", "100", "-d", "4s", "--no-watch", "--json", name]);
        load.arg(format!("http://{authority}/")).current_dir(directory);
        Process::spawn(load.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let loads = [start("one.json"), start("two.json")];
    for mut load in loads {
        let code = load.wait(RUN_TIME_MAX);
        assert!(code == 0 || code == 4, "{code}");
    }
}

/// Kind of an example: those of a kind run one after the other in a directory, because they use each other's files.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExampleKind {
    /// Needs a NATS server, and runs in `fleet`.
    Fleet,
    /// Search for a limit: a minute each.
    Search,
    /// Experiment, and what is done with its directory.
    Experiment,
    Other,
}

impl ExampleKind {
    fn of(line: &str) -> Self {
        match line {
            line if line.starts_with("weir fleet") => Self::Fleet,
            line if line.starts_with("weir edge") => Self::Search,
            line if line.contains("threads.toml") || line.ends_with(" first") => Self::Experiment,
            line if ["weir lab list .", "weir lab serve ."].contains(&line) => Self::Experiment,
            _ => Self::Other,
        }
    }
}

/// Origins and directory of examples.
struct Examples {
    origin: OriginProcess,
    secure: OriginProcess,
    directory: TempDir,
}

impl Examples {
    fn new() -> Self {
        let directory = temp_dir();
        fs::create_dir(directory.path().join(".bin")).unwrap();
        std::os::unix::fs::symlink(WEIR, directory.path().join(".bin/weir")).unwrap();
        Self {
            origin: OriginProcess::start(&["-t", "1"]),
            secure: OriginProcess::start(&["-t", "1", "--tls-self-signed"]),
            directory,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    /// Copies a file of docs/examples.
    fn copy(&self, file: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(file);
        fs::copy(&file, self.path().join(file.file_name().unwrap())).unwrap();
    }

    /// Returns an example with the addresses of these origins.
    fn here(&self, line: &str) -> String {
        let port = self.origin.authority.rsplit(':').next().unwrap();
        let line = line.replace("127.0.0.1:8000", &self.origin.authority);
        let line = line.replace("127.0.0.1:8443", &self.secure.authority);
        let line = line.replace("--port 8000", &format!("--port {port}"));
        // Another process may hold the default port here.
        let line = line.replace("127.0.0.1:8080", "127.0.0.1:0");
        // Never the settings that somebody has applied on this host.
        let line = ["weir tune revert", "weir tune status"]
            .iter()
            .fold(line, |line, command| line.replacen(command, &format!("{command} --journals journals"), 1));
        match line.as_str() {
            "weir serve" => "weir serve --listen 127.0.0.1:0".to_owned(),
            "weir load" => "weir load --json embedded.json".to_owned(),
            // The record shows whether the search was disturbed.
            edge if edge.starts_with("weir edge") && !edge.contains("--json") => {
                edge.replacen("weir edge", "weir edge --json edge.json", 1)
            }
            _ => line,
        }
    }

    /// Runs all examples of a kind, and returns their number.
    fn run(&self, kind: ExampleKind) -> usize {
        let lines = examples();
        let lines = lines.iter().filter(|line| ExampleKind::of(line) == kind);
        lines.map(|line| self.run_one(&self.here(line))).count()
    }

    fn run_one(&self, line: &str) {
        if line.starts_with("weir lab profile")
            && let Err(reason) = crate::profile::sampling_allowed()
        {
            test_needs::skip(test_needs::PERF, format!("{line}: {reason}"));
            return;
        }
        let (mut code, mut stdout) = run_line(line, self.path());
        for _ in 1..search_tries() {
            if !may_be_disturbed(line, code, self.path()) {
                break;
            }
            (code, stdout) = run_line(line, self.path());
        }
        if may_be_disturbed(line, code, self.path()) {
            assert_timing(false, "an example that is not held up", (line, code, stdout));
            return;
        }
        let may_be_invalid = ["weir load", "weir lab try", "weir lab run"];
        let may_be_invalid = may_be_invalid.iter().any(|command| line.starts_with(command));
        let may_find = code == 3 && line.starts_with("weir tune check");
        assert!(code == 0 || may_find || (code == 4 && may_be_invalid), "{line}: {code} {stdout}");
    }
}

#[test]
fn the_searches_of_the_reference_work() {
    let _shared = shared_machine();
    assert!(Examples::new().run(ExampleKind::Search) >= 3);
}

#[test]
fn the_experiments_of_the_reference_work() {
    let _shared = shared_machine();
    let examples = Examples::new();
    examples.copy("experiments/threads.toml");
    assert!(examples.run(ExampleKind::Experiment) >= 6);
}

#[test]
fn the_other_examples_of_the_reference_work() {
    let _shared = shared_machine();
    let examples = Examples::new();
    // Config for the examples of `weir ctl`.
    let config = format!(
        "threads = 1\ncontrol = \"ctl.sock\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         pool = \"app\"\n[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n",
        examples.origin.authority
    );
    fs::write(examples.path().join("operated.toml"), config).unwrap();
    let operated_log = fs::File::create(examples.path().join(".operated")).unwrap();
    let mut operated = command(WEIR, examples.path());
    operated.args(["proxy", "--config", "operated.toml"]).current_dir(examples.path());
    operated.stdout(operated_log).stderr(Stdio::null());
    let mut operated = Process::spawn(&mut operated);
    let socket = examples.path().join("ctl.sock");
    assert!(within(EVENT_TIMEOUT, || socket.exists()));
    // Scenario for the examples of `weir lab try`.
    examples.copy("scenarios/slow-origin.toml");
    let authority = &examples.origin.authority;
    for (name, text) in [
        // For `weir tune check`.
        ("sysctl.conf", "net.ipv4.tcp_tw_recycle = 1\nnet.core.somaxconn = 4096\n".to_owned()),
        // For `weir load`.
        ("users.csv", "user\nann\nbob\n".to_owned()),
        ("access.log", "- - - [01/Jan/2024:00:00:00 +0000] \"GET /?s=10 HTTP/1.1\" 200 10\n".repeat(20)),
        ("targets.txt", format!("GET http://{authority}/?s=1\n")),
        // For `weir proxy fmt`.
        ("proxy.toml", "[listener.web]\nbind=\":80\"\n".to_owned()),
        // For `weir proxy import`.
        ("nginx.conf", "server { location / { proxy_pass http://127.0.0.1:9001; } }\n".to_owned()),
        ("Caddyfile", ":8080 {\n  reverse_proxy 127.0.0.1:9001\n}\n".to_owned()),
        // For `weir ctl maintenance`.
        ("page.html", "<p>back soon\n".to_owned()),
        ("plan.toml", format!("urls = [\"http://{authority}/\"]\nrate = 100\n")),
    ] {
        fs::write(examples.path().join(name), text).unwrap();
    }
    two_at_the_same_time(authority, examples.path());
    assert!(examples.run(ExampleKind::Other) >= 12);
    let record = |name: &str| -> Value { serde_json::from_slice(&examples.read(name)).unwrap() };
    let embedded = record("embedded.json");
    assert!(embedded["validity"]["verdict"].is_string());
    assert!(embedded["generator"]["calibrated"]["responses_per_s"].as_f64() > Some(0.0));
    assert!(embedded["totals"]["responses"].as_u64() > Some(0));
    assert_eq!(embedded["plan"]["pace"]["loop"], "open");
    let responses = |name: &str| record(name)["totals"]["responses"].as_u64().unwrap();
    assert!(responses("one.json") > 0);
    assert_eq!(responses("both.json"), responses("one.json") + responses("two.json"));
    assert!(!examples.read("man1/weir.1").is_empty());
    assert!(!examples.read("man1/weir-ctl.1").is_empty());
    // The last example of `weir ctl` drained it.
    assert_eq!(operated.wait(EVENT_TIMEOUT), 0);
}
