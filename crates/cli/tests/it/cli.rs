//! Tests of the command line as scripts and users run it: wrong flags, output to the right stream,
//! files, reports, completions. `cli_run` tests the life of a process, `examples` the examples of
//! the reference.

use std::fs;
use std::path::Path;

use record::histogram::LatencyHistogram;
use serde_json::Value;

use crate::lab_experiment::own_lines;
use crate::support::peers::ScriptedServer;
use crate::support::timing::assert_timing;
use crate::support::{
    OriginProcess, RunOutput, RunningProcess, WEIR, run_load, run_weir, shared_machine, start, temp_dir,
};

#[test]
fn all_wrong_flags_are_reported_at_once() {
    let _shared = shared_machine();
    let cases: &[(&[&str], &[&str])] = &[
        (
            &[
                "load",
                "-c",
                "0",
                "-d",
                "soon",
                "-R",
                "fast",
                "-w",
                "0",
                "--slo",
                "p99",
                "-t",
                "x",
                "http://127.0.0.1:1/",
                "ftp://x/",
            ],
            &["--connections", "--duration", "--rate", "--timeout", "--slo", "--threads", "URL 2"],
        ),
        (
            &["load", "--data-file", "/no/such/file", "-c", "0", "http://127.0.0.1:1/"],
            &["--data-file", "--connections"],
        ),
        (&["load", "-c", "0", "-d", "soon"], &["--connections", "--duration"]),
        (
            &["serve", "--listen", "8000", "-t", "0", "--idle-timeout", "x"],
            &["--listen", "--threads", "--idle-timeout"],
        ),
        (&["calibrate", "--size", "x", "--trials", "0", "-c", "0"], &["--size", "--trials", "--connections"]),
        (
            &["load", "report", "--fail-if", "x", "/no/such/file", "/nor/this"],
            &["--fail-if", "/no/such/file", "/nor/this"],
        ),
        (&["load", "report"], &["FILE"]),
        (&["completions", "tcsh"], &["SHELL", "unsupported shell 'tcsh'", "bash"]),
        (&["man"], &["DIR"]),
        (&["load", "--no-such-flag"], &["--no-such-flag"]),
        (&["nonsense"], &["nonsense"]),
        (&[], &["Usage"]),
    ];
    for (arguments, expected_parts) in cases {
        let output = run_weir(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {output:?}");
        assert_eq!(output.stdout, "", "{arguments:?}");
        for part in *expected_parts {
            assert!(output.stderr.contains(part), "{arguments:?}: {}", output.stderr);
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_run() {
    let _shared = shared_machine();
    let server = ScriptedServer::responding(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let url = server.url();
    let files = ["--json", "/no/such/a", "--csv", "/no/such/b", "--hdr", "/no/such/c"];
    let output = run_weir(&[&["load", "-d", "1s"], &files[..], &[&url]].concat());
    assert_eq!(output.code, 2, "{output:?}");
    for flag in ["--json", "--csv", "--hdr"] {
        assert!(output.stderr.contains(flag), "{}", output.stderr);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn output_destinations_are_checked_before_the_run() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (same, other) = (at("same"), at("other"));
    let url = "http://127.0.0.1:1/";
    // The words of each case are in one line.
    let cases: &[(&[&str], &[&str])] = &[
        (&["load", "--json", &same, "--csv", &same, url], &["--csv: ", "--json", &same]),
        (&["load", "--hdr", "-", url], &["--hdr: ", "stdout"]),
        (&["load", "--json", "-", "--csv", "-", url], &["--csv: ", "--json", "stdout"]),
        (&["load", "--json", &same, "--csv", "/no/such/a"], &["--csv: ", "/no/such/a"]),
        (&["edge", "--json", "/no/such/a", url], &["--json: ", "/no/such/a"]),
        (&["calibrate", "--json", "/no/such/a"], &["--json: ", "/no/such/a"]),
        (&["watch", "-d", "1h", "--json", "/no/such/a"], &["--json: ", "/no/such/a"]),
        (&["lab", "profile", "--pid", "1", "--svg", "/no/such/a"], &["--svg: ", "/no/such/a"]),
        (&["lab", "profile", "--pid", "1", "--svg", "-", "--json", "-"], &["--svg: ", "--json", "stdout"]),
        (&["lab", "profile", "--pid", "1", "--svg", &other, "--folded", &other], &["--svg: ", "--folded"]),
        (&["lab", "show", "--html", "-", "x"], &["--html: ", "stdout"]),
        (&["load", "--data-file", "/dev/zero", url], &["--data-file: ", "/dev/zero"]),
        (&["load", "--source", "203.0.113.7", url], &["--source: ", "203.0.113.7"]),
        (&["edge", "--source", "203.0.113.7", url], &["--source: ", "203.0.113.7"]),
    ];
    for (arguments, parts) in cases {
        let output = run_weir(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {output:?}");
        let names_all = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(output.stderr.lines().any(names_all), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{arguments:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn csv_to_stdout_is_alone_there() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let output = run_weir(&["load", "-c", "2", "-d", "1s", "--live", "--csv", "-", &origin.url("/")]);
    assert!(output.stdout.starts_with("time_s,length_s,"), "{output:?}");
    let commas = |line: &str| line.matches(',').count();
    let lines: Vec<usize> = output.stdout.lines().map(commas).collect();
    assert!(lines.len() >= 2 && lines.iter().all(|&line| line == lines[0]), "{output:?}");
}

#[test]
fn a_missing_socket_is_reported_as_such() {
    let _shared = shared_machine();
    let output = run_weir(&["load", "-c", "1", "-d", "1s", "--unix", "/no/such.sock", "http://a/"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("cannot connect to unix:/no/such.sock: no such socket"), "{output:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    let _shared = shared_machine();
    for arguments in [&["--help"][..], &["load", "--help"], &["--version"], &["serve", "-h"]] {
        let output = run_weir(arguments);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(output.stdout.contains("weir"), "{arguments:?}");
    }
}

#[test]
fn json_to_stdout_is_alone_there() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = origin.url("/");
    let output = run_weir(&["load", "-c", "2", "-d", "1s", "--live", "--json", "-", &url]);
    assert_eq!(own_lines(&output.stderr), [""; 0]);
    let record: Value = serde_json::from_str(&output.stdout).expect("only JSON");
    assert_eq!(record["schema"], "weir.run/1");
    assert_eq!(record["command"][0], WEIR);
    assert_eq!(record["plan"]["connections"], 2);
    // The same record in a file, with surrounding text.
    let output = run_load(&["-c", "2", "-d", "1s", &url]);
    assert_eq!(output.record["schema"], "weir.run/1");
    assert!(output.stdout.contains("validity"), "{}", output.stdout);
    assert!(!output.stdout.contains('\x1b'), "colour in a file");
}

#[test]
fn a_record_has_everything_that_scripts_rely_on() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let output = run_load(&["-c", "2", "-n", "300", "--slo", "p99<10s", &origin.url("/")]);
    let names = [
        "weir.version",
        "weir.commit",
        "started_at",
        "duration_s",
        "partial",
        "host.kernel",
        "host.cpus",
        "host.memory_bytes",
        "plan.pace",
        "validity.verdict",
        "validity.reasons",
        "objectives.0.text",
        "objectives.0.met",
        "objectives.0.value",
        "totals.requests",
        "totals.sent",
        "totals.responses",
        "totals.status.200",
        "totals.errors",
        "totals.bytes_in",
        "totals.bytes_out",
        "totals.dropped",
        "totals.connections.requested",
        "totals.connections.max_open",
        "totals.connections.opened",
        "totals.connections.failed",
        "rates.responses_per_s",
        "rates.bytes_in_per_s",
        "generator.threads",
        "cpu.user_s",
        "generator.busiest_thread_fraction",
        "generator.run_queue_wait_fraction",
        "cpu.system_s",
        "cpu.per_core.0",
        "intervals.0.responses",
    ];
    for name in names {
        let pointer = format!("/{}", name.replace('.', "/"));
        assert!(output.record.pointer(&pointer).is_some(), "{name}: {:#}", output.record);
    }
    for phase in ["connect", "first_byte", "last_byte"] {
        for kind in ["service", "response"] {
            for figure in ["mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "count"] {
                output.number(&format!("latency.{phase}.{kind}.{figure}"));
            }
            assert!(output.record["latency"][phase][kind]["hdr"].is_string());
        }
    }
}

#[test]
fn csv_has_a_row_for_each_interval() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let path = directory.path().join("run.csv");
    let flags = ["-c", "2", "-R", "100", "-d", "2500ms", "--csv", path.to_str().unwrap()];
    let run = || run_load(&[&flags[..], &[&origin.url("/")]].concat());
    // A load that is delayed at its end has one long interval there instead of several.
    let was_held_up = |output: &RunOutput| {
        let mut intervals = output.record["intervals"].as_array().unwrap().iter();
        intervals.any(|interval| interval["length_s"].as_f64() > Some(1.0))
    };
    let mut output = run();
    for _ in 0..4 {
        if !was_held_up(&output) {
            break;
        }
        output = run();
    }
    let text = fs::read_to_string(&path).unwrap();
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), output.record["intervals"].as_array().unwrap().len());
    assert!(rows.len() >= 3 || was_held_up(&output), "{text}");
    assert_timing(rows.len() >= 3, "three intervals in 2.5 s", rows.len());
    assert!(rows.iter().all(|row| row.len() == header.len()), "{text}");
    let column = header.iter().position(|name| *name == "responses").unwrap();
    let responses: u64 = rows.iter().map(|row| row[column].parse::<u64>().unwrap()).sum();
    assert_eq!(responses, output.total("responses"));
}

#[test]
fn an_interval_log_is_read_line_by_line() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let path = directory.path().join("run.hlog");
    let flags = ["-c", "2", "-R", "100", "-d", "2s", "--hdr", path.to_str().unwrap()];
    let output = run_load(&[&flags[..], &[&origin.url("/")]].concat());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("#[Histogram log format version 1.3]"), "{text}");
    let mut counted = 0;
    let mut tags = Vec::new();
    let is_line = |line: &&str| !line.starts_with('#') && !line.starts_with('"');
    for line in text.lines().filter(is_line) {
        let fields: Vec<&str> = line.split(',').collect();
        let [tag, start_s, length_s, max_ms, histogram] = fields[..] else { panic!("{line}") };
        for number in [start_s, length_s, max_ms] {
            assert!(number.parse::<f64>().unwrap() >= 0.0, "{line}");
        }
        let tag = tag.strip_prefix("Tag=").unwrap();
        let latencies = LatencyHistogram::decode(histogram).unwrap();
        if tag == "last_byte.response" {
            counted += latencies.count();
        }
        tags.push(tag);
    }
    assert_eq!(counted, output.total("responses"), "{text}");
    for tag in ["connect.service", "first_byte.service", "last_byte.service"] {
        assert!(tags.contains(&tag), "{tags:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a part was left");
}

/// Starts a load of 300 requests in two seconds, with its record in a file.
fn record_at(path: &Path, origin: &OriginProcess) -> RunningProcess {
    let slo = ["--slo", "p99<60s"];
    let flags = ["load", "-c", "2", "-R", "150", "-n", "300", "--json", path.to_str().unwrap()];
    start(WEIR, &[&flags[..], &slo, &[&origin.url("/?s=10")]].concat())
}

#[test]
fn records_are_shown_compared_and_merged() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let paths = ["a.json", "b.json"].map(|name| directory.path().join(name));
    let [a, b] = [0, 1].map(|which| paths[which].to_str().unwrap());
    // On a busy machine, one may start only after the other has ended; then both run again.
    let together = (0..5).find_map(|_| {
        let both = [0, 1].map(|which| record_at(&paths[which], &origin));
        let [run, _] = both.map(RunningProcess::finish);
        let merged = run_weir(&["load", "report", "--merge", a, b]);
        (merged.code != 2).then_some(run)
    });
    let run = together.expect("two runs at the same time");
    let shown = run_weir(&["load", "report", a]);
    assert_eq!((&shown.stdout, shown.code), (&run.stdout, run.code), "as at the end of its run");
    let compared = run_weir(&["load", "report", a, b]);
    assert_eq!(compared.code, 0, "{compared:?}");
    assert!(compared.stdout.contains("a.json") && compared.stdout.contains("b.json"));
    let merged = start(WEIR, &["load", "report", "--merge", "--json", "RECORD", a, b]).finish();
    merged.assert_sums();
    assert_eq!(merged.record["objectives"][0]["met"], true, "{merged:?}");
    assert_eq!(merged.record["identities"].as_array().unwrap().len(), 2);
    let twice = run_weir(&["load", "report", "--merge", a, a]);
    assert_eq!(twice.code, 2, "{twice:?}");
    let id = merged.record["identities"][0]["id"].as_str().unwrap();
    assert!(twice.stderr.contains(id), "{twice:?}");
    assert_eq!(merged.total("requests"), 600);
    assert_eq!(merged.total("status.200"), 600);
    assert_eq!(merged.total("connections.requested"), 4);
    let read = |path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let [first, second] = [&paths[0], &paths[1]].map(read);
    let at = "/latency/last_byte/response/hdr";
    let decode = |run: &Value| LatencyHistogram::decode(run.pointer(at).unwrap().as_str().unwrap());
    let mut sum = decode(&first).unwrap();
    sum.add(&decode(&second).unwrap());
    for (name, quantile) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
        let path = format!("latency.last_byte.response.{name}");
        assert_eq!(merged.count(&path), sum.value_at_quantile(quantile), "{name}");
    }
    let invalid = |run: &Value| run["validity"]["verdict"] == "invalid";
    let expected = if invalid(&first) || invalid(&second) { 4 } else { 0 };
    assert_eq!(merged.code, expected, "{merged:?}");
}

#[test]
fn a_broken_record_is_named_with_the_position_of_the_fault() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let broken = directory.path().join("broken.json");
    fs::write(&broken, "{\"schema\": \"weir.run/1\",\n  oops}").unwrap();
    let other = directory.path().join("other.json");
    fs::write(&other, "{\"schema\": \"else/1\"}").unwrap();
    let paths = [broken.to_str().unwrap(), other.to_str().unwrap()];
    let output = run_weir(&["load", "report", paths[0], paths[1]]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("broken.json:2:3"), "{}", output.stderr);
    assert!(output.stderr.contains("'else/1'"), "{}", output.stderr);
}

#[test]
fn completions_and_manual_pages_are_written() {
    let _shared = shared_machine();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run_weir(&["completions", shell]);
        assert_eq!(output.code, 0, "{shell}");
        assert!(output.stdout.contains("max-error-rate"), "{shell}");
    }
    let directory = temp_dir();
    let pages = directory.path().join("man/man1");
    assert_eq!(run_weir(&["man", pages.to_str().unwrap()]).code, 0);
    for page in ["weir.1", "weir-load.1", "weir-load-report.1", "weir-serve.1"] {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains("weir"), "{page}");
    }
}
