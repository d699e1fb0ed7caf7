//! Tests of the structure of the source: allowed dependencies between crates, maximum lengths of
//! files and functions, the required first lines of a file, forbidden code, and names in the
//! documents.
//!
//! `clippy` and `rustfmt` check style. These tests do not check behaviour.

mod circles;
mod errors;
mod files;
mod manifest;
mod scan;
mod sizes;
mod stale;
mod weights;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use files::{collect, crate_names, product_files, read, repository, source_files};
use manifest::dependencies;
use sizes::{MeasuredSizes, SizeLimits};

/// Every crate, and the crates of this workspace that it may depend on. Data flows one way: a lower
/// crate in the list never uses a higher one, and siblings never use each other.
const CRATES: &[(&str, &[&str])] = &[
    (
        "cli",
        &[
            "record",
            "rt",
            "host",
            "stats",
            "serve",
            "server_shell",
            "load",
            "proxy",
            "proxy_config",
            "proxy_plan",
            "proxy_control",
            "report",
            "experiment",
            "diagnose",
            "tune",
            "plan",
            "fleet",
            "runner",
            "import",
            "proving_ground",
        ],
    ),
    ("proving_ground", &["experiment", "host", "record", "stats"]),
    ("import", &["record"]),
    ("report", &["diagnose", "experiment", "plan", "record", "stats", "tune"]),
    ("tune", &["host", "record"]),
    ("fleet", &["diagnose", "host", "load", "record", "rt", "runner"]),
    ("runner", &["diagnose", "host", "load", "plan", "record", "rt", "stats"]),
    ("plan", &["record", "stats"]),
    ("experiment", &["diagnose", "host", "record", "stats"]),
    ("diagnose", &["record", "stats"]),
    ("load", &["load_plan", "wire", "rt", "record", "stats"]),
    ("load_plan", &["wire", "rt", "record"]),
    (
        "proxy_control",
        &["proxy", "proxy_config", "proxy_plan", "wire", "rt", "record", "server_shell", "cache"],
    ),
    // The text of a config is known only to its fuzzers.
    ("proxy", &["proxy_config", "proxy_plan", "wire", "rt", "record", "server_shell", "content", "cache"]),
    ("proxy_config", &["proxy_plan", "wire", "rt", "record", "cache", "content"]),
    ("proxy_plan", &["wire", "rt", "record", "server_shell", "content", "cache"]),
    ("cache", &["wire", "rt", "server_shell", "content"]),
    ("serve", &["wire", "rt", "record", "server_shell", "content"]),
    ("content", &["wire", "rt", "record", "server_shell"]),
    ("server_shell", &["wire", "rt", "record"]),
    ("host", &["record", "stats"]),
    ("record", &["stats"]),
    ("rt", &["xdp"]),
    ("xdp", &[]),
    ("stats", &[]),
    ("test_needs", &[]),
    ("decode_cost", &[]),
    ("wire", &[]),
];

/// Foreign crates that only one crate of ours may use (more for TOML and for pages, which several
/// crates have). Each stands for a task with a single implementation. A name that ends in `*` stands for
/// all names with that prefix.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("anyhow", &[]),
    ("arrayvec", &["wire"]),
    ("brotli", &["content"]),
    ("clap*", &["cli"]),
    ("cpp_demangle", &["host"]),
    ("h2", &["wire"]),
    ("hdrhistogram", &["record"]),
    ("hmac", &["proxy", "proxy_config", "proxy_plan"]),
    ("indicatif", &["cli"]),
    ("landlock", &["rt"]),
    ("libmimalloc-sys", &["rt"]),
    ("maud", &["cli", "report"]),
    ("netlink-*", &["host"]),
    ("object", &["host"]),
    ("percent-encoding", &["fleet"]),
    ("perf-event-open-sys*", &["host"]),
    ("ratatui", &["cli"]),
    ("rcgen", &["rt"]),
    ("regex", &["load", "load_plan", "proxy", "proxy_config", "proxy_plan"]),
    ("regex-automata", &["load_plan"]),
    ("rustc-demangle", &["host"]),
    ("rustls", &["rt"]),
    ("sha2", &["cache", "content", "load", "proxy", "proxy_config", "record"]),
    ("smoltcp", &["xdp"]),
    ("socket2", &["rt"]),
    ("statrs", &["stats"]),
    ("textwrap", &["report"]),
    ("tokio-rustls", &["rt"]),
    ("toml", &["record", "proxy_config", "experiment"]),
    ("toml_parser", &["record"]),
];

/// Crates that may contain unsafe code.
const MAY_BE_UNSAFE: &[&str] = &["rt", "host", "decode_cost", "xdp"];

/// Maximum number of product lines of a file.
const FILE_LINES: SizeLimits = SizeLimits { limit: 800, hard_limit: 800 };
/// Maximum number of product lines of a chart: it describes its marks, and the plot layer draws them.
const CHART_LINES: SizeLimits = SizeLimits { limit: 120, hard_limit: 120 };
/// Directory of the charts.
const CHARTS: &str = "crates/report/src/charts/";
/// Maximum number of lines of a function, without an exception and with one.
const FUNCTION_LINES: SizeLimits = SizeLimits { limit: 60, hard_limit: 100 };

/// Lines of a document at the repository's root.
const DOCUMENT_LINES: &[(&str, usize)] = &[("README.md", 120), ("ARCHITECTURE.md", 200)];

/// Docstrings that start with a relative pronoun or the like, by crate. A ratchet: it only goes
/// down.
const HEADLESS_DOCSTRINGS: &[(&str, usize)] = &[];

#[test]
fn crates_depend_only_downwards() {
    let allowed: BTreeMap<&str, &[&str]> = CRATES.iter().copied().collect();
    let mut problems = Vec::new();
    for name in crate_names() {
        let Some(allowed_here) = allowed.get(name.as_str()) else {
            problems
                .push(format!("crates/{name} is new: add it to CRATES in tidy.rs and to ARCHITECTURE.md"));
            continue;
        };
        for dependency in dependencies(&read(&format!("crates/{name}/Cargo.toml"))) {
            let internal = allowed.contains_key(dependency.as_str());
            if internal && !allowed_here.contains(&dependency.as_str()) {
                problems.push(format!(
                    "{name} -> {dependency}: this edge is not allowed; {name} may use {allowed_here:?}. \
                     Pass a value in, or move what both need to a crate below both"
                ));
            }
        }
    }
    report("crate edges", &problems);
}

#[test]
fn modules_import_only_downwards() {
    let mut crates: BTreeMap<String, circles::Imports> = BTreeMap::new();
    for file in product_files() {
        let Some((name, path)) = file.trim_start_matches("crates/").split_once("/src/") else { continue };
        let module = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if !matches!(module, "lib" | "main") {
            let is_first_file = !path.contains('/');
            crates.entry(name.to_owned()).or_default().add(module, is_first_file, &scan::mask(&read(&file)));
        }
    }
    let mut problems = Vec::new();
    for (name, imports) in &crates {
        let found = imports.in_circles();
        if !found.is_empty() {
            problems.push(format!(
                "{name}: {} import each other in circles. Move what both need to a module below both, or \
                 pass in the part that is needed",
                found.join(", ")
            ));
        }
    }
    report("circles of modules", &problems);
}

#[test]
fn a_foreign_crate_has_one_home() {
    let mut problems = Vec::new();
    for name in crate_names() {
        for dependency in dependencies(&read(&format!("crates/{name}/Cargo.toml"))) {
            let allowed = ONLY_IN.iter().find(|(pattern, _)| matches_pattern(&dependency, pattern));
            if let Some((_, homes)) = allowed
                && !homes.contains(&name.as_str())
            {
                problems.push(format!(
                    "{name} depends on {dependency}, which only {homes:?} may use: add what {name} \
                     needs of it to their interface"
                ));
            }
        }
    }
    report("homes of foreign crates", &problems);
}

#[test]
fn every_crate_takes_the_common_lints() {
    let mut problems = Vec::new();
    for name in crate_names() {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let squeezed: String = manifest.split_whitespace().collect();
        if !squeezed.contains("[lints]workspace=true") {
            problems.push(format!("crates/{name}/Cargo.toml: add [lints] workspace = true"));
        }
    }
    report("lints", &problems);
}

#[test]
fn files_and_functions_stay_short() {
    let mut measured = MeasuredSizes::default();
    for file in product_files() {
        let masked = scan::mask(&read(&file));
        let limits = if file.starts_with(CHARTS) { &CHART_LINES } else { &FILE_LINES };
        measured.add(format!("{file} file"), scan::product_lines(&masked), limits);
        for function in scan::functions(&masked) {
            let key = format!("{file}::{} function", function.name);
            measured.add(key, function.lines, &FUNCTION_LINES);
        }
    }
    let exceptions = read("crates/cli/tests/it/tidy_exceptions.txt");
    report("sizes", &measured.check(&exceptions));
}

#[test]
fn the_product_gains_no_weight() {
    let mut measured: BTreeMap<String, usize> = crate_names().into_iter().map(|name| (name, 0)).collect();
    for file in product_files() {
        let name = file.trim_start_matches("crates/").split('/').next().unwrap_or_default();
        *measured.entry(name.to_owned()).or_default() += scan::product_lines(&scan::mask(&read(&file)));
    }
    measured.insert(weights::PACKAGES.to_owned(), weights::packages(&read("Cargo.lock")));
    let stored = read("crates/cli/tests/it/tidy_weights.txt");
    report("weights in crates/cli/tests/it/tidy_weights.txt", &weights::check(&measured, &stored));
}

/// `cargo deny` runs only in `.ci/run`, so a crate that was moved would be noticed late.
#[test]
fn homes_of_foreign_crates_are_those_of_cargo_deny() {
    let denied = read("deny.toml");
    let rows = manifest::denied_crates(&denied);
    assert!(rows.len() > 20, "rows of deny.toml: {}", rows.len());
    let mut problems = Vec::new();
    for name in crate_names() {
        let text = read(&format!("crates/{name}/Cargo.toml"));
        let dependencies = dependencies(&text);
        for (denied, wrappers) in &rows {
            let is_wrapper = wrappers.iter().any(|wrapper| *wrapper == name);
            // A dependency of tests is one for cargo deny.
            let is_named = text
                .lines()
                .any(|line| line.strip_prefix(denied).is_some_and(|rest| rest.starts_with(['.', ' ', '='])));
            if dependencies.contains(*denied) && !is_wrapper {
                problems.push(format!("deny.toml: {denied} is used by {name}: add it to its wrappers"));
            } else if is_wrapper && !is_named {
                problems
                    .push(format!("deny.toml: {name} does not use {denied}: remove it from its wrappers"));
            }
        }
    }
    report("deny.toml", &problems);
}

/// A test that does not run in `.ci/run` is no test: comparisons and measurements belong to `bench/`.
#[test]
fn no_test_is_ignored() {
    let attribute = ["#[", "ignore"].concat();
    let files = source_files().into_iter().filter(|file| read(file).contains(&attribute));
    let problems: Vec<String> = files.map(|file| format!("{file}: has an ignored test")).collect();
    report("ignored tests", &problems);
}

#[test]
fn every_file_says_what_it_is_for() {
    let files = source_files().into_iter();
    let problems: Vec<String> = files
        .filter(|file| !read(file).starts_with("//!"))
        .map(|file| format!("{file}: start it with //! and what it is for, and what it is not for"))
        .collect();
    report("module documentation", &problems);
}

#[test]
fn docstrings_start_with_a_verb_or_a_noun() {
    let mut problems = Vec::new();
    for name in crate_names() {
        let mut files = Vec::new();
        collect(&format!("crates/{name}"), &mut files);
        let headless: Vec<String> = files
            .iter()
            .flat_map(|file| {
                let text = read(file);
                let lines: Vec<usize> = scan::headless_docstrings(&text).collect();
                lines.into_iter().map(move |line| format!("{file}:{line}"))
            })
            .collect();
        let known = HEADLESS_DOCSTRINGS.iter().find(|(crate_name, _)| *crate_name == name);
        let max = known.map_or(0, |(_, max)| *max);
        if headless.len() > max {
            problems.push(format!(
                "crates/{name}: {} docstrings start with {:?}, {max} may: start them with a verb or a \
                 noun: {}",
                headless.len(),
                scan::HEADLESS_STARTS,
                headless.join(" ")
            ));
        } else if headless.len() < max {
            problems.push(format!("HEADLESS in tidy.rs: lower {name} to {}", headless.len()));
        }
    }
    report("docstrings", &problems);
}

/// Files that contain old words on purpose: this check itself, the kernel's names of parameters, and names of files.
const MAY_USE_OLD_WORDS: &[&str] =
    &["crates/cli/tests/it/tidy/words.rs", "crates/tune/src/catalogue/boot.rs"];

#[test]
fn names_and_messages_use_the_word_list() {
    let mut files = Vec::new();
    for name in crate_names() {
        collect(&format!("crates/{name}"), &mut files);
    }
    let problems: Vec<String> = files
        .into_iter()
        .filter(|file| !MAY_USE_OLD_WORDS.contains(&file.as_str()))
        .flat_map(|file| {
            let problems = words::problems(&read(&file));
            problems.into_iter().map(move |problem| format!("{file}:{problem}"))
        })
        .collect();
    report("old words, see the tables in tidy/words.rs", &problems);
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read("docs/decisions/README.md");
    let entries = fs::read_dir(repository().join("docs/decisions")).expect("docs/decisions");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let problems: Vec<String> = names
        .filter(|name| name != "README.md" && !index.contains(&format!("({name})")))
        .map(|name| format!("docs/decisions/README.md: add {name}"))
        .collect();
    report("decisions", &problems);
}

#[test]
fn unsafe_code_is_forbidden_where_it_can_be() {
    let mut problems = Vec::new();
    for name in crate_names() {
        if MAY_BE_UNSAFE.contains(&name.as_str()) {
            continue;
        }
        for root in ["src/lib.rs", "src/main.rs"] {
            let path = format!("crates/{name}/{root}");
            if repository().join(&path).exists()
                && !scan::mask(&read(&path)).contains("#![forbid(unsafe_code)]")
            {
                problems.push(format!("{path}: add #![forbid(unsafe_code)]"));
            }
        }
    }
    report("unsafe code", &problems);
}

#[test]
fn product_code_does_not_give_up() {
    let mut problems = Vec::new();
    for file in product_files() {
        for (line, what) in panics(&read(&file)) {
            problems.push(format!("{file}:{line}: {what}"));
        }
    }
    report("unwrap, panic and expect", &problems);
}

#[test]
fn errors_have_types() {
    let remedy = "the type of an error says whose fault it is: record::problem::InvalidValue, or an enum";
    let mut problems = Vec::new();
    for file in product_files() {
        let lines = errors::untyped(&read(&file)).into_iter();
        problems.extend(lines.map(|line| format!("{file}:{line}: {remedy}")));
    }
    report("texts as errors", &problems);
}

#[test]
fn the_documents_name_what_there_is() {
    let mut problems = Vec::new();
    let mut document = |path: &str| {
        let text = fs::read_to_string(repository().join(path));
        text.inspect_err(|error| problems.push(format!("{path}: {error}"))).unwrap_or_default()
    };
    let changelog = document("CHANGELOG.md");
    let readme = document("README.md");
    let architecture = document("ARCHITECTURE.md");
    if !changelog.lines().any(is_release_heading) {
        problems.push("CHANGELOG.md: add a heading \"## Unreleased\" or \"## 1.2.3\"".to_owned());
    }
    let commands = fenced_lines(&readme);
    for command in ["cargo run --profile quick -- load", "cargo test --workspace"] {
        if !commands.iter().any(|line| line.starts_with(command)) {
            problems.push(format!("README.md: give `{command}` in a fenced block"));
        }
    }
    for (path, max) in DOCUMENT_LINES {
        let lines = read(path).lines().count();
        if lines > *max {
            problems.push(format!("{path}: {lines} lines; at most {max}"));
        }
    }
    for name in crate_names() {
        if !architecture.contains(&format!("`{name}`")) && !architecture.contains(&format!("crates/{name}")) {
            problems.push(format!("ARCHITECTURE.md: name the crate `{name}` and its job"));
        }
    }
    report("documents", &problems);
}

#[test]
fn the_documents_deny_nothing_that_exists() {
    let mut problems = Vec::new();
    for (feature, path, evidence) in stale::FEATURES {
        if !read(path).contains(evidence) {
            problems
                .push(format!("tidy/stale.rs: no '{evidence}' in {path}: {feature} is gone, or elsewhere"));
        }
    }
    let root = repository();
    for directory in ["", "docs", "packaging", "bench", "fuzz"] {
        for entry in fs::read_dir(root.join(directory)).expect("a directory of documents") {
            let path = entry.expect("an entry").path();
            // The changelog tells of times when something did not exist.
            if path.extension().is_some_and(|end| end == "md") && !path.ends_with("CHANGELOG.md") {
                let text = fs::read_to_string(&path).expect("a document");
                let name = path.strip_prefix(&root).unwrap_or(&path).display();
                problems.extend(stale::problems(&text).iter().map(|problem| format!("{name}: {problem}")));
            }
        }
    }
    report("statements", &problems);
}

/// Fails with all problems at once.
fn report(what: &str, problems: &[String]) {
    let mut text = String::new();
    for problem in problems {
        let _ = write!(text, "\n  {problem}");
    }
    assert!(problems.is_empty(), "{what}: {} to put right:{text}", problems.len());
}

fn matches_pattern(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

/// Finds product code that panics instead of returning an error: (line from 1, remedy).
fn panics(text: &str) -> Vec<(usize, &'static str)> {
    let masked = scan::mask(text);
    let tests = scan::test_ranges(&masked);
    let lines: Vec<&str> = text.lines().collect();
    let mut problems = Vec::new();
    let mut note = |at: usize, what: &'static str| {
        if !tests.iter().any(|range| range.contains(&at)) {
            problems.push((scan::line_of(&masked, at) + 1, what));
        }
    };
    for (at, _) in masked.match_indices(".unwrap()") {
        note(at, ".unwrap(): return an error, or use expect with its invariant in a comment");
    }
    for word in ["panic", "todo", "unimplemented"] {
        for at in scan::words(&masked, word) {
            if masked[at + word.len()..].starts_with("!(") {
                note(at, "panic!, todo! or unimplemented!: return an error");
            }
        }
    }
    for (at, call) in masked.match_indices(".expect(") {
        // Parsers have a method of that name; theirs takes a byte or a token.
        let argument = masked[at + call.len()..].trim_start();
        let is_message = ["\"", "r\"", "r#", "r ", "&format!"].iter().any(|s| argument.starts_with(s));
        let line = scan::line_of(&masked, at);
        let near = lines[line.saturating_sub(3)..=line].iter();
        let explained =
            near.clone().any(|near| near.contains("// invariant:") || near.contains("// Invariant:"));
        if is_message && !explained {
            note(at, ".expect(\"…\"): say why it holds in \"// Invariant: …\", at most 3 lines above");
        }
    }
    problems.sort_unstable();
    problems
}

/// Returns whether a line is a release heading: "## Unreleased", "## [Unreleased]", "## 1.2.3 …",
/// "## [1.2.3] …".
fn is_release_heading(line: &str) -> bool {
    let Some(title) = line.strip_prefix("## ") else {
        return false;
    };
    let title = title.trim_start_matches(['[', 'v']);
    title.starts_with("Unreleased") || title.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns the lines within fenced blocks of a Markdown text, without a prompt.
fn fenced_lines(markdown: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in markdown.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            lines.push(line.strip_prefix("$ ").unwrap_or(line));
        }
    }
    lines
}

#[test]
fn the_allowed_edges_have_no_circle() {
    for (at, (name, below)) in CRATES.iter().enumerate() {
        for other in *below {
            let position = CRATES.iter().position(|(candidate, _)| candidate == other);
            assert!(position.is_some_and(|position| position > at), "{name} -> {other}");
        }
    }
}

#[test]
fn giving_up_is_seen_and_invariants_excuse() {
    let text = r#"
/// Calls `x.unwrap()` and panic!("no").
fn a() {
    x.unwrap();
    x.unwrap_or(1);
    panic!("at {x}");
    std::panic::catch_unwind(f);
    x.expect("no reason");
    // Invariant: x was filled above.
    x.first()
        .expect("filled");
    parser.expect(b'x')?;
    parser.expect(&wanted, "otherwise")?;
    let s = "todo!()";
    todo!()
}
#[cfg(test)]
mod tests {
    fn t() { x.unwrap() }
}
"#;
    let lines: Vec<usize> = panics(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [4, 6, 8, 15]);
}

#[test]
fn headings_and_fences_are_read() {
    for line in ["## Unreleased", "## [Unreleased]", "## 0.1.0 (2026-01-01)", "## v1.0.0"] {
        assert!(is_release_heading(line), "{line}");
    }
    assert!(!is_release_heading("# Changelog") && !is_release_heading("## Notes"));
    let text = "a\n```sh\n$ cargo build\nb\n```\ncargo c\n";
    assert_eq!(fenced_lines(text), ["cargo build", "b"]);
}
