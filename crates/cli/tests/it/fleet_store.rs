//! Runs of a fleet in a JetStream object store, and its live metrics.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::fleet::{Nats, nats_program, wait_for_load};
use crate::support::tls_peers::curl;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, WEIR, command, run_weir, shared_machine, temp_dir, within,
};

/// Asserts that the runs below a directory and in the bucket have pages, with links to their records.
fn assert_pages(nats: &str, directory: &Path, runs: &Path) {
    let mut serve = command(WEIR, directory);
    serve.args(["lab", "serve", "--store", "jetstream", "--nats", nats, runs.to_str().unwrap()]);
    let mut serve = Process::spawn(serve.stdout(Stdio::piped()).stderr(Stdio::null()));
    let line = serve.first_line();
    let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    let page = |target: &str| {
        let (_, body) = curl(&[&format!("{url}{target}")]);
        String::from_utf8(body).unwrap()
    };
    let index = page("");
    for part in ["/run/second/", "/stored/second/", "/stored/first/", "2 agents", "bucket weir-runs"] {
        assert!(index.contains(part), "{part}: {index}");
    }
    assert!(!index.contains("/run/first/"), "{index}");
    for route in ["run", "stored"] {
        let text = page(&format!("{route}/second/"));
        for part in ["merged.json", "agents/a.json", "agents/b.json", "2 of 2 agents"] {
            assert!(text.contains(part), "{route}: {part}: {text}");
        }
        for record in ["merged", "agents/a"] {
            let record: Value =
                serde_json::from_str(&page(&format!("{route}/second/{record}.json"))).unwrap();
            assert_eq!(record["schema"], "weir.run/1");
        }
        for wrong in ["third/", "second/agents/c.json", "second/agents", "../second/"] {
            assert!(!page(&format!("{route}/{wrong}")).contains("weir.run"), "{route}/{wrong}");
        }
    }
    serve.signal(Signal::INT);
    assert_eq!(serve.wait(EVENT_TIMEOUT), 0);
    let single_run = run_weir(&["lab", "serve", runs.join("second").to_str().unwrap()]);
    assert!(single_run.code == 2 && single_run.stderr.contains("parent directory"), "{single_run:?}");
    let half = run_weir(&["lab", "serve", "--nats", nats, runs.to_str().unwrap()]);
    assert!(half.code == 2 && half.stderr.contains("--nats: needs --store"), "{half:?}");
}

#[test]
fn runs_are_stored_listed_and_fetched() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let directory = temp_dir();
    let config = format!("jetstream {{ store_dir: \"{}\" }}\n", directory.path().display());
    let nats = Nats::start(program, &config);
    let _agents = [nats.agent("a", &[]), nats.agent("b", &[])];
    assert!(within(EVENT_TIMEOUT, || nats.agents().len() == 2));
    let origin = OriginProcess::start(&["-t", "1"]);
    let runs = |arguments: &[&str]| {
        let mut all = vec!["fleet", "runs", "--nats", &nats.url];
        all.extend(arguments);
        run_weir(&all)
    };
    let none = runs(&[]);
    assert!(none.code == 1 && none.stderr.contains("weir-runs is missing"), "{none:?}");
    for (name, requests) in [("first", "100"), ("second", "200"), ("second", "300")] {
        let stored = nats.load(&[
            "--store",
            "jetstream",
            "--run-name",
            name,
            "-n",
            requests,
            "-c",
            "4",
            &origin.url("/"),
        ]);
        let stored = stored.finish();
        assert_eq!(stored.code, 0, "{stored:?}");
        assert!(
            stored.stdout.contains(&format!("stored       {name} in the bucket weir-runs")),
            "{stored:?}"
        );
    }
    // The newest first; a run replaces one with its name.
    let list = runs(&[]);
    let rows: Vec<&str> =
        list.stdout.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["second", "first"], "{list:?}");
    assert!(list.stdout.contains("2 agents"), "{list:?}");
    let shown = runs(&["first"]);
    assert!(shown.code == 0 && shown.stdout.contains("2 of 2 agents"), "{shown:?}");
    let target = directory.path().join("fetched");
    let fetched = runs(&["second", "--fetch", target.to_str().unwrap()]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(target.join("second").join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("merged.json")["totals"]["responses"], 300);
    let parts =
        ["agents/a.json", "agents/b.json"].map(|name| read(name)["totals"]["responses"].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), 300);
    assert_pages(&nats.url, directory.path(), &target);
    assert!(!target.join("first").exists());
    let unknown = runs(&["third"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("no run third"), "{unknown:?}");
    let wrong = nats.load(&["--store", "disk", "--run-name", "../x", "-n", "10", &origin.url("/")]).finish();
    assert!(
        wrong.code == 2 && wrong.stderr.contains("--store") && wrong.stderr.contains("--run-name"),
        "{wrong:?}"
    );
}

#[test]
fn a_server_without_jetstream_leaves_the_run_in_files() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let nats = Nats::start(program, "");
    let _agent = nats.agent("a", &[]);
    let origin = OriginProcess::start(&["-t", "1"]);
    let output = temp_dir();
    let run = nats.load(&[
        "--agents",
        "1",
        "--store",
        "jetstream",
        "--run-name",
        "x",
        "--output",
        output.path().to_str().unwrap(),
        "-n",
        "100",
        "-c",
        "4",
        &origin.url("/"),
    ]);
    let directory = output.path().join("weir-run-x");
    // The merged record is the last file.
    let merged = directory.join("merged.json");
    assert!(within(EVENT_TIMEOUT, || merged.exists()), "{}", run.stderr());
    assert!(directory.join("agents/a.json").exists());
    let merged: Value = serde_json::from_slice(&fs::read(merged).unwrap()).unwrap();
    assert_eq!(merged["totals"]["responses"], 100);
    let run = run.finish();
    assert_eq!((run.code, run.total("responses")), (1, 100), "the result is complete: {run:?}");
    assert_eq!(
        run.stderr.matches("JetStream is not enabled").count(),
        2,
        "before the load and after it: {run:?}"
    );
    assert!(run.stderr.contains("weir-run-x"), "{run:?}");
}

#[test]
fn live_metrics_have_each_agent_and_the_sum() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let nats = Nats::start(program, "");
    let _agents = [nats.agent("a", &[]), nats.agent("b", &[])];
    assert!(within(EVENT_TIMEOUT, || nats.agents().len() == 2));
    let origin = OriginProcess::start(&["-t", "1"]);
    let run =
        nats.load(&["-R", "200", "-d", "4s", "--live", "--metrics-listen", "127.0.0.1:0", &origin.url("/")]);
    wait_for_load(&origin);
    let address = || {
        let stderr = run.stderr();
        let line = stderr.lines().find(|line| line.contains("metrics at"))?;
        line.split_whitespace().last().map(str::to_owned)
    };
    assert!(within(EVENT_TIMEOUT, || address().is_some()), "{}", run.stderr());
    let address = address().unwrap();
    let scrape = || String::from_utf8(curl(&[&address]).1).unwrap();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last()?.parse::<f64>().ok()
    };
    let agents = ["a", "b"].map(|agent| format!("weir_fleet_agent_responses_total{{agent=\"{agent}\"}}"));
    let has_all = |text: &str| agents.iter().all(|name| value(text, name) > Some(0.0));
    let mut text = String::new();
    assert!(
        within(EVENT_TIMEOUT, || {
            text = scrape();
            has_all(&text)
        }),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(value(&text, "weir_load_response_latency_seconds_count") > Some(0.0), "{text}");
    // The final scrape releases the command. On a busy machine, the one above may have been it.
    let is_final = |text: &str| value(text, "weir_load_finished") == Some(1.0);
    assert!(is_final(&text) || within(EVENT_TIMEOUT, || is_final(&scrape())), "{text}");
    let run = run.finish();
    // 4: invalid, on a machine that is too busy for the load.
    assert!([0, 4].contains(&run.code), "{run:?}");
    // The live lines have the percentiles of all agents together: header and rows, without an absent value.
    let rows: Vec<&str> = run.stdout.lines().filter(|line| line.trim_start().starts_with("2")).collect();
    assert!(rows.iter().any(|row| row.contains("µs") || row.contains("ms")), "{}", run.stdout);
}
