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
    let one_backend =
        ["--rate", "1k", "--service", "20ms", "--servers", "6", "--requests-per-connection", "100"];
    let three_backends = [
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
    for (number, given) in [&one_backend[..], &three_backends[..]].into_iter().enumerate() {
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
    let output = run_weir(&["plan", "--rate", "1k", "--subject", "apache", "--quick"]);
    assert_eq!(output.code, 2);
    for part in ["--subject: 'apache' is not one of", "--quick: only with --verify"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    let output = run_weir(&["plan", "--verify", "--rate", "1k", "--subject", "x \"{config}"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--subject: the quotation mark \" is not closed"), "{}", output.stderr);
}

/// Plan of the verifications of foreign subjects.
const SMALL: [&str; 10] =
    ["--rate", "200", "--service", "5ms", "--servers", "2", "--maxconn", "2", "--stall", "300ms"];

/// Verifies the small plan; returns the comparisons by name.
fn verify_small(arguments: &[&str]) -> impl Fn(&str) -> Value + use<> {
    let output = run_weir(&[&["plan", "--verify", "--quick", "--json", "-"], arguments, &SMALL].concat());
    // Nothing is asserted about times: a prediction may be off here.
    assert!([0, 3].contains(&output.code), "{arguments:?}: {}", output.stderr);
    let plan: Value = serde_json::from_str(&output.stdout).unwrap();
    let rows = plan["verification"]["comparisons"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 6, "{rows:?}");
    move |name: &str| rows.iter().find(|row| row["name"] == name).unwrap().clone()
}

/// Asserts that the figures from outside of a subject are measured, and the queue is not.
fn assert_seen_from_outside(row: &impl Fn(&str) -> Value, reason: &str) {
    for name in ["connections in use", "connections in the overload", "goodput in the overload"] {
        assert!(row(name)["measured"].as_f64().unwrap() > 0.0, "{}", row(name));
    }
    assert!(row("connections in the overload")["measured"].as_f64().unwrap() <= 4.0 + 1.0);
    for name in ["queue after the stall", "queue with shedding"] {
        let row = row(name);
        assert!(row["measured"].is_null() && row["holds"].is_null(), "{row}");
        assert_eq!(row["not_observable"], reason);
    }
}

#[test]
fn root_verifies_in_no_temporary_directory_of_another_user() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let _shared = shared_machine();
    let directory = temp_dir();
    let [foreign, below, open] = ["foreign", "foreign/below", "open"].map(|name| directory.path().join(name));
    for path in [&foreign, &below, &open] {
        fs::create_dir(path).unwrap();
    }
    if chown(&foreign, Some(65_534), None).is_err() {
        return test_needs::skip(test_needs::ROOT, "files of other users can be made only by root");
    }
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(&foreign, directory.path().join("link")).unwrap();
    for temporary in [foreign, below, open, directory.path().join("link")] {
        let mut verify = command(WEIR, directory.path());
        verify.args(["plan", "--verify", "--quick"]).args(SMALL).env("TMPDIR", &temporary);
        let output = verify.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {stderr}", temporary.display());
        assert!(stderr.contains("the directory of the subject"), "{}: {stderr}", temporary.display());
    }
    // A directory of root, and one like /tmp, of which root's own is safe, are no reason to stop.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut verify = command(WEIR, directory.path());
    verify.args(["plan", "--verify", "--quick"]).args(SMALL).env("TMPDIR", &shared);
    let output = verify.output().unwrap();
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
}

#[test]
fn nginx_is_verified_with_its_config_and_its_queue_is_not_invented() {
    let _shared = shared_machine();
    let row = verify_small(&["--subject", "nginx"]);
    assert_seen_from_outside(&row, "not observable: the subject has no queue");
    assert!(row("connections in use")["predicted"].as_f64().unwrap() < 1.3, "{}", row("connections in use"));
}

#[test]
fn any_command_is_verified_with_a_config_or_with_its_flags() {
    let _shared = shared_machine();
    let inside = "not observable: the queue is inside of the subject";
    let haproxy = ["--subject", "haproxy -db -f {config}", "--subject-config", "haproxy"];
    assert_seen_from_outside(&verify_small(&haproxy), inside);
    let directory = temp_dir();
    let template = directory.path().join("template.toml");
    let text = "[listener.web]\nbind = \"{listen}\"\n[[route]]\npool = \"app\"\n[pool.app]\n\
                queue = { limit = {queue-limit}, timeout = \"{queue-ms}ms\" }\nservers = [\n  \
                { address = \"{origin}\", maxconn = {maxconn} },\n]\n";
    fs::write(&template, text).unwrap();
    let weir = format!("'{WEIR}' proxy --config {{config}}");
    let own = ["--subject", weir.as_str(), "--subject-config", template.to_str().unwrap()];
    assert_seen_from_outside(&verify_small(&own), inside);
    // An unbounded queue has a drain time, which needs more than two seconds to be seen.
    let row = verify_small(&[&own[..], &["--subject-queue", "unbounded"]].concat());
    assert!(row("drain time")["not_observable"].as_str().unwrap().contains("over two seconds or more"));
    assert!(row("goodput in the overload")["measured"].is_null());
}

#[test]
fn a_running_proxy_is_verified_before_the_origins_of_weir() {
    let _shared = shared_machine();
    // The kernel chooses the ports; both are free again before the origins listen.
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let origins = [free(), free()];
    let directory = temp_dir();
    let mut proxy = command(WEIR, directory.path());
    proxy.args(["proxy", "--listen", "127.0.0.1:0", "--until-stdin-closes", "--to", &origins.join(",")]);
    let mut proxy = Process::spawn(proxy.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let line = proxy.first_line();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let listen = ["--origin-listen", &origins[0], "--origin-listen", &origins[1]];
    let row = verify_small(&[&["--subject-url", url.as_str()], &listen[..]].concat());
    assert!(row("connections in use")["measured"].as_f64().unwrap() > 0.0);
    let output = run_weir(&[&["plan", "--verify", "--subject-url", &url], &listen[..2], &SMALL].concat());
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("--origin-listen: the verified plan has 2 servers"), "{}", output.stderr);
}

#[test]
fn a_subject_that_does_not_start_leaves_its_output() {
    let _shared = shared_machine();
    let failing = "sh -c 'echo no luck at {listen}; exit 3'";
    let output = run_weir(&[&["plan", "--verify", "--quick", "--subject", failing], &SMALL[..]].concat());
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("it ended before it accepted connections"), "{}", output.stderr);
    assert!(output.stderr.contains("no luck at 127.0.0.1:"), "{}", output.stderr);
    let path = output.stderr.split("its output is in ").nth(1).unwrap().split(':').next().unwrap();
    assert!(fs::read_to_string(path).unwrap().contains("no luck"), "{path}");
    fs::remove_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
    for (arguments, parts) in [
        (&["--subject", "x {config}"][..], &["--subject-config: missing"][..]),
        (&["--subject", "x {lisen}"], &["{lisen}", "the program does not get its address"]),
        (&["--subject", "x {config}", "--subject-config", "/no/such"], &["--subject-config: /no/such"]),
        (&["--subject-url", "127.0.0.1:1"], &["--subject-url: ", "--origin-listen: missing"]),
        (&["--origin-listen", "127.0.0.1:1"], &["--origin-listen: only with --subject-url"]),
    ] {
        let output = run_weir(&[&["plan", "--verify", "--check"], arguments, &SMALL].concat());
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
        for part in parts {
            assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
        }
    }
}

#[test]
fn the_example_plans_are_valid_and_one_of_them_runs() {
    let _shared = shared_machine();
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/plans");
    let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    let files: Vec<String> = files.collect();
    assert_eq!(files.len(), 5);
    for file in &files {
        let (code, plan) = json_of(&["--file", file]);
        assert_eq!(code, 0, "{file}: {}", plan["findings"]);
    }
    let file = files.iter().find(|file| file.ends_with("heavy-tail.toml")).unwrap();
    let short = ["plan", "--file", file, "--verify", "--quick", "--stall", "300ms", "--json", "-"];
    let output = run_weir(&short);
    assert!([0, 3].contains(&output.code), "{}", output.stderr);
    let plan: Value = serde_json::from_str(&output.stdout).unwrap();
    let rows = plan["verification"]["comparisons"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["measured"].as_f64().is_some()), "{rows:?}");
}
