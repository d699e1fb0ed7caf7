//! Behaviour that the regression tests of another proxy check, applied to weir: which of those
//! tests have a counterpart here, and their results. The rows are data, in `regression/*.txt`, in
//! our own words, and docs/conformance.md is generated from them. A row names an existing test that
//! proves it already.

mod conversation;
mod page;
mod programs;
mod rows;

pub(crate) use page::generated_section;

use conversation::run_steps;
use rows::{ConformanceRow, Proof, THEMES, parse_rows};

/// Runs every row of a theme, all at the same time, and fails with those that do not hold.
fn run_theme(theme: &str) {
    let _shared = crate::support::shared_machine();
    let rows = parse_rows(theme);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = rows.iter().map(|row| (row, scope.spawn(|| check_row(row)))).collect();
        let ended = started.into_iter().map(|(row, handle)| (row, handle.join()));
        ended
            .filter_map(|(row, result)| match result {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(format!("{}: {why}", row.foreign_test)),
                Err(_) => Some(format!("{}: it panicked (see above)", row.foreign_test)),
            })
            .collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

fn check_row(row: &ConformanceRow) -> Result<(), String> {
    match &row.proof {
        Proof::Conversation { config, steps } => run_steps(config, steps),
        Proof::Program(name) => {
            let program = programs::PROGRAMS.iter().find(|(known, _)| known == name);
            let (_, run) = program.ok_or_else(|| format!("no program {name}"))?;
            run();
            Ok(())
        }
        Proof::Test(names) => {
            let missing: Vec<&str> = names.iter().map(String::as_str).filter(|name| !is_test(name)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("no tests {missing:?}")) }
        }
    }
}

/// Returns whether this binary has a test of this name, `module::function`.
fn is_test(name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else { return false };
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let path = directory.join(format!("{}.rs", module.replace("::", "/")));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains(&format!("#[test]\nfn {function}()"))
}

macro_rules! themes {
    ($($test:ident, $theme:literal;)*) => {
        $(#[test]
        fn $test() {
            run_theme($theme);
        })*

        #[test]
        fn every_theme_is_tested() {
            assert_eq!([$($theme),*], THEMES.map(|(name, _)| name));
        }
    };
}

themes! {
    choosing_a_server, "Choosing a server";
    health_checks, "Health checks";
    connections_to_servers, "Connections to servers";
    the_proxy_protocol, "PROXY protocol";
    request_targets_and_hosts, "Request targets and hosts";
    messages, "Messages";
    routes_and_rewriting, "Routes and rewriting";
    forwarding_fields, "Forwarding fields";
    limits_and_operation, "Limits and operation";
    logs, "Logs";
}
