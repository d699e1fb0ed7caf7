//! `weir fleet edge`: each trial of a search is a load of several agents.

use super::*;

/// Flags of a short search up to a low level, which any machine holds.
const SHORT: &[&str] = &["--quick", "--trial", "200ms", "--from", "50", "--to", "100", "--slo", "errors<5%"];

fn search(nats: &Nats, arguments: &[&str]) -> RunningProcess {
    let mut all = vec!["fleet", "edge", "--nats", &nats.url, "--agents", "2", "--json", "RECORD", "-c", "4"];
    all.extend(arguments);
    start(WEIR, &all)
}

#[test]
fn a_search_over_a_fleet_ends_at_its_highest_level_and_keeps_what_it_has() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let nats = Nats::start(program, "");
    let origin = OriginProcess::start(&["-t", "1"]);
    let agents = [nats.agent("a", &[]), nats.agent("b", &[])];
    assert!(within(EVENT_TIMEOUT, || nats.agents().len() == 2));
    let url = origin.url("/?s=100");
    let kept = temp_dir();
    let keep = ["--search-only", "--keep", kept.path().to_str().unwrap(), &url];
    let found = search(&nats, &[SHORT, &keep].concat()).finish();
    assert_eq!(found.code, 0, "{found:?}");
    let conclusion = &found.record["conclusion"];
    assert_eq!((conclusion["end"].as_str(), conclusion["level"].as_f64()), (Some("max_level"), Some(100.0)));
    // The result at the edge is that of both agents.
    let at_edge = &found.record["at_edge"];
    let rows = at_edge["fleet"]["agents"].as_array().unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["outcome"] == "complete"), "{rows:?}");
    assert!(at_edge["diagnosis"].is_object(), "{at_edge}");
    assert_eq!(at_edge["plan"]["connections"], 4);
    assert!(found.record["notes"][0].as_str().unwrap().contains("2 agents (a, b)"));
    let trials = found.record["trials"].as_array().unwrap();
    assert_eq!(fs::read_dir(kept.path()).unwrap().count(), trials.len());

    // Ctrl-C ends the trial on all agents; what was found so far is a result.
    let long = ["--trial", "20s", "--from", "50", "--to", "100", "--no-baseline", &url];
    let stopped = search(&nats, &long);
    wait_for_load(&origin);
    stopped.process.signal(Signal::INT);
    let stopped = stopped.finish();
    assert_eq!((stopped.code, stopped.record["conclusion"]["end"].as_str()), (4, Some("stopped")));
    let notes = stopped.record["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("stopped by the user")), "{notes:?}");

    // Nothing accepts connections from the start: that is no level.
    let unreachable = search(&nats, &[SHORT, &["--no-baseline", "http://127.0.0.1:1/"]].concat()).finish();
    assert!(unreachable.code == 1 && unreachable.stderr.contains("cannot connect to"), "{unreachable:?}");
    let refused = search(&nats, &["--direct", &url, "--data", "@f", &url]).finish();
    assert!(refused.code == 2 && refused.stderr.contains("--direct") && refused.stderr.contains("--data"));
    drop(agents);
}
