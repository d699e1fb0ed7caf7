//! Runs every command of `docs/cookbook.md` exactly as printed.

use std::fs;
use std::path::Path;

use crate::examples::run_line;
use crate::support::{OriginProcess, WEIR, run_weir, shared_machine, temp_dir};

/// Returns the commands of weir in the fenced blocks.
fn commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook.md");
    let text = fs::read_to_string(path).unwrap();
    let (mut lines, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && line.starts_with("weir ") => lines.push(line.to_owned()),
            line => assert!(!inside || line.starts_with('#'), "neither a command nor a comment: {line}"),
        }
    }
    lines
}

#[test]
fn every_command_of_the_cookbook_works() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let second = OriginProcess::start(&["-t", "1"]);
    let secure = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    let directory = temp_dir();
    fs::create_dir(directory.path().join(".bin")).unwrap();
    std::os::unix::fs::symlink(WEIR, directory.path().join(".bin/weir")).unwrap();
    fs::write(directory.path().join("body.json"), "{}").unwrap();
    fs::write(directory.path().join("targets.txt"), format!("GET http://{}/?s=1\n", origin.authority))
        .unwrap();
    let proxy = "frontend f\n  mode http\n  bind 127.0.0.1:8080\n  default_backend b\nbackend b\n  server s 127.0.0.1:9001\n";
    fs::write(directory.path().join("haproxy.cfg"), proxy).unwrap();
    fs::write(
        directory.path().join("nginx.conf"),
        "server { location / { proxy_pass http://127.0.0.1:9001; } }\n",
    )
    .unwrap();
    fs::write(directory.path().join("Caddyfile"), ":8080 {\n  reverse_proxy 127.0.0.1:9001\n}\n").unwrap();
    let record = directory.path().join("one.json");
    let url = format!("http://{}/", origin.authority);
    run_weir(&["load", "-c", "2", "-n", "200", "--no-watch", "--json", record.to_str().unwrap(), &url]);
    let lines = commands();
    assert!(lines.len() >= 25, "{lines:?}");
    for line in lines {
        let line = line.replace("127.0.0.1:8000", &origin.authority);
        let line = line.replace("127.0.0.1:8001", &second.authority);
        let line = line.replace("127.0.0.1:8443", &secure.authority);
        // Another process may hold the default port here.
        let line = line.replace("127.0.0.1:8080", "127.0.0.1:0");
        let (code, stdout) = run_line(&line, directory.path());
        // A busy machine makes a load invalid, or makes it miss its objectives.
        let may_be_disturbed =
            line.starts_with("weir load") && (code == 4 || (code == 3 && line.contains("--slo")));
        assert!(code == 0 || may_be_disturbed, "{line}: {code} {stdout}");
    }
    let page = fs::read_to_string(directory.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
}

#[test]
fn fingers_that_know_other_programs_are_understood_or_told_what_to_type() {
    let _shared = shared_machine();
    let version = run_weir(&["version"]);
    assert_eq!((version.code, version.stdout), (0, run_weir(&["--version"]).stdout));
    let origin = OriginProcess::start(&["-t", "1"]);
    let url = format!("http://{}/", origin.authority);
    let output = run_weir(&["load", "-k", "--latency", "-c", "1", "-n", "200", "--no-watch", &url]);
    assert!(output.code == 0 || output.code == 4, "{output:?}");
    assert!(output.stdout.contains("invtail"), "all percentiles: {}", output.stdout);
    let output = run_weir(&["load", "-p", "8", &url]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(
        output.stderr.contains("--http 2 -m N") && output.stderr.contains("--data-file"),
        "{}",
        output.stderr
    );
}
