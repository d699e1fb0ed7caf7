//! `weir plan`: sizes from flags, files and records, and configs that the real programs accept.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, WEIR, command, run_weir, shared_machine, temp_dir,
};

fn json_of(arguments: &[&str]) -> (i32, Value) {
    let output = run_weir(&[&["plan", "--json", "-"], arguments].concat());
    (output.code, serde_json::from_str(&output.stdout).unwrap_or_default())
}

fn figure(plan: &Value, name: &str) -> f64 {
    let mut figures = plan["figures"].as_array().unwrap().iter();
    let row = figures.rfind(|figure| figure["name"] == name).unwrap_or_else(|| panic!("no figure {name}"));
    row["value"].as_f64().unwrap()
}

#[test]
fn configs_of_a_plan_are_accepted_by_the_programs() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let one = ["--rate", "1k", "--service", "20ms", "--servers", "6", "--requests-per-connection", "100"];
    let three = [
        "--rate",
        "4k",
        "--queue-time",
        "5s",
        "--client-timeout",
        "10s",
        "--backend",
        "app=18x2",
        "--backend",
        "240x1",
        "--backend",
        "b-c=3x50",
    ];
    for (number, given) in [&one[..], &three[..]].into_iter().enumerate() {
        for (target, file) in [("weir", "weir.toml"), ("haproxy", "haproxy.cfg"), ("nginx", "nginx.conf")] {
            let output = run_weir(&[&["plan", "--config", target], given].concat());
            assert_eq!(output.code, 0, "{}", output.stderr);
            let path = directory.path().join(format!("{number}-{file}"));
            // nginx writes its pid file below its prefix.
            let head = if target == "nginx" { "pid nginx.pid;\n" } else { "" };
            fs::write(&path, format!("{head}{}", output.stdout)).unwrap();
            let path = path.to_str().unwrap();
            let prefix = format!("{}/", directory.path().display());
            let (program, arguments) = match target {
                "weir" => (WEIR, vec!["proxy", "--config", path, "--check"]),
                "haproxy" => ("haproxy", vec!["-c", "-f", path]),
                _ => ("nginx", vec!["-t", "-e", "error.log", "-p", prefix.as_str(), "-c", path]),
            };
            let log = directory.path().join("log");
            let mut check = command(program, directory.path());
            check.args(arguments).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
            let code = Process::spawn(&mut check).wait(EVENT_TIMEOUT);
            assert_eq!(code, 0, "{target}: {}\n{}", fs::read_to_string(&log).unwrap(), output.stdout);
        }
    }
}

#[test]
fn a_record_gives_rate_service_time_and_sizes_with_their_sources() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let record = directory.path().join("run.json");
    let mut load = command(WEIR, directory.path());
    load.args([
        "load",
        "-c",
        "20",
        "-R",
        "200",
        "-d",
        "1s",
        "--no-watch",
        "--json",
        record.to_str().unwrap(),
    ]);
    load.arg(origin.url("/?s=1000&t=20")).stdout(Stdio::null());
    let code = Process::spawn(&mut load).wait(EVENT_TIMEOUT);
    assert!(code == 0 || code == 4, "{code}");
    let (code, plan) = json_of(&[record.to_str().unwrap(), "--servers", "2", "--maxconn", "50"]);
    assert_eq!(code, 0, "{plan}");
    let input = |name: &str| {
        let mut inputs = plan["inputs"].as_array().unwrap().iter();
        let input = inputs.rfind(|input| input["name"] == name).unwrap();
        (input["value"].as_f64().unwrap(), input["source"].as_str().unwrap().to_owned())
    };
    let (rate, source) = input("rate");
    assert!((190.0..210.0).contains(&rate) && source.contains("run.json: rates."), "{rate} {source}");
    let (service, source) = input("service");
    assert!(service >= 0.02 && source.contains("run.json: latency."), "{service} {source}");
    assert!(input("response-size").0 > 1000.0);
    assert!((figure(&plan, "busy-slots") - rate * service).abs() < 1e-6);
}

#[test]
fn plans_from_files_have_positions_and_all_problems() {
    let directory = temp_dir();
    let path = directory.path().join("plan.toml");
    let path = path.to_str().unwrap();
    fs::write(path, "rate = \"1k\"\nservice = \"20ms\"\nbackend = [\"app=2x20\"]\n").unwrap();
    let output = run_weir(&["plan", "--file", path, "--check"]);
    assert_eq!((output.code, output.stdout), (0, format!("{path}: valid\n")), "{}", output.stderr);
    let (code, plan) = json_of(&["--file", path, "--rate", "3k"]);
    assert_eq!((code, figure(&plan, "slots"), figure(&plan, "capacity")), (3, 40.0, 2000.0));
    assert_eq!(plan["findings"][0]["code"], "overloaded");
    fs::write(path, "rat = 1\nservice = \"x\"\n").unwrap();
    let output = run_weir(&["plan", "--file", path, "--servers", "0", "--config", "x", "/no/such.json"]);
    assert_eq!(output.code, 2);
    for part in ["plan.toml:1:1: ", "plan.toml:2:11: ", "--servers: ", "--config: ", "/no/such.json: "] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn a_verification_compares_every_prediction_with_either_proxy() {
    let _shared = shared_machine();
    let verify = |subject: &str| {
        let fixed =
            ["--rate", "200", "--service", "5ms", "--servers", "2", "--maxconn", "2", "--stall", "300ms"];
        let output = run_weir(
            &[&["plan", "--verify", "--quick", "--json", "-", "--subject", subject], &fixed[..]].concat(),
        );
        // Nothing is asserted about times: a prediction may be off here.
        assert!([0, 3].contains(&output.code), "{subject}: {}", output.stderr);
        let plan: Value = serde_json::from_str(&output.stdout).unwrap();
        let verification = &plan["verification"];
        let rows = verification["comparisons"].as_array().unwrap();
        assert_eq!(rows.len(), 6, "{subject}: {verification}");
        let measured = |name: &str| {
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            row["measured"].as_f64().unwrap_or(f64::NAN)
        };
        // The stall queues requests, the bound holds, and the overload does not exceed the slots.
        assert!(measured("queue after the stall") > 10.0, "{subject}: {verification}");
        let limit = verification["plan"]["queue_limit"].as_f64().unwrap();
        assert!(measured("queue with shedding") <= limit + 4.0, "{subject}: {verification}");
        assert!((0.5..=4.0).contains(&measured("connections in the overload")), "{subject}: {verification}");
        assert!(measured("goodput in the overload") > 0.0, "{subject}: {verification}");
    };
    std::thread::scope(|scope| {
        let haproxy = scope.spawn(|| verify("haproxy"));
        verify("weir");
        haproxy.join().unwrap();
    });
    let output = run_weir(&["plan", "--rate", "1k", "--subject", "nginx", "--quick"]);
    assert_eq!(output.code, 2);
    for part in ["--subject: nginx has no queue", "--quick: only with --verify"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}
