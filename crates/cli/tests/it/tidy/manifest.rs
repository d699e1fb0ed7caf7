//! Dependencies that a manifest of Cargo names.

use std::collections::BTreeSet;

/// Returns the packages that the dependencies of a manifest name, including those of builds and
/// targets, and excluding those of tests.
pub(super) fn dependencies(manifest: &str) -> BTreeSet<String> {
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

/// Returns the crates that `deny.toml` allows only below some packages, each with these packages. A row is one line.
pub(super) fn denied_crates(text: &str) -> Vec<(&str, Vec<&str>)> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix("{ crate = \"")?.split_once('"')?;
            let list = rest.split_once("wrappers = [").and_then(|(_, rest)| rest.split_once(']'));
            let wrappers = list.map_or("", |(list, _)| list).split(',');
            Some((name, wrappers.map(|name| name.trim().trim_matches('"')).collect()))
        })
        .collect()
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
