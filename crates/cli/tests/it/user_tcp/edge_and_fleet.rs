//! Searches and agents of a fleet over TCP in user space: both count what the origin counts, and leave nothing.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{Pair, XDP_SERVER, ip};
use crate::edge::{search_tries, was_disturbed};
use crate::fleet::{agent_rows, nats_program};
use crate::support::timing::assert_timing;
use crate::support::{EVENT_TIMEOUT, Process, RunOutput, WEIR, command, start, temp_dir, within};

/// A short search up to a level that any machine holds.
const SHORT_SEARCH: [&str; 14] = [
    "edge",
    "--quick",
    "--search-only",
    "--no-baseline",
    "--trial",
    "200ms",
    "--from",
    "200",
    "--to",
    "400",
    "--slo",
    "errors<5%",
    "-t",
    "1",
];

/// Returns the records of all trials of a search.
fn kept_trials(directory: &Path) -> Vec<Value> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect()
}

/// Searches for the capacity of a server, and checks that each trial was in user space and that the origin has served
/// what they count.
fn search(pair: &Pair) -> RunOutput {
    let served_before = pair.stats()["requests"].as_u64().unwrap();
    let directory = temp_dir();
    let keep = directory.path().to_str().unwrap();
    let target = ["--xdp", "x1", "-c", "8", "--json", "RECORD", "--keep", keep, "http://10.79.0.1/?s=100"];
    let run = pair.weir(1, &[&SHORT_SEARCH[..], &target].concat());
    let trials = kept_trials(directory.path());
    assert!(trials.len() >= 3, "{run:?}");
    let mut responses = 0;
    for trial in &trials {
        let transport = &trial["transport"];
        assert_eq!((&transport["kind"], &transport["interface"]), (&"xdp".into(), &"x1".into()), "{trial:#}");
        assert!(transport["sent"].as_u64() > Some(0) && transport["received"].as_u64() > Some(0));
        assert_eq!(trial["totals"]["requests"], trial["totals"]["responses"], "{:#}", trial["totals"]);
        responses += trial["totals"]["responses"].as_u64().unwrap();
    }
    let served = pair.stats()["requests"].as_u64().unwrap() - served_before;
    assert_eq!((served, trials.len()), (responses, run.record["trials"].as_array().unwrap().len()));
    assert!(!pair.has_program(1, "x1"));
    run
}

#[test]
fn a_search_finds_a_capacity_and_the_origin_counts_the_same() {
    let Some(pair) = Pair::create() else { return };
    for server in [&XDP_SERVER[..], &["--listen", "10.79.0.1:80"]] {
        let process = pair.serve(server);
        let mut found = search(&pair);
        for _ in 1..search_tries() {
            if !was_disturbed(&found.record) {
                break;
            }
            found = search(&pair);
        }
        let is_held_up = was_disturbed(&found.record);
        if is_held_up {
            assert_timing(false, "a search that is not held up", &found.stdout);
        } else {
            assert_eq!(found.code, 0, "{found:?}");
            let conclusion = &found.record["conclusion"];
            let end = (conclusion["end"].as_str(), conclusion["level"].as_f64());
            assert_eq!(end, (Some("max_level"), Some(400.0)), "{conclusion:#}");
            assert_eq!(found.record["at_edge"]["transport"]["kind"], "xdp");
            assert!(found.stdout.contains("takes about"), "{}", found.stdout);
        }
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

/// Address of the NATS server in the namespace of the client, which has nothing else.
const NATS: &str = "nats://127.0.0.1:4222";

#[test]
fn an_agent_takes_the_interface_of_its_own_machine() {
    let (Some(pair), Some(program)) = (Pair::create(), nats_program()) else { return };
    let directory = temp_dir();
    let mut exec = command("ip", directory.path());
    exec.args(["netns", "exec", &pair.0[1]]).arg(program).args(["-a", "127.0.0.1", "-p", "4222"]);
    let nats = Process::spawn(exec.stdout(Stdio::null()).stderr(Stdio::null()));
    let agent = ["netns", "exec", &pair.0[1], WEIR, "fleet", "agent", "--nats", NATS, "--name", "client"];
    let agent = start("ip", &agent);
    let agents = || {
        let list = pair.weir(1, &["fleet", "ls", "--nats", NATS, "--json", "-"]);
        let list: Value = serde_json::from_str(&list.stdout).unwrap_or_default();
        list["agents"].as_array().map_or(0, Vec::len)
    };
    assert!(within(EVENT_TIMEOUT, || agents() == 1), "{}", agent.stderr());
    let load = |target: &str| {
        let fixed = ["fleet", "load", "--nats", NATS, "--json", "RECORD", "--no-watch", "--no-baseline"];
        let flags = ["--agents", "1", "--xdp", "x1", "-n", "3000", "-c", "20", target];
        pair.weir(1, &[&fixed[..], &flags].concat())
    };
    for server in [&XDP_SERVER[..], &["--listen", "10.79.0.1:80"]] {
        let process = pair.serve(server);
        let run = load("http://10.79.0.1/?s=100");
        run.assert_sums();
        assert_eq!((run.total("responses"), run.errors()), (3_000, 0), "{run:?}");
        let rows = agent_rows(&run);
        assert!(rows.len() == 1 && rows[0]["outcome"] == "complete", "{rows:#?}");
        let transport = &run.record["transport"];
        assert_eq!(
            (&transport["kind"], &transport["interface"]),
            (&"xdp".into(), &"x1".into()),
            "{transport:#}"
        );
        assert_eq!(pair.stats()["requests"].as_u64(), Some(3_000));
        assert!(!pair.has_program(1, "x1"));
        drop(process);
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
    // What an agent cannot take, it refuses: a fleet has no --xdp-exposed.
    assert!(ip(&["-n", &pair.0[1], "route", "add", "default", "dev", "x1"]));
    let refused = load("http://10.79.0.1/?s=100");
    assert!(refused.code != 0 && refused.stderr.contains("x1"), "{refused:?}");
    assert!(!pair.has_program(1, "x1"));
    drop((agent, nats));
}
