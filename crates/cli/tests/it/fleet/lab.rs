//! `weir lab run` with `[machine.NAME]`: programs and loads of an experiment on agents.

use super::*;

const FILE: &str = r#"
title = "threads of a proxy on another machine"
[parameters]
threads = "1"
[machine.edge]
agent = "name=edge"
proxy = ["-l", "127.0.0.1:SUBJECT", "--to", "127.0.0.1:ORIGIN", "-t", "{threads}"]
[machine.back]
agent = "name=back"
serve = ["-l", "127.0.0.1:ORIGIN", "-t", "1"]
[load]
agents = "name=client"
flags = "-c 4 -t 1 -d {duration} http://127.0.0.1:SUBJECT/?s=100"
warm-up = "200ms"
[arms.one]
[arms.two]
parameters.threads = "2"
[measure]
also = ["subject_cpus", "origin_cpus", "generator_cpus"]
"#;

/// Bounds that no machine with other tests reaches: a test needs the trials and not their figures.
const UNDISTURBED: &[&str] = &[
    "--discard=steal=100%",
    "--discard=foreign-cpus=1000",
    "--discard=wake-up-ratio=100000",
    "--discard=throttled=100%",
    "--discard=clock-step=1000s",
];

/// Asserts that the experiment is not resumed while the agent of the edge has another limit of descriptors, and starts
/// that agent again.
fn assert_a_changed_agent_is_named(machines: &mut Machines, resume: &[&str]) {
    let url = machines.nats.url.clone();
    let agent = ["fleet", "agent", "--nats", &url, "--name", "edge", "--allow", "proxy"];
    let mut restart = |program: &str, arguments: &[&str]| {
        let old = machines.agents.remove(1);
        old.process.signal(Signal::TERM);
        old.finish();
        machines.agents.insert(1, start(program, arguments));
        assert!(within(EVENT_TIMEOUT, || machines.nats.agents().len() == 3));
    };
    restart("prlimit", &[&["--nofile=1024:1024", WEIR][..], &agent].concat());
    let changed = start(WEIR, resume).finish();
    assert_eq!(changed.code, 2, "{changed:?}");
    assert!(changed.stderr.contains("agent edge, descriptors: 1024, was"), "{changed:?}");
    assert!(changed.stderr.contains("--allow-changed-environment"), "{changed:?}");
    restart(WEIR, &agent);
}

#[test]
fn an_experiment_over_machines_runs_stops_and_resumes() {
    let _shared = shared_machine();
    let Some(program) = nats_program() else { return };
    let mut machines = Nats::start(program, "").machines();
    let (url, home) = (machines.nats.url.clone(), machines.directory.path().to_owned());
    let (file, output) = (home.join("machines.toml"), home.join("out"));
    let [subject, origin] = machines.ports;
    let text = FILE.replace("SUBJECT", &subject.to_string()).replace("ORIGIN", &origin.to_string());
    fs::write(&file, text).unwrap();
    let (file, out) = (file.to_str().unwrap(), output.to_str().unwrap());

    // A check needs no server, and reports everything at once.
    let checked = run_weir(&["lab", "run", "--nats", "nats://127.0.0.1:1", "--check", file]);
    assert!(checked.code == 0 && checked.stdout.contains("valid"), "{checked:?}");
    let wrong = home.join("wrong.toml");
    let text = fs::read_to_string(file).unwrap();
    let text = text.replace("\"-t\", \"1\"]", "\"--access-log=/tmp/x\"]").replace("name=edge", "edge");
    fs::write(&wrong, text.replace("-c 4", "-c x")).unwrap();
    let refused = run_weir(&["lab", "run", "--check", wrong.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{refused:?}");
    for location in ["wrong.toml:6:9: 'machine.edge.agent'", "wrong.toml:10:9: 'machine.back.serve'"] {
        assert!(refused.stderr.contains(location), "{location}: {}", refused.stderr);
    }
    assert!(refused.stderr.contains("wrong.toml:13:9: 'load.flags': --connections"), "{}", refused.stderr);
    let half = run_weir(&["lab", "run", "--check", "--nats-cert", "x.pem", file]);
    assert!(half.code == 2 && half.stderr.contains("--nats-key: missing"), "{half:?}");

    // Ctrl-C ends it between and in trials; the directory has what it needs to continue.
    let options = ["--duration", "300ms", "--blocks", "1", "--seed", "1", "--output", out, file];
    let start_run = ["lab", "run", "--nats", &url];
    let begun = start(WEIR, &[&start_run[..], UNDISTURBED, &options].concat());
    let trials = || fs::read_dir(output.join("trials")).map_or(0, Iterator::count);
    // Two agents and an origin start first, which takes long beside other programs.
    assert!(within(3 * EVENT_TIMEOUT, || trials() > 0), "no trial");
    begun.process.signal(Signal::INT);
    let begun = begun.finish();
    assert!(begun.stderr.contains("--resume"), "{begun:?}");
    assert!(machines.have_ended());
    let resume = [&start_run[..], &["--resume", out, "--json", "RECORD"]].concat();
    assert_a_changed_agent_is_named(&mut machines, &resume);
    let resumed = start(WEIR, &resume).finish();
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let rows = resumed.record["trials"].as_array().unwrap();
    let complete = rows.iter().filter(|row| row["failed"].is_null());
    assert!(complete.clone().count() >= 3, "two arms, and the baseline again: {rows:?}");

    // Each machine was observed, and the metrics are those of its roles.
    let path = output.join(complete.clone().next_back().unwrap()["file"].as_str().unwrap());
    let trial: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for metric in ["responses_per_s", "subject_cpus", "origin_cpus", "generator_cpus"] {
        assert!(trial["metrics"][metric].as_f64().is_some_and(|value| value > 0.0), "{metric}: {trial}");
    }
    assert!(trial["run"]["fleet"]["agents"][0]["name"] == "client" && trial["diagnosis"].is_object());
    assert!(trial["commands"]["edge"].as_str().unwrap().starts_with("weir proxy "), "{}", trial["commands"]);
    let arms = resumed.record["plan"]["arms"].as_array().unwrap();
    assert_eq!(arms.last().unwrap()["changes"]["parameters.threads"], "2");

    // A single trial of this machine is another command.
    let single = run_weir(&["lab", "try", file]);
    assert!(single.code == 2 && single.stderr.contains("weir lab run"), "{single:?}");
}
