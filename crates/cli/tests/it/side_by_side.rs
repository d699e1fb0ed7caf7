//! Configs of weir beside those of HAProxy, nginx and Caddy, from `docs/examples/side-by-side` and `docs/features.md`: both
//! programs get the same requests of curl, in front of the same origins, and treat them the same way.
//! `docs/side-by-side.md` is generated from the configs.

mod features;
mod page;
mod pairs;
mod sides;
mod steps;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::proxies::is_installed;
use crate::support::tls_peers::Certificates;
use crate::support::{run_weir, shared_machine};

use pairs::{PAIRS, Pair};
use sides::{Origins, Program, Side};

/// Returns the text of a file of a pair.
fn example(pair: &Pair, file: &str) -> String {
    let path = examples_directory().join(pair.name).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn examples_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/side-by-side")
}

/// Compares the pairs of a program with weir. Pairs of a program that is not installed run with weir alone.
fn compare(program: Program) {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let has_peer = program.is_installed();
    let Some(certificates) = Certificates::create() else { return };
    let origins = Origins::start();
    let mut problems = Vec::new();
    for pair in PAIRS.iter().filter(|pair| pair.program == program) {
        if pair.requests.is_empty() && pair.steps.is_none() {
            let text = example(pair, "weir.toml").replace("/var/lib/weir", "/tmp");
            assert!(proxy_config::config::parse("t", &text).is_ok(), "{}", pair.name);
            continue;
        }
        let weir = Side::start(Program::Weir, &example(pair, "weir.toml"), &origins, &certificates);
        let peer = has_peer
            .then(|| Side::start(program, &example(pair, program.config_file()), &origins, &certificates));
        for (request, expected) in pair.requests {
            let found = weir.request(request, pair.fields);
            if found[0] != *expected {
                problems.push(format!("{}: {request}: weir: {found:?}, not {expected}", pair.name));
            }
            if let Some(peer) = &peer {
                let peer_response = peer.request(request, pair.fields);
                if peer_response != found {
                    problems.push(format!("{}: {request}: {peer_response:?}, weir: {found:?}", pair.name));
                }
            }
        }
        if let Some((steps, expected)) = pair.steps {
            for side in [Some(&weir), peer.as_ref()].into_iter().flatten() {
                let found = steps(side);
                if found != expected {
                    problems.push(format!("{}: {:?}: {found}, not {expected}", pair.name, side.program));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn pairs_of_haproxy_and_weir_are_the_same() {
    compare(Program::Haproxy);
}

#[test]
fn pairs_of_nginx_and_weir_are_the_same() {
    compare(Program::Nginx);
}

/// Caddy is not installed: its behaviour is that of its documentation, which the expected results state.
#[test]
fn pairs_of_caddy_do_what_its_documentation_says() {
    compare(Program::Caddy);
}

#[test]
fn the_page_of_the_pairs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/side-by-side.md");
    let page = page::generated_page();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/side-by-side.md differs from the examples; run this test with WEIR_WRITE_DOCS=1"
    );
}

/// Each directory is in the table, and its config is formatted.
#[test]
fn every_pair_is_in_the_table() {
    let _shared = shared_machine();
    let mut names: Vec<String> = fs::read_dir(examples_directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut listed: Vec<&str> = PAIRS.iter().map(|pair| pair.name).collect();
    listed.sort_unstable();
    assert_eq!(names, listed);
    let files: Vec<String> = PAIRS
        .iter()
        .map(|pair| examples_directory().join(pair.name).join("weir.toml").display().to_string())
        .collect();
    let mut arguments = vec!["proxy", "fmt", "--check"];
    arguments.extend(files.iter().map(String::as_str));
    let checked = run_weir(&arguments);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}
