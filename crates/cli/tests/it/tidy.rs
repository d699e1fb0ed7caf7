//! Tests of the structure of the source: allowed dependencies between crates, maximum lengths of
//! files and functions, the required first lines of a file, forbidden code, and names in the
//! documents.
//!
//! `clippy` and `rustfmt` check style. These tests do not check behaviour.

mod circles;
mod scan;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

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
            "report",
            "experiment",
            "diagnose",
            "tune",
            "plan",
            "fleet",
        ],
    ),
    ("tune", &["host", "record"]),
    ("fleet", &["record"]),
    ("plan", &["record", "stats"]),
    ("report", &["diagnose", "experiment", "record", "stats"]),
    ("experiment", &["diagnose", "host", "record", "stats"]),
    ("diagnose", &["record", "stats"]),
    ("load", &["wire", "rt", "record", "stats"]),
    ("proxy", &["wire", "rt", "record", "server_shell"]),
    ("serve", &["wire", "rt", "record", "server_shell"]),
    ("server_shell", &["wire", "rt", "record"]),
    ("host", &["record", "stats"]),
    ("record", &["stats"]),
    ("rt", &[]),
    ("stats", &[]),
    ("test_needs", &[]),
    ("wire", &[]),
];

/// Foreign crates that only one crate of ours may use (more for TOML and for pages, which several
/// crates have). Each stands for a task with a single implementation. A name that ends in `*` stands for
/// all names with that prefix.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("anyhow", &["cli"]),
    ("async-nats", &["fleet"]),
    ("clap*", &["cli"]),
    ("cpp_demangle", &["host"]),
    ("futures-util", &["fleet"]),
    ("h2", &["wire"]),
    ("hdrhistogram", &["record"]),
    ("hmac", &["proxy"]),
    ("httparse", &["wire"]),
    ("indicatif", &["cli"]),
    ("landlock", &["rt"]),
    ("maud", &["cli", "report"]),
    ("netlink-*", &["host"]),
    ("object", &["host"]),
    ("perf-event-open-sys*", &["host"]),
    ("ratatui", &["cli"]),
    ("rcgen", &["rt"]),
    ("regex", &["load", "proxy"]),
    ("regex-automata", &["load"]),
    ("rustc-demangle", &["host"]),
    ("rustls", &["rt"]),
    ("sha2", &["load", "proxy", "record"]),
    ("socket2", &["rt"]),
    ("statrs", &["stats"]),
    ("tokio-rustls", &["rt"]),
    ("toml", &["record", "load", "proxy", "experiment", "plan", "fleet"]),
];

/// Crates that may contain unsafe code.
const MAY_BE_UNSAFE: &[&str] = &["rt", "host"];

/// Maximum number of product lines of a file, without an exception and with one.
const FILE_LINES: SizeLimits = SizeLimits { limit: 500, hard_limit: 1000 };
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

struct SizeLimits {
    limit: usize,
    hard_limit: usize,
}

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

/// Files that contain old words on purpose: this check itself, and the kernel's names of parameters.
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
    report("old words, see the word list in CONTRIBUTING.md", &problems);
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

/// Fails with all problems at once.
fn report(what: &str, problems: &[String]) {
    let mut text = String::new();
    for problem in problems {
        let _ = write!(text, "\n  {problem}");
    }
    assert!(problems.is_empty(), "{what}: {} to put right:{text}", problems.len());
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text of a file of the repository.
fn read(path: &str) -> String {
    let text = fs::read_to_string(repository().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the directories below `crates`.
fn crate_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(repository().join("crates"))
        .expect("the directory crates")
        .map(|entry| entry.expect("an entry of crates"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Returns every Rust file below a crate's `src`, as a path from the repository's root.
fn source_files() -> Vec<String> {
    let mut files = Vec::new();
    for name in crate_names() {
        collect(&format!("crates/{name}/src"), &mut files);
    }
    files
}

fn collect(directory: &str, files: &mut Vec<String>) {
    let entries = fs::read_dir(repository().join(directory));
    let entries = entries.unwrap_or_else(|error| panic!("{directory}: {error}"));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a directory entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    for name in names {
        let path = format!("{directory}/{name}");
        if repository().join(&path).is_dir() {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

/// Returns the source files of the product. It leaves out tests by name (`tests.rs`, `tests/`, and
/// `fuzzing.rs`, whose properties panic by design) and modules that another file declares for tests
/// only.
fn product_files() -> Vec<String> {
    let files = source_files();
    let mut test_only = BTreeSet::new();
    for file in &files {
        for module in scan::test_modules(&scan::mask(&read(file))) {
            test_only.insert(format!("{}/{module}", module_directory(file)));
        }
    }
    let is_product = |file: &String| {
        let by_name =
            ["/tests.rs", "/tests/", "/fuzzing.rs", "/fuzzing/"].iter().any(|name| file.contains(name));
        let stem = file.trim_end_matches(".rs");
        let declared = test_only.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        !by_name && !declared
    };
    files.into_iter().filter(is_product).collect()
}

/// Returns the directory with the modules that `file` declares.
fn module_directory(file: &str) -> String {
    let stem = file.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((directory, "lib" | "main" | "mod")) => directory.to_owned(),
        _ => stem.to_owned(),
    }
}

/// Returns the packages that the dependencies of a manifest name, including those of builds and
/// targets, and excluding those of tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut packages = BTreeSet::new();
    let mut in_table = false;
    let mut single: Option<String> = None;
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        if let Some(table) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (kind, name) = dependency_table(table);
            in_table = kind && name.is_none();
            single = name.filter(|_| kind).map(str::to_owned);
            packages.extend(single.clone());
        } else if let Some(name) = &single {
            if let Some(package) = renamed_package(line) {
                packages.remove(name);
                packages.insert(package);
            }
        } else if in_table && let Some((key, value)) = line.split_once('=') {
            let name = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
            packages.insert(renamed_package(value).unwrap_or_else(|| name.to_owned()));
        }
    }
    packages
}

/// Returns whether a table contains dependencies, and the single dependency that it describes, if
/// any.
fn dependency_table(table: &str) -> (bool, Option<&str>) {
    let table = match table.strip_prefix("target.") {
        Some(rest) => rest.rsplit_once("'.").map_or(rest, |(_, table)| table),
        None => table,
    };
    let (kind, name) = table.split_once('.').map_or((table, None), |(kind, name)| (kind, Some(name)));
    (matches!(kind, "dependencies" | "build-dependencies"), name)
}

/// Returns the value of `package = "…"`.
fn renamed_package(text: &str) -> Option<String> {
    let value = text.split_once("package")?.1.trim_start().strip_prefix('=')?.trim_start();
    Some(value.strip_prefix('"')?.split_once('"')?.0.to_owned())
}

fn matches_pattern(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

/// Sizes by "path kind", the maximum for repeated names, with the bounds of the kind.
#[derive(Default)]
struct MeasuredSizes<'a>(BTreeMap<String, (usize, Option<&'a SizeLimits>)>);

impl<'a> MeasuredSizes<'a> {
    fn add(&mut self, key: String, size: usize, bounds: &'a SizeLimits) {
        let entry = self.0.entry(key).or_default();
        *entry = (entry.0.max(size), Some(bounds));
    }

    /// Reports items that are too large, and invalid stored exceptions: lines "path kind
    /// size".
    fn check(&self, exceptions: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut excepted = BTreeMap::new();
        for line in exceptions.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.rsplit_once(' ').and_then(|(key, size)| {
                Some((key.split_whitespace().collect::<Vec<_>>().join(" "), size.parse().ok()?))
            });
            match parsed {
                Some((key, size)) if excepted.insert(key.clone(), size).is_none() => {
                    problems.extend(self.stale_exception(&key, size));
                }
                Some((key, _)) => problems.push(format!("exception \"{key}\": listed twice")),
                None => problems.push(format!("exception \"{line}\": write \"path kind size\"")),
            }
        }
        for (key, (size, bounds)) in &self.0 {
            let Some(bounds) = bounds else { continue };
            let allowed = excepted.get(key).map_or(bounds.limit, |size| (*size).min(bounds.hard_limit));
            if *size > allowed {
                problems.push(format!(
                    "{key}: {size} lines, {allowed} are allowed: split it by what it does. (An \
                     exception in tidy_exceptions.txt goes up to {} and needs a reason beside it)",
                    bounds.hard_limit
                ));
            }
        }
        problems
    }

    /// Reports the error of an exception that is not exceeded.
    fn stale_exception(&self, key: &str, excepted: usize) -> Option<String> {
        let Some((size, Some(bounds))) = self.0.get(key) else {
            return Some(format!("exception \"{key}\": there is no such thing; remove the line"));
        };
        if *size <= bounds.limit {
            return Some(format!("exception \"{key}\": no longer needed ({size}); remove the line"));
        }
        let too_generous = *size * 10 < excepted * 9;
        too_generous.then(|| format!("exception \"{key}\": lower {excepted} to {size}"))
    }
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
fn a_manifest_is_read() {
    let manifest = r#"
[package]
name = "x"
[dependencies]
wire.workspace = true   # the codec
rt = { path = "../rt", package = "runtime" }
"record" = "1"
[dependencies.serde]
version = "1"
features = ["derive"]
[dependencies.alias]
package = "httparse"
[target.'cfg(target_os = "linux")'.dependencies]
socket2 = "0.6"
[build-dependencies]
cc = "1"
[dev-dependencies]
tempfile = "3"
[features]
proxy = []
"#;
    let got: Vec<String> = dependencies(manifest).into_iter().collect();
    assert_eq!(got, ["cc", "httparse", "record", "runtime", "serde", "socket2", "wire"]);
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
fn an_exception_is_a_ratchet() {
    let mut measured = MeasuredSizes::default();
    measured.add("a.rs file".to_owned(), 700, &FILE_LINES);
    measured.add("a.rs::f function".to_owned(), 10, &FUNCTION_LINES);
    measured.add("a.rs::f function".to_owned(), 80, &FUNCTION_LINES);
    measured.add("a.rs::small function".to_owned(), 60, &FUNCTION_LINES);
    measured.add("a.rs::huge function".to_owned(), 101, &FUNCTION_LINES);
    let check = |exceptions: &str, parts: &[&str]| {
        let problems = measured.check(exceptions);
        assert_eq!(problems.len(), parts.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(parts) {
            assert!(problem.contains(part), "{problem}");
        }
    };
    let huge = "a.rs::huge function: 101 lines, ";
    check("", &["a.rs file: 700 lines, 500", "a.rs::f function: 80 lines, 60", huge]);
    check("# why\na.rs  file 700\na.rs::f function 88\na.rs::huge function 200", &["lower 200", huge]);
    check("a.rs file 699\na.rs::f function 80", &["a.rs file: 700 lines, 699", huge]);
    check("a.rs file 778\na.rs::f function 80", &["lower 778 to 700", huge]);
    check(
        "a.rs file 700\na.rs::f function 80\na.rs::small function 60\nb.rs file 600\nx\na.rs file 700",
        &["no longer needed", "no such thing", "path kind size", "listed twice", huge],
    );
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
