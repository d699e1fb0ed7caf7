//! The examples that the reference shows, run as they stand there; and the reference itself.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::edge::{TRIES, was_held_up};
use crate::support::times::demand;
use crate::support::{
    Origin, PATIENCE, Process, WEIR, beside_others, command, folder, pause_ms, weir, within,
};

#[test]
fn the_reference_in_the_repository_is_current() {
    let _shared = beside_others();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == weir(&["reference"]).stdout,
        "docs/reference.md is not what the tables say; run: \
         cargo run -q -- reference > docs/reference.md"
    );
}

#[test]
fn the_reference_of_the_config_is_current() {
    let _shared = beside_others();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == weir(&["reference", "config"]).stdout,
        "docs/config.md is not what the tables say; run: \
         cargo run -q -- reference config > docs/config.md"
    );
}

/// The command lines of the reference.
fn examples() -> Vec<String> {
    let reference = weir(&["reference"]).stdout;
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

/// Runs a command line in a folder as a shell does; its exit code and its stdout.
fn run_line(line: &str, place: &Path) -> (i32, String) {
    let out = place.join(".stdout");
    let mut shell = command("sh", place);
    shell.args(["-c", &format!("exec {line}")]).current_dir(place);
    let path = format!("{}:{}", place.join(".bin").display(), env!("PATH"));
    shell.env("PATH", path).stdout(fs::File::create(&out).unwrap());
    let goes_on = line.starts_with("weir serve")
        || line.starts_with("weir lab sick")
        || line.starts_with("weir lab serve")
        || (line.starts_with("weir proxy") && !line.contains("--explain"));
    if !goes_on {
        let code = Process::spawn(&mut shell).wait(4 * PATIENCE);
        return (code, fs::read_to_string(&out).unwrap());
    }
    let mut process = Process::spawn(shell.stderr(Stdio::null()));
    let listens = || fs::read_to_string(&out).unwrap().contains("listening on ");
    assert!(within(PATIENCE, listens), "{line}");
    pause_ms(50);
    process.signal(Signal::TERM);
    (process.wait(PATIENCE), fs::read_to_string(&out).unwrap())
}

/// Whether an example may have ended so because the machine held it or its server up.
fn is_held_up(line: &str, code: i32, place: &Path) -> bool {
    if line.starts_with("weir edge") {
        let record = fs::read(place.join("edge.json")).unwrap_or_default();
        return serde_json::from_slice(&record).is_ok_and(|record| was_held_up(&record));
    }
    line.starts_with("weir load") && line.contains("--slo") && code == 3
}

/// Writes `one.json` and `two.json`: only loads at the same time can be merged.
fn two_at_the_same_time(authority: &str, place: &Path) {
    let start = |name: &str| {
        let mut load = command(WEIR, place);
        load.args(["load", "-c", "2", "-R", "100", "-d", "4s", "--no-watch", "--json", name]);
        load.arg(format!("http://{authority}/")).current_dir(place);
        Process::spawn(load.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let loads = [start("one.json"), start("two.json")];
    for mut load in loads {
        let code = load.wait(4 * PATIENCE);
        assert!(code == 0 || code == 4, "{code}");
    }
}

#[test]
fn every_example_of_the_reference_works() {
    let _shared = beside_others();
    let origin = Origin::start(&["-t", "1"]);
    let port = origin.authority.rsplit(':').next().unwrap();
    let folder = folder();
    fs::create_dir(folder.path().join(".bin")).unwrap();
    std::os::unix::fs::symlink(WEIR, folder.path().join(".bin/weir")).unwrap();
    // What `weir ctl` is shown with.
    let config = format!(
        "threads = 1\ncontrol = \"ctl.sock\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         pool = \"app\"\n[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n",
        origin.authority
    );
    fs::write(folder.path().join("operated.toml"), config).unwrap();
    let said = fs::File::create(folder.path().join(".operated")).unwrap();
    let mut operated = command(WEIR, folder.path());
    operated.args(["proxy", "--config", "operated.toml"]).current_dir(folder.path());
    operated.stdout(said).stderr(Stdio::null());
    let mut operated = Process::spawn(&mut operated);
    let socket = folder.path().join("ctl.sock");
    assert!(within(PATIENCE, || socket.exists()));
    // What `weir lab try` is shown with.
    let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/scenarios");
    fs::copy(experiment.join("slow-origin.toml"), folder.path().join("slow-origin.toml")).unwrap();
    // And `weir lab run`.
    let experiment = experiment.join("../experiments/threads.toml");
    fs::copy(experiment, folder.path().join("threads.toml")).unwrap();
    two_at_the_same_time(&origin.authority, folder.path());
    let lines = examples();
    assert!(lines.len() >= 12, "{lines:?}");
    for line in lines {
        let line = line.replace("127.0.0.1:8000", &origin.authority);
        let line = line.replace("--port 8000", &format!("--port {port}"));
        let line = match line.as_str() {
            // The port that it would listen on may be taken here.
            "weir serve" => "weir serve --listen 127.0.0.1:0".to_owned(),
            "weir load" => "weir load --json embedded.json".to_owned(),
            // So that it can be told whether it was held up.
            edge if edge.starts_with("weir edge") && !edge.contains("--json") => {
                edge.replacen("weir edge", "weir edge --json edge.json", 1)
            }
            _ => line,
        };
        if line.starts_with("weir lab profile")
            && let Err(why) = crate::profile::allowed()
        {
            println!("skipped: {line}: {why}");
            continue;
        }
        let (mut code, mut stdout) = run_line(&line, folder.path());
        for _ in 1..TRIES {
            if !is_held_up(&line, code, folder.path()) {
                break;
            }
            (code, stdout) = run_line(&line, folder.path());
        }
        if is_held_up(&line, code, folder.path()) {
            demand(false, "an example that is not held up", (line, code, stdout));
            continue;
        }
        let may_be_invalid = ["weir load", "weir lab try", "weir lab run"];
        let may_be_invalid = may_be_invalid.iter().any(|command| line.starts_with(command));
        assert!(code == 0 || (code == 4 && may_be_invalid), "{line}: {code} {stdout}");
    }
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let embedded: Value = serde_json::from_slice(&read("embedded.json")).unwrap();
    assert!(embedded["validity"]["verdict"].is_string());
    assert!(embedded["generator"]["calibrated"]["responses_per_s"].as_f64() > Some(0.0));
    assert!(embedded["totals"]["responses"].as_u64() > Some(0));
    assert_eq!(embedded["plan"]["pace"]["loop"], "open");
    let responses = |name: &str| {
        let record: Value = serde_json::from_slice(&read(name)).unwrap();
        record["totals"]["responses"].as_u64().unwrap()
    };
    assert!(responses("one.json") > 0);
    assert_eq!(responses("both.json"), responses("one.json") + responses("two.json"));
    assert!(!read("man1/weir.1").is_empty());
    assert!(!read("man1/weir-ctl.1").is_empty());
    // The last of them had it drain.
    assert_eq!(operated.wait(PATIENCE), 0);
}
